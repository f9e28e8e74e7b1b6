"""Stores as their users have them, each opened in a folder: what `safepoint attack` is aimed at.

An adversary can write the folder. What is beside it they cannot: keys and anchors are there. A
framework is imported by whoever opens its store: it takes seconds.
"""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
)
from safepoint.attacks import Target
from safepoint.attacks.naive import NaiveLedger


class Naive:
    """The unsafe twin."""

    def __init__(self, folder: Path) -> None:
        self._ledger = NaiveLedger(folder)

    def save(self, thread: str, state: dict[str, Any]) -> None:
        self._ledger.save(thread, state)

    def load(self, thread: str) -> Any:
        return self._ledger.latest(thread).state


class PickleRows:
    """Pickles in a table without a rowid, which a trigger is to protect."""

    def __init__(self, folder: Path) -> None:
        self._rows = sqlite3.connect(folder / "my state.db")
        self._rows.executescript(
            'CREATE TABLE IF NOT EXISTS "my states" ("the thread" TEXT, n INT, state,'
            ' PRIMARY KEY ("the thread", n)) WITHOUT ROWID;'
            'CREATE TRIGGER IF NOT EXISTS "no edits" BEFORE UPDATE ON "my states"'
            " BEGIN SELECT RAISE(ABORT, 'no'); END"
        )

    def save(self, thread: str, state: dict[str, Any]) -> None:
        count = 'SELECT count(*) FROM "my states"'
        ((number,),) = self._rows.execute(count).fetchall()
        row = (thread, number, pickle.dumps(state))
        self._rows.execute('INSERT INTO "my states" VALUES (?, ?, ?)', row)
        self._rows.commit()

    def load(self, thread: str) -> Any:
        query = 'SELECT state FROM "my states" WHERE "the thread" = ? ORDER BY n DESC LIMIT 1'
        found = self._rows.execute(query, (thread,)).fetchone()
        return found and pickle.loads(found[0])

    def close(self) -> None:
        self._rows.close()


class Sealed:
    """A ledger in files, with an anchor."""

    def __init__(self, folder: Path) -> None:
        self.ledger = ledger_in(folder, FileCheckpointStorage(folder))

    def save(self, thread: str, state: dict[str, Any]) -> None:
        self.ledger.save(thread, state)

    def load(self, thread: str) -> Any:
        return self.ledger.latest(thread).state

    def delete(self, thread: str) -> None:
        self.ledger.delete(thread)


@contextmanager
def sealed_sqlite(folder: Path) -> Iterator[Sealed]:
    """The same in SQLite: a context manager is entered and left."""
    with SQLiteCheckpointStorage(folder / "checkpoints.db") as storage:
        store = Sealed.__new__(Sealed)
        store.ledger = ledger_in(folder, storage)
        yield store


def ledger_in(folder: Path, storage: Any) -> Ledger:
    key = SigningKey.from_file(folder.parent / "writer.key", create=True)
    anchor = SQLiteAnchor(folder.parent / "anchor/heads.db", create=True)
    return Ledger(storage, store="invoices", keys=Keyring(key), anchor=anchor)


class PlainTarget(Target):
    """A whole target, for which nothing has to be guessed."""

    name = "plain"
    refusals = (ValueError,)

    def save(self, thread: str, state: dict[str, Any]) -> None:
        number = len(self.records(thread)) + 1
        self.medium.write(f"{thread}.{number:04}.json", json.dumps(state).encode())

    def latest(self, thread: str) -> Any:
        return json.loads(self.medium.read(self.records(thread)[-1]))

    def records(self, thread: str) -> list[str]:
        return [name for name in self.medium.names() if name.startswith(f"{thread}.")]


# What cannot be attacked.


def raises(folder: Path) -> Any:
    raise OSError("the disk\nis gone")


class Nowhere(Naive):
    """Writes elsewhere."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder.parent / "elsewhere")


class ReadOnly(Naive):
    """Cannot save."""

    def save(self, thread: str, state: dict[str, Any]) -> None:
        raise PermissionError("read-only")


class Forgetful(Naive):
    """Loads something else than what was saved."""

    def load(self, thread: str) -> Any:
        return {**super().load(thread), "amount": 0}


class First(Naive):
    """Works on the first names that somebody tries."""

    def load(self, thread: str) -> Any:
        if thread not in ("control", "victim", "attacker"):
            raise KeyError(thread)
        return super().load(thread)


def dies(folder: Path) -> Any:
    raise SystemExit(3)


NOT_CALLABLE = 7
