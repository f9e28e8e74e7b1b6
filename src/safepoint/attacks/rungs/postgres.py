"""The top rung on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from safepoint.anchor import Anchor
from safepoint.attacks.medium import Medium
from safepoint.attacks.outcome import Miss
from safepoint.attacks.rows_postgres import ANCHOR, ANCHOR_OPERATOR, OPERATOR, PostgresRows
from safepoint.attacks.rungs.databases import DatabaseTarget
from safepoint.ledger import Ledger
from safepoint.postgres import PostgresAnchor


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
