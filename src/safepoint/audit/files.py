"""Looking at files that anybody may have put there: by their bytes, bounded, without a trace."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from safepoint.audit.finding import Finding
from safepoint.errors import StorageUnavailable, shell
from safepoint.location import absolute

# O_NONBLOCK: opening a FIFO that somebody planted must not wait for its other end.
_OPEN: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def existing_folder(path: str | os.PathLike[str]) -> str:
    """Return the folder as an absolute path.

    Raises:
        StorageUnavailable: there is no such folder.
        UnsafeLocation: its parent is not a folder.
    """
    found = absolute(path)
    if not Path(found).is_dir():
        raise StorageUnavailable(f"{shell(found)} is not a folder.", "Name the folder to look at.")
    return found


def files(path: str, closed: list[OSError]) -> Iterator[str]:
    """Return the path of each file below a folder, sorted. Links are not followed.

    Args:
        path: the folder, absolute.
        closed: where to keep the error of each folder that cannot be listed.
    """
    for parent, folders, names in os.walk(path, onerror=closed.append):
        folders.sort()
        for name in sorted(names):
            yield os.path.join(parent, name)  # noqa: PTH118  names may be any bytes


def content(file: str, most: int) -> tuple[bytes, int] | None:
    """Return the first bytes of a regular file, and how many it has.

    Returns:
        None if it is something else, or is gone by now, as files of a busy store are.

    Raises:
        OSError: it cannot be read.
    """
    try:
        if not stat.S_ISREG(os.lstat(file).st_mode):
            return None
        fd = os.open(file, _OPEN)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as opened:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return None
        return opened.read(most), info.st_size


def unclear(rule: str, file: str, reason: object) -> Finding:
    """Return the note that says why a file was not looked at as a whole."""
    return Finding(
        rule,
        "note",
        f"{shell(file)} cannot be looked at as a whole ({reason}).",
        "Look at it yourself, as a user who can read it.",
        file,
    )


def unlisted(rule: str, closed: list[OSError]) -> list[Finding]:
    """Return a note for each folder that could not be listed."""
    return [
        Finding(
            rule,
            "note",
            f"{shell(str(error.filename))} cannot be listed ({error.strerror}).",
            "Look at it yourself, as a user who can read it.",
            str(error.filename),
        )
        for error in closed
    ]
