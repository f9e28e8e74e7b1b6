"""The system calls under the file anchor: replace a small file whole, one writer at a time."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

from safepoint import _files as _posix
from safepoint import _files as location
from safepoint.errors import (
    AnchorUnavailable,
    StorageFull,
    StorageUnavailable,
    UnsafeLocation,
    shell,
)

if sys.platform != "win32":
    pass

LOCK = ".lock"
TEMP = ".next"
# A lock for writing: on NFS, a file that is open for reading alone cannot be held.
_HELD = _posix.READ | os.O_RDWR | os.O_CREAT
_WHAT = "The path of the anchor"
_PATIENCE = 30.0


def absolute(path: object) -> str:
    """Return the path of the folder: absolute, links resolved in its parent but not in itself.

    Raises:
        AnchorUnavailable: it is not a path, its parent cannot be reached, or this is not POSIX.
        UnsafeLocation: its parent is not a folder.
    """
    if not _posix.SUPPORTED:
        raise AnchorUnavailable(
            "FileAnchor needs a POSIX system.",
            "Keep the heads in a database: an Anchor of your own takes ten lines.",
        )
    with translated("open the anchor in", str(path)):
        return location.absolute(path, _WHAT)


def check_place(path: object, resolved: str, noun: str = "anchor") -> None:
    """Refuse a folder that others could change, or put last night's copy of in its place.

    Nothing stands behind an anchor, nor behind the end of a journal: an older one is as genuine as
    the present one. So nobody else may own a folder above it, or a link on the way to it.

    Args:
        path: the folder as it was named.
        resolved: what `absolute` made of that.
        noun: what is kept there.

    Raises:
        UnsafeLocation: they could.
    """
    location.enforce(location.location_refusals(resolved))
    named, above = (
        str(location.as_named(path, f"The path of the {noun}").parent),
        str(Path(resolved).parent),
    )
    for refusal in chain(
        location.replaceable_refusals(named),
        location.group_refusals(named),
        location.group_refusals(above),
    ):
        raise UnsafeLocation(
            f"The {noun} {shell(resolved)} could be replaced by an older copy. {refusal.what}",
            refusal.do,
        )


def identity(fd: int) -> tuple[int, int]:
    """Return what tells this folder from any other."""
    info = os.fstat(fd)
    return info.st_dev, info.st_ino


@contextmanager
def locked(root: int, path: str) -> Iterator[None]:
    """Be the only one that writes, among the threads and processes that share the folder.

    Raises:
        AnchorUnavailable: somebody else has held the lock for too long.
    """
    with _posix.opened(LOCK, _HELD, root) as fd:
        if stat.S_IMODE(os.fstat(fd).st_mode) != 0o600:
            os.fchmod(fd, 0o600)  # it is new, and the umask took bits that the next one needs
        if not _posix.wait_for_lock(fd, _PATIENCE):
            raise AnchorUnavailable(
                f"Another process has held the lock of {shell(path)} for {_PATIENCE:g} s.",
                f"Find it, let it end, and try again: fuser -v {shell(f'{path}/{LOCK}')}",
            )
        try:
            yield
        finally:
            with suppress(OSError):
                _posix.unlock(fd)


def read(root: int, name: str, path: str, limit: int) -> bytes | None:
    """Return the bytes of a file, at most one over the limit, or None if there is no such file.

    Raises:
        UnsafeLocation: it is no regular file, others can write it, or it has a second name.
        AnchorUnavailable: it cannot be read.
    """
    with translated("read", path):
        try:
            with _posix.record(path, name, root) as fd:
                location.enforce(location.hard_link_refusals(path, lambda: os.fstat(fd), None))
                return os.read(fd, limit + 1)
        except FileNotFoundError:
            return None
        except UnsafeLocation as refusal:
            # No seal stands behind this file as one does behind a record: a `chmod` is no cure.
            raise UnsafeLocation(
                refusal.what,
                "What it says may be somebody else's. Put the file back from a copy of the anchor,"
                f" as a file of user {os.geteuid()} with mode 600.",
            ) from None


def replace(root: int, name: str, text: bytes) -> None:
    """Put a file in the place of another, whole. The folder is for the caller to sync.

    Only under the lock: there is one name for what is on its way in, and what a crash left
    under it goes first.

    Raises:
        OSError: a step failed. What was there is intact, and nothing is left behind.
    """
    remove(root, TEMP)
    try:
        with _posix.opened(TEMP, _posix.CREATE, root) as fd:
            os.fchmod(fd, 0o600)
            _posix.write_all(fd, text)
            # Before the rename: a name must never lead to bytes that are not on disk yet.
            os.fsync(fd)
        os.rename(TEMP, name, src_dir_fd=root, dst_dir_fd=root)
    except BaseException:
        with suppress(OSError):
            os.unlink(TEMP, dir_fd=root)
        raise


def remove(root: int, name: str) -> None:
    """Remove a file, if it is there."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=root)


def withdraw(root: int, name: str, before: bytes | None, path: str) -> None:
    """Put back what stood there before a write that the disk did not confirm.

    Nobody was told of that write. Left in place, it would pass for confirmed at the next try.

    Raises:
        AnchorUnavailable: the disk refuses that too.
    """
    try:
        if before is None:
            remove(root, name)
        else:
            replace(root, name, before)
    except OSError as error:
        raise AnchorUnavailable(
            f"{shell(path)} was written, but the disk neither confirmed it nor let it go.",
            "Look at the system's log, and take a copy of the anchor, before you go on.",
        ) from error


@contextmanager
def translated(doing: str, path: str) -> Iterator[None]:
    """Turn what the system reports into the error tree.

    Args:
        doing: what failed, before a path: "read the anchor in".
        path: the folder, for the message.

    Raises:
        AnchorUnavailable: in place of any OSError, and of the storage's own words for one.
    """
    try:
        yield
    except (StorageUnavailable, StorageFull) as refusal:
        raise AnchorUnavailable(refusal.what, refusal.do) from refusal
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise AnchorUnavailable(
                f"{shell(path)} is gone, and with it the anchor.",
                "Mount it again or put it back from a copy: until then no rollback would be"
                " noticed, so nothing is loaded.",
            ) from error
        told = _posix.translate(error, doing, path)
        raise AnchorUnavailable(told.what, told.do) from error
