"""Publishing a record: written and synced under a random name, then linked to its own."""

from __future__ import annotations

import errno
import os
import re
import secrets
from contextlib import ExitStack, suppress

from safepoint.errors import StorageUnavailable, shell
from safepoint.storage import _posix

_TEMP_NAME = re.compile(r"[0-9a-f]{32}\Z")
_NO_LINKS = frozenset([errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS])


def publish(path: str, name: str, record: bytes, *, temps: int, folder: int) -> bool:
    """Make `record` appear as `name` in `folder`, whole, on disk, and never over another.

    Args:
        path: the whole path of the record, for messages.
        name: its name in `folder`.
        record: the bytes.
        temps: the folder for files on their way in; on the same file system.
        folder: the folder in which the record appears.

    Returns:
        False if another process took the temporary file for a left-over and removed it, in the
        moment between its creation and its lock, or if its random name existed. Nothing happened
        then: try again.

    Raises:
        FileExistsError: the name is taken.
        StorageUnavailable: the file system has no hard links, or fails half-way.
        OSError: any other step failed. Nothing is left behind.
    """
    temp = secrets.token_hex(16)
    with ExitStack() as stack:
        try:
            fd = stack.enter_context(_posix.opened(temp, _posix.CREATE, temps))
        except FileExistsError:
            return False
        try:
            if not _posix.try_lock(fd):
                return False
            os.fchmod(fd, 0o600)
            _posix.write_all(fd, record)
            # If this fails, the kernel may have dropped the data and a second try would succeed
            # without it. So there is none, here and below.
            os.fsync(fd)
            linked = _link(path, temp, name, temps, folder)
        finally:
            # If this fails after the link, the record stands and the next start cleans up.
            with suppress(OSError):
                os.unlink(temp, dir_fd=temps)
        if linked:
            try:
                os.fsync(folder)
            except BaseException:
                _withdraw(path, name, folder)
                raise
    return linked


def _link(path: str, temp: str, name: str, temps: int, folder: int) -> bool:
    try:
        os.link(temp, name, src_dir_fd=temps, dst_dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise StorageUnavailable(
            f"The file system of {shell(path)} has no hard links, so nothing was saved.",
            "Name a folder on a local file system such as ext4, XFS or APFS.",
        ) from error
    return True


def _withdraw(path: str, name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError as error:
        raise StorageUnavailable(
            f"{shell(path)} was written, but the disk neither confirmed it nor let it go.",
            "Look at the system's log, and at the head of the thread, before you save again.",
        ) from error


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
