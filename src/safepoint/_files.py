"""Files done right, once: by descriptor, never through a link, whole or not there."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safepoint.errors import (
    CheckpointError,
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
# The names are missing on Windows, where this module must still import; SUPPORTED is False there.
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SAFE
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
# O_NONBLOCK: opening a FIFO that somebody planted must not wait for its other end.
READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | _SAFE
TEMP = ".next"
"""The name of a file on its way in. What a crash left under it, the next writer removes."""
PATIENCE = 30.0
"""How many seconds to wait for somebody who holds a lock."""
FULL = frozenset([errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
"""What the system says where there is no room."""
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
_KIND_AND_OTHERS = 0o170000 | _OTHERS_WRITE
_UNSUPPORTED = frozenset([errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS])
_LOCAL = "Name a folder on a local file system such as ext4, XFS or APFS."


def require_posix(what: str = "FileCheckpointStorage") -> None:
    """Refuse a system that lacks the calls on which files stand here.

    Raises:
        StorageUnavailable: on Windows, and wherever files cannot be reached by descriptor.
    """
    if not SUPPORTED:
        raise StorageUnavailable(
            f"{what} needs a POSIX system.", f"Use {what.replace('File', 'SQLite')} here."
        )


# --- paths


def as_named(path: object, what: str, kind: str = "folder") -> Path:
    """Return the path from the root on, with whatever links are in it.

    Args:
        path: the path, as somebody named it.
        what: what the path is called, at the start of a message.
        kind: what it leads to: a folder, or a file.

    Raises:
        StorageUnavailable: no file can have it, or it is relative to a folder that is gone.
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise StorageUnavailable(
            f"{what} is {type(path).__name__}, not a path.",
            f"Pass a str or a pathlib.Path that names a {kind}.",
        )
    if not text:
        raise StorageUnavailable(f"{what} is empty.", f"Name a {kind}: there is no default.")
    try:
        fits = "\0" not in text and len(os.fsencode(text)) <= _LONGEST
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise StorageUnavailable(
            f"{quoted(text)} cannot be the path of a {kind}.",
            f"Use at most {_LONGEST} bytes, no NUL character and no lone surrogate.",
        )
    try:
        return Path(text) if Path(text).is_absolute() else Path.cwd() / text
    except OSError as error:
        raise StorageUnavailable(
            f"{what} is relative, and the current folder is gone.", "Pass an absolute path."
        ) from error


def absolute(path: object, what: str = "storage_path") -> str:
    """Return the path of a folder: absolute, links resolved in its parent but not in itself.

    Raises:
        StorageUnavailable: no folder can have it, or its parent is missing or cannot be reached.
        UnsafeLocation: its parent is not a folder.
    """
    named = as_named(path, what)
    # "x/.." has no last name of its own that could be a link; all of it is parent.
    parent, name = (named, "") if named.name in ("", "..") else (named.parent, named.name)
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
    return str(Path(resolved, name))


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


# --- who may write


def enforce(refusals: Iterable[StorageError]) -> None:
    """Raise the first refusal, if there is one."""
    for refusal in refusals:
        raise refusal


def private(info: os.stat_result, kind: int) -> bool:
    """Tell whether something is of that kind, this user's, and writable by nobody else."""
    return info.st_mode & _KIND_AND_OTHERS == kind and info.st_uid == os.geteuid()


def folder_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with a folder of ours, by what `lstat` or `fstat` says of it."""
    if private(info, stat.S_IFDIR):
        return
    shown, inside = shell(path), shell(str(Path(path, "checkpoints")))
    own = f"Name a folder of your own, such as {inside}: mkdir -m 700 {inside}"
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
        yield _foreign(path, info, own)
    elif info.st_mode & stat.S_ISVTX:
        yield UnsafeLocation(f"{shown} is shared by all users.", own)
    else:
        yield _writable(path, info, 0o700)


def record_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with a file of ours, by what `lstat` or `fstat` says of it."""
    if private(info, stat.S_IFREG):
        return
    shown = shell(path)
    if not stat.S_ISREG(info.st_mode):
        link = stat.S_ISLNK(info.st_mode)
        yield UnsafeLocation(
            f"{shown} is {'a symbolic link' if link else 'not a regular file'}.",
            f"This store never makes one. See who did, then remove it: ls -l {shown}",
        )
        return
    if info.st_uid != os.geteuid():
        yield _foreign(path, info, f"Run: sudo chown {os.geteuid()} {shown}")
    if info.st_mode & _OTHERS_WRITE:
        yield _writable(path, info, 0o600)


def _foreign(path: str, info: os.stat_result, do: str) -> UnsafeLocation:
    user = os.geteuid()
    return UnsafeLocation(
        f"{shell(path)} belongs to user {info.st_uid}, and this process is user {user}.", do
    )


def _writable(path: str, info: os.stat_result, mode: int) -> UnsafeLocation:
    return UnsafeLocation(
        f"{shell(path)} can be written by others (mode {stat.S_IMODE(info.st_mode):04o}).",
        f"Run: chmod {mode:o} {shell(path)}",
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
    if info.st_nlink < 2:
        return
    if temp is not None:
        with suppress(FileNotFoundError):
            ours = os.path.samestat(temp(), info)
    if stat_again().st_nlink > 1 + ours:
        shown = shell(path)
        yield UnsafeLocation(
            f"{shown} has a second name (hard link).",
            f"Whoever holds it may change the record. Find it, and remove it:"
            f" find / -samefile {shown}",
        )


def location_refusals(path: str) -> Iterator[StorageError]:
    """Yield each reason why this absolute path is no place for a folder of ours.

    A folder that does not exist yet is no reason: it can be made.
    """
    with suppress(FileNotFoundError):
        yield from folder_refusals(path, Path(path).lstat())
    for ancestor in Path(path).parents:
        yield from _open_to("Every user can rename and replace", ancestor, stat.S_IWOTH, "o-w")


def _open_to(who: str, folder: Path, bit: int, mode: str) -> Iterator[StorageError]:
    info = folder.lstat()
    if info.st_mode & bit and not info.st_mode & stat.S_ISVTX:
        shown = shell(str(folder))
        yield UnsafeLocation(
            f"{who} what is inside {shown} (mode {stat.S_IMODE(info.st_mode):04o}).",
            f"Run: chmod {mode} {shown}",
        )


def stranger_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield that a folder belongs to somebody who is neither root nor this user."""
    if info.st_uid not in (0, os.geteuid()):
        yield UnsafeLocation(
            f"{shell(path)} belongs to user {info.st_uid}, who can replace what is inside it.",
            "Name a folder that has only root and your own user above it.",
        )


def replaceable_refusals(path: str, *, groups: bool = False) -> Iterator[StorageError]:
    """Yield each reason why others could replace what lies in this absolute folder.

    A link among the names counts as what it is, since its owner decides where it leads; so does
    each folder on the way that it leads.

    Args:
        path: the folder.
        groups: whether to look at groups, too. That of this process is let pass: where each user
            has a group of their own, new folders can be written by it.
    """
    for folder in (Path(path), *Path(path).parents):
        info = folder.lstat()
        yield from stranger_refusals(str(folder), info)
        if stat.S_ISLNK(info.st_mode):
            continue
        yield from _open_to("Every user can rename and replace", folder, stat.S_IWOTH, "o-w")
        if groups and info.st_gid not in (0, os.getegid()):
            who = f"The group {info.st_gid} can replace"
            yield from _open_to(who, folder, stat.S_IWGRP, "g-w")
    resolved = os.path.realpath(path)
    if resolved != path:
        yield from replaceable_refusals(resolved, groups=groups)


def rollback_refusals(named: Path, resolved: str) -> Iterator[StorageError]:
    """Yield each reason why others could change an anchor, or put last night's copy in its place.

    Nothing stands behind an anchor: an older one is as genuine as the present one. So nobody else
    may own a folder above it, or a link on the way to it.

    Args:
        named: its folder as it was named, from the root on.
        resolved: what `absolute` made of that.
    """
    yield from location_refusals(resolved)
    for refusal in replaceable_refusals(str(named.parent), groups=True):
        yield UnsafeLocation(
            f"The anchor {shell(resolved)} could be replaced by an older copy. {refusal.what}",
            refusal.do,
        )


# --- folders and files, open


class Descriptor:
    """An open descriptor with what `fstat` says of it, closed at the end of a `with`."""

    __slots__ = ("fd", "info")

    def __init__(self, fd: int, info: os.stat_result) -> None:
        self.fd = fd
        self.info = info

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
    """Open a folder that only this user can write.

    Args:
        path: the whole path, for messages.
        name: what to open, seen from `dir_fd`.
        dir_fd: the folder around it, or None if `name` is absolute.

    Raises:
        UnsafeLocation: it is a link, not a folder, or others can write it.
        OSError: it cannot be opened.
    """
    return _checked(path, name, FOLDER, dir_fd, stat.S_IFDIR, folder_refusals)


def same_folder(path: str, identity: tuple[int, int], noun: str) -> Descriptor:
    """Open an absolute folder again, if it is still the one of that identity.

    Raises:
        UnsafeLocation: as `folder`, or somebody put another one in its place.
        OSError: it cannot be opened.
    """
    found = folder(path, path)
    if found.identity != identity:
        os.close(found.fd)
        raise UnsafeLocation(
            f"{shell(path)} is not the folder that this {noun} was opened on.",
            f"Find out who replaced it, and construct the {noun} again if that is right:"
            f" ls -ld {shell(path)}",
        )
    return found


def record(path: str, name: str, dir_fd: int) -> Descriptor:
    """Open a regular file that only this user can write.

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


def read(path: str, name: str, dir_fd: int, limit: int, most: int | None = None) -> bytes:
    """Return the bytes of a file that only this user can write and that has one name.

    Args:
        path: the whole path, for messages.
        name: the file, seen from `dir_fd`.
        dir_fd: the folder.
        limit: how many bytes it may have.
        most: how many of them to read, if not all.

    Raises:
        UnsafeLocation: it is something else.
        LimitExceeded: it is larger.
        OSError: it cannot be read; FileNotFoundError if there is none.
    """
    found = record(path, name, dir_fd)
    with found as fd:
        if found.info.st_nlink > 1:
            enforce(hard_link_refusals(path, lambda: os.fstat(fd), lambda: lstat(TEMP, dir_fd)))
        size = found.info.st_size
        if most is not None and size <= limit:
            return os.read(fd, most)
        # One more than it should have: if that does not come, this was all.
        data = os.read(fd, size + 1) if size <= limit else b""
        while size <= limit and len(data) != size and len(data) <= limit:
            more = os.read(fd, limit + 1 - len(data))
            if not more:
                break
            data += more
    if max(size, len(data)) > limit:
        raise LimitExceeded(
            f"{shell(path)} has {max(size, len(data))} bytes or more, and the limit is {limit}.",
            "Find out who wrote it; if it was you, pass the same Limits here as there.",
        )
    return data


def lstat(name: str, dir_fd: int) -> os.stat_result:
    """Return what a folder has under a name, be it a link."""
    return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)


def exists(name: str, dir_fd: int) -> bool:
    """Tell whether a folder has something under a name, a link that leads nowhere included."""
    try:
        lstat(name, dir_fd)
    except FileNotFoundError:
        return False
    return True


# --- writing


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
    """Create an absolute folder if it is missing, and sync the name in its parent.

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


def write_all(fd: int, content: bytes | memoryview) -> None:
    """Write every byte: one `write` may take a part of them, as it does on a disk that fills up."""
    rest = memoryview(content)
    while rest:
        written = os.write(fd, rest)
        if not written:
            raise OSError(errno.EIO, "nothing was written")
        rest = rest[written:]


def put(
    path: str,
    dir_fd: int,
    content: bytes,
    *,
    over: bytes | bool = False,
    mode: int = 0o600,
    temp: str = TEMP,
) -> None:
    """Make a file appear under its name: whole, on disk, and never over another unless asked to.

    One at a time: hold the lock of the folder, or give a `temp` that nobody else has.

    Args:
        path: the whole path; its last name is that of the file.
        dir_fd: the folder.
        content: all that it holds.
        over: what it holds now, which is put back if the disk does not confirm the new content;
            True if whatever it holds may go, False if there must be no such file.
        mode: who may read it, whatever the umask.
        temp: its name while it is written.

    Raises:
        FileExistsError: there is one. It is as durable as what this would have made.
        UnsafeLocation: somebody planted something under the name of what is on its way in.
        StorageUnavailable: the file system has no hard links, or the disk neither confirmed the
            file nor let it go.
        OSError: another step failed. All is as it was.
    """
    with _written(path, dir_fd, content, mode, temp):
        if over is False:
            _link(path, temp, dir_fd)
        else:
            os.rename(temp, Path(path).name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        try:
            os.fsync(dir_fd)
        except BaseException:
            _withdraw(path, dir_fd, over)
            raise


@contextmanager
def _written(path: str, dir_fd: int, content: bytes, mode: int, temp: str) -> Iterator[None]:
    try:
        fd = os.open(temp, CREATE, 0o600, dir_fd=dir_fd)
    except FileExistsError:
        # What a crash left, and maybe the second name of what it published.
        enforce(record_refusals(f"{Path(path).parent}/{temp}", lstat(temp, dir_fd)))
        os.unlink(temp, dir_fd=dir_fd)
        fd = os.open(temp, CREATE, 0o600, dir_fd=dir_fd)
    try:
        try:
            os.fchmod(fd, mode)
            write_all(fd, content)
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


def _link(path: str, temp: str, dir_fd: int) -> None:
    try:
        name = Path(path).name
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


def _withdraw(path: str, dir_fd: int, over: bytes | bool) -> None:
    """Take back what the disk did not confirm, and what nobody was told of."""
    try:
        if over is False:
            os.unlink(Path(path).name, dir_fd=dir_fd)
        elif isinstance(over, bytes):
            with _written(path, dir_fd, over, 0o600, TEMP):
                os.rename(TEMP, Path(path).name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except (OSError, CheckpointError) as error:
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


def wait_for_lock(fd: int, patience: float) -> bool:
    """Hold the file as soon as nobody else does. Return whether that was within so many seconds."""
    deadline = time.monotonic() + patience
    while not try_lock(fd):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def unlock(fd: int) -> None:
    """Let go of the file. Closing it would do, but for a forked child that holds it open too."""
    fcntl.flock(fd, fcntl.LOCK_UN)


@contextmanager
def locked(fd: int, path: str) -> Iterator[None]:
    """Be alone in this block among the threads and processes that lock this file or folder.

    Args:
        fd: what to lock, opened by this call alone: a lock belongs to what was opened.
        path: it, for the message.

    Raises:
        StorageUnavailable: somebody else has held it for too long, or there are no locks here.
    """
    try:
        held = wait_for_lock(fd, PATIENCE)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        raise StorageUnavailable(
            f"The file system of {shell(path)} cannot lock a folder.", _LOCAL
        ) from error
    if not held:
        raise StorageUnavailable(
            f"Another process has held the lock on {shell(path)} for {PATIENCE:g} s.",
            f"Find it, let it end, and try again: fuser -v {shell(path)}",
        )
    try:
        yield
    finally:
        with suppress(OSError):
            unlock(fd)


# --- what the system says, in our words


class translated:  # noqa: N801  read as a function, and cheaper than one
    """Turn what the system reports into the error tree.

    Args:
        doing: what failed, before a path: "save to", "read from", "open" or "prune".
        path: where, for the message.
        error: in place of StorageUnavailable and StorageFull, as an anchor says it.
        gone: what happened, and what to do, where there is nothing at the path any more.
    """

    __slots__ = ("doing", "error", "gone", "path")

    def __init__(
        self,
        doing: str,
        path: str,
        error: type[CheckpointError] | None = None,
        gone: tuple[str, str] | None = None,
    ) -> None:
        self.doing, self.path, self.error, self.gone = doing, path, error, gone

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        told = raised
        if isinstance(raised, OSError):
            told = translate(raised, self.doing, self.path, self.gone)
        if self.error is not None and isinstance(told, (StorageUnavailable, StorageFull)):
            told = self.error(told.what, told.do)
        if told is not None and told is not raised:
            raise told from raised


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
            *gone
            or (
                f"{shown} is gone{lost}.",
                "Put it back from a backup, or construct the storage again to begin an empty one.",
            )
        )
    return StorageUnavailable(
        f"The system could not {doing} {shown} ({code}){lost}.",
        "Look at the system's log for the cause before you try again.",
    )
