"""One at a time: the lock on the folder of a thread."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from safepoint import _files as _posix
from safepoint.errors import StorageUnavailable, shell

_PATIENCE = 10.0
_NO_LOCKS = frozenset([errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS])


@contextmanager
def locked(fd: int, path: str, *, shared: bool = False) -> Iterator[None]:
    """Be alone in this block among the threads and processes that lock this folder.

    What is done in such a block is short, so nobody waits long, and nobody waits for ever.

    Args:
        fd: the folder, opened by this call alone: a lock belongs to what was opened.
        path: the folder, for the message.
        shared: let others in that share it too, and nobody else.

    Raises:
        StorageUnavailable: somebody else has held it for too long, or there are no locks here.
    """
    try:
        held = _posix.wait_for_lock(fd, _PATIENCE, shared=shared)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise StorageUnavailable(
            f"The file system of {shell(path)} cannot lock a folder.",
            "Name a folder on a local file system such as ext4, XFS or APFS.",
        ) from error
    if not held:
        raise StorageUnavailable(
            f"Another process has held the lock on {shell(path)} for {_PATIENCE:g} s.",
            f"Find it, let it end, and try again: fuser -v {shell(path)}",
        )
    try:
        yield
    finally:
        _posix.unlock(fd)
