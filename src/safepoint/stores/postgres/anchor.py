"""PostgresAnchor: the head of each thread in a separate table, under a separate login."""

from __future__ import annotations

from typing import Final, Unpack

from safepoint.core.names import Head, check_name, is_further
from safepoint.stores.postgres.connection import Options, Session

_READ: Final = (
    "select sequence, digest from safepoint_anchor.heads"
    " where tenant = $1 and store = $2 and thread = $3"
)
_ADVANCE: Final = (
    "insert into safepoint_anchor.heads (tenant, store, thread, sequence, digest)"
    " values ($1, $2, $3, $4, $5) on conflict (tenant, store, thread) do update"
    " set sequence = excluded.sequence, digest = excluded.digest"
    " where heads.sequence < excluded.sequence returning 1"
)
_THREADS: Final = (
    "select thread from safepoint_anchor.heads where tenant = $1 and store = $2 order by thread"
)
_TENANTS: Final = "select distinct tenant from safepoint_anchor.heads where store = $1"
_REWIND: Final = "select safepoint_anchor.rewind($1, $2, $3, $4, $5)"


class PostgresAnchor(Session):
    """Keeps the head of each thread in PostgreSQL, for any number of stores.

    Give it a login in the anchors' role that `create_schema` created. Do not give that login to
    anyone who writes the store. The database refuses to move a head back. Only `rewind`, for an
    operator who accepts a loss, can do that: it needs a login in the role of anchor operators, and
    `safepoint_anchor.rewinds` records each use. Store operators are not in that role: they can read
    heads, but cannot set them back.

    Put it on another server than the store, because a server's administrator can change everything.

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
        super().__init__(dsn, "safepoint_anchor", **options)

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was.

        Raises:
            Unavailable: the server refuses, or is away.
        """
        rows = self._rows(_READ, *self._place(store, thread))
        return Head(*rows[0]) if rows else None

    def advance(self, store: str, thread: str, head: Head) -> None:
        """Store `head`. A head that is older than the current one, or equal to it, is ignored.

        Raises:
            RolledBack: another record is known at that sequence. The anchor does not change.
            Unavailable: the server refuses, or is away.
        """
        place = self._place(store, thread)
        if not self._rows(_ADVANCE, *place, head.sequence, head.digest):
            is_further(thread, self.read(store, thread), head)

    def threads(self, store: str) -> list[str]:
        """Return the name of each thread of the store that was ever seen, sorted.

        Raises:
            Unavailable: the server refuses, or is away.
        """
        return [row[0] for row in self._rows(_THREADS, self._tenant, check_name("store", store))]

    def tenants(self, store: str) -> list[str]:
        """Return the tenants that have a thread in this anchor and that this login sees, sorted.

        Raises:
            Unavailable: the server refuses, or is away.
        """
        return self._tenants_in(row[0] for row in self._rows(_TENANTS, check_name("store", store)))

    def rewind(self, store: str, thread: str, head: Head | None) -> None:
        """Set the head, to an earlier one or to none. It needs an anchor operator's login.

        Everything after `head` is given up: from then on, a rollback to `head` cannot be detected.
        The server records who did it.

        Raises:
            Unavailable: this login is not in the role of anchor operators, or the server is
                away.
        """
        to = (None, None) if head is None else (head.sequence, head.digest)
        self._rows(_REWIND, *self._place(store, thread), *to)

    def _place(self, store: str, thread: str) -> tuple[str, str, str]:
        return self._tenant, check_name("store", store), check_name("thread", thread)
