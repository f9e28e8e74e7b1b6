"""SQLiteAnchor: the head of each thread in one file of SQLite, in a folder of its own."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final, Self

from safepoint import _files
from safepoint._sqlite import UNBOUNDED, Database, Schema, place_of
from safepoint.anchor.base import checked, is_further
from safepoint.errors import (
    AnchorMismatch,
    AnchorUnavailable,
    InvalidId,
    LimitExceeded,
    StorageFull,
    StorageUnavailable,
    UnsafeLocation,
    shell,
)
from safepoint.names import Head, check_name

_SQL: Final = """
CREATE TABLE store (
    number INTEGER NOT NULL PRIMARY KEY CHECK (number = 1),
    name TEXT NOT NULL
) STRICT;
CREATE TABLE heads (
    thread TEXT NOT NULL PRIMARY KEY,
    sequence INTEGER NOT NULL CHECK (sequence > 0),
    digest TEXT NOT NULL
) STRICT;
"""
_SCHEMA: Final = Schema(0x53465041, 1, _SQL)  # "SFPA"
_LONGEST: Final = 256
_READ: Final = "SELECT sequence, digest FROM heads WHERE thread = ?"
_PUT: Final = (
    "INSERT INTO heads (thread, sequence, digest) VALUES (?, ?, ?) ON CONFLICT (thread)"
    " DO UPDATE SET sequence = excluded.sequence, digest = excluded.digest"
)


class SQLiteAnchor:
    """Keeps the head of each thread, for one store, in a file that you name.

    ```python
    from safepoint import Head, SQLiteAnchor

    anchor = SQLiteAnchor("anchor/heads.db", create=True)
    anchor.advance("invoices", "order-7", Head(57, "sha256:" + "0" * 64))
    print(anchor.read("invoices", "order-7"))
    #> #57
    ```

    It costs one transaction where a `FileAnchor` costs two files. Choose a folder that whoever can
    write the storage cannot write: another volume, not restored together with the storage. That is
    all its protection: whoever can write the file can set a head back.

    The file has the rules of the SQLite storage: yours, in a folder that nobody else can write.
    The folders above it, and the links on the way, must be yours or root's, and writable by no
    other group. Any number of processes may share it, on one machine.

    Args:
        path: the file. Give it a folder of its own.
        create: begin a new anchor if the file is missing, and make its folder. Pass it once, when
            you set the store up: a wrong path, or a volume that is not mounted, is then refused
            ever after instead of counting as an anchor that has seen nothing.
        read_only: ask an anchor, or a frozen copy of one, and make and change nothing.

    Raises:
        AnchorUnavailable: there is no anchor at that path, or it cannot be made or opened.
        UnsafeLocation: others could change what is stored there. The message says what to run.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool = False, read_only: bool = False
    ) -> None:
        with _told():
            place = place_of(path)
            folder = Path(place).parent
            named = str(_files.as_named(path, "path", "file").parent.parent)
            if _files.SUPPORTED:
                for refusal in chain(
                    _files.replaceable_refusals(named),
                    _files.group_refusals(named),
                    _files.group_refusals(str(folder.parent)),
                ):
                    raise UnsafeLocation(
                        f"The anchor {shell(place)} could be replaced by an older copy."
                        f" {refusal.what}",
                        refusal.do,
                    )
            if not create and not os.path.lexists(place):
                raise AnchorUnavailable(
                    f"{shell(place)} does not exist, so no rollback would be noticed.",
                    "Correct the path, or mount the volume. To begin a new anchor there, pass"
                    " create=True once.",
                )
            self._database = Database(
                path, _SCHEMA, longest=_LONGEST, create=create, read_only=read_only
            )

    def __repr__(self) -> str:
        return f"SQLiteAnchor({str(self.path)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. To close twice does nothing."""
        self._database.close()

    @property
    def path(self) -> Path:
        """The file: absolute, with the links above its folder resolved."""
        return Path(self._database.path)

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read, or is damaged.
            UnsafeLocation: others could change what is stored there.
        """
        _check(store, thread)
        with _told(), self._database.transaction("read the anchor in") as connection:
            self._owner(connection, store)
            return self._head(connection, thread)

    def advance(self, store: str, thread: str, head: Head) -> None:
        """Remember `head`, on disk when this returns. An older one, or the same, is ignored.

        Raises:
            Forked: another record is known at that sequence. The anchor stays as it is.
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor is gone, closed, full or held, or the disk fails. It still
                holds the head it had.
            UnsafeLocation: others could change what is stored there.
        """
        _check(store, thread)
        with self._writing(store) as connection:
            known = self._head(connection, thread)
            # One that is known is written again: who wrote it may have died before the sync.
            if is_further(thread, known, head) or head == known:
                connection.execute(_PUT, (thread, head.sequence, head.digest))

    def threads(self, store: str) -> list[str]:
        """Return the name of each thread of the store that was ever seen, sorted.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor cannot be read.
            UnsafeLocation: others could change what is stored there.
        """
        check_name("store", store)
        query = "SELECT thread FROM heads ORDER BY thread"
        with (
            _told(),
            self._database.transaction("read the anchor in", work=UNBOUNDED) as connection,
        ):
            self._owner(connection, store)
            return [check_name("thread", name) for (name,) in connection.execute(query)]

    def rewind(self, store: str, thread: str, head: Head | None) -> None:
        """Set the head to what you say, further back or forgotten (None), on disk at return.

        It is for an operator who accepts a loss. What lay behind `head` is given up: from now on
        nothing tells a rollback to it from the truth.

        Raises:
            AnchorMismatch: this is the anchor of another store.
            AnchorUnavailable: the anchor is gone, closed, full or held, or the disk fails.
            UnsafeLocation: others could change what is stored there.
        """
        _check(store, thread)
        with self._writing(store) as connection:
            if head is None:
                connection.execute("DELETE FROM heads WHERE thread = ?", (thread,))
            else:
                connection.execute(_PUT, (thread, checked(head).sequence, head.digest))

    @contextmanager
    def _writing(self, store: str) -> Iterator[sqlite3.Connection]:
        with (
            _told(),
            self._database.transaction("write the anchor in", write=True) as connection,
        ):
            if self._owner(connection, store) is None:
                connection.execute("INSERT INTO store (number, name) VALUES (1, ?)", (store,))
            yield connection

    def _owner(self, connection: sqlite3.Connection, store: str) -> str | None:
        """Return the store that this is the anchor of, or None if it is of none yet."""
        row = connection.execute("SELECT name FROM store").fetchone()
        if row is None:
            return None
        owner = check_name("store", row[0])
        if owner != store:
            raise AnchorMismatch(
                f"{shell(str(self.path))} belongs to store {owner}, and was asked about store"
                f" {store}.",
                "Give each store an anchor of its own, in a folder of its own.",
            )
        return owner

    def _head(self, connection: sqlite3.Connection, thread: str) -> Head | None:
        row = connection.execute(_READ, (thread,)).fetchone()
        return None if row is None else Head(*row)


def _check(store: object, thread: object) -> None:
    """Refuse bad names before the anchor is asked: inside `_told`, they would be its own."""
    check_name("store", store)
    check_name("thread", thread)


@contextmanager
def _told() -> Iterator[None]:
    """Say what is wrong with the file as an anchor says it."""
    try:
        yield
    except (StorageUnavailable, StorageFull) as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise AnchorUnavailable(
                "The file of the anchor is gone.",
                "Mount it again or put it back from a copy: until then no rollback would be"
                " noticed, so nothing is loaded.",
            ) from error
        raise AnchorUnavailable(error.what, error.do) from error
    except (InvalidId, LimitExceeded) as error:  # of what it holds
        raise AnchorUnavailable(
            f"The anchor holds something that no anchor wrote. {error.what}",
            "Nothing is loaded without it. Put the file back from a copy of the anchor.",
        ) from error
