"""One at a time: the lock on the folder of a thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from safepoint.errors import StorageUnavailable, shell
from safepoint.storage import _posix

_PATIENCE = 10.0


@contextmanager
def locked(fd: int, path: str) -> Iterator[None]:
    """Be alone in this block among the threads and processes that lock this folder.

    What is done in such a block is short, so nobody waits long, and nobody waits for ever.

    Args:
        fd: the folder, opened by this call alone: a lock belongs to what was opened.
        path: the folder, for the message.

    Raises:
        StorageUnavailable: somebody else has held it for too long.
    """
    if not _posix.wait_for_lock(fd, _PATIENCE):
        raise StorageUnavailable(
            f"Another process has held the lock on {shell(path)} for {_PATIENCE:g} s.",
            f"Find it, let it end, and try again: fuser -v {shell(path)}",
        )
    try:
        yield
    finally:
        _posix.unlock(fd)
