"""The system calls under the file storage: by descriptor, never through a link, whole or not."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from safepoint.errors import (
    StorageError,
    StorageFull,
    StorageUnavailable,
    UnsafeLocation,
    quoted,
    shell,
)

NETWORK = frozenset(
    [
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "coda", "ncpfs", "davfs"),
        *("ceph", "glusterfs", "lustre", "beegfs", "gpfs", "orangefs", "gfs2", "ocfs2"),
        # Shared by a machine and its host: neither sees what is mapped into the other's memory.
        *("9p", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "fakeowner"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.juicefs"),
        *("fuse.s3fs", "fuse.goofys", "fuse.gcsfuse", "fuse.blobfuse", "fuse.blobfuse2"),
        *("fuse.rclone", "fuse.davfs", "fuse.davfs2", "fuse.curlftpfs", "fuse.vmhgfs-fuse"),
        *("fuse.grpcfuse", "fuse.osxfs"),
    ]
)
"""Where files are that other machines reach too, as /proc/self/mountinfo calls the kinds."""
_LONGEST = 4095
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def enforce(refusals: Iterable[StorageError]) -> None:
    """Raise the first refusal, if there is one."""
    for refusal in refusals:
        raise refusal


def absolute(path: object, what: str = "storage_path") -> str:
    """Return the path of the folder: absolute, links resolved in its parent but not in itself.

    Args:
        path: the folder, as somebody named it.
        what: what the path is called, at the start of a message.

    Raises:
        StorageUnavailable: it is not a path, or its parent does not exist or cannot be reached.
        UnsafeLocation: its parent is not a folder.
    """
    named = as_named(path, what)
    # "x/.." has no last name of its own that could be a link; all of it is parent.
    parent, name = (named, "") if named.name in ("", "..") else (named.parent, named.name)
    resolved = _resolved(parent)
    return str(Path(resolved, name))


def as_named(path: object, what: str, kind: str = "folder") -> Path:
    """Return the path from the root on, with whatever links are in it.

    Args:
        path: the path, as somebody named it.
        what: what the path is called, at the start of a message.
        kind: what it leads to: a folder, or a file.

    Raises:
        StorageUnavailable: it is not a path, or is relative to a folder that is gone.
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise StorageUnavailable(
            f"{what} is {type(path).__name__}, not a path.",
            f"Pass a str or a pathlib.Path that names a {kind}.",
        )
    if not text:
        raise StorageUnavailable(f"{what} is empty.", f"Name a {kind}: there is no default.")
    if not _nameable(text):
        raise StorageUnavailable(
            f"{quoted(text)} cannot be the path of a {kind}.",
            f"Use at most {_LONGEST} bytes, no NUL character and no lone surrogate.",
        )
    if Path(text).is_absolute():
        return Path(text)
    try:
        return Path.cwd() / text
    except OSError as error:
        raise StorageUnavailable(
            f"{what} is relative, and the current folder is gone.", "Pass an absolute path."
        ) from error


def _nameable(text: str) -> bool:
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return b"\0" not in encoded and len(encoded) <= _LONGEST


def _resolved(parent: Path) -> str:
    shown = shell(str(parent))
    try:
        resolved = os.path.realpath(parent, strict=True)
        found = Path(resolved).is_dir()
    except NotADirectoryError:
        found = False
    except FileNotFoundError as error:
        raise StorageUnavailable(
            f"{shown} does not exist.", f"Run: mkdir -p -m 700 {shown}"
        ) from error
    except OSError as error:
        raise StorageUnavailable(
            f"{quoted(str(parent))} cannot be reached ({error.strerror}).",
            "Name a folder that this user can reach.",
        ) from error
    if not found:
        raise UnsafeLocation(
            f"{shown} is not a folder, so nothing can be inside it.",
            f"Name another path; see what is there: ls -ld {shown}",
        )
    return resolved


def location_refusals(path: str) -> Iterator[StorageError]:
    """Yield each reason why the file storage refuses this absolute path.

    A folder that does not exist yet is no reason: the storage creates it.
    """
    try:
        info = Path(path).lstat()
    except FileNotFoundError:
        pass
    else:
        yield from folder_refusals(path, info)
    for ancestor in Path(path).parents:
        yield from ancestor_refusals(str(ancestor), ancestor.lstat())


def replaceable_refusals(path: str) -> Iterator[StorageError]:
    """Yield each reason why others could replace what lies in this absolute folder.

    A link among the names counts as what it is, since its owner decides where it leads; so does
    each folder on the way that it leads.
    """
    for folder in (Path(path), *Path(path).parents):
        info = folder.lstat()
        yield from stranger_refusals(str(folder), info)
        if not stat.S_ISLNK(info.st_mode):
            yield from ancestor_refusals(str(folder), info)
    resolved = os.path.realpath(path)
    if resolved != path:
        yield from replaceable_refusals(resolved)


def group_refusals(path: str) -> Iterator[StorageError]:
    """Yield each folder from this absolute one up in which another group can replace things.

    The group of this process is let pass: where each user has a group of their own, new folders
    can be written by it.
    """
    for folder in (Path(path), *Path(path).parents):
        info = folder.lstat()
        shared = info.st_mode & stat.S_IWGRP and not info.st_mode & stat.S_ISVTX
        if stat.S_ISDIR(info.st_mode) and shared and info.st_gid not in (0, os.getegid()):
            shown = shell(str(folder))
            yield UnsafeLocation(
                f"The group {info.st_gid} can replace what is inside {shown}"
                f" (mode {stat.S_IMODE(info.st_mode):04o}).",
                f"Run: chmod g-w {shown}",
            )


def stranger_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield that a folder belongs to somebody who is neither root nor this user."""
    if info.st_uid not in (0, os.geteuid()):
        yield UnsafeLocation(
            f"{shell(path)} belongs to user {info.st_uid}, who can replace what is inside it.",
            "Name a folder that has only root and your own user above it.",
        )


def folder_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with a folder of the store, by what `lstat` or `fstat` says of it."""
    shown = shell(path)
    if stat.S_ISLNK(info.st_mode):
        yield UnsafeLocation(
            f"{shown} is a symbolic link.",
            f"Whoever owns the link decides where it leads. See where, and name that folder"
            f" instead: readlink -f {shown}",
        )
    elif not stat.S_ISDIR(info.st_mode):
        yield UnsafeLocation(
            f"{shown} is not a folder.",
            f"Name another path; see what is there: ls -ld {shown}",
        )
    elif info.st_uid != os.geteuid():
        yield UnsafeLocation(
            f"{shown} belongs to user {info.st_uid}, and this process is user {os.geteuid()}.",
            _of_your_own(path),
        )
    elif info.st_mode & _OTHERS_WRITE and info.st_mode & stat.S_ISVTX:
        yield UnsafeLocation(f"{shown} is shared by all users.", _of_your_own(path))
    elif info.st_mode & _OTHERS_WRITE:
        yield _writable(path, info, 0o700)


def _of_your_own(path: str) -> str:
    """Say what to do about a folder that is not ours to change."""
    inside = str(Path(path, "checkpoints"))
    return f"Name a folder of your own, such as {shell(inside)}: mkdir -m 700 {shell(inside)}"


def ancestor_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with a folder above the store."""
    if info.st_mode & stat.S_IWOTH and not info.st_mode & stat.S_ISVTX:
        shown = shell(path)
        yield UnsafeLocation(
            f"Every user can rename and replace what is inside {shown}"
            f" (mode {stat.S_IMODE(info.st_mode):04o}).",
            f"Run: chmod o-w {shown}",
        )


def record_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with the file of a record, by what `lstat` or `fstat` says of it."""
    shown = shell(path)
    if stat.S_ISLNK(info.st_mode):
        yield UnsafeLocation(
            f"{shown} is a symbolic link.",
            f"This store never makes one. See who did, then remove it: ls -l {shown}",
        )
    elif not stat.S_ISREG(info.st_mode):
        yield UnsafeLocation(
            f"{shown} is not a regular file.",
            f"This store never makes one. See who did, then remove it: ls -l {shown}",
        )
    else:
        yield from _owner_refusals(path, info)
        if info.st_mode & _OTHERS_WRITE:
            yield _writable(path, info, 0o600)


def hard_link_refusals(
    path: str, stat_again: Callable[[], os.stat_result], temps: int | str | None
) -> Iterator[StorageError]:
    """Yield a refusal if a record has a name that this store did not give it.

    A record has two names for a moment while it is published, and after a crash at that moment
    until the next start; the second is then among the temps. The link count is read after the
    temps were listed, so that a publish that ends in between raises no alarm.

    Args:
        path: the record, for the message.
        stat_again: reads the record's `stat`, fresh on each call.
        temps: the folder of the temps as a descriptor or a path, or None if there is none.
    """
    info = stat_again()
    if info.st_nlink < 2:
        return
    ours = 0
    if temps is not None:
        with os.scandir(temps) as entries:
            ours = sum(_same_file(entry, info) for entry in entries)
    if stat_again().st_nlink > 1 + ours:
        shown = shell(path)
        yield UnsafeLocation(
            f"{shown} has a second name (hard link).",
            f"Whoever holds it may change the record. Find it, and remove it:"
            f" find / -samefile {shown}",
        )


def _same_file(entry: os.DirEntry[str], info: os.stat_result) -> bool:
    try:
        return os.path.samestat(entry.stat(follow_symlinks=False), info)
    except FileNotFoundError:
        return False


def _owner_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    user = os.geteuid()
    if info.st_uid != user:
        yield UnsafeLocation(
            f"{shell(path)} belongs to user {info.st_uid}, and this process is user {user}.",
            f"Run: sudo chown {user} {shell(path)}",
        )


def _writable(path: str, info: os.stat_result, mode: int) -> UnsafeLocation:
    return UnsafeLocation(
        f"{shell(path)} can be written by others (mode {stat.S_IMODE(info.st_mode):04o}).",
        f"Run: chmod {mode:o} {shell(path)}",
    )


def file_system(path: str, mountinfo: str) -> str | None:
    """Return the type of the file system at an absolute path, by the text of a mountinfo file."""
    best, kind = "", None
    for line in mountinfo.splitlines():
        mount, separator, source = line.partition(" - ")
        fields = mount.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
        # A later mount at the same point hides the earlier one, hence >=.
        if Path(path).is_relative_to(point) and len(point) >= len(best):
            best, kind = point, source.split(" ")[0]
    return kind


def network_file_system(path: str) -> str | None:
    """Return the type of the file system that an absolute path is on, if machines share it.

    It is None on a local one. The type can be read on Linux alone: elsewhere it is None too.
    """
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", errors="surrogateescape")
    except OSError:
        return None
    kind = file_system(path, mounts)
    return kind if kind in NETWORK else None


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
