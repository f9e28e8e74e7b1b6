"""PostgresAnswers: signed answers in a table that approvers add to, and workers only read."""

from __future__ import annotations

from typing import Unpack

from safepoint.stores.postgres.connection import Options
from safepoint.stores.postgres.storage import Records


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

    def __init__(self, dsn: str, **options: Unpack[Options]) -> None:
        super().__init__(dsn, "answers", **options)
