"""Pickles, looked at and read as data. Nothing in this package runs what a pickle asks for.

To know what a file is and what it would do, inspect it. To get old state out of pickles, read it
once, as data, and seal it. No path that loads a checkpoint does either.
"""

from __future__ import annotations

from safepoint.pickles.inspection import Inspected, Inspection, inspect
from safepoint.pickles.kinds import Kind, identify
from safepoint.pickles.limits import DEFAULT_PICKLE_LIMITS, PickleLimits
from safepoint.pickles.migration import Summary, migrate_pickles, pickled_files
from safepoint.pickles.reading import read_pickle

__all__ = [
    "DEFAULT_PICKLE_LIMITS",
    "Inspected",
    "Inspection",
    "Kind",
    "PickleLimits",
    "Summary",
    "identify",
    "inspect",
    "migrate_pickles",
    "pickled_files",
    "read_pickle",
]
