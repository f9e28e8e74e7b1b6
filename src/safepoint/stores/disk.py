"""Files done right: opened by descriptor, where others cannot write, whole or not there."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from safepoint.core import files
from safepoint.core.errors import (
    LimitExceeded,
    StorageError,
    StorageFull,
    StorageUnavailable,
    UnsafeLocation,
    quoted,
    shell,
)

if sys.platform != "win32":
    import fcntl

SUPPORTED = (
    os.name == "posix"
    and hasattr(os, "O_NOFOLLOW")
    and {os.open, os.mkdir, os.stat, os.chmod, os.link, os.unlink, os.rename} <= os.supports_dir_fd
)
# What the system says where there is no room.
FULL = frozenset([errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
# Where files are that other machines reach too, as /proc/self/mountinfo calls the kinds.
NETWORK = re.compile(
    "nfs4?|cifs|smb3|smbfs|afs|coda|ncpfs|davfs|ceph|glusterfs|lustre|beegfs|gpfs|orangefs|gfs2"
    # Shared by a machine and its host: neither sees what is mapped into the other's memory.
    "|ocfs2|9p|virtiofs|vboxsf|vmhgfs|prl_fs|fakeowner|fuse\\.(vmhgfs-fuse|grpcfuse|osxfs|sshfs"
    "|glusterfs|ceph|ceph-fuse|juicefs|s3fs|goofys|gcsfuse|blobfuse2?|rclone|davfs2?|curlftpfs)"
)
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | files.SAFE
# The name of a file on its way in. What a crash left under it, the next writer removes.
TEMP = ".next"
PATIENCE = 30.0  # seconds to wait for somebody who holds a lock
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_UNSUPPORTED = frozenset([errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS])
_LOCAL = "Name a folder on a local file system such as ext4, XFS or APFS."
_KIND_AND_OTHERS = 0o170000 | OTHERS_WRITE


def require_posix() -> None:
    """Refuse a system that lacks the calls on which files stand here.

    Raises:
        StorageUnavailable: on Windows, and wherever files cannot be reached by descriptor.
    """
    if not SUPPORTED:
        raise StorageUnavailable(
            "FileCheckpointStorage needs a POSIX system.", "Use SQLiteCheckpointStorage here."
        )


# --- paths


def as_named(path: str | os.PathLike[str], what: str, kind: str = "folder") -> Path:
    """Return the path from the root on, with whatever links are in it.

    Args:
        path: the path, as somebody named it.
        what: what the path is called, at the start of a message.
        kind: what it leads to: a folder, or a file.

    Raises:
        StorageUnavailable: no file can have it, or it is relative to a folder that is gone.
    """
    try:
        text = os.fspath(path)
        if text and b"\0" not in os.fsencode(text):
            return Path(text).absolute()
    except (OSError, TypeError, ValueError):
        pass
    raise StorageUnavailable(
        f"{what} is {quoted(path)}, which cannot be the path of a {kind}.",
        f"Name a {kind}, from the root on: there is no default.",
    )


def absolute(path: str | os.PathLike[str], what: str = "storage_path") -> str:
    """Return the path of a folder: absolute, links resolved in its parent but not in itself.

    Raises:
        StorageUnavailable: no folder can have it, or its parent is missing or cannot be reached.
    """
    named = as_named(path, what)
    # "x/.." has no last name of its own that could be a link; all of it is parent.
    parent, name = (named, "") if named.name in ("", "..") else (named.parent, named.name)
    shown = shell(str(parent))
    try:
        resolved = os.path.realpath(parent, strict=True)
        if not Path(resolved).is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except OSError as error:
        what = f"{shown} cannot be reached ({error.strerror})."
        do = "Name a folder that this user can reach."
        if isinstance(error, FileNotFoundError):
            what, do = f"{shown} does not exist.", f"Run: mkdir -p -m 700 {shown}"
        raise StorageUnavailable(what, do) from error
    return str(Path(resolved, name))


def network_file_system(path: str) -> str | None:
    """Return the type of the file system that an absolute path is on, if machines share it.

    It is None on a local one. The type can be read on Linux alone: elsewhere it is None too.
    """
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", errors="surrogateescape")
    except OSError:
        return None
    device = (Path(path) if os.path.lexists(path) else Path(path).parent).lstat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        mount, _, source = line.partition(" - ")
        kind = source.split(" ")[0]
        if NETWORK.fullmatch(kind) and mount.split(" ")[2] == number:
            return kind
    return None


# --- who may write


def enforce(refusals: Iterable[StorageError]) -> None:
    """Raise the first refusal, if there is one."""
    for refusal in refusals:
        raise refusal


def folder_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with a folder of ours, by what `lstat` or `fstat` says of it."""
    shown, inside = shell(path), shell(str(Path(path, "checkpoints")))
    link = (
        "Whoever owns the link decides where it leads. See where, and name that folder instead:"
        f" readlink -f {shown}"
    )
    other = f"Name another path; see what is there: ls -ld {shown}"
    own = f"Name a folder of your own, such as {inside}: mkdir -m 700 {inside}"
    return _refusals(path, info, "folder", (link, other, own))


def record_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with a file of ours, by what `lstat` or `fstat` says of it."""
    other = f"This store never makes one. See who did, then remove it: ls -l {shell(path)}"
    own = f"Run: sudo chown {os.geteuid()} {shell(path)}"
    return _refusals(path, info, "regular file", (other, other, own))


def _refusals(
    path: str, info: os.stat_result, noun: str, do: tuple[str, str, str]
) -> Iterator[StorageError]:
    """Yield what is wrong, with what to do about a link, another kind, and another owner."""
    shown, mode, user = shell(path), info.st_mode, os.geteuid()
    is_folder = noun == "folder"
    if stat.S_ISLNK(mode):
        yield UnsafeLocation(f"{shown} is a symbolic link.", do[0], "link")
    elif not (stat.S_ISDIR(mode) if is_folder else stat.S_ISREG(mode)):
        yield UnsafeLocation(f"{shown} is not a {noun}.", do[1], "other-kind")
    elif info.st_uid != user:
        what = f"{shown} belongs to user {info.st_uid}, and this process is user {user}."
        yield UnsafeLocation(what, do[2], "other-owner")
    elif mode & OTHERS_WRITE:
        yield UnsafeLocation(
            f"{shown} can be written by others (mode {stat.S_IMODE(mode):04o}).",
            do[2] if mode & stat.S_ISVTX else f"Run: chmod {'700' if is_folder else '600'} {shown}",
            "writable",
        )


def hard_link_refusals(
    path: str,
    stat_again: Callable[[], os.stat_result],
    temp: Callable[[], os.stat_result] | None = None,
) -> Iterator[StorageError]:
    """Yield a refusal if a file has a name that we did not give it.

    It has two for a moment while it is published, and after a crash at that moment until the next
    write. The count is read after a look at the second, so that a publish that ends in between
    raises no alarm.

    Args:
        path: the file, for the message.
        stat_again: reads its `stat`, fresh on each call.
        temp: reads that of the name of what is on its way in.
    """
    info, ours = stat_again(), 0
    if temp is not None:
        with suppress(FileNotFoundError):
            ours = os.path.samestat(temp(), info)
    if stat_again().st_nlink > 1 + ours:
        shown = shell(path)
        yield UnsafeLocation(
            f"{shown} has a second name (hard link).",
            f"Whoever holds it may change the record. Find it, and remove it:"
            f" find / -samefile {shown}",
            "hard-link",
        )


def location_refusals(path: str) -> Iterator[StorageError]:
    """Yield each reason why this absolute path is no place for a folder of ours.

    A folder that does not exist yet is no reason: it can be made.
    """
    with suppress(FileNotFoundError):
        yield from folder_refusals(path, Path(path).lstat())
    for ancestor in Path(path).parents:
        yield from files.open_to_others(ancestor, groups=False)


def rollback_refusals(named: Path, resolved: str) -> Iterator[StorageError]:
    """Yield each reason why others could change an anchor, or put last night's copy in its place.

    Nothing stands behind an anchor: an older one is as genuine as the present one. So nobody else
    may own a folder above it, or a link on the way to it.

    Args:
        named: its folder as it was named, from the root on.
        resolved: what `absolute` made of that.
    """
    yield from location_refusals(resolved)
    for refusal in files.replaceable_refusals(str(named.parent)):
        yield UnsafeLocation(
            f"The anchor {shell(resolved)} could be replaced by an older copy. {refusal.what}",
            refusal.do,
            refusal.kind,
        )


# --- folders and files, open


class opened:  # noqa: N801  read as a function
    """A descriptor, open until the end of a `with`.

    Attributes:
        fd: its number.
        info: what `fstat` says of it.
    """

    __slots__ = ("fd", "info")

    def __init__(self, name: str, flags: int, dir_fd: int | None = None) -> None:
        self.fd = os.open(name, flags, 0o600, dir_fd=dir_fd)
        self.info = os.fstat(self.fd)

    @property
    def identity(self) -> tuple[int, int]:
        """What tells it from any other."""
        return self.info.st_dev, self.info.st_ino

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_: object) -> None:
        try:  # noqa: SIM105  a third of its time
            os.close(self.fd)
        except OSError:
            pass  # what matters was synced before, and this would only hide the error under way


def lstat(name: str, dir_fd: int | None) -> os.stat_result:
    """Return what a folder has under a name, be it a link."""
    return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)


def folder(path: str, name: str, dir_fd: int | None = None) -> opened:
    """Open a folder that only this user can write.

    Args:
        path: the whole path, for messages.
        name: what to open, seen from `dir_fd`.
        dir_fd: the folder around it, or None if `name` is absolute.

    Raises:
        UnsafeLocation: it is a link, not a folder, or others can write it.
        OSError: it cannot be opened.
    """
    return _checked(path, name, FOLDER, dir_fd, folder_refusals)


def same_folder(path: str, identity: tuple[int, int]) -> opened:
    """Open an absolute folder again, if it is still the one of that identity.

    Raises:
        UnsafeLocation: as `folder`, or somebody put another one in its place.
        OSError: it cannot be opened.
    """
    found = folder(path, path)
    if found.identity != identity:
        os.close(found.fd)
        raise UnsafeLocation(
            f"{shell(path)} is not the folder that this storage was opened on.",
            "Find out who replaced it, and construct the storage again if that is right:"
            f" ls -ld {shell(path)}",
            "replaced",
        )
    return found


def _checked(
    path: str,
    name: str,
    flags: int,
    dir_fd: int | None,
    refusals: Callable[[str, os.stat_result], Iterable[StorageError]],
) -> opened:
    try:
        found = opened(name, flags, dir_fd)
    except FileNotFoundError:
        raise
    except OSError:
        # The code depends on the system (a link: ELOOP, ENOTDIR, EMLINK). Look what it is.
        with suppress(FileNotFoundError):
            enforce(refusals(path, lstat(name, dir_fd)))
        raise
    # What counts is what was opened, not what the name meant a moment before or after.
    kind = stat.S_IFDIR if flags == FOLDER else stat.S_IFREG
    if found.info.st_mode & _KIND_AND_OTHERS != kind or found.info.st_uid != os.geteuid():
        for refusal in refusals(path, found.info):
            os.close(found.fd)
            raise refusal
    return found


def read(path: str, name: str, dir_fd: int, most: int, *, whole: bool = False) -> bytes:
    """Return the first so many bytes of a file that only this user can write, under one name.

    Args:
        path: the whole path, for messages.
        name: the file, seen from `dir_fd`.
        dir_fd: the folder.
        most: how many bytes to read, if it has as many.
        whole: refuse one that has more.

    Raises:
        LimitExceeded: it has more.
        UnsafeLocation: it is something else, or others can write it.
        OSError: it cannot be read; FileNotFoundError if there is none.
    """
    found = _checked(path, name, files.READ, dir_fd, record_refusals)
    with found as fd:
        if found.info.st_nlink > 1:
            temp = partial(lstat, TEMP, dir_fd)
            enforce(hard_link_refusals(path, lambda: os.fstat(fd), temp))
        size = min(found.info.st_size, most)
        if whole and size < found.info.st_size:
            raise LimitExceeded(
                f"{shell(path)} has {found.info.st_size} bytes or more, and the limit is {most}.",
                "Find out who wrote it; if it was you, pass the same Limits here as there.",
            )
        data = os.read(fd, size)
        while len(data) < size and (more := os.read(fd, size - len(data))):
            data += more
        return data


def exists(name: str, dir_fd: int) -> bool:
    """Tell whether a folder has something under a name, a link that leads nowhere included."""
    try:
        lstat(name, dir_fd)
    except FileNotFoundError:
        return False
    return True


# --- writing


def create_root(path: str) -> None:
    """Create an absolute folder if it is missing, and sync the name in its parent.

    Raises:
        StorageUnavailable: this user may not create it.
        OSError: another step failed. A folder that was made is removed again.
    """
    new = not os.path.lexists(path)
    try:
        if new:
            files.make_folder(path)
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


def put(
    path: str,
    dir_fd: int,
    content: bytes | memoryview,
    *,
    over: bool = False,
    mode: int = 0o600,
    temp: str = TEMP,
) -> None:
    """Make a file appear under its name: whole, on disk, and never over another unless asked to.

    One at a time: hold the lock of the folder, or give a `temp` that nobody else has.

    Args:
        path: the whole path; its last name is that of the file.
        dir_fd: the folder.
        content: all that it holds.
        over: whether it may take the place of another. If the disk does not confirm that, it is
            said, and either of the two may be there.
        mode: who may read it, whatever the umask.
        temp: its name while it is written.

    Raises:
        FileExistsError: there is one. It is as durable as what this would have made.
        UnsafeLocation: somebody planted something under the name of what is on its way in.
        StorageUnavailable: the file system has no hard links, or the disk neither confirmed the
            file nor let it go.
        OSError: another step failed. A new file is not there.
    """
    name = Path(path).name
    with _written(path, dir_fd, memoryview(content), mode, temp):
        if over:
            os.rename(temp, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            os.fsync(dir_fd)
            return
        try:
            os.link(temp, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
        except FileExistsError:
            os.fsync(dir_fd)  # whoever made it may not have come to that yet, or may have died
            raise
        except OSError as error:
            if error.errno not in _UNSUPPORTED | {errno.EPERM}:
                raise
            raise StorageUnavailable(
                f"The file system of {shell(path)} has no hard links, so nothing was saved.", _LOCAL
            ) from error
        try:
            os.fsync(dir_fd)
        except BaseException:
            _withdraw(path, name, dir_fd)
            raise


@contextmanager
def _written(path: str, dir_fd: int, content: memoryview, mode: int, temp: str) -> Iterator[None]:
    try:
        fd = os.open(temp, files.CREATE, 0o600, dir_fd=dir_fd)
    except FileExistsError:
        # What a crash left, and maybe the second name of what it published.
        enforce(record_refusals(f"{Path(path).parent}/{temp}", lstat(temp, dir_fd)))
        os.unlink(temp, dir_fd=dir_fd)
        fd = os.open(temp, files.CREATE, 0o600, dir_fd=dir_fd)
    try:
        try:
            os.fchmod(fd, mode)
            files.write_all(fd, content)
            # Before it gets its name, which must never lead to bytes that are not on disk. If this
            # fails, the kernel may have dropped them, and a second try would succeed without them:
            # so there is none, here and after every other sync.
            os.fsync(fd)
        finally:
            # Before it gets its name, too: SQLite's locks belong to the process, and closing any
            # descriptor of a file lets go of all of them.
            os.close(fd)
        yield
    finally:
        # Last of all. After a rename there is nothing to remove.
        with suppress(OSError):
            os.unlink(temp, dir_fd=dir_fd)


def _withdraw(path: str, name: str, dir_fd: int) -> None:
    """Take back what the disk did not confirm, and what nobody was told of."""
    try:
        os.unlink(name, dir_fd=dir_fd)
    except OSError as error:
        raise StorageUnavailable(
            f"{shell(path)} was written, but the disk neither confirmed it nor let it go.",
            "Look at the system's log, and at what is there, before you go on.",
        ) from error


def try_lock(fd: int) -> bool:
    """Hold the file if nobody does."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(fd: int, path: str) -> Iterator[None]:
    """Be alone in this block among the threads and processes that lock this file or folder.

    Args:
        fd: what to lock, opened by this call alone: a lock belongs to what was opened.
        path: it, for the message.

    Raises:
        StorageUnavailable: somebody else has held it for too long, or there are no locks here.
    """
    deadline = time.monotonic() + PATIENCE
    try:
        while not try_lock(fd):
            if time.monotonic() > deadline:
                raise StorageUnavailable(
                    f"Another process has held the lock on {shell(path)} for {PATIENCE:g} s.",
                    f"Find it, let it end, and try again: fuser -v {shell(path)}",
                )
            time.sleep(0.001)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        raise StorageUnavailable(
            f"The file system of {shell(path)} cannot lock a folder.", _LOCAL
        ) from error
    try:
        yield
    finally:
        # Closing it would do, but for a forked child that holds it open too.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)


# --- what the system says, in our words


@contextmanager
def translated(doing: str, path: str, gone: tuple[str, str] | None = None) -> Iterator[None]:
    """Turn what the system reports into the error tree.

    Args:
        doing: what failed, before a path: "save to", "read from", "open" or "prune".
        path: where, for the message.
        gone: what happened, and what to do, where there is nothing at the path any more.
    """
    try:
        yield
    except OSError as error:
        raise translate(error, doing, path, gone) from error


def translate(
    error: OSError, doing: str, path: str, gone: tuple[str, str] | None = None
) -> StorageError:
    """Return the error that says what the system's one means here, and what to do."""
    shown = shell(path)
    code = errno.errorcode.get(error.errno or 0, "unknown")
    lost = ", so nothing was saved" if doing == "save to" else ""
    if error.errno in FULL:
        return StorageFull(
            f"There is no room left for {shown} ({code}){lost}.",
            "Free some space, or raise the quota or the file size limit, and try again.",
        )
    what = f"The system could not {doing} {shown} ({code}){lost}."
    do = "Look at the system's log for the cause before you try again."
    if error.errno == errno.EROFS:
        what, do = f"{shown} is on a read-only file system{lost}.", "Mount it for writing."
    elif error.errno in (errno.EACCES, errno.EPERM):
        what, do = f"This process may not {doing} {shown}{lost}.", f"Run: chmod -R u+rwX {shown}"
    elif error.errno == errno.ENOENT:
        what, do = gone or (
            f"{shown} is gone{lost}.",
            "Put it back from a backup, or construct the storage again to begin an empty one.",
        )
    return StorageUnavailable(what, do)
