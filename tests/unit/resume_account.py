"""An account of what was written and who signed what, kept apart from what it judges.

It sees what passes through the storage, the anchor, the journal and the bank, and holds each
resumption and each payment against what people said.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from safepoint import (
    Ask,
    Codec,
    Gate,
    InMemoryAnchor,
    InMemoryJournal,
    Keyring,
    Policy,
    SigningKey,
    Tool,
    ToolSet,
    Workflow,
)
from safepoint.core.errors import ApprovalRefused, Unavailable
from safepoint.core.journal import Entry, Event
from safepoint.core.names import Head
from safepoint.core.record import Place, open_sealed
from safepoint.resume.approval import Question, Reason
from safepoint.resume.gate import compare
from safepoint.resume.workflow import Call
from tests.house import Memory
from tests.unit.resume_helpers import (
    APPROVERS,
    DANA,
    ERIN,
    STORE,
    WRITER,
    migrated,
)

State = dict[str, Any]
Death = tuple[str, str, int]

KEYS = Keyring(WRITER)
STRANGER = SigningKey(bytes(range(4, 36)))
HOUR = timedelta(hours=1)
PEOPLE = {"dana": DANA, "erin": ERIN}
FEW, SOME = Tool("bank", permissions=["pay"]), Tool("bank", permissions=["pay", "read"])
TOOLS = {"1": [SOME], "2": [SOME], "narrow": [FEW], "wide": [SOME, Tool("mail")]}
STEPS = ["fetch", "ask", "pay", "tell"]


class Died(BaseException):
    """The process was killed."""


@dataclass(frozen=True)
class Signed:
    """A text that is passed off as an answer, and what the account knows of it."""

    text: str
    question: Question
    by: str
    verdict: str
    expires: datetime

    def is_yes(self, thread: str) -> bool:
        return self.verdict == "approved" and self.question.thread == thread


@dataclass(frozen=True)
class Wish:
    """A resume that somebody asks for."""

    thread: str
    sequence: int | None
    variant: str
    signed: tuple[Signed, ...]
    now: datetime


@dataclass(frozen=True)
class Kept:
    """A checkpoint as it was written, whether anybody was told of it, and where it was asked for.

    Whoever goes back asks anew. A note has what the state before it has: it changes none.
    """

    record: bytes
    head: Head
    payload: dict[str, Any]
    version: str
    told: bool = False
    is_note: bool = False

    @property
    def tools(self) -> ToolSet:
        return ToolSet.from_described(self.payload.get("tools", []))

    @property
    def question(self) -> Question | None:
        """What a note that spends is about; None if it is none, but for a thief's."""
        try:
            return Question.from_text(self.payload["question"]) if self.is_note else None
        except (ApprovalRefused, KeyError, TypeError):
            return None

    @property
    def statements(self) -> list[str]:
        return list(self.payload["statements"]) if self.question is not None else []

    @property
    def is_denied(self) -> bool:
        said = [json.loads(text.splitlines()[1]) for text in self.statements]
        return any(each["verdict"] == "denied" for each in said)


class World:
    """What outlives a process: the store, its anchor, its journal and the bank; and the account."""

    people = APPROVERS

    def __init__(self) -> None:
        self.death: Death | None = None
        self.is_dead = self.is_journal_down = False
        self.wish: Wish | None = None
        self.quorum = 1
        self.now = self.clock = datetime.now(UTC) + timedelta(minutes=1)
        self.storage, self.anchor, self.journal = Storage(self), Anchor(self), Journal(self)
        self.written: dict[str, dict[int, Kept]] = defaultdict(dict)
        self.events: list[Event] = []
        self.spent: dict[str, tuple[str, int]] = {}
        self.denials: dict[str, list[int]] = defaultdict(list)
        self.told: dict[str, datetime] = {}
        self.paid: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, set[str]] = defaultdict(set)
        self.signed: list[Signed] = []
        self.was_rewritten = False
        self.verdict: AssertionError | None = None

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Keep what the account holds against it: a ledger takes it for a failing storage."""
        try:
            yield
        except AssertionError as verdict:
            self.verdict = verdict
            raise

    @contextmanager
    def change(self, what: str) -> Iterator[None]:
        """Do something that lasts. A process can die right before it and right after it."""
        self.tick(what, "before")
        yield
        self.tick(what, "after")

    def tick(self, what: str, when: str) -> None:
        if self.death is not None and self.death[:2] == (what, when):
            self.death = what, when, self.death[2] - 1
            self.is_dead = self.is_dead or not self.death[2]
        if self.is_dead:
            raise Died

    def end(self, thread: str) -> int:
        return max(self.written[thread], default=0)

    def state(self, thread: str, sequence: int) -> Kept:
        """The newest one that is no note."""
        while (kept := self.written[thread][sequence]).is_note:
            sequence -= 1
        return kept

    def notes(self, thread: str, head: Kept) -> list[Kept]:
        """What was noted of answers after a state, up to the next one, oldest first."""
        found = []
        for number in range(head.head.sequence + 1, self.end(thread) + 1):
            if not self.written[thread][number].is_note:
                break
            if self.written[thread][number].question is not None:
                found.append(self.written[thread][number])
        return found

    def is_over(self, thread: str) -> bool:
        """Whether a no of somebody who signs answered what the end of a thread asks."""
        head = self.state(thread, self.end(thread))
        return any(self.is_no(each, head) for each in self.notes(thread, head))

    def is_no(self, note: Kept, head: Kept) -> bool:
        texts = {signed.text for signed in self.signed}
        asked = note.question
        genuine = note.is_denied and set(note.statements) <= texts and len(note.statements) == 1
        if not genuine or asked is None or "asked" not in head.payload:
            return False
        (said,) = self.known(note.statements)
        return (said.question.checkpoint, said.question.head) == (head.head, head.head)

    def append(self, thread: str, sequence: int, record: bytes) -> None:
        """Judge a record that was just written, and keep it in the account."""
        kept = self.opened(thread, sequence, record)
        if sequence in self.written[thread]:
            self.rewrite(thread, sequence)
        before = self.written[thread].get(sequence - 1)
        assert not self.is_journal_down, "saved without a journal"
        assert (before is None) == (sequence == 1)
        intended = [event for event in self.events if event.outcome == "intended"]
        assert ("save", kept.head.digest) in [(event.what, event.digest) for event in intended]
        if kept.is_note:
            self.spending(thread, kept)
        elif before is not None:
            self.stepping(thread, self.state(thread, sequence - 1), kept)
        self.written[thread][sequence] = kept

    def stepping(self, thread: str, head: Kept, kept: Kept) -> None:
        """Whatever a step left goes on from the state before it, or from where people said."""
        done, app = kept.payload["done"], f"invoice@{kept.version}"
        source, letting = head, None
        for note in self.notes(thread, head):
            asked = note.question
            assert asked is not None
            fits = [*asked.done, asked.next] == done and not note.is_denied
            if fits and (asked.app, asked.tools) == (app, kept.tools.digest):
                source, letting = self.written[thread][asked.checkpoint.sequence], asked
        if letting is None:
            assert "asked" not in head.payload, "went on without an answer"
            assert not is_wider(kept.tools, head.tools), "took a tool that nobody approved"
            assert kept.version == head.version
        else:
            assert (letting.checkpoint, letting.head) == (source.head, head.head)
        assert done == STEPS[: len(source.payload["done"]) + 1]
        count = source.payload["state"].get("migrations", 0)
        carried = kept.version != source.version
        assert kept.payload["state"].get("migrations", 0) == count + carried

    def opened(self, thread: str, sequence: int, record: bytes) -> Kept:
        opened = open_sealed(record, Place(STORE, "", thread, sequence), KEYS)
        payload, header = Codec().decode(opened.payload), opened.header
        version, is_note = header.app.partition("@")[2], header.kind == "note"
        return Kept(record, opened.head, payload, version, is_note=is_note)

    def rewrite(self, thread: str, sequence: int) -> None:
        """Only what nobody was told of, and no anchor has seen, can be cut off unnoticed."""
        anchored = self.anchor.read(STORE, thread)
        assert anchored is None or anchored.sequence < sequence, "an anchored one was rewritten"
        for number in [number for number in self.written[thread] if number >= sequence]:
            assert not self.written[thread].pop(number).told, "an acknowledged one was rewritten"
        self.spent = {
            text: (where, number)
            for text, (where, number) in self.spent.items()
            if where != thread or number < sequence
        }
        self.denials[thread] = [number for number in self.denials[thread] if number < sequence]
        self.was_rewritten = True

    def spending(self, thread: str, kept: Kept) -> None:
        """Whatever needs people had the people: these ones, for this, now, and never before."""
        wish, sequence = self.wish, kept.head.sequence
        assert wish is not None
        assert wish.thread == thread
        head = self.state(thread, sequence - 1)
        source = head if wish.sequence is None else self.written[thread][wish.sequence]
        is_old = source is not head
        tools, version = ToolSet(TOOLS[wish.variant]), version_of(wish.variant)
        assert version == source.version or (source.version, version) == ("1", "2")
        wider = is_wider(tools, source.tools)
        asked = source.payload.get("asked")
        needed = max(1 if is_old or wider else 0, self.quorum if asked else 0)
        assert kept.question is not None
        assert set(kept.statements) <= {signed.text for signed in wish.signed}
        for signed in dict.fromkeys(wish.signed):
            question = signed.question
            assert question == kept.question
            assert signed.text not in self.spent, "an answer was taken twice"
            assert (question.store, question.thread) == (STORE, thread)
            assert (question.checkpoint, question.head) == (source.head, head.head)
            assert question.app == f"invoice@{version}"
            assert question.tools == tools.digest
            assert question.arguments == (asked["arguments"] if asked else {})
            assert self.now <= wish.now < self.now + HOUR, "an answer was taken after its time"
            self.spent[signed.text] = thread, sequence
            if signed.verdict == "denied":
                break  # it counts at once, whatever comes with it
        assert kept.is_denied == any(signed.verdict == "denied" for signed in wish.signed)
        if not kept.is_denied:
            assert len({signed.by for signed in wish.signed}) >= needed, "too few people"
            assert not any(self.is_no(each, head) for each in self.notes(thread, head)) or is_old

    def known(self, texts: list[str]) -> list[Signed]:
        found = {signed.text: signed for signed in self.signed}
        return [found[text] for text in texts]

    def pay(self, call: Call, state: State, arguments: dict[str, Any], variant: str) -> None:
        """Judge a payment, and make it, unless the bank has seen the key."""
        head = self.written[call.thread][call.sequence]
        # The next record vouches for all but line 1, the signature.
        kept = self.storage.read(call.thread, call.sequence).partition(b"\n")[2]
        assert head.record.partition(b"\n")[2] == kept
        notes = self.notes(call.thread, head)
        spent = [note for note in notes if self.allows(note, head, call, arguments, variant)]
        assert spent, "paid without an answer that counts"
        note, asked = spent[0], spent[0].question
        assert asked is not None
        before = [each for each in notes if each.head.sequence < note.head.sequence]
        assert not [each for each in before if self.is_no(each, head)], "paid if denied"
        source = self.written[call.thread][asked.checkpoint.sequence]
        was = {**source.payload["state"], "migrations": 0}
        assert {**state, "migrations": 0} == was, "went on from another state"
        resumes = [event for event in self.events if event.what == "resume"]
        assert ("done", call.thread, source.head.sequence) in [
            (event.outcome, event.thread, event.sequence) for event in resumes
        ], "paid without a line in the journal"
        anchored = self.anchor.read(STORE, call.thread)
        assert anchored is not None
        assert anchored.sequence >= note.head.sequence, "paid for what can be cut off unnoticed"
        with self.change("pay"):
            for reason in (f"{call.thread} {head.head} {source.head}", *note.statements):
                self.keys[reason].add(call.key)
                assert len(self.keys[reason]) == 1, "paid twice for one question, or one answer"
            self.paid.setdefault(call.key, arguments)

    def allows(
        self, note: Kept, head: Kept, call: Call, arguments: dict[str, Any], variant: str
    ) -> bool:
        """What was signed is what goes on: this thread, step, version and state, with these tools.

        It was spent in time, and was never taken for anything else.
        """
        asked, texts = note.question, {signed.text for signed in self.signed}
        if asked is None or not note.statements or not set(note.statements) <= texts:
            return False
        answers, thread = self.known(note.statements), self.written[call.thread]
        here = call.thread, note.head.sequence  # a thief of the key may have written it
        source = thread.get(asked.checkpoint.sequence)
        app, tools = f"invoice@{version_of(variant)}", ToolSet(TOOLS[variant]).digest
        return (
            len({signed.by for signed in answers}) >= self.quorum
            and all(
                (signed.verdict, signed.question) == ("approved", asked)
                and self.told.get(note.head.digest, signed.expires) < signed.expires
                and self.spent.get(signed.text, here) == here
                for signed in answers
            )
            and source is not None
            and (asked.checkpoint, asked.head) == (source.head, head.head)
            and (asked.thread, asked.app, asked.tools) == (call.thread, app, tools)
            and (asked.next, list(asked.done)) == (call.step, source.payload["done"])
            and asked.arguments == arguments == source.payload["asked"]["arguments"]
        )


class Storage(Memory):
    """A storage that outlives its processes, and tells the account of each record."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        with self.world.change("append"):
            super().append(thread, sequence, record, **options)
            with self.world.judging():
                self.world.append(thread, sequence, record)

    def put(self, thread: str, sequence: int, record: bytes) -> None:
        self._records.setdefault(("", thread), {})
        super().put(thread, sequence, record)

    def replace(self, records: dict[str, dict[int, bytes]]) -> None:
        self._records = {("", thread): dict(kept) for thread, kept in records.items()}
        self._heads = {("", thread): max(kept) for thread, kept in records.items() if kept}

    def restore(self, records: dict[str, dict[int, bytes]]) -> None:
        """Put everything back that there ever was."""
        self.replace(records)
        self._bases = {}

    @property
    def copied(self) -> dict[str, dict[int, bytes]]:
        return {thread: dict(kept) for (_, thread), kept in self._records.items()}


class Anchor(InMemoryAnchor):
    """An anchor that outlives its processes."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def advance(self, store: str, thread: str, head: Head) -> None:
        with self.world.change("anchor"):
            super().advance(store, thread, head)


class Journal(InMemoryJournal):
    """A journal that outlives its processes, and whose disk can be full. It has the clock."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.times: dict[tuple[str, int], datetime] = {}

    def record(self, event: Event) -> Entry:
        if self.world.is_journal_down:
            raise Unavailable("The disk is full.", "Make room.")
        with self.world.change("journal"):
            entry = super().record(event)
            self.times[entry.chain, entry.number] = self.world.clock
            self.world.events.append(event)
            if (event.what, event.outcome) == ("approve", "done"):
                self.world.told[str(event.digest)] = self.world.clock
        return entry

    def back(self, thread: str) -> Iterator[Entry]:
        for entry in super().back(thread):
            yield replace(entry, at=self.times[entry.chain, entry.number])


def version_of(variant: str) -> str:
    return "2" if variant == "2" else "1"


def is_wider(tools: ToolSet, before: ToolSet) -> bool:
    return any(reason is not None for reason, _, _ in compare(tools, before))


def workflow_of(world: World, variant: str) -> Workflow:
    def fetch(state: State) -> State:
        return {"payee": "alice"}

    def ask(state: State) -> Ask:
        return Ask("pay", {"amount": state["amount"], "payee": state.get("payee", "nobody")})

    def pay(state: State, call: Call) -> State:
        arguments = call.approved.arguments  # refused here, if nobody was asked
        with world.judging():
            world.pay(call, state, arguments, variant)
        return {"paid": arguments["amount"]}

    def tell(state: State) -> State:
        return {"told": True}

    return Workflow(
        "invoice",
        [fetch, ask, pay, tell],
        version=version_of(variant),
        tools=TOOLS[variant],
        gate=Gate(Policy({Reason.ASKED: world.quorum}), approvers=APPROVERS),
        migrations={"1": migrated} if variant == "2" else {},
    )
