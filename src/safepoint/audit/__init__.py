"""The audit tells whether what you have deployed follows the rules."""

from __future__ import annotations

from safepoint.audit.finding import Finding
from safepoint.audit.looking import audit

__all__ = ["Finding", "audit"]
