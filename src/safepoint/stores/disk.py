"""Safe file access: by descriptor, in places that others cannot write, with atomic writes."""

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
    Unavailable,
    Unsafe,
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
# The error codes for a full disk, quota or file size limit.
FULL = frozenset([errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
# File systems that several machines share, by their types in /proc/self/mountinfo.
NETWORK = re.compile(
    "nfs4?|cifs|smb3|smbfs|afs|coda|ncpfs|davfs|ceph|glusterfs|lustre|beegfs|gpfs|orangefs|gfs2"
    # Some are shared by a machine and its host: neither sees memory that the other one maps.
    "|ocfs2|9p|virtiofs|vboxsf|vmhgfs|prl_fs|fakeowner|fuse\\.(vmhgfs-fuse|grpcfuse|osxfs|sshfs"
    "|glusterfs|ceph|ceph-fuse|juicefs|s3fs|goofys|gcsfuse|blobfuse2?|rclone|davfs2?|curlftpfs)"
)
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | files.SAFE
# The name of a file while it is written. If a crash leaves one, the next writer removes it.
TEMP = ".next"
PATIENCE = 30.0  # seconds to wait for a lock
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_UNSUPPORTED = frozenset([errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS])
_LOCAL = "Name a folder on a local file system such as ext4, XFS or APFS."
_KIND_AND_OTHERS = 0o170000 | OTHERS_WRITE


def require_posix() -> None:
    """Refuse a system that lacks the file operations that this module needs.

    Raises:
        Unavailable: on Windows, and where files cannot be opened relative to a descriptor.
    """
    if not SUPPORTED:
        raise Unavailable("This needs a POSIX system: Linux or macOS.", "On Windows, use WSL.")


# --- paths


def as_named(path: str | os.PathLike[str], what: str, kind: str = "folder") -> Path:
    """Return the absolute path, without resolving its links.

    Args:
        path: the path as the caller gave it.
        what: the name of the argument, for the message.
        kind: what the path leads to: "folder" or "file".

    Raises:
        Unavailable: it is not a valid path, or it is relative to a folder that is gone.
    """
    try:
        text = os.fspath(path)
        if text and b"\0" not in os.fsencode(text):
            return Path(text).absolute()
    except (OSError, TypeError, ValueError):
        pass
    raise Unavailable(f"{what} is {quoted(path)}, which cannot be the path of a {kind}.")


def absolute(path: str | os.PathLike[str], what: str = "storage_path") -> str:
    """Return the absolute path of a folder, resolving the links above it but not a link at its end.

    Raises:
        Unavailable: it is not a valid path, or its parent is missing or cannot be reached.
    """
    named = as_named(path, what)
    # The end of "x/.." cannot be a link: treat the whole path as the parent.
    parent, name = (named, "") if named.name in ("", "..") else (named.parent, named.name)
    shown = shell(str(parent))
    try:
        resolved = os.path.realpath(parent, strict=True)
        if not Path(resolved).is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except OSError as error:
        do = f"Run: mkdir -p -m 700 {shown}" if isinstance(error, FileNotFoundError) else None
        raise Unavailable(f"{shown} cannot be reached ({error.strerror}).", do) from error
    return str(Path(resolved, name))


def network_file_system(path: str) -> str | None:
    """Return the file system type of an absolute path, if several machines share that file system.

    It is None for a local file system, and always None on systems other than Linux.
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


def enforce(refusals: Iterable[Unavailable]) -> None:
    """Raise the first refusal, if there is one."""
    for refusal in refusals:
        raise refusal


def folder_refusals(path: str, info: os.stat_result) -> Iterator[Unavailable]:
    """Yield what is wrong with a folder of this package, given its `lstat` or `fstat`."""
    shown, inside = shell(path), shell(str(Path(path, "checkpoints")))
    link = (
        "The owner of the link decides where it leads. See where, and name that folder instead:"
        f" readlink -f {shown}"
    )
    other = f"Name another path; see what is there: ls -ld {shown}"
    own = f"Name a folder of your own, such as {inside}: mkdir -m 700 {inside}"
    return _refusals(path, info, "folder", (link, other, own))


def record_refusals(path: str, info: os.stat_result) -> Iterator[Unavailable]:
    """Yield what is wrong with a file of this package, given its `lstat` or `fstat`."""
    other = f"This store never makes one. See who did, then remove it: ls -l {shell(path)}"
    own = f"Run: sudo chown {os.geteuid()} {shell(path)}"
    return _refusals(path, info, "regular file", (other, other, own))


def _refusals(
    path: str, info: os.stat_result, noun: str, do: tuple[str, str, str]
) -> Iterator[Unavailable]:
    """Yield what is wrong. `do` says what to do about a link, another kind and another owner."""
    shown, mode, user = shell(path), info.st_mode, os.geteuid()
    is_folder = noun == "folder"
    if stat.S_ISLNK(mode):
        yield Unsafe(f"{shown} is a symbolic link.", do[0], "link")
    elif not (stat.S_ISDIR(mode) if is_folder else stat.S_ISREG(mode)):
        yield Unsafe(f"{shown} is not a {noun}.", do[1], "other-kind")
    elif info.st_uid != user:
        what = f"{shown} belongs to user {info.st_uid}, and this process is user {user}."
        yield Unsafe(what, do[2], "other-owner")
    elif mode & OTHERS_WRITE:
        yield Unsafe(
            f"{shown} can be written by others (mode {stat.S_IMODE(mode):04o}).",
            do[2] if mode & stat.S_ISVTX else f"Run: chmod {'700' if is_folder else '600'} {shown}",
            "writable",
        )


def hard_link_refusals(
    path: str,
    stat_again: Callable[[], os.stat_result],
    temp: Callable[[], os.stat_result] | None = None,
) -> Iterator[Unavailable]:
    """Yield a refusal if a file has a second name (hard link) that this package did not create.

    While a file is published, it briefly has two names; after a crash at that moment, it has them
    until the next write. The links are counted after the temporary name is read, so that a publish
    that ends in between does not cause an alarm.

    Args:
        path: the file, for the message.
        stat_again: reads its `stat`, fresh on each call.
        temp: reads the `stat` of the temporary name.
    """
    info, ours = stat_again(), 0
    if temp is not None:
        with suppress(FileNotFoundError):
            ours = os.path.samestat(temp(), info)
    if stat_again().st_nlink > 1 + ours:
        shown = shell(path)
        yield Unsafe(
            f"{shown} has a second name (hard link).",
            f"Find the other name, and remove it: find / -samefile {shown}",
            "hard-link",
        )


def location_refusals(path: str) -> Iterator[Unavailable]:
    """Yield each reason why this absolute path is not safe for a folder of this package.

    A folder that does not exist yet is not refused, because it can be created.
    """
    with suppress(FileNotFoundError):
        yield from folder_refusals(path, Path(path).lstat())
    for ancestor in Path(path).parents:
        yield from files.open_to_others(ancestor, groups=False)


def rollback_refusals(named: Path, resolved: str) -> Iterator[Unavailable]:
    """Yield each reason why others could change an anchor, or replace it with an older copy.

    Nothing else would reveal an older copy of an anchor, because it is as genuine as the current
    one. So only this user and root may own the folders above it and the links on the way to it.

    Args:
        named: its folder as the caller gave it, as an absolute path.
        resolved: the same folder, as `absolute` returns it.
    """
    yield from location_refusals(resolved)
    for refusal in files.replaceable_refusals(str(named.parent)):
        yield Unsafe(
            f"The anchor {shell(resolved)} could be replaced by an older copy. {refusal.what}",
            refusal.do,
            refusal.kind,
        )


# --- folders and files, open


class opened:  # noqa: N801  read as a function
    """A descriptor that is open until the end of a `with` block.

    Attributes:
        fd: its number.
        info: its `fstat`.
    """

    __slots__ = ("fd", "info")

    def __init__(self, name: str, flags: int, dir_fd: int | None = None) -> None:
        self.fd = os.open(name, flags, 0o600, dir_fd=dir_fd)
        self.info = os.fstat(self.fd)

    @property
    def identity(self) -> tuple[int, int]:
        """The device and inode, which identify it."""
        return self.info.st_dev, self.info.st_ino

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the data was synced, and this would hide an earlier error
            os.close(self.fd)


def lstat(name: str, dir_fd: int | None) -> os.stat_result:
    """Return the `stat` of a name in a folder, without following a link."""
    return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)


def folder(path: str, name: str, dir_fd: int | None = None) -> opened:
    """Open a folder that only this user can write.

    Args:
        path: the whole path, for messages.
        name: the folder to open, relative to `dir_fd`.
        dir_fd: its parent folder, or None if `name` is absolute.

    Raises:
        Unsafe: it is a link, not a folder, or others can write it.
        OSError: it cannot be opened.
    """
    return _checked(path, name, FOLDER, dir_fd, folder_refusals)


def same_folder(path: str, identity: tuple[int, int]) -> opened:
    """Open an absolute folder again, if it still has that identity.

    Raises:
        Unsafe: as `folder`, or the folder was replaced.
        OSError: it cannot be opened.
    """
    found = folder(path, path)
    if found.identity != identity:
        os.close(found.fd)
        raise Unsafe(
            f"{shell(path)} is not the folder that this storage was opened on.",
            f"Find out who replaced it: ls -ld {shell(path)}",
            "replaced",
        )
    return found


def _checked(
    path: str,
    name: str,
    flags: int,
    dir_fd: int | None,
    refusals: Callable[[str, os.stat_result], Iterable[Unavailable]],
) -> opened:
    try:
        found = opened(name, flags, dir_fd)
    except FileNotFoundError:
        raise
    except OSError:
        # The code depends on the system (a link: ELOOP, ENOTDIR, EMLINK). Check what it is.
        with suppress(FileNotFoundError):
            enforce(refusals(path, lstat(name, dir_fd)))
        raise
    # Check the opened file itself: the name may refer to another one a moment before or after.
    kind = stat.S_IFDIR if flags == FOLDER else stat.S_IFREG
    if found.info.st_mode & _KIND_AND_OTHERS != kind or found.info.st_uid != os.geteuid():
        for refusal in refusals(path, found.info):
            os.close(found.fd)
            raise refusal
    return found


def read(path: str, name: str, dir_fd: int, most: int, *, whole: bool = False) -> bytes:
    """Return up to `most` bytes of a file that only this user can write and that has one name.

    Args:
        path: the whole path, for messages.
        name: the file, relative to `dir_fd`.
        dir_fd: the folder.
        most: the maximum number of bytes to read.
        whole: refuse a file that is longer.

    Raises:
        LimitExceeded: it is longer.
        Unsafe: it is not a regular file, has a second name, or others can write it.
        OSError: it cannot be read; FileNotFoundError if it does not exist.
    """
    found = _checked(path, name, files.READ, dir_fd, record_refusals)
    with found as fd:
        if found.info.st_nlink > 1:
            temp = partial(lstat, TEMP, dir_fd)
            enforce(hard_link_refusals(path, lambda: os.fstat(fd), temp))
        size = min(found.info.st_size, most)
        if whole and size < found.info.st_size:
            raise LimitExceeded(
                f"{shell(path)} has {found.info.st_size} bytes or more, and the limit is {most}."
            )
        data = os.read(fd, size)
        while len(data) < size and (more := os.read(fd, size - len(data))):
            data += more
        return data


def exists(name: str, dir_fd: int) -> bool:
    """Tell whether a name exists in a folder, even as a broken link."""
    try:
        lstat(name, dir_fd)
    except FileNotFoundError:
        return False
    return True


# --- writing


def create_root(path: str) -> None:
    """Create an absolute folder if it is missing, and sync its name in the parent folder.

    Raises:
        Unavailable: this user may not create it.
        OSError: another step failed. If the folder was created, it is removed again.
    """
    new = not os.path.lexists(path)
    try:
        if new:
            files.make_folder(path)
    except PermissionError as error:
        raise Unavailable(
            f"This process may not create {shell(path)}.",
            f"Run: sudo install -d -m 700 -o {os.geteuid()} {shell(path)}",
        ) from error
    try:
        with opened(str(Path(path).parent), FOLDER) as parent:
            os.fsync(parent)
    except OSError:
        # An existing folder's parent may be closed to us; the creator has synced the name.
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
    """Create a complete file on disk. It replaces an existing file only if `over` is set.

    Hold the lock of the folder, or pass a unique `temp`, because two writers cannot share one.

    Args:
        path: the whole path.
        dir_fd: its folder.
        content: its whole content.
        over: whether it may replace an existing file. If the disk does not confirm that, this
            raises, and either the old file or the new one may be there.
        mode: its permissions, regardless of the umask.
        temp: its name while it is written.

    Raises:
        FileExistsError: the file exists. It is as durable as this would have made it.
        Unsafe: somebody placed something else under the temporary name.
        Unavailable: the file system has no hard links, or the disk neither confirmed the
            file nor removed it.
        OSError: another step failed. A new file does not exist.
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
            os.fsync(dir_fd)  # its writer may not have reached that yet, or may have died
            raise
        except OSError as error:
            if error.errno not in _UNSUPPORTED | {errno.EPERM}:
                raise
            raise Unavailable(
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
        # A crash left it, perhaps as the second name of a published file.
        enforce(record_refusals(f"{Path(path).parent}/{temp}", lstat(temp, dir_fd)))
        os.unlink(temp, dir_fd=dir_fd)
        fd = os.open(temp, files.CREATE, 0o600, dir_fd=dir_fd)
    try:
        try:
            os.fchmod(fd, mode)
            write_all(fd, content)
            # Before the file gets its name, which must never lead to bytes that are not on disk. If
            # a sync fails, the kernel may have dropped the bytes, and a second sync would succeed
            # without them. So no sync in this package is tried twice.
            os.fsync(fd)
        finally:
            # Also before it gets its name: SQLite's locks belong to the process, and closing any
            # descriptor of a file releases all of them.
            os.close(fd)
        yield
    finally:
        # At the very end. After a rename there is nothing to remove.
        with suppress(OSError):
            os.unlink(temp, dir_fd=dir_fd)


def write_all(fd: int, content: bytes | memoryview) -> None:
    """Write every byte: one `write` may write only some, for example when the disk fills up."""
    rest = memoryview(content)
    while rest:
        written = os.write(fd, rest)
        if not written:
            raise OSError(errno.EIO, "nothing was written")
        rest = rest[written:]


def _withdraw(path: str, name: str, dir_fd: int) -> None:
    """Remove a file that the disk did not confirm, before anybody relies on it."""
    try:
        os.unlink(name, dir_fd=dir_fd)
    except OSError as error:
        raise Unavailable(
            f"{shell(path)} was written but not confirmed by the disk, and could not be removed.",
            "Look at what is there before you continue.",
        ) from error


def try_lock(fd: int) -> bool:
    """Lock the file if it is free, and tell whether it was."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(fd: int, path: str) -> Iterator[None]:
    """Hold an exclusive lock on a file or folder, against other threads and processes.

    Args:
        fd: its descriptor, opened only for this call: a lock belongs to the open file.
        path: its path, for the message.

    Raises:
        Unavailable: somebody else held it for too long, or the file system has no locks.
    """
    deadline = time.monotonic() + PATIENCE
    try:
        while not try_lock(fd):
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"Another process has held the lock on {shell(path)} for {PATIENCE:g} s.",
                    f"Find it, wait until it ends, and try again: fuser -v {shell(path)}",
                )
            time.sleep(0.001)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        raise Unavailable(
            f"The file system of {shell(path)} cannot lock a folder.", _LOCAL
        ) from error
    try:
        yield
    finally:
        # Closing it is not enough if a forked child also has it open.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)


# --- errors of the system


@contextmanager
def translated(doing: str, path: str, gone: tuple[str, str] | None = None) -> Iterator[None]:
    """Turn an error of the system into an error of this package.

    Args:
        doing: the action, for the message, such as "save to", "read from", "open" or "prune".
        path: the path, for the message.
        gone: what happened and what to do if the path no longer exists.
    """
    try:
        yield
    except OSError as error:
        raise translate(error, doing, path, gone) from error


def translate(
    error: OSError, doing: str, path: str, gone: tuple[str, str] | None = None
) -> Unavailable:
    """Return an error of this package that says what the system's error means and what to do."""
    shown = shell(path)
    code = errno.errorcode.get(error.errno or 0, "unknown")
    lost = ", so nothing was saved" if doing == "save to" else ""
    if error.errno in FULL:
        return Unavailable(f"No room is left for {shown} ({code}){lost}.")
    what, do = f"The system could not {doing} {shown} ({code}){lost}.", None
    if error.errno == errno.EROFS:
        what = f"{shown} is on a read-only file system{lost}."
    elif error.errno in (errno.EACCES, errno.EPERM):
        what, do = f"This process may not {doing} {shown}{lost}.", f"Run: chmod -R u+rwX {shown}"
    elif error.errno == errno.ENOENT:
        what, do = gone or (f"{shown} is gone{lost}.", "Mount its volume, or restore its backup.")
    return Unavailable(what, do)
