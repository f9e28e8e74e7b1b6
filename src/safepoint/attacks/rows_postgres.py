"""The same hands in PostgreSQL: a superuser, on a server that is there for the trial alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Self

from safepoint.attacks.rows import Row, Rows
from safepoint.postgres import PostgresCheckpointStorage, migrate
from safepoint.postgres.connection import psycopg
from safepoint.testing.postgres import Server

WORKER: Final = "worker_1"
WORKER_2: Final = "worker_2"
READER: Final = "reader_1"
OPERATOR: Final = "operator_1"
ANCHOR: Final = "anchor_1"
ANCHOR_OPERATOR: Final = "anchor_operator_1"
JOURNAL: Final = "journal_1"
_ROLES: Final = {
    WORKER: "safepoint_writer",
    WORKER_2: "safepoint_writer",
    READER: "safepoint_reader",
    OPERATOR: "safepoint_operator",
    ANCHOR: "safepoint_anchor",
    ANCHOR_OPERATOR: "safepoint_anchor_operator",
    JOURNAL: "safepoint_journal",
}
_SETTINGS: Final = {"fsync": "off", "full_page_writes": "off", "scram_iterations": "1"}
_TEMPLATE: Final = "migrated"
_TABLES: Final = (
    "safepoint.checkpoints",
    "safepoint.threads",
    "safepoint.discarded",
    "safepoint.takings",
    "safepoint.prunings",
    "safepoint_anchor.heads",
    "safepoint_anchor.rewinds",
    "safepoint_journal.records",
)


class Trial:
    """A PostgreSQL that is there to be attacked, with logins and as many databases as it takes.

    Nothing waits for its disk, and no password is hashed for long: no attack asks for that.

    Raises:
        MissingPackage: psycopg, or the wheel with PostgreSQL, is not installed.
        StorageUnavailable: it does not start.
    """

    template: Final = _TEMPLATE

    def __init__(self) -> None:
        self.server = Server(settings=_SETTINGS)
        self._taken = 0
        self._opened: list[Any] = []

    def __enter__(self) -> Self:
        self.server.__enter__()
        try:
            self.server.database(_TEMPLATE)
            migrate(self.server.dsn(database=_TEMPLATE))
            for login, role in _ROLES.items():
                self.server.login(login, role)
        except BaseException:
            self.server.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.reset()
        self.server.close()

    def database(self) -> str:
        """Return the name of a database with the schema in it, and nothing else."""
        self._taken += 1
        name = f"trial_{self._taken}"
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            query = "select 1 from pg_database where datname = %s"
            if connection.execute(query, (name,)).fetchone() is None:
                self.server.database(name, template=_TEMPLATE)
                return name
        with self.superuser(name) as connection:
            for table in _TABLES:
                connection.execute(f"delete from {table}")  # noqa: S608  of our own
        return name

    def superuser(self, database: str) -> Any:
        """Connect as one for whom no trigger fires."""
        return psycopg.connect(
            self.server.dsn(database=database),
            autocommit=True,
            options="-c session_replication_role=replica",
        )

    def opened(self, closable: Any) -> Any:
        """Remember what to close when the databases are taken anew."""
        self._opened.append(closable)
        return closable

    def reset(self) -> None:
        """Close what was opened, and let the databases be taken anew."""
        while self._opened:
            self._opened.pop().close()
        self._taken = 0


class PostgresRows(Rows):
    """Records in a database of PostgreSQL, in the hands of a superuser."""

    begins = 1

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.database = trial.database()
        self._hands = trial.opened(trial.superuser(self.database))
        self._storages: dict[str, PostgresCheckpointStorage] = {}

    def dsn(self, login: str) -> str:
        """Return the connection string of a login."""
        return self.trial.server.dsn(login, self.database)

    def storage(self, login: str = WORKER) -> PostgresCheckpointStorage:
        """Return the storage. It keeps connections, and nothing of what it has read."""
        if login not in self._storages:
            opened = self.trial.opened(PostgresCheckpointStorage(self.dsn(login)))
            self._storages[login] = opened
        return self._storages[login]

    def beside(self) -> PostgresRows:
        """Return another database."""
        return PostgresRows(self.trial)

    def ask(self, statement: str, values: Row = ()) -> list[Row]:
        """Run a statement."""
        text = statement.format(checkpoints="safepoint.checkpoints", threads="safepoint.threads")
        done = self._hands.execute(text.replace("?", "%s"), values)
        rows: list[Row] = [] if done.description is None else done.fetchall()
        return rows

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let it be one transaction. Triggers do not fire for this connection."""
        with self._hands.transaction():
            yield

    def moment(self, expires: Any) -> datetime:
        """Return it: it is a time already."""
        found: datetime = expires
        return found

    def _begin(self, thread: str) -> None:
        query = "insert into {threads} (thread, login) values (?, ?) on conflict do nothing"
        self.ask(query, (thread, WORKER))
        self.set(thread, login=WORKER)

    def _keep(self, thread: str, sequence: int, record: bytes) -> None:
        query = (
            "insert into {checkpoints} (thread, sequence, record, login, written)"
            " values (?, ?, ?, ?, now())"
        )
        self.ask(query, (thread, sequence, record, WORKER))
