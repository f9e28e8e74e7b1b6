"""The two built-in victims: one login for everything, and one for each job."""

from __future__ import annotations

from typing import Any

from safepoint._postgres.driver import driver
from safepoint.attacks.rows_postgres import ANCHOR, OPERATOR, READER, WORKER, WORKER_2
from safepoint.attacks.sql.usual import TABLES, UsualStorage
from safepoint.attacks.sql.victim import DATABASE, SECONDS, SqlVictim
from safepoint.storage.postgres import PostgresCheckpointStorage


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
        with driver().connect(self.dsn(self.leaks)) as connection:
            connection.execute(TABLES)

    def storage(self, login: str) -> Any:
        """Open the tables."""
        return UsualStorage(self.dsn(login), SECONDS)

    @property
    def reading(self) -> tuple[str, str, str]:
        """The same login, for everybody."""
        return self.leaks, self.leaks, self.leaks


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
