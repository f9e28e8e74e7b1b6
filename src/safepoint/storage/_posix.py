"""The system calls under the file storage: by descriptor, never through a link, whole or not."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from safepoint.errors import StorageError, StorageFull, StorageUnavailable, shell
from safepoint.location import enforce, folder_refusals, record_refusals

if sys.platform != "win32":
    import fcntl

SUPPORTED = (
    os.name == "posix"
    and hasattr(os, "O_NOFOLLOW")
    and {os.open, os.mkdir, os.stat, os.chmod, os.link, os.unlink, os.rename} <= os.supports_dir_fd
)
# The names are missing on Windows, where this module must still import; SUPPORTED is False there.
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SAFE
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
# O_NONBLOCK: opening a FIFO that somebody planted must not wait for its other end.
READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | _SAFE

_KIND_AND_OTHERS = 0o170000 | stat.S_IWGRP | stat.S_IWOTH

_PAUSE = 0.001
FULL = frozenset([errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
"""What the system says where there is no room."""


def require_posix() -> None:
    """Refuse a system that lacks the calls on which the file storage stands.

    Raises:
        StorageUnavailable: on Windows, and wherever files cannot be reached by descriptor.
    """
    if not SUPPORTED:
        raise StorageUnavailable(
            "FileCheckpointStorage needs a POSIX system.",
            "Use SQLiteCheckpointStorage here.",
        )


class Descriptor:
    """An open descriptor with what `fstat` says of it, closed at the end of a `with`."""

    __slots__ = ("fd", "info")

    def __init__(self, fd: int, info: os.stat_result) -> None:
        self.fd = fd
        self.info = info

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_: object) -> None:
        # What matters was synced before; an error here would only hide the one under way.
        with suppress(OSError):
            os.close(self.fd)


@contextmanager
def opened(name: str, flags: int, dir_fd: int | None = None) -> Iterator[int]:
    """Open by descriptor, and close whatever happens."""
    fd = os.open(name, flags, 0o600, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        with suppress(OSError):
            os.close(fd)


def folder(path: str, name: str, dir_fd: int | None = None) -> Descriptor:
    """Open a folder of the store that only this user can write.

    Args:
        path: the whole path, for messages.
        name: what to open, seen from `dir_fd`.
        dir_fd: the folder around it, or None if `name` is absolute.

    Raises:
        UnsafeLocation: it is a link, not a folder, or others can write it.
        OSError: it cannot be opened.
    """
    return _checked(path, name, FOLDER, dir_fd, stat.S_IFDIR, folder_refusals)


def record(path: str, name: str, dir_fd: int) -> Descriptor:
    """Open the file of a record: a regular file that only this user can write.

    Raises:
        UnsafeLocation: it is something else, or others can write it.
        OSError: it cannot be opened.
    """
    return _checked(path, name, READ, dir_fd, stat.S_IFREG, record_refusals)


def _checked(
    path: str,
    name: str,
    flags: int,
    dir_fd: int | None,
    kind: int,
    refusals: Callable[[str, os.stat_result], Iterable[StorageError]],
) -> Descriptor:
    try:
        fd = os.open(name, flags, dir_fd=dir_fd)
    except FileNotFoundError:
        raise
    except OSError:
        # The code depends on the system (a link: ELOOP, ENOTDIR, EMLINK). Look what it is.
        with suppress(FileNotFoundError):
            enforce(refusals(path, os.stat(name, dir_fd=dir_fd, follow_symlinks=False)))
        raise
    try:
        # What counts is what was opened, not what the name meant a moment before or after.
        info = os.fstat(fd)
        if not private(info, kind):
            enforce(refusals(path, info))
    except BaseException:
        os.close(fd)
        raise
    return Descriptor(fd, info)


def private(info: os.stat_result, kind: int) -> bool:
    """Tell quickly whether something is of that kind, this user's, and writable by nobody else.

    It is the short form of `folder_refusals` and `record_refusals`, which say what is wrong.
    """
    return info.st_mode & _KIND_AND_OTHERS == kind and info.st_uid == os.geteuid()


def make_folder(name: str, dir_fd: int | None = None) -> bool:
    """Create a folder with mode 0700 whatever the umask. Return whether it was new."""
    try:
        os.mkdir(name, 0o700, dir_fd=dir_fd)
    except FileExistsError:
        return False
    info = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if stat.S_ISDIR(info.st_mode) and info.st_mode & 0o700 != 0o700:
        # The umask took the owner's own bits, and what cannot be opened has no fchmod.
        os.chmod(name, 0o700, dir_fd=dir_fd)
    with opened(name, FOLDER, dir_fd) as fd:
        os.fchmod(fd, 0o700)
    return True


def create_root(path: str) -> None:
    """Create the folder of the store if it is missing, and sync the name in its parent.

    Raises:
        StorageUnavailable: this user may not create it.
        OSError: another step failed. A folder that was made is removed again.
    """
    try:
        new = not os.path.lexists(path) and make_folder(path)
    except PermissionError as error:
        raise StorageUnavailable(
            f"This process may not create {shell(path)}.",
            f"Run: sudo install -d -m 700 -o {os.geteuid()} {shell(path)}",
        ) from error
    try:
        with opened(str(Path(path).parent), FOLDER) as parent:
            os.fsync(parent)
    except OSError:
        # An old folder's parent may be closed to us; whoever made the folder has synced it.
        if new:
            Path(path).rmdir()
            raise


def write_all(fd: int, record: bytes | memoryview) -> None:
    """Write every byte: one `write` may take a part of them, as it does on a disk that fills up."""
    rest = memoryview(record)
    while rest:
        written = os.write(fd, rest)
        if not written:
            raise OSError(errno.EIO, "nothing was written")
        rest = rest[written:]


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Hold the file if nobody does, or if all who do share it."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(fd: int, patience: float, *, shared: bool = False) -> bool:
    """Hold the file as soon as nobody else does. Return whether that was within so many seconds."""
    if try_lock(fd, shared=shared):
        return True
    deadline = time.monotonic() + patience
    while not try_lock(fd, shared=shared):
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def unlock(fd: int) -> None:
    """Let go of the file. Closing it would do, but for a forked child that holds it open too."""
    fcntl.flock(fd, fcntl.LOCK_UN)


class _Translated:
    __slots__ = ("doing", "path")

    def __init__(self, doing: str, path: str) -> None:
        self.doing = doing
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            raise translate(error, self.doing, self.path) from error


def translated(doing: str, path: str) -> AbstractContextManager[None]:
    """Turn what the system reports into the error tree.

    Args:
        doing: what failed, before a path: "save to", "read from", "open" or "prune".
        path: the store, for the message.

    Raises:
        StorageFull: there is no room.
        StorageUnavailable: anything else.
    """
    return _Translated(doing, path)


def translate(error: OSError, doing: str, path: str) -> StorageError:
    """Return the error that says what the system's one means here, and what to do."""
    shown = shell(path)
    code = errno.errorcode.get(error.errno or 0, "unknown")
    lost = ", so nothing was saved" if doing == "save to" else ""
    if error.errno in FULL:
        return StorageFull(
            f"There is no room left for {shown} ({code}){lost}.",
            "Free some space, or raise the quota or the file size limit, and try again.",
        )
    if error.errno == errno.EROFS:
        return StorageUnavailable(
            f"{shown} is on a read-only file system{lost}.",
            "Mount it for writing, or name another folder.",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return StorageUnavailable(
            f"This process may not {doing} {shown}{lost}.", f"Run: chmod -R u+rwX {shown}"
        )
    if error.errno == errno.ENOENT:
        return StorageUnavailable(
            f"{shown} is gone{lost}.",
            "Put it back from a backup, or construct the storage again to begin an empty one.",
        )
    return StorageUnavailable(
        f"The system could not {doing} {shown} ({code}){lost}.",
        "Look at the system's log for the cause before you try again.",
    )
