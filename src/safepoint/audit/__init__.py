"""The checks: each tells whether what you have deployed follows a rule."""

from __future__ import annotations

from safepoint.audit.contents import check_bounds, check_formats, check_pickles
from safepoint.audit.finding import Finding
from safepoint.audit.folder import check_append_only, check_location, check_ownership, check_places
from safepoint.audit.ledger import check_anchor, check_journal, check_keys, check_operators
from safepoint.audit.models import check_loads, check_models, check_safety_test, check_torch
from safepoint.audit.postgres import check_postgres
from safepoint.audit.reading import check_records, check_tenants
from safepoint.audit.runs import (
    check_approvals,
    check_resumptions,
    check_tools,
    check_versions,
    check_waits,
)
from safepoint.audit.sqlite import check_database

__all__ = [
    "Finding",
    "check_anchor",
    "check_append_only",
    "check_approvals",
    "check_bounds",
    "check_database",
    "check_formats",
    "check_journal",
    "check_keys",
    "check_loads",
    "check_location",
    "check_models",
    "check_operators",
    "check_ownership",
    "check_pickles",
    "check_places",
    "check_postgres",
    "check_records",
    "check_resumptions",
    "check_safety_test",
    "check_tenants",
    "check_tools",
    "check_torch",
    "check_versions",
    "check_waits",
]
