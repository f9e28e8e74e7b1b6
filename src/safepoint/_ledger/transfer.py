"""Copying a store into another storage, sealed anew: after a rotation, or out of a backup."""

from __future__ import annotations

from safepoint._ledger.anchoring import move
from safepoint._ledger.guards import storage_errors
from safepoint._ledger.retention import retaining, statement
from safepoint._ledger.view import View, head_in
from safepoint._ledger.walk import Progress, walk
from safepoint.errors import Conflict, NotFound
from safepoint.header import Place
from safepoint.heads import Heads
from safepoint.seal import Opened, reseal


def copy_thread(
    source: View, target: View, thread: str, progress: Progress | None, up_to: Heads | None
) -> int:
    """Verify a thread, then copy each record under the target's key, up to a head if one is given.

    What is there already is compared and left alone, so an interrupted copy goes on where it was.

    Returns:
        How many records there are to copy.

    Raises:
        Conflict: the target has another record at some place.
        CheckpointError: the source does not verify. Unless somebody changed it meanwhile, nothing
            of this thread was copied then.
    """
    end = None if up_to is None else head_in(up_to, source.store, thread)
    if up_to is not None and end is None:
        return 0
    for _ in walk(source, thread, end=end):
        pass  # each signature, too: with links alone, one that is broken would show half-way
    count = 0
    for count, opened in enumerate(walk(source, thread, progress, end=end), start=1):
        if count == 1 and opened.header.sequence > 1:
            _put_first(target, thread, opened)
        else:
            _put(target, thread, opened)
        last = opened.head
    if count and target.anchor is not None:
        move(target, thread, last)
    return count


def _put_first(target: View, thread: str, opened: Opened) -> None:
    """Copy the record that a pruned thread begins with, and leave a base of our own there."""
    storage, first = retaining(target), opened.header.sequence
    _put(target, thread, opened)
    place = Place(target.store, thread, first)
    record, _ = statement(target, place, "base", opened.header.previous)
    with storage_errors("prune", thread):
        storage.prune(thread, first, record)


def _put(target: View, thread: str, opened: Opened) -> None:
    sequence = opened.header.sequence
    try:
        with storage_errors("keep", thread):
            target.storage.append(thread, sequence, reseal(opened, target.keys.signing))
    except Conflict:
        try:
            same = target.open(thread, sequence).digest == opened.digest
        except NotFound:  # it was pruned there
            same = False
        if not same:
            raise Conflict(
                f"{thread} #{sequence} is another record in the storage to copy to, or was pruned"
                " there.",
                "Nothing was overwritten. Copy into a new, empty storage.",
            ) from None
