"""The top rung on databases: the same ledger and gate, on SQLite and on PostgreSQL.

They are no rungs of their own: what an attack comes to does not depend on where records lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, TypeVar

from safepoint.anchor import Anchor, FileAnchor
from safepoint.attacks.kit import EVERY
from safepoint.attacks.ladder import in_a_process
from safepoint.attacks.medium import Medium
from safepoint.attacks.outcome import Miss, Outcome
from safepoint.attacks.rows import Rows, SQLiteRows
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
    from safepoint.attacks.rows_postgres import PostgresRows, Trial
    from safepoint.attacks.rungs.postgres import PostgresTarget

    with Trial() as trial:

        def strike(folder: str, attack: str) -> Outcome:
            return EVERY[attack].run(PostgresTarget(folder, PostgresRows(trial)))

        yield lambda attack: in_a_process(lambda folder: strike(folder, attack))
