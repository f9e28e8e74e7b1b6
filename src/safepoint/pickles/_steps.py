"""The arguments of a pickle's instructions, read as leniently as an unpickler might read them.

What is long is passed over by its length, and a file is read in small parts.
"""

from __future__ import annotations

import pickletools
import re
from typing import IO, Final, NamedTuple

from safepoint.pickles._zips import read_at

_HEAD: Final = 4096
_CHUNK: Final = 64 * 1024
_ID: Final = 1024 * 1024
_SOME: Final = "x"  # stands for a text that was not decoded, and may be any name
_LENGTHS: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: (1, False),
    pickletools.TAKEN_FROM_ARGUMENT4: (4, True),
    pickletools.TAKEN_FROM_ARGUMENT4U: (4, False),
    pickletools.TAKEN_FROM_ARGUMENT8U: (8, False),
}
_UTF8: Final = frozenset(["BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"])
_BYTES: Final = frozenset(["BINSTRING", "SHORT_BINSTRING"])
_INTEGERS: Final = frozenset(["INT", "LONG"])
_INTEGER: Final = re.compile(rb"\s*[+-]?[0-9a-fA-FxXoO_]*[lL]?\s*\Z")


class Info(NamedTuple):
    """An instruction.

    Attributes:
        name: its name.
        fixed: the bytes of its argument, if it is a number.
        length: the bytes of its argument's length, and whether that has a sign.
        lines: the lines of its argument.
        to_mark: whether it takes everything above the last mark.
        takes: how many values it takes besides.
        leaves: how many it leaves.
    """

    name: str
    fixed: int
    length: tuple[int, bool] | None
    lines: int
    to_mark: bool
    takes: int
    leaves: int


def _info(known: pickletools.OpcodeInfo) -> Info:
    size = 0 if known.arg is None else known.arg.n
    before = list(known.stack_before)
    to_mark = pickletools.markobject in before
    takes = before.index(pickletools.markobject) if to_mark else len(before)
    lines = 0
    if size == pickletools.UP_TO_NEWLINE:
        lines = 2 if known.name in ("GLOBAL", "INST") else 1
    after = 0 if known.name == "MARK" else len(known.stack_after)
    return Info(known.name, max(size, 0), _LENGTHS.get(size), lines, to_mark, takes, after)


INSTRUCTIONS: Final = {ord(known.code): _info(known) for known in pickletools.opcodes}


class Broken(Exception):
    """An unpickler would go no further."""


class Cut(Broken):
    """The bytes end between two instructions."""


class Over(Broken):
    """It is not looked at further."""


class Bytes:
    """A file, read in small parts.

    Args:
        file: the file.
        size: how many bytes it has.
        most: the byte behind which nothing is looked at.
        line: how long a line may be.
    """

    def __init__(self, file: IO[bytes], size: int, most: int, line: int) -> None:
        self._file = file
        self._most = most
        self._line = line
        self.size = size
        self.reached = 0
        self._begin = 0
        self._chunk = b""

    def get(self, position: int, size: int) -> bytes:
        """Return so many bytes from there."""
        end = position + size
        if end > self.size:
            raise Broken
        if end > self._most:
            raise Over
        self.reached = max(self.reached, end)
        if not self._begin <= position <= end <= self._begin + len(self._chunk):
            self._read(position, size)
        return self._chunk[position - self._begin : end - self._begin]

    def line(self, position: int, most: int | None = None) -> tuple[bytes, int]:
        """Return a line, and where the next one begins. A long one is told by its beginning."""
        most = self._line if most is None else most
        if not self._begin <= position < self._begin + len(self._chunk):
            self._read(position, 1)
        at = self._chunk.find(b"\n", position - self._begin)
        if at < 0 and (position > self._begin or len(self._chunk) < _CHUNK):
            self._read(position, 1)
            at = self._chunk.find(b"\n")
        first = self._chunk[position - self._begin : at if at >= 0 else None]
        while at < 0:
            following = self.reached = self._begin + len(self._chunk)
            if following - position > most:
                raise Over
            self._read(following, 1)
            at = self._chunk.find(b"\n")
        self.reached = self._begin + at + 1
        return first, self.reached

    def _read(self, position: int, size: int) -> None:
        if position >= self.size:
            raise Broken
        if position >= self._most:
            raise Over
        # Most files break at once: the first part is small.
        self._chunk = read_at(self._file, position, max(size, _CHUNK if self._chunk else _HEAD))
        self._begin = position
        if len(self._chunk) < size:  # somebody made the file shorter
            raise Broken


def argument_of(
    info: Info, data: Bytes, position: int
) -> tuple[str | int | tuple[str, str] | None, int]:
    """Return the argument of the instruction at a place, and where the next instruction begins.

    Raises:
        Broken: there is none that an unpickler would take.
        Over: it is longer than is looked at.
    """
    begin = position + 1
    if info.lines == 2:
        module, middle = data.line(begin)
        name, end = data.line(middle)
        return (_utf8(module), _utf8(name)), end
    if info.lines:
        return _from_line(info.name, data, begin)
    if info.length is not None:
        return _sized(info, data, begin)
    if not info.fixed:
        return None, begin
    raw = data.get(begin, info.fixed)
    return int.from_bytes(raw, "little"), begin + info.fixed


def _sized(info: Info, data: Bytes, begin: int) -> tuple[str | None, int]:
    width, signed = info.length or (0, False)
    size = int.from_bytes(data.get(begin, width), "little", signed=signed)
    begin += width
    end = begin + size
    if size < 0 or end > data.size:
        raise Broken
    if info.name not in _UTF8 | _BYTES:
        return None, end
    if size > _CHUNK:
        return _SOME, end
    raw = data.get(begin, size)
    return _utf8(raw) if info.name in _UTF8 else raw.decode("latin-1"), end


def _from_line(name: str, data: Bytes, begin: int) -> tuple[str | int | None, int]:
    if name == "PERSID":
        # Only an unpickler that was made for such ids goes on behind one, and they are short.
        try:
            return None, data.line(begin, _ID)[1]
        except Over:
            raise Broken from None
    raw, end = data.line(begin)
    if name == "UNICODE":
        is_plain = b"\\" not in raw and len(raw) < _CHUNK
        return raw.decode("latin-1") if is_plain else _SOME, end
    if name == "STRING":
        if len(raw) >= _CHUNK:
            return _SOME, end
        if len(raw) < 2 or raw[:1] not in (b"'", b'"') or raw[-1:] != raw[:1]:
            raise Broken
        return raw[1:-1].decode("latin-1") if b"\\" not in raw else _SOME, end
    return _number(name, raw.partition(b"\0")[0]), end


def _utf8(raw: bytes) -> str:
    if len(raw) >= _CHUNK:  # the beginning of it, which may end within a letter
        return raw.decode("utf-8", "ignore")
    try:
        return raw.decode("utf-8", "surrogatepass")
    except ValueError:
        raise Broken from None


def _number(name: str, raw: bytes) -> int | None:
    """Return the place that a text tells, None for a number of which only the form is looked at."""
    try:
        if name == "FLOAT":
            float(raw)
        elif name not in _INTEGERS:
            return int(raw)
        elif not _INTEGER.match(raw):
            raise Broken
    except ValueError:
        raise Broken from None
    return None
