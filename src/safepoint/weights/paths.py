"""The way to a tensor in a state: keys and indices, joined with `/`, and never long.

A file can lead to one tensor through a long key many times. Each way would be a copy of the key.
"""

from __future__ import annotations

from typing import Final

from safepoint.errors import LimitExceeded

LONGEST: Final = 4096
_TOO_LONG: Final = "/" * (LONGEST + 1)  # longer than any way that is kept


def joined(path: str, step: str) -> str:
    """Return the way one step further. One that is too long is not kept."""
    if path == _TOO_LONG or len(path) + len(step) >= LONGEST:
        return _TOO_LONG
    return f"{path}/{step}" if path else step


def checked_path(path: str) -> str:
    """Return the way to a tensor.

    Raises:
        LimitExceeded: it is too long.
    """
    if path == _TOO_LONG:
        raise LimitExceeded(
            f"The way to a tensor in the state is longer than {LONGEST} characters.",
            "Use shorter keys, or fewer levels.",
        )
    return path
