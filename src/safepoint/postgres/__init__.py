"""PostgreSQL for workers on many machines: storage, anchor, journal, schema and roles."""

from __future__ import annotations

from safepoint.postgres.anchor import PostgresAnchor
from safepoint.postgres.journal import PostgresJournal
from safepoint.postgres.schema import PARTS, migrate, statements
from safepoint.postgres.storage import PostgresCheckpointStorage

__all__ = [
    "PARTS",
    "PostgresAnchor",
    "PostgresCheckpointStorage",
    "PostgresJournal",
    "migrate",
    "statements",
]
