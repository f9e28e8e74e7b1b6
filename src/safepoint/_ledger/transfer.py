"""Copying a store into another storage, sealed anew: after a rotation, or out of a backup."""

from __future__ import annotations

from safepoint._ledger.guards import storage_errors
from safepoint._ledger.retention import retaining, statement
from safepoint._ledger.view import View
from safepoint._ledger.walk import Progress, walk
from safepoint.errors import Conflict, NotFound
from safepoint.header import Place
from safepoint.seal import Opened, reseal


def copy_thread(source: View, target: View, thread: str, progress: Progress | None) -> int:
    """Verify a thread, then copy each record under the target's key.

    What is there already is compared and left alone, so an interrupted copy goes on where it was.

    Returns:
        How many records the thread has.

    Raises:
        Conflict: the target has another record at some place.
        CheckpointError: the source does not verify. Nothing of this thread was copied then.
    """
    for _ in walk(source, thread):
        pass  # each signature, too: with links alone, one that is broken would show half-way
    base = source.base(thread)
    first = None if base is None else base.header.sequence
    if base is not None:
        retaining(target)
    count = 0
    for opened in walk(source, thread, progress):
        _put(target, thread, opened)
        count += 1
        if base is not None and opened.header.sequence == first:
            place = Place(target.store, thread, first)
            record, _ = statement(target, place, "base", base.header.previous)
            with storage_errors("prune", thread):
                retaining(target).prune(thread, first, record)
    return count


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
