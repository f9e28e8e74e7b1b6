"""The top rung on databases: the same ledger and gate, on SQLite and on PostgreSQL.

They are no rungs of their own: what an attack comes to does not depend on where records lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, TypeVar

from safepoint.anchor import Anchor, FileAnchor
from safepoint.anchor.postgres import PostgresAnchor
from safepoint.attacks.kit import EVERY
from safepoint.attacks.ladder import in_a_process
from safepoint.attacks.medium import Medium
from safepoint.attacks.outcome import Miss, Outcome
from safepoint.attacks.rows import Rows, SQLiteRows
from safepoint.attacks.rows_postgres import ANCHOR, ANCHOR_OPERATOR, OPERATOR, PostgresRows, Trial
from safepoint.attacks.rungs.gated import GatedTarget
from safepoint.ledger import Ledger

_Result = TypeVar("_Result")


class DatabaseTarget(GatedTarget):
    """The ledger on a database that the adversary owns."""

    def use(self, act: Callable[[Ledger], _Result]) -> _Result:
        """Open the database as a new process does, and use it once."""
        return act(self._ledger(self.rows.storage()))

    @property
    def rows(self) -> Rows:
        """The database, in the adversary's hands.

        Raises:
            Miss: the records are elsewhere.
        """
        if not isinstance(self.medium, Rows):
            raise Miss
        return self.medium


class SQLiteTarget(DatabaseTarget):
    """The ledger on a file of SQLite, with an anchor in a folder elsewhere."""

    name = "sqlite"
    title = "sealed, anchored and gated, on SQLite"
    media: ClassVar[tuple[type[Medium], ...]] = (SQLiteRows,)

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium or SQLiteRows(Path(folder) / "store" / "checkpoints.db"))
        self.anchor: Anchor = FileAnchor(self.folder / "anchor", create=True)


class PostgresTarget(DatabaseTarget):
    """The ledger on PostgreSQL, with an anchor in another database and under another login.

    The worker's login adds records. To prune, to delete and to accept a loss takes an operator's.

    Args:
        folder: a temporary folder.
        medium: the database; it knows the server that it is on.
    """

    name = "postgres"
    title = "sealed, anchored and gated, on PostgreSQL"
    media: ClassVar[tuple[type[Medium], ...]] = (PostgresRows,)

    def __init__(self, folder: str | Path, medium: PostgresRows) -> None:
        super().__init__(folder, medium)
        trial = medium.trial
        database = trial.database()
        self.anchor: Anchor = trial.opened(
            PostgresAnchor(trial.server.dsn(ANCHOR, database), connections=1)
        )
        self._rewinding = trial.opened(
            PostgresAnchor(trial.server.dsn(ANCHOR_OPERATOR, database), connections=1)
        )

    def prune(self, thread: str, keep: int) -> None:
        """Leave a signed base, as an operator."""
        self._operate(lambda ledger: ledger.prune(thread, keep=keep))

    def delete(self, thread: str) -> None:
        """Leave a tombstone, as an operator who has taken the thread."""

        def delete(ledger: Ledger) -> None:
            with ledger.own(thread, "operator"):
                ledger.delete(thread)

        self._operate(delete)

    def go_back(self, thread: str, sequence: int) -> None:
        """Drop the records, and accept the loss by name, as an operator."""
        for name in self.records(thread)[sequence:]:
            self.medium.delete(name)
        anchor, self.anchor = self.anchor, self._rewinding
        try:
            self._operate(lambda ledger: ledger.accept_loss(thread))
        finally:
            self.anchor = anchor

    def _operate(self, act: Callable[[Ledger], object]) -> None:
        if not isinstance(self.medium, PostgresRows):
            raise Miss
        act(self._ledger(self.medium.storage(OPERATOR)))


@contextmanager
def on_database(storage: str) -> Iterator[Callable[[str], Outcome]]:
    """Return what runs an attack by its name on a database of its own.

    Args:
        storage: `sqlite`, or `postgres`, for which a server is started, and stopped at the end.

    Raises:
        MissingPackage: psycopg, or the wheel with PostgreSQL, is not installed.
        StorageUnavailable: the server does not start.
    """
    if storage == "sqlite":
        yield lambda attack: in_a_process(lambda folder: EVERY[attack].run(SQLiteTarget(folder)))
        return
    with Trial() as trial:

        def strike(folder: str, attack: str) -> Outcome:
            return EVERY[attack].run(PostgresTarget(folder, PostgresRows(trial)))

        yield lambda attack: in_a_process(lambda folder: strike(folder, attack))
