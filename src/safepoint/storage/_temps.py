"""Files on their way in: written and synced under a random name, in a folder of their own."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from safepoint import _files as _posix

_TEMP_NAME = re.compile(r"[0-9a-f]{32}\Z")


class Lost(Exception):
    """Somebody took the file for a left-over and removed it. Nothing happened: try again."""


@contextmanager
def written(content: bytes, temps: int) -> Iterator[str]:
    """Write and sync a file under a random name, which is handed out and removed at the end.

    Raises:
        Lost: another process that cleans holds the file, from the moment between its creation and
            its lock, or the name existed.
        OSError: a step failed. Nothing is left behind.
    """
    temp = secrets.token_hex(16)
    with ExitStack() as stack:
        try:
            fd = stack.enter_context(_posix.opened(temp, _posix.CREATE, temps))
        except FileExistsError:
            raise Lost from None
        try:
            if not _posix.try_lock(fd):
                raise Lost
            os.fchmod(fd, 0o600)
            _posix.write_all(fd, content)
            # If this fails, the kernel may have dropped the data and a second try would succeed
            # without it. So there is none, here and after every other sync.
            os.fsync(fd)
            yield temp
        finally:
            # If this fails, the next start cleans up. After a rename there is nothing to remove.
            with suppress(OSError):
                os.unlink(temp, dir_fd=temps)


def replace(content: bytes, name: str, folder: int, temps: int) -> None:
    """Put a file in the place of another, whole and on disk.

    Raises:
        Lost: as `written`. Nothing happened.
        OSError: a step failed. If it was the last, the sync of the folder, the new file is there.
    """
    with written(content, temps) as temp:
        try:
            os.rename(temp, name, src_dir_fd=temps, dst_dir_fd=folder)
        except FileNotFoundError:
            raise Lost from None
        os.fsync(folder)


def clean(temps: int) -> None:
    """Remove what crashed writers left in `temps`. A living writer holds a lock on its own."""
    with os.scandir(temps) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    for name in filter(_TEMP_NAME.match, names):
        # A left-over harms nobody, so one that cannot be removed is no reason to stop.
        with suppress(OSError):
            _clean(name, temps)


def _clean(name: str, temps: int) -> None:
    try:
        with _posix.opened(name, _posix.READ, temps) as fd:
            if _posix.try_lock(fd):
                os.unlink(name, dir_fd=temps)
    except PermissionError:
        # Its umask hid it from its own writer, who died before fchmod. A living one tries again.
        os.unlink(name, dir_fd=temps)
