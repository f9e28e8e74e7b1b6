"""PostgreSQL for workers on many machines: storage, anchor, journal, and the schema with its roles."""

from __future__ import annotations

from safepoint.postgres.anchor import PostgresAnchor
from safepoint.postgres.schema import PARTS, migrate, statements
from safepoint.postgres.storage import PostgresCheckpointStorage

__all__ = ["PARTS", "PostgresAnchor", "PostgresCheckpointStorage", "migrate", "statements"]
