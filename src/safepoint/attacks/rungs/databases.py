"""The top rung on databases: the same ledger and gate, on SQLite and on PostgreSQL.

They are no rungs of their own: what an attack comes to does not depend on where records lie.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, TypeVar

from safepoint.anchor import Anchor, FileAnchor
from safepoint.attacks.medium import Medium
from safepoint.attacks.outcome import Miss
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
