"""PostgresJournal: chains of sealed records in a table, under a login that can only add to them."""

from __future__ import annotations

from typing import Self, Unpack

from safepoint.core.anchor import Anchor
from safepoint.core.journal import Journal
from safepoint.core.keys import Keyring
from safepoint.core.names import check_name
from safepoint.stores.postgres.connection import Options
from safepoint.stores.postgres.storage import Records


class PostgresJournal(Journal):
    """A journal in a table, for workers on many machines.

    Give it a login in the journals' role that `create_schema` created. It can read entries
    and append to a chain, but the database allows no login to change or remove an entry. Chains and
    signatures reveal an edit by the server's administrator. Only an anchor on another server
    reveals that the newest entries, or a whole chain, were removed.

    Args:
        dsn: a libpq connection string. Missing values come from the environment.
        keys: as for `Journal`.
        name: as for `Journal`. Journals with different names share the table.
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
        scope = check_name("journal", name)
        self._entries = Records(dsn, "journal", scope, **options)
        super().__init__(self._entries, keys=keys, name=name, anchor=anchor)

    def close(self) -> None:
        """Close the connections. The next call opens one again."""
        self._entries.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
