"""PostgreSQL for workers on many machines: storage, anchor, journal, answers, schema and roles."""

from __future__ import annotations

from safepoint.stores.postgres.anchor import PostgresAnchor
from safepoint.stores.postgres.schema import PARTS, assign, create_schema, statements
from safepoint.stores.postgres.storage import (
    PostgresAnswers,
    PostgresCheckpointStorage,
    PostgresJournal,
)

__all__ = [
    "PARTS",
    "PostgresAnchor",
    "PostgresAnswers",
    "PostgresCheckpointStorage",
    "PostgresJournal",
    "assign",
    "create_schema",
    "statements",
]
