"""How far would an unpickler get that begins here, and would it ask for something by then?

Asked of bytes that may be anything. Unpicklers are lenient where `safepoint.pickles.opcodes` is
strict: they take `I 1`, and `F1` with a zero byte and anything behind it. What breaks the strict
reader at its first byte can therefore act. This goes on wherever an unpickler could.
"""

from __future__ import annotations

import io
import pickletools
import re
from typing import IO, Final, NamedTuple

from safepoint.pickles._zips import read_at
from safepoint.pickles.limits import PickleLimits

_CHUNK: Final = 64 * 1024
_TEXT: Final = 64 * 1024
_ID: Final = 1024 * 1024
_SOME: Final = "x"  # stands for a text that was not decoded, and may be any name
_PROTOCOL: Final = 5
_LENGTHS: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: (1, False),
    pickletools.TAKEN_FROM_ARGUMENT4: (4, True),
    pickletools.TAKEN_FROM_ARGUMENT4U: (4, False),
    pickletools.TAKEN_FROM_ARGUMENT8U: (8, False),
}
_UTF8: Final = frozenset(["BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"])
_BYTES: Final = frozenset(["BINSTRING", "SHORT_BINSTRING"])
_INTEGERS: Final = frozenset(["INT", "LONG"])
_ASKS: Final = frozenset(["GLOBAL", "INST", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4"])
_IDS: Final = frozenset(["PERSID", "BINPERSID"])
_CALLS: Final = frozenset(["REDUCE", "NEWOBJ", "NEWOBJ_EX", "BUILD", "INST", "OBJ"])
_PUTS: Final = frozenset(["PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"])
_GETS: Final = frozenset(["GET", "BINGET", "LONG_BINGET"])
_INTEGER: Final = re.compile(rb"\s*[+-]?[0-9a-fA-FxXoO_]*[lL]?\s*\Z")
_QUOTED: Final = re.compile(rb"'.*'\Z|\".*\"\Z", re.DOTALL)


class Walk(NamedTuple):
    """How far it goes.

    Attributes:
        asks: it asks for a name, or asks for something and makes a call, before it breaks.
        stopped: it comes to its STOP, with a value.
        opcodes: how many instructions were followed.
        end: where it stops or breaks.
        cut: the bytes end before it does.
        over: it goes on for longer than was looked at.
    """

    asks: bool = False
    stopped: bool = False
    opcodes: int = 0
    end: int = 0
    cut: bool = False
    over: bool = False


class _Info(NamedTuple):
    name: str
    fixed: int
    length: tuple[int, bool] | None
    lines: int
    to_mark: bool
    takes: int
    leaves: int


def _info(known: pickletools.OpcodeInfo) -> _Info:
    size = 0 if known.arg is None else known.arg.n
    before = list(known.stack_before)
    to_mark = pickletools.markobject in before
    takes = before.index(pickletools.markobject) if to_mark else len(before)
    lines = 0
    if size == pickletools.UP_TO_NEWLINE:
        lines = 2 if known.name in ("GLOBAL", "INST") else 1
    after = 0 if known.name == "MARK" else len(known.stack_after)
    return _Info(known.name, max(size, 0), _LENGTHS.get(size), lines, to_mark, takes, after)


_TABLE: Final = {ord(known.code): _info(known) for known in pickletools.opcodes}


class _Broken(Exception):
    """An unpickler would go no further."""


class _Cut(_Broken):
    """The bytes end."""


class _Over(_Broken):
    """It is not looked at further."""


def walk(
    source: IO[bytes] | bytes,
    limits: PickleLimits,
    *,
    size: int | None = None,
    most: int | None = None,
    several: bool = False,
) -> Walk:
    r"""Follow the instructions from the first byte on. What is long is passed over, and not read.

    ```python
    from safepoint.pickles.limits import DEFAULT_PICKLE_LIMITS
    from safepoint.pickles.walking import walk

    print(walk(b"I 1\n0cos\nsystem\n(S'id'\ntR", DEFAULT_PICKLE_LIMITS).asks)
    #> True
    ```

    Args:
        source: the bytes, or an open file.
        limits: how many instructions are followed, and how long a line may be.
        size: the bytes of the file. Left out, it is asked.
        most: the byte behind which nothing is looked at.
        several: go on behind a STOP, where another pickle may begin.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    whole = file.seek(0, io.SEEK_END) if size is None else size
    walker = _Walker(_Bytes(file, whole, whole if most is None else most, limits.data_bytes))
    cut = over = stopped = False
    try:
        for _ in range(limits.opcodes):
            stopped = walker.step()
            if walker.asks or (stopped and not several):
                break
            if stopped:
                walker.restart()
        else:
            over = True
    except _Broken as end:
        cut, over = isinstance(end, _Cut), isinstance(end, _Over)
    return Walk(walker.asks, stopped, walker.opcodes, walker.position, cut, over)


class _Bytes:
    """A file, read in small parts."""

    def __init__(self, file: IO[bytes], size: int, most: int, line: int) -> None:
        self._file = file
        self._most = most
        self._line = line
        self.size = size
        self._begin = 0
        self._chunk = b""

    def get(self, position: int, size: int) -> bytes:
        if position + size > self.size:
            raise _Cut
        if position + size > self._most:
            raise _Over
        at = position - self._begin
        if at < 0 or at + size > len(self._chunk):
            self._chunk = read_at(self._file, position, max(size, _CHUNK))
            self._begin, at = position, 0
            if len(self._chunk) < size:
                raise _Cut
        return self._chunk[at : at + size]

    def line(self, position: int, most: int | None = None) -> tuple[bytes, int]:
        """Return a line, and where the next one begins. A long one is told by its beginning."""
        most = self._line if most is None else most
        first, begin = b"", position
        while begin < self.size:
            if begin - position > most:
                raise _Over
            part = self.get(begin, min(_CHUNK, self.size - begin))
            at = part.find(b"\n")
            if begin == position:
                first = part if at < 0 else part[:at]
            if at >= 0:
                return first, begin + at + 1
            begin += len(part)
        raise _Cut


class _Walker:
    """The stack of an unpickler: texts, as far as they can be told. The rest is None."""

    def __init__(self, data: _Bytes) -> None:
        self._data = data
        self._values: list[str | None] = []
        self._marks: list[int] = []
        self._memo: dict[int, str | None] = {}
        self._wants = False
        self.asks = False
        self.opcodes = 0
        self.position = 0

    def restart(self) -> None:
        """Forget everything: another pickle begins."""
        self._values, self._marks, self._memo = [], [], {}

    def step(self) -> bool:
        """Follow one instruction, and tell whether it is a STOP that has a value."""
        code = self._data.get(self.position, 1)[0]
        info = _TABLE.get(code)
        if info is None:
            raise _Broken
        name = info.name
        if name in _PUTS or name == "DUP":
            self._need(1)
        argument, end = self._argument(info)
        if name == "POP" and self._marks and self._marks[-1] == len(self._values):
            self._marks.pop()
        elif name in _PUTS:
            index = argument if isinstance(argument, int) else len(self._memo)
            self._memo[index] = self._values[-1]
        elif name == "DUP":
            self._values.append(self._values[-1])
        elif name in _GETS:
            if not isinstance(argument, int) or argument not in self._memo:
                raise _Broken
            self._values.append(self._memo[argument])
        else:
            self._follow(info, argument)
        self.opcodes += 1
        self.position = end
        return name == "STOP"

    def _need(self, count: int) -> None:
        if len(self._values) - count < (self._marks[-1] if self._marks else 0):
            raise _Broken

    def _follow(self, info: _Info, argument: str | int | tuple[str, str] | None) -> None:
        values, name = self._values, info.name
        if info.to_mark:
            if not self._marks:
                raise _Broken
            del values[self._marks.pop() :]
        self._need(info.takes)
        if name in _ASKS:
            pair = values[-2:] if name == "STACK_GLOBAL" else argument
            self._asked(pair)
        self._wants = self._wants or name in _IDS
        if info.takes:
            del values[-info.takes :]
        if name == "MARK":
            self._marks.append(len(values))
        elif name == "PROTO" and isinstance(argument, int) and argument > _PROTOCOL:
            raise _Broken
        values += [argument if isinstance(argument, str) else None] * info.leaves
        if name in _CALLS and self._wants:
            self.asks = True

    def _asked(self, pair: object) -> None:
        self._wants = True
        if not isinstance(pair, (tuple, list)):
            return  # a number of copyreg's: it may stand for nothing
        module = pair[0]
        if isinstance(module, str) and all(word.isidentifier() for word in module.split(".")):
            self.asks = self.asks or isinstance(pair[1], str)

    def _argument(self, info: _Info) -> tuple[str | int | tuple[str, str] | None, int]:
        begin = self.position + 1
        if info.lines == 2:
            module, middle = self._data.line(begin)
            name, end = self._data.line(middle)
            return (_utf8(module), _utf8(name)), end
        if info.lines:
            return self._from_line(info.name, begin)
        if info.length is not None:
            return self._sized(info, begin)
        if not info.fixed:
            return None, begin
        raw = self._data.get(begin, info.fixed)
        return int.from_bytes(raw, "little"), begin + info.fixed

    def _sized(self, info: _Info, begin: int) -> tuple[str | None, int]:
        width, signed = info.length or (0, False)
        size = int.from_bytes(self._data.get(begin, width), "little", signed=signed)
        begin += width
        end = begin + size
        if size < 0:
            raise _Broken
        if end > self._data.size:
            raise _Cut
        if info.name not in _UTF8 | _BYTES:
            return None, end
        if size > _TEXT:
            return _SOME, end
        raw = self._data.get(begin, size)
        return _utf8(raw) if info.name in _UTF8 else raw.decode("latin-1"), end

    def _from_line(self, name: str, begin: int) -> tuple[str | int | None, int]:
        if name == "PERSID":
            # Only an unpickler that was made for such ids goes on behind one, and they are short.
            try:
                return None, self._data.line(begin, _ID)[1]
            except _Over:
                raise _Broken from None
        raw, end = self._data.line(begin)
        if name == "UNICODE":
            is_plain = b"\\" not in raw and len(raw) < _TEXT
            return raw.decode("latin-1") if is_plain else _SOME, end
        if name == "STRING":
            if len(raw) >= _CHUNK or b"\\" in raw:
                return _SOME, end
            if len(raw) < 2 or not _QUOTED.match(raw):
                raise _Broken
            return raw[1:-1].decode("latin-1"), end
        return _number(name, raw.partition(b"\0")[0]), end


def _utf8(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except ValueError:
        raise _Broken from None


def _number(name: str, raw: bytes) -> int | None:
    """Return the place that a text tells, None for a number of which only the form is looked at."""
    try:
        if name == "FLOAT":
            float(raw)
        elif name not in _INTEGERS:
            return int(raw)
        elif not _INTEGER.match(raw):
            raise _Broken
    except ValueError:
        raise _Broken from None
    return None
