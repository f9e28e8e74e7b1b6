"""The page of one run: what was checked, what it asks, and what is known of it; also for print.

Deny stands before the question and has the focus, so that nobody is carried past what they would
sign. Approve stands after the question's last line, if nothing stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

from safepoint.answers import MAX_WHY, Order
from safepoint.console.html import (
    Html,
    Inside,
    address,
    away,
    badge,
    facts,
    hidden,
    joined,
    moment,
    quiet,
    table,
    tag,
    visible,
)
from safepoint.console.record import Begun, Changes, Record, Said, Step
from safepoint.desk import Wait
from safepoint.errors import CheckpointError
from safepoint.journal import Entry
from safepoint.names import thread_text

Form: TypeAlias = Callable[[Wait | Order | str, str], str]
"""Gives the id of a form for a verb: about what is asked, about a hold, or about a thread."""
_SHORT: Final = 24
LINES: Final = 60
"""How many lines of a question stand on one page of it."""


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
    who, operator = (who, operator) if form else (None, None)
    return joined(
        _title(record),
        _checks(record),
        _questions(home, record, form, who),
        _holds(home, record, form, operator),
        [] if record.alarm else _differences(record),
        _history(record),
        _part("Answers and holds", record.unread.get("answers"), _answers(record.answers)),
        _part("Journal", record.unread.get("journal"), _journal(record)),
    )


def _part(title: str, unread: str | None, *inside: Inside) -> Html:
    """Return a part of the page, with what could not be looked at in it."""
    note = unread and tag("div", tag("p", "Not looked at: ", visible(unread)), class_="card note")
    return tag("section", tag("h2", title), note, inside)


def _copied(summary: str, text: str) -> Html:
    """Return a text to copy, to the byte: ASCII in lines, as all that is signed."""
    lines = joined(*text.removesuffix("\n").split("\n"), by="\n")
    return tag("details", tag("summary", summary), tag("pre", lines, class_="code", tabindex="0"))


def _title(record: Record) -> Html:
    known, tenant = thread_text(record.thread), record.tenant
    pairs: list[tuple[str, Inside]] = [("Store", visible(record.store))]
    if tenant:
        pairs.append(("Tenant", visible(tenant)))
    if known not in (None, record.thread):
        pairs.append(("Known to its framework as", visible(known or "")))
    pairs.append(("Looked at", moment(datetime.now(UTC))))
    state = "alarm" if record.alarm else "held" if record.holds else ""
    states = dict.fromkeys([state, *(each.state for each in record.waits)])
    badges = tag("p", (badge(each) for each in states if each), class_="row") if any(states) else ""
    return joined(tag("h1", "Run ", visible(record.thread)), badges, facts(pairs))


def _checks(record: Record) -> Html:
    rows = list[tuple[str, Inside]]()
    for each in record.checks:
        failed = badge("alarm", "does not hold")
        if each.text not in record.alarm:
            failed = badge("expired", "not checked")
        mark = badge("ok", "holds") if each.ok else failed
        rows.append((each.what.capitalize(), [mark, " ", visible(each.text)]))
    alarm = tag(
        "div",
        tag("h2", "This run does not verify"),
        tag("p", visible(record.alarm)),
        tag("p", "Nothing that its records say is shown, and nothing in it can be approved."),
        class_="card alarm",
        role="alert",
    )
    ended = tag("div", tag("p", visible(record.ended)), class_="card note")
    return joined(
        alarm if record.alarm else None,
        ended if record.ended else None,
        tag("section", tag("h2", "Checked"), facts(rows)),
    )


# --- what it asks, and what can be said to it


def _questions(home: str, record: Record, form: Form | None, who: str | None) -> Html | None:
    if record.alarm:
        return None
    unread, count = record.unread.get("questions"), len(record.waits)
    if not count:
        return _part("What it asks", unread, None if unread else _went_on(record))
    parts = list[Html]()
    for number, wait in enumerate(record.waits, 1):
        title = "What it asks" if count == 1 else f"What it asks, {number} of {count}"
        inside = _asked(home, record, wait, form, who, number)
        parts.append(_part(title, None, tag("div", inside, class_="bracketed")))
    return joined(parts)


def _went_on(record: Record) -> Html:
    """Say that it waits for nobody, and how the last answer was used."""
    used = [each for each in record.answers if each.is_used]
    how = [
        [" ", visible(each.who), f" {each.what} it ", moment(each.at), ", and ", each.then, "."]
        for each in used[-1:]
    ]
    return tag("p", "It waits for nobody.", how)


def _asked(
    home: str, record: Record, wait: Wait, form: Form | None, who: str | None, number: int
) -> Iterator[Html]:
    until = wait.question.until and datetime.fromisoformat(wait.question.until)
    yield facts(
        [
            ("Since", moment(wait.since)),
            ("Until", [moment(until), f", {away(until)}"] if until else "no deadline"),
            ("So far", tag("ul", (tag("li", visible(each)) for each in wait.said))),
        ]
    )
    stopped = record.stops(wait, "deny", who)
    deny = f"deny-{number}"
    if form and not stopped:
        button = _button("Deny", "no", autofocus=number == 1)
        why = _reason(f"why-{number}", "Reason, for people (you need not give one)")
        yield _form(home, form(wait, "deny"), "deny", why, button, id=deny)
    yield from _lines(wait.question.described, number)
    yield facts([("Digest of all that is signed", tag("code", wait.digest))])
    yield _copied("The question as one text, to copy", wait.question.text)
    stop = record.stops(wait, "approve", who)
    if form is None or stop:
        other = f" Nothing is denied here either: {stopped}" if stopped and stopped != stop else ""
        yield tag("p", badge("refused", "No approval here"), " ", visible(f"{stop}{other}"))
        if form is None:
            yield from _at_home(record, wait)
        return
    for hold in record.holds:
        held = f"It is held by {hold.by}. No worker goes on with it until that is released."
        yield tag("p", badge("held"), " ", visible(held))
    carried = "" if wait.is_answerable else " There is no place for answers: carry the signed text."
    yield tag(
        "p",
        tag("strong", visible(who or "")),
        " would sign this, on the terminal that started the console, after the run and its anchor"
        f" were verified once more.{carried} ",
        tag("a", "Or go back to Deny", href=f"#{deny}"),
        class_="screen",
    )
    button = _button("Approve: sign this on your terminal", "yes")
    yield _form(home, form(wait, "approve"), "approve", button)


def _at_home(record: Record, wait: Wait) -> Iterator[Html]:
    """Yield how to sign what a page for many shows, where the key is."""
    whose = f" --tenant {record.tenant}" if record.tenant else ""
    about = f"{record.store} {record.thread}{whose} --as YOU --key FILE --digest {wait.digest}"
    lines = joined(*(f"safepoint {verb} {about}" for verb in ("deny", "approve")), by="\n")
    yield tag("p", "Sign it on your own machine, where the question is shown once more:")
    yield tag("pre", lines, class_="code", tabindex="0")


def _lines(lines: list[str], number: int) -> Iterator[Html]:
    """Yield all lines of a question, by pages if there are many."""
    pages = -(-len(lines) // LINES)
    for page in range(pages):
        begin = page * LINES
        if pages > 1:
            yield tag("h3", f"Page {page + 1} of {pages}", id=f"q{number}-{page + 1}")
        shown = (tag("li", visible(each)) for each in lines[begin : begin + LINES])
        yield tag("ol", shown, class_="code lines", start=begin + 1)


def _button(text: str, kind: str, *, autofocus: bool = False) -> Html:
    look = f"button button--{kind}" if kind else "button"
    return tag("button", text, type="submit", class_=look, autofocus=autofocus)


def _reason(name: str, label: str, *, required: bool = False) -> Html:
    given: dict[str, str | int] = {"name": "why", "id": name, "maxlength": MAX_WHY}
    field = tag("input", type="text", required=required, autocomplete="off", **given)
    return tag("div", tag("label", label, for_=name), field, class_="field wide")


def _form(home: str, ident: str, verb: str, *inside: Html, hold: str = "", id: str = "") -> Html:  # noqa: A002
    fields = hidden(form=ident, verb=verb, hold=hold)
    row = tag("div", inside, class_="row signing")
    return tag("form", fields, row, method="post", action=address(home, "sign"), id=id or None)


def _holds(home: str, record: Record, form: Form | None, operator: str | None) -> Html | None:
    """Return what an operator can do. A run that does not verify can be held, too."""
    inside: list[Inside] = [
        tag(
            "p",
            badge("held"),
            " ",
            visible(f"by {each.by}: {each.why}"),
            ", since ",
            moment(each.at),
        )
        for each in record.holds
    ] or [tag("p", "Nobody holds it.")]
    stopped = record.ended or ("" if operator else "This console has no operator's key.")
    try:
        record.desk.ordering(operator or "")
    except CheckpointError as error:
        stopped = stopped or error.what
    if form is None or operator is None or stopped:
        why = tag("p", "No hold or release here: ", visible(stopped), class_="quiet screen")
        return _part("Hold", None, inside, why)
    for each in record.holds:
        text = f"Release {each.hold[:19]}: sign this on your terminal"
        inside.append(
            _form(home, form(each, "release"), "release", _button(text, ""), hold=each.hold)
        )
    why = _reason("why-hold", "Reason, for people", required=True)
    button = _button("Hold: sign this on your terminal", "")
    inside.append(_form(home, form(record.thread, "hold"), "hold", why, button))
    said = "No step runs while it is held. ", visible(operator), " would sign it."
    signs = tag("p", said, class_="quiet screen")
    return _part("Hold", None, inside, signs)


# --- what is known of it


def _differences(record: Record) -> Html:
    state, begun = record.changes, record.begun
    return joined(
        _part("What changed last", record.unread.get("state"), state and _changes(state)),
        _part("Version and tools", None, begun and _begun(begun)),
    )


def _changes(changes: Changes) -> Html:
    if not changes.rows:
        alone = changes.since == changes.until
        same = f"Its state is the same from #{changes.since} to #{changes.until}."
        return tag("p", f"There is no state before #{changes.until} here." if alone else same)
    rows = (
        (
            tag("code", visible(each.path or "(all of it)")),
            _value(each.before, "old"),
            _value(each.after, "new"),
        )
        for each in changes.rows
    )
    more = f" {changes.more} more differ, which are not shown." if changes.more else ""
    said = (
        f"From #{changes.since} to #{changes.until}.{more} Values whose name says secret are"
        " masked, such as passwords, tokens and keys."
    )
    return joined(tag("p", said), table("Values that differ", ("Where", "Before", "After"), rows))


def _value(text: str | None, kind: str) -> Html:
    if text is None:
        return quiet("not there")
    return tag("span", visible(text), class_=f"diff diff--{kind}")


def _begun(begun: Begun) -> Html:
    (was, now), (had, has) = begun.app, begun.digests
    same = "the same as" if was == now else f"{was or '(none)'} at"
    app = [visible(now or "(none)"), ", ", visible(same), f" #{begun.at}"]
    digest = tag("code", has or "(none)")
    words: Inside = [tag("li", visible(each)) for each in begun.words]
    tools = [
        " ".join(filter(None, (each.name, each.version, f"({', '.join(each.permissions)})")))
        for each in begun.tools
    ]
    changed = tag("ul", words) if begun.words else f"None since #{begun.at}."
    rows: list[tuple[str, Inside]] = [("Version", app), ("Changes of tools", changed)]
    if begun.tools:
        rows.append(("Tools now", tag("ul", (tag("li", visible(each)) for each in tools))))
    rows.append(("Digest of the tools", [digest, "" if had == has else f", was {had or '(none)'}"]))
    return facts(rows)


def _history(record: Record) -> Html | None:
    if record.alarm:
        return None
    before = f"{record.earlier} earlier records verified too, and are not listed."
    heads = ("Record", "Time", "Kind", "By", "Sealed with", "Answered or ordered")
    listed = table("Records of the run", heads, map(_step, record.history))
    more = tag("p", before) if record.earlier else None
    return _part("History", record.unread.get("history"), more, listed)


def _step(step: Step) -> list[Inside]:
    label = [" ", tag("code", visible(step.label))] if step.label else None
    who = [tag("div", visible(each)) for each in step.who]
    key = [tag("code", step.key), f" ({step.algorithm})"]
    kind = [_word(step.kind), label]
    app = _word(step.app) if len(step.app) < _SHORT else visible(step.app)
    return [_word(f"#{step.sequence}"), moment(step.created), kind, app, key, who]


def _word(text: str) -> Html:
    """Return a short word that no line breaks."""
    return tag("span", visible(text), class_="moment")


def _answers(answers: Sequence[Said]) -> Html:
    rows = [_answer(each) for each in answers]
    if not rows:
        return tag("p", "Nobody has said anything about it.")
    texts = (
        _copied(f"What {each.who} signed {each.at:%Y-%m-%d %H:%M} UTC: {each.what}", each.text)
        for each in answers
    )
    heads = ("Who", "What", "Signed", "Reason", "Then")
    return joined(table("What people signed about the run", heads, rows), texts)


def _answer(said: Said) -> list[Inside]:
    who = [visible(said.who), quiet("key ", tag("code", said.key))]
    until = quiet("until ", moment(said.until)) if said.until else None
    signed = [moment(said.at), until]
    return [who, _word(said.what), signed, visible(said.why), visible(said.then)]


def _journal(record: Record) -> Html | None:
    if not record.journal:
        return None if record.unread.get("journal") else tag("p", "It has no line about this run.")
    before = (
        f" {record.lines} earlier lines verified too, and are not listed." if record.lines else ""
    )
    said = f"Each line verified, with those before it.{before}"
    heads = ("Line", "Time", "What", "Who", "Record", "Detail")
    return joined(tag("p", said), table("Lines about the run", heads, map(_entry, record.journal)))


def _entry(entry: Entry) -> list[Inside]:
    what = [
        _word(entry.what),
        " ",
        badge("refused") if entry.outcome == "refused" else entry.outcome,
    ]
    at = _word(f"#{entry.sequence}") if entry.sequence else ""
    who = [visible(entry.actor.name), quiet("by ", visible(entry.actor.how))]
    return [str(entry.number), moment(entry.at), what, who, at, visible(entry.detail)]
