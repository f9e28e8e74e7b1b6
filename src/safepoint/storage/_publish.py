"""Publishing a record: written and synced under a random name, then linked to its own."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from safepoint.errors import CheckpointError, StorageUnavailable, shell
from safepoint.storage._lock import locked
from safepoint.storage._temps import Lost, written
from safepoint.storage._thread import ThreadFolder, file_name
from safepoint.storage.base import gap, taken, withdrawn

_NO_LINKS = frozenset([errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS])


def publish(
    thread: ThreadFolder,
    sequence: int,
    record: bytes,
    *,
    temps: int,
    seen: int,
    fence: int | None = None,
) -> None:
    """Make `record` appear at `sequence`, whole, on disk, and never over another.

    Args:
        thread: where it appears.
        sequence: its place.
        record: the bytes.
        temps: the folder for files on their way in; on the same file system.
        seen: the head of the thread as this process last saw it.
        fence: the token of the lease under which this is saved, or None.

    Raises:
        Lost: another process took the temporary file for a left-over. Nothing happened.
        Conflict: the place is taken, or the thread begins behind it by now.
        NotOwner: the thread has an owner with another token, or the token is of no owner.
        RecordsMissing: a record next to it is gone.
        RecordMalformed: the base of the thread does not say where it begins.
        StorageUnavailable: the lease is malformed, another process holds the lock, or the file
            system has no hard links or fails half-way.
        OSError: any other step failed. Nothing is left behind.
    """
    if sequence == 1 or not thread.exists(sequence - 1):
        # Not only if the folder is new: whoever made it may have died before this line.
        os.fsync(thread.root)
    with written(record, temps) as temp:
        linked = False
        try:
            # Whoever changes the lease, moves the base or takes a record back holds this lock
            # alone, so what was looked at is still so when the record appears.
            with locked(thread.fd, thread.path, shared=True):
                thread.ownership().check_fence(fence)
                _check_place(thread, sequence, seen)
                _link(thread, sequence, temp, temps)
                linked = True
            os.fsync(thread.fd)
        except BaseException:
            if linked:
                _withdraw(thread, sequence)
            raise


def _check_place(thread: ThreadFolder, sequence: int, seen: int) -> None:
    """Refuse a place that must not be filled: below the base, in a gap, or after one that went."""
    first = thread.first()
    if sequence < first:
        raise taken(thread.name, sequence, first)
    if thread.exists(sequence + 1) and not thread.exists(sequence):
        raise gap(thread.name, sequence, sequence + 1)
    before = sequence - 1
    expected = seen >= before >= max(first, 1)
    # If the place is taken, the link says so, which matters more.
    if expected and not thread.exists(before) and not thread.exists(sequence):
        raise withdrawn(thread.name, before)


def _link(thread: ThreadFolder, sequence: int, temp: str, temps: int) -> None:
    name = file_name(sequence)
    try:
        os.link(temp, name, src_dir_fd=temps, dst_dir_fd=thread.fd, follow_symlinks=False)
    except FileNotFoundError:
        raise Lost from None
    except FileExistsError:
        raise taken(thread.name, sequence, 0) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise StorageUnavailable(
            f"The file system of {shell(f'{thread.path}/{name}')} has no hard links, so nothing was"
            " saved.",
            "Name a folder on a local file system such as ext4, XFS or APFS.",
        ) from error


def _withdraw(thread: ThreadFolder, sequence: int) -> None:
    """Take back a record that was not acknowledged, unless somebody has built on it already.

    The lock keeps others from building on it meanwhile: from linking the next one, and from
    beginning the thread with it.
    """
    name = file_name(sequence)
    cause: Exception | None = None
    try:
        with locked(thread.fd, thread.path):
            if not _built_on(thread, sequence):
                with suppress(FileNotFoundError):
                    thread.remove(sequence)
                return
    except (OSError, CheckpointError) as error:
        cause = error
    raise StorageUnavailable(
        f"{shell(f'{thread.path}/{name}')} was written, but the disk neither confirmed it nor let"
        " it go.",
        "Look at the system's log, and at the head of the thread, before you save again.",
    ) from cause


def _built_on(thread: ThreadFolder, sequence: int) -> bool:
    first = thread.first()
    return sequence == first or (sequence > first and thread.exists(sequence + 1))
