"""An account of what was written and who signed what, kept apart from what it judges.

It sees each record of both storages as it is written, what their anchors, the journal and the bank
are told, and holds each step and each payment against what people did. What counts is worked out
here, and not from what the package says.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from safepoint import (
    Approver,
    Approvers,
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
from safepoint.core.errors import ApprovalRefused, CheckpointError
from safepoint.core.journal import Entry, Event
from safepoint.core.names import Head
from safepoint.core.record import Place, open_sealed
from safepoint.resume.answers import Answers
from safepoint.resume.approval import Question
from safepoint.resume.gate import May, compare
from safepoint.resume.workflow import Call
from tests.house import Memory
from tests.unit.resume_helpers import DANA, ERIN, STORE, WRITER, migrated

State = dict[str, Any]
Death = tuple[str, str, int]
Meanwhile = tuple[str, str, int, Callable[[], object]]

KEYS = Keyring(WRITER)
HOUR, WITHIN = timedelta(hours=1), timedelta(hours=2)
FINN, GUS, OMAR, OLGA = (
    Approver(name, SigningKey(bytes(range(first, first + 32))))
    for name, first in (("finn", 5), ("gus", 6), ("omar", 7), ("olga", 8))
)
PEOPLE = {"dana": DANA, "erin": ERIN, "finn": FINN, "gus": GUS}
OPERATORS = {"omar": OMAR, "olga": OLGA}
ALL = Keyring(verify=[each.key.public for each in (*PEOPLE.values(), *OPERATORS.values())])
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

    @property
    def is_end(self) -> bool:
        """Whether it ends a wait: nobody answered what was asked."""
        return (
            self.question is not None and not self.statements and "asked" in self.question.reasons
        )


@dataclass(frozen=True)
class Said:
    """What is in the place of the answers: a no or a yes, a hold or a release; and since when."""

    record: bytes
    by: str
    what: str
    digest: str
    about: str
    anchored: int | None = None


@dataclass(frozen=True)
class Deployed:
    """The version, the tools and the limits with which a workflow is deployed."""

    app: str
    tools: ToolSet
    clerks: int
    revoked: frozenset[str]


RESUMED = ("resume", "done")


class World:
    """What outlives a process: the store, the place of the answers, the bank; and the account."""

    def __init__(self) -> None:
        self.death: Death | None = None
        self.is_dead = False
        self.start = self.now = self.clock = datetime.now(UTC) + timedelta(minutes=1)
        self.waited, self.count, self.started, self.began = timedelta(), 0, 0, 0
        self.meanwhile: Meanwhile | None = None
        self.storage, self.anchor = Storage(self, "append"), Anchor(self, "anchor")
        self.journal = Journal(self)
        self.answers = Answers(Storage(self, "put"), Anchor(self, "mark"))
        self.written: dict[str, dict[int, Kept]] = defaultdict(dict)
        self.said: dict[tuple[str, int], Said] = {}
        self.since: dict[Head, int] = {}
        self.events: list[Event] = []
        self.told: dict[str, datetime] = {}
        self.paid: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, set[str]] = defaultdict(set)
        self.signed: list[Signed] = []
        self.amounts: dict[str, int] = {}
        self.stolen: set[str] = set()
        self.revoked: set[str] = set()
        self.ever_revoked: set[str] = set()
        self.clerks, self.variant = 10, "1"
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
        """Count, and let others do something in between."""
        self.count += 1
        if self.meanwhile is not None and self.meanwhile[:2] == (what, when):
            *_, number, action = self.meanwhile
            self.meanwhile = (what, when, number - 1, action) if number > 1 else None
            if number == 1:
                kept, self.death = (self.death, self.started, self.began), None
                self.started = self.began = self.count
                try:
                    action()
                except CheckpointError:
                    pass
                finally:
                    self.death, self.started, self.began = kept
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

    def pruned(self, thread: str) -> int:
        """How many checkpoints are gone."""
        base = self.storage.base(thread)
        return 0 if base is None else base[0] - 1

    def is_over(self, thread: str) -> bool:
        """Whether a no answered what a thread asks, or the end of the wait did."""
        head = self.state(thread, self.end(thread))
        notes = self.notes(thread, head)
        return any(self.is_no(each, head) or each.is_end for each in notes)

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
        intended = [event for event in self.events if event.outcome == "intended"]
        assert ("save", kept.head.digest) in [(event.what, event.digest) for event in intended]
        if sequence > 1 and not kept.is_note and thread not in self.stolen:
            self.stepping(thread, self.state(thread, sequence - 1), kept)
        self.keep(thread, sequence, kept)

    def keep(self, thread: str, sequence: int, kept: Kept) -> None:
        self.written[thread][sequence] = kept
        self.count += 1
        self.began = self.count
        self.since[kept.head] = self.started

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

    def tell(self, thread: str) -> None:
        """Somebody was told of the end of a thread, and so of all before it: it stays."""
        kept, anchored = self.written[thread], self.anchor.read(STORE, thread)
        for number in kept:
            if anchored is not None and number <= anchored.sequence:
                kept[number] = replace(kept[number], told=True)

    def known(self, texts: list[str]) -> list[Signed]:
        found = {signed.text: signed for signed in self.signed}
        return [found[text] for text in texts]

    def put(self, chain: str, sequence: int, record: bytes) -> None:
        """Keep what somebody put. What is anchored there is never written over."""
        before = self.said.get((chain, sequence))
        assert before is None or before.anchored is None, "an anchored answer was written over"
        for number in [n for name, n in self.said if name == chain and n >= sequence]:
            del self.said[chain, number]
        opened = open_sealed(record, Place("answers", "", chain, sequence), ALL, use="order")
        value = json.loads(opened.payload)
        by = next(n for n, p in {**PEOPLE, **OPERATORS}.items() if p.key.id == opened.key)
        if "answer" in value:
            (signed,) = self.known([value["answer"]])
            said = Said(record, by, signed.verdict, opened.digest, signed.question.text)
        else:
            of = value["hold"] if value["order"] == "release" else value["thread"]
            said = Said(record, by, value["order"], opened.digest, of)
        self.said[chain, sequence] = said

    def marked(self, chain: str, head: Head) -> None:
        for (name, number), said in self.said.items():
            if name == chain and number <= head.sequence and said.anchored is None:
                self.said[name, number] = replace(said, anchored=self.count)

    def noes(self, question: Question, before: float = float("inf")) -> list[Said]:
        """Each no to a question that was put, and anchored before then, by a key that counts."""
        found = [s for s in self.said.values() if (s.what, s.about) == ("denied", question.text)]
        counts = [s for s in found if s.by not in self.revoked]
        return [s for s in counts if s.anchored is not None and s.anchored < before]

    def yeses(self, question: Question) -> set[str]:
        """Who put a yes that counts now."""
        found = [s for s in self.said.values() if (s.what, s.about) == ("approved", question.text)]
        put = {each.by for each in found}
        live = [s for s in self.signed if s.question == question and s.verdict == "approved"]
        return {s.by for s in live if s.by in put - self.revoked and self.clock < s.expires}

    def holds(self, thread: str, before: float = float("inf")) -> list[Said]:
        """Each hold that was anchored before then, and that nobody has released."""
        ended = {s.about for s in self.said.values() if s.what == "release"}
        found = [s for s in self.said.values() if (s.what, s.about) == ("hold", thread)]
        live = [s for s in found if s.digest not in ended]
        return [s for s in live if s.anchored is not None and s.anchored < before]

    def enough(self, amount: int, names: set[str], clerks: int) -> bool:
        """Whether these people may approve it: one up to some amount, or two up to another."""
        return amount <= 100 and len(names) > (amount > clerks)

    def running(self, call: Call) -> None:
        assert not self.holds(call.thread, self.began), "a held run ran a step"

    def paying(self, call: Call, state: State, gate: Deployed) -> None:
        """Judge a payment, and make it, unless the bank has seen the key."""
        head, arguments = self.written[call.thread][call.sequence], call.approved.arguments
        assert head.record == self.storage.read(call.thread, call.sequence)
        notes = self.notes(call.thread, head)
        spent = [each for each in notes if self.let(each, arguments, gate)]
        assert spent, "paid without enough people, or after their time"
        note, question = spent[0], spent[0].question
        assert question is not None
        assert question.head == head.head, "spent elsewhere"
        assert (question.app, question.tools) == (gate.app, gate.tools.digest)
        assert question.next == call.step
        assert arguments == question.arguments == {"amount": self.amounts[call.thread]}
        source = self.written[call.thread][question.checkpoint.sequence]
        same = {**source.payload["state"], "migrations": 0}
        assert {**state, "migrations": 0} == same, "went on from another state"
        resumed = [event for event in self.events if (event.what, event.outcome) == RESUMED]
        assert (call.thread, source.head.sequence) in [(e.thread, e.sequence) for e in resumed]
        anchored = self.anchor.read(STORE, call.thread)
        assert anchored is not None
        assert anchored.sequence >= note.head.sequence, "paid for what can be cut off unnoticed"
        since = self.since[note.head]
        noes = [each for each in self.noes(question, since) if each.by not in self.ever_revoked]
        assert not noes or call.thread in self.stolen, "paid, and somebody had said no"
        with self.change("pay"):
            for reason in (f"{call.thread} #{call.sequence}", question.text, *note.statements):
                self.keys[reason].add(call.key)
                assert len(self.keys[reason]) == 1, "paid twice"
            self.paid.setdefault(call.key, arguments)

    def let(self, note: Kept, arguments: State, gate: Deployed) -> bool:
        """Whether enough people approved what a note spends, and in time."""
        texts = {each.text for each in self.signed}
        if note.question is None or not note.statements or not set(note.statements) <= texts:
            return False
        answers = [*{each.by: each for each in self.known(note.statements)[::-1]}.values()]
        if any((each.verdict, each.question) != ("approved", note.question) for each in answers):
            return False
        names = {each.by for each in answers} - gate.revoked
        told = self.told.get(note.head.digest)
        return (
            self.enough(arguments["amount"], names, gate.clerks)
            and all(told is not None and told < each.expires for each in answers)
            and not note.question.is_over(told)
        )


class Storage(Memory):
    """A storage that outlives its processes, and tells the account of each record."""

    def __init__(self, world: World, what: str) -> None:
        super().__init__()
        self.world, self.what = world, what

    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        tell = self.world.append if self.what == "append" else self.world.put
        with self.world.change(self.what):
            super().append(thread, sequence, record, **options)
            with self.world.judging():
                tell(thread, sequence, record)

    @property
    def copied(self) -> dict[str, dict[int, bytes]]:
        return {thread: dict(kept) for (_, thread), kept in self._records.items() if kept}

    def replace(self, records: dict[str, dict[int, bytes]]) -> None:
        self._records = {("", thread): dict(kept) for thread, kept in records.items()}
        self._heads = {("", thread): max(kept) for thread, kept in records.items() if kept}

    def restore(self, records: dict[str, dict[int, bytes]]) -> None:
        """Put everything back that there ever was."""
        self.replace(records)
        self._bases = {}


class Anchor(InMemoryAnchor):
    """An anchor that outlives its processes."""

    def __init__(self, world: World, what: str) -> None:
        super().__init__()
        self.world, self.what = world, what

    def advance(self, store: str, thread: str, head: Head) -> None:
        with self.world.change(self.what):
            super().advance(store, thread, head)
            if self.what == "mark":
                self.world.marked(thread, head)


class Journal(InMemoryJournal):
    """A journal that outlives its processes, and has the clock."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.times: dict[tuple[str, int], datetime] = {}

    def record(self, event: Event) -> Entry:
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


def workflow_of(world: World) -> Workflow:
    """The workflow as it is deployed now, with the people and limits of now."""
    version, tools = version_of(world.variant), TOOLS[world.variant]
    clerks, revoked = world.clerks, frozenset(world.revoked)
    now = Deployed(f"invoice@{version}", ToolSet(tools), clerks, revoked)

    def fetch(state: State, call: Call) -> State:
        with world.judging():
            world.running(call)
        return {"payee": "alice"}

    def ask(state: State, call: Call) -> Ask:
        with world.judging():
            world.running(call)
        within = WITHIN + world.waited if state["ends"] else None
        return Ask("pay", {"amount": state["amount"]}, within=within)

    def pay(state: State, call: Call) -> State:
        with world.judging():
            world.running(call)
        arguments = call.approved.arguments  # refused here, if nobody was asked
        with world.judging():
            world.paying(call, state, now)
        return {"paid": arguments["amount"]}

    def tell(state: State, call: Call) -> State:
        with world.judging():
            world.running(call)
        return {"told": True}

    may = [May(up_to=clerks), May(up_to=100, people=2)]
    keys = {name: each.key.public for name, each in PEOPLE.items()}
    gone = [PEOPLE[name].key.id for name in revoked]
    gate = Gate(
        Policy(may={"pay": may}),
        Approvers(keys, revoked=gone),
        answers=world.answers,
        operators=Approvers({name: each.key.public for name, each in OPERATORS.items()}),
    )
    return Workflow(
        "invoice",
        [fetch, ask, pay, tell],
        version=version,
        tools=tools,
        gate=gate,
        migrations={"1": migrated} if version == "2" else {},
    )
