"""PostgresJournal: chains of sealed records in a table, under a login that can only add to them."""

from __future__ import annotations

from typing import Any, Final, Self

from safepoint.core.anchor import Anchor
from safepoint.core.errors import JournalUnavailable
from safepoint.core.journal import Journal
from safepoint.core.keys import Keyring
from safepoint.core.names import check_name
from safepoint.stores.postgres.connection import told_as
from safepoint.stores.postgres.storage import Records

_LARGEST: Final = 65536
_HEAD: Final = (
    b"select max(sequence)::text from safepoint_journal.records"
    b" where tenant = $1 and journal = $2 and chain = $3"
)
_CHAINS: Final = (
    "select distinct chain from safepoint_journal.records where tenant = %s and journal = %s"
)
_TENANTS: Final = "select distinct tenant from safepoint_journal.records where journal = %s"
_APPEND: Final = (
    b"insert into safepoint_journal.records (tenant, journal, chain, sequence, record)"
    b" values ($1, $2, $3, $4, $5)"
)


class PostgresJournal(Journal):
    """A journal in a table, for workers on many machines.

    Give it a login in the role that `migrate` made for journals: the database lets it add an entry
    after the last one of a chain and read, and lets nobody change or remove one. The chains and the
    signatures show what somebody did who administers the server; that the newest entries were cut
    off, or a whole chain, shows with an anchor, on another server.

    Args:
        dsn: a connection string as libpq takes it. What it leaves out comes from the environment.
        keys: as for `Journal`.
        name: as for `Journal`. Journals of several names share a table.
        anchor: as for `Journal`.
        connections: how many connections the threads of this process share.
        wait_seconds: how long to try if the server is away or busy.

    Raises:
        ConfigurationError: `dsn` is no connection string.
        JournalUnavailable: the server cannot be used. The message says what to run.
    """

    def __init__(
        self,
        dsn: str,
        *,
        keys: Keyring,
        name: str = "journal",
        anchor: Anchor | None = None,
        connections: int = 4,
        wait_seconds: float = 10.0,
    ) -> None:
        check_name("journal", name)
        with told_as(JournalUnavailable):
            self._entries = _Entries(dsn, name, connections=connections, wait_seconds=wait_seconds)
        super().__init__(self._entries, keys=keys, name=name, anchor=anchor)

    def close(self) -> None:
        """Close the connections. The next call opens one again."""
        self._entries.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Entries(Records):
    """The records of one journal, in its chains."""

    in_order = True
    _where_is = "tenant = %s and journal = %s and chain = %s"

    def __init__(self, dsn: str, name: str, **options: Any) -> None:
        super().__init__(dsn, "safepoint_journal.records", _LARGEST, **options)
        self._apart = (name,)

    def append(self, thread: str, sequence: int, record: bytes) -> None:
        self._add(_APPEND, (thread, sequence, record))

    def head(self, thread: str) -> int:
        values = (*self._scope, thread)
        return int(self._run(lambda connection: connection.ask(_HEAD, values))[0][0] or 0)

    def threads(self) -> list[str]:
        return [row[0] for row in self._rows(_CHAINS, self._scope)]

    def tenants(self) -> list[str]:
        return self._tenants_in(row[0] for row in self._rows(_TENANTS, self._apart))
