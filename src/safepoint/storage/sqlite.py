"""SQLiteCheckpointStorage: one file, for any number of processes on one machine.

    <folder>/
        checkpoints.db       the database: records, threads with their leases, what was pruned
        checkpoints.db-wal   what was saved and is not in the database yet
        checkpoints.db-shm   what the processes share of the log
        checkpoints.db-lock  the queue of those who write

All of them have mode 0600. To copy the database while it is in use, let SQLite do it:
`sqlite3 checkpoints.db ".backup copy.db"`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from safepoint.errors import ConfigurationError, quoted
from safepoint.names import DEFAULT_LIMITS, Limits, check_name, check_sequence, spelled
from safepoint.storage._sqlite import statements as sql
from safepoint.storage._sqlite.database import Database
from safepoint.storage._sqlite.place import Place
from safepoint.storage._sqlite.rows import ThreadRow, cut, number_of, thread_row
from safepoint.storage._sqlite.scanning import scan
from safepoint.storage.base import (
    Leasing,
    Ownership,
    ahead,
    beheaded,
    check_place,
    gap,
    is_thread,
    malformed_base,
    missing,
    record_limit,
    record_of,
    sized,
    span,
    taken,
)

_LARGEST: Final = 999_000_000
"""How many bytes SQLite takes in a row, less a little for the rest of it."""
_LONGEST_WAIT: Final = 86_400


class SQLiteCheckpointStorage(Leasing):
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

    The database itself refuses to change or remove a record, and writes down what was pruned when,
    in the table `prunings`. That stops a mistake. Whoever can write the file can drop such a rule:
    if it is missing later, the database is not opened, and if it was put back, the ledger still
    finds the record that was changed.

    Args:
        path: the file. There is no default: where state lives is your decision.
        limits: how large a record may be.
        wait_seconds: how long to wait for others that write, in the queue and in SQLite itself.

    Raises:
        ConfigurationError: `limits` are no limits, or the seconds are no number that is possible.
        UnsafeLocation: others could change what is stored there. The message says what to run.
        StorageUnavailable: the path is none of a file (`":memory:"` and URIs are not), the file
            cannot be made or opened, is on a file system that machines share, is of another
            application, of a newer version or no database, or somebody changed its schema.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limits: Limits = DEFAULT_LIMITS,
        wait_seconds: float = 5.0,
    ) -> None:
        limit = record_limit("SQLiteCheckpointStorage", limits)
        number = isinstance(wait_seconds, (int, float)) and not isinstance(wait_seconds, bool)
        if not number or not 0 < wait_seconds <= _LONGEST_WAIT:
            raise ConfigurationError(
                f"wait_seconds is {quoted(wait_seconds)}, and must be a number above 0 and up to"
                f" {_LONGEST_WAIT}.",
                "Write wait_seconds=5.0, or leave it out.",
            )
        self._limit = min(limit, _LARGEST)
        self._database = Database(Place(path), float(wait_seconds))

    def __repr__(self) -> str:
        return f"SQLiteCheckpointStorage({str(self.path)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # the constructor refused
            self._database.close()

    def close(self) -> None:
        """Let go of the file. What is on disk stays; to close twice does nothing."""
        self._database.close()

    @property
    def path(self) -> Path:
        """The file: absolute, with the links above its folder resolved."""
        return Path(self._database.place.path)

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        """Keep `record` at `(thread, sequence)`: on disk when this returns, never over another.

        Args:
            thread: the thread.
            sequence: the place of the record in it: the next one, or any in an empty thread.
            record: the bytes.
            fence: the token of the lease under which you save; None if the thread is not leased.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            EncodeError: the record is not bytes.
            LimitExceeded: the record is too large.
            ConfigurationError: the fence is not a token.
            Conflict: there is a record already, or there was one before the thread was pruned.
            NotOwner: the thread has an owner with another token, or the fence is of no owner.
            RecordsMissing: a record before it is not there.
            StorageFull: there is no room. Nothing was saved.
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: another program holds the database, it is gone, closed or was
                changed, or the disk fails. Nothing was saved.
        """
        check_place(thread, sequence, fence)
        data = sized(record, self._limit)
        with self._database.writing() as connection:
            row = self._row(connection, thread)
            row.ownership.check_fence(fence)
            if sequence < row.first:
                raise taken(thread, sequence, row.first)
            if connection.execute(sql.THERE, (thread, sequence)).fetchone():
                raise taken(thread, sequence, row.first)
            if sequence <= row.head:
                raise gap(thread, sequence, row.head)
            if row.head and sequence != row.head + 1:
                raise ahead(thread, sequence, row.head)
            connection.execute(sql.APPEND, (thread, sequence, data))

    def follow(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> bool:
        """Keep `record` if the thread ends right before it, and tell whether that was so.

        It takes and raises what `append` does, except for what this is about: where the thread ends
        elsewhere nothing is saved, and False is returned.
        """
        check_place(thread, sequence, fence)
        data = sized(record, self._limit)
        with self._database.writing() as connection:
            row = self._row(connection, thread)
            row.ownership.check_fence(fence)
            if row.head != sequence - 1 or row.head < 1:
                return False
            if not connection.execute(sql.THERE, (thread, row.head)).fetchone():
                return False
            connection.execute(sql.APPEND, (thread, sequence, data))
            return True

    def read(self, thread: str, sequence: int) -> bytes:
        """Return the record exactly as it was appended.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            NotFound: there is none, or it was pruned.
            LimitExceeded: it is larger than a record may be.
            RecordMalformed: it is not bytes.
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        check_name("thread", thread)
        check_sequence(sequence)
        with self._database.reading() as connection:
            row = connection.execute(sql.READ, (thread, sequence, self._limit)).fetchone()
        if row is None or row[1] is None:
            first = 0 if row is None else number_of(self._database.place.path, thread, row[0])
            raise missing(thread, sequence, first)
        return record_of(thread, sequence, row[1], row[2], self._limit)

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record.

        It costs the same with ten records and with a million.

        Raises:
            InvalidId: the thread is outside the grammar.
            RecordsMissing: the records do not end there, or the one with which a pruned thread
                begins is gone.
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        check_name("thread", thread)
        with self._database.reading() as connection:
            row = connection.execute(sql.HEAD, (thread,)).fetchone()
        if row is None:
            return 0
        head, first, last, begins = row
        ends = (head, first, 0 if last is None else last)
        head, first, last = (number_of(self._database.place.path, thread, end) for end in ends)
        if first and not begins:
            raise beheaded(thread, first)
        if head != last:
            raise cut(thread, head, last)
        return int(head)

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record.

        Raises:
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        with self._database.reading() as connection:
            names = [name for (name,) in connection.execute(sql.THREADS)]
        return [name for name in names if is_thread(name)]

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first sequence that is kept and what `prune` left before it, or None.

        Raises:
            InvalidId: the thread is outside the grammar.
            RecordMalformed: the base is not bytes, or does not say where the thread begins.
            LimitExceeded: the base is larger than a record may be.
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: the database is gone, closed or damaged, or the disk fails.
        """
        check_name("thread", thread)
        with self._database.reading() as connection:
            row = connection.execute(sql.BASE, (thread, self._limit)).fetchone()
        if row is None:
            return None
        first, size, base = row
        if type(first) is not int or first < 1 or isinstance(base, str):
            raise malformed_base(str(self.path))
        return first, record_of(thread, first, size, base, self._limit)

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Keep `base` and remove every record below `first`, in one step, and write that down.

        A thread never moves backwards: if it begins later already, its base stays. If it begins
        there, the new base takes the place of the old one, so that it can be sealed anew.

        What was removed is written over with zeros in the database, and the log beside it, which
        may hold it too, is cut to nothing. While somebody else reads, that cannot be done: then it
        stays in the log until it is pruned again, or the last one closes the database. What a file
        system keeps of a file that was cut, and what a backup holds, is not reached by this.

        Returns:
            How many records were removed.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            EncodeError: the base is not bytes.
            LimitExceeded: the base is larger than a record may be.
            NotFound: there is no record at `first`.
            StorageFull: there is no room. Nothing was removed.
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: another program holds the database, it is gone, closed or was
                changed, or the disk fails. Nothing was removed.
        """
        check_name("thread", thread)
        check_sequence(first)
        data = sized(base, self._limit)
        with self._database.pruning() as connection:
            if first < self._row(connection, thread).first:
                return 0
            if not connection.execute(sql.THERE, (thread, first)).fetchone():
                raise missing(thread, first, 0)
            removed: int = connection.execute(sql.BELOW, (thread, first)).fetchone()[0]
            connection.execute(sql.PRUNE, (thread, first, data))
            return removed

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is the lower one.

        They are read a megabyte at a time, and nothing is held in between: whoever stops half-way
        keeps nobody from writing, and the log from growing.

        Raises:
            InvalidId: the thread or a sequence is outside the grammar.
            CheckpointError: as read does, at the first record for which that would. Those before it
                were handed out.
        """
        check_name("thread", thread)
        return scan(self._database, thread, span(first, last), self._limit, self.read)

    def _ownership(self, thread: str) -> Ownership:
        with self._database.reading() as connection:
            return self._row(connection, thread).ownership

    def _change_ownership(self, thread: str, step: Callable[[Ownership], Ownership]) -> Ownership:
        with self._database.writing() as connection:
            found = connection.execute(sql.THREAD, (thread,)).fetchone()
            after = step(thread_row(self._database.place.path, thread, found).ownership)
            holder = after.holder
            owner = None if holder is None else holder.owner
            expires = None if holder is None else spelled(holder.expires)
            statement = sql.NEW if found is None else sql.OWN
            connection.execute(statement, (thread, after.token, owner, expires))
        return after

    def _row(self, connection: sqlite3.Connection, thread: str) -> ThreadRow:
        row = connection.execute(sql.THREAD, (thread,)).fetchone()
        return thread_row(self._database.place.path, thread, row)
