"""PostgresCheckpointStorage: records in a table that its writers can add to, and not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

from safepoint._postgres.connections import Connections
from safepoint._postgres.driver import driver
from safepoint._postgres.refusals import comes_back
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    NotFound,
    NotOwner,
    RecordsMissing,
    StorageError,
    StorageUnavailable,
)
from safepoint.ids import check_name, check_sequence
from safepoint.lease import Lease, Ownership, check_lease, check_span, check_token
from safepoint.limits import DEFAULT_LIMITS, Limits
from safepoint.storage._record import ahead, frozen, missing, span, taken, too_large
from safepoint.storage._sqlite.rows import record_of
from safepoint.storage._store import is_thread
from safepoint.storage.postgres import queries as sql
from safepoint.storage.postgres.rows import ThreadRow, first_of, head_of, thread_row
from safepoint.times import spelled

if TYPE_CHECKING:
    from safepoint._postgres.connections import Connection

_SETTLED: Final = frozenset(["SP001", "SP002", "SP003", "SP004", "23505"])
"""What the database says of a record when it knows that the one before it is not on its way."""
_CHECK: Final = "23514"
_LARGEST: Final = 256 * 1024 * 1024
"""How many bytes the database takes in a record."""


class PostgresCheckpointStorage:
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
        if not isinstance(limits, Limits):
            raise ConfigurationError(
                f"PostgresCheckpointStorage takes limits, and was given {type(limits).__name__}.",
                "Write limits=Limits(state_bytes=...), or leave it out.",
            )
        self._limit = min(limits.record_bytes, _LARGEST)
        self._server = Connections(dsn, sql.VERSION, most=connections, wait_seconds=wait_seconds)
        self._error: type[Exception] = driver().Error

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
        data = self._checked(thread, sequence, record, fence)
        self._save(thread, sequence, data, fence, sql.APPEND, (thread, sequence, data, fence))

    def follow(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> bool:
        """Keep `record` if the thread ends right before it, and tell whether that was so.

        It takes and raises what `append` does, except for what this is about: where the thread ends
        elsewhere nothing is saved, and False is returned.
        """
        data = self._checked(thread, sequence, record, fence)
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
                # One that waits in the server for a lock goes on without us, and may come through.
                unknown = again and _code(error) not in _SETTLED
                if again and self._found(connection, thread, sequence) == data:
                    return True  # the first try had arrived, and its answer was lost
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
        row = self._server.run(lambda connection: _row(connection, sql.HEAD, (thread,)))
        return 0 if row is None else head_of(self._server.where(), thread, row[0])

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record.

        Raises:
            StorageError: the server refuses, or is away.
        """
        rows = self._server.run(lambda connection: connection.execute(sql.THREADS).fetchall())
        return [row[0] for row in rows if is_thread(row[0])]

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first sequence that is kept and what `prune` left before it, or None.

        Raises:
            InvalidId: the thread is outside the grammar.
            LimitExceeded: the base is larger than a record may be.
            StorageError: the server refuses, or is away.
        """
        check_name("thread", thread)
        row = self._server.run(lambda connection: _row(connection, sql.BASE, (self._limit, thread)))
        if row is None:
            return None
        first = first_of(self._server.where(), thread, row[0])
        return first, record_of(thread, first, row[1], row[2], self._limit)

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Keep `base`, and remove every record below `first`, in one transaction.

        The server writes down who did it, in `safepoint.prunings`. A thread never moves
        backwards: if it begins later already, nothing happens. If it begins there, the new base
        takes the place of the one that is there, so that it can be sealed anew.

        Returns:
            How many records were removed.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            EncodeError: the base is not bytes.
            LimitExceeded: the base is larger than a record may be.
            NotFound: there is no record at `first`.
            StorageRefused: this login is not in the role of operators.
            StorageUnavailable: the server is away.
        """
        check_name("thread", thread)
        check_sequence(first)
        data = self._sized(base)

        def prune(connection: Connection) -> int:
            try:
                row = _row(connection, sql.PRUNE, (thread, first, data))
            except self._error as error:
                if _code(error) == "SP005":
                    raise missing(thread, first, 0) from error
                raise
            return 0 if row is None else int(row[0])

        return self._server.run(prune)

    def discard(self, thread: str, last: int) -> int:
        """Take every record after `last` out of the thread, because it does not verify.

        They are kept in `safepoint.discarded`, with who wrote them when and who took them out, and
        the thread goes on after `last`. What the anchor has seen cannot be discarded unnoticed: the
        ledger says that the thread was rolled back.

        Args:
            thread: the thread.
            last: the last record that stays. 0 empties a thread that was never pruned.

        Returns:
            How many records were moved.

        Raises:
            InvalidId: the thread is outside the grammar, or `last` is not 0 and no sequence.
            NotFound: there is no such record, or no such thread.
            NotOwner: another login has a lease that has not ended.
            StorageRefused: this login is not in the role of operators.
            StorageUnavailable: the server is away.
        """
        check_name("thread", thread)
        if type(last) is not int or last != 0:
            check_sequence(last)

        def discard(connection: Connection) -> int:
            try:
                row = _row(connection, sql.DISCARD, (thread, last))
            except self._error as error:
                if _code(error) == "SP001":
                    held = self._thread(connection, thread).ownership
                    raise _held_by_another_login(held) from error
                if _code(error) == "SP005":
                    raise NotFound(
                        f"Thread '{thread}' has no checkpoint {last}, so it cannot end there.",
                        "Nothing was discarded. Name the last one that verifies. A thread of which"
                        " none does, and which was not pruned, can end at 0.",
                    ) from error
                raise
            return 0 if row is None else int(row[0])

        return self._server.run(discard)

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is the lower one.

        They come in portions, and no transaction is open between two of them.

        Raises:
            InvalidId: the thread or a sequence is outside the grammar.
            CheckpointError: as read does, at the first record for which that would. Those before
                it were handed out.
        """
        return self._scan(check_name("thread", thread), span(first, last))

    def acquire(self, thread: str, owner: str, seconds: float) -> Lease:
        """Let a worker own a thread for so many seconds of the server's clock, with a new token.

        If this worker owns it already, under this login, it gets a new token as well: it was
        restarted, and what may be left of its former self is fenced off.

        Raises:
            InvalidId: the thread or the owner is outside the grammar.
            ConfigurationError: the seconds are not a number from 0.001 to 86400.
            NotOwner: another worker, or another login, owns it. The message says until when.
            StorageError: the server refuses, or is away.
        """
        check_name("thread", thread)
        check_name("worker", owner)
        now = check_span(seconds, datetime.now(UTC))

        def acquire(connection: Connection) -> Lease:
            try:
                [row] = connection.execute(sql.ACQUIRE, (thread, owner, float(seconds))).fetchall()
            except self._error as error:
                code = _code(error)
                if code not in ("SP001", _CHECK):
                    raise
                held = self._thread(connection, thread)
                if held.own or code == _CHECK:  # there is no higher token
                    held.ownership.acquired(owner, seconds, now)
                if code == _CHECK:
                    raise
                raise _of_another_login(held.ownership) from error
            return Lease(thread, owner, int(row[0]), row[1])

        return self._server.run(acquire)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Let a lease end so many seconds from now. Its token stays.

        One that has expired is renewed too, as long as nobody has taken the thread over.

        Raises:
            ConfigurationError: it is no lease, or the seconds are not a number from 0.001 to 86400.
            NotOwner: it was released, or another one took its place.
            StorageError: the server refuses, or is away.
        """
        check_lease(lease)
        now = check_span(seconds, datetime.now(UTC))
        row = self._held(
            lease,
            sql.RENEW,
            (lease.thread, lease.owner, lease.token, float(seconds)),
            lambda held: held.renewed(lease, seconds, now),
        )
        return Lease(lease.thread, lease.owner, lease.token, row[0])

    def release(self, lease: Lease) -> None:
        """Let a thread be free. Its tokens go on from where they are.

        To release a lease twice does nothing.

        Raises:
            ConfigurationError: it is no lease.
            NotOwner: another one took its place.
            StorageError: the server refuses, or is away.
        """
        check_lease(lease)
        self._held(
            lease,
            sql.RELEASE,
            (lease.thread, lease.owner, lease.token),
            lambda held: held.released(lease),
        )

    def lease(self, thread: str) -> Lease | None:
        """Return the lease that counts for a thread, also if it has expired; None if it is free.

        Raises:
            InvalidId: the thread is outside the grammar.
            StorageError: the server refuses, or is away.
        """
        check_name("thread", thread)
        held = self._server.run(lambda connection: self._thread(connection, thread))
        return held.ownership.holder

    def break_lease(self, thread: str) -> bool:
        """End the lease of somebody who should not have the thread, also if it has not expired.

        Its token is worth nothing from then on. Whoever wrote the thread last acquires it first,
        like everybody else. The server writes down who did it, in `safepoint.takings`.

        Returns:
            Whether there was a lease.

        Raises:
            InvalidId: the thread is outside the grammar.
            NotFound: there is no such thread.
            StorageRefused: this login is not in the role of operators.
            StorageUnavailable: the server is away.
        """
        check_name("thread", thread)

        def end(connection: Connection) -> bool:
            try:
                row = _row(connection, sql.BREAK, (thread,))
            except self._error as error:
                if _code(error) == "SP005":
                    raise NotFound(
                        f"There is no thread '{thread}'.", "Check its name: threads() lists them."
                    ) from error
                raise
            return row is not None and bool(row[0])

        return self._server.run(end)

    def close(self) -> None:
        """Close the connections. The next call opens one again."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _held(
        self,
        lease: Lease,
        statement: str,
        values: tuple[Any, ...],
        step: Callable[[Ownership], object],
    ) -> tuple[Any, ...]:
        """Change a lease that is held, or say in our own words why it is not."""

        def change(connection: Connection) -> tuple[Any, ...]:
            try:
                return connection.execute(statement, values).fetchall()[0]
            except self._error as error:
                if _code(error) != "SP001":
                    raise
                held = self._thread(connection, lease.thread).ownership
                step(held)
                raise _of_another_login(held) from error

        return self._server.run(change)

    def _scan(self, thread: str, sequences: range) -> Iterator[bytes]:
        statement = sql.UP if sequences.step > 0 else sql.DOWN
        while sequences:
            low, high = sorted((sequences[0], sequences[-1]))
            values = (self._limit, thread, low, high)
            rows = self._server.run(
                lambda connection, values=values: connection.execute(  # type: ignore[misc]
                    statement, values, binary=True
                ).fetchall()
            )
            if not rows or rows[0][0] != sequences[0]:
                yield self.read(thread, sequences[0])  # and otherwise it says what is wrong
                sequences = sequences[1:]
                continue
            for found, size, record in rows:
                if found != sequences[0]:
                    break  # and the next portion begins there
                yield record_of(thread, found, size, record, self._limit)
                sequences = sequences[1:]

    def _found(self, connection: Connection, thread: str, sequence: int) -> bytes | None:
        row = _row(connection, sql.READ, (self._limit, thread, sequence))
        if row is None:
            return None
        return record_of(thread, sequence, row[0], row[1], self._limit)

    def _thread(self, connection: Connection, thread: str) -> ThreadRow:
        return thread_row(self._server.where(), thread, _row(connection, sql.THREAD, (thread,)))

    def _refused(
        self,
        connection: Connection,
        error: Exception,
        thread: str,
        sequence: int,
        fence: int | None,
    ) -> Exception:
        """Return what to raise because the database did not take a record."""
        code = _code(error)
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
        return _of_another_login(held.ownership)

    def _checked(self, thread: str, sequence: int, record: bytes, fence: int | None) -> bytes:
        check_name("thread", thread)
        check_sequence(sequence)
        if fence is not None:
            check_token(fence)
        return self._sized(record)

    def _sized(self, record: bytes) -> bytes:
        data = frozen(record)
        if len(data) > self._limit:
            raise too_large(len(data), self._limit)
        return data


def _row(connection: Connection, statement: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    return connection.execute(statement, values, binary=True).fetchone()


def _of_another_login(held: Ownership) -> NotOwner:
    holder = held.holder
    if holder is None:
        return NotOwner(
            f"Thread '{held.thread}' was written by another login, and this one has not acquired"
            " it.",
            "Nothing was saved. Acquire the thread, load its latest checkpoint, and decide again"
            " from there.",
        )
    return NotOwner(
        f"Thread '{held.thread}' is owned by worker '{holder.owner}' under another login until"
        f" {spelled(holder.expires)}.",
        "Nothing was saved. Wait until then, or let that worker release it.",
    )


def _held_by_another_login(held: Ownership) -> NotOwner:
    refusal = _of_another_login(held)
    return NotOwner(
        refusal.what,
        f"Nothing was discarded. Break the lease first: break_lease('{held.thread}').",
    )


def _code(error: Exception) -> str | None:
    return getattr(error, "sqlstate", None)
