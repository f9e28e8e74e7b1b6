"""PostgreSQL for workers on many machines: storage, anchor, journal, answers, schema and roles."""

from __future__ import annotations

from safepoint.postgres.anchor import PostgresAnchor
from safepoint.postgres.answers import PostgresAnswers
from safepoint.postgres.journal import PostgresJournal
from safepoint.postgres.schema import PARTS, assign, migrate, statements
from safepoint.postgres.storage import PostgresCheckpointStorage

__all__ = [
    "PARTS",
    "PostgresAnchor",
    "PostgresAnswers",
    "PostgresCheckpointStorage",
    "PostgresJournal",
    "assign",
    "migrate",
    "statements",
]
