"""For one machine: the storage, the anchor and the journal, each in one SQLite file.

    <folder>/
        checkpoints.db       the database: the records, and each thread's base and lease
        checkpoints.db-wal   the log: saves that are not in the database yet
        checkpoints.db-shm   the index of the log, which the processes share

All of them have mode 0600. To copy the database while it is in use, run
`sqlite3 checkpoints.db ".backup copy.db"`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from safepoint.core.anchor import Anchor
from safepoint.core.errors import (
    CheckpointError,
    RolledBack,
    Unavailable,
    shell,
)
from safepoint.core.journal import LIMITS, Journal
from safepoint.core.keys import Keyring
from safepoint.core.names import (
    DEFAULT_LIMITS,
    Head,
    Limits,
    check_name,
    check_place,
    is_further,
    journal_of,
    sized,
)
from safepoint.core.storage import (
    Lease,
    Leasing,
    Tenants,
    ahead,
    gap,
    is_thread,
    malformed_base,
    no_record,
    read_lease,
    record_of,
    sequences,
    taken,
    write_lease,
)
from safepoint.stores import disk
from safepoint.stores.database import Database, place_of

_T = TypeVar("_T")
_LARGEST: Final = 999_000_000
"""How many bytes a record may have: SQLite's limit for a row, minus room for other columns."""
_RECORDS, _BYTES = 256, 1 << 20
"""How many records and bytes a scan reads at a time."""
_TRIES: Final = 5
"""How often to try to empty the log, because another process may be writing."""

# A trigger applies to every SQL user. An attacker with write access to the file can drop a trigger,
# edit a row and create the trigger again. Each transaction checks that the triggers exist; the seal
# reveals an edited row.
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

    A missing database is created with mode 0600, and its folder with mode 0700; missing folders
    above are not created. A place where somebody else could change the database is refused, and
    each call checks its files again. Any number of processes and threads may share it. Construct it
    after a fork: a forked child cannot use its parent's. On Linux, a file system that several
    machines share (NFS, SMB, the folder of a host) is refused; elsewhere it is not detected.

    The database itself refuses to change a record, or to remove one that was not pruned. This
    prevents mistakes. An attacker with write access to the file can drop such a trigger. While it
    is missing, the database cannot be used. If it was created again, the ledger still detects the
    changed record. Everything in the file is read within limits.

    Args:
        path: the file. There is no default: where state is stored is your decision.
        limits: how large a record may be.
        read_only: read an existing database; create and change nothing. If its last writer closes
            it in the meantime, the log stays, as after a crash.

    Raises:
        Unsafe: others could change what is stored there. The message says what to run.
        Unavailable: `path` does not name a file (`":memory:"` and URIs do not), or the file
            cannot be created or opened, is on a file system that machines share, is not a
            database of this package, or has a changed schema.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limits: Limits = DEFAULT_LIMITS,
        read_only: bool = False,
    ) -> None:
        self._limit = min(limits.record_bytes, _LARGEST)
        super().__init__(path, SCHEMA, longest=self._limit, read_only=read_only)

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        """Store `record` at `(thread, sequence)`, on disk, without replacing an existing one."""
        check_place(thread, sequence)
        data = sized(record, self._limit)

        def keep(sql: sqlite3.Connection) -> None:
            head, first, lease = self._thread(sql, thread)
            lease.check_fence(fence)
            if sequence < first:
                raise taken(thread, sequence, first)
            if sequence <= head:
                there = sql.execute(_THERE, (self._tenant, thread, sequence)).fetchone()
                raise (taken if there else gap)(thread, sequence, first if there else head)
            if sequence != (head + 1 if head else first or 1):
                raise ahead(thread, sequence, head)
            sql.execute(_APPEND, (self._tenant, thread, sequence, data))

        self._run(keep, "save to", write=True)

    def read(self, thread: str, sequence: int) -> bytes:
        """Return the record exactly as it was appended.

        Raises:
            NotFound: there is none, or it was pruned.
            LimitExceeded: it is larger than a record may be.
            SealBroken: it is not bytes.
            Unavailable: the database is gone, closed or damaged, or the disk fails.
        """
        check_place(thread, sequence)
        return self._records(thread, range(sequence, sequence + 1))[0]

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record.

        It takes as long for a million records as for ten.

        Raises:
            Unavailable: the database is gone, closed or damaged, or the disk fails.
        """
        check_name("thread", thread)
        return self._run(lambda sql: self._thread(sql, thread))[0]

    def newest(self, thread: str) -> tuple[int, bytes | None]:
        """Return the head and its record, or 0 and None.

        Raises:
            CheckpointError: as for `head` and `read`.
        """
        check_name("thread", thread)

        def look(sql: sqlite3.Connection) -> tuple[int, bytes | None]:
            row = sql.execute(_NEWEST, (self._tenant, thread)).fetchone()
            return (row[0], self._checked(thread, *row)) if row else (0, None)

        return self._run(look)

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record.

        Raises:
            Unavailable: the database is gone, closed or damaged, or the disk fails.
        """
        ask = "SELECT DISTINCT thread FROM checkpoints WHERE tenant = ?"
        names = self.select(ask, self._tenant)
        return [name for (name,) in names if is_thread(name)]

    def tenants(self) -> list[str]:
        """Return the name of each tenant that has a record.

        Raises:
            Unavailable: the database is gone, closed or damaged, or the disk fails.
        """
        found = self.select("SELECT DISTINCT tenant FROM checkpoints")
        return self._tenants_in(name for (name,) in found)

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first remaining sequence and the base that `prune` stored, or None.

        Raises:
            SealBroken: the base is not bytes, or does not say where the thread begins.
            LimitExceeded: the base is larger than a record may be.
            Unavailable: the database is gone, closed or damaged, or the disk fails.
        """
        for first, base in self.select(_BASE, self._tenant, check_name("thread", thread)):
            if type(first) is not int or first < 1 or isinstance(base, str):
                raise malformed_base(self._file)
            return first, self._checked(thread, first, base)
        return None

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Store `base` and remove every record below `first`, in one step.

        A thread never moves backwards: if it already begins after `first`, its base stays. If it
        begins at `first`, the new base replaces the old one, which is how a base is resealed.

        The removed bytes are overwritten with zeros in the database. The log, which may also
        contain them, is truncated. That is not possible while somebody else reads: then they stay
        in the log until the next prune, or until the last process closes the database. `purge`
        raises in that case. Backups, and the file system's own copies of old blocks, may still
        contain the removed bytes.

        Returns:
            How many records were removed.

        Raises:
            NotFound: there are records and none at `first`.
            Unavailable: there is no room. Nothing was removed; or another program holds the
                database, it is gone, closed or was changed, or the disk fails. Nothing was removed.
        """
        check_place(thread, first)
        data = sized(base, self._limit)

        def cut(sql: sqlite3.Connection) -> int:
            place, (head, begins, _) = (self._tenant, thread, first), self._thread(sql, thread)
            if first < begins:
                return 0
            if head and not sql.execute(_THERE, place).fetchone():
                raise no_record(thread, first, 0)
            sql.execute(_PRUNE, (*place, data))
            return sql.execute(_DELETE, place).rowcount

        removed = self._run(cut, "prune", write=True)
        self._empty_log()
        return removed

    def purge(self, thread: str) -> int:
        """Empty the log, so that it contains no pruned records.

        Returns:
            0: no record is left to remove.

        Raises:
            Unavailable: another program uses the database, so the log was not emptied.
        """
        check_name("thread", thread)
        if not any(self._empty_log() for _ in range(_TRIES)):
            raise Unavailable(
                f"The records of thread '{thread}' are removed, but their bytes are still in"
                f" {shell(f'{self._file}-wal')}, because another program uses the database.",
                f"Find it, wait until it ends, and erase again: fuser -v {shell(self._file)}",
            )
        return 0

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is lower.

        They are read about a megabyte at a time. No transaction stays open in between, so a caller
        that stops half-way does not block writers, and the log does not grow.

        Raises:
            CheckpointError: as for `read`. The records before it were already returned.
        """
        return self._scan(check_name("thread", thread), sequences(first, last))

    def _scan(self, thread: str, wanted: range) -> Iterator[bytes]:
        most = 2  # a walk back often stops soon
        while wanted:
            found = self._records(thread, wanted[:most])
            wanted, most = wanted[len(found) :], min(most * 4, _RECORDS)
            yield from found

    def _records(self, thread: str, wanted: range) -> list[bytes]:
        """Return records from the first one on, until about a megabyte or an unreadable record.

        Raises:
            CheckpointError: the first one cannot be read.
        """

        def look(sql: sqlite3.Connection) -> list[bytes]:
            found = list[bytes]()
            for sequence in wanted:
                try:
                    row = sql.execute(_READ, (self._tenant, thread, sequence)).fetchone()
                    if row is None:
                        raise no_record(thread, sequence, self._thread(sql, thread)[1])
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
        return record_of(thread, sequence, 0, record, self._limit)

    def _thread(self, sql: sqlite3.Connection, thread: str) -> tuple[int, int, Lease]:
        """Return where a thread ends, where it begins, and who owns it.

        Raises:
            SealBroken: a sequence in its row is not a number.
            Unavailable: this package did not write its lease.
        """
        head, first, lease = sql.execute(_THREAD, (self._tenant, thread)).fetchone()
        if not type(head) is type(first) is int:
            raise malformed_base(self._file)
        last = Lease(thread) if lease is None else read_lease(self._file, thread, lease)
        return head, first, last

    def _last_lease(self, thread: str) -> Lease:
        return self._run(lambda sql: self._thread(sql, thread))[2]

    def _change_lease(self, thread: str, step: Callable[[Lease], Lease]) -> Lease:
        def keep(sql: sqlite3.Connection) -> Lease:
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
    store TEXT NOT NULL,
    tenant TEXT NOT NULL DEFAULT '',
    thread TEXT NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence > 0),
    digest TEXT NOT NULL,
    PRIMARY KEY (store, tenant, thread)
) STRICT, WITHOUT ROWID;
"""
_LONGEST: Final = 512
_RESTORE: Final = "Put it back from a copy: nothing is loaded without it."


class SQLiteAnchor(Database, Tenants):
    """Keeps the head of each thread of one store, and of its journal, in a file that you name.

    ```python
    from safepoint import SQLiteAnchor
    from safepoint.core.names import Head

    anchor = SQLiteAnchor("anchor/heads.db", create=True)
    anchor.advance("invoices", "order-7", Head(57, "sha256:" + "0" * 64))
    print(anchor.read("invoices", "order-7"))
    #> #57
    ```

    Choose a folder that the storage's other writers cannot write, on a volume that is not restored
    together with the storage. This is the only protection: anyone who can write the file can set a
    head back.

    As with the SQLite storage, the file must be yours, in a folder that nobody else can write. The
    folders above it, and the links on the way to it, must belong to you or root. No other group may
    write to them. Any number of processes on one machine may share the anchor.

    Args:
        path: the file. Give it its own folder.
        create: create the file if it is missing, and its folder. Pass it once, when you set up the
            store. After that, a wrong path or an unmounted volume is refused, instead of counting
            as an anchor that has seen nothing.
        read_only: read an anchor or a frozen copy; create and change nothing.

    Raises:
        Unavailable: there is no anchor at that path, or it cannot be created or opened.
        Unsafe: others could change what is stored there. The message says what to run.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool = False, read_only: bool = False
    ) -> None:
        with disk.translated("open the anchor in", str(path)):
            place = place_of(path)
            if disk.SUPPORTED:
                named = disk.as_named(path, "path", "file").parent
                disk.enforce(disk.rollback_refusals(named, str(Path(place).parent)))
            if not create and not os.path.lexists(place):
                raise Unavailable(
                    f"{shell(place)} does not exist, so no rollback would be noticed.",
                    "Correct the path, or pass create=True once to begin a new anchor there.",
                )
            super().__init__(path, _ANCHOR, longest=_LONGEST, create=create, read_only=read_only)

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was.

        Raises:
            RolledBack: this is the anchor of another store.
            Unavailable: the anchor cannot be read, or is damaged.
            Unsafe: others could change what is stored there.
        """
        place = self._place(store, thread)
        return self._hold(store, lambda sql: _head(sql, place))

    def advance(self, store: str, thread: str, head: Head) -> None:
        """Remember `head`, on disk when this returns. An older one, or the same, is ignored.

        Raises:
            RolledBack: another record is known at that sequence. The anchor stays as it is; or this
                is the anchor of another store.
            Unavailable: the anchor is gone, closed, full or held, or the disk fails. It holds
                the head it had, or this one.
            Unsafe: others could change what is stored there.
        """
        place = self._place(store, thread)

        def move(sql: sqlite3.Connection) -> None:
            known = _head(sql, place)
            # The same is written again: whoever wrote it may have died before the sync.
            if is_further(thread, known, head) or head == known:
                _put(sql, place, head)

        self._hold(store, move, write=True)

    def threads(self, store: str) -> list[str]:
        """Return the name of each thread of the store that was ever seen, sorted.

        Raises:
            RolledBack: this is the anchor of another store.
            Unavailable: the anchor cannot be read.
            Unsafe: others could change what is stored there.
        """
        ask = "SELECT thread FROM heads WHERE store = ? AND tenant = ? ORDER BY thread"
        return self._names(store, "thread", ask, store, self._tenant)

    def tenants(self, store: str) -> list[str]:
        """Return the names of the tenants that have a thread in this anchor, sorted.

        Raises:
            RolledBack: this is the anchor of another store.
            Unavailable: the anchor cannot be read.
            Unsafe: others could change what is stored there.
        """
        ask = "SELECT DISTINCT tenant FROM heads WHERE store = ? AND tenant <> ''"
        return self._tenants_in(self._names(store, "tenant", ask, store))

    def rewind(self, store: str, thread: str, head: Head | None) -> None:
        """Set the head, to an earlier one or to none. It is on disk when this returns.

        It is for an operator who accepts a loss or replaces a damaged store. Everything after
        `head` is given up: from then on, a rollback to `head` cannot be detected.

        Raises:
            RolledBack: this is the anchor of another store.
            Unavailable: the anchor is gone, closed, full or held, or the disk fails.
            Unsafe: others could change what is stored there.
        """
        place = self._place(store, thread)
        self._hold(store, lambda sql: _put(sql, place, head), write=True)

    def _place(self, store: str, thread: str) -> tuple[str, str, str]:
        return store, self._tenant, check_name("thread", thread)

    def _names(self, store: str, kind: str, ask: str, *values: str) -> list[str]:
        def look(sql: sqlite3.Connection) -> list[str]:
            return [check_name(kind, name) for (name,) in sql.execute(ask, values)]

        return self._hold(store, look)

    def _hold(
        self, store: str, act: Callable[[sqlite3.Connection], _T], *, write: bool = False
    ) -> _T:
        """Run `act` in a transaction on the anchor of this store."""
        check_name("store", store)

        def owned(sql: sqlite3.Connection) -> _T:
            [owner] = sql.execute("SELECT name FROM store").fetchone() or [None]
            if owner not in (None, store) and store != journal_of(owner):
                raise RolledBack(
                    f"{shell(self._file)} belongs to store {check_name('store', owner)}, but was"
                    f" asked about store {store}.",
                    "Give each store an anchor of its own.",
                )
            if write and owner is None:
                sql.execute("INSERT INTO store VALUES (1, ?)", (store,))
            return act(sql)

        try:
            doing = f"{'write' if write else 'read'} the anchor in"
            return self._run(owned, doing, write=write)
        except Unavailable as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            raise Unavailable(error.what, _RESTORE) from error
        except ValueError as error:  # what it holds is no name, no head, or too long
            raise Unavailable(
                f"{shell(self._file)} does not hold what an anchor writes.", _RESTORE
            ) from error


def _head(sql: sqlite3.Connection, place: tuple[str, str, str]) -> Head | None:
    ask = "SELECT sequence, digest FROM heads WHERE store = ? AND tenant = ? AND thread = ?"
    row = sql.execute(ask, place).fetchone()
    return row and Head(*row)


def _put(sql: sqlite3.Connection, place: tuple[str, str, str], head: Head | None) -> None:
    sql.execute("DELETE FROM heads WHERE store = ? AND tenant = ? AND thread = ?", place)
    if head is not None:
        row = *place, head.sequence, head.digest
        sql.execute("INSERT INTO heads VALUES (?, ?, ?, ?, ?)", row)


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
        path: the file, only for this journal. `SQLiteCheckpointStorage` says where it may be.
        keys: as for `Journal`.
        name: as for `Journal`.
        anchor: as for `Journal`.
        create: create the journal if it is missing. Pass it once, when you set up the store. After
            that, a wrong path is refused, instead of creating an empty journal.
        read_only: read an existing journal; create and change nothing.

    Raises:
        Unavailable: there is no journal at that path, or it cannot be created or opened.
        Unsafe: others could change what is stored there. The message says what to run.
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
        if not create and not os.path.lexists(place_of(path)):
            raise Unavailable(
                f"{shell(str(path))} is not a journal.",
                "Put it back from a copy, or pass create=True once to begin a new one.",
            )
        entries = SQLiteCheckpointStorage(path, limits=LIMITS, read_only=read_only)
        super().__init__(entries, keys=keys, name=name, anchor=anchor)
