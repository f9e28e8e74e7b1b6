"""The pages of the console: functions from data to HTML, which open, verify and sign nothing.

Each returns what stands inside `layout`. The page of one run is in `run_page`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from safepoint.approval import Approvers
from safepoint.console import charts
from safepoint.console.html import (
    Html,
    Inside,
    address,
    away,
    badge,
    facts,
    hidden,
    joined,
    lasting,
    moment,
    run_address,
    table,
    tag,
    visible,
)
from safepoint.console.index import Alarm, Filter, Page, Row, Status
from safepoint.desk import Desk, State, Wait
from safepoint.errors import CheckpointError
from safepoint.journal import WHATS, Entry, Journal
from safepoint.settings import Store, is_database

PER_PAGE: Final = 100
ALARMS: Final = 100
REFRESH: Final = 30
_NO_ANCHOR: Final = "None. Nobody could tell an old question from today's: nothing is approved."
_NO_ANSWERS: Final = "None. What is signed has to be carried to a worker by hand."
_NO_JOURNAL: Final = "None. Nobody could say who did what."
_SHARED_KEY: Final = "Whoever can verify it could sign: nothing is approved."
STATES: Final[tuple[State, ...]] = ("waiting", "held", "denied", "expired")
_LOGO: Final = tag(
    "svg",
    tag("g", tag("path", d="M11 4.6H5.6v22.8H11"), tag("path", d="M21 4.6h5.4v22.8H21")),
    tag("circle", cx=16, cy=16, r="4.4"),
    viewBox="0 0 32 32",
    aria_hidden="true",
)


def layout(
    home: str,
    title: str,
    body: Html,
    *,
    user: str = "",
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
        active: which part it belongs to: "waiting", "journal", "store" or "".
        stores: the names of the stores. The first one's journal and health are linked.
        refresh: after how many seconds the browser loads it again.
    """
    places = [("waiting", "Waiting", address(home, ""))]
    if stores:
        places.append(("journal", "Journal", address(home, "journal", stores[0])))
        places.append(("store", "Store health", address(home, "store", stores[0])))
    links = [
        tag("li", tag("a", text, href=href, aria_current="page" if key == active else None))
        for key, text, href in places
    ]
    brand = tag("a", _LOGO, "Safepoint ", tag("span", "console"), href=f"{home}/", class_="brand")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="refresh", content=refresh) if refresh else None,
        tag("title", f"{title} - Safepoint console"),
        tag("link", rel="stylesheet", href=f"{home}/style.css"),
    )
    top = tag(
        "div",
        brand,
        tag("nav", tag("ul", links), aria_label="Console"),
        tag("p", "You are ", tag("strong", visible(user)), class_="user") if user else None,
    )
    foot = tag(
        "p", "What is shown here was verified first. What you sign is signed on your terminal."
    )
    whole = tag(
        "body",
        tag("a", "Skip to the content", href="#main", class_="skip"),
        tag("header", top, class_="top"),
        tag("main", body, id="main", tabindex="-1"),
        tag("footer", foot, class_="foot"),
    )
    return Html(f"<!doctype html>\n{tag('html', head, whole, lang='en')}\n")


def _tabs(label: str, links: Sequence[tuple[Inside, str | None, bool]]) -> Html:
    items = (
        tag("li", tag("a", inside, href=href, aria_current="page" if is_here else None))
        for inside, href, is_here in links
    )
    return tag("nav", tag("ul", items, class_="tabs"), aria_label=label, class_="screen")


def _store_tabs(home: str, part: str, stores: Sequence[str], store: str) -> Html | None:
    links = [(visible(each), address(home, part, each), each == store) for each in stores]
    return _tabs("Stores", links) if len(links) > 1 else None


def _select(name: str, label: str, choices: Collection[str], chosen: str) -> Html:
    options = (tag("option", each, value=each, selected=each == chosen) for each in choices)
    return tag(
        "div",
        tag("label", label, for_=name),
        tag("select", tag("option", "all", value=""), options, name=name, id=name),
        class_="field",
    )


def _pager(
    home: str, steps: Sequence[str], number: int, pages: int, **query: str | int
) -> Html | None:
    if pages < 2:
        return None
    before, after = (address(home, *steps, **query, page=number + step) for step in (-1, 1))
    items = (
        tag("a", "Previous page", href=before, rel="prev") if number > 1 else None,
        tag("span", f"Page {number:,} of {pages:,}"),
        tag("a", "Next page", href=after, rel="next") if number < pages else None,
    )
    inside = tag("ul", (tag("li", each) for each in items if each), class_="pager")
    return tag("nav", inside, aria_label="Pages", class_="screen")


def _place(home: str, store: str, tenant: str, thread: str) -> Html:
    """Name a run, with a link to it."""
    of = (", tenant ", visible(tenant)) if tenant else ()
    link = tag("a", visible(thread), href=run_address(home, store, tenant, thread))
    return joined(link, " ", tag("span", "in ", visible(store), of, class_="quiet"))


# --- Waiting


def waiting(
    home: str,
    page: Page,
    wanted: Filter,
    counts: Mapping[State, int],
    alarms: Sequence[Alarm],
    status: Status,
    choices: tuple[Collection[str], Collection[str], Collection[str]],
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
        choices: the stores, apps and reasons to choose from.
        refresh: whether it is loaded again by itself, and after how many seconds.
    """
    query = {**wanted._asdict(), "refresh": refresh}
    tabs = [
        (
            (each.capitalize(), tag("span", f"{counts.get(each, 0):,}", class_="count")),
            address(home, "", **{**query, "state": each}),
            each == wanted.state,
        )
        for each in STATES
    ]
    fields = zip(
        ("store", "app", "reason"), ("Store", "App", "Reason"), choices, wanted, strict=False
    )
    form = tag(
        "form",
        (_select(*each) for each in fields),
        hidden(state=wanted.state, refresh=str(refresh or "")),
        tag("button", "Filter", class_="button"),
        method="get",
        action=f"{home}/",
        class_="row filter screen",
    )
    return joined(
        tag("h1", "Waiting for people"),
        _status(status, len(alarms)),
        _refreshing(home, query, refresh),
        _alarms(home, alarms),
        _tabs("By state", tabs),
        form if any(counts.values()) or any(wanted[:3]) else None,
        _rows(home, page) if page.rows else _nothing(home, wanted, counts),
        _pager(home, [""], page.number, page.pages, **query),
    )


def _status(status: Status, alarms: int) -> Html:
    looked, threads = f"{status.looked:,}", f"{status.threads:,}"
    if status.finished is None:
        so_far = (
            f"Looked at {looked} of {threads} threads so far: what is not listed may still wait."
        )
        return tag(
            "div",
            tag("p", so_far, class_="lead"),
            _progress("Threads looked at", status.looked, status.threads),
        )
    when = tag("time", away(status.finished), datetime=status.finished.isoformat())
    again = f" Looking again: {looked} of {threads}." if status.looked < status.threads else ""
    if alarms:
        count = "one does not verify" if alarms == 1 else f"{alarms:,} do not verify"
        said: Inside = (f"All {threads} threads were held against the anchor ", when, f": {count}.")
    else:
        said = (f"All {threads} threads verified against the anchor ", when, ".")
    return tag("p", said, again, class_="lead")


def _progress(label: str, done: int, of: int) -> Html:
    return tag("progress", value=done, max=max(of, 1), aria_label=label)


def _refreshing(home: str, query: Mapping[str, str | int], refresh: int) -> Html:
    """Return the links that load the page again, once or ever after."""
    now = tag("a", "Refresh", href=address(home, "", **query))
    every = address(home, "", **{**query, "refresh": 0 if refresh else REFRESH})
    text = f"Stop refreshing every {refresh} s" if refresh else f"Refresh every {REFRESH} s"
    return tag("p", now, tag("a", text, href=every), class_="row quiet screen")


def _alarms(home: str, alarms: Sequence[Alarm]) -> Html | None:
    if not alarms:
        return None
    hiding = "The storage does not list it, and the anchor knows it. "
    items = (
        tag(
            "li",
            tag("div", badge("alarm", each.error), _place(home, *each[:3]), class_="row"),
            tag("div", hiding if each.is_hidden else None, visible(each.text)),
        )
        for each in alarms[:ALARMS]
    )
    more = f"And {len(alarms) - ALARMS:,} more: safepoint verify lists them all."
    return tag(
        "section",
        tag("h2", "Does not verify: cannot be approved", id="alarms"),
        tag("ul", items),
        tag("p", more) if len(alarms) > ALARMS else None,
        class_="card alarm",
        aria_labelledby="alarms",
    )


def _rows(home: str, page: Page) -> Html:
    headings = ["Wants", "Run", "Asked by", "Waits", "Answers"]
    return table("Runs that wait", headings, (_row(home, each) for each in page.rows))


def _row(home: str, row: Row) -> list[Inside]:
    wait, asked = row.wait, row.wait.question
    count = len(asked.arguments)
    given = f"with {count:,} argument{'s' * (count != 1)}" if count else "without arguments"
    where = run_address(home, row.store, row.tenant, row.thread)
    action = tag("a", visible(asked.action or "to go on"), href=where, class_="action")
    return [
        (action, tag("div", given, class_="quiet")),
        _place(home, row.store, row.tenant, row.thread),
        (visible(asked.app), tag("div", visible(", ".join(asked.reasons)), class_="quiet")),
        _times(wait),
        _said(wait),
    ]


def _times(wait: Wait) -> Html:
    since = tag("div", "since ", moment(wait.since), class_="quiet")
    if not wait.question.until:
        return joined(tag("div", "for as long as nobody answers"), since)
    until = datetime.fromisoformat(wait.question.until)
    ends = tag("strong", f"{'ended' if wait.is_over else 'ends'} {away(until)}")
    return joined(tag("div", ends), tag("div", "until ", moment(until), class_="quiet"), since)


def _said(wait: Wait) -> Html:
    """Say what people said so far."""
    if wait.is_answerable:
        said = f"{len(wait.yes)} of {wait.needed} yes"
        by: Inside = ("by ", visible(", ".join(wait.yes))) if wait.yes else "nobody so far"
    else:
        said, by = f"{wait.needed} yes needed", "no place for answers"
    lines: list[Inside] = [
        tag("strong", _pips(len(wait.yes), wait.needed), said),
        tag("div", by, class_="quiet"),
    ]
    told = [("denied", each.approver, each.why) for each in wait.no]
    told += [("held", each.by, each.why) for each in wait.holds]
    lines += [
        tag("div", badge(state), " by ", visible(who), (": ", visible(why)) if why else None)
        for state, who, why in told
    ]
    return joined(lines, tag("div", badge("expired")) if wait.state == "expired" else None)


def _pips(have: int, needed: int) -> Html | None:
    """Draw one circle for each yes that is needed, filled if it is there."""
    dots = (
        tag("circle", cx=7 + 14 * at, cy=7, r=5, class_="pip--yes" if at < have else "pip")
        for at in range(needed)
    )
    wide = 14 * needed
    box = f"0 0 {wide} 14"
    drawn = tag("svg", dots, viewBox=box, width=wide, height=14, class_="pips", aria_hidden="true")
    return drawn if needed < 10 else None


def _nothing(home: str, wanted: Filter, counts: Mapping[State, int]) -> Html:
    if any(wanted[:3]):
        all_of_them = tag("a", "Show all", href=address(home, "", state=wanted.state))
        return tag(
            "div", tag("p", "Nothing fits that filter. ", all_of_them, "."), class_="bracketed"
        )
    if wanted.state != "waiting" or any(counts.values()):
        return tag("div", tag("p", f"Nothing is {wanted.state or 'here'}."), class_="bracketed")
    steps = (
        (
            "Let a step ask: it returns ",
            tag("code", 'Ask("pay", {"amount": 42})'),
            ", and the run pauses.",
        ),
        "Come back here: the run is listed as soon as it was found and verified.",
        "Open it, read all of it, and deny or approve it. You sign on your terminal, with your own key.",
    )
    return tag(
        "section",
        tag("h2", "Nothing waits for you"),
        tag(
            "p",
            "A run that wants to do something that matters, such as a payment, stops and asks a person. It waits here until somebody answers, or until its time is over.",
        ),
        tag("ol", (tag("li", each) for each in steps)),
        class_="bracketed",
    )


# --- Journal


def journal(
    home: str,
    stores: Sequence[str],
    store: str,
    entries: Sequence[Entry] | None,
    *,
    thread: str = "",
    what: str = "",
    number: int = 1,
    error: CheckpointError | None = None,
) -> Html:
    """Return who did what.

    Args:
        home: as `layout`.
        stores: all that there are.
        store: whose journal it is.
        entries: all that fit, oldest first as `Journal.show` yields them; None if the store has no
            journal.
        thread: only those about this one were wanted.
        what: only those of this kind were wanted.
        number: of the page, from 1.
        error: why it does not verify, if it does not.
    """
    form = tag(
        "form",
        tag(
            "div",
            tag("label", "Thread", for_="thread"),
            tag("input", name="thread", id="thread", value=thread, autocomplete="off"),
            class_="field",
        ),
        _select("what", "What", WHATS, what),
        tag("button", "Filter", class_="button"),
        method="get",
        action=address(home, "journal", store),
        class_="row filter screen",
    )
    lead = "Who did what, newest first. Each entry was verified, with all before it in its chain."
    return joined(
        tag("h1", "Journal of ", visible(store)),
        tag("p", lead, class_="lead"),
        _store_tabs(home, "journal", stores, store),
        form if entries is not None or error else None,
        _refused("The journal does not verify", error)
        if error
        else _entries(home, store, entries, thread, what, number),
    )


def _refused(title: str, error: CheckpointError) -> Html:
    return tag(
        "section",
        tag("h2", title, id="refused"),
        tag("p", badge("alarm", type(error).__name__)),
        tag("p", visible(str(error))),
        class_="card alarm",
        aria_labelledby="refused",
    )


def _entries(
    home: str, store: str, entries: Sequence[Entry] | None, thread: str, what: str, number: int
) -> Html:
    if not entries:
        none = "Nothing that fits is in it." if thread or what else "Nothing is in it yet."
        none = (
            "This store has no journal. Name one in its settings: journal."
            if entries is None
            else none
        )
        return tag("div", tag("p", none), class_="bracketed")
    pages = -(-len(entries) // PER_PAGE)
    number = min(max(number, 1), pages)
    newest = [*reversed(entries)][(number - 1) * PER_PAGE : number * PER_PAGE]
    return joined(
        table(
            "Entries of the journal",
            ["When", "What", "About", "Who", "Detail"],
            (_entry(home, each) for each in newest),
        ),
        _pager(home, ["journal", store], number, pages, thread=thread, what=what),
    )


def _entry(home: str, entry: Entry) -> list[Inside]:
    about = (
        _place(home, entry.store, entry.tenant, entry.thread) if entry.thread else "the whole store"
    )
    at = (
        tag("div", f"record {entry.sequence:,}", class_="quiet")
        if entry.sequence is not None
        else None
    )
    ended = (
        badge("refused")
        if entry.outcome == "refused"
        else tag("span", entry.outcome, class_="quiet")
    )
    who = tag("div", "by ", visible(entry.actor.how), class_="quiet")
    return [
        moment(entry.at),
        (tag("strong", entry.what), " ", ended),
        (about, at),
        (visible(entry.actor.name), who),
        visible(entry.detail),
    ]


# --- Store health


class Verification(NamedTuple):
    """How far "Verify all of it" is, or how it ended."""

    done: int
    of: int
    alarms: int
    begun: datetime
    finished: datetime | None = None
    error: str = ""


class Health(NamedTuple):
    """What a store is made of.

    Attributes:
        store: its name.
        parts: each part, with what it is, or what its lack means.
        keys: the id, algorithm and task of each key, and whether it is revoked.
        people: the name, key id and task of each person, and whether that key is revoked.
    """

    store: str
    parts: list[tuple[str, str]]
    keys: Sequence[tuple[str, str, str, bool]]
    people: Sequence[tuple[str, str, str, bool]]

    @classmethod
    def of(cls, store: Store, desk: Desk, journal: Journal | None) -> Health:
        """Return the health of an open store."""
        parts = [
            ("Storage", _part(store.storage, store.postgres)),
            ("Anchor", _part(store.anchor, store.postgres_anchor) or _NO_ANCHOR),
            ("Answers", _part(store.answers, store.postgres_answers) or _NO_ANSWERS),
            ("Journal", _part(store.journal, store.postgres_journal) or _NO_JOURNAL),
        ]
        rings = {"records": desk.ledger.keys}
        if journal is not None:
            rings["journal"] = journal.keys
        keys = [
            (key.id, key.algorithm, task, ring.revoked(key.id) is not None)
            for task, ring in rings.items()
            for key in ring
        ]
        people = [*_people("approves", desk.gate.people), *_people("holds", desk.gate.operators)]
        return cls(str(store.store), parts, keys, people)


def _part(path: str | None, dsn: str | None) -> str:
    """Say where a part is, "" if there is none. A connection string is nobody's business."""
    if dsn is not None:
        return "PostgreSQL"
    return f"{'SQLite' if is_database(path) else 'Files'}: {path}" if path else ""


def _people(task: str, people: Approvers) -> Iterator[tuple[str, str, str, bool]]:
    for key, (name, _) in people.keys.items():
        yield name, key, task, key in people.revoked


def store(
    home: str,
    stores: Sequence[str],
    health: Health,
    verification: Verification | None,
    form: str | None,
    over_time: Sequence[tuple[datetime, int]],
    refusals: Mapping[str, int] | CheckpointError | None,
) -> Html:
    """Return what a store is made of, and how it is.

    Args:
        home: as `layout`.
        stores: all that there are.
        health: what it is made of.
        verification: the last one, or the one that runs; None if there was none.
        form: the id of the form that begins one; None if nobody may.
        over_time: how many waited, as the index tells it.
        refusals: of `charts.reasons`, an error if the journal does not verify, None without one.
    """
    keys = (
        (tag("code", visible(key)), visible(algorithm), task, _counts(is_revoked, algorithm))
        for key, algorithm, task, is_revoked in health.keys
    )
    people = [
        (visible(name), tag("code", visible(key)), task, _counts(is_revoked))
        for name, key, task, is_revoked in health.people
    ]
    told: Inside = tag("p", _NO_JOURNAL, class_="quiet")
    if isinstance(refusals, CheckpointError):
        told = _refused("The journal does not verify", refusals)
    elif refusals is not None:
        told = charts.refusals(refusals)
    return joined(
        tag("h1", "Health of ", visible(health.store)),
        tag(
            "p",
            "What this store is made of, who may decide in it, and whether it verifies.",
            class_="lead",
        ),
        _store_tabs(home, "store", stores, health.store),
        tag("h2", "Verification"),
        _verification(home, health.store, verification, form),
        tag("h2", "Parts"),
        facts((name, visible(what)) for name, what in health.parts),
        tag("h2", "Keys"),
        table("Keys that verify", ["Key", "Algorithm", "For", "Counts"], keys),
        tag("h2", "People"),
        table("Who may decide", ["Who", "Key", "May", "Counts"], people)
        if people
        else tag("p", "Nobody may approve or hold here."),
        tag("h2", "Waiting over time"),
        charts.waiting_over_time(over_time),
        tag("h2", "Refusals by reason"),
        told,
    )


def _counts(is_revoked: bool, algorithm: str = "") -> Inside:
    if is_revoked:
        return badge("denied", "revoked")
    note = tag("div", _SHARED_KEY, class_="quiet") if algorithm == "hmac-sha256" else None
    return (badge("ok", "counts"), note)


def _verification(home: str, name: str, last: Verification | None, form: str | None) -> Html:
    begin = tag(
        "form",
        hidden(form=form or ""),
        tag("button", "Verify all of it", class_="button"),
        method="post",
        action=address(home, "store", name, "verify"),
        class_="screen",
    )
    button = begin if form else None
    if last is None:
        never = "Nobody verified all of it since this console was started: each record, each signature, each link, and the anchor."
        return tag("div", tag("p", never), button, class_="card")
    count = "no alarm" if not last.alarms else f"{last.alarms:,} alarm{'s' * (last.alarms != 1)}"
    if last.finished is None:
        said = f"Verifying: {last.done:,} of {last.of:,} threads, {count} so far."
        return tag(
            "div",
            tag("p", said),
            _progress("Threads verified", last.done, last.of),
            class_="card note",
        )
    took = lasting(last.finished - last.begun)
    said = f"{last.done:,} of {last.of:,} threads, {count}. It took {took}, and ended "
    is_good = not last.alarms and not last.error
    return tag(
        "div",
        tag("p", badge("ok", "It verifies") if is_good else badge("alarm", "It does not verify")),
        tag("p", said, moment(last.finished), "."),
        tag("p", visible(last.error)) if last.error else None,
        button,
        class_=f"card {'good' if is_good else 'alarm'}",
    )


# --- Signature


class Subject(NamedTuple):
    """What is to be signed."""

    verb: str
    store: str
    tenant: str
    thread: str
    digest: str = ""


class Signed(NamedTuple):
    """What was signed.

    Attributes:
        by: who signed.
        text: all of it.
        put: where it is now, as a sentence; "" if somebody has to carry it to a worker.
        before: when a worker has to have found it, or None.
    """

    by: str
    text: str
    put: str = ""
    before: datetime | None = None


def signature(
    home: str,
    subject: Subject,
    *,
    number: int = 1,
    signed: Signed | None = None,
    error: str = "",
) -> Html:
    """Return what became of something that is to be signed on the terminal.

    Args:
        home: as `layout`. While it waits, give that `refresh=2`.
        subject: what is to be signed.
        number: its place in the queue, 1 if the terminal asks for it now.
        signed: what was signed.
        error: why nothing was.
    """
    about = facts(
        (
            ("To sign", tag("strong", visible(subject.verb))),
            ("Run", _place(home, *subject[1:4])),
            *([("Digest", tag("code", visible(subject.digest)))] if subject.digest else []),
        )
    )
    where = run_address(home, *subject[1:4])
    back = tag(
        "p",
        tag("a", "Back to the run", href=where),
        tag("a", "What waits", href=f"{home}/"),
        class_="row screen",
    )
    if signed is not None:
        return joined(
            tag("h1", "Signed"),
            _signed(signed),
            about,
            tag("h2", "What was signed"),
            _lines(signed.text),
            back,
        )
    if error:
        why = tag(
            "div",
            tag("p", badge("refused", "Refused")),
            tag("p", visible(error)),
            class_="card alarm",
        )
        return joined(tag("h1", "Nothing was signed"), why, about, back)
    turn = (
        "It is the next one."
        if number < 2
        else f"It is number {number:,} in the queue: those before it are asked for first."
    )
    look = (
        "Look whether the terminal names the same digest. Nothing is signed if you type nothing there."
        if subject.digest
        else "Nothing is signed if you type nothing there."
    )
    ask = tag(
        "div",
        tag("p", "The terminal that started this console asks for it. ", turn),
        tag("p", look),
        class_="card note",
    )
    again = tag("p", "This page looks every 2 s whether you did.", class_="quiet screen")
    return joined(tag("h1", "Type your passphrase on the terminal"), ask, about, again, back)


def _signed(signed: Signed) -> Html:
    by = tag("p", badge("ok", "Signed"), " by ", tag("strong", visible(signed.by)), ".")
    put = visible(signed.put or "There is no place for answers: carry the text below to a worker.")
    until: Inside = None
    if signed.before is not None:
        until = tag(
            "p",
            "A worker has to find it before ",
            moment(signed.before),
            f", {away(signed.before)}.",
        )
    return tag("div", by, tag("p", put), until, class_="card good")


def _lines(text: str) -> Html:
    """Show a text that was signed: each of its lines, and all of each."""
    lines = text.removesuffix("\n").split("\n")
    return tag("pre", joined(map(visible, lines), by="\n"), class_="code", tabindex="0")


# --- refusals


def refusal(home: str, status: int, title: str, text: str, do: str = "") -> Html:
    """Return why something is not shown or not done.

    Args:
        home: as `layout`.
        status: of HTTP.
        title: in a few words.
        text: what is wrong.
        do: what to do.
    """
    return joined(
        tag("h1", visible(title)),
        tag(
            "div",
            tag("p", visible(text)),
            tag("p", visible(do)) if do else None,
            tag(
                "p",
                tag("a", "What waits", href=f"{home}/"),
                tag("span", f"Status {status}", class_="quiet"),
                class_="row",
            ),
            class_="bracketed",
        ),
    )
