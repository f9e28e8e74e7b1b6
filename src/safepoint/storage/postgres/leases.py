"""Leases: who may write a thread, by the server's clock and bound to a login."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from safepoint.errors import NotFound
from safepoint.names import check_name
from safepoint.storage.base import Lease, Ownership, check_lease, check_span
from safepoint.storage.postgres import queries as sql
from safepoint.storage.postgres.database import Database, code_of, of_another_login, row_of

if TYPE_CHECKING:
    from safepoint._postgres.driver import Connection

_CHECK: Final = "23514"


class Leases(Database):
    """The leases of a store: the server holds them, and no login can change their table."""

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
                code = code_of(error)
                if code not in ("SP001", _CHECK):
                    raise
                held = self._thread(connection, thread)
                if held.own or code == _CHECK:  # there is no higher token
                    held.ownership.acquired(owner, seconds, now)
                if code == _CHECK:
                    raise
                raise of_another_login(held.ownership) from error
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

    def foreign(self, thread: str) -> bool:
        """Tell whether another login wrote or took a thread last, so that this one must acquire it.

        A ledger asks this before a step acts, and not only when it saves.

        Raises:
            InvalidId: the thread is outside the grammar.
            StorageError: the server refuses, or is away.
        """
        check_name("thread", thread)
        return not self._server.run(lambda connection: self._thread(connection, thread)).own

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
                row = row_of(connection, sql.BREAK, (thread,))
            except self._error as error:
                if code_of(error) == "SP005":
                    raise NotFound(
                        f"There is no thread '{thread}'.", "Check its name: threads() lists them."
                    ) from error
                raise
            return row is not None and bool(row[0])

        return self._server.run(end)

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
                if code_of(error) != "SP001":
                    raise
                held = self._thread(connection, lease.thread).ownership
                step(held)
                raise of_another_login(held) from error

        return self._server.run(change)
