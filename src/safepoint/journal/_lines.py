"""Reading a journal's files piece by piece, and writing a line whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Final

from safepoint.errors import JournalUnavailable
from safepoint.journal import _text
from safepoint.journal._chain import refused, too_long

_CHUNK: Final = 64 * 1024


def lines(fd: int, start: int, end: int, where: str) -> Iterator[bytes]:
    """Yield each line between two offsets. The last has no line break if it is unfinished.

    Raises:
        JournalBroken: a line is longer than any that a journal writes, or the file is shorter
            than it was.
    """
    rest = b""
    while start < end:
        chunk = os.pread(fd, min(_CHUNK, end - start), start)
        if not chunk:
            raise refused(f"{where} became shorter while it was read.")
        start += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line + b"\n"
        if len(rest) > _text.LINE_BYTES:
            raise too_long(f"A line in {where}")
    if rest:
        yield rest


def aligned(fd: int, offset: int, where: str) -> int:
    """Return where the first line begins at or after an offset.

    Raises:
        JournalBroken: none does within the length of a line.
    """
    if offset == 0:
        return 0
    found = os.pread(fd, _text.LINE_BYTES + 1, offset - 1).find(b"\n")
    if found < 0:
        raise too_long(f"A line in {where}")
    return offset + found


def put(fd: int, offset: int, line: bytes, before: bytes, where: str) -> None:
    """Write a line at the end of a file, durably, in the place of an unfinished one.

    The unfinished one is written over, not cut off first: whoever dies in between leaves one again.

    Raises:
        OSError: it failed, and the file is as before.
        JournalUnavailable: it failed, and the file could not be put back.
    """
    try:
        _write(fd, line, offset)
        if len(before) > len(line):
            os.ftruncate(fd, offset + len(line))
        os.fsync(fd)
    except BaseException:
        take_back(fd, offset, before, where)
        raise


def take_back(fd: int, offset: int, before: bytes, where: str) -> None:
    """Put back what stood at the end of a file.

    Raises:
        JournalUnavailable: the disk refuses that.
    """
    try:
        os.ftruncate(fd, offset)
        if before:
            _write(fd, before, offset)
        os.fsync(fd)
    except OSError as error:
        raise JournalUnavailable(
            f"A line was written to {where}, and the disk neither confirmed it nor let it go.",
            "Nothing was done. Look at the system's log, and take a copy of the journal, before"
            " you go on.",
        ) from error


def _write(fd: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, offset)
        if not written:
            raise OSError(errno.EIO, "nothing was written")
        rest, offset = rest[written:], offset + written
