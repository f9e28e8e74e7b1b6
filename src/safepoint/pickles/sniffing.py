"""Is this a pickle? Asked of bytes that may be anything, and answered without running any."""

from __future__ import annotations

from typing import Final

from safepoint.errors import LimitExceeded
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.scanning import scan
from safepoint.pickles.walking import walk

HEAD: Final = 4096
"""How much of something large is looked at to tell what it is."""


def is_marked(data: bytes) -> bool:
    """Tell whether this begins with the first sign of a pickle since protocol 2."""
    return data[:1] == b"\x80" and b"" < data[1:2] <= b"\x05"


def begins(data: bytes, limits: PickleLimits) -> bool:
    """Tell whether this begins like a pickle: by its first bytes, or by what it would import."""
    return is_marked(data) or asks_for_names(data, limits)


def asks_for_names(data: bytes, limits: PickleLimits) -> bool:
    """Tell whether an unpickler would ask for names before it ends or breaks."""
    return walk(data, limits, several=True).asks


def is_whole(data: bytes, limits: PickleLimits) -> bool:
    """Tell whether these bytes are one pickle, and nothing else."""
    try:
        found = scan(data, limits=limits)
    except LimitExceeded:
        return False
    return found.broken is None and found.end == len(data) and found.opcodes > 1
