"""Checkpoints, answers and journals: records in append-only tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, Unpack

import psycopg

from safepoint.core.anchor import Anchor
from safepoint.core.errors import NotOwner, SealBroken, Unavailable, quoted
from safepoint.core.journal import Journal
from safepoint.core.keys import Keyring
from safepoint.core.names import (
    DEFAULT_LIMITS,
    MAX_SEQUENCE,
    Limits,
    check_name,
    check_place,
    sized,
)
from safepoint.core.storage import Lease, check_seconds, no_record, record_of, sequences, taken
from safepoint.stores.postgres.connection import Cells, Connection, Options, Session, is_lost
from safepoint.stores.postgres.schema import LARGEST, SCHEMAS

# In each, `{0}` is the schema, and the first values are tenant, thread and limit.
_FOUND: Final = (
    "select sequence, octet_length(record), case when octet_length(record) <= $3 then record end"
)
_THREAD: Final = "from {0}.records where tenant = $1 and thread = $2"
_READ: Final = f"{_FOUND} {_THREAD} and sequence = $4"
_NEWEST: Final = f"{_FOUND} {_THREAD} order by sequence desc limit 1"
# A portion ends with the record that brings it to a megabyte.
_SCAN: Final = (
    f"{_FOUND} from (select sequence, record, sum(octet_length(record)) over"
    " (order by sequence {1} rows between unbounded preceding and 1 preceding) as before"
    f" {_THREAD} and sequence between $4 and $5 order by sequence {{1}} limit 256) portion"
    " where before is null or before < 1048576 order by sequence {1}"
)
_APPEND: Final = (
    "insert into {0}.records (tenant, thread, sequence, record, fence) values ($1, $2, $3, $4, $5)"
)
# Each name once. It steps from name to name by the index, however many records a name has.
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
"""The errors that prove that an earlier try of the same record can no longer succeed."""


def sequence_of(thread: str, found: int) -> int:
    """Return a sequence that was read from a database, if it is one that a record can have.

    Raises:
        SealBroken: it is too large or too small.
    """
    if 1 <= found <= MAX_SEQUENCE:
        return found
    raise SealBroken(f"Thread '{thread}' has a checkpoint {quoted(found)}.", kind="form")


class Records(Session):
    """Reads and appends the records of a part of the schema.

    Args:
        dsn: a libpq connection string.
        part: the part of the schema.
        limit: how many bytes a record may have.
        options: as for `Session`.
    """

    def __init__(self, dsn: str, part: str, limit: int = 2**28, **options: Unpack[Options]) -> None:
        super().__init__(dsn, SCHEMAS[part], **options)
        self._limit = min(limit, LARGEST[part])

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        """Append `record` to the thread. It is committed when this returns.

        If the server goes away, the message says if the record may have been saved. In a store, a
        thread that another login wrote last raises NotOwner: acquire it first.
        """
        check_place(thread, sequence)
        record, place = sized(record, self._limit), (self._tenant, thread)
        unknown = False

        def insert(connection: Connection) -> None:
            nonlocal unknown
            again, unknown = unknown, True
            try:
                connection.ask(_APPEND.format(self._schema), (*place, sequence, record, fence))
            except psycopg.Error as error:
                if is_lost(connection, error):
                    raise
                # First of all: if the connection is lost here as well, nothing is known yet.
                here = *place, self._limit, sequence
                found = again and connection.ask(_READ.format(self._schema), here)
                if found == [(sequence, len(record), record)]:
                    return  # the first try had succeeded, and only its answer was lost
                # A try that waits in the server for a lock continues without us and may succeed.
                unknown = again and error.sqlstate not in _SETTLED
                if error.sqlstate == "23505":
                    raise taken(thread, sequence, 0) from error
                raise

        try:
            self._run(insert)
        except Unavailable as error:
            if not unknown:
                raise
            raise Unavailable(
                f"{error.what} Whether checkpoint {sequence} of thread '{thread}' was saved is not"
                " known.",
                "Load the latest checkpoint once the server is back, and continue from that.",
            ) from error

    def read(self, thread: str, sequence: int) -> bytes:
        """Return the record exactly as it was appended.

        Raises:
            NotFound: there is none, or it was pruned.
            LimitExceeded: it is larger than a record may be.
            Unavailable: the server refuses, or is away.
        """
        check_place(thread, sequence)
        rows = self._of(_READ, thread, self._limit, sequence)
        if not rows:
            raise no_record(thread, sequence, self._first(thread))
        return self._record(thread, *rows[0])

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record."""
        return self.newest(thread)[0]

    def newest(self, thread: str) -> tuple[int, bytes | None]:
        """Return the head and its record; None in place of a record that is too large."""
        rows = self._of(_NEWEST, thread, self._limit)
        return (sequence_of(thread, rows[0][0]), rows[0][2]) if rows else (0, None)

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is lower.

        They are read in portions. No transaction stays open between two portions.

        Raises:
            CheckpointError: as for `read`. The records before it were already returned.
        """
        check_name("thread", thread)
        return self._scan(thread, sequences(first, last))

    def _scan(self, thread: str, sequences: range) -> Iterator[bytes]:
        order, most = "asc" if sequences.step > 0 else "desc", 2  # a walk back often stops soon
        while sequences:
            near, most = sequences[:most], most * 4
            ends = sorted((near[0], near[-1]))
            rows = self._of(_SCAN.replace("{1}", order), thread, self._limit, *ends)
            if not rows or rows[0][0] != sequences[0]:
                yield self.read(thread, sequences[0])  # it raises if the record is missing
                sequences = sequences[1:]
                continue
            for row in rows:
                if row[0] != sequences[0]:
                    break  # the next portion begins there
                yield self._record(thread, *row)
                sequences = sequences[1:]

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record."""
        query = _NAMES.format(self._schema, "thread", "tenant = $1")
        return [row[0] for row in self._rows(query, self._tenant)]

    def tenants(self) -> list[str]:
        """Return the name of each tenant that has a record and that this login sees."""
        query = _NAMES.format(self._schema, "tenant", "true")
        return self._tenants_in(row[0] for row in self._rows(query))

    def _of(self, statement: str, thread: str, *values: int) -> list[Cells]:
        """Return the rows that a statement finds for a thread."""
        query = statement.format(self._schema)
        return self._rows(query, self._tenant, check_name("thread", thread), *values)

    def _first(self, thread: str) -> int:
        """Return where a thread begins."""
        return 1

    def _record(self, thread: str, sequence: int, size: object, record: object) -> bytes:
        return record_of(thread, sequence, size, record, self._limit)


class PostgresAnswers(Records):
    """Keeps answers in PostgreSQL, for workers on many machines.

    An approver has a login in the approvers' role that `create_schema` created. It can read, add an
    answer at the end of a chain, and move the heads of the answers in the anchor. A worker's login
    can read answers. The database allows no login to change or remove one.

    Args:
        dsn: a libpq connection string. Missing values come from the environment.
        **options: `connections`, how many connections the threads of this process share (default
            4), and `wait_seconds`, how long to keep trying while the server is away or busy
            (default 10).

    Raises:
        ConfigurationError: `dsn` is not a connection string.
        Unavailable: the server cannot be used. The message says what to run.
    """

    def __init__(self, dsn: str, **options: Unpack[Options]) -> None:
        super().__init__(dsn, "answers", **options)


class PostgresJournal(Journal):
    """A journal in a table, for workers on many machines.

    Give it a login in the journals' role that `create_schema` created. It can read entries
    and append to a chain, but the database allows no login to change or remove an entry. Chains and
    signatures reveal an edit by the server's administrator. Only an anchor on another server
    reveals that the newest entries, or a whole chain, were removed.

    Args:
        dsn: a libpq connection string. Missing values come from the environment.
        keys: as for `Journal`.
        name: as for `Journal`.
        anchor: as for `Journal`.
        **options: `connections`, how many connections the threads of this process share (default
            4), and `wait_seconds`, how long to keep trying while the server is away or busy
            (default 10).

    Raises:
        ConfigurationError: `dsn` is not a connection string.
        Unavailable: the server cannot be used. The message says what to run.
    """

    def __init__(
        self,
        dsn: str,
        *,
        keys: Keyring,
        name: str = "journal",
        anchor: Anchor | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(Records(dsn, "journal", **options), keys=keys, name=name, anchor=anchor)


class PostgresCheckpointStorage(Records):
    """Keeps records in PostgreSQL, for workers on many machines.

    The database itself restricts the worker's login, so that a leaked login can only do what the
    worker can: read, and append to threads that it owns. No login can update or delete a record;
    `prune`, `discard` and `purge` need a login in the role of operators. Run `create_schema` once,
    with a login that may create roles, to create the schema and the roles.

    Leases use the server's clock and are bound to the login that took them. A thread without a
    lease accepts records only from the login that last wrote or acquired it. Another login must
    acquire the thread first.

    If the server goes away, each call keeps trying for `wait_seconds`. A repeated save checks
    whether its first try succeeded, so nothing is written twice. A server that stops answering
    with its connections open, like a paused machine, is given up after the same time.

    When a save returns, it is on the server's disk: `synchronous_commit` is turned on if it is
    off. Other values stay. With `local`, a standby may lack the newest saves.

    Args:
        dsn: a libpq connection string. Missing values come from the environment (`PGHOST`,
            `PGPASSFILE`), as with `psql`. Keep the password out of it.
        limits: how large a record may be. The database accepts at most 256 MiB.
        **options: `connections`, how many connections the threads of this process share (default
            4), and `wait_seconds`, how long to keep trying while the server is away or busy
            (default 10).

    Raises:
        ConfigurationError: `dsn` is not a connection string.
        Unavailable: there is no server, no such database, no such login, or no schema of this
            package in it. The message says what to run.
    """

    def __init__(
        self, dsn: str, *, limits: Limits = DEFAULT_LIMITS, **options: Unpack[Options]
    ) -> None:
        super().__init__(dsn, "store", limit=limits.record_bytes, **options)

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first remaining sequence and the base that `prune` stored, or None."""
        rows = self._call(_KEPT, thread, self._limit)
        if not rows or rows[0][1] is None:
            return None
        first = sequence_of(thread, rows[0][0])
        return first, self._record(thread, first, *rows[0][1:3])

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Store `base` and remove every record below `first`, in one transaction.

        The server records who did it in `safepoint.actions`. A thread never moves backwards: if it
        already begins after `first`, nothing happens. If it begins at `first`, the new base
        replaces the old one, which is how a base is resealed.

        Returns:
            How many records were removed.

        Raises:
            NotFound: there are records and none at `first`.
            Unavailable: this login is not in the role of operators; or the server is away.
        """
        check_place(thread, first)
        statement = "select safepoint.prune($1, $2, $3, $4)"
        return int(self._call(statement, thread, first, sized(base, self._limit))[0][0])

    def purge(self, thread: str) -> int:
        """Remove the discarded records of an erased thread, which has only its last record left.

        If it removes any, the server records who did it in `safepoint.actions`. The space of the
        removed rows is reused after a `vacuum`. The server's log and its copies keep them longer.

        Returns:
            How many records were removed.

        Raises:
            Unavailable: this login is not in the role of operators; or the thread has more records,
                or the server is away.
        """
        return int(self._call("select safepoint.purge($1, $2)", thread)[0][0])

    def discard(self, thread: str, last: int) -> int:
        """Take every record after `last` out of the thread, because it does not verify.

        `safepoint.discarded` keeps them until the thread is erased, with who wrote them, who
        discarded them, and when. The thread continues after `last`. If the anchor has seen a
        discarded record, the ledger reports a rollback.

        This also ends a lease on the thread, even if there is nothing to discard: its token is no
        longer valid, and its owner must acquire the thread again.

        Args:
            thread: the thread.
            last: the last record that stays. 0 empties a thread that was never pruned.

        Returns:
            How many records were moved.

        Raises:
            NotFound: there is no such record, or no such thread.
            Unavailable: this login is not in the role of operators; or the server is away.
        """
        return int(self._call("select safepoint.discard($1, $2, $3)", thread, last)[0][0])

    def acquire(self, thread: str, owner: str, seconds: float) -> Lease:
        """Give a worker a thread for so many seconds of the server's clock, with a new token.

        If this worker already owns it under this login, it still gets a new token: it was
        restarted, and its former process can no longer write.

        Raises:
            NotOwner: another worker, or another login, owns it. The message says until when.
            Unavailable: the server refuses, or is away.
        """
        check_name("worker", owner)
        check_seconds(seconds)
        statement = "select token, expires from safepoint.acquire($1, $2, $3, $4)"
        try:
            return Lease(thread, owner, *self._call(statement, thread, owner, float(seconds))[0])
        except NotOwner as refusal:
            do = "Wait until then. If it is dead for certain, own the thread by its name and login."
            raise NotOwner(refusal.what, do) from refusal

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Extend a lease to so many seconds from now. Its token stays the same.

        An expired lease can be renewed as long as nobody has taken over the thread.

        Raises:
            NotOwner: it was released, or another one took its place.
            Unavailable: the server refuses, or is away.
        """
        check_seconds(seconds)
        return replace(lease, expires=self._renew(lease, float(seconds)))

    def release(self, lease: Lease) -> None:
        """Release a thread. The next token is still higher.

        Releasing a lease twice does nothing.

        Raises:
            NotOwner: another one took its place.
            Unavailable: the server refuses, or is away.
        """
        self._renew(lease, None)

    def _renew(self, lease: Lease, seconds: float | None) -> Any:
        statement = "select safepoint.renew($1, $2, $3, $4, $5)"
        return self._call(statement, lease.thread, lease.owner, lease.token, seconds)[0][0]

    def lease(self, thread: str) -> Lease | None:
        """Return the current lease of a thread, even if it has expired; None if it is free."""
        rows = self._call(_KEPT, thread, 0)
        return Lease(thread, *rows[0][3:6]) if rows and rows[0][3] else None

    def foreign(self, thread: str) -> bool:
        """Tell whether another login last wrote or acquired a thread; this one must acquire it.

        A ledger calls this before a step acts, not only when it saves.
        """
        return any(row[6] for row in self._call(_KEPT, thread, 0))

    def _first(self, thread: str) -> int:
        rows = self._call(_KEPT, thread, 0)
        return sequence_of(thread, rows[0][0]) if rows else 1

    def _call(self, statement: str, thread: str, *values: object) -> list[Cells]:
        return self._rows(statement, self._tenant, check_name("thread", thread), *values)
