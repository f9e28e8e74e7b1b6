"""PostgresAnswers: signed answers in a table that approvers add to, and workers only read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from safepoint.core.storage import check_place, sized
from safepoint.stores.postgres.connection import listed
from safepoint.stores.postgres.storage import Records

_LARGEST: Final = 128 * 1024
_APPEND: Final = (
    b"insert into safepoint_answers.records (tenant, chain, sequence, record)"
    b" values ($1, $2, $3, $4)"
)
_HEADS: Final = (
    b"select name, (select max(sequence) from safepoint_answers.records"
    b" where tenant = $1 and chain = name)::text from unnest($2::text[]) name"
)
_CHAINS: Final = "select distinct chain from safepoint_answers.records where tenant = %s order by 1"


class PostgresAnswers(Records):
    """Keeps answers in PostgreSQL, where workers on many machines find them.

    An approver has a login in the role that `migrate` made for approvers: the database lets it add
    an answer after the last one of a chain, read, and move the heads of the answers in the anchor.
    A worker's login reads here, and nobody changes or removes an answer.

    Args:
        dsn: a connection string as libpq takes it. What it leaves out comes from the environment.
        connections: how many connections the threads of this process share.
        wait_seconds: how long to try if the server is away or busy.

    Raises:
        ConfigurationError: `dsn` is no connection string.
        StorageError: the server cannot be used. The message says what to run.
    """

    in_order = True
    _where_is = "tenant = %s and chain = %s"

    def __init__(self, dsn: str, *, connections: int = 4, wait_seconds: float = 10.0) -> None:
        options = {"connections": connections, "wait_seconds": wait_seconds}
        super().__init__(dsn, "safepoint_answers.records", _LARGEST, **options)

    def append(self, thread: str, sequence: int, record: bytes) -> None:
        """Keep `record` at the end of a chain: committed when this returns, never over another."""
        check_place(thread, sequence)
        self._add(_APPEND, (thread, sequence, sized(record, _LARGEST)))

    def head(self, thread: str) -> int:
        """Return the highest sequence of a chain, or 0 if it has no record."""
        return self.heads([thread]).get(thread, 0)

    def heads(self, threads: Iterable[str]) -> dict[str, int]:
        """Return the highest sequence of each of these chains that has a record."""
        values = (*self._scope, listed(threads))
        rows = self._run(lambda connection: connection.ask(_HEADS, values))
        return {str(name, "ascii"): int(head) for name, head in rows if name and head}

    def threads(self) -> list[str]:
        """Return the name of each chain."""
        return [row[0] for row in self._rows(_CHAINS, self._scope)]

    def tenants(self) -> list[str]:
        """Return the name of each tenant that has a record, as far as this login sees them."""
        query = "select distinct tenant from safepoint_answers.records"
        return self._tenants_in(row[0] for row in self._rows(query))
