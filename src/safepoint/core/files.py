"""Files done right: opened by descriptor, in folders that others cannot write, whole or not there.

What keys need of it, and every store. `safepoint.stores.disk` goes on from here.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safepoint.core.errors import StorageError, StorageUnavailable, UnsafeLocation, shell

if sys.platform != "win32":
    import fcntl

# The names are missing on Windows, where this module must still import.
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SAFE
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE
# O_NONBLOCK: opening a FIFO that somebody planted must not wait for its other end.
READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | _SAFE
# The name of a file on its way in. What a crash left under it, the next writer removes.
TEMP = ".next"
PATIENCE = 30.0  # seconds to wait for somebody who holds a lock
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_UNSUPPORTED = frozenset([errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS])
_LOCAL = "Name a folder on a local file system such as ext4, XFS or APFS."


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


def open_to_others(folder: Path, *, groups: bool) -> Iterator[StorageError]:
    """Yield that others, or another group too, can replace what lies in a folder."""
    info, shown = folder.lstat(), shell(str(folder))
    inside = f"replace what is inside {shown} (mode {stat.S_IMODE(info.st_mode):04o})."
    if info.st_mode & stat.S_ISVTX or stat.S_ISLNK(info.st_mode):
        return
    if info.st_mode & stat.S_IWOTH:
        do = f"Run: chmod o-w {shown}"
        yield UnsafeLocation(f"Every user can rename and {inside}", do, "replaceable")
    if groups and info.st_mode & stat.S_IWGRP and info.st_gid not in (0, os.getegid()):
        do = f"Run: chmod g-w {shown}"
        yield UnsafeLocation(f"The group {info.st_gid} can {inside}", do, "replaceable")


def stranger_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield that a folder belongs to somebody who is neither root nor this user."""
    if info.st_uid not in (0, os.geteuid()):
        yield UnsafeLocation(
            f"{shell(path)} belongs to user {info.st_uid}, who can replace what is inside it.",
            "Name a folder that has only root and your own user above it.",
            "stranger",
        )


def replaceable_refusals(path: str) -> Iterator[StorageError]:
    """Yield each reason why others could replace what lies in this absolute folder.

    A link among the names counts as what it is, since its owner decides where it leads; so does
    each folder on the way that it leads. The group of this process is let pass: where each user
    has a group of their own, new folders can be written by it.
    """
    for folder in (Path(path), *Path(path).parents):
        yield from stranger_refusals(str(folder), folder.lstat())
        yield from open_to_others(folder, groups=True)
    if os.path.realpath(path) != path:
        yield from replaceable_refusals(os.path.realpath(path))


# --- open


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


# --- writing


def make_folder(name: str, dir_fd: int | None = None) -> None:
    """Create a folder with mode 0700 whatever the umask, unless something is there."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=dir_fd)
        os.chmod(name, 0o700, dir_fd=dir_fd)


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
