"""A storage in the hands of somebody who can write it: in memory, on files and in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from safepoint import (
    FileAnchor,
    FileCheckpointStorage,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
)
from safepoint.storage.base import CheckpointStorage

KEY = SigningKey(bytes(range(32)))
KEYS = Keyring(KEY)
STORE = "invoices"
THREAD = "order-7"


class Memory(InMemoryCheckpointStorage):
    """A storage in the hands of somebody who can write it."""

    def put(self, thread: str, sequence: int, record: bytes) -> None:
        self._records[thread][sequence] = record
        self._heads[thread] = max(self._records[thread])

    def remove(self, thread: str, sequence: int) -> None:
        del self._records[thread][sequence]
        self._heads[thread] = max(self._records[thread], default=0)

    def put_base(self, thread: str, first: int, record: bytes) -> None:
        self._bases[thread] = first, record

    def remove_base(self, thread: str) -> None:
        del self._bases[thread]


class Files(FileCheckpointStorage):
    """The same, on disk."""

    def put(self, thread: str, sequence: int, record: bytes) -> None:
        file = self.path / thread / f"{sequence:010d}.checkpoint"
        file.touch(mode=0o600)
        file.write_bytes(record)

    def remove(self, thread: str, sequence: int) -> None:
        (self.path / thread / f"{sequence:010d}.checkpoint").unlink()

    def put_base(self, thread: str, first: int, record: bytes) -> None:
        file = self.path / thread / "base"
        file.touch(mode=0o600)
        file.write_bytes(b"%010d\n%b" % (first, record))

    def remove_base(self, thread: str) -> None:
        (self.path / thread / "base").unlink()


class Rows(SQLiteCheckpointStorage):
    """The same, in a file of SQLite whose triggers are gone for the moment."""

    def _change(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as file:
            file.execute("PRAGMA ignore_check_constraints = ON")
            file.execute("BEGIN IMMEDIATE")
            found = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
            triggers = file.execute(found).fetchall()
            for name, _ in triggers:
                file.execute(f"DROP TRIGGER {name}")
            file.execute(statement, values)
            for _, sql in triggers:
                file.execute(sql)
            file.execute("COMMIT")

    def put(self, thread: str, sequence: int, record: bytes) -> None:
        self._change("REPLACE INTO checkpoints VALUES (?, ?, ?)", thread, sequence, record)

    def remove(self, thread: str, sequence: int) -> None:
        statement = "DELETE FROM checkpoints WHERE thread = ? AND sequence = ?"
        self._change(statement, thread, sequence)

    def put_base(self, thread: str, first: int, record: bytes) -> None:
        statement = "REPLACE INTO threads (thread, first, base) VALUES (?, ?, ?)"
        self._change(statement, thread, first, record)

    def remove_base(self, thread: str) -> None:
        self._change("UPDATE threads SET first = 0, base = NULL WHERE thread = ?", thread)


Writable = Memory | Files | Rows
Use = Callable[[Ledger], Any]


def opened(
    storage: CheckpointStorage,
    anchor: InMemoryAnchor | None = None,
    *,
    every: int = 1,
    keys: Keyring = KEYS,
) -> Ledger:
    """A ledger as a new process would open it."""
    return Ledger(storage, store=STORE, keys=keys, anchor=anchor, anchor_every=every)


def ledger_in(folder: Path, kind: str, every: int = 1, key: SigningKey = KEY) -> Ledger:
    """A ledger on disk with its anchor, as a new process would open it; of another key, a copy."""
    name, keys = "store" if key is KEY else "copy", Keyring(key)
    if kind == "files":
        storage: Any = FileCheckpointStorage(folder / name)
        anchor: Any = FileAnchor(folder / "anchor", create=True)
    else:
        for each in (name, "anchor"):
            (folder / each).mkdir(mode=0o700, exist_ok=True)
        storage = SQLiteCheckpointStorage(folder / name / "store.db")
        anchor = SQLiteAnchor(folder / "anchor" / "heads.db", create=True)
    return Ledger(storage, store=STORE, keys=keys, anchor=anchor, anchor_every=every)


def fill(ledger: Ledger, count: int, thread: str = THREAD, first: int = 1) -> None:
    for number in range(first, first + count):
        ledger.save(thread, {"n": number})


def states(ledger: Ledger, thread: str = THREAD) -> list[int]:
    return [each.state["n"] for each in ledger.history(thread)]


def base_of(storage: Writable, thread: str = THREAD) -> tuple[int, bytes]:
    found = storage.base(thread)
    assert found is not None
    return found


def records(storage: CheckpointStorage, *sequences: int, thread: str = THREAD) -> dict[int, bytes]:
    """The records of a thread, to be put back later."""
    return {number: storage.read(thread, number) for number in sequences}


def put_back(storage: Writable, kept: dict[int, bytes]) -> None:
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
    "copy": lambda ledger: ledger.copy_to(opened(Memory()), threads=[THREAD]),
}
