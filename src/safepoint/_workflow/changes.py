"""What a step changed, as far as it said so."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from safepoint.errors import WorkflowError


def changes_of(
    name: str, returned: object, given: dict[str, Any], before: dict[str, Any]
) -> Mapping[str, Any]:
    """Return what a step changed, unless it changed what it was given and did not say so."""
    changes = {} if returned is None else returned
    if not isinstance(changes, Mapping):
        raise WorkflowError(
            f"The step {name} returned {type(returned).__name__}.",
            "Return a dict of what changes in the state, nothing, or an Ask.",
        )
    unsaid = {key for key in {*given, *before} - set(changes) if _differs(key, given, before)}
    if unsaid:
        raise WorkflowError(
            f"The step {name} changed the state in place, which is not kept.",
            'Return what changes instead: return {"amount": 42}',
        )
    return changes


def _differs(key: str, given: dict[str, Any], before: dict[str, Any]) -> bool:
    if key not in given or key not in before:
        return True
    # A class without a comparison of its own differs from any copy, changed or not.
    return bool(given[key] != before[key] and copy.deepcopy(before[key]) == before[key])
