"""PostgresCheckpointStorage: records in a table that its writers can add to, and not change."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from safepoint._postgres.refusals import comes_back
from safepoint.errors import (
    CheckpointError,
    Conflict,
    NotOwner,
    RecordsMissing,
    StorageError,
    StorageUnavailable,
)
from safepoint.names import DEFAULT_LIMITS, Limits, check_name, check_sequence
from safepoint.storage.base import (
    ahead,
    check_place,
    in_portions,
    is_thread,
    missing,
    record_limit,
    record_of,
    sized,
    span,
    taken,
)
from safepoint.storage.postgres import queries as sql
from safepoint.storage.postgres.database import code_of, of_another_login, row_of
from safepoint.storage.postgres.leases import Leases
from safepoint.storage.postgres.retention import Retention
from safepoint.storage.postgres.rows import head_of

if TYPE_CHECKING:
    from safepoint._postgres.driver import Connection

_SETTLED: Final = frozenset(["SP001", "SP002", "SP003", "SP004", "23505"])
"""What the database says of a record when it knows that the one before it is not on its way."""


class PostgresCheckpointStorage(Leases, Retention):
    """Keeps records in PostgreSQL, for workers on many machines.

    The database itself refuses what a worker must not do, so a leaked login can do no more than
    the worker could: it adds records to threads that it owns, and reads. Nobody updates or
    deletes one; `prune`, `discard` and `break_lease` take a login in the role of operators. The
    schema and the roles are made by `migrate`, once, by somebody who may create roles.

    A lease goes by the server's clock, and is bound to the login that took it. A thread that has
    no lease takes records of the login that wrote it last; another one acquires it first.

    If the server goes away, each call goes on trying for `wait_seconds`. A save that is tried
    again looks whether its first try had arrived, so nothing is written twice.

    A save that returned is on the disk of the server: `synchronous_commit` is turned on where it
    is off. What else it is set to stays. With `local`, a standby may lack what was saved last.

    Args:
        dsn: a connection string as libpq takes it. What it leaves out comes from the environment
            (`PGHOST`, `PGPASSFILE`), as with `psql`. Keep the password out of it.
        limits: how large a record may be. The database takes none above 256 MiB.
        connections: how many connections the threads of this process share.
        wait_seconds: how long to try if the server is away or busy.

    Raises:
        MissingPackage: psycopg is not installed.
        ConfigurationError: an argument is of the wrong kind, or `dsn` is no connection string.
        StorageRefused: the server does not let this login in.
        StorageUnavailable: there is no server, no such database, or no schema of this version in
            it. The message says what to run.
    """

    def __init__(
        self,
        dsn: str,
        *,
        limits: Limits = DEFAULT_LIMITS,
        connections: int = 4,
        wait_seconds: float = 10.0,
    ) -> None:
        limit = record_limit("PostgresCheckpointStorage", limits)
        super().__init__(dsn, limit, connections=connections, wait_seconds=wait_seconds)

    def __repr__(self) -> str:
        return f"PostgresCheckpointStorage(<{self._server!r}>)"

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        """Keep `record` at `(thread, sequence)`: committed when this returns, never over another.

        Args:
            thread: the thread.
            sequence: the place of the record in it.
            record: the bytes.
            fence: the token of the lease under which you save; None if the thread is not leased.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            EncodeError: the record is not bytes.
            LimitExceeded: the record is too large.
            ConfigurationError: the fence is not a token.
            Conflict: there is a record already, or there was one before the thread was pruned.
            NotOwner: the thread has an owner with another token, the fence is of no owner, or
                another login wrote the thread last.
            RecordsMissing: there is none before it.
            StorageFull: the server has no room. Nothing was saved.
            StorageRefused: this login may not save.
            StorageUnavailable: the server is away. The message says if the record may be there.
        """
        check_place(thread, sequence, fence)
        data = sized(record, self._limit)
        self._save(thread, sequence, data, fence, sql.APPEND, (thread, sequence, data, fence))

    def follow(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> bool:
        """Keep `record` if the thread ends right before it, and tell whether that was so.

        It takes and raises what `append` does, except for what this is about: where the thread ends
        elsewhere nothing is saved, and False is returned.
        """
        check_place(thread, sequence, fence)
        data = sized(record, self._limit)
        if sequence == 1:
            return False  # nothing is right before it
        values = (sequence, data, fence, thread, sequence - 1)
        try:
            return self._save(thread, sequence, data, fence, sql.FOLLOW, values)
        except (Conflict, RecordsMissing):
            return False  # somebody else was faster

    def _save(
        self,
        thread: str,
        sequence: int,
        data: bytes,
        fence: int | None,
        statement: str,
        values: tuple[Any, ...],
    ) -> bool:
        """Insert a record, once, and tell whether the statement did."""
        unknown = False

        def insert(connection: Connection) -> bool:
            nonlocal unknown
            again, unknown = unknown, True
            try:
                saved = connection.execute(statement, values).rowcount == 1
            except self._error as error:
                if comes_back(error):
                    raise
                # Before anything else is decided: if this is cut off, too, nothing is known yet.
                if again and self._found(connection, thread, sequence) == data:
                    return True  # the first try had arrived, and its answer was lost
                # One that waits in the server for a lock goes on without us, and may come through.
                unknown = again and code_of(error) not in _SETTLED
                raise self._refused(connection, error, thread, sequence, fence) from error
            return saved or (again and self._found(connection, thread, sequence) == data)

        try:
            return self._server.run(insert)
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
            InvalidId: the thread or the sequence is outside the grammar.
            NotFound: there is none, or it was pruned.
            LimitExceeded: it is larger than a record may be.
            RecordMalformed: it is not bytes, which the database does not take by itself.
            StorageError: the server refuses, or is away.
        """
        check_name("thread", thread)
        check_sequence(sequence)

        def read(connection: Connection) -> bytes:
            found = self._found(connection, thread, sequence)
            if found is None:
                raise missing(thread, sequence, self._thread(connection, thread).first)
            return found

        return self._server.run(read)

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record.

        Raises:
            InvalidId: the thread is outside the grammar.
            StorageError: the server refuses, or is away.
        """
        check_name("thread", thread)
        row = self._server.run(lambda connection: row_of(connection, sql.HEAD, (thread,)))
        return 0 if row is None else head_of(self._server.where(), thread, row[0])

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record.

        Raises:
            StorageError: the server refuses, or is away.
        """
        rows = self._server.run(lambda connection: connection.execute(sql.THREADS).fetchall())
        return [row[0] for row in rows if is_thread(row[0])]

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is the lower one.

        They come in portions, and no transaction is open between two of them.

        Raises:
            InvalidId: the thread or a sequence is outside the grammar.
            CheckpointError: as read does, at the first record for which that would. Those before
                it were handed out.
        """
        check_name("thread", thread)
        portion = partial(self._portion, thread)
        return in_portions(thread, span(first, last), portion, self.read, self._limit)

    def close(self) -> None:
        """Close the connections. The next call opens one again."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _portion(self, thread: str, sequences: range) -> list[tuple[Any, ...]]:
        statement = sql.UP if sequences.step > 0 else sql.DOWN
        low, high = sorted((sequences[0], sequences[-1]))
        values = (self._limit, thread, low, high)
        return self._server.run(
            lambda connection: connection.execute(statement, values, binary=True).fetchall()
        )

    def _found(self, connection: Connection, thread: str, sequence: int) -> bytes | None:
        row = row_of(connection, sql.READ, (self._limit, thread, sequence))
        if row is None:
            return None
        return record_of(thread, sequence, row[0], row[1], self._limit)

    def _refused(
        self,
        connection: Connection,
        error: Exception,
        thread: str,
        sequence: int,
        fence: int | None,
    ) -> Exception:
        """Return what to raise because the database did not take a record."""
        code = code_of(error)
        if code not in _SETTLED:
            return error
        held = self._thread(connection, thread)
        if code in ("SP003", "23505"):
            return taken(thread, sequence, held.first)
        if code == "SP004":
            return ahead(thread, sequence, held.head)
        try:
            held.ownership.check_fence(fence)
        except CheckpointError as refusal:
            return refusal
        if held.own:  # it was released and taken again in this moment
            return NotOwner(
                f"Thread '{thread}' changed hands while this was saved.",
                "Nothing was saved. Acquire the thread, and load its latest checkpoint.",
            )
        return of_another_login(held.ownership)
