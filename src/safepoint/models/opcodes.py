"""What the bytes of a pickle would ask for, read as any unpickler could: nothing is run or built.

The bytes may be anything. What is read here is as lenient as Python's unpickler, so that a file
that it follows up to a name is never taken for no pickle.
"""

from __future__ import annotations

import io
import pickletools
import re
import struct
from typing import IO, Any, Final, Literal, NamedTuple

from safepoint.core.errors import CheckpointError, DecodeError, LimitExceeded
from safepoint.models.limits import DEFAULT_PICKLE_LIMITS, PickleLimits, over
from safepoint.models.machine import INTACT, named

_LONGEST: Final = 64 * 1024  # of a text that may be a name
_LINE: Final = 1024 * 1024
_ANY: Final = "x"  # stands for a text that was not decoded, and may be any name
_LOOSE: Final = re.compile(rb"[+-]?[0-9a-fA-FxXoO_]*[lL]?")
_MODULE: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*")  # any folder imports, such as site-packages
_LENGTHS: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: "<B",
    pickletools.TAKEN_FROM_ARGUMENT4: "<i",
    pickletools.TAKEN_FROM_ARGUMENT4U: "<I",
    pickletools.TAKEN_FROM_ARGUMENT8U: "<Q",
}
_NUMBERS: Final = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}
_PLAIN_INDEX: Final = 2**32
_TOLD: Final = 1_000
_PROTOCOL: Final = 5
_ASKS: Final = frozenset(["GLOBAL", "INST", "STACK_GLOBAL"])
_NUMBERED: Final = frozenset(["EXT1", "EXT2", "EXT4"])
_CALLS: Final = frozenset(["REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ", "INST"])
_PUTS: Final = frozenset(["PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"])
_GETS: Final = frozenset(["GET", "BINGET", "LONG_BINGET"])
# C's unpickler drops what is left of a frame, and reads the instruction from what follows.
_CROSSED: Final = "what stands behind a frame that an instruction crosses"


class _Info(NamedTuple):
    """What an instruction takes and leaves, and how its argument is written."""

    name: str
    number: struct.Struct | None
    sized: bool
    lines: int
    to_mark: bool
    takes: int
    leaves: int


def _info(known: pickletools.OpcodeInfo) -> _Info:
    size = 0 if known.arg is None else known.arg.n
    before = list(known.stack_before)
    to_mark = pickletools.markobject in before
    takes = before.index(pickletools.markobject) if to_mark else len(before)
    lines = 0 if size != pickletools.UP_TO_NEWLINE else 2 if known.name in ("GLOBAL", "INST") else 1
    spelled = _LENGTHS.get(size) or _NUMBERS.get(size)
    number = struct.Struct(spelled) if spelled else None
    leaves = 0 if known.name == "MARK" else len(known.stack_after)
    return _Info(known.name, number, size in _LENGTHS, lines, to_mark, takes, leaves)


INSTRUCTIONS: Final = {ord(known.code): _info(known) for known in pickletools.opcodes}
"""What each instruction is like, by its code."""


def read_at(file: IO[bytes], position: int, size: int) -> bytes:
    """Return up to so many bytes from there. A file without a buffer may give them in pieces."""
    file.seek(position)
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


class Part(io.RawIOBase):
    """A part of an open file, as a file: for a member of an archive."""

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        super().__init__()
        self._file, self._start, self._size, self._at = file, start, size, 0

    def seekable(self) -> bool:
        """Say that it can seek."""
        return True

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place, from the start, from here or from the end."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read from there."""
        data = read_at(self._file, self._start + self._at, max(0, min(len(buffer), self._left())))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _left(self) -> int:
        return self._size - self._at


def part_of(file: IO[bytes], start: int, size: int) -> IO[bytes]:
    """Return a part of an open file, as a file."""
    return io.BufferedReader(Part(file, start, size))


class Scan(NamedTuple):
    """What the instructions of one pickle say, as far as any unpickler could follow them.

    Attributes:
        asked: the names that it asks for, module and name.
        unclear: what else it asks for: a name that is only known when it runs.
        opcodes: how many instructions it has.
        asks: whether an unpickler gets to where it asks for a name, or calls what it asked for.
        stopped: whether an unpickler gets to its STOP, with a value.
        sound: whether each instruction found what it takes on the stack.
        end: where it ends, or where it cannot be read further.
        broken: why it cannot be read further. What is above has run by then.
    """

    asked: tuple[tuple[str, str], ...]
    unclear: tuple[str, ...]
    opcodes: int
    asks: bool
    stopped: bool
    sound: bool
    end: int
    broken: CheckpointError | None

    @property
    def imports(self) -> tuple[str, ...]:
        """What it asks for, as text, sorted."""
        return tuple(sorted({named(*pair) for pair in self.asked} | {*self.unclear}))


def scan(
    file: IO[bytes],
    start: int = 0,
    *,
    limits: PickleLimits = DEFAULT_PICKLE_LIMITS,
    until: Literal["end", "break", "name"] = "end",
) -> Scan:
    """Look at the pickle that begins at `start`. It raises nothing: what is wrong is in `broken`.

    Args:
        file: the bytes.
        start: where the pickle begins.
        limits: how much is looked at.
        until: look no further than to where every unpickler breaks, or to the first name.
    """
    follower = _Follower(file, start, limits)
    try:
        while follower.name != "STOP":
            follower.step()
            if until != "end" and (not follower.sound or (follower.asks and until == "name")):
                break
    except (DecodeError, LimitExceeded) as error:
        follower.broken = error
    return follower.found()


def asks(file: IO[bytes], limits: PickleLimits = DEFAULT_PICKLE_LIMITS) -> Scan:
    """Look at the pickles that stand one behind another, up to the first that asks for a name.

    The instructions are those of all of them.
    """
    start, left, size = 0, limits.opcodes, file.seek(0, io.SEEK_END)
    while True:
        found = scan(file, start, limits=limits, until="name")
        left -= found.opcodes
        if found.asks or not found.stopped or found.end >= size or left < 0:
            return found._replace(opcodes=limits.opcodes - left)
        start = found.end


class _Follower:
    """Follows one pickle: how deep its stack is, its memo, and the last two texts."""

    def __init__(self, file: IO[bytes], start: int, limits: PickleLimits) -> None:
        self._file, self._limits = file, limits
        self._size = file.seek(0, io.SEEK_END)
        file.seek(start)
        self._start = self._at = self._frame = start
        self._asked: dict[tuple[str, str], None] = {}
        self._unclear: dict[str, None] = {}
        self._marks: list[int] = []
        self._memo: dict[int | str, str | None] = {}
        self._depth = self._count = 0
        self._texts: tuple[str | None, str | None] = None, None
        self.name = ""
        self.asks = False
        self.sound = True
        self.broken: CheckpointError | None = None

    def found(self) -> Scan:
        """Return what is known by now."""
        stopped = self.name == "STOP" and self.sound
        names, unclear, count = tuple(self._asked), tuple(self._unclear), self._count
        return Scan(names, unclear, count, self.asks, stopped, self.sound, self._at, self.broken)

    def step(self) -> None:
        """Follow one instruction."""
        if self._count >= self._limits.opcodes:
            raise over(self._limits, "opcodes")
        code = self._file.read(1)
        info = INSTRUCTIONS.get(code[0]) if code else None
        if info is None:
            raise DecodeError("The pickle is cut short, or holds what is no instruction.", INTACT)
        try:
            argument = self._argument(info)
        except (DecodeError, LimitExceeded):
            if self._at < self._frame:
                self._cross()
            raise
        end = self._file.tell()
        reach = end + argument if info.name == "FRAME" else end
        inside = self._at < self._frame
        if inside and (reach > self._frame or (info.name == "STOP" and reach < self._frame)):
            self._cross()
        if info.name == "FRAME" and reach <= self._size:  # no unpickler goes on in a longer one
            self._frame = max(self._frame, reach)
        if end - self._start > self._limits.data_bytes:
            raise over(self._limits, "data_bytes")
        self.name = info.name
        self._follow(info, argument)
        self._count, self._at = self._count + 1, end

    def _cross(self) -> None:
        self._unclear[_CROSSED] = None
        self.asks = self.asks or self.sound

    def _argument(self, info: _Info) -> Any:
        number = None
        if info.number is not None:
            raw = self._file.read(info.number.size)
            if len(raw) < info.number.size:
                raise _cut()
            (number,) = info.number.unpack(raw)
        if info.sized and number is not None:
            return self._sized(info.name, number)
        return self._lined(info) if info.lines else number

    def _sized(self, name: str, length: int) -> str | None:
        begin = self._file.tell()
        if length < 0 or begin + length > self._size:
            raise _cut()
        if "UNICODE" not in name and "STRING" not in name:
            self._file.seek(begin + length)
            return None
        if length > _LONGEST:
            self._file.seek(begin + length)
            return _ANY
        raw = self._file.read(length)
        if "STRING" in name:
            return raw.decode("ascii", "surrogateescape")
        try:
            return raw.decode("utf-8", "surrogatepass")
        except ValueError:
            problem = _cut()
        raise problem

    def _lined(self, info: _Info) -> Any:
        lines = []
        for _ in range(info.lines):
            line = self._file.readline(_LINE)
            at_end = self._file.tell() == self._size
            # Python's own unpickler takes the last letter of a file for the newline.
            if line[-1:] != b"\n" and not (info.lines == 2 and line and at_end):
                raise _cut() if at_end else over(self._limits, "data_bytes")
            lines.append(line[:-1])
        problem = _cut()
        try:
            if info.lines == 2:
                return tuple(line.decode("utf-8", "surrogatepass") for line in lines)
            return _loose(info.name, lines[0])
        except ValueError:
            pass
        raise problem

    def _follow(self, info: _Info, argument: Any) -> None:
        name = info.name
        if name in _ASKS:
            self._ask(name, self._texts if name == "STACK_GLOBAL" else argument)
        elif name in _NUMBERED:
            self._unclear[f"number {argument} of copyreg's extensions"] = None
        if name in _PUTS:
            self.sound &= self._depth > self._floor()
            self._memo[len(self._memo) if argument is None else argument] = self._texts[1]
            return
        if name == "MARK":
            self._marks.append(self._depth)
        elif name == "POP" and self._marks and self._marks[-1] == self._depth:
            self._marks.pop()
        else:
            if info.to_mark:
                self.sound &= bool(self._marks)
                self._depth = self._marks.pop() if self._marks else 0
            self.sound &= self._depth - info.takes >= self._floor()
            self._depth = max(self._depth - info.takes, self._floor()) + info.leaves
            self.sound &= name != "PROTO" or argument <= _PROTOCOL
        if name in _GETS:
            self.sound &= argument in self._memo
            argument = self._memo.get(argument)
        text = argument if type(argument) is str else None
        if name not in ("PROTO", "FRAME"):
            self._texts = self._texts[1] if text is not None else None, text
        # By an odd name, by a number or by an id: what is called was asked for.
        odd = self._asked or self._unclear or name == "INST"
        self.asks = self.asks or bool(odd and self.sound and name in _CALLS)

    def _floor(self) -> int:
        return self._marks[-1] if self._marks else 0

    def _ask(self, op: str, pair: tuple[str | None, str | None]) -> None:
        module, name = pair
        if len(self._asked) + len(self._unclear) > _TOLD:
            self._unclear[f"more than {_TOLD} names"] = None
        elif module is None or name is None:
            self._unclear[f"a name that is made while it runs (byte {self._at})"] = None
            # What is no text is none to any unpickler.
        else:
            self._asked[module, name] = None
        # A text may begin with a c, too. What is no name of a module counts once it is called.
        is_name = op == "STACK_GLOBAL" or (module and _MODULE.fullmatch(module))
        enough = self._depth - 2 >= self._floor() if op == "STACK_GLOBAL" else True
        marked = bool(self._marks) or op != "INST"
        self.asks = self.asks or bool(is_name and enough and marked and self.sound)


def _loose(name: str, raw: bytes) -> Any:
    """Return what any unpickler takes a line for: a text, an index of the memo, or None."""
    before = raw.partition(b"\0")[0]
    if name in ("GET", "PUT"):
        index = int(before)
        # Of numbers that large, an attacker can choose a million with one hash.
        return index if abs(index) <= _PLAIN_INDEX else str(index)
    if name in ("INT", "LONG") and not _LOOSE.fullmatch(before.strip()):
        raise ValueError
    if name == "FLOAT":
        float(before)
    if name not in ("STRING", "UNICODE"):
        return None
    if b"\\" in raw:
        return _ANY
    if name == "UNICODE":
        return raw.decode("latin-1")
    raw = raw.rstrip()
    if len(raw) < 2 or raw[:1] not in (b"'", b'"') or raw[-1:] != raw[:1]:
        raise ValueError
    return raw[1:-1].decode("latin-1")


def _cut() -> DecodeError:
    return DecodeError("The pickle is cut short or malformed.", INTACT)
