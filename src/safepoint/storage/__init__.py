"""Storage moves sealed bytes, append-only. It decodes nothing and decides nothing."""

from __future__ import annotations

from safepoint.storage.base import (
    CheckpointStorage,
    Lease,
    LeasingStorage,
    RetentionStorage,
)
from safepoint.storage.file import FileCheckpointStorage
from safepoint.storage.memory import InMemoryCheckpointStorage
from safepoint.storage.sqlite import SQLiteCheckpointStorage

__all__ = [
    "CheckpointStorage",
    "FileCheckpointStorage",
    "InMemoryCheckpointStorage",
    "Lease",
    "LeasingStorage",
    "RetentionStorage",
    "SQLiteCheckpointStorage",
]
