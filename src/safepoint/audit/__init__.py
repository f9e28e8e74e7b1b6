"""The checks: each tells whether what you have deployed follows a rule."""

from __future__ import annotations

from safepoint.audit.finding import Finding
from safepoint.audit.location import check_location
from safepoint.audit.pickles import check_pickles
from safepoint.audit.records import check_records

__all__ = ["Finding", "check_location", "check_pickles", "check_records"]
