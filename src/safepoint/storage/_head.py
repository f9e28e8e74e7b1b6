"""Finding the head of a thread without listing it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from safepoint.errors import RecordsMissing
from safepoint.names import MAX_SEQUENCE
from safepoint.storage.base import beheaded, gap


class Sequences(Protocol):
    """What is asked of a thread to find its head."""

    def exists(self, sequence: int) -> bool:
        """Tell whether the thread has a record with that number."""

    def first(self) -> int:
        """Return where the thread begins, or 0 if it was never pruned."""

    def anything(self) -> int | None:
        """Return the number of some record, or None if the thread has none."""


def find_head(thread: str, sequences: Sequences, start: int) -> int:
    """Return the highest of the contiguous numbers, 0 if there is none.

    Args:
        thread: the thread, for the message.
        sequences: the thread.
        start: a number to begin at, such as the head as it was last seen.

    Raises:
        RecordsMissing: there are records behind one that is gone.
    """
    first = sequences.first()
    while True:
        refusal: RecordsMissing | None = None
        head = 0
        try:
            head = _find(thread, sequences, first, start)
        except RecordsMissing as error:
            refusal = error
        before, first = first, sequences.first()
        if first != before:
            continue  # pruned meanwhile: what was seen to be missing had been removed
        if refusal is not None:
            raise refusal
        return head


def _find(thread: str, sequences: Sequences, first: int, start: int) -> int:
    exists = sequences.exists
    while True:
        head = highest(exists, start, max(first, 1))
        if head < first:
            raise beheaded(thread, first)
        behind = behind_gap(exists, head, far=head != start or not start)
        if behind is None and not head:
            behind = sequences.anything()
        if behind is None:
            return head
        # It was saved a moment ago, unless the one before it is still missing.
        if not exists(head + 1):
            raise gap(thread, head + 1, behind)
        start = head + 1


def highest(exists: Callable[[int], bool], start: int = 0, first: int = 1) -> int:
    """Return the last of the contiguous numbers from `first` that exist, or the one before it.

    Args:
        exists: tells of a number whether it exists.
        start: where to begin; ignored if it does not exist.
        first: the lowest number that counts.
    """
    low = start if start >= first and exists(start) else first - 1
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
