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


def behind_gap(exists: Callable[[int], bool], head: int, *, far: bool) -> int | None:
    """Return a number that exists behind the gap after `head`, or None if none is in sight.

    It asks at growing distances, so it sees a long remainder from afar and a short one only when
    it is near. That is a courtesy, not a proof: whoever can delete one record can delete the rest.

    Args:
        exists: tells of a number whether it exists.
        head: the last of the contiguous numbers.
        far: whether to look further than the number after the gap.
    """
    distance = 1
    while head + 1 + distance <= MAX_SEQUENCE:
        if exists(head + 1 + distance):
            return head + 1 + distance
        if not far:
            break
        distance *= 2
    return None
