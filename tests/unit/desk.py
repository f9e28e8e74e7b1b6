"""A store with its people, for tests of resuming."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from safepoint import (
    Approver,
    Approvers,
    Ask,
    Gate,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InMemoryJournal,
    Keyring,
    Ledger,
    SigningKey,
    Tool,
    Workflow,
)
from safepoint.core.errors import Unavailable
from safepoint.core.journal import Entry, Event
from safepoint.core.names import Head
from safepoint.resume.answers import Answers
from safepoint.resume.approval import Question
from safepoint.resume.workflow import Call, Run
from tests.house import Counting

State = dict[str, Any]
PAID = {"amount": Decimal("42.00"), "payee": "alice"}


DANA, ERIN, OMAR, OLGA, WRITER = (SigningKey.generate() for _ in range(5))
PEOPLE = Approvers({"dana": DANA.public, "erin": ERIN.public})
OPERATORS = Approvers({"omar": OMAR.public, "olga": OLGA.public})
BANK = Tool("bank", version="1", permissions=["pay"])


@dataclass
class Desk:
    """A store, its people, and what was paid."""

    storage: InMemoryCheckpointStorage = field(default_factory=InMemoryCheckpointStorage)
    anchor: InMemoryAnchor = field(default_factory=InMemoryAnchor)
    journal: InMemoryJournal = field(default_factory=InMemoryJournal)
    paid: list[tuple[str, State]] = field(default_factory=list)
    fails: int = 0
    within: timedelta | None = None
    kind: type[Ledger] = Ledger
    asked_for: State = field(default_factory=lambda: dict(PAID))

    def __post_init__(self) -> None:
        self.shelf, self.heads = Shelf(), Stuck()
        self.answers = Answers(self.shelf, self.heads)
        self.gate = Gate(approvers=PEOPLE, answers=self.answers, operators=OPERATORS)

    def ledger(self, key: SigningKey = WRITER, **options: Any) -> Ledger:
        """Open the store as another process would."""
        given = {"anchor": self.anchor, "journal": self.journal, **options}
        return self.kind(self.storage, store="invoices", keys=Keyring(key), **given)

    def workflow(self, **options: Any) -> Workflow:
        """Return fetch, ask, pay."""

        def fetch(state: State) -> State:
            return dict(PAID)

        def ask(state: State) -> Ask:
            return Ask("pay", self.asked_for, within=self.within)

        def pay(state: State, call: Call) -> State:
            self.paid.append((call.key, call.approved.arguments))
            if self.fails:
                self.fails -= 1
                raise ConnectionError
            return {"paid": call.approved.arguments["amount"]}

        given = {"version": "1", "tools": [BANK], "gate": self.gate, **options}
        return Workflow("invoice", [fetch, ask, pay], **given)

    def paused(self, thread: str = "order-7") -> Run:
        """Start a run, which pauses at #3."""
        return self.workflow().start(self.ledger(), thread=thread)

    def starts(self, thread: str = "order-7") -> Question:
        """Start a run, and return what it asks."""
        question = self.paused(thread).question
        assert question is not None
        return question

    def question(self, sequence: int | None = None, **options: Any) -> Question:
        """Return what the store asks people who look at it."""
        question = self.workflow(**options).question(self.ledger(), "order-7", sequence)
        assert question is not None
        return question

    def go_on(
        self, *texts: str, at: int | None = None, now: datetime | None = None, **options: Any
    ) -> Run:
        """Resume as another process would."""
        workflow = self.workflow(**options)
        return workflow.resume(self.ledger(), "order-7", at, approvals=texts, now=now)

    def approved(self) -> str:
        """Let a worker spend an approval at #4, and die before it pays."""
        text = yes(self.paused().question)
        self.workflow().rehydrate(self.ledger(), "order-7", approvals=[text])
        return text

    def told(self) -> list[str]:
        """Return what the journal says, in short."""
        return [f"{e.what} {e.outcome} #{e.sequence or '-'}" for e in self.journal.show()]


def yes(question: Any, key: SigningKey = DANA, name: str = "dana") -> str:
    return Approver(name, key).approve(question)


def revoking(key: SigningKey) -> Approvers:
    return Approvers({"dana": DANA.public, "erin": ERIN.public}, revoked=[key.public])


def no(question: Any) -> str:
    return Approver("erin", ERIN).deny(question)


class Shelf(Counting):
    """The storage of the answers, which can be down, and in other hands."""

    newest: Any = None
    scan: Any = None
    down = False

    def head(self, thread: str) -> int:
        if self.down:
            raise OSError
        return super().head(thread)

    @property
    def chains(self) -> dict[str, dict[int, bytes]]:
        """A copy of what is there, in the order in which the chains were begun."""
        return {chain: dict(records) for (_, chain), records in self._records.items()}

    @chains.setter
    def chains(self, chains: dict[str, dict[int, bytes]]) -> None:
        self._records = {("", chain): dict(records) for chain, records in chains.items() if records}
        self._heads = {place: max(records) for place, records in self._records.items()}


class Stuck(InMemoryAnchor):
    """An anchor that cannot be written any more."""

    stuck = False

    def advance(self, store: str, thread: str, head: Head) -> None:
        if self.stuck:
            raise OSError
        super().advance(store, thread, head)


class FullDisk:
    """A journal that has room for so many lines more."""

    keys, anchor = (), None

    def __init__(self, room: int, kept: InMemoryJournal | None = None) -> None:
        self.kept = kept or InMemoryJournal()
        self.room = self.kept.verify() + room

    def record(self, event: Event) -> Entry:
        if self.kept.verify() >= self.room:
            raise Unavailable("There is no room.", "Make some.")
        return self.kept.record(event)

    def anchored_in(self, *_: object) -> InMemoryJournal:
        return self.kept
