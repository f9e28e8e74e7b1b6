"""All that is known of one run, verified: what its page shows, and an auditor prints.

One walk checks each seal, each link and the anchor, and what is shown is what that walk read. Of a
run that does not verify nothing is told but that. What could not be looked at is said, and is never
left out in silence.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from safepoint.answers import Order, held
from safepoint.approval import Approval, Question, shown
from safepoint.asking import ORDERED, SPENT
from safepoint.codec import check_shape
from safepoint.desk import Desk, Verb, Wait
from safepoint.errors import (
    AnchorError,
    ApprovalError,
    CheckpointError,
    DecodeError,
    LimitExceeded,
    NotFound,
    RecordsMissing,
    SealError,
    ThreadDeleted,
    WorkflowMismatch,
    WrongPlace,
)
from safepoint.gate import compare
from safepoint.journal import Entry, Journal
from safepoint.ledger import Ledger
from safepoint.names import check_name, digest_of
from safepoint.record import Opened
from safepoint.tools import Tool, ToolSet
from safepoint.verify import Span, View, plain_of
from safepoint.workflow import Payload, without_state

MOST: Final = 200
"""How many records, and how many lines of the journal, a page shows: the newest."""
MOST_CHANGES: Final = 100
_STATES: Final = 8  # to find the last one that differs
_QUESTIONS: Final = 20  # of which the answers are looked up
_LARGE: Final = 4 * 1024 * 1024
_LONG: Final = 300
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")
_SECRET: Final = re.compile(
    "passw|passphrase|pwd|secret|token|key|authori[sz]|credential|cookie|bearer|private|cvv", re.I
)
MASKED: Final = "(masked)"


class Check(NamedTuple):
    """What was checked, whether it held, and a sentence about it."""

    what: str
    ok: bool
    text: str


class Change(NamedTuple):
    """A value of the state that differs. None is for one that was not there."""

    path: str
    before: str | None
    after: str | None


class Changes(NamedTuple):
    """What differs between the newest state and the last one that was another.

    Attributes:
        since: the sequence of the older one.
        until: that of the newest; the same if there is no other to compare with.
        rows: the differences, at most 100.
        more: how many there are besides.
    """

    since: int
    until: int
    rows: list[Change]
    more: int = 0


class Begun(NamedTuple):
    """What a run began with, and what it has now.

    Attributes:
        at: the sequence of the oldest state that is there.
        app: what wrote that, and what wrote the newest.
        digests: their tool sets.
        tools: the tools of the newest, if its records tell.
        words: what became of the tools, a sentence each.
    """

    at: int
    app: tuple[str, str]
    digests: tuple[str | None, str | None]
    tools: tuple[Tool, ...]
    words: tuple[str, ...]


class Step(NamedTuple):
    """A record of the history: what it says of itself, which key sealed it, who let it happen."""

    sequence: int
    created: datetime
    kind: str
    app: str
    label: str
    key: str
    algorithm: str
    who: tuple[str, ...] = ()


class Said(NamedTuple):
    """What somebody signed about the run, verified, and what came of it.

    Attributes:
        who: their name.
        what: "approved", "denied", "hold" or "release".
        key: the id of their key.
        at: when they signed, by their clock.
        until: when it ends to count, or None.
        why: the reason that they gave, or "".
        then: what came of it.
        text: the signed text.
        is_used: whether a worker went on with it.
    """

    who: str
    what: str
    key: str
    at: datetime
    until: datetime | None
    why: str
    then: str
    text: str
    is_used: bool = False


class Record(NamedTuple):
    """All that is known of one run.

    Attributes:
        desk: the store, in the scope of the run's tenant.
        thread: the run.
        checks: seal, chain and anchor.
        unread: what could not be looked at, and why: by "questions", "state", "history", "answers"
            and "journal".
        alarm: why it does not verify, or "". Then nothing that its records say is here.
        ended: that it was deleted, or "".
        waits: what it asks.
        holds: the holds that nobody has released.
        changes: the difference of its last states.
        begun: the difference to what it began with.
        history: its newest records, oldest first.
        earlier: how many records came before those.
        answers: what people signed about it, by time.
        journal: the newest lines of the journal about it.
        lines: how many lines came before those.
    """

    desk: Desk
    thread: str
    checks: list[Check]
    unread: dict[str, str]
    alarm: str = ""
    ended: str = ""
    waits: tuple[Wait, ...] = ()
    holds: tuple[Order, ...] = ()
    changes: Changes | None = None
    begun: Begun | None = None
    history: tuple[Step, ...] = ()
    earlier: int = 0
    answers: tuple[Said, ...] = ()
    journal: tuple[Entry, ...] = ()
    lines: int = 0

    @property
    def store(self) -> str:
        """The name of the store."""
        return self.desk.ledger.store

    @property
    def tenant(self) -> str:
        """Whose run it is, or nobody's."""
        return self.desk.ledger.tenant_name

    def stops(self, wait: Wait, verb: Verb, name: str | None) -> str:
        """Say why somebody cannot sign that here, or nothing if they can.

        Args:
            wait: what the run asks.
            verb: what they would say to it.
            name: who would sign, or None if this console has no key.
        """
        if name is None:
            return "This console has no approver's key, so nothing is signed here."
        try:
            self.desk.check(verb, name)
            failed = [each for each in self.checks if not each.ok and verb == "approve"]
            if failed:
                return failed[0].text
            self.desk.check_open(wait, verb, name)
        except CheckpointError as error:
            return error.what
        return ""


def record_of(desk: Desk, thread: str, journal: Journal | None) -> Record:
    """Verify a run, with each signature and its live anchor, and tell all that is known of it.

    Args:
        desk: the store, in the scope of the run's tenant.
        thread: the run.
        journal: the journal of the store, if there is one to look into.

    Raises:
        InvalidId: the name is outside the grammar.
        NotFound: there is no such run, or it was pruned while it was read.
    """
    check_name("thread", thread)
    walk = _Walk(desk, thread)
    found = Record(desk, thread, [], walk.unread, holds=tuple(walk.holds))
    found = found._replace(**_lines(desk.ledger, thread, journal, walk.unread))
    try:
        ended = walk.verify()
        waits = () if ended else tuple(walk.waits())
    except NotFound:
        raise
    except CheckpointError as error:
        failed, said = list(_failed(desk.ledger, thread, error)), tuple(walk.ordered())
        return found._replace(checks=failed, alarm=_named(error), answers=said)
    return found._replace(
        checks=list(walk.checks()),
        ended=ended,
        waits=waits,
        changes=walk.changes(),
        begun=walk.begun(),
        history=tuple(walk.steps),
        earlier=len(walk.heads) - len(walk.steps),
        answers=tuple(sorted((*walk.answered(waits), *walk.ordered()), key=lambda each: each.at)),
    )


def _named(error: CheckpointError) -> str:
    return f"{type(error).__name__}: {error}"


def _failed(ledger: Ledger, thread: str, error: CheckpointError) -> Iterator[Check]:
    """Yield the checks of a run that does not verify. One error ended all of them."""
    what = "anchor" if isinstance(error, AnchorError) else "seal"
    what = "chain" if isinstance(error, WrongPlace | RecordsMissing) else what
    for each in ("seal", "chain", "anchor"):
        text = f"Not told: the check of the {what} ended it."
        if each == "anchor" and ledger.anchor is not None:
            with suppress(CheckpointError):
                seen = ledger.anchored(thread)
                text = f"It has seen {seen or 'nothing of this run'}. {text}"
        yield Check(each, ok=False, text=error.what if each == what else text)


def _lines(
    ledger: Ledger, thread: str, journal: Journal | None, unread: dict[str, str]
) -> dict[str, Any]:
    """Return the journal's newest lines about a run, and how many came before them."""
    if journal is None:
        unread["journal"] = "The settings name no journal, so there is none to look into."
        return {}
    newest, count = deque[Entry](maxlen=MOST), 0
    try:
        for entry in journal.show(thread=thread, tenant=ledger.tenant_name):
            if entry.store == ledger.store:
                newest.append(entry)
                count += 1
    except CheckpointError as error:
        unread["journal"] = _named(error)
        return {}
    return {"journal": tuple(newest), "lines": count - len(newest)}


class _Walk:
    """What one walk over a run's records gathers, each of them verified."""

    def __init__(self, desk: Desk, thread: str) -> None:
        self.desk, self.ledger, self.thread = desk, desk.ledger, thread
        self.unread = dict[str, str]()
        self.orders = dict[str, Order]()
        self.heads = dict[int, str]()
        self.keys = dict[str, str]()
        self.steps = deque[Step](maxlen=MOST)
        self.states = deque[Opened](maxlen=_STATES)
        self.first: Opened | None = None
        self.used = dict[str, tuple[Approval, Step]]()
        self.span: Span
        operators, tenant = desk.gate.operators, self.ledger.tenant_name
        if desk.answers is None:
            self.unread["answers"] = (
                "There is no place for answers to look into. Those that a worker used are here."
            )
            return
        try:
            given = desk.answers.orders(self.ledger.store, thread, operators, tenant=tenant)
            self.orders = {each.text: each for each in given}
        except CheckpointError as error:
            self.unread["answers"] = _named(error)

    @property
    def holds(self) -> list[Order]:
        return held(list(self.orders.values()), self.desk.gate.operators)

    def verify(self) -> str:
        """Check each seal, link and the anchor, and say if the run was deleted."""
        ledger = self.ledger
        place, limits = (ledger.storage, ledger.store, ledger.keys), ledger.codec.limits
        view = View(*place, ledger.anchor, limits, tenant=ledger.tenant_name)
        self.span = view.span(self.thread)
        for opened in view.along(self.thread, self.span):
            self.take(opened)
        try:
            next(ledger.back(self.thread))  # there is none, or this process has seen more
        except ThreadDeleted as error:
            return error.what
        return ""

    def take(self, opened: Opened) -> None:
        header, key = opened.header, self.ledger.keys.find(opened.key)
        self.heads[header.sequence], self.keys[key.id] = opened.digest, key.algorithm
        if header.kind == "state":
            self.first = self.first or opened
            self.states.append(opened)
        created = datetime.fromisoformat(header.created)
        told = header.sequence, created, header.kind, header.app, header.label
        revoked = ", revoked by now" * (self.ledger.keys.revoked(key.id) is not None)
        step = Step(*told, key.id, f"{key.algorithm}{revoked}")
        if self.span.head - header.sequence < MOST:
            self.steps.append(step._replace(who=tuple(self._who(opened, step))))

    def waits(self) -> list[Wait]:
        """Return what the run asks at the end that was verified."""
        try:
            waits = self.desk.waits(self.thread, whole=False)
        except (SealError, AnchorError, RecordsMissing, NotFound):
            raise  # somebody changed it since
        except CheckpointError as error:
            self.unread["questions"] = _named(error)
            return []
        if all(self._is_here(each.question) for each in waits):
            return waits
        self.unread["questions"] = "The run has moved on while it was read. Load the page again."
        return []

    def checks(self) -> Iterator[Check]:
        """Yield what held, in words."""
        span, anchor = self.span, self.ledger.anchor
        keys = ", ".join(f"{key} ({algorithm})" for key, algorithm in self.keys.items())
        shared = set(self.keys.values()) - {"ed25519"}
        could = " Whoever can verify it could have written it." if shared else ""
        yield Check("seal", ok=True, text=f"Each signature is genuine, by key {keys}.{could}")
        cut = f" What was before #{span.first} was pruned, and a signed base says so."
        all_of_it = f"#{span.first} to #{span.head}, {len(self.heads)} in all"
        links = f"Each record follows the one before it: {all_of_it}.{cut * (span.first > 1)}"
        yield Check("chain", ok=True, text=links)
        seen, said = span.anchored, ""
        if anchor is None:
            said = "There is no anchor, so nobody could tell an old copy of this run from today's."
        elif seen is None:
            said = "The anchor has not seen this run, so all of it could be cut off unnoticed."
        if seen is None:
            yield Check("anchor", ok=False, text=said)
            return
        newer = span.head - seen.sequence
        when = f", since {_minute(seen.seen)}" if seen.seen else ""
        rest = f" {newer} newer could be cut off unnoticed." if newer else " That is its end."
        yield Check("anchor", ok=True, text=f"It has seen {seen}{when}.{rest}")

    # --- who let it happen

    def _who(self, opened: Opened, step: Step) -> Iterator[str]:
        """Yield who stands behind a record, as far as signatures tell."""
        header, statements = opened.header, list[Any]()
        try:
            if header.kind == "note" and header.label in (SPENT, ORDERED):
                note = self._json(opened)
                if header.label == ORDERED:
                    yield self._order(note)
                    return
                statements = note["statements"]
                if not statements:
                    yield "nobody: the wait had ended"
            elif header.kind == "state" and (payload := self._payload(opened, if_answered=True)):
                statements = [*(payload.resumed.statements if payload.resumed else ())]
                if payload.expired:
                    yield f"nobody: the wait had ended, then {payload.expired}"
            for text in statements:
                yield self._statement(text, step)
        except CheckpointError as error:
            self.unread["history"] = f"Who answered is not told of every record. {error.what}"
        except (KeyError, TypeError):
            yield "what it says of answers cannot be read"

    def _order(self, note: Any) -> str:
        order = self.orders.get(note["order"])
        if order is None:
            return "an order that the place of the answers does not vouch for"
        return f"{_ORDERED[order.what]} by {order.by}, {_minute(order.at)}, key {order.key}"

    def _statement(self, text: str, step: Step) -> str:
        try:
            said = self.desk.gate.people.open(text, revoked=True)
        except ApprovalError as error:
            return f"an answer that does not verify: {error.what}"
        if not self._is_here(said.question):
            return f"an answer of {said.approver} that is not about this run"
        self.used.setdefault(said.text, (said, step))
        gone = ", which is revoked by now" if said.key in self.desk.gate.people.revoked else ""
        return f"{said.verdict} by {said.approver}, {_minute(said.issued)}, key {said.key}{gone}"

    def _is_here(self, question: Question) -> bool:
        """Tell whether a question is about a record that was verified here, or pruned."""
        place, at = (question.store, question.tenant, question.thread), question.checkpoint
        ours = self.ledger.store, self.ledger.tenant_name, self.thread
        known = self.heads.get(at.sequence) == at.digest or at.sequence < self.span.first
        return place == ours and known

    def answered(self, waits: tuple[Wait, ...]) -> Iterator[Said]:
        """Yield each yes and no, with what came of it."""
        found = {text: said for text, (said, _) in self.used.items()}
        asked = [each.question for each in waits]
        before = [each.question for each in reversed(found.values())]
        try:
            for question in [*dict.fromkeys((*asked, *before))][:_QUESTIONS]:
                if self.desk.answers is not None:
                    put = self.desk.answers.about(question, self.desk.gate.people)
                    found |= {each.text: each for each in put}  # with its reason
        except CheckpointError as error:
            self.unread["answers"] = _named(error)
        for each in found.values():
            said = each.approver, each.verdict, each.key, each.issued, each.expires, each.why
            yield Said(*said, self._then(each, asked), each.text, each.text in self.used)

    def _then(self, said: Approval, asked: list[Question]) -> str:
        if said.text in self.used:
            step = self.used[said.text][1]
            did = "resumed it" if said.verdict == "approved" else "told it to the run"
            return f"a worker {did} {_minute(step.created)} at #{step.sequence}"
        if said.question not in asked:
            return "not used: the run went on without it"
        if said.key in self.desk.gate.people.revoked:
            return "does not count: the key is revoked"
        try:
            said.check_time(datetime.now(UTC), self.desk.gate.policy.lifetime)
        except ApprovalError as error:
            return f"does not count: {error.what}"
        return "no worker has found it yet"

    def ordered(self) -> Iterator[Said]:
        """Yield each hold and release."""
        holds = self.holds
        for each in self.orders.values():
            then = "holds it" if each in holds else "released" if each.what == "hold" else ""
            said = each.by, each.what, each.key, each.at, None, each.why, then
            yield Said(*said, each.text)

    # --- what changed

    def changes(self) -> Changes | None:
        """Compare the newest state with the last one that was another."""
        if not self.states:
            return None
        try:
            *older, newest = [(each.header.sequence, self._json(each)) for each in self.states]
        except CheckpointError as error:
            self.unread["state"] = error.what
            return None
        (until, last), at, first = newest, newest[1], newest[0]
        for since, before in reversed(older):
            if _precedes(before, at):
                if rows := list(_differences(_part(before), _part(last))):
                    return Changes(since, until, rows[:MOST_CHANGES], len(rows[MOST_CHANGES:]))
                at, first = before, since
        return Changes(first, until, [])

    def begun(self) -> Begun | None:
        """Compare the newest state with the oldest."""
        if self.first is None:
            return None
        old, new = self.first, self.states[-1]
        words, tools = [], ToolSet()
        try:
            had, has = self._payload(old), self._payload(new)
            tools = has.tools if has else tools
            if had and has:
                words = [said for _, _, said in compare(has.tools, had.tools)]
            elif old.header.tools != new.header.tools:
                words = ["It has another tool set, and its records do not say which tools."]
        except CheckpointError as error:
            words = [f"Its tools are not told. {error.what}"]
        digests, app = (old.header.tools, new.header.tools), (old.header.app, new.header.app)
        return Begun(old.header.sequence, app, digests, tuple(tools), tuple(words))

    def _payload(self, opened: Opened, *, if_answered: bool = False) -> Payload | None:
        """Return what our workflow keeps in a state, or None if another program wrote it."""
        data = plain_of(opened, self.ledger.cipher)
        if if_answered and b'"resumed":' not in data and b'"expired":' not in data:
            return None  # which takes less time than to parse all of it
        with suppress(WorkflowMismatch):
            found = without_state(data, self.ledger.codec.limits)
            return Payload.unpack(opened.checkpoint(found))
        return None

    def _json(self, opened: Opened) -> Any:
        """Return a verified record as JSON: tags stand for types that need not be known."""
        data = plain_of(opened, self.ledger.cipher)
        if len(data) > _LARGE:
            raise LimitExceeded(
                f"#{opened.header.sequence} has {len(data)} bytes, which is too large to compare.",
                "Load it with the worker's code.",
            )
        check_shape(data, self.ledger.codec.limits)
        try:
            return json.loads(data)
        except ValueError:
            raise DecodeError(
                f"{opened.header.place} is sealed, and is no state.",
                "Find out what else has the writer's key.",
            ) from None


_ORDERED: Final = {"hold": "held", "release": "released"}


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _precedes(older: Any, newer: Any) -> bool:
    """Tell whether two states are of one part of a run: a graph inside a graph has its own."""
    if not isinstance(older, dict) or not isinstance(newer, dict):
        return True
    if "checkpoint_id" in newer:
        return bool(older.get("checkpoint_id") == newer.get("previous_checkpoint_id"))
    return bool(older.get("ns") == newer.get("ns"))


def _part(plain: Any) -> Any:
    """Return what is the state in what a workflow of ours, a graph or a framework saved."""
    if not isinstance(plain, dict):
        return plain
    if "checkpoint_id" in plain:
        return {name: plain[name] for name in ("messages", "state") if name in plain}
    inner = plain.get("checkpoint")
    if isinstance(inner, dict) and "channel_values" in inner:
        return inner["channel_values"]
    return plain["state"] if {"state", "done"} <= plain.keys() else plain


def _differences(before: Any, after: Any) -> Iterator[Change]:
    old, new = ({leaf.path: leaf for leaf in _flat(each)} for each in (before, after))
    for path in dict.fromkeys((*old, *new)):
        was, now = old.get(path), new.get(path)
        if was != now:
            yield Change(path, was and was.shown, now and now.shown)


class _Leaf(NamedTuple):
    path: str
    text: str
    is_secret: bool

    @property
    def shown(self) -> str:
        return MASKED if self.is_secret else self.text


def _flat(value: Any, path: str = "", *, secret: bool = False) -> Iterator[_Leaf]:
    """Yield each value with its path, and whether its name, or one above it, says secret."""
    inside: list[tuple[Any, Any]] = []
    tag = next(iter(value)) if isinstance(value, dict) and len(value) == 1 else ""
    text = _told(value) if not isinstance(value, dict | list) else "[]" if value == [] else "{}"
    if tag in ("$dict", "$odict") and _are_pairs(value[tag]):
        inside = value[tag]
    elif tag.startswith("$") and not isinstance(value[tag], dict | list):
        text = f"{tag[1:]} {_told(value[tag])}"
    elif isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value))
    for name, each in inside:
        is_secret = secret or (isinstance(name, str) and bool(_SECRET.search(name)))
        is_plain = isinstance(name, str) and _PLAIN_KEY.fullmatch(name)
        step = f"{'.' * bool(path)}{name}" if is_plain else f"[{shown(name)}]"
        yield from _flat(each, f"{path}{step}", secret=is_secret)
    if not inside and (path or text not in ("{}", "[]")):  # of nothing, nothing is to be told
        yield _Leaf(path, text, secret)


def _are_pairs(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(e, list) and len(e) == 2 for e in value)


def _told(value: Any) -> str:
    text = shown(value)
    if len(text) <= _LONG:
        return text
    return f"{text[:_LONG]}... ({len(text)} characters, {digest_of(text.encode())[:19]})"
