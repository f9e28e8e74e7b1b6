"""The checks: each tells whether what you have deployed follows a rule."""

from __future__ import annotations

from safepoint.audit.anchor import check_anchor
from safepoint.audit.append_only import check_append_only
from safepoint.audit.bounds import check_bounds
from safepoint.audit.finding import Finding
from safepoint.audit.formats import check_formats
from safepoint.audit.keys import check_keys
from safepoint.audit.location import check_location
from safepoint.audit.pickles import check_pickles
from safepoint.audit.records import check_records

__all__ = [
    "Finding",
    "check_anchor",
    "check_append_only",
    "check_bounds",
    "check_formats",
    "check_keys",
    "check_location",
    "check_pickles",
    "check_records",
]
