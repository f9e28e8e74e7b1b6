"""Anchors: where the head of each thread is kept, out of reach of whoever writes the storage."""

from __future__ import annotations

from safepoint.anchor.base import Anchor, is_further
from safepoint.anchor.file import FileAnchor
from safepoint.anchor.memory import InMemoryAnchor
from safepoint.anchor.sqlite import SQLiteAnchor

__all__ = ["Anchor", "FileAnchor", "InMemoryAnchor", "SQLiteAnchor", "is_further"]
