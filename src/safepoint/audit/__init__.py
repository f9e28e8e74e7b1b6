"""The checks: each tells whether what you have deployed follows a rule."""

from __future__ import annotations

from safepoint.audit.anchor import check_anchor
from safepoint.audit.append_only import check_append_only
from safepoint.audit.approvals import check_approvals
from safepoint.audit.contents import check_bounds, check_formats, check_pickles
from safepoint.audit.defaults import check_places
from safepoint.audit.finding import Finding
from safepoint.audit.journal import check_journal
from safepoint.audit.keys import check_keys
from safepoint.audit.loads import check_loads
from safepoint.audit.location import check_location
from safepoint.audit.models import check_models, check_torch
from safepoint.audit.network import check_network
from safepoint.audit.ownership import check_ownership
from safepoint.audit.postgres import check_privileges
from safepoint.audit.reading import check_records
from safepoint.audit.resumed import check_resumptions, check_tools, check_versions
from safepoint.audit.safety import check_safety_test
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
    "check_network",
    "check_ownership",
    "check_pickles",
    "check_places",
    "check_privileges",
    "check_records",
    "check_resumptions",
    "check_safety_test",
    "check_tools",
    "check_torch",
    "check_versions",
]
