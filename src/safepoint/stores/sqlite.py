"""On one machine: the storage, the anchor and the journal, each one file of SQLite.

    <folder>/
        checkpoints.db       the database: records, and of each thread its base and its lease
        checkpoints.db-wal   what was saved and is not in the database yet
        checkpoints.db-shm   what the processes share of the log

All of them have mode 0600. To copy the database while it is in use, let SQLite do it:
`sqlite3 checkpoints.db ".backup copy.db"`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from safepoint.core.anchor import Anchor, AnchorBase
from safepoint.core.errors import (
    AnchorMismatch,
    AnchorUnavailable,
    CheckpointError,
    JournalUnavailable,
    StorageFull,
    StorageUnavailable,
    shell,
)
from safepoint.core.journal import LIMITS, Journal
from safepoint.core.keys import Keyring
from safepoint.core.names import DEFAULT_LIMITS, Head, Limits, check_name
from safepoint.core.storage import (
    Leasing,
    Ownership,
    Tenants,
    ahead,
    check_place,
    is_thread,
    missing,
    span,
    taken,
)
from safepoint.stores import disk
from safepoint.stores.checks import gap, malformed_base, record_of, sized
from safepoint.stores.database import Database, place_of
from safepoint.stores.files import read_lease, write_lease

_T = TypeVar("_T")
_LARGEST: Final = 999_000_000
"""How many bytes SQLite takes in a row, less a little for the rest of it."""
_RECORDS, _BYTES = 256, 1 << 20
"""How much a scan reads at a time."""
_TRIES: Final = 5
"""How often to try to empty the log: others may write at the moment."""

# A trigger is a rule for everybody who uses SQL. Whoever can write the file can drop it, edit a row
# and put it back: that the rules are in place is looked at in each transaction, and what a row says
# is for the seal.
SCHEMA: Final = """
PRAGMA application_id = 0x53465054;  -- SFPT
PRAGMA user_version = 1;
CREATE TABLE checkpoints (
    tenant TEXT NOT NULL DEFAULT '',
    thread TEXT NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence > 0),
    record BLOB NOT NULL,
    PRIMARY KEY (tenant, thread, sequence)
) STRICT;
CREATE TABLE threads (
    tenant TEXT NOT NULL DEFAULT '',
    thread TEXT NOT NULL,
    first INTEGER NOT NULL DEFAULT 0,
    base BLOB,
    lease BLOB,
    PRIMARY KEY (tenant, thread),
    CHECK ((base IS NULL) = (first = 0))
) STRICT;
-- BEFORE INSERT, too: INSERT OR REPLACE removes a row and fires no trigger of DELETE.
CREATE TRIGGER checkpoints_insert BEFORE INSERT ON checkpoints
WHEN NEW.sequence <> (SELECT max(sequence) + 1 FROM checkpoints
    WHERE tenant = NEW.tenant AND thread = NEW.thread)
BEGIN SELECT RAISE(ABORT, 'a record follows upon the last one'); END;
CREATE TRIGGER checkpoints_update BEFORE UPDATE ON checkpoints
BEGIN SELECT RAISE(ABORT, 'a record never changes'); END;
CREATE TRIGGER checkpoints_delete BEFORE DELETE ON checkpoints
WHEN NOT EXISTS (SELECT 1 FROM threads
    WHERE tenant = OLD.tenant AND thread = OLD.thread AND OLD.sequence < first)
BEGIN SELECT RAISE(ABORT, 'a record goes only when its thread is pruned'); END;
CREATE TRIGGER threads_update BEFORE UPDATE ON threads WHEN NEW.first < OLD.first
BEGIN SELECT RAISE(ABORT, 'a thread never moves back'); END;
CREATE TRIGGER threads_delete BEFORE DELETE ON threads
BEGIN SELECT RAISE(ABORT, 'a thread never goes'); END;
"""
_OF: Final = "FROM checkpoints WHERE tenant = ?1 AND thread = ?2"
_THREAD: Final = (
    f"SELECT coalesce((SELECT max(sequence) {_OF}), 0), coalesce(first, 0), lease"  # noqa: S608
    " FROM (SELECT 1) LEFT JOIN threads ON tenant = ?1 AND thread = ?2"
)
_READ: Final = (
    f"SELECT record {_OF} AND sequence = ?3 AND NOT EXISTS"  # noqa: S608  likewise
    " (SELECT 1 FROM threads WHERE tenant = ?1 AND thread = ?2 AND first > ?3)"
)
_NEWEST: Final = f"SELECT sequence, record {_OF} ORDER BY sequence DESC LIMIT 1"
_THERE: Final = f"SELECT 1 {_OF} AND sequence = ?3"
_APPEND: Final = "INSERT INTO checkpoints VALUES (?, ?, ?, ?)"
_DELETE: Final = f"DELETE {_OF} AND sequence < ?3"
_BASE: Final = "SELECT first, base FROM threads WHERE tenant = ? AND thread = ? AND first <> 0"
_PRUNE: Final = (
    "INSERT INTO threads (tenant, thread, first, base) VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET first = excluded.first, base = excluded.base"
)
_OWN: Final = (
    "INSERT INTO threads (tenant, thread, lease) VALUES (?, ?, ?)"
    " ON CONFLICT DO UPDATE SET lease = excluded.lease"
)


class SQLiteCheckpointStorage(Database, Leasing, Tenants):
    """Keeps records in one SQLite database: the default for one machine.

    ```python
    from safepoint import SQLiteCheckpointStorage

    with SQLiteCheckpointStorage("state/checkpoints.db") as storage:
        storage.append("order-7", 1, b"...")
        print(storage.head("order-7"))
        #> 1
    ```

    The database is made with mode 0600 if it is missing, in a folder that is made with mode 0700;
    the folders above are not made. A place where somebody else could change it is refused, and is
    looked at again at each later call. Any number of processes and threads may share it. After a
    fork it is refused: construct it after the fork. A file system that machines share (NFS, SMB,
    the folder of a host) is refused on Linux, where the kind of the file system can be read.

    The database itself refuses to change a record, and to remove one that was not pruned. That
    stops a mistake. Whoever can write the file can drop such a rule:
    as long as it is missing, the database is not used, and if it was put back, the ledger still
    finds the record that was changed. What they put there is read within bounds.

    Args:
        path: the file. There is no default: where state lives is your decision.
        limits: how large a record may be.
        wait_seconds: how long SQLite waits for others that write.
        read_only: look at a database that is there, and make and change nothing. A writer that
            closes it meanwhile leaves its log beside it, as after a crash.

    Raises:
        UnsafeLocation: others could change what is stored there. The message says what to run.
        StorageUnavailable: the path is none of a file (`":memory:"` and URIs are not), the file
            cannot be made or opened, is on a file system that machines share, is of another
            application or no database, or somebody changed its schema.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limits: Limits = DEFAULT_LIMITS,
        wait_seconds: float = 30.0,
        read_only: bool = False,
    ) -> None:
        self._limit = min(limits.record_bytes, _LARGEST)
        super().__init__(
            path, SCHEMA, longest=self._limit, wait_seconds=wait_seconds, read_only=read_only
        )

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        """Keep `record` at `(thread, sequence)`: on disk when this returns, never over another."""
        check_place(thread, sequence)
        data = sized(record, self._limit)

        def keep(sql: sqlite3.Connection) -> None:
            head, first, ownership = self._thread(sql, thread)
            ownership.check_fence(fence)
            if sequence < first:
                raise taken(thread, sequence, first)
            if sequence <= head:
                there = sql.execute(_THERE, (self._tenant, thread, sequence)).fetchone()
                raise (taken if there else gap)(thread, sequence, first if there else head)
            if head and sequence != head + 1:
                raise ahead(thread, sequence, head)
            sql.execute(_APPEND, (self._tenant, thread, sequence, data))

        self._run(keep, "save to", write=True)

    def read(self, thread: str, sequence: int) -> bytes:
        """Return the record exactly as it was appended.

        Raises:
            NotFound: there is none, or it was pruned.
            LimitExceeded: it is larger than a record may be.
            RecordMalformed: it is not bytes.
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        check_place(thread, sequence)
        return self._records(thread, range(sequence, sequence + 1))[0]

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record.

        It costs the same with ten records and with a million.

        Raises:
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        check_name("thread", thread)
        return self._run(lambda sql: self._thread(sql, thread))[0]

    def newest(self, thread: str) -> tuple[int, bytes | None]:
        """Return the same with the record there.

        Raises:
            CheckpointError: as `head` and `read`.
        """
        check_name("thread", thread)

        def look(sql: sqlite3.Connection) -> tuple[int, bytes | None]:
            row = sql.execute(_NEWEST, (self._tenant, thread)).fetchone()
            return (row[0], self._checked(thread, *row)) if row else (0, None)

        return self._run(look)

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record.

        Raises:
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        ask = "SELECT DISTINCT thread FROM checkpoints WHERE tenant = ?"
        names = self.select(ask, self._tenant)
        return [name for (name,) in names if is_thread(name)]

    def tenants(self) -> list[str]:
        """Return the name of each tenant that has a record.

        Raises:
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        found = self.select("SELECT DISTINCT tenant FROM checkpoints")
        return self._tenants_in(name for (name,) in found)

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first sequence that is kept and what `prune` left before it, or None.

        Raises:
            RecordMalformed: the base is not bytes, or does not say where the thread begins.
            LimitExceeded: the base is larger than a record may be.
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        for first, base in self.select(_BASE, self._tenant, check_name("thread", thread)):
            if type(first) is not int or first < 1 or isinstance(base, str):
                raise malformed_base(self._file)
            return first, self._checked(thread, first, base)
        return None

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Keep `base` and remove every record below `first`, in one step.

        A thread never moves backwards: if it begins later already, its base stays. If it begins
        there, the new base takes the place of the old one, so that it can be sealed anew.

        What was removed is written over with zeros in the database, and the log beside it, which
        may hold it too, is cut to nothing. While somebody else reads, that cannot be done: then it
        stays in the log until it is pruned again, or the last one closes the database; `purge` says
        so. What a file system keeps of a file that was cut, and what a backup holds, is not reached
        by this.

        Returns:
            How many records were removed.

        Raises:
            NotFound: there is no record at `first`.
            StorageFull: there is no room. Nothing was removed.
            StorageUnavailable: another program holds the database, it is gone, closed or was
                changed, or the disk fails. Nothing was removed.
        """
        check_place(thread, first)
        data = sized(base, self._limit)

        def cut(sql: sqlite3.Connection) -> int:
            place = self._tenant, thread, first
            if first < self._thread(sql, thread)[1]:
                return 0
            if not sql.execute(_THERE, place).fetchone():
                raise missing(thread, first, 0)
            sql.execute(_PRUNE, (*place, data))
            return sql.execute(_DELETE, place).rowcount

        removed = self._run(cut, "prune", write=True)
        self._empty_log()
        return removed

    def purge(self, thread: str) -> int:
        """See that the log beside the database holds nothing that was pruned.

        Returns:
            0: no record is left to remove.

        Raises:
            StorageUnavailable: another program uses the database, so the log stays as it is.
        """
        check_name("thread", thread)
        if not any(self._empty_log() for _ in range(_TRIES)):
            raise StorageUnavailable(
                f"The records of thread '{thread}' are removed, but their bytes are still in"
                f" {shell(f'{self._file}-wal')}, because another program uses the database.",
                f"Let it end, then erase again. To find it: fuser -v {shell(self._file)}",
            )
        return 0

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is the lower one.

        They are read up to a megabyte at a time, and nothing is held in between: whoever stops
        half-way keeps nobody from writing, and the log from growing.

        Raises:
            CheckpointError: as read does, at the first record for which that would. Those before it
                were handed out.
        """
        return self._scan(check_name("thread", thread), span(first, last))

    def _scan(self, thread: str, wanted: range) -> Iterator[bytes]:
        most = 2  # whoever walks back often stops soon
        while wanted:
            found = self._records(thread, wanted[:most])
            wanted, most = wanted[len(found) :], min(most * 4, _RECORDS)
            yield from found

    def _records(self, thread: str, wanted: range) -> list[bytes]:
        """Read on from the first of them until that is enough, or one cannot be read.

        Raises:
            CheckpointError: the first cannot be read.
        """

        def look(sql: sqlite3.Connection) -> list[bytes]:
            found = list[bytes]()
            for sequence in wanted:
                try:
                    row = sql.execute(_READ, (self._tenant, thread, sequence)).fetchone()
                    if row is None:
                        raise missing(thread, sequence, self._thread(sql, thread)[1])
                    found.append(self._checked(thread, sequence, *row))
                except (CheckpointError, sqlite3.DataError):
                    if not found:
                        raise
                    break
                if sum(map(len, found)) >= _BYTES:
                    break
            return found

        return self._run(look)

    def _checked(self, thread: str, sequence: int, record: object) -> bytes:
        return sized(record_of(thread, sequence, 0, record, self._limit), self._limit)

    def _thread(self, sql: sqlite3.Connection, thread: str) -> tuple[int, int, Ownership]:
        """Return where a thread ends, where it begins, and who owns it.

        Raises:
            StorageUnavailable: its row says something that this package never writes.
        """
        head, first, lease = sql.execute(_THREAD, (self._tenant, thread)).fetchone()
        if not type(head) is type(first) is int:
            raise malformed_base(self._file)
        owned = Ownership(thread) if lease is None else read_lease(self._file, thread, lease)
        return head, first, owned

    def _ownership(self, thread: str) -> Ownership:
        return self._run(lambda sql: self._thread(sql, thread))[2]

    def _change_ownership(self, thread: str, step: Callable[[Ownership], Ownership]) -> Ownership:
        def keep(sql: sqlite3.Connection) -> Ownership:
            after = step(self._thread(sql, thread)[2])
            sql.execute(_OWN, (self._tenant, thread, write_lease(after)))
            return after

        return self._run(keep, "save to", write=True)


_ANCHOR: Final = """
PRAGMA application_id = 0x53465041;  -- SFPA
PRAGMA user_version = 1;
CREATE TABLE store (
    number INTEGER NOT NULL PRIMARY KEY CHECK (number = 1),
    name TEXT NOT NULL
) STRICT;
CREATE TABLE heads (
    tenant TEXT NOT NULL DEFAULT '',
    thread TEXT NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence > 0),
    digest TEXT NOT NULL,
    PRIMARY KEY (tenant, thread)
) STRICT, WITHOUT ROWID;
"""
_LONGEST: Final = 512
_GONE: Final = (
    "Mount it again or put it back from a copy: until then no rollback would be noticed, so nothing"
    " is loaded."
)


class SQLiteAnchor(Database, AnchorBase):
    """Keeps the head of each thread, for one store, in a file that you name.

    ```python
    from safepoint import SQLiteAnchor
    from safepoint.core.names import Head

    anchor = SQLiteAnchor("anchor/heads.db", create=True)
    anchor.advance("invoices", "order-7", Head(57, "sha256:" + "0" * 64))
    print(anchor.read("invoices", "order-7"))
    #> #57
    ```

    Choose a folder that whoever can write the storage cannot write: another volume, not restored
    together with the storage. That is all its protection: whoever can write the file can set a
    head back.

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
        with _raised_as(AnchorUnavailable), disk.translated("open the anchor in", str(path)):
            place = place_of(path)
            if disk.SUPPORTED:
                named = disk.as_named(path, "path", "file").parent
                disk.enforce(disk.rollback_refusals(named, str(Path(place).parent)))
            if not create and not os.path.lexists(place):
                raise AnchorUnavailable(
                    f"{shell(place)} does not exist, so no rollback would be noticed.",
                    "Correct the path, or mount the volume. To begin a new anchor there, pass"
                    " create=True once.",
                )
            super().__init__(path, _ANCHOR, longest=_LONGEST, create=create, read_only=read_only)

    def _hold(self, store: str, act: Callable[[Any], _T], *, write: bool = False) -> _T:
        def owned(sql: sqlite3.Connection) -> _T:
            [owner] = sql.execute("SELECT name FROM store").fetchone() or [None]
            if owner not in (None, store):
                raise AnchorMismatch(
                    f"{shell(self._file)} belongs to store {check_name('store', owner)}, and was"
                    f" asked about store {store}.",
                    "Give each store an anchor of its own, in a folder of its own.",
                )
            if write and owner is None:
                sql.execute("INSERT INTO store VALUES (1, ?)", (store,))
            return act(sql)

        try:
            with _raised_as(AnchorUnavailable, _GONE):
                doing = f"{'write' if write else 'read'} the anchor in"
                return self._run(owned, doing, write=write)
        except ValueError as error:  # what it holds is no name, no head, or too long
            raise AnchorUnavailable(
                f"{shell(self._file)} does not hold what an anchor writes.",
                "Nothing is loaded without it. Put it back from a copy of the anchor, and find out"
                " what happened to it.",
            ) from error

    def _head(self, held: sqlite3.Connection, thread: str) -> Head | None:
        ask = "SELECT sequence, digest FROM heads WHERE tenant = ? AND thread = ?"
        row = held.execute(ask, (self._tenant, thread)).fetchone()
        return row and Head(*row)

    def _put(self, held: sqlite3.Connection, thread: str, head: Head | None) -> None:
        forget = "DELETE FROM heads WHERE tenant = ? AND thread = ?"
        held.execute(forget, (self._tenant, thread))
        if head is not None:
            row = self._tenant, thread, head.sequence, head.digest
            held.execute("INSERT INTO heads VALUES (?, ?, ?, ?)", row)

    def _threads(self, held: sqlite3.Connection) -> Iterable[str]:
        names = held.execute("SELECT thread FROM heads WHERE tenant = ?", (self._tenant,))
        return [check_name("thread", name) for (name,) in names]

    def _tenants(self, held: sqlite3.Connection) -> Iterable[str]:
        names = held.execute("SELECT DISTINCT tenant FROM heads WHERE tenant <> ''")
        return [check_name("tenant", name) for (name,) in names]


class SQLiteJournal(Journal):
    """A journal in a file that you name.

    ```python
    from safepoint import Keyring, SigningKey, SQLiteJournal
    from safepoint.core.journal import Actor, Event

    keys = Keyring(SigningKey.from_file("keys/journal.key", create=True))
    journal = SQLiteJournal("journal/journal.db", keys=keys, create=True)
    ana = Actor("ana", how="login")
    journal.record(Event("save", "intended", ana, "invoices", "order-7", 1))
    journal.record(Event("resume", "refused", ana, "invoices", "order-8"))
    for entry in journal.show(thread="order-8"):
        print(entry.number, entry.what, entry.outcome, entry.actor)
        #> 1 resume refused 'ana' (by 'login')
    ```

    Args:
        path: the file, for this journal alone. It has the rules of `SQLiteCheckpointStorage`.
        keys: as for `Journal`.
        name: as for `Journal`.
        anchor: as for `Journal`.
        create: begin a new journal if there is none. Pass it once, when you set the store up: a
            wrong path is then refused ever after instead of being begun anew.
        read_only: read a journal, and make and change nothing.

    Raises:
        JournalUnavailable: there is no journal at that path, or it cannot be made or opened.
        UnsafeLocation: others could change what is stored there. The message says what to run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keys: Keyring,
        name: str = "journal",
        anchor: Anchor | None = None,
        create: bool = False,
        read_only: bool = False,
    ) -> None:
        with _raised_as(JournalUnavailable):
            if not create and not os.path.lexists(place_of(path)):
                raise JournalUnavailable(
                    f"{shell(str(path))} is no journal.",
                    "If it was one, put it back from a copy. If this is a new one, pass create=True"
                    " once.",
                )
            self._entries = SQLiteCheckpointStorage(path, limits=LIMITS, read_only=read_only)
        super().__init__(self._entries, keys=keys, name=name, anchor=anchor)

    def close(self) -> None:
        """Let go of the file."""
        self._entries.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _raised_as(kind: type[CheckpointError], gone: str = "") -> Iterator[None]:
    try:
        yield
    except (StorageUnavailable, StorageFull) as error:
        is_gone = isinstance(error.__cause__, FileNotFoundError)
        raise kind(error.what, (is_gone and gone) or error.do) from error
