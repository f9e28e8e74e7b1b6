"""Changing who owns a thread: nobody saves in between, and it is on disk before anybody knows."""

from __future__ import annotations

import os
from collections.abc import Callable

from safepoint.storage._lease import LEASE, write_lease
from safepoint.storage._lock import locked
from safepoint.storage._temps import replace
from safepoint.storage._thread import ThreadFolder
from safepoint.storage.base import Ownership


def change_ownership(
    thread: ThreadFolder, step: Callable[[Ownership], Ownership], *, temps: int
) -> Ownership:
    """Keep what `step` makes of the thread's leases.

    A crash leaves the old line or the new one, whose token nobody got. So does an error. Either
    way the next token is a new one.

    Args:
        thread: the thread.
        step: what to make of it.
        temps: the folder for files on their way in; on the same file system.

    Raises:
        Lost: another process took the temporary file for a left-over. Nothing happened.
        StorageUnavailable: the file says nothing of the kind, or another process holds the lock.
        OSError: a step failed.
    """
    with locked(thread.fd, thread.path):
        before = thread.ownership()
        after = step(before)
        if not before.token:
            # The folder may be new, and a token must not be forgotten with it.
            os.fsync(thread.root)
        # Written again even if it stays: whoever wrote it may have died before it was on disk.
        replace(write_lease(after), LEASE, thread.fd, temps)
    return after
