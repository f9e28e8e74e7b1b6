"""Pruning: what the thread begins with is on disk before anything below it goes."""

from __future__ import annotations

import os
from contextlib import suppress

from safepoint.storage._lock import locked
from safepoint.storage._temps import replace
from safepoint.storage._thread import BASE, ThreadFolder, base_content
from safepoint.storage.base import missing


def prune(thread: ThreadFolder, first: int, base: bytes, *, temps: int) -> int:
    """Let the thread begin at `first` with this base, or leave it if it begins later already.

    A crash leaves the old base with all records, or the new one with some records below it that
    nobody sees. So does an error; a second try removes them.

    Args:
        thread: the thread.
        first: the lowest sequence to keep.
        base: what to keep in place of the records before it.
        temps: the folder for files on their way in; on the same file system.

    Returns:
        How many records were removed.

    Raises:
        Lost: another process took the temporary file for a left-over. Nothing happened.
        NotFound: there is no record at `first`.
        StorageUnavailable: another process holds the lock.
        OSError: a step failed.
    """
    with locked(thread.fd, thread.path):
        present = thread.base()
        if present is not None and present[0] > first:
            first, base = present
        elif not thread.exists(first):
            raise missing(thread.name, first, 0)
        below = thread.below(first)
        # Written again even if it stays: whoever wrote it may have died, or failed, before it was
        # on disk, and without it the records below are the thread.
        if present != (first, base) or below:
            replace(base_content(first, base), BASE, thread.fd, temps)
    removed = 0
    for sequence in below:
        with suppress(FileNotFoundError):
            thread.remove(sequence)
            removed += 1
    if removed:
        os.fsync(thread.fd)
    return removed
