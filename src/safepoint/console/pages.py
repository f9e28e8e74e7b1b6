"""The pages of the console: functions from data to HTML, which open, verify and sign nothing.

Each returns what stands inside `layout`. The page of one run is in `run_page`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from safepoint._command import counted
from safepoint.command.desk import State, Wait
from safepoint.console import charts
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
    lasting,
    listed,
    moment,
    quiet,
    run_address,
    table,
    tag,
    visible,
)
from safepoint.console.index import Alarm, Filter, Page, Row, Status
from safepoint.console.signing import Signature
from safepoint.core.errors import CheckpointError, InvalidId, JournalBroken
from safepoint.core.journal import WHATS, Entry
from safepoint.resume.approval import shown as told
from safepoint.settings import Store

PER_PAGE: Final = 100
ALARMS: Final = 200
MOST_SHOWN: Final = 100  # characters of the arguments, in full or not at all
REFRESH: Final = 30
_BROKEN: Final = "Does not verify: cannot be approved"
_DARK: Final = "Cannot tell what waits in "
_TELL: Final = "Approve nothing of these runs. Tell whoever runs the store."
STATES: Final[tuple[State, ...]] = ("waiting", "held", "denied", "expired")

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">{refresh}
{title}
<link rel="stylesheet" href="{home}/style.css">
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header class="top"><div>
<a class="brand" href="{home}/"><svg viewBox="0 0 32 32" aria-hidden="true">
<g><path d="M11 4.6H5.6v22.8H11"/><path d="M21 4.6h5.4v22.8H21"/></g><circle cx="16" cy="16"
r="4.4"/></svg>Safepoint <span>console</span></a>
<nav aria-label="Console"><ul>{links}</ul></nav>{user}
</div></header>
<main id="main" tabindex="-1">
{body}
</main>
<footer class="foot">
<p>{foot}</p>
</footer>
</body>
</html>
"""
_NEWCOMER: Final = (
    "A run that wants to do something that matters, such as a payment, stops and asks a person. It"
    " waits here until somebody answers, or until its time is over. Open it and read all of it."
    " Then deny or approve it: you sign on your terminal, with your own key."
)


def layout(
    home: str,
    title: str,
    body: Html,
    *,
    user: str = "",
    who: str = "",
    active: str = "",
    stores: Sequence[str] = (),
    refresh: int | None = None,
) -> Html:
    """Return a whole page.

    Args:
        home: the path that the console is below, without a slash at its end.
        title: of the page, for the tab.
        body: what one of the functions below returned.
        user: who looks at it, or "" if that is not known.
        who: who signs here and what, such as "dana, approves", or "" if nobody does.
        active: which part it belongs to: "waiting", "journal", "store" or "".
        stores: the names of the stores. The journal and the health of the first are linked.
        refresh: after how many seconds the browser loads it again.
    """
    places = [("waiting", "Waiting", address(home, ""))]
    if stores:
        places.append(("journal", "Journal", address(home, "journal", stores[0])))
        places.append(("store", "Store health", address(home, "store", stores[0])))
    you = who or f"{user}{', ' * bool(user)}looks only"
    signs = " What you sign is signed on your terminal." if who else ""
    verified = f"What is shown here was verified first, or is marked.{signs} Looked at "
    parts: dict[str, Inside] = {
        "home": home,
        "title": tag("title", f"{title} - {you} - Safepoint console"),
        "body": body,
        "user": tag("p", visible(you), class_="user"),
        "foot": (verified, moment(datetime.now(UTC)), ": ", visible(you), "."),
        "links": _links((text, href, key == active) for key, text, href in places),
        "refresh": tag("meta", http_equiv="refresh", content=refresh) if refresh else None,
    }
    return Html(_PAGE.format_map({name: joined(each) for name, each in parts.items()}))


Links: TypeAlias = Iterable[tuple[Inside, str | None, bool]]
"""What each link says, where it leads, and whether that is here."""


def _links(links: Links) -> list[Html]:
    given = ((text, href, "page" if is_here else None) for text, href, is_here in links)
    return [tag("li", tag("a", text, href=to, aria_current=page)) for text, to, page in given]


def _tabs(label: str, links: Links) -> Html:
    return tag("nav", tag("ul", _links(links), class_="tabs"), aria_label=label, class_="screen")


def _store_tabs(home: str, part: str, stores: Sequence[str], store: str) -> Html | None:
    links = ((visible(each), address(home, part, each), each == store) for each in stores)
    return _tabs("Stores", links) if len(stores) > 1 else None


def _field(label: str, name: str, inside: Html) -> Html:
    return tag("div", tag("label", label, for_=name), inside, class_="field")


def _select(label: str, name: str, choices: Iterable[str], chosen: str) -> Html:
    options = (tag("option", each, value=each, selected=each == chosen) for each in choices)
    none = tag("option", "all", value="")
    return _field(label, name, tag("select", none, options, name=name, id=name))


def _filter(where: str | None, *fields: Inside) -> Html:
    button = tag("button", "Filter", class_="button")
    return tag("form", fields, button, method="get", action=where, class_="row filter screen")


def _pager(number: int, pages: int, home: str, *steps: str, **query: str | int) -> Html | None:
    before, after = (address(home, *steps, **query, page=number + step) for step in (-1, 1))
    items = [tag("li", f"Page {number:,} of {pages:,}")]
    if number > 1:
        items.insert(0, tag("li", tag("a", "Previous page", href=before, rel="prev")))
    if number < pages:
        items.append(tag("li", tag("a", "Next page", href=after, rel="next")))
    inside = tag("ul", items, class_="pager")
    return tag("nav", inside, aria_label="Pages", class_="screen") if pages > 1 else None


def _place(home: str, store: str, tenant: str, thread: str | None) -> Html:
    """Name a run, with a link to it, or a whole store."""
    link = tag("a", visible(thread or ""), href=run_address(home, store, tenant, thread or ""))
    where = f"in {store}{f', tenant {tenant}' if tenant else ''}"
    whole = tag("a", "all of it", href=address(home, "store", store))
    return joined(link if thread else whole, quiet(visible(where)))


def _progress(label: str, done: int, of: int) -> Html:
    return tag("progress", value=done, max=max(of, 1), aria_label=label)


# --- Waiting


def waiting(
    home: str,
    page: Page,
    wanted: Filter,
    counts: Mapping[State, int],
    alarms: Sequence[Alarm],
    status: Status,
    choices: tuple[Collection[str], ...],
    *,
    refresh: int = 0,
) -> Html:
    """Return every run that waits, with those that do not verify on top.

    Args:
        home: as `layout`.
        page: the rows to show.
        wanted: by what they were chosen.
        counts: how many there are in each state.
        alarms: what does not verify.
        status: how far the pass in the background is.
        choices: the stores, apps and reasons that there are.
        refresh: after how many seconds it is loaded again, 0 if it is not. Tell `layout` too.
    """
    query = {**wanted._asdict(), "refresh": refresh}
    tabs = list[tuple[Inside, str | None, bool]]()
    for state in STATES:
        count = tag("span", f"{counts.get(state, 0):,}", class_="count")
        where = address(home, "", **{**query, "state": state})
        tabs.append(((state.capitalize(), count), where, state == wanted.state))
    fields = zip(("Store", "App", "Reason"), Filter._fields, choices, wanted, strict=False)
    kept = hidden(state=wanted.state, refresh=str(refresh or ""))
    form = _filter(f"{home}/", (_select(*each) for each in fields), kept)
    every = address(home, "", **{**query, "refresh": 0 if refresh else REFRESH})
    text = f"Stop refreshing every {refresh} s" if refresh else f"Refresh every {REFRESH} s"
    dark = [each for each in alarms if not each.thread or each.error == "LimitExceeded"]
    broken = [each for each in alarms if each not in dark]
    is_calm = not alarms and status.finished is not None and not any(counts.values())
    return joined(
        tag("h1", "Waiting for people"),
        _status(status, len(broken)),
        tag("p", tag("a", text, href=every), class_="quiet screen"),
        alarm("Could not be looked at", _alarms(home, dark, len(dark), _DARK)) if dark else None,
        alarm(_BROKEN, tag("p", _TELL), _alarms(home, broken, len(broken))) if broken else None,
        _tabs("By state", tabs),
        form if any((*wanted[:3], *counts.values())) else None,
        _rows(home, page.rows, wanted, is_calm=is_calm),
        _pager(page.number, page.pages, home, "", **query),
    )


def _status(status: Status, alarms: int) -> Html:
    looked = f"{status.looked:,} of {status.threads:,}"
    if status.finished is None:
        so_far = f"Looked at {looked} threads so far: what is not listed may still wait."
        drawn = _progress("Threads looked at", status.looked, status.threads)
        return joined(tag("p", so_far, class_="lead"), drawn)
    when = moment(status.finished, away(status.finished))
    ended = f": {counted(alarms, 'alarm')}." if alarms else "."
    unknown = f" No anchor knows {status.unanchored:,} of them." if status.unanchored else None
    again = f" Looking again: {looked}." if status.looked < status.threads else None
    did = "compared with" if alarms else "verified against"
    said = f"Each record of {counted(status.threads, 'thread')} {did} the anchor "
    return tag("p", said, when, ended, unknown, again, class_="lead")


def _alarms(home: str, alarms: Sequence[Alarm], total: int, so: str = "") -> Inside:
    items = list[Html]()
    for each in alarms[:ALARMS]:
        what = tag("div", badge("alarm", each.error), _place(home, *each[:3]), class_="row")
        dark = (so, visible(each.store), ": ") if so else None
        hides = "The storage does not list it, and the anchor knows it. " * each.is_hidden
        items.append(tag("li", what, dark, hides, visible(each.text), explained(each.error)))
    more = f"And {total - ALARMS:,} more: safepoint verify lists them all."
    return tag("ul", items), tag("p", more) if total > ALARMS else None


def _rows(home: str, rows: Sequence[Row], wanted: Filter, *, is_calm: bool) -> Html:
    if rows:
        headings = ["Wants", "Run", "App", "Waits", "Answers"]
        return table("Runs that wait", headings, (_row(home, *each) for each in rows))
    if is_calm and wanted == Filter():
        return card("note", tag("strong", "Nothing waits for you."), _NEWCOMER)
    return card("note", f"Nothing that verified and fits is {wanted.state or 'here'}.")


def _row(home: str, store: str, tenant: str, thread: str, wait: Wait, more: int) -> list[Inside]:
    asked, since = wait.question, quiet("since ", moment(wait.since))
    besides = quiet(f"It asks {more:,} more.") if more else None
    where = run_address(home, store, tenant, thread)
    wants = tag("a", visible(asked.action or "to go on"), href=where, class_="action")
    given = [(e if e.isidentifier() else told(e), told(v)) for e, v in asked.arguments.items()]
    full = ", ".join(f"{name}: {value}" for name, value in given)
    full = full if len(full) <= MOST_SHOWN else f"{len(given)} arguments, open it to read them"
    by = visible(asked.app), quiet("why: ", visible(", ".join(asked.reasons)))
    times: Inside = "for as long as nobody answers", since
    if asked.until:
        until = datetime.fromisoformat(asked.until)
        ends = tag("strong", f"{'ended' if wait.is_over else 'ends'} {away(until)}")
        times = ends, quiet("until ", moment(until)), since
    run, said = _place(home, store, tenant, thread), (state_badge(wait), listed(wait.said))
    return [(wants, quiet(visible(full)), besides), run, by, times, said]


def state_badge(wait: Wait) -> Html:
    """Show what stops something that waits, or that only a worker is missing."""
    if wait.state == "waiting" and len(wait.yes) >= wait.needed:
        return badge("ok", "answered, no worker yet")
    return badge(wait.state)


# --- Journal


def journal(
    home: str,
    stores: Sequence[str],
    store: str,
    entries: Sequence[Entry] | CheckpointError | None,
    *,
    thread: str = "",
    what: str = "",
    number: int = 1,
) -> Html:
    """Return who did what.

    Args:
        home: as `layout`.
        stores: all that there are.
        store: whose journal it is.
        entries: all that fit, in the order of `Journal.show`; why it does not verify, if it does
            not; None if there is no journal.
        thread: only those about this one were wanted.
        what: only those of this kind were wanted.
        number: of the page, from 1.
    """
    name = tag("input", name="thread", id="thread", value=thread, autocomplete="off")
    where = address(home, "journal", store)
    form = _filter(where, _field("Thread", "thread", name), _select("What", "what", WHATS, what))
    pages, shown, lead = 1, card("note", "Nothing that fits is in it."), "Who did what."
    if entries is None:
        shown = card("note", _NO_JOURNAL)
    elif isinstance(entries, CheckpointError):
        shown = _broken(entries)
    elif entries:
        pages = -(-len(entries) // PER_PAGE)
        number = min(max(number, 1), pages)
        newest = [*reversed(entries)][(number - 1) * PER_PAGE : number * PER_PAGE]
        shown = journal_lines(home, newest)
        lead = "Who did what, newest first. Each line was verified."
    return joined(
        tag("h1", "Journal of ", visible(store)),
        tag("p", lead, class_="lead"),
        _store_tabs(home, "journal", stores, store),
        form,
        shown,
        _pager(number, pages, home, "journal", store, thread=thread, what=what),
    )


def _broken(error: CheckpointError) -> Html:
    if isinstance(error, InvalidId):
        return card("note", visible(str(error)))
    kind, text = tag("p", badge("alarm", type(error).__name__)), tag("p", visible(str(error)))
    does = "does not verify" if isinstance(error, JournalBroken) else "cannot be looked at"
    return alarm(f"The journal {does}", kind, text, explained(type(error).__name__, _RUNS))


def journal_lines(home: str, entries: Iterable[Entry]) -> Html:
    """Return lines of a journal as a table."""
    headings = ["Line", "When", "What", "About", "Who", "Detail"]
    return table("Lines of the journal", headings, (_entry(home, each) for each in entries))


def _entry(home: str, entry: Entry) -> list[Inside]:
    is_refused = entry.outcome == "refused"
    what = tag("strong", entry.what), quiet(badge("refused") if is_refused else entry.outcome)
    record = f"record {entry.sequence:,}" if entry.sequence is not None else None
    about = _place(home, entry.store, entry.tenant, entry.thread), quiet(record)
    who = visible(entry.actor.name), quiet("by ", visible(entry.actor.how))
    return [f"{entry.number:,}", moment(entry.at), what, about, who, visible(entry.detail)]


# --- Store health

_NO_JOURNAL: Final = "None. Nobody could say who did what. Name one in the settings: journal."
_RUNS: Final = "Tell whoever runs the store. "
_NEVER: Final = (
    "The list of what waits holds each record against the anchor. This verifies every signature,"
    " the journal and the answers as well. Nobody asked for it since the console was started."
)
_PARTS: Final = (
    ("storage", "postgres", "None."),
    ("anchor", "postgres_anchor", "None. Nobody could tell an old question from today's."),
    ("answers", "postgres_answers", "None. What is signed is carried to a worker by hand."),
    ("journal", "postgres_journal", _NO_JOURNAL),
)


class Verification(NamedTuple):
    """How far "Verify all of it" is, or how it ended.

    Attributes:
        done: how many threads were verified, of how many.
        alarms: how many alarms there were.
        found: the first of them.
        beside: what was verified besides the threads.
    """

    done: int
    of: int
    alarms: int
    begun: datetime
    finished: datetime | None = None
    found: tuple[Alarm, ...] = ()
    beside: str = ""


def store(
    home: str,
    stores: Sequence[str],
    made_of: Store,
    verification: Verification | None,
    form: str | None,
    over_time: Sequence[tuple[datetime, int]],
    refusals: Mapping[str, int] | CheckpointError | None,
    error: CheckpointError | None = None,
) -> Html:
    """Return what a store is made of, and how it is.

    Args:
        home: as `layout`. While it is verified, give that `refresh=2`.
        stores: all that there are.
        made_of: what the settings say of it.
        verification: the last one, or the one that runs; None if there was none.
        form: the id of the form that begins one; None if nobody may.
        over_time: how many waited, as the index tells it.
        refusals: what `charts.reasons` counted; why the journal does not verify, if it does not;
            None if there is none.
        error: why it could not be looked at, if it could not.
    """
    told: Inside = _NO_JOURNAL
    if isinstance(refusals, CheckpointError):
        told = _broken(refusals)
    elif refusals is not None:
        told = charts.refusals(refusals)
    name = str(made_of.store)
    return joined(
        tag("h1", "Health of ", visible(name)),
        _store_tabs(home, "store", stores, name),
        card("alarm", badge("alarm", type(error).__name__), visible(str(error))) if error else None,
        tag("h2", "Verification"),
        _verification(home, name, verification, form),
        tag("h2", "Parts"),
        facts(_parts(made_of)),
        tag("h2", "Waiting over time"),
        charts.waiting_over_time(over_time),
        tag("h2", "Refusals by reason"),
        tag("div", told),
    )


def _parts(store: Store) -> Iterator[tuple[str, Inside]]:
    """Yield where each part of a store is. A connection string is shown to nobody."""
    for path, dsn, lack in _PARTS:
        where = "PostgreSQL" if getattr(store, dsn) else getattr(store, path)
        yield path.capitalize(), visible(where or lack)


def _verification(home: str, name: str, last: Verification | None, form: str | None) -> Html:
    button = hidden(form=form or ""), tag("button", "Verify all of it", class_="button")
    where = address(home, "store", name, "verify")
    begin = tag("form", button, method="post", action=where, class_="screen") if form else None
    if last is None:
        return joined(tag("p", _NEVER), begin)
    count = f"{last.alarms or 'no'} alarm{'s' * (last.alarms > 1)}"
    said = f"{last.done:,} of {last.of:,} threads{last.beside}, {count}"
    if last.finished is None:
        drawn = _progress("Threads verified", last.done, last.of)
        return card("note", f"Verifying: {said} so far.", drawn)
    took = f"{said}. It took {lasting(last.finished - last.begun)}, and ended "
    ended = took, moment(last.finished), "."
    if last.alarms:
        each = _alarms(home, last.found, last.alarms)
        shown = alarm("It does not verify", tag("p", _RUNS, ended), each)
    else:
        shown = card("good", badge("ok", "It verifies"), ended)
    return joined(shown, begin)


# --- Signature


def signature(home: str, found: Signature) -> Html:
    """Return what became of something that is to be signed on the terminal.

    Args:
        home: as `layout`. While it waits, give that `refresh=2`.
        found: what is to be signed, and how far that is.
    """
    subject, said = found.subject, found.said
    run = subject.store, subject.tenant, subject.thread
    shown = subject.digest and tag("code", visible(subject.digest))
    rows = [("What", tag("strong", subject.act)), ("Run", _place(home, *run)), ("Digest", shown)]
    rows.append(("Reason", visible(subject.why)))
    back = tag("p", tag("a", "Back to the run", href=run_address(home, *run)), class_="screen")
    text, line = joined(), visible(said.line)
    if found.state == "signed":
        by = badge("ok", "Signed"), " by ", tag("strong", visible(found.by)), "."
        until: Inside = None
        if at := said.before:
            until = "A worker has to find it before ", moment(at), f", {away(at)}."
        title, box = "Signed", card("good", by, line, until)
        text = joined(tag("h2", "What was signed"), code(said.text))
    elif found.state == "refused":
        again = f"Go back to the run and press {subject.act.capitalize()} again."
        box = card(
            "alarm", badge("refused"), line, again if "the passphrase is wrong" in line else None
        )
        if line.startswith("No passphrase was typed"):
            box = card("note", badge("expired", "Given up"), line)
        title = "Nothing was signed"
    elif found.state == "unknown":
        box = card("alarm", badge("alarm", "Unknown"), line)
        title = "It may be signed"
    else:
        title = "Type your passphrase on the terminal"
        turn = "The terminal that started this console asks for it now."
        if found.place > 1:
            turn = f"It is number {found.place:,} in the queue of the terminal."
        look = "Look whether it names the same digest. " * bool(subject.digest)
        sign = f"{look}If you type nothing there, nothing is signed."
        box = card("note", turn, sign, "This page looks every 2 s whether you did.")
    return joined(tag("h1", title), box, text, facts(rows), back)


def refusal(home: str, status: int, title: str, text: str, do: str = "") -> Html:
    """Return why something is not shown or not done.

    Args:
        home: as `layout`.
        status: of HTTP.
        title: in a few words.
        text: what is wrong.
        do: what to do.
    """
    back = tag("a", "What waits", href=f"{home}/"), f" (status {status})"
    return joined(tag("h1", visible(title)), card("note", visible(text), visible(do), back))
