"""The page of one run: what was checked, what it asks, and what is known of it; also for print.

Deny stands before the question and has the focus, so that nobody is carried past what they would
sign. Approve stands after the question's last line, if nothing stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from safepoint.command.desk import Wait
from safepoint.console.html import (
    Html,
    Inside,
    address,
    alarm,
    away,
    badge,
    card,
    code,
    explained,
    facts,
    hidden,
    joined,
    listed,
    moment,
    quiet,
    reads_as,
    table,
    tag,
    utc,
    visible,
)
from safepoint.console.pages import journal_lines, state_badge
from safepoint.console.record import MOST, Changes, Record, Said, Step
from safepoint.core.errors import CheckpointError
from safepoint.core.names import thread_text
from safepoint.resume.answers import MAX_WHY, Order
from safepoint.resume.approval import Question, shown

Form: TypeAlias = Callable[[Wait | Order | str, str], str]
"""Gives the id of a form for a verb: about what is asked, about a hold, or about a thread."""
_Sign: TypeAlias = Callable[..., Html]
_LOOK: Final = {"deny": "button button--no", "approve": "button button--yes"}
MOST_CHANGES: Final = 100
MOST_ASKED: Final = 20
_DO: Final = "Approve nothing of this run. Tell whoever runs the store. "
_NEWEST: Final = f"These are the newest {MOST}. Those before them verified too."


def run_page(
    home: str, record: Record, form: Form | None, who: str | None, operator: str | None = None
) -> Html:
    """Return the page of a run, to stand in a layout.

    Args:
        home: the path that the console is below.
        record: what is known of the run.
        form: gives the id of a form that the server holds; None if nothing is signed here.
        who: the approver whose key can be unlocked here, or None.
        operator: the operator whose key can be, or None.
    """

    def sign(
        about: Wait | Order | str, verb: str, text: str, *why: Html, focus: bool = False
    ) -> Html:
        kept = hidden(form=form(about, verb) if form else "", verb=verb)
        look = _LOOK.get(verb, "button")
        button = tag("button", text, type="submit", class_=look, autofocus=focus)
        row = tag("div", why, button, class_="row signing")
        return tag("form", kept, row, method="post", action=address(home, "sign"))

    asked = [] if record.alarm else list(_questions(record, sign, who if form else None))
    lines = journal_lines(home, record.journal) if record.journal else None
    return joined(
        _title(record),
        _checks(record),
        asked,
        [] if record.alarm else _last(record),
        _holds(record, sign, operator if form else None),
        [] if record.alarm else _known(record),
        _part(record, "Answers and holds", "answers", _answers(record)),
        _part(record, "Journal", "journal", _newest(record.journal), lines),
    )


def _part(record: Record, title: str, what: str, *inside: Inside) -> Html:
    """Return a part of the page, with what could not be looked at in it."""
    unread = record.unread.get(what)
    note = card("note", ["Not looked at: ", visible(unread)]) if unread else None
    empty = None if unread or any(inside) else tag("p", "There is nothing of it.")
    return tag("section", tag("h2", title), note, inside, empty)


def _newest(shown: Sequence[object]) -> Html | None:
    return tag("p", _NEWEST) if len(shown) == MOST else None


def _copied(summary: str, text: str) -> Html:
    return tag("details", tag("summary", summary), code(text))


def _title(record: Record) -> Html:
    known = thread_text(record.thread) or ""
    rows: list[tuple[str, Inside]] = [
        ("Store", visible(record.store)),
        ("Tenant", visible(record.tenant)),
        ("Known to its framework as", visible(known) if known != record.thread else None),
    ]
    state = tag("p", joined(*dict.fromkeys(_state(record)), by=" "))
    return joined(tag("h1", "Run ", visible(record.thread)), state, facts(rows))


def _state(record: Record) -> Iterator[Html]:
    """Yield what stops the run, or what became of what it asked."""
    if record.alarm or "questions" in record.unread:
        yield badge("alarm", "does not verify" if record.alarm else "cannot be told")
    elif record.last is None or record.waits or record.ended:
        none = badge("expired", "deleted" if record.ended else "waits for nobody")
        yield from map(state_badge, record.waits) if record.waits else [none]
    else:
        yield badge("denied") if record.last.verdict == "denied" else badge("ok", "went on")
    if record.holds:
        yield badge("held")


def _checks(record: Record) -> Html:
    rows = list[tuple[str, Inside]]()
    for each in record.checks:
        mark = badge("ok", "intact") if each.ok else badge("expired", "not checked")
        if each.text in record.alarm:
            mark = badge("alarm", "broken")
        rows.append((each.what.capitalize(), [mark, " ", visible(each.text)]))
    dark = record.unread.get("answers", "") if record.desk.answers is not None else ""
    unsaid = "Nobody can tell who approved, denied or holds it, so no worker goes on with it."
    nothing = "Nothing that its records say is shown, and nothing in it can be approved."
    return joined(
        _alarm("This run does not verify", record.alarm, nothing) if record.alarm else None,
        _alarm("The answers could not be looked at", dark, unsaid) if dark else None,
        card("note", visible(record.ended)) if record.ended else None,
        tag("section", tag("h2", "Checked"), facts(rows)),
    )


def _alarm(title: str, error: str, so: str) -> Html:
    do = explained(error.partition(":")[0], _DO)
    return alarm(title, do, tag("p", visible(error)), tag("p", so))


# --- what it asks, and what can be said to it


def _questions(record: Record, sign: _Sign, who: str | None) -> Iterator[Html]:
    count = len(record.waits)
    if not count:
        nobody = None if "questions" in record.unread else tag("p", "It waits for nobody.")
        yield _part(record, "What it asks", "questions", nobody)
    if count > MOST_ASKED:
        first = f"It asks {count} things. These are the first {MOST_ASKED}: answer them, and the"
        yield card("note", f"{first} next ones are here. safepoint waiting --full lists all.")
    for number, wait in enumerate(record.waits[:MOST_ASKED], 1):
        title = "What it asks" if count == 1 else f"What it asks, {number} of {count}"
        inside = tag("div", _asked(record, wait, sign, who, number), class_="bracketed")
        yield _part(record, title, "", inside)


def _asked(record: Record, wait: Wait, sign: _Sign, who: str | None, number: int) -> Iterator[Html]:
    until = wait.question.until and datetime.fromisoformat(wait.question.until)
    ends = [moment(until), f", {away(until)}"] if until else "no deadline"
    said = listed(wait.said)
    yield facts([("Since", moment(wait.since)), ("Until", ends), ("So far", said)])
    no, stop = record.stops(wait, "deny", who), record.stops(wait, "approve", who)
    if not no:
        why = _reason(f"why-{number}", "Reason, for people (you need not give one)")
        yield _about(record)
        yield sign(wait, "deny", "Deny", why, focus=number == 1)
    yield _lines(wait.question)
    yield facts([("Digest of all that is signed", tag("code", wait.digest))])
    yield _copied("The question as one text, to copy", wait.question.text)
    if stop:
        other = f" Nothing is denied here either: {no}" if no not in ("", stop) else ""
        here = badge("refused" if who else "expired", "No approval here")
        here = badge("ok", "You said yes") if who in wait.yes else here
        yield tag("p", here, " ", visible(f"{stop}{other}"))
        if who is None:
            yield from _at_home(record, wait)
        return
    where = "on the terminal that started the console, after the run and its anchor were verified"
    back = tag("a", "Or go back to Deny", href=f"#why-{number}")
    signs = visible(f"{who} would sign this, {where} once more."), " ", back
    yield tag("p", signs, class_="screen")
    yield sign(wait, "approve", "Approve: sign this on your terminal")


def _about(record: Record) -> Html:
    """Say in one line what Deny is about, and whether it verified."""
    tenant = f", tenant {record.tenant}" if record.tenant else ""
    bad = ", ".join(each.what for each in record.checks if not each.ok)
    held = f"{bad} not checked" if bad else f"{', '.join(e.what for e in record.checks)} intact"
    return tag("p", tag("strong", visible(record.thread)), f" in {record.store}{tenant}: {held}")


def _lines(question: Question) -> Html:
    given = question.arguments.items()
    values = {f"argument {shown(name)}: {shown(value)}": value for name, value in given}
    lines = (tag("li", visible(e), reads_as(values.get(e))) for e in question.described)
    return tag("ol", lines, class_="code lines")


def _last(record: Record) -> Html | None:
    """Return what a run that waits for nobody asked last, who said what, and what came of it."""
    if record.waits or record.last is None:
        return None
    asked = record.last.question
    said = _said([each for each in record.answers if each.question == asked])
    return _part(record, "What it asked last", "", _lines(asked), said)


def _at_home(record: Record, wait: Wait) -> Iterator[Html]:
    """Yield how to sign what a page without a key shows, where the key is."""
    whose = f" --tenant {record.tenant}" if record.tenant else ""
    about = f"{record.store} {record.thread}{whose} --as YOU --key FILE --digest {wait.digest}"
    yield tag("p", "Sign it on your own machine, where the question is shown once more:")
    yield code(f"safepoint deny {about}\nsafepoint approve {about}")


def _reason(name: str, label: str, *, required: bool = False) -> Html:
    given: dict[str, str | int] = {"name": "why", "id": name, "maxlength": MAX_WHY}
    field = tag("input", type="text", required=required, autocomplete="off", **given)
    return tag("div", tag("label", label, for_=name), field, class_="field wide")


def _holds(record: Record, sign: _Sign, operator: str | None) -> Html:
    """Return what an operator can do. A run that does not verify can be held, too."""
    unread = "Whether somebody holds it could not be looked at."
    none = unread if "answers" in record.unread else "Nobody holds it."
    inside: list[Inside] = [] if record.holds else [tag("p", none)]
    for each in record.holds:
        said = visible(f"by {each.by}: {each.why}"), ", since ", moment(each.at)
        inside.append(tag("p", badge("held"), " ", said))
    stopped = record.ended or ("" if operator else "This console has no operator's key.")
    try:
        record.desk.ordering(operator or "")
    except CheckpointError as error:
        stopped = stopped or error.what
    if stopped:
        why = tag("p", "No hold or release here: ", visible(stopped), class_="quiet screen")
        return _part(record, "Hold", "", inside, why)
    for each in record.holds:
        text = f"Release the hold of {each.by} of {utc(each.at)}: sign this on your terminal"
        inside.append(sign(each, "release", text))
    reason = _reason("why-hold", "Reason, for people", required=True)
    inside.append(sign(record.thread, "hold", "Hold: sign this on your terminal", reason))
    note = visible(f"No step runs while it is held. {operator} would sign it.")
    return _part(record, "Hold", "", inside, tag("p", note, class_="quiet screen"))


# --- what is known of it


def _known(record: Record) -> Iterator[Html]:
    changes = record.changes and _changes(record.changes)
    yield _part(record, "What changed last", "state", changes)
    yield _part(record, "Version and tools", "", listed(record.begun))
    heads = ("Record", "Time", "Kind", "By", "Sealed with", "Answered or ordered")
    steps = table("Records of the run", heads, map(_step, record.history))
    yield _part(record, "History", "history", _newest(record.history), steps)


def _changes(changes: Changes) -> Html:
    if not changes.rows:
        alone = changes.since == changes.until
        same = f"Its state is the same from #{changes.since} to #{changes.until}."
        return tag("p", f"There is no state before #{changes.until} here." if alone else same)
    rows = list[list[Inside]]()
    for path, before, after in changes.rows[:MOST_CHANGES]:
        where = tag("code", visible(path or "(all of it)"))
        rows.append([where, _value(before, "old"), _value(after, "new")])
    left = len(changes.rows) - MOST_CHANGES
    more = f" {left} more differ, which are not shown." if left > 0 else ""
    masked = "Values whose name says secret are masked, such as passwords, tokens and keys."
    said = tag("p", f"From #{changes.since} to #{changes.until}.{more} {masked}")
    return joined(said, table("Values that differ", ("Where", "Before", "After"), rows))


def _value(text: str | None, kind: str) -> Html:
    if text is None:
        return quiet("not there")
    return tag("span", visible(text), class_=f"diff diff--{kind}")


def _step(step: Step) -> list[Inside]:
    header, who = step.header, listed(step.who)
    kind = f"{header.kind} ", tag("code", visible(header.label)) if header.label else None
    created, key = moment(datetime.fromisoformat(header.created)), tag("code", step.key)
    return [f"#{header.sequence}", created, kind, visible(header.app), key, who]


def _answers(record: Record) -> Html | None:
    if not record.answers:
        nobody = tag("p", "Nobody has said anything about it.")
        return None if "answers" in record.unread else nobody
    texts = list[Html]()
    for each in record.answers:
        summary = f"What {each.who} signed {utc(each.at)}: {each.what}"
        texts.append(_copied(summary, each.text))
    return joined(_said(record.answers), texts)


def _said(answers: Sequence[Said]) -> Html:
    heads = ("Who", "What", "Signed", "Reason", "Then")
    return table("What people signed about the run", heads, map(_answer, answers))


def _answer(said: Said) -> list[Inside]:
    who = visible(said.who), quiet("key ", tag("code", said.key))
    until = quiet("until ", moment(said.until)) if said.until else None
    return [who, said.what, (moment(said.at), until), visible(said.why), visible(said.then)]
