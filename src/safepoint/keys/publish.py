"""A new key file: whole under its name, or not there at all.

It is written and synced under a name that begins with `.safepoint-key-`, in the same folder, and
then linked to its own, which fails if that name exists. A crash leaves the first name at most; the
next one that makes a key there removes it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from safepoint.keys.redacted import Hidden

if sys.platform != "win32":
    import fcntl

_TEMP: Final = re.compile(r"\.safepoint-key-[0-9a-f]{32}\Z")
# The names are missing on Windows, where this module must still import.
_SAFE: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
# O_NONBLOCK: opening a FIFO that somebody planted must not wait for its other end.
_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _SAFE
_ATTEMPTS: Final = 20


class _Lost(Exception):
    """Somebody took the file for a left-over and removed it. Nothing happened: try again."""


def publish(path: str | os.PathLike[str], mode: int, content: Hidden) -> None:
    """Make a file appear, whole and on disk, and never over another.

    Raises:
        FileExistsError: something is there. It is as durable as what this would have made.
        OSError: another step failed. Nothing is left behind.
        ValueError: the path can be none.
    """
    with _folder_of(path) as folder:
        there = _exists(os.fspath(path))
        _clean(folder)
        if there:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        for _ in range(_ATTEMPTS):
            with suppress(_Lost):
                _publish(folder, Path(path).name, mode, content)
                return
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def clean(path: str | os.PathLike[str]) -> None:
    """Remove what crashed writers left beside a key file. Nothing is said of what cannot be."""
    with suppress(OSError, ValueError), _folder_of(path) as folder:
        _clean(folder)


def names(path: str | os.PathLike[str], status: os.stat_result) -> int:
    """Return how many names of that file this module gave it, its own included.

    It has two for a moment while it is published, and after a crash at that moment until the next
    one makes a key there.
    """
    with _folder_of(path) as folder, os.scandir(folder) as entries:
        return 1 + sum(_is_same(entry, status) for entry in entries if _TEMP.match(entry.name))


def _is_same(entry: os.DirEntry[str], status: os.stat_result) -> bool:
    try:
        return os.path.samestat(entry.stat(follow_symlinks=False), status)
    except FileNotFoundError:
        return False


def _publish(folder: int, name: str, mode: int, content: Hidden) -> None:
    with _written(folder, mode, content) as temp:
        try:
            os.link(temp, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            os.fsync(folder)  # whoever made it may not have come to that yet, or may have died
            raise
        except FileNotFoundError:
            if _exists(temp, folder):
                raise
            raise _Lost from None
        try:
            os.fsync(folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise


@contextmanager
def _written(folder: int, mode: int, content: Hidden) -> Iterator[str]:
    temp = f".safepoint-key-{secrets.token_hex(16)}"
    with _opened(temp, _CREATE, folder) as descriptor:
        try:
            if not _try_lock(descriptor):
                raise _Lost
            os.fchmod(descriptor, mode)  # whatever the umask
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(content.reveal())
            os.fsync(descriptor)
            yield temp
        finally:
            # Last of all: as long as this name is there, the other may not be on disk.
            with suppress(OSError):
                os.unlink(temp, dir_fd=folder)


def _clean(folder: int) -> None:
    with os.scandir(folder) as entries:
        left = [entry.name for entry in entries if _TEMP.match(entry.name)]
    if left:
        os.fsync(folder)
    for temp in left:
        # A left-over harms nobody, so one that cannot be removed is no reason to stop.
        with suppress(OSError):
            _remove(temp, folder)


def _remove(temp: str, folder: int) -> None:
    try:
        with _opened(temp, _READ, folder) as descriptor:
            # A writer holds a lock on its own for as long as it lives.
            if stat.S_ISREG(os.fstat(descriptor).st_mode) and _try_lock(descriptor):
                os.unlink(temp, dir_fd=folder)
    except PermissionError:
        # Its umask hid it from its own writer, who died before fchmod. A living one tries again.
        os.unlink(temp, dir_fd=folder)


def _exists(name: str, folder: int | None = None) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _folder_of(path: str | os.PathLike[str]) -> AbstractContextManager[int]:
    return _opened(str(Path(path).parent), _FOLDER)


@contextmanager
def _opened(name: str, flags: int, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        yield descriptor
    finally:
        with suppress(OSError):
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
