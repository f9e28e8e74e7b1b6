"""The adversary's hands: what somebody who can write a store can do to its records.

On disk a record is a file below a folder, in SQLite a value in a row.
An attack that is written for a medium runs on each.
"""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from safepoint.places import is_database

_BESIDE: Final = ("-wal", "-shm", "-journal")
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"


class Medium(ABC):
    """Where records are, as the adversary sees it: bytes under names, all of them writable.

    Attributes:
        tap: what the adversary does to bytes on their way out, for as long as it is set.
    """

    tap: Callable[[str, bytes], bytes] | None = None

    def read(self, name: str) -> bytes:
        """Return the bytes of a record, as they are or as the tap gives them."""
        data = self._read(name)
        return data if self.tap is None else self.tap(name, data)

    def everything(self) -> dict[str, bytes]:
        """Return each record as it is, by its name."""
        return {name: self._read(name) for name in self.names()}

    @abstractmethod
    def names(self) -> list[str]:
        """Return the name of every record, sorted."""

    @abstractmethod
    def _read(self, name: str) -> bytes:
        """Return the bytes of a record."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write a record, over another if need be."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a record."""

    @abstractmethod
    def beside(self) -> Medium:
        """Return an empty medium of the same kind."""

    def rename(self, old: str, new: str) -> None:
        """Move a record, over another if need be."""
        self.write(new, self._read(old))
        self.delete(old)

    def copy(self) -> Medium:
        """Return a copy that stays as it is: a snapshot, a backup, a replica."""
        copy = self.beside()
        copy.restore(self)
        return copy

    def restore(self, snapshot: Medium) -> None:
        """Make this medium hold what the snapshot holds and nothing else."""
        kept = snapshot.everything()
        for name in {*self.names()}.difference(kept):
            self.delete(name)
        for name, data in kept.items():
            self.write(name, data)


class Disk(Medium):
    """Records as files below a folder; a name is a path, seen from there.

    It follows links and overwrites, as `open(path, "wb")` does. New files and folders are made
    for their owner alone, so that no store refuses an attack for the mode of a file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """Return the path of every file below the folder, links included."""
        found = list[str]()
        for at, folders, files in os.walk(self.folder):
            links = (each for each in folders if Path(at, each).is_symlink())
            found += (f"{at}/{each}".removeprefix(f"{self.folder}/") for each in (*files, *links))
        return sorted(found)

    def _read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Write a file and make the folders above it."""
        path = self.folder / name
        for folder in [] if path.parent.exists() else reversed(path.parents):
            if not folder.exists():
                folder.mkdir(mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)

    def delete(self, name: str) -> None:
        """Remove a file."""
        (self.folder / name).unlink()

    def beside(self) -> Disk:
        """Return a folder next to this one that does not exist yet."""
        number = 2
        while (path := self.folder.with_name(f"{self.folder.name}-{number}")).exists():
            number += 1
        return Disk(path)

    def lose(self) -> None:
        """Let nothing be written here any more, as on a disk that is full or gone."""
        if self.folder.exists():
            self.folder.rename(self.beside().folder)
        self.folder.touch(mode=0o600)


class Rows(Medium):
    """Values in the rows of SQLite files below a folder, and the other files there.

    The adversary may write the file, so no trigger stops them and no constraint. The name of a
    value is its file, table and column, and what finds its row.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = Disk(folder)

    def everything(self) -> dict[str, bytes]:
        """Return each text and each blob of each row, and what other files hold."""
        found: dict[str, bytes] = {}
        for name in self._files.names():
            if is_database(str(self.folder / name)):
                found |= self._values(name)
            elif not name.endswith(_BESIDE):
                found[name] = (self.folder / name).read_bytes()
        return found

    def names(self) -> list[str]:
        """Return the name of each."""
        return sorted(self.everything())

    def _read(self, name: str) -> bytes:
        return self.everything()[name]

    def write(self, name: str, data: bytes) -> None:
        """Write over a value, which stays the text or the blob that it was."""
        if "\0" not in name:
            self._files.write(name, data)
            return
        file, table, column, where = name.split("\0", 3)
        with self.turn(file) as rows:
            ((kind,),) = rows.execute(f"SELECT typeof({column}) FROM {table} WHERE {where}")  # noqa: S608
            query = f"UPDATE {table} SET {column} = CAST(? AS {kind.decode()}) WHERE {where}"  # noqa: S608
            rows.execute(query, (data,))

    def delete(self, name: str) -> None:
        """Remove the row of a value."""
        if "\0" not in name:
            self._files.delete(name)
            return
        file, table, _, where = name.split("\0", 3)
        with self.turn(file) as rows:
            rows.execute(f"DELETE FROM {table} WHERE {where}")  # noqa: S608

    def beside(self) -> Rows:
        """Return a folder next to this one that does not exist yet."""
        return Rows(self._files.beside().folder)

    def restore(self, snapshot: Medium) -> None:
        """Put back each file of the snapshot. The store is closed meanwhile."""
        assert isinstance(snapshot, Rows)  # noqa: S101  it is a copy of this one
        self._files.restore(Disk(snapshot.folder))

    def _values(self, file: str) -> dict[str, bytes]:
        found = {}
        with self.turn(file) as rows:
            for (name,) in rows.execute(_TABLES).fetchall():
                table = _quoted(name)
                columns = rows.execute(f"PRAGMA table_info({table})").fetchall()
                key = " || ' AND ' || ".join(_found_by(rows, table, columns))
                for column in (_quoted(each[1]) for each in columns):
                    query = f"SELECT {key}, {column} FROM {table}"  # noqa: S608
                    query += f" WHERE typeof({column}) IN ('text', 'blob')"
                    for where, value in rows.execute(query):
                        found[f"{file}\0{table}\0{column}\0{where.decode()}"] = bytes(value)
        return found

    @contextmanager
    def turn(self, file: str) -> Iterator[sqlite3.Connection]:
        """Open a database, drop every trigger and put each back as it was."""
        with closing(sqlite3.connect(self.folder / file, isolation_level=None)) as rows:
            rows.text_factory = bytes  # what is no UTF-8 is there as well
            rows.execute("PRAGMA ignore_check_constraints = on")
            rows.execute("BEGIN IMMEDIATE")
            query = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid"
            triggers = rows.execute(query).fetchall()
            for name, _ in triggers:
                rows.execute(f"DROP TRIGGER {_quoted(name)}")
            yield rows
            for _, text in triggers:
                rows.execute(text.decode())
            rows.execute("COMMIT")


def _quoted(name: bytes) -> str:
    return '"{}"'.format(name.decode().replace('"', '""'))


def _found_by(rows: sqlite3.Connection, table: str, columns: list[Any]) -> Iterator[str]:
    """Yield what says in SQL how to find a row: by its number, or by its key if it has none."""
    keys = ["rowid"]
    try:
        rows.execute(f"SELECT rowid FROM {table} LIMIT 0")  # noqa: S608
    except sqlite3.OperationalError:
        keys = [_quoted(each[1]) for each in columns if each[5]]
    for key in keys:
        name = key.replace("'", "''")
        yield f"'{name} IS ' || quote({key})"
