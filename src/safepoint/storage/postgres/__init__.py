"""PostgreSQL for workers on many machines: the storage, and the schema with its roles."""

from __future__ import annotations

from safepoint._postgres.migrating import PARTS, migrate, statements
from safepoint.storage.postgres.storage import PostgresCheckpointStorage

__all__ = ["PARTS", "PostgresCheckpointStorage", "migrate", "statements"]
