"""Is this a pickle? Asked of bytes that may be anything, and answered without running any."""

from __future__ import annotations

from typing import Final

from safepoint.errors import LimitExceeded
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.opcodes import CUT
from safepoint.pickles.scanning import scan

HEAD: Final = 4096
"""How much of something large is looked at to tell what it is."""


def begins(data: bytes, limits: PickleLimits) -> bool:
    """Tell whether this begins like a pickle: by its first bytes, or by what it would import."""
    return (data[:1] == b"\x80" and b"" < data[1:2] <= b"\x05") or asks_for_names(data, limits)


def asks_for_names(data: bytes, limits: PickleLimits) -> bool:
    """Tell whether it asks for names that are names, before it ends or breaks."""
    try:
        found = scan(data[:HEAD], limits=limits)
    except LimitExceeded:
        return False  # so does a long line of text that begins with an I
    parts = [part for asked in found.asked for part in f"{asked.module}.{asked.name}".split(".")]
    return bool(parts) and all(part.isidentifier() for part in parts)


def is_whole(data: bytes, limits: PickleLimits) -> bool:
    """Tell whether these bytes are one pickle, and nothing else."""
    try:
        found = scan(data, limits=limits)
    except LimitExceeded:
        return False
    return found.broken is None and found.end == len(data) and found.opcodes > 1


def goes_on(head: bytes, limits: PickleLimits) -> bool:
    """Tell whether all of it reads as instructions, so that the rest has to be looked at."""
    try:
        found = scan(head, limits=limits)
    except LimitExceeded:
        return False
    return found.broken is None or found.broken.what == CUT
