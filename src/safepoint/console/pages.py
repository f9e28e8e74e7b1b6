"""The pages of the console: functions from data to HTML, which open, verify and sign nothing.

Each returns what stands inside `layout`. The page of one run is in `run_page`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

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
    quiet,
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
STATES: Final[tuple[State, ...]] = ("waiting", "held", "denied", "expired")
Choices: TypeAlias = tuple[Collection[str], Collection[str], Collection[str]]
"""The stores, apps and reasons that there are."""

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
<p>What is shown here was verified first. What you sign is signed on your terminal.</p>
</footer>
</body>
</html>
"""
_NEWCOMER: Final = Html("""<section class="bracketed small">
<h2>Nothing waits for you</h2>
<p>A run that wants to do something that matters, such as a payment, stops and asks a person. It
waits here until somebody answers, or until its time is over.</p>
<ol><li>Let a step ask: it returns <code>Ask("pay", {"amount": 42})</code>, and the run pauses.</li>
<li>Come back here. The run is listed as soon as it was found and verified.</li>
<li>Open it and read all of it. Then deny or approve it: you sign on your terminal, with your own
key.</li></ol>
</section>""")


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
        stores: the names of the stores. The journal and the health of the first are linked.
        refresh: after how many seconds the browser loads it again.
    """
    places = [("waiting", "Waiting", address(home, ""))]
    if stores:
        places.append(("journal", "Journal", address(home, "journal", stores[0])))
        places.append(("store", "Store health", address(home, "store", stores[0])))
    parts: dict[str, Inside] = {
        "home": home,
        "title": tag("title", f"{title} - Safepoint console"),
        "body": body,
        "user": user and tag("p", "You are ", tag("strong", visible(user)), class_="user"),
        "links": _links((text, href, key == active) for key, text, href in places),
        "refresh": tag("meta", http_equiv="refresh", content=refresh) if refresh else None,
    }
    return Html(_PAGE.format_map({name: joined(each) for name, each in parts.items()}))


def _links(links: Iterable[tuple[Inside, str | None, bool]]) -> list[Html]:
    return [
        tag("li", tag("a", inside, href=href, aria_current="page" if is_here else None))
        for inside, href, is_here in links
    ]


def _tabs(label: str, links: Iterable[tuple[Inside, str | None, bool]]) -> Html:
    items = tag("ul", _links(links), class_="tabs")
    return tag("nav", items, aria_label=label, class_="screen")


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
    items = (
        tag("a", "Previous page", href=before, rel="prev") if number > 1 else None,
        tag("span", f"Page {number:,} of {pages:,}"),
        tag("a", "Next page", href=after, rel="next") if number < pages else None,
    )
    inside = tag("ul", (tag("li", each) for each in items if each), class_="pager")
    return tag("nav", inside, aria_label="Pages", class_="screen") if pages > 1 else None


def _place(home: str, store: str, tenant: str, thread: str, *, within: str = "") -> Html:
    """Name a run, with a link to it; its store too, unless the page is about that one."""
    parts = [("in ", visible(store))] if store != within else []
    parts += [("tenant ", visible(tenant))] if tenant else []
    link = tag("a", visible(thread), href=run_address(home, store, tenant, thread))
    return joined(link, quiet(joined(*parts, by=", ")) if parts else None)


def _box(*inside: Inside) -> Html:
    return tag("div", tag("p", *inside), class_="bracketed small")


def _alarm(title: str, *inside: Inside) -> Html:
    heading = tag("h2", title, id="alarm")
    return tag("section", heading, *inside, class_="card alarm", aria_labelledby="alarm")


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
    choices: Choices,
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
        choices: what there is to choose from.
        refresh: after how many seconds it is loaded again, 0 if it is not. Tell `layout` too.
    """
    query = {**wanted._asdict(), "refresh": refresh}
    tabs = (
        (
            (each.capitalize(), tag("span", f"{counts.get(each, 0):,}", class_="count")),
            address(home, "", **{**query, "state": each}),
            each == wanted.state,
        )
        for each in STATES
    )
    fields = zip(("Store", "App", "Reason"), Filter._fields, choices, wanted, strict=False)
    kept = hidden(state=wanted.state, refresh=str(refresh or ""))
    every = address(home, "", **{**query, "refresh": 0 if refresh else REFRESH})
    text = f"Stop refreshing every {refresh} s" if refresh else f"Refresh every {REFRESH} s"
    again = tag("a", "Refresh", href=address(home, "", **query)), tag("a", text, href=every)
    is_filtered = any(wanted[:3])
    if page.rows:
        headings = ["Wants", "Run", "Asked by", "Waits", "Answers"]
        rows = table("Runs that wait", headings, (_row(home, each) for each in page.rows))
    elif is_filtered:
        whole = tag("a", "Show all", href=address(home, "", state=wanted.state))
        rows = _box("Nothing fits that filter. ", whole, ".")
    elif wanted.state != "waiting" or any(counts.values()):
        rows = _box(f"Nothing is {wanted.state or 'here'}.")
    else:
        rows = _NEWCOMER
    return joined(
        tag("h1", "Waiting for people"),
        _status(status, len(alarms)),
        tag("p", *again, class_="row quiet screen"),
        _alarms(home, alarms) if alarms else None,
        _tabs("By state", tabs),
        _filter(f"{home}/", (_select(*each) for each in fields), kept)
        if is_filtered or any(counts.values())
        else None,
        rows,
        _pager(page.number, page.pages, home, "", **query),
    )


def _status(status: Status, alarms: int) -> Html:
    looked = f"{status.looked:,} of {status.threads:,}"
    if status.finished is None:
        so_far = f"Looked at {looked} threads so far: what is not listed may still wait."
        drawn = _progress("Threads looked at", status.looked, status.threads)
        return joined(tag("p", so_far, class_="lead"), drawn)
    when = moment(status.finished, away(status.finished))
    did = "compared with" if alarms else "verified against"
    ended = f": {alarms:,} do{'es' * (alarms == 1)} not verify." if alarms else "."
    again = f" Looking again: {looked}." if status.looked < status.threads else None
    said = f"All {status.threads:,} threads {did} the anchor "
    return tag("p", said, when, ended, again, class_="lead")


def _alarms(home: str, alarms: Sequence[Alarm]) -> Html:
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
    rest = tag("p", more) if len(alarms) > ALARMS else None
    return _alarm("Does not verify: cannot be approved", tag("ul", items), rest)


def _row(home: str, row: Row) -> list[Inside]:
    asked, count = row.wait.question, len(row.wait.question.arguments)
    given = f"with {count:,} argument{'s' * (count != 1)}" if count else "without arguments"
    where = run_address(home, row.store, row.tenant, row.thread)
    return [
        (tag("a", visible(asked.action or "to go on"), href=where, class_="action"), quiet(given)),
        _place(home, row.store, row.tenant, row.thread),
        (visible(asked.app), quiet(visible(", ".join(asked.reasons)))),
        _times(row.wait),
        _said(row.wait),
    ]


def _times(wait: Wait) -> Inside:
    since = quiet("since ", moment(wait.since))
    if not wait.question.until:
        return "for as long as nobody answers", since
    until = datetime.fromisoformat(wait.question.until)
    ends = tag("strong", f"{'ended' if wait.is_over else 'ends'} {away(until)}")
    return ends, quiet("until ", moment(until)), since


def _said(wait: Wait) -> Inside:
    """Say what people said so far."""
    said = f"{len(wait.yes)} of {wait.needed} yes"
    by: Inside = ("by ", visible(", ".join(wait.yes))) if wait.yes else "nobody so far"
    if not wait.is_answerable:
        said, by = f"{wait.needed} yes needed", "no place for answers"
    told = [("denied", each.approver, each.why) for each in wait.no]
    told += [("held", each.by, each.why) for each in wait.holds]
    return (
        tag("strong", _pips(len(wait.yes), wait.needed), said, class_="whole"),
        quiet(by),
        (
            tag("div", badge(state), " by ", visible(who), (": ", visible(why)) if why else None)
            for state, who, why in told
        ),
        badge("expired") if wait.state == "expired" else None,
    )


def _pips(have: int, needed: int) -> Html | None:
    """Draw one circle for each yes that is needed, filled if it is there."""
    dots = (
        tag("circle", cx=7 + 14 * at, cy=7, r=5, class_="pip--yes" if at < have else "pip")
        for at in range(needed)
    )
    wide = 14 * needed
    drawn = tag("svg", dots, width=wide, height=14, class_="pips", aria_hidden="true")
    return drawn if needed < 10 else None


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
        entries: all that fit, in the order of `Journal.show`; None if there is no journal.
        thread: only those about this one were wanted.
        what: only those of this kind were wanted.
        number: of the page, from 1.
        error: why it does not verify, if it does not.
    """
    name = tag("input", name="thread", id="thread", value=thread, autocomplete="off")
    where = address(home, "journal", store)
    form = _filter(where, _field("Thread", "thread", name), _select("What", "what", WHATS, what))
    pages, shown = 1, _box("Nothing that fits is in it.")
    if error:
        shown = _broken(error)
    elif entries is None:
        shown = _box("This store has no journal. Name one in its settings: journal.")
    elif entries:
        pages = -(-len(entries) // PER_PAGE)
        number = min(max(number, 1), pages)
        newest = [*reversed(entries)][(number - 1) * PER_PAGE : number * PER_PAGE]
        headings = ["When", "What", "About", "Who", "Detail"]
        shown = table("Entries of the journal", headings, (_entry(home, each) for each in newest))
    return joined(
        tag("h1", "Journal of ", visible(store)),
        tag("p", "Who did what, newest first. Each entry was verified.", class_="lead"),
        _store_tabs(home, "journal", stores, store),
        form if error or entries is not None else None,
        shown,
        _pager(number, pages, home, "journal", store, thread=thread, what=what),
    )


def _broken(error: CheckpointError) -> Html:
    kind, text = tag("p", badge("alarm", type(error).__name__)), tag("p", visible(str(error)))
    return _alarm("The journal does not verify", kind, text)


def _entry(home: str, entry: Entry) -> list[Inside]:
    about: Inside = "the whole store"
    if entry.thread is not None:
        about = _place(home, entry.store, entry.tenant, entry.thread, within=entry.store)
    ended = tag("div", badge("refused")) if entry.outcome == "refused" else quiet(entry.outcome)
    return [
        moment(entry.at),
        (tag("strong", entry.what), ended),
        (about, quiet(f"record {entry.sequence:,}") if entry.sequence is not None else None),
        (visible(entry.actor.name), quiet("by ", visible(entry.actor.how))),
        visible(entry.detail),
    ]


# --- Store health

_NO_ANCHOR: Final = "None. Nobody could tell an old question from today's: nothing is approved."
_NO_ANSWERS: Final = "None. What is signed has to be carried to a worker by hand."
_NO_JOURNAL: Final = "None. Nobody could say who did what."
_SHARED: Final = "Whoever can verify with it could sign: nothing is approved."


class Verification(NamedTuple):
    """How far "Verify all of it" is, or how it ended: threads, and how many alarms there were."""

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
        people: the name, key and task of each person, and whether that key is revoked.
    """

    store: str
    parts: Sequence[tuple[str, str]]
    keys: Sequence[tuple[str, str, str, bool]]
    people: Sequence[tuple[str, str, str, bool]]

    @classmethod
    def of(cls, store: Store, desk: Desk, journal: Journal | None) -> Health:
        """Return what an open store is made of."""
        parts = [
            ("Storage", _part(store.storage, store.postgres)),
            ("Anchor", _part(store.anchor, store.postgres_anchor) or _NO_ANCHOR),
            ("Answers", _part(store.answers, store.postgres_answers) or _NO_ANSWERS),
            ("Journal", _part(store.journal, store.postgres_journal) or _NO_JOURNAL),
        ]
        rings = [("records", desk.ledger.keys), *([("journal", journal.keys)] if journal else [])]
        keys = [
            (key.id, key.algorithm, task, ring.revoked(key.id) is not None)
            for task, ring in rings
            for key in ring
        ]
        people = [*_people("approves", desk.gate.people), *_people("holds", desk.gate.operators)]
        return cls(str(store.store), parts, keys, people)


def _part(path: str | None, dsn: str | None) -> str:
    """Say where a part is, "" if there is none. A connection string is shown to nobody."""
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
        home: as `layout`. While it is verified, give that `refresh=2`.
        stores: all that there are.
        health: what it is made of.
        verification: the last one, or the one that runs; None if there was none.
        form: the id of the form that begins one; None if nobody may.
        over_time: how many waited, as the index tells it.
        refusals: what `charts.reasons` counted; why the journal does not verify, if it does not;
            None if there is none.
    """
    keys = (
        (tag("code", visible(key)), visible(algorithm), task, _counts(algorithm, task, gone))
        for key, algorithm, task, gone in health.keys
    )
    people = (
        (visible(name), tag("code", visible(key)), task, _counts("", task, gone))
        for name, key, task, gone in health.people
    )
    told = tag("p", "The store has no journal.", class_="quiet")
    if isinstance(refusals, CheckpointError):
        told = _broken(refusals)
    elif refusals is not None:
        told = charts.refusals(refusals)
    lead = "What this store is made of, who may decide in it, and whether it verifies."
    return joined(
        tag("h1", "Health of ", visible(health.store)),
        tag("p", lead, class_="lead"),
        _store_tabs(home, "store", stores, health.store),
        tag("h2", "Verification"),
        _verification(home, health.store, verification, form),
        tag("h2", "Parts"),
        facts((name, visible(what)) for name, what in health.parts),
        tag("h2", "Keys"),
        table("Keys that verify", ["Key", "Algorithm", "For", "Counts"], keys),
        tag("h2", "People"),
        table("Who may decide", ["Who", "Key", "May", "Counts"], people)
        if health.people
        else tag("p", "Nobody may approve or hold here.", class_="quiet"),
        tag("h2", "Waiting over time"),
        charts.waiting_over_time(over_time),
        tag("h2", "Refusals by reason"),
        told,
    )


def _counts(algorithm: str, task: str, is_revoked: bool) -> Inside:
    if is_revoked:
        return badge("denied", "revoked")
    is_shared = (algorithm, task) == ("hmac-sha256", "records")
    return badge("ok", "counts"), quiet(_SHARED) if is_shared else None


def _verification(home: str, name: str, last: Verification | None, form: str | None) -> Html:
    button = hidden(form=form or ""), tag("button", "Verify all of it", class_="button")
    where = address(home, "store", name, "verify")
    begin = tag("form", button, method="post", action=where, class_="screen") if form else None
    if last is None:
        never = "Nobody has verified all of it since this console was started."
        return tag("div", tag("p", never), begin, class_="card")
    count = f"{last.alarms or 'no'} alarm{'s' * (last.alarms > 1)}"
    if last.finished is None:
        said = f"Verifying: {last.done:,} of {last.of:,} threads, {count} so far."
        drawn = _progress("Threads verified", last.done, last.of)
        return tag("div", tag("p", said), drawn, class_="card note")
    is_good = not last.alarms and not last.error
    took = lasting(last.finished - last.begun)
    said = f"{last.done:,} of {last.of:,} threads, {count}. It took {took}, and ended "
    return tag(
        "div",
        tag("p", badge("ok", "It verifies") if is_good else badge("alarm", "It does not verify")),
        tag("p", said, moment(last.finished), "."),
        tag("p", visible(last.error)) if last.error else None,
        begin,
        class_=f"card {'good' if is_good else 'alarm'}",
    )


# --- Signature


class Subject(NamedTuple):
    """What is to be signed: approve, deny, hold or release, and the digest of what is asked."""

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
        put: a sentence that says where it is; "" if somebody has to carry it to a worker.
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
    is_known: bool = True,
) -> Html:
    """Return what became of something that is to be signed on the terminal.

    Args:
        home: as `layout`. While it waits, give that `refresh=2`.
        subject: what is to be signed.
        number: its place in the queue, 1 if the terminal asks for it now.
        signed: what was signed.
        error: why nothing was.
        is_known: whether that is certain; if not, it may be signed.
    """
    _, *place, digest = subject
    about = [("What", tag("strong", visible(subject.verb))), ("Run", _place(home, *place))]
    about += [("Digest", tag("code", visible(digest)))] if digest else []
    back = tag("a", "Back to the run", href=run_address(home, *place))
    others = tag("a", "What waits", href=f"{home}/")
    end = facts(about), tag("p", back, others, class_="row screen")
    if signed is not None:
        # Each line of it, and all of each.
        lines = map(visible, signed.text.removesuffix("\n").split("\n"))
        text = tag("pre", joined(*lines, by="\n"), class_="code", tabindex="0")
        return joined(tag("h1", "Signed"), _signed(signed), tag("h2", "What was signed"), text, end)
    if error:
        mark = badge("refused", "Refused" if is_known else "Unknown")
        why = tag("div", tag("p", mark), tag("p", visible(error)), class_="card alarm")
        title = "Nothing was signed" if is_known else "It may be signed"
        return joined(tag("h1", title), why, end)
    turn = "It asks for this one now."
    if number > 1:
        turn = f"This one is number {number:,} in the queue: those before it come first."
    look = "Look whether it names the same digest. " if digest else None
    ask = (
        tag("p", "The terminal that started this console asks for it. ", turn),
        tag("p", look, "If you type nothing there, nothing is signed."),
        tag("p", "This page looks every 2 s whether you did.", class_="quiet screen"),
    )
    title = tag("h1", "Type your passphrase on the terminal")
    return joined(title, tag("div", ask, class_="card note"), end)


def _signed(done: Signed) -> Html:
    by = tag("p", badge("ok", "Signed"), " by ", tag("strong", visible(done.by)), ".")
    put = done.put or "There is no place for answers: carry the text below to a worker."
    until: Inside = None
    if done.before is not None:
        left = "A worker has to find it before ", moment(done.before), f", {away(done.before)}."
        until = tag("p", left)
    return tag("div", by, tag("p", visible(put)), until, class_="card good")


def refusal(home: str, status: int, title: str, text: str, do: str = "") -> Html:
    """Return why something is not shown or not done.

    Args:
        home: as `layout`.
        status: of HTTP.
        title: in a few words.
        text: what is wrong.
        do: what to do.
    """
    back = tag("a", "What waits", href=f"{home}/"), tag("span", f"Status {status}", class_="quiet")
    said = (tag("p", visible(each)) for each in (text, do) if each)
    box = tag("div", said, tag("p", *back, class_="row"), class_="bracketed small")
    return joined(tag("h1", visible(title)), box)
