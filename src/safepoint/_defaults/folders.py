"""Making the folders of a store: by descriptor, never through a link, for their owner alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from safepoint.errors import StorageError, StorageUnavailable, UnsafeLocation, shell
from safepoint.location import (
    absolute,
    enforce,
    folder_refusals,
    group_refusals,
    replaceable_refusals,
    stranger_refusals,
)
from safepoint.storage import _posix

_Refusals = Callable[[str, os.stat_result], Iterator[StorageError]]


def make_folder(path: Path, top: Path) -> None:
    """Make a folder and those above it that are missing, each with mode 0700 whatever the umask.

    What exists is looked at and not changed. Up to `top`, links are followed if they are root's
    or this user's; below it, none is.

    Args:
        path: the folder.
        top: the last folder above it that must be there.

    Raises:
        UnsafeLocation: a folder belongs to somebody else or is open to others, or others could
            replace it.
        StorageUnavailable: a folder cannot be made or opened.
        StorageFull: there is no room.
    """
    names = path.relative_to(top).parts
    start = Path(absolute(top / names[0])).parent
    with _posix.translated("create", str(path)):
        enforce(
            chain(
                replaceable_refusals(str(top)),
                group_refusals(str(top)),
                group_refusals(str(start)),
            )
        )
        _descend(start, names)


def _descend(start: Path, names: tuple[str, ...]) -> None:
    path = start.joinpath(*names)
    with ExitStack() as opened:
        fd = opened.enter_context(_open(str(start), None, str(start), _above))
        for number, name in enumerate(names, 1):
            here = str(start.joinpath(*names[:number]))
            try:
                if _posix.make_folder(name, fd):
                    os.fsync(fd)
            except PermissionError as error:
                raise StorageUnavailable(
                    f"This process may not create {shell(str(path))}.",
                    f"Run: sudo install -d -m 700 -o {os.geteuid()} {shell(str(path))}",
                ) from error
            refusals = _own_refusals if number == len(names) else _parent_refusals
            fd = opened.enter_context(_open(name, fd, here, refusals))


def _open(name: str, dir_fd: int | None, path: str, refusals: _Refusals) -> _posix.Descriptor:
    try:
        fd = os.open(name, _posix.FOLDER, dir_fd=dir_fd)
    except OSError as error:
        # The code depends on the system (a link: ELOOP, ENOTDIR, EMLINK). Look what it is.
        enforce(refusals(path, os.stat(name, dir_fd=dir_fd, follow_symlinks=False)))
        if isinstance(error, PermissionError):
            raise StorageUnavailable(
                f"This process may not look into {shell(path)}.",
                f"Run: sudo chmod go+rx {shell(path)}",
            ) from error
        raise
    found = _posix.Descriptor(fd, os.fstat(fd))
    try:
        # What counts is what was opened, not what the name meant a moment before or after.
        enforce(refusals(path, found.info))
    except BaseException:
        os.close(fd)
        raise
    return found


def _above(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield nothing: what is not ours to make was asked about before it was opened."""
    del path, info
    yield from ()


def _parent_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with a folder around the store's own. It may be root's, or readable."""
    yield from _kind_refusals(path, info)
    yield from stranger_refusals(path, info)
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield _mode(path, info)


def _own_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    """Yield what is wrong with a folder of the store: it is this user's, and closed to others."""
    yield from _kind_refusals(path, info)
    user = os.geteuid()
    if info.st_uid != user:
        yield UnsafeLocation(
            f"{shell(path)} belongs to user {info.st_uid}, and this process is user {user}.",
            f"If what is inside is yours, run: sudo chown {user} {shell(path)}",
        )
    if info.st_mode & 0o777 != 0o700:
        yield _mode(path, info)


def _kind_refusals(path: str, info: os.stat_result) -> Iterator[StorageError]:
    if not stat.S_ISDIR(info.st_mode):
        yield from folder_refusals(path, info)


def _mode(path: str, info: os.stat_result) -> UnsafeLocation:
    return UnsafeLocation(
        f"{shell(path)} has mode {stat.S_IMODE(info.st_mode):04o}, and should have 0700.",
        f"Run: chmod 700 {shell(path)}",
    )
