"""Finding the head of a thread without listing it."""

from __future__ import annotations

from collections.abc import Callable

from safepoint.ids import MAX_SEQUENCE


def highest(exists: Callable[[int], bool], start: int = 0) -> int:
    """Return the last of the contiguous numbers that exist, or 0.

    Args:
        exists: tells of a number whether it exists.
        start: where to begin; ignored if it does not exist.
    """
    low = start if start and exists(start) else 0
    step = 1
    while low + step <= MAX_SEQUENCE and exists(low + step):
        low += step
        step *= 2
    high = min(low + step, MAX_SEQUENCE + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exists(middle) else (low, middle)
    return low
