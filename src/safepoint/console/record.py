"""All that is known of one run, verified: what its page shows, and an auditor prints.

One walk checks each seal, each link and the anchor, and what is shown is what that walk read. Of a
run that does not verify nothing is told but that. What could not be looked at is said and is never
left out in silence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

from safepoint.console.pages import MOST
from safepoint.core.chain import plain_of
from safepoint.core.errors import (
    ApprovalRefused,
    CheckpointError,
    DecodeError,
    NotFound,
    ResumeRefused,
    RolledBack,
    SealBroken,
    ThreadDeleted,
)
from safepoint.core.names import Head, check_name
from safepoint.core.record import Header, Opened
from safepoint.resume.answers import Order, in_force
from safepoint.resume.approval import Answer, Question
from safepoint.resume.asking import SPENT, read_note
from safepoint.resume.gate import compare
from safepoint.resume.workflow import Payload, without_state
from safepoint.shared.desk import Desk, Verb, Wait
from safepoint.shared.states import read_as_json, view_of
from safepoint.shared.terminal import when

_QUESTIONS: Final = 20  # of which the answers are looked up


class Result(NamedTuple):
    """What was checked, whether it held, and a sentence about it."""

    what: str
    ok: bool
    text: str


class Trace(NamedTuple):
    """A record of the history: its header, which key sealed it, who let it happen."""

    header: Header
    key: str
    who: tuple[str, ...]


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
        question: what an approval or no is to.
    """

    who: str
    what: str
    key: str
    at: datetime
    until: datetime | None
    why: str
    then: str
    text: str
    question: Question | None = None


class Record:
    """All that is known of one run, once `record_of` has filled it.

    Attributes:
        desk: the store, in the scope of the run's tenant.
        store: its name.
        tenant: whose run it is, or "".
        thread: the run.
        unread: what could not be looked at, and why: by "questions", "state", "history" and
            "answers".
        checks: seal, chain and anchor; and the answers, if there is a place for them.
        alarm: why it does not verify, or "". Then nothing that its records say is here.
        ended: that it was deleted, or "".
        waits: what it asks.
        last: the newest answer that a worker used.
        holds: the holds that nobody has released.
        begun: its version and tools, and what they were when it began, in sentences.
        history: its newest records, oldest first.
        answers: what people signed about it, by time.
    """

    def __init__(self, desk: Desk, thread: str) -> None:
        self.desk, self.thread = desk, thread
        self.store, self.tenant = desk.ledger.store, desk.ledger.tenant_name
        self.unread, self.alarm, self.ended = dict[str, str](), "", ""
        self.checks, self.waits, self.holds = list[Result](), list[Wait](), list[Order]()
        self.last: Answer | None = None
        self.begun, self.answers = list[str](), list[Said]()
        self.history = deque[Trace](maxlen=MOST)

    @contextmanager
    def looking(self, what: str) -> Iterator[None]:
        """Say what cannot be looked at in this block, and continue."""
        try:
            yield
        except CheckpointError as error:
            self.unread[what] = _named(error)

    def stops(self, wait: Wait, verb: Verb, name: str) -> str:
        """Say why somebody cannot sign that here, or nothing if they can.

        Args:
            wait: what the run asks.
            verb: what they would say to it.
            name: who would sign, or "" if this console has no key that counts here.
        """
        if not name:
            return f"This console has no key of an approver of {self.store}, to sign with."
        try:
            self.desk.check_open(wait, verb, name)
            failed = [each for each in self.checks if not each.ok and verb == "approve"]
            if failed:
                return failed[0].text
        except CheckpointError as error:
            return error.what
        return ""

    def stops_orders(self, operator: str) -> str:
        """Say why nobody can hold or release it here, or nothing if the operator can."""
        no_key = f"This console has no key of an operator of {self.store}."
        return self.ended or ("" if operator else no_key)


def record_of(desk: Desk, thread: str) -> Record:
    """Verify a run, with each signature and its live anchor, and tell what is known of it.

    Args:
        desk: the store, in the scope of the run's tenant.
        thread: the run.

    Raises:
        InvalidId: the name is outside the grammar.
        NotFound: there is no such run, or it was pruned while it was read.
    """
    check_name("thread", thread)
    record = Record(desk, thread)
    walk = _History(record)
    walk.look_beside()
    try:
        walk.verify()
        walk.ask()
    except NotFound:
        raise
    except CheckpointError as error:
        record.alarm, record.checks = _named(error), list(_failed(error))
        record.history.clear()
    else:
        record.checks, record.answers = list(walk.checks()), list(walk.answered())
        record.begun = list(walk.begun())
        record.last = next((said for said, _ in reversed(walk.used.values())), None)
    record.answers = sorted((*record.answers, *walk.ordered()), key=lambda each: each.at)
    failed = "answers" in record.unread
    text = f"What people signed about it {'could not be looked at' if failed else 'verifies'}."
    record.checks.append(Result("answers", ok=not failed, text=text))
    return record


def _named(error: CheckpointError) -> str:
    return f"{type(error).__name__}: {error}"


def _failed(error: CheckpointError) -> Iterator[Result]:
    """Yield the checks of a run that does not verify. One error ended all of them."""
    what = "anchor" if isinstance(error, RolledBack) or error.kind == "anchor" else "seal"
    what = "chain" if error.kind in ("place", "tenant", "chain", "missing") else what
    for each in ("seal", "chain", "anchor"):
        ended = f"Not known: the check of the {what} failed."
        yield Result(each, ok=False, text=error.what if each == what else ended)


class _History:
    """One walk over a run's records, which verifies each of them and fills what is told."""

    def __init__(self, record: Record) -> None:
        self.record, self.desk, self.ledger = record, record.desk, record.desk.ledger
        self.thread = record.thread
        self.orders = dict[str, Order]()
        self.heads, self.keys = dict[int, str](), dict[str, None]()
        self.first: Opened | None = None
        self.newest: Opened | None = None
        self.used = dict[str, tuple[Answer, Header]]()
        self.anchored: Head | None = None
        self.end = 0

    def look_beside(self) -> None:
        """Read the orders of operators."""
        record, operators = self.record, self.desk.gate.operators
        with record.looking("answers"):
            run = record.store, record.thread
            given = self.desk.answers.orders(*run, operators, tenant=record.tenant)
            self.orders = {each.text: each for each in given}
        record.holds = in_force(list(self.orders.values()), operators)

    def verify(self) -> None:
        """Check each seal, link and the anchor, and tell if the run was deleted."""
        view = view_of(self.ledger)
        self.anchored = view.anchored(self.thread)
        self.end = next((each.header.sequence for each in view.back(self.thread)), 0)
        for opened in view.forward(self.thread):
            self.take(opened)
        try:
            next(self.ledger.back(self.thread))  # there is none, or this process saw more
        except ThreadDeleted as error:
            self.record.ended = error.what

    def take(self, opened: Opened) -> None:
        header, key = opened.header, opened.key
        self.heads[header.sequence], self.keys[key] = opened.digest, None
        if header.kind == "state":
            self.first, self.newest = self.first or opened, opened
        if self.end - header.sequence < MOST:
            self.record.history.append(Trace(header, key, tuple(self._who(opened))))

    def ask(self) -> None:
        """Tell what the run asks at the end that was verified."""
        record = self.record
        if record.ended:
            return
        try:
            waits = self.desk.waits(self.thread, whole=False)
        except CheckpointError as error:
            if isinstance(error, SealBroken | RolledBack | NotFound) and error.kind != "answers":
                raise  # somebody changed it since
            parts = "questions", *(["answers"] if error.kind == "answers" else [])
            record.unread |= dict.fromkeys(parts, _named(error))
            return
        if all(self._is_here(each.question) for each in waits):
            record.waits = waits
        else:
            moved = "The run has moved on while it was read. Load the page again."
            record.unread["questions"] = moved

    def checks(self) -> Iterator[Result]:
        """Yield what held, in words."""
        first, anchor = min(self.heads, default=1), self.ledger.anchor
        keys = ", ".join(self.keys)
        yield Result("seal", ok=True, text=f"Each signature is genuine, by key {keys}.")
        cut = f" What was before #{first} was pruned, and a signed base says so."
        all_of_it = f"#{first} to #{self.end}, {len(self.heads)} in all"
        links = f"Each record follows the one before it: {all_of_it}.{cut * (first > 1)}"
        yield Result("chain", ok=True, text=links)
        seen = self.anchored
        if anchor is None:
            text = "Without an anchor, nobody can tell an old copy of this run from today's."
        elif seen is None:
            text = "The anchor has not seen this run, so the whole run could be cut off unnoticed."
        else:
            newer = self.end - seen.sequence
            rest = f" {newer} newer could be cut off unnoticed." if newer else " That is its end."
            text = f"It has seen {seen}.{rest}"
        yield Result("anchor", ok=seen is not None, text=text)

    # --- who let it happen

    def _who(self, opened: Opened) -> Iterator[str]:
        """Yield who stands behind a record, as far as signatures tell."""
        header, statements = opened.header, list[str]()
        try:
            if header.kind == "note" and header.label == SPENT:
                text, statements = read_note(self._json(opened))
                if not statements:
                    asked = Question.from_text(text)
                    yield f"nobody: {'the wait had ended' if asked.until else 'it needed none'}"
            for text in statements:
                yield self._statement(text, header)
        except CheckpointError as error:
            self.record.unread["history"] = _named(error)

    def _statement(self, text: str, header: Header) -> str:
        try:
            said = self.desk.gate.approvers.open(text, revoked=True)
        except ApprovalRefused as error:
            return f"an answer that does not verify: {error.what}"
        if not self._is_here(said.question):
            return f"an answer of {said.approver} that is not about this run"
        self.used.setdefault(said.text, (said, header))
        gone = ", which is revoked by now" if said.key in self.desk.gate.approvers.revoked else ""
        return f"{said.verdict} by {said.approver}, {when(said.issued)}, key {said.key}{gone}"

    def _is_here(self, question: Question) -> bool:
        """Tell whether a question is about a record that was verified here, or pruned."""
        place, at = (question.store, question.tenant, question.thread), question.checkpoint
        ours = self.ledger.store, self.ledger.tenant_name, self.thread
        known = self.heads.get(at.sequence) == at.digest or at.sequence < min(self.heads, default=1)
        return place == ours and known

    def answered(self) -> Iterator[Said]:
        """Yield each yes and no, with what came of it."""
        found = {text: said for text, (said, _) in self.used.items()}
        asked = [each.question for each in self.record.waits]
        before = [each.question for each in reversed(found.values())]
        with self.record.looking("answers"):
            for question in [*dict.fromkeys((*asked, *before))][:_QUESTIONS]:
                put = self.desk.answers.about(question, self.desk.gate.approvers)
                found |= {each.text: each for each in put}  # with its reason
        for each in found.values():
            said = each.approver, each.verdict, each.key, each.issued, each.expires, each.why
            yield Said(*said, self._then(each), each.text, each.question)

    def _then(self, said: Answer) -> str:
        if said.text in self.used:
            header = self.used[said.text][1]
            did = "resumed it" if said.verdict == "approved" else "told it to the run"
            at = when(datetime.fromisoformat(header.created))
            return f"a worker {did} {at} at #{header.sequence}"
        for wait in self.record.waits:
            if said.question == wait.question:
                counts = said.verdict == "denied" or said.approver in wait.yes
                lapsed = "no longer counts: it has expired, or the key is revoked"
                return "no worker has found it yet" if counts else lapsed
        return "not used: the run continued without it"

    def ordered(self) -> Iterator[Said]:
        """Yield each hold and release."""
        holds = self.record.holds
        for each in self.orders.values():
            then = "holds it" if each in holds else "released" if each.what == "hold" else ""
            said = each.by, each.what, each.key, each.at, None, each.why, then
            yield Said(*said, each.text)

    # --- what changed

    def begun(self) -> Iterator[str]:
        """Compare the newest state with the oldest, in sentences."""
        if self.first is None or self.newest is None:
            return
        (old, new), at = (self.first.header, self.newest.header), self.first.header.sequence
        was = f"as it did #{at}" if old.app == new.app else f"and {_app(old)} wrote #{at}"
        yield f"{_app(new)} wrote it, {was}."
        if old.tools == new.tools:
            yield f"It has the same tools as #{at}."
            return
        yield f"It has other tools than #{at}."
        with self.record.looking("state"):
            had, has = self._payload(self.first), self._payload(self.newest)
            if had and has:
                yield from (said for _, _, said in compare(has.tools, had.tools))

    def _payload(self, opened: Opened) -> Payload | None:
        """Return what our workflow keeps in a state, or None if another program wrote it."""
        data = plain_of(opened, self.ledger.cipher)
        with suppress(ResumeRefused):
            found = without_state(data, self.ledger.codec.limits)
            return Payload.unpack(opened.checkpoint(found))
        return None

    def _json(self, opened: Opened) -> Any:
        """Return a verified record as JSON: tags stand for types that need not be known."""
        data = plain_of(opened, self.ledger.cipher)
        try:
            return read_as_json(data, self.ledger.codec.limits)
        except DecodeError:
            raise DecodeError(
                f"{opened.header.place} is sealed but is not a state.",
                "Find out what else has the writer's key.",
            ) from None


def _app(header: Header) -> str:
    return header.app or "(no app)"
