"""The house that tests live in: a store with its keys, anchor, journal, answers and people.

Its storage is in the hands of whoever can write it. That each storage gives back what was put into
it is the storage suite's to hold, and attacks on what is on disk are the ladder's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from safepoint import (
    Approver,
    Approvers,
    CheckpointError,
    FileCheckpointStorage,
    Gate,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InMemoryJournal,
    Keyring,
    Ledger,
    Policy,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
    Workflow,
)
from safepoint.attacks.medium import Rows
from safepoint.core.errors import ApprovalRefused
from safepoint.core.journal import Entry
from safepoint.core.record import Place
from safepoint.core.storage import CheckpointStorage
from safepoint.resume.answers import Answers

KEY = SigningKey(bytes(range(32)))
KEYS = Keyring(KEY)
STORE = "invoices"
THREAD = "order-7"
DANA, ERIN, OPAL = (Approver(name, SigningKey.generate()) for name in ("dana", "erin", "opal"))
"""Two who approve, and an operator."""


def known(*people: Approver, revoked: Sequence[SigningKey] = ()) -> Approvers:
    """Whose answers count, or whose did."""
    return Approvers({each.name: each.key.public for each in people}, revoked=revoked)


class Memory(InMemoryCheckpointStorage):
    """A storage in the hands of somebody who can write it."""

    def put(self, thread: str, sequence: int, record: bytes) -> None:
        at = self._tenant, thread
        self._records.setdefault(at, {})[sequence] = record
        self._heads[at] = max(self._records[at])

    def remove(self, thread: str, *sequences: int) -> None:
        at = self._tenant, thread
        for sequence in sequences:
            del self._records[at][sequence]
        self._heads[at] = max(self._records[at], default=0)

    def put_base(self, thread: str, first: int, record: bytes) -> None:
        self._bases[self._tenant, thread] = first, record


class Plain(Memory):
    """One that reads one record at a time, and asks twice for the newest."""

    newest: Any = None
    scan: Any = None


class Counting(Memory):
    """One that counts the records that are read."""

    reads = 0

    def read(self, thread: str, sequence: int) -> bytes:
        self.reads += 1
        return super().read(thread, sequence)

    def newest(self, thread: str) -> tuple[int, bytes | None]:
        self.reads += 1
        return super().newest(thread)


class House:
    """A store in memory, with a clock that a test moves, and people who sign."""

    def __init__(self) -> None:
        self.late = timedelta(0)
        self.storage = Memory(clock=lambda: datetime.now(UTC) + self.late)
        self.anchor, self.journal = InMemoryAnchor(), InMemoryJournal()
        self.answers = Answers(Memory(), InMemoryAnchor())
        self.policy, self.approvers = Policy(), known(DANA, ERIN)
        self.ran: list[str] = []

    @property
    def gate(self) -> Gate:
        return Gate(self.policy, self.approvers, answers=self.answers, operators=known(OPAL))

    def ledger(self, **options: Any) -> Ledger:
        """Open the store as another process would."""
        given = {"store": STORE, "keys": KEYS, "anchor": self.anchor, "journal": self.journal}
        return Ledger(self.storage, **{**given, **options})

    def workflow(self) -> Workflow:
        """Return one step, which writes down that it ran."""

        def act(state: dict[str, Any]) -> None:
            self.ran.append("act")

        return Workflow("invoice", [act])

    def told(self) -> list[str]:
        """Return what the journal says, in short."""
        return [f"{each.what} {each.outcome}" for each in self.journal.show()]

    def last(self) -> Entry:
        return list(self.journal.show())[-1]


Use = Callable[[Ledger], Any]


def opened(storage: CheckpointStorage, anchor: Any = None, **options: Any) -> Ledger:
    """A ledger as a new process would open it."""
    return Ledger(storage, anchor=anchor, **{"store": STORE, "keys": KEYS, **options})


def ledger_in(folder: Path, kind: str, key: SigningKey = KEY) -> Ledger:
    """A ledger on disk with its anchor, as a new process would open it; of another key, a copy."""
    name, keys = "store" if key is KEY else "copy", Keyring(key)
    if kind == "files":
        storage: Any = FileCheckpointStorage(folder / name)
        anchor: Any = SQLiteAnchor(folder / "anchor/heads.db", create=True)
    else:
        for each in (name, "anchor"):
            (folder / each).mkdir(mode=0o700, exist_ok=True)
        storage = SQLiteCheckpointStorage(folder / name / "store.db")
        anchor = SQLiteAnchor(folder / "anchor" / "heads.db", create=True)
    return Ledger(storage, store=STORE, keys=keys, anchor=anchor)


def refused(
    why: type[CheckpointError] | str, act: Callable[..., object], *given: Any, **named: Any
) -> str:
    """Return the message of a refusal: of this error, or of an approval for this reason."""
    import pytest  # here: the site is made of the zoo, which uses this module, where nobody tests

    error, match = (ApprovalRefused, why) if isinstance(why, str) else (why, None)
    with pytest.raises(error, match=match) as refusal:
        act(*given, **named)
    assert type(refusal.value) is error
    return str(refusal.value)


def fill(ledger: Ledger, count: int, thread: str = THREAD, first: int = 1) -> None:
    for number in range(first, first + count):
        ledger.save(thread, {"n": number})


def fill_ahead(storage: CheckpointStorage, anchor: InMemoryAnchor, count: int) -> None:
    """A thread of which the anchor has seen the first record alone."""
    fill(opened(storage, anchor), 1)
    fill(opened(storage), count - 1, first=2)


def states(ledger: Ledger, thread: str = THREAD) -> list[int]:
    return [each.state["n"] for each in ledger.history(thread)]


def base_of(storage: Memory, thread: str = THREAD) -> tuple[int, bytes]:
    found = storage.base(thread)
    assert found is not None
    return found


def records(storage: CheckpointStorage, *sequences: int, thread: str = THREAD) -> dict[int, bytes]:
    """The records of a thread, to be put back later."""
    return {number: storage.read(thread, number) for number in sequences}


def put_back(storage: Memory, kept: dict[int, bytes]) -> None:
    for number, record in kept.items():
        storage.put(THREAD, number, record)


USES: dict[str, Use] = {
    "latest": lambda ledger: ledger.latest(THREAD),
    "load": lambda ledger: ledger.load(THREAD, 1),
    "save": lambda ledger: ledger.save(THREAD, {"n": 9}),
    "history": states,
    "verify": lambda ledger: ledger.verify(THREAD),
    "prune": lambda ledger: ledger.prune(THREAD, keep=1),
    "delete": lambda ledger: ledger.delete(THREAD),
    "erase": lambda ledger: ledger.erase(THREAD),
    "copy": lambda ledger: ledger.copy_to(opened(Memory()), threads=[THREAD]),
}


def rewrite(path: Path, *statements: str) -> None:
    """Edit rows behind all rules, as whoever can write the file does, and put the rules back."""
    with Rows(path.parent).turn(path.name) as thief:
        for statement in statements:
            thief.execute(statement)


class Toy:
    """It hides nothing, and shows what passed through it."""

    def __init__(self, key: str = "0123456789abcdef") -> None:
        self.id = key

    def close(self, plain: bytes, place: Place) -> tuple[str, bytes]:
        return self.id, f"{self.id}{place}".encode() + plain[::-1]

    def open(self, text: bytes, key: str, place: Place) -> bytes:
        shown = f"{key}{place}".encode()
        if not text.startswith(shown):
            raise KeyError(key)
        return text[: len(shown) - 1 : -1]
