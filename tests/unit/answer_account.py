"""The account of `resume_account`, with people who put their answers, operators, and deadlines.

It sees each record of both storages as it is written, and when an anchor has seen it. What counts
is worked out here from what people did, and not from what the package says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from safepoint import (
    Approver,
    Approvers,
    Ask,
    Gate,
    InMemoryAnchor,
    Keyring,
    Policy,
    SigningKey,
    Workflow,
)
from safepoint.core.errors import CheckpointError
from safepoint.core.names import Head
from safepoint.core.record import Place, open_sealed
from safepoint.resume.answers import Answers
from safepoint.resume.approval import Question
from safepoint.resume.gate import May
from safepoint.resume.workflow import Call
from tests.house import Memory
from tests.unit.resume_account import Kept, State, World
from tests.unit.resume_helpers import DANA, ERIN

WITHIN = timedelta(hours=2)
FINN, GUS, OMAR, OLGA = (
    Approver(name, SigningKey(bytes(range(first, first + 32))))
    for name, first in (("finn", 5), ("gus", 6), ("omar", 7), ("olga", 8))
)
PEOPLE = {"dana": DANA, "erin": ERIN, "finn": FINN, "gus": GUS}
OPERATORS = {"omar": OMAR, "olga": OLGA}
ALL = Keyring(verify=[each.key.public for each in (*PEOPLE.values(), *OPERATORS.values())])
Meanwhile = tuple[str, str, int, Callable[[], object]]


@dataclass(frozen=True)
class Said:
    """What is in the place of the answers: a no or a yes, a hold or a release; and since when."""

    record: bytes
    by: str
    what: str
    digest: str
    about: str
    anchored: int | None = None


class Desk(World):
    """What outlives a process, the place of the answers included; and the account of it."""

    people = Approvers({name: each.key.public for name, each in PEOPLE.items()})

    def __init__(self) -> None:
        super().__init__()
        self.start, self.waited, self.count, self.started, self.began = (
            self.now,
            timedelta(),
            0,
            0,
            0,
        )
        self.meanwhile: Meanwhile | None = None
        self.answers = Answers(Shelf(self), Seen(self))
        self.said: dict[tuple[str, int], Said] = {}
        self.since: dict[Head, int] = {}
        self.acted: dict[str, int] = {}
        self.amounts: dict[str, int] = {}
        self.stolen: set[str] = set()
        self.revoked: set[str] = set()
        self.ever_revoked: set[str] = set()
        self.clerks = 10

    def tick(self, what: str, when: str) -> None:
        """Count, and let others do something in between."""
        self.count += 1
        if (what, when) == ("journal", "after") and self.events[-1].what == "act":
            self.acted.setdefault(str(self.events[-1].digest), self.count)
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
        super().tick(what, when)

    def append(self, thread: str, sequence: int, record: bytes) -> None:
        if sequence in self.written[thread]:
            self.rewrite(thread, sequence)
        self.written[thread][sequence] = kept = self.opened(thread, sequence, record)
        self.count += 1
        self.began = self.count
        self.since[kept.head] = self.started

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

    def is_over(self, thread: str) -> bool:
        """Whether a no answered what a thread asks, or the end of the wait did."""
        head = self.state(thread, self.end(thread))
        ended = [each for each in self.notes(thread, head) if not each.statements]
        return super().is_over(thread) or any(each.question is not None for each in ended)

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

    def paying(self, call: Call, arguments: dict[str, Any], clerks: int, revoked: set[str]) -> None:
        """Judge a payment, and make it, unless the bank has seen the key."""
        head = self.written[call.thread][call.sequence]
        assert head.record == self.storage.read(call.thread, call.sequence)
        notes = self.notes(call.thread, head)
        spent = [each for each in notes if self.let(each, arguments, clerks, revoked)]
        assert spent, "paid without enough people, or after their time"
        note, question = spent[0], spent[0].question
        assert question is not None
        assert question.head == head.head, "spent elsewhere"
        assert arguments == question.arguments == {"amount": self.amounts[call.thread]}
        since = self.since[note.head]
        noes = [each for each in self.noes(question, since) if each.by not in self.ever_revoked]
        assert not noes or call.thread in self.stolen, "paid, and somebody had said no"
        with self.change("pay"):
            for reason in (f"{call.thread} #{call.sequence}", question.text):
                self.keys[reason].add(call.key)
                assert len(self.keys[reason]) == 1, "paid twice"
            self.paid.setdefault(call.key, arguments)

    def let(self, note: Kept, arguments: dict[str, Any], clerks: int, revoked: set[str]) -> bool:
        """Whether enough people approved what a note spends, and in time."""
        texts = {each.text for each in self.signed}
        if note.question is None or not note.statements or not set(note.statements) <= texts:
            return False
        answers = [*{each.by: each for each in self.known(note.statements)[::-1]}.values()]
        if any((each.verdict, each.question) != ("approved", note.question) for each in answers):
            return False
        told = self.told.get(note.head.digest)
        return (
            self.enough(arguments["amount"], {each.by for each in answers} - revoked, clerks)
            and all(told is not None and told < each.expires for each in answers)
            and not note.question.is_over(told)
        )


class Shelf(Memory):
    """The storage of the answers, which tells the account of each record."""

    def __init__(self, world: Desk) -> None:
        super().__init__()
        self.world = world

    def append(self, thread: str, sequence: int, record: bytes, **options: Any) -> None:
        with self.world.change("put"):
            super().append(thread, sequence, record, **options)
            with self.world.judging():
                self.world.put(thread, sequence, record)

    @property
    def chains(self) -> dict[str, dict[int, bytes]]:
        return {chain: dict(kept) for (_, chain), kept in self._records.items() if kept}

    @chains.setter
    def chains(self, records: dict[str, dict[int, bytes]]) -> None:
        self._records = {("", chain): dict(kept) for chain, kept in records.items()}
        self._heads = {("", chain): max(kept) for chain, kept in records.items() if kept}


class Seen(InMemoryAnchor):
    """The anchor of the answers."""

    def __init__(self, world: Desk) -> None:
        super().__init__()
        self.world = world

    def advance(self, store: str, thread: str, head: Head) -> None:
        with self.world.change("mark"):
            super().advance(store, thread, head)
            self.world.marked(thread, head)


def workflow_of(world: Desk) -> Workflow:
    """The workflow as it is deployed now, with the people and limits of now."""
    clerks, revoked = world.clerks, set(world.revoked)

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
            world.paying(call, arguments, clerks, revoked)
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
    return Workflow("invoice", [fetch, ask, pay, tell], version="1", gate=gate)
