"""PostgresCheckpointStorage: records in a table that its writers can add to, and not change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import psycopg

from safepoint.core.errors import CheckpointError, StorageError, StorageUnavailable
from safepoint.core.names import DEFAULT_LIMITS, MAX_SEQUENCE, Limits, check_name, check_sequence
from safepoint.core.storage import (
    MAX_TOKEN,
    Lease,
    Ownership,
    check_lease,
    check_place,
    check_span,
    missing,
    record_of,
    sized,
    span,
    taken,
)
from safepoint.stores.postgres.connection import Connection, Server, is_lost

LARGEST: Final = 256 * 1024 * 1024
"""How many bytes the database takes in a record."""
_READ: Final = (
    "select octet_length(record), case when octet_length(record) <= %s then record end"
    " from {table} where {where} and sequence = %s"
)
# A portion ends with the record that makes it a megabyte.
_SCAN: Final = (
    "select sequence, size, case when size <= %s then record end from ("
    "select sequence, record, octet_length(record) as size, sum(octet_length(record)) over"
    " (order by sequence {order} rows between unbounded preceding and 1 preceding) as before"
    " from {table} where {where} and sequence between %s and %s"
    " order by sequence {order} limit 256) portion"
    " where before is null or before < 1048576 order by sequence {order}"
)
_APPEND: Final = (
    b"insert into safepoint.checkpoints (tenant, thread, sequence, record, fence, label)"
    b" values ($1, $2, $3, $4, $5, $6)"
)
# PostgreSQL has times that Python has not: infinity, and years before 1 and after 9999.
_ENDS: Final = (
    b"select head::text, first::text, token::text, owner, case when"
    b" expires >= '0001-01-02 00:00:00+00' and expires < '9999-12-31 00:00:00+00'"
    b" then expires::text end, (login = session_user)::text, %b"
    b" from safepoint.threads t where tenant = $1 and thread = $2"
)
_THREAD: Final = _ENDS % b"null"
_NEWEST: Final = _ENDS % (
    b"(select case when octet_length(record) <= $3::bigint then record end"
    b" from safepoint.checkpoints c"
    b" where c.tenant = t.tenant and c.thread = t.thread and c.sequence = t.head)"
)
_BASE: Final = (
    "select first, octet_length(base), case when octet_length(base) <= %s then base end"
    " from safepoint.threads where tenant = %s and thread = %s and base is not null"
)
_FIND: Final = (
    "select max(sequence) from safepoint.checkpoints"
    " where tenant = %s and thread = %s and label = %s and label <> ''"
)
_SETTLED: Final = frozenset(["SP001", "SP002", "SP003", "SP004", "23505"])
"""What the database says of a record when it knows that the one before it is not on its way."""


class Records(Server):
    """A table of records, to which one adds and from which one reads.

    Args:
        dsn: a connection string as libpq takes it.
        table: its name, after that of its schema.
        limit: how many bytes a record may have.
        options: as for `Server`.
    """

    _apart: tuple[str, ...] = ()
    _where_is = "tenant = %s and thread = %s"

    def __init__(self, dsn: str, table: str, limit: int, **options: Any) -> None:
        super().__init__(dsn, table.partition(".")[0], **options)
        self._limit = limit
        where = self._where_is
        self._read = _READ.format(table=table, where=where).encode()
        self._portion = {
            step: _SCAN.format(table=table, where=where, order=order)
            for step, order in ((1, "asc"), (-1, "desc"))
        }

    @property
    def _scope(self) -> tuple[str, ...]:
        """What comes before the name of a thread, in each key and in each statement."""
        return self._tenant, *self._apart

    def read(self, thread: str, sequence: int) -> bytes:
        """Return the record exactly as it was appended.

        Raises:
            NotFound: there is none, or it was pruned.
            LimitExceeded: it is larger than a record may be.
            StorageError: the server refuses, or is away.
        """
        check_place(thread, sequence)

        def read(connection: Connection) -> bytes:
            found = self._found(connection, thread, sequence)
            if found is None:
                raise missing(thread, sequence, self._first(connection, thread))
            return found

        return self._run(read)

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is the lower one.

        They come in portions, and no transaction is open between two of them.

        Raises:
            CheckpointError: as `read` does, at the first record for which that would. Those before
                it were handed out.
        """
        check_name("thread", thread)
        return self._scan(thread, span(first, last))

    def _scan(self, thread: str, sequences: range) -> Iterator[bytes]:
        statement, most = self._portion[sequences.step], 2  # who walks back often stops soon
        while sequences:
            near, most = sequences[:most], most * 4
            values = (self._limit, *self._scope, thread, *sorted((near[0], near[-1])))
            rows = self._rows(statement, values, binary=True)
            if not rows or rows[0][0] != sequences[0]:
                yield self.read(thread, sequences[0])  # which says why it is not there
                sequences = sequences[1:]
                continue
            for found, size, record in rows:
                if found != sequences[0]:
                    break  # and the next portion begins there
                yield record_of(thread, found, size, record, self._limit)
                sequences = sequences[1:]

    def _add(self, statement: bytes, values: tuple[Any, ...]) -> None:
        """Insert a record, once: after an answer that was lost, look whether it had arrived.

        Args:
            statement: what inserts it.
            values: the thread, the sequence and the record, and what else the statement takes
                after its scope.
        """
        thread, sequence, data = values[:3]
        given = (*self._scope, *values)
        unknown = False

        def insert(connection: Connection) -> None:
            nonlocal unknown
            again, unknown = unknown, True
            try:
                connection.ask(statement, given)
            except psycopg.Error as error:
                if is_lost(connection, error):
                    raise
                # Before anything else is decided: if this is cut off, too, nothing is known yet.
                if again and self._found(connection, thread, sequence) == data:
                    return  # the first try had arrived, and its answer was lost
                # One that waits in the server for a lock goes on without us, and may come through.
                unknown = again and error.sqlstate not in _SETTLED
                if error.sqlstate == "23505":
                    raise taken(thread, sequence, 0) from error
                raise

        try:
            self._run(insert)
        except StorageError as error:
            if not unknown:
                raise
            raise StorageUnavailable(
                f"{error.what} Whether checkpoint {sequence} of thread '{thread}' was saved is not"
                " known.",
                "Load the latest checkpoint once the server is back, and go on from that.",
            ) from error

    def _found(self, connection: Connection, thread: str, sequence: int) -> bytes | None:
        values = (self._limit, *self._scope, thread, sequence)
        row = connection.execute(self._read, values, binary=True).fetchone()
        if row is None:
            return None
        return record_of(thread, sequence, row[0], row[1], self._limit)

    def _first(self, connection: Connection, thread: str) -> int:
        """Return where a thread begins, unless nothing is ever pruned."""
        return 1


class _Thread(NamedTuple):
    """What is kept of a thread; `own` is whether this login had it last."""

    head: int
    first: int
    ownership: Ownership
    own: bool
    record: bytes | None = None


class PostgresCheckpointStorage(Records):
    """Keeps records in PostgreSQL, for workers on many machines.

    The database itself refuses what a worker must not do, so a leaked login can do no more than
    the worker could: it adds records to threads that it owns, and reads. Nobody updates or
    deletes one; `prune`, `discard` and `break_lease` take a login in the role of operators. The
    schema and the roles are made by `migrate`, once, by somebody who may create roles.

    A lease goes by the server's clock, and is bound to the login that took it. A thread that has
    no lease takes records of the login that wrote it last; another one acquires it first.

    If the server goes away, each call goes on trying for `wait_seconds`. A save that is tried
    again looks whether its first try had arrived, so nothing is written twice. A server that
    stands still with its connections open, as a paused machine does, is given up after as long.

    A save that returned is on the disk of the server: `synchronous_commit` is turned on where it
    is off. What else it is set to stays. With `local`, a standby may lack what was saved last.

    Args:
        dsn: a connection string as libpq takes it. What it leaves out comes from the environment
            (`PGHOST`, `PGPASSFILE`), as with `psql`. Keep the password out of it.
        limits: how large a record may be. The database takes none above 256 MiB.
        connections: how many connections the threads of this process share.
        wait_seconds: how long to try if the server is away or busy.

    Raises:
        ConfigurationError: `dsn` is no connection string.
        StorageError: there is no server, no such database, no such login, or no schema of this
            version in it. The message says what to run.
    """

    in_order = True
    """A record is kept after the last one alone, so that a save need not look at that first."""

    def __init__(
        self,
        dsn: str,
        *,
        limits: Limits = DEFAULT_LIMITS,
        connections: int = 4,
        wait_seconds: float = 10.0,
    ) -> None:
        super().__init__(
            dsn,
            "safepoint.checkpoints",
            min(limits.record_bytes, LARGEST),
            connections=connections,
            wait_seconds=wait_seconds,
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
        """Keep `record` at `(thread, sequence)`: committed when this returns, never over another.

        If the server is away, the message says whether the record may be there. A thread that
        another login wrote last is not yours either: NotOwner.
        """
        check_place(thread, sequence, fence)
        self._add(_APPEND, (thread, sequence, sized(record, self._limit), fence, label))

    def find(self, thread: str, label: str) -> int | None:
        """Return the newest sequence that was appended with this label, or None.

        It is a hint, which nothing signs: open what it finds, and believe no absence.
        """
        check_name("thread", thread)
        [(found,)] = self._rows(_FIND, (self._tenant, thread, label))
        return None if found is None else int(found)

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record."""
        return self._of(thread).head

    def newest(self, thread: str) -> tuple[int, bytes | None]:
        """Return the same with the record there, None if `read` is to say why there is none."""
        found = self._of(thread, _NEWEST, self._limit)
        return found.head, found.record

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record."""
        query = "select thread from safepoint.threads where tenant = %s and head > 0 order by 1"
        return [row[0] for row in self._rows(query, (self._tenant,))]

    def ends(self) -> dict[str, int]:
        """Return the highest sequence of each thread that has a record. It proves nothing."""
        query = "select thread, head from safepoint.threads where tenant = %s and head > 0"
        return {row[0]: int(row[1]) for row in self._rows(query, (self._tenant,))}

    def tenants(self) -> list[str]:
        """Return the name of each tenant that has a record, as far as this login sees them."""
        query = "select distinct tenant from safepoint.threads where head > 0"
        return self._tenants_in(row[0] for row in self._rows(query))

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first sequence that is kept and what `prune` left before it, or None."""
        check_name("thread", thread)
        rows = self._rows(_BASE, (self._limit, self._tenant, thread), binary=True)
        if not rows:
            return None
        first, size, base = rows[0]
        if type(first) is not int or not 1 <= first <= MAX_SEQUENCE:
            raise self._malformed(thread)
        return first, record_of(thread, first, size, base, self._limit)

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Keep `base`, and remove every record below `first`, in one transaction.

        The server writes down who did it, in `safepoint.prunings`. A thread never moves
        backwards: if it begins later already, nothing happens. If it begins there, the new base
        takes the place of the one that is there, so that it can be sealed anew.

        Returns:
            How many records were removed.

        Raises:
            NotFound: there is no record at `first`.
            StorageRefused: this login is not in the role of operators.
            StorageUnavailable: the server is away.
        """
        check_place(thread, first)
        data = sized(base, self._limit)
        values = (self._tenant, thread, first, data)
        [(removed,)] = self._rows("select safepoint.prune(%s, %s, %s, %b)", values)
        return int(removed)

    def purge(self, thread: str) -> int:
        """Remove what was discarded from a thread of which nothing but its last record is left.

        The server writes down who did it, in `safepoint.prunings`. The space of removed rows is
        written over after a `vacuum`, and the server's own log and its copies keep them for longer.

        Returns:
            How many records were removed.

        Raises:
            StorageRefused: this login is not in the role of operators.
            StorageUnavailable: more of the thread is left, or the server is away.
        """
        check_name("thread", thread)
        [(removed,)] = self._rows("select safepoint.purge(%s, %s)", (self._tenant, thread))
        return int(removed)

    def discard(self, thread: str, last: int) -> int:
        """Take every record after `last` out of the thread, because it does not verify.

        They are kept in `safepoint.discarded` until the thread is erased, with who wrote them when
        and who took them out, and the thread goes on after `last`. What the anchor has seen cannot
        be discarded unnoticed: the ledger says that the thread was rolled back.

        Args:
            thread: the thread.
            last: the last record that stays. 0 empties a thread that was never pruned.

        Returns:
            How many records were moved.

        Raises:
            NotFound: there is no such record, or no such thread.
            NotOwner: another login has a lease that has not ended.
            StorageRefused: this login is not in the role of operators.
            StorageUnavailable: the server is away.
        """
        check_name("thread", thread)
        if last != 0:
            check_sequence(last)
        [(moved,)] = self._rows(
            "select safepoint.discard(%s, %s, %s)", (self._tenant, thread, last)
        )
        return int(moved)

    def acquire(self, thread: str, owner: str, seconds: float) -> Lease:
        """Let a worker own a thread for so many seconds of the server's clock, with a new token.

        If this worker owns it already, under this login, it gets a new token as well: it was
        restarted, and what may be left of its former self is fenced off.

        Raises:
            NotOwner: another worker, or another login, owns it. The message says until when.
            StorageError: the server refuses, or is away.
        """
        check_name("thread", thread)
        check_name("worker", owner)
        check_span(seconds, datetime.now(UTC))
        [(token, expires)] = self._rows(
            "select token, expires from safepoint.acquire(%s, %s, %s, %s)",
            (self._tenant, thread, owner, float(seconds)),
        )
        return Lease(thread, owner, token, expires)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Let a lease end so many seconds from now. Its token stays.

        One that has expired is renewed too, as long as nobody has taken the thread over.

        Raises:
            NotOwner: it was released, or another one took its place.
            StorageError: the server refuses, or is away.
        """
        check_lease(lease)
        check_span(seconds, datetime.now(UTC))
        [(expires,)] = self._rows(
            "select safepoint.renew(%s, %s, %s, %s, %s)",
            (self._tenant, lease.thread, lease.owner, lease.token, float(seconds)),
        )
        return Lease(lease.thread, lease.owner, lease.token, expires)

    def release(self, lease: Lease) -> None:
        """Let a thread be free. Its tokens go on from where they are.

        To release a lease twice does nothing.

        Raises:
            NotOwner: another one took its place.
            StorageError: the server refuses, or is away.
        """
        check_lease(lease)
        values = (self._tenant, lease.thread, lease.owner, lease.token)
        self._rows("select safepoint.release(%s, %s, %s, %s)", values)

    def lease(self, thread: str) -> Lease | None:
        """Return the lease that counts for a thread, also if it has expired; None if it is free."""
        return self._of(thread).ownership.holder

    def foreign(self, thread: str) -> bool:
        """Tell whether another login wrote or took a thread last, so that this one must acquire it.

        A ledger asks this before a step acts, and not only when it saves.
        """
        return not self._of(thread).own

    def break_lease(self, thread: str) -> bool:
        """End the lease of somebody who should not have the thread, also if it has not expired.

        Its token is worth nothing from then on. Whoever wrote the thread last acquires it first,
        like everybody else. The server writes down who did it, in `safepoint.takings`.

        Returns:
            Whether there was a lease.

        Raises:
            NotFound: there is no such thread.
            StorageRefused: this login is not in the role of operators.
            StorageUnavailable: the server is away.
        """
        check_name("thread", thread)
        [(broken,)] = self._rows("select safepoint.break_lease(%s, %s)", (self._tenant, thread))
        return bool(broken)

    def _first(self, connection: Connection, thread: str) -> int:
        return self._thread(connection, thread).first

    def _of(self, thread: str, *given: Any) -> _Thread:
        check_name("thread", thread)
        return self._run(lambda connection: self._thread(connection, thread, *given))

    def _thread(
        self, connection: Connection, thread: str, query: bytes = _THREAD, *limit: int
    ) -> _Thread:
        """Return what is kept of a thread, with its last record or not; it is new if there is none.

        Raises:
            StorageUnavailable: it says something that the functions of the schema never write.
        """
        rows = connection.ask(query, (self._tenant, thread, *limit))
        if not rows:
            return _Thread(0, 1, Ownership(thread), own=True)
        *numbers, owner, expires, own, record = rows[0]
        with suppress(CheckpointError, TypeError, ValueError):
            head, first, token = (int(each or "") for each in numbers)
            holder = None
            if owner is not None:
                ends = datetime.fromisoformat((expires or b"").decode())
                holder = Lease(thread, owner.decode(), token, ends)
            sound = 0 <= head <= MAX_SEQUENCE and 0 <= token <= MAX_TOKEN
            if sound and 1 <= first <= max(head, 1):
                ownership = Ownership(thread, token, holder)
                return _Thread(head, first, ownership, own == b"true", record)
        raise self._malformed(thread)

    def _malformed(self, thread: str) -> StorageUnavailable:
        where = self._where
        return StorageUnavailable(
            f"{where[:1].upper()}{where[1:]} does not say where thread '{thread}' begins and ends"
            " or who owns it, so nothing of the thread is saved.",
            "Somebody else wrote it, or the disk failed. Put the database back from a backup.",
        )
