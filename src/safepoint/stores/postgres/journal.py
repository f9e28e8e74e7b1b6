"""PostgresJournal: chains of sealed records in a table, under a login that can only add to them."""

from __future__ import annotations

from typing import Self, Unpack

from safepoint.core.anchor import Anchor
from safepoint.core.errors import JournalUnavailable
from safepoint.core.journal import Journal
from safepoint.core.keys import Keyring
from safepoint.core.names import check_name
from safepoint.stores.postgres.connection import Options, told_as
from safepoint.stores.postgres.storage import Records


class PostgresJournal(Journal):
    """A journal in a table, for workers on many machines.

    Give it a login in the role that `create_schema` made for journals: it may add an entry
    after the last one of a chain and read, and nobody may change or remove one. The chains and the
    signatures show what somebody did who administers the server; that the newest entries were cut
    off, or a whole chain, shows with an anchor, on another server.

    Args:
        dsn: a connection string as libpq takes it. What it leaves out comes from the environment.
        keys: as for `Journal`.
        name: as for `Journal`. Journals of several names share a table.
        anchor: as for `Journal`.
        **options: `connections`, how many the threads of this process share, 4 if you say nothing;
            `wait_seconds`, how long to try if the server is away or busy, 10 if you say
            nothing.

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
        **options: Unpack[Options],
    ) -> None:
        scope = check_name("journal", name)
        with told_as(JournalUnavailable):
            self._entries = Records(dsn, "journal", scope, **options)
        super().__init__(self._entries, keys=keys, name=name, anchor=anchor)

    def close(self) -> None:
        """Close the connections. The next call opens one again."""
        self._entries.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
