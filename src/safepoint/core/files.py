"""Key files: in folders that others cannot write and never half written.

`safepoint.stores.disk` has what the stores need in addition.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from safepoint.core.errors import Unavailable, Unsafe, shell

# The names are missing on Windows, where this module must still import.
SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE
# O_NONBLOCK: opening a FIFO that somebody planted must not wait for its other end.
READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | SAFE


def open_to_others(folder: Path, *, groups: bool) -> Iterator[Unavailable]:
    """Yield a refusal for each way in which others can replace files in a folder."""
    info, shown = folder.lstat(), shell(str(folder))
    inside = f"replace what is inside {shown} (mode {stat.S_IMODE(info.st_mode):04o})."
    if info.st_mode & stat.S_ISVTX or stat.S_ISLNK(info.st_mode):
        return
    if info.st_mode & stat.S_IWOTH:
        do = f"Run: chmod o-w {shown}"
        yield Unsafe(f"Every user can rename and {inside}", do, "replaceable")
    if groups and info.st_mode & stat.S_IWGRP and info.st_gid not in (0, os.getegid()):
        do = f"Run: chmod g-w {shown}"
        yield Unsafe(f"The group {info.st_gid} can {inside}", do, "replaceable")


def stranger_refusals(path: str, info: os.stat_result) -> Iterator[Unavailable]:
    """Yield a refusal if a folder belongs to somebody who is neither root nor this user."""
    if info.st_uid not in (0, os.geteuid()):
        yield Unsafe(
            f"{shell(path)} belongs to user {info.st_uid}, who can replace what is inside it.",
            "Name a folder that has only root and your own user above it.",
            "stranger",
        )


def replaceable_refusals(path: str) -> Iterator[Unavailable]:
    """Yield each reason why others could replace files in this absolute folder.

    A symbolic link in the path is checked itself, because its owner decides where it leads. So is
    each folder on the path that it leads to. Write access for the group of this process is
    accepted: where each user has a private group, new folders have it.
    """
    for folder in (Path(path), *Path(path).parents):
        yield from stranger_refusals(str(folder), folder.lstat())
        yield from open_to_others(folder, groups=True)
    if os.path.realpath(path) != path:
        yield from replaceable_refusals(os.path.realpath(path))


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file that somebody may have planted: no link is followed and no pipe waited for.

    Raises:
        OSError: it cannot be opened, or it is not a regular file.
    """
    file = open(path, "rb", opener=lambda name, _: os.open(name, READ))  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "not a regular file")


def make_folder(name: str, dir_fd: int | None = None) -> None:
    """Create a folder with mode 0700, whatever the umask, unless something exists there."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=dir_fd)
        os.chmod(name, 0o700, dir_fd=dir_fd)


def publish(path: str, content: memoryview, mode: int) -> None:
    """Create a file under its name: complete, on disk, never over an existing one.

    A crash can leave a file in the same folder whose name begins with `.new-`: remove it.

    Raises:
        FileExistsError: there is one. It is as durable as what this would have made.
        OSError: another step failed.
    """
    temp = Path(path).with_name(f".new-{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(temp, CREATE, 0o600), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # before it gets its name
        try:
            os.link(temp, path, follow_symlinks=False)
        except FileExistsError:
            sync(temp.parent)  # whoever made it may have died before this
            raise
        try:
            sync(temp.parent)
        except OSError:
            Path(path).unlink()
            raise
    finally:
        with suppress(OSError):
            temp.unlink()


def sync(folder: Path) -> None:
    """Flush the names in a folder to disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
