"""The two built-in victims: one login for everything, and one for each job."""

from __future__ import annotations

from typing import Any

import psycopg

from safepoint.attacks.outcome import step
from safepoint.attacks.rows_postgres import (
    ANCHOR,
    ANCHOR_OPERATOR,
    JOURNAL,
    OPERATOR,
    READER,
    WORKER,
    WORKER_2,
)
from safepoint.attacks.sql.usual import TABLES, TRACES, UsualStorage
from safepoint.attacks.sql.victim import DATABASE, MENDED, SECONDS, STORE, SqlVictim
from safepoint.journal import Actor, Event
from safepoint.names import Head
from safepoint.postgres import PostgresAnchor, PostgresCheckpointStorage, PostgresJournal


class OneRole(SqlVictim):
    """UNSAFE: the login that the application writes with owns the tables, the anchor's too."""

    name = "one-role"
    leaks = other = "app"

    def create(self) -> None:
        """Make the tables as the application itself."""
        if self.leaks not in self.trial.server.logins:
            self.trial.server.login(self.leaks)
        with self.superuser("postgres") as connection:
            connection.execute(f"create database {DATABASE} owner {self.leaks}")
        with psycopg.connect(self.dsn(self.leaks)) as connection:
            connection.execute(TABLES)

    def storage(self, login: str) -> Any:
        """Open the tables."""
        return UsualStorage(self.dsn(login), SECONDS)

    @property
    def reading(self) -> tuple[str, str, str]:
        """The same login, for everybody."""
        return self.leaks, self.leaks, self.leaks

    def leave_traces(self) -> None:
        """Write rows into the tables that are there for it."""
        with psycopg.connect(self.dsn(self.leaks)) as connection:
            connection.execute(TRACES)


class LeastPrivilege(SqlVictim):
    """What `migrate` makes, and a login for each worker and each job."""

    name = "least-privilege"
    leaks = WORKER
    other = WORKER_2

    def create(self) -> None:
        """Copy a database in which `migrate` has run."""
        with self.superuser("postgres") as connection:
            connection.execute(f"create database {DATABASE} template {self.trial.template}")

    def storage(self, login: str) -> Any:
        """Open the storage."""
        return PostgresCheckpointStorage(self.dsn(login), connections=1, wait_seconds=SECONDS)

    @property
    def reading(self) -> tuple[str, str, str]:
        """A reader's, the anchor's and an operator's."""
        return READER, ANCHOR, OPERATOR

    def leave_traces(self) -> None:
        """Let two operators undo a step, one in the store and one in the anchor, and note it."""
        ledger = self.ledger(self.other)
        kept, lost = (ledger.save(MENDED, step(number)) for number in (1, 2))
        with self.storage(OPERATOR) as storage:
            storage.discard(MENDED, kept.sequence)
        with PostgresAnchor(self.dsn(ANCHOR_OPERATOR), connections=1) as anchor:
            anchor.rewind(STORE, MENDED, Head(kept.sequence, kept.digest))
        actor = Actor(OPERATOR, how="login")
        with PostgresJournal(self.dsn(JOURNAL), keys=self.keys, connections=1) as journal:
            journal.record(Event("accept-loss", "done", actor, STORE, MENDED, lost.sequence))
