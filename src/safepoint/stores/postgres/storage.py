"""Checkpoints and answers: records in tables that their writers can add to, and not change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Unpack

import psycopg

from safepoint.core.errors import StorageError, StorageUnavailable
from safepoint.core.names import DEFAULT_LIMITS, Limits, check_name, check_sequence
from safepoint.core.storage import Lease, check_place, check_span, missing, span, taken
from safepoint.stores.checks import record_of, sized
from safepoint.stores.postgres.connection import Connection, Options, Row, Server, is_lost
from safepoint.stores.postgres.schema import LARGEST, SCHEMAS

# In each, `{0}` is the schema, and the values begin with tenant, scope and thread, then the limit.
_FOUND: Final = (
    "select sequence, octet_length(record), case when octet_length(record) <= $4 then record end"
)
_THREAD: Final = "from {0}.records where tenant = $1 and scope = $2 and thread = $3"
_READ: Final = f"{_FOUND} {_THREAD} and sequence = $5"
_NEWEST: Final = f"{_FOUND} {_THREAD} order by sequence desc limit 1"
# A portion ends with the record that makes it a megabyte.
_SCAN: Final = (
    f"{_FOUND} from (select sequence, record, sum(octet_length(record)) over"
    " (order by sequence {1} rows between unbounded preceding and 1 preceding) as before"
    f" {_THREAD} and sequence between $5 and $6 order by sequence {{1}} limit 256) portion"
    " where before is null or before < 1048576 order by sequence {1}"
)
_APPEND: Final = (
    "insert into {0}.records (tenant, scope, thread, sequence, record, fence)"
    " values ($1, $2, $3, $4, $5, $6)"
)
# Each name once, from one to the next by the index, however many records it has.
_NAMES: Final = (
    "with recursive each (name) as ((select {1} from {0}.records where {2} order by 1 limit 1)"
    " union all select (select {1} from {0}.records where {2} and {1} > name order by 1 limit 1)"
    " from each where name is not null) select name from each where name is not null"
)
_KEPT: Final = (
    "select first, octet_length(base), case when octet_length(base) <= $3 then base end,"
    " owner, token, expires, login <> session_user"
    " from safepoint.threads where tenant = $1 and thread = $2"
)
_SETTLED: Final = frozenset(["SP001", "SP002", "SP003", "SP004", "23505"])
"""What the database says of a record when it knows that the one before it is not on its way."""


class Records(Server):
    """The records of a part of the schema, to which one adds and from which one reads.

    Args:
        dsn: a connection string as libpq takes it.
        part: the part of the schema.
        scope: which of those that share the table.
        limit: how many bytes a record may have.
        options: as for `Server`.
    """

    def __init__(
        self, dsn: str, part: str, scope: str = "", limit: int = 2**28, **options: Unpack[Options]
    ) -> None:
        super().__init__(dsn, SCHEMAS[part], **options)
        self._scope = scope
        self._limit = min(limit, LARGEST[part])

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        """Keep `record` after the last one: committed when this returns, never over another.

        If the server is away, the message says whether the record may be there. A thread of a
        store that another login wrote last is not yours: NotOwner.
        """
        check_place(thread, sequence)
        record, place = sized(record, self._limit), (self._tenant, self._scope, thread)
        unknown = False

        def insert(connection: Connection) -> None:
            nonlocal unknown
            again, unknown = unknown, True
            try:
                connection.ask(_APPEND.format(self._schema), (*place, sequence, record, fence))
            except psycopg.Error as error:
                if is_lost(connection, error):
                    raise
                # Before anything else is decided: if this is cut off, too, nothing is known yet.
                here = *place, self._limit, sequence
                found = again and connection.ask(_READ.format(self._schema), here)
                if found == [(sequence, len(record), record)]:
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

    def read(self, thread: str, sequence: int) -> bytes:
        """Return the record exactly as it was appended.

        Raises:
            NotFound: there is none, or it was pruned.
            LimitExceeded: it is larger than a record may be.
            StorageError: the server refuses, or is away.
        """
        check_place(thread, sequence)
        rows = self._of(_READ, thread, self._limit, sequence)
        if not rows:
            raise missing(thread, sequence, self._first(thread))
        return self._record(thread, *rows[0])

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record."""
        return self.newest(thread)[0]

    def newest(self, thread: str) -> tuple[int, bytes | None]:
        """Return the same with the record there, None if `read` is to say why there is none."""
        rows = self._of(_NEWEST, thread, self._limit)
        return (check_sequence(rows[0][0]), rows[0][2]) if rows else (0, None)

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
        order, most = "asc" if sequences.step > 0 else "desc", 2  # who walks back often stops soon
        while sequences:
            near, most = sequences[:most], most * 4
            ends = sorted((near[0], near[-1]))
            rows = self._of(_SCAN.replace("{1}", order), thread, self._limit, *ends)
            if not rows or rows[0][0] != sequences[0]:
                yield self.read(thread, sequences[0])  # which says why it is not there
                sequences = sequences[1:]
                continue
            for row in rows:
                if row[0] != sequences[0]:
                    break  # and the next portion begins there
                yield self._record(thread, *row)
                sequences = sequences[1:]

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record."""
        query = _NAMES.format(self._schema, "thread", "tenant = $1 and scope = $2")
        return [row[0] for row in self._rows(query, self._tenant, self._scope)]

    def tenants(self) -> list[str]:
        """Return the name of each tenant that has a record, as far as this login sees them."""
        query = _NAMES.format(self._schema, "tenant", "scope = $1")
        return self._tenants_in(row[0] for row in self._rows(query, self._scope))

    def _of(self, statement: str, thread: str, *values: int) -> list[Row]:
        """Return what a statement finds of a thread."""
        place = self._tenant, self._scope, check_name("thread", thread)
        return self._rows(statement.format(self._schema), *place, *values)

    def _first(self, thread: str) -> int:
        """Return where a thread begins."""
        return 1

    def _record(self, thread: str, sequence: int, size: object, record: object) -> bytes:
        return record_of(thread, sequence, size, record, self._limit)


class PostgresAnswers(Records):
    """Keeps answers in PostgreSQL, where workers on many machines find them.

    An approver has a login in the role that `create_schema` made for approvers: it may add an
    answer after the last one of a chain, read, and move the heads of the answers in the anchor.
    A worker's login reads here, and nobody changes or removes an answer.

    Args:
        dsn: a connection string as libpq takes it. What it leaves out comes from the environment.
        **options: `connections`, how many the threads of this process share, 4 if you say nothing;
            `wait_seconds`, how long to try if the server is away or busy, 10 if you say
            nothing.

    Raises:
        ConfigurationError: `dsn` is no connection string.
        StorageError: the server cannot be used. The message says what to run.
    """

    def __init__(self, dsn: str, **options: Unpack[Options]) -> None:
        super().__init__(dsn, "answers", **options)


class PostgresCheckpointStorage(Records):
    """Keeps records in PostgreSQL, for workers on many machines.

    The database itself refuses what a worker must not do, so a leaked login can do no more than
    the worker could: it adds records to threads that it owns, and reads. Nobody updates or
    deletes one; `prune`, `discard` and `purge` take a login in the role of operators. The
    schema and the roles are made by `create_schema`, once, by somebody who may create roles.

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
        **options: `connections`, how many the threads of this process share, 4 if you say nothing;
            `wait_seconds`, how long to try if the server is away or busy, 10 if you say
            nothing.

    Raises:
        ConfigurationError: `dsn` is no connection string.
        StorageError: there is no server, no such database, no such login, or no schema of this
            version in it. The message says what to run.
    """

    def __init__(
        self, dsn: str, *, limits: Limits = DEFAULT_LIMITS, **options: Unpack[Options]
    ) -> None:
        super().__init__(dsn, "store", limit=limits.record_bytes, **options)

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first sequence that is kept and what `prune` left before it, or None."""
        rows = self._call(_KEPT, thread, self._limit)
        if not rows or rows[0][1] is None:
            return None
        first = check_sequence(rows[0][0])
        return first, self._record(thread, first, *rows[0][1:3])

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Keep `base`, and remove every record below `first`, in one transaction.

        The server writes down who did it, in `safepoint.actions`. A thread never moves
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
        statement = "select safepoint.prune($1, $2, $3, $4)"
        return int(self._call(statement, thread, first, sized(base, self._limit))[0][0])

    def purge(self, thread: str) -> int:
        """Remove what was discarded from a thread of which nothing but its last record is left.

        The server writes down who did it, in `safepoint.actions`. The space of removed rows is
        written over after a `vacuum`, and the server's own log and its copies keep them for longer.

        Returns:
            How many records were removed.

        Raises:
            StorageRefused: this login is not in the role of operators.
            StorageUnavailable: more of the thread is left, or the server is away.
        """
        return int(self._call("select safepoint.purge($1, $2)", thread)[0][0])

    def discard(self, thread: str, last: int) -> int:
        """Take every record after `last` out of the thread, because it does not verify.

        They are kept in `safepoint.discarded` until the thread is erased, with who wrote them when
        and who took them out, and the thread goes on after `last`. What the anchor has seen cannot
        be discarded unnoticed: the ledger says that the thread was rolled back.

        A lease on the thread ends with it, also if there is nothing to take out: its token is worth
        nothing from then on, and whoever had it acquires the thread first, like everybody else.

        Args:
            thread: the thread.
            last: the last record that stays. 0 empties a thread that was never pruned.

        Returns:
            How many records were moved.

        Raises:
            NotFound: there is no such record, or no such thread.
            StorageRefused: this login is not in the role of operators.
            StorageUnavailable: the server is away.
        """
        return int(self._call("select safepoint.discard($1, $2, $3)", thread, last)[0][0])

    def acquire(self, thread: str, owner: str, seconds: float) -> Lease:
        """Let a worker own a thread for so many seconds of the server's clock, with a new token.

        If this worker owns it already, under this login, it gets a new token as well: it was
        restarted, and what may be left of its former self is fenced off.

        Raises:
            NotOwner: another worker, or another login, owns it. The message says until when.
            StorageError: the server refuses, or is away.
        """
        check_name("worker", owner)
        check_span(seconds, datetime.now(UTC))
        statement = "select token, expires from safepoint.acquire($1, $2, $3, $4)"
        return Lease(thread, owner, *self._call(statement, thread, owner, float(seconds))[0])

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Let a lease end so many seconds from now. Its token stays.

        One that has expired is renewed too, as long as nobody has taken the thread over.

        Raises:
            NotOwner: it was released, or another one took its place.
            StorageError: the server refuses, or is away.
        """
        check_span(seconds, datetime.now(UTC))
        return replace(lease, expires=self._renew(lease, float(seconds)))

    def release(self, lease: Lease) -> None:
        """Let a thread be free. Its tokens go on from where they are.

        To release a lease twice does nothing.

        Raises:
            NotOwner: another one took its place.
            StorageError: the server refuses, or is away.
        """
        self._renew(lease, None)

    def _renew(self, lease: Lease, seconds: float | None) -> Any:
        statement = "select safepoint.renew($1, $2, $3, $4, $5)"
        return self._call(statement, lease.thread, lease.owner, lease.token, seconds)[0][0]

    def lease(self, thread: str) -> Lease | None:
        """Return the lease that counts for a thread, also if it has expired; None if it is free."""
        rows = self._call(_KEPT, thread, 0)
        return Lease(thread, *rows[0][3:6]) if rows and rows[0][3] else None

    def foreign(self, thread: str) -> bool:
        """Tell whether another login wrote or took a thread last, so that this one must acquire it.

        A ledger asks this before a step acts, and not only when it saves.
        """
        return any(row[6] for row in self._call(_KEPT, thread, 0))

    def _first(self, thread: str) -> int:
        rows = self._call(_KEPT, thread, 0)
        return check_sequence(rows[0][0]) if rows else 1

    def _call(self, statement: str, thread: str, *values: object) -> list[Row]:
        return self._rows(statement, self._tenant, check_name("thread", thread), *values)
