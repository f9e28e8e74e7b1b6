"""For tests of what you build on this package: a suite for storages, a real PostgreSQL."""

from __future__ import annotations

from safepoint.testing._report import Claim, Report
from safepoint.testing._suite import NotOffered
from safepoint.testing.storages import StorageSuite, check_storage

__all__ = ["Claim", "NotOffered", "Report", "StorageSuite", "check_storage"]
