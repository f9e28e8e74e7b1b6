"""For tests of what you build on this package: a suite for storages, a real PostgreSQL."""

from __future__ import annotations

from safepoint.testing.storages import StorageSuite

__all__ = ["StorageSuite"]
