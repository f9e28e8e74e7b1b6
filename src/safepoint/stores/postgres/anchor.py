"""PostgresAnchor: the head of each thread in a table of its own, under a login of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, Unpack

from safepoint.core.anchor import checked, is_further
from safepoint.core.errors import AnchorUnavailable
from safepoint.core.names import Head, check_name
from safepoint.stores.postgres.connection import Connection, Options, Server, told_as

_T = TypeVar("_T")

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


class PostgresAnchor(Server):
    """Keeps the head of each thread in PostgreSQL, of any number of stores.

    Give it a login in the role that `create_schema` made for anchors, and give it to nobody who
    writes the store. The database refuses to move a head back, whoever asks; `rewind`, for an
    operator who accepts a loss, takes a login in the role of the anchor's operators and is written
    down in `safepoint_anchor.rewinds`. The operators of the store are not in it: they read heads,
    to compare, and set none back.

    Best it lies on another server than the store: who administers a server can do all to it.

    Args:
        dsn: a connection string as libpq takes it. What it leaves out comes from the environment.
        **options: `connections`, how many the threads of this process share, 4 if you say nothing;
            `wait_seconds`, how long to try if the server is away or busy, 10 if you say
            nothing.

    Raises:
        ConfigurationError: `dsn` is no connection string.
        AnchorUnavailable: the server cannot be used. The message says what to run.
    """

    def __init__(self, dsn: str, **options: Unpack[Options]) -> None:
        with told_as(AnchorUnavailable):
            super().__init__(dsn, "safepoint_anchor", **options)

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was.

        Raises:
            AnchorUnavailable: the server refuses, or is away.
        """
        rows = self._rows(_READ, *self._place(store, thread))
        return Head(*rows[0]) if rows else None

    def advance(self, store: str, thread: str, head: Head) -> None:
        """Remember `head`. One that is older than what is known, or the same, is ignored.

        Raises:
            Forked: another record is known at that sequence. The anchor stays as it is.
            AnchorUnavailable: the server refuses, or is away.
        """
        place = self._place(store, thread)
        checked(head)
        if not self._rows(_ADVANCE, *place, head.sequence, head.digest):
            is_further(thread, self.read(store, thread), head)

    def threads(self, store: str) -> list[str]:
        """Return the name of each thread of the store that was ever seen, sorted.

        Raises:
            AnchorUnavailable: the server refuses, or is away.
        """
        return [row[0] for row in self._rows(_THREADS, self._tenant, check_name("store", store))]

    def tenants(self, store: str) -> list[str]:
        """Return each tenant of whom a thread was seen, sorted, as far as this login sees them.

        Raises:
            AnchorUnavailable: the server refuses, or is away.
        """
        return self._tenants_in(row[0] for row in self._rows(_TENANTS, check_name("store", store)))

    def rewind(self, store: str, thread: str, head: Head | None) -> None:
        """Set the head to what you say, further back or forgotten (None). It takes an operator.

        What lay behind `head` is given up: from now on nothing tells a rollback to it from the
        truth. The server writes down who did it.

        Raises:
            AnchorUnavailable: this login is not in the role of the anchor's operators, or the
                server is away.
        """
        to = (None, None) if head is None else (checked(head).sequence, head.digest)
        self._rows(_REWIND, *self._place(store, thread), *to)

    def _place(self, store: str, thread: str) -> tuple[str, str, str]:
        return self._tenant, check_name("store", store), check_name("thread", thread)

    def _run(self, act: Callable[[Connection], _T]) -> _T:
        with told_as(AnchorUnavailable):
            return super()._run(act)
