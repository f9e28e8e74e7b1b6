"""SQLiteCheckpointStorage: one file, for any number of processes on one machine.

    <folder>/
        checkpoints.db       the database: records, threads with their leases
        checkpoints.db-wal   what was saved and is not in the database yet
        checkpoints.db-shm   what the processes share of the log

All of them have mode 0600. To copy the database while it is in use, let SQLite do it:
`sqlite3 checkpoints.db ".backup copy.db"`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from datetime import datetime
from typing import Any, Final

from safepoint.core.errors import CheckpointError, StorageUnavailable, shell
from safepoint.core.names import DEFAULT_LIMITS, MAX_SEQUENCE, Limits, check_name, spelled
from safepoint.core.storage import (
    MAX_TOKEN,
    Lease,
    Leasing,
    Ownership,
    Tenants,
    ahead,
    beheaded,
    check_place,
    gap,
    is_thread,
    malformed_base,
    missing,
    record_of,
    sized,
    span,
    taken,
)
from safepoint.stores.connections import Database, Schema
from safepoint.stores.connections import is_open as is_open  # noqa: PLC0414  handed on

_LARGEST: Final = 999_000_000
"""How many bytes SQLite takes in a row, less a little for the rest of it."""
_RECORDS, _BYTES = 256, 1 << 20
"""How much a scan reads at a time."""
_TRIES: Final = 5
"""How often to try to empty the log: others may write at the moment."""

# A trigger is a rule for everybody who uses SQL. Whoever can write the file can drop it, edit a row
# and put it back: that the rules are in place is looked at in each transaction, and what a row says
# is for the seal.
_SQL: Final = """
CREATE TABLE checkpoints (
    tenant TEXT NOT NULL DEFAULT '',
    thread TEXT NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence > 0),
    label TEXT NOT NULL DEFAULT '',
    record BLOB NOT NULL,
    PRIMARY KEY (tenant, thread, sequence)
) STRICT;
CREATE INDEX labels ON checkpoints (tenant, thread, label, sequence) WHERE label <> '';
CREATE TABLE threads (
    tenant TEXT NOT NULL DEFAULT '',
    thread TEXT NOT NULL,
    first INTEGER NOT NULL DEFAULT 0,
    token INTEGER NOT NULL DEFAULT 0 CHECK (token >= 0),
    owner TEXT,
    expires TEXT,
    base BLOB,
    PRIMARY KEY (tenant, thread),
    CHECK ((base IS NULL) = (first = 0)),
    CHECK ((owner IS NULL) = (expires IS NULL))
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
CREATE TRIGGER threads_insert BEFORE INSERT ON threads
WHEN NEW.first <> 0
    OR EXISTS (SELECT 1 FROM threads WHERE tenant = NEW.tenant AND thread = NEW.thread)
BEGIN SELECT RAISE(ABORT, 'a thread begins once, and whole'); END;
CREATE TRIGGER threads_update BEFORE UPDATE ON threads
WHEN NEW.tenant IS NOT OLD.tenant OR NEW.thread IS NOT OLD.thread
    OR NEW.first < OLD.first OR NEW.token < OLD.token
    OR (NEW.first <> OLD.first AND NOT EXISTS (SELECT 1 FROM checkpoints
        WHERE tenant = NEW.tenant AND thread = NEW.thread AND sequence = NEW.first))
BEGIN SELECT RAISE(ABORT, 'a thread never moves back'); END;
CREATE TRIGGER threads_delete BEFORE DELETE ON threads
BEGIN SELECT RAISE(ABORT, 'a thread never goes'); END;
"""
SCHEMA: Final = Schema(0x53465054, 1, _SQL)  # "SFPT"

# ?1 is the tenant, and ?2 the thread.
_ENDS: Final = (
    "SELECT coalesce(last.sequence, 0), coalesce(first, 0), first IS NOT NULL AND EXISTS"
    " (SELECT 1 FROM checkpoints c WHERE c.tenant = ?1 AND c.thread = ?2 AND c.sequence = first),"
    " coalesce(token, 0), owner, expires, {} FROM (SELECT 1)"
    " LEFT JOIN threads t ON t.tenant = ?1 AND t.thread = ?2"
    " LEFT JOIN checkpoints last ON last.tenant = ?1 AND last.thread = ?2 AND last.sequence ="
    " (SELECT max(sequence) FROM checkpoints WHERE tenant = ?1 AND thread = ?2)"
)
_THREAD: Final = _ENDS.format("NULL")
# A record over the limit is not read into memory: length() looks at the row's own header.
_NEWEST: Final = _ENDS.format("CASE WHEN length(record) <= ?3 THEN record END")
_READ: Final = (
    "SELECT sequence, length(record), CASE WHEN length(record) <= ?5 THEN record END"
    " FROM checkpoints WHERE tenant = ?1 AND thread = ?2 AND sequence BETWEEN ?3 AND ?4"
    " AND sequence >="
    " coalesce((SELECT first FROM threads WHERE tenant = ?1 AND thread = ?2), 0)"
    " ORDER BY sequence {} LIMIT ?6"
)
_UP: Final = _READ.format("ASC")
_DOWN: Final = _READ.format("DESC")
_THERE: Final = "SELECT 1 FROM checkpoints WHERE tenant = ?1 AND thread = ?2 AND sequence = ?3"
_FIND: Final = (
    "SELECT max(sequence) FROM checkpoints"
    " WHERE tenant = ?1 AND thread = ?2 AND label = ?3 AND label <> ''"
)
_APPEND: Final = "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)"
_BASE: Final = (
    "SELECT first, length(base), CASE WHEN length(base) <= ?3 THEN base END FROM threads"
    " WHERE tenant = ?1 AND thread = ?2 AND base IS NOT NULL"
)
# Each name is looked up behind the one before it: records are not counted.
_NAMES: Final = (
    "WITH RECURSIVE names (name) AS (SELECT min(thread) FROM checkpoints WHERE tenant = ?1"
    " UNION ALL SELECT (SELECT min(thread) FROM checkpoints WHERE tenant = ?1 AND thread > name)"
    " FROM names WHERE name IS NOT NULL) SELECT {} FROM names"
)
_THREADS: Final = _NAMES.format("name")
_LISTED: Final = _NAMES.format(
    "name, (SELECT max(sequence) FROM checkpoints WHERE tenant = ?1 AND thread = name)"
)
_TENANTS: Final = (
    "WITH RECURSIVE names (name) AS (SELECT min(tenant) FROM checkpoints UNION ALL"
    " SELECT (SELECT min(tenant) FROM checkpoints WHERE tenant > name)"
    " FROM names WHERE name IS NOT NULL) SELECT name FROM names"
)
_NEW: Final = (
    "INSERT INTO threads (tenant, thread) SELECT ?1, ?2 WHERE NOT EXISTS"
    " (SELECT 1 FROM threads WHERE tenant = ?1 AND thread = ?2)"
)
_PRUNE: Final = "UPDATE threads SET first = ?3, base = ?4 WHERE tenant = ?1 AND thread = ?2"
_DELETE: Final = "DELETE FROM checkpoints WHERE tenant = ?1 AND thread = ?2 AND sequence < ?3"
_OWN: Final = (
    "UPDATE threads SET token = ?3, owner = ?4, expires = ?5 WHERE tenant = ?1 AND thread = ?2"
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
    looked at again at each later call. Any number of processes and threads may share it, and it may
    be used before and after a fork. A file system that machines share (NFS, SMB, the folder of a
    host) is refused on Linux, where the kind of the file system can be read.

    The database itself refuses to change a record, and to remove one that was not pruned. That
    stops a mistake. Whoever can write the file can drop such a rule:
    as long as it is missing, the database is not used, and if it was put back, the ledger still
    finds the record that was changed. What they put there is read within bounds.

    Args:
        path: the file. There is no default: where state lives is your decision.
        limits: how large a record may be.
        wait_seconds: how long SQLite waits for others that write.
        read_only: look at a database that is there, and make and change nothing.

    Raises:
        UnsafeLocation: others could change what is stored there. The message says what to run.
        StorageUnavailable: the path is none of a file (`":memory:"` and URIs are not), the file
            cannot be made or opened, is on a file system that machines share, is of another
            application, of a newer version or no database, or somebody changed its schema.
    """

    in_order = True
    """It takes a record after the last one alone."""

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
        self,
        thread: str,
        sequence: int,
        record: bytes,
        *,
        fence: int | None = None,
        label: str = "",
    ) -> None:
        """Keep `record` at `(thread, sequence)`: on disk when this returns, never over another."""
        check_place(thread, sequence, fence)
        data = sized(record, self._limit)

        def keep(connection: sqlite3.Connection) -> None:
            head, first, _, ownership, _ = self._thread(connection, thread)
            ownership.check_fence(fence)
            if sequence < first:
                raise taken(thread, sequence, first)
            if sequence <= head:
                there = connection.execute(_THERE, (self._tenant, thread, sequence)).fetchone()
                raise (taken if there else gap)(thread, sequence, first if there else head)
            if head and sequence != head + 1:
                raise ahead(thread, sequence, head)
            connection.execute(_APPEND, (self._tenant, thread, sequence, label, data))

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
        [(_, size, record)] = self._portion(thread, range(sequence, sequence + 1))
        return record_of(thread, sequence, size, record, self._limit)

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record.

        It costs the same with ten records and with a million.

        Raises:
            RecordsMissing: the record with which a pruned thread begins is gone.
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        return self._end(thread, _THREAD)[0]

    def newest(self, thread: str) -> tuple[int, bytes | None]:
        """Return the same with the record there, None if `read` is to say why there is none.

        Raises:
            RecordsMissing: as `head`.
            StorageUnavailable: as `head`.
        """
        head, record = self._end(thread, _NEWEST, self._limit)
        return head, record if type(record) is bytes else None

    def heads(self, threads: Iterable[str]) -> dict[str, int]:
        """Return the head of each of these threads that has a record, or was pruned, in one look.

        Raises:
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        names = [check_name("thread", each) for each in threads]
        found = self._run(lambda it: [self._thread(it, each) for each in names])
        return {name: end[0] for name, end in zip(names, found, strict=True) if any(end[:2])}

    def find(self, thread: str, label: str) -> int | None:
        """Return the newest sequence that was kept under a label, or None. It proves nothing.

        Raises:
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        check_name("thread", thread)
        found = self._row(_FIND, thread, label)[0]
        return found if type(found) is int and 0 < found <= MAX_SEQUENCE else None

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record.

        Raises:
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """

        def look(connection: sqlite3.Connection) -> list[str]:
            names = connection.execute(_THREADS, (self._tenant,))
            return [name for (name,) in names if is_thread(name)]

        return self._run(look, many=True)

    def ends(self) -> dict[str, int]:
        """Return the highest sequence of each thread that has a record. It proves nothing.

        Raises:
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        return {
            name: end
            for name, end in self.rows(_LISTED, (self._tenant,))
            if is_thread(name) and type(end) is int
        }

    def tenants(self) -> list[str]:
        """Return the name of each tenant that has a record.

        Raises:
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        return self._tenants_in(name for (name,) in self.rows(_TENANTS))

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first sequence that is kept and what `prune` left before it, or None.

        Raises:
            RecordMalformed: the base is not bytes, or does not say where the thread begins.
            LimitExceeded: the base is larger than a record may be.
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        check_name("thread", thread)
        row = self._row(_BASE, thread, self._limit)
        if row is None:
            return None
        first, size, base = row
        if type(first) is not int or first < 1 or isinstance(base, str):
            raise malformed_base(str(self.path))
        return first, record_of(thread, first, size, base, self._limit)

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

        def cut(connection: sqlite3.Connection) -> int:
            if first < self._thread(connection, thread)[1]:
                return 0
            place = self._tenant, thread
            if not connection.execute(_THERE, (*place, first)).fetchone():
                raise missing(thread, first, 0)
            connection.execute(_NEW, place)
            connection.execute(_PRUNE, (*place, first, data))
            return connection.execute(_DELETE, (*place, first)).rowcount

        removed = self._run(cut, "prune", write=True, many=True)
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
                f" {shell(f'{self.path}-wal')}, because another program uses the database.",
                f"Let it end, then erase again. To find it: fuser -v {shell(str(self.path))}",
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
        check_name("thread", thread)
        return self._scan(thread, span(first, last))

    def rows(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query on the tables, for an audit."""
        return self._run(lambda it: it.execute(statement, values).fetchall(), many=True)

    def _row(self, statement: str, *given: object) -> Any:
        """Return the first row that is found for this tenant, or None."""
        return self._run(lambda it: it.execute(statement, (self._tenant, *given)).fetchone())

    def _scan(self, thread: str, wanted: range) -> Iterator[bytes]:
        most = 2  # whoever walks back often stops soon
        while wanted:
            portion = self._portion(thread, wanted[:most])
            wanted, most = wanted[len(portion) :], most * 4
            for sequence, size, record in portion:
                yield record_of(thread, sequence, size, record, self._limit)

    def _portion(self, thread: str, wanted: range) -> list[tuple[int, object, object]]:
        """Read on from the first of them until that is enough, or one is not there.

        Raises:
            NotFound: the first is not there.
        """
        low, high = sorted((wanted[0], wanted[-1]))
        read = _UP if wanted.step > 0 else _DOWN
        given = (self._tenant, thread, low, high, self._limit, min(len(wanted), _RECORDS))

        def look(connection: sqlite3.Connection) -> list[tuple[int, object, object]]:
            rows, size = [], 0
            with closing(connection.execute(read, given)) as cursor:
                for sequence, row in zip(wanted, cursor, strict=False):
                    if row[0] != sequence:
                        break
                    rows.append(row)
                    size += len(row[2]) if type(row[2]) is bytes else 0  # it may be of any type
                    if size >= _BYTES:
                        break
            if not rows:
                raise missing(thread, wanted[0], self._thread(connection, thread)[1])
            return rows

        return self._run(look)

    def _ownership(self, thread: str) -> Ownership:
        return self._run(lambda connection: self._thread(connection, thread))[3]

    def _change_ownership(self, thread: str, step: Callable[[Ownership], Ownership]) -> Ownership:
        def keep(connection: sqlite3.Connection) -> Ownership:
            after = step(self._thread(connection, thread)[3])
            holder = after.holder
            lease = (holder.owner, spelled(holder.expires)) if holder else (None, None)
            connection.execute(_NEW, (self._tenant, thread))
            connection.execute(_OWN, (self._tenant, thread, after.token, *lease))
            return after

        return self._run(keep, "save to", write=True)

    def _end(self, thread: str, *given: object) -> tuple[int, object]:
        check_name("thread", thread)
        head, first, there, _, record = self._run(lambda it: self._thread(it, thread, *given))
        if first and not there:
            raise beheaded(thread, first)
        return head, record

    def _thread(
        self, connection: sqlite3.Connection, thread: str, ends: Any = _THREAD, *limit: object
    ) -> tuple[int, int, bool, Ownership, object]:
        """Return where a thread ends and begins, whether that is there, who owns it, and its end.

        Raises:
            StorageUnavailable: its row says something that this package never writes.
        """
        row = connection.execute(ends, (self._tenant, thread, *limit)).fetchone()
        head, first, there, token, owner, expires, record = row
        if (
            (type(head) is type(first) is type(token) is int)
            and (0 <= head <= MAX_SEQUENCE and 0 <= first <= MAX_SEQUENCE)
            and 0 <= token <= MAX_TOKEN
        ):
            if (owner, expires) == (None, None):
                return head, first, bool(there), Ownership(thread, token), record
            with suppress(CheckpointError, TypeError, ValueError):
                lease = Lease(thread, owner, token, datetime.fromisoformat(expires))
                if spelled(lease.expires) == expires:
                    return head, first, bool(there), Ownership(thread, token, lease), record
        raise StorageUnavailable(
            f"{shell(str(self.path))} does not say where thread '{thread}' ends or who owns it, so"
            " nothing of the thread is saved.",
            "Somebody else wrote it, or the disk failed. Put the database back from a backup.",
        )
