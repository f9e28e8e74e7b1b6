"""The adversary's hands in a database: records as rows, in the hands of whoever owns it.

No trigger stops them, and no constraint: they switch those off, edit, and leave everything as it
was. They know what belongs together, so the row of a thread always fits its records.
"""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final

from safepoint.attacks.medium import Medium
from safepoint.names import spelled
from safepoint.storage.base import CheckpointStorage, Lease, Ownership
from safepoint.storage.file import LEASE, read_lease, write_lease
from safepoint.storage.sqlite import SQLiteCheckpointStorage

BASE: Final = "base"
RECORD: Final = ".checkpoint"
Row = tuple[Any, ...]


class Rows(Medium):
    """Records as rows of a database, under the names that the files would have.

    `thread/0000000007.checkpoint` is a row of the table of records; `thread/base` and
    `thread/lease` are columns of the thread's own row.

    Attributes:
        begins: what the row of a thread says of its beginning if it was never pruned.
    """

    begins: ClassVar[int]

    @abstractmethod
    def ask(self, statement: str, values: Row = ()) -> list[Row]:
        """Run a statement as the owner of the database. A value stands where it has a `?`."""

    @abstractmethod
    def turn(self) -> AbstractContextManager[object]:
        """Let what is asked in it happen at once, with every rule of the tables switched off."""

    @abstractmethod
    def storage(self) -> CheckpointStorage:
        """Return the storage, opened as the victim opens it."""

    def names(self) -> list[str]:
        """Return the name of each row, and of what a thread's own row holds."""
        records = self.ask("select thread, sequence from {checkpoints}")
        found = [f"{thread}/{sequence:010d}{RECORD}" for thread, sequence in records]
        for thread, based, token in self.ask(
            "select thread, base is not null, token from {threads}"
        ):
            found += [f"{thread}/{BASE}"] * bool(based) + [f"{thread}/{LEASE}"] * bool(token)
        return sorted(found)

    def _read(self, name: str) -> bytes:
        thread, sequence = _parts(name)
        if isinstance(sequence, int):
            query = "select record from {checkpoints} where thread = ? and sequence = ?"
            ((record,),) = self.ask(query, (thread, sequence))
            return bytes(record)
        query = "select first, base, token, owner, expires from {threads} where thread = ?"
        ((first, base, token, owner, expires),) = self.ask(query, (thread,))
        if sequence == BASE:
            return b"%010d\n%b" % (first, base)
        holder = None if owner is None else Lease(thread, owner, token, self.moment(expires))
        return write_lease(Ownership(thread, token, holder))

    def write(self, name: str, data: bytes) -> None:
        """Write a row over what is there, and let the thread's own row fit it."""
        thread, sequence = _parts(name)
        with self.turn():
            self._begin(thread)
            if isinstance(sequence, int):
                self._forget(thread, sequence)
                self._keep(thread, sequence, data)
            elif sequence == BASE:
                first, _, base = data.partition(b"\n")
                self.set(thread, first=int(first), base=base)
            else:
                self.set(thread, **_columns(read_lease(name, thread, data)))
            self._fit(thread)

    def delete(self, name: str) -> None:
        """Remove a row, and let the thread's own row fit what is left."""
        thread, sequence = _parts(name)
        with self.turn():
            if isinstance(sequence, int):
                self._forget(thread, sequence)
            elif sequence == BASE:
                self.set(thread, first=self.begins, base=None)
            else:
                self.set(thread, token=0, owner=None, expires=None)
            self._fit(thread)

    def set(self, thread: str, **columns: Any) -> None:
        """Change what the row of a thread says, fitting or not."""
        changes = ", ".join(f"{column} = ?" for column in columns)
        text = f"update {{threads}} set {changes} where thread = ?"  # noqa: S608  our own names
        self.ask(text, (*columns.values(), thread))

    def moment(self, expires: Any) -> datetime:
        """Return the end of a lease as a time."""
        return datetime.fromisoformat(expires)

    @abstractmethod
    def _begin(self, thread: str) -> None:
        """Make a row for a thread that has none, and let it be the victim's."""

    @abstractmethod
    def _keep(self, thread: str, sequence: int, record: bytes) -> None:
        """Add a record."""

    def _forget(self, thread: str, sequence: int) -> None:
        query = "delete from {checkpoints} where thread = ? and sequence = ?"
        self.ask(query, (thread, sequence))

    def _fit(self, thread: str) -> None:
        """Let the head be the newest record, and no row be left of a thread that has nothing."""
        newest = "select coalesce(max(sequence), 0) from {checkpoints} where thread = ?"
        ((head,),) = self.ask(newest, (thread,))
        self.set(thread, head=head)
        gone = "delete from {threads} where thread = ? and head = 0 and base is null and token = 0"
        self.ask(gone, (thread,))


class SQLiteRows(Rows):
    """Records in a file of SQLite, which the adversary opens as anybody can who may write it."""

    begins = 0

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: sqlite3.Connection | None = None
        with self.storage():
            pass  # it makes the tables

    def storage(self) -> SQLiteCheckpointStorage:
        """Open the file anew."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return SQLiteCheckpointStorage(self.path)

    def beside(self) -> SQLiteRows:
        """Return a new file next to this one."""
        number = 2
        while (path := self.path.with_name(f"copy-{number}.db")).exists():
            number += 1
        return SQLiteRows(path)

    def ask(self, statement: str, values: Row = ()) -> list[Row]:
        """Run a statement, in a turn of its own if there is none."""
        text = statement.format(checkpoints="checkpoints", threads="threads")
        if self._open is not None:
            return self._open.execute(text, values).fetchall()
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(text, values).fetchall()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Drop every trigger, and put each back as it was."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("pragma ignore_check_constraints = on")
            connection.execute("begin immediate")
            query = "select name, sql from sqlite_schema where type = 'trigger' order by rowid"
            triggers = connection.execute(query).fetchall()
            for name, _ in triggers:
                connection.execute(f"drop trigger {name}")
            self._open = connection
            try:
                yield
            finally:
                self._open = None
            for _, text in triggers:
                connection.execute(text)
            connection.execute("commit")

    def _begin(self, thread: str) -> None:
        self.ask("insert or ignore into {threads} (thread) values (?)", (thread,))

    def _keep(self, thread: str, sequence: int, record: bytes) -> None:
        query = "insert into {checkpoints} (thread, sequence, record) values (?, ?, ?)"
        self.ask(query, (thread, sequence, record))


def _parts(name: str) -> tuple[str, int | str]:
    thread, _, rest = name.partition("/")
    return thread, int(rest.removesuffix(RECORD)) if rest.endswith(RECORD) else rest


def _columns(ownership: Ownership) -> dict[str, Any]:
    holder = ownership.holder
    return {
        "token": ownership.token,
        "owner": None if holder is None else holder.owner,
        "expires": None if holder is None else spelled(holder.expires),
    }
