"""Static analysis: find the loads that can run what a file says, before anyone runs them.

It closes what Bandit and Ruff leave open about PyTorch and pickle, and is no replacement for them.
"""

from __future__ import annotations

from safepoint.lint.finding import Finding
from safepoint.lint.ids import IDS, Id
from safepoint.lint.report import Report, check_paths
from safepoint.lint.source import check_source

__all__ = ["IDS", "Finding", "Id", "Report", "check_paths", "check_source"]
