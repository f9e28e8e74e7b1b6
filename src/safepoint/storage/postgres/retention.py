"""Retention: what an operator removes from a store, on record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safepoint.errors import NotFound, NotOwner
from safepoint.names import check_name, check_sequence
from safepoint.storage.base import Ownership, missing, record_of, sized
from safepoint.storage.postgres import queries as sql
from safepoint.storage.postgres.database import Database, code_of, of_another_login, row_of
from safepoint.storage.postgres.rows import first_of

if TYPE_CHECKING:
    from safepoint._postgres.driver import Connection


class Retention(Database):
    """The beginning of a thread, and its spoiled end."""

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first sequence that is kept and what `prune` left before it, or None.

        Raises:
            InvalidId: the thread is outside the grammar.
            LimitExceeded: the base is larger than a record may be.
            StorageError: the server refuses, or is away.
        """
        check_name("thread", thread)
        row = self._server.run(
            lambda connection: row_of(connection, sql.BASE, (self._limit, thread))
        )
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
        data = sized(base, self._limit)

        def prune(connection: Connection) -> int:
            try:
                row = row_of(connection, sql.PRUNE, (thread, first, data))
            except self._error as error:
                if code_of(error) == "SP005":
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
                row = row_of(connection, sql.DISCARD, (thread, last))
            except self._error as error:
                if code_of(error) == "SP001":
                    held = self._thread(connection, thread).ownership
                    raise _held_by_another_login(held) from error
                if code_of(error) == "SP005":
                    raise NotFound(
                        f"Thread '{thread}' has no checkpoint {last}, so it cannot end there.",
                        "Nothing was discarded. Name the last one that verifies. A thread of which"
                        " none does, and which was not pruned, can end at 0.",
                    ) from error
                raise
            return 0 if row is None else int(row[0])

        return self._server.run(discard)


def _held_by_another_login(held: Ownership) -> NotOwner:
    refusal = of_another_login(held)
    return NotOwner(
        refusal.what,
        f"Nothing was discarded. Break the lease first: break_lease('{held.thread}').",
    )
