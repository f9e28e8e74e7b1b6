"""The instructions of a pickle, read one after another. Nothing is run and nothing is built.

`read_opcodes` is the one reader. It is strict, for whoever goes on to build something: a number has
one spelling. Or it is as lenient as any unpickler, for whoever asks what bytes would do that may be
anything. `scan` follows the instructions with a stack of texts, and says what they ask for.
"""

from __future__ import annotations

import io
import pickletools
import re
import struct
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, Literal, NamedTuple

from safepoint.errors import CheckpointError, LimitExceeded, PickleRefused, quoted
from safepoint.models.limits import DEFAULT_PICKLE_LIMITS, PickleLimits

CUT: Final = "The pickle is cut short."
INTACT: Final = "Restore an intact copy, or write the state again."

_CHUNK: Final = 64 * 1024
_ID: Final = 1024 * 1024
_ANY: Final = "x"  # stands for a text that was not decoded, and may be any name
# As Python writes them. C's unpickler reads I010 as 8, and I-0 as False.
_INT: Final = re.compile(rb"(?:0|-?[1-9][0-9]*)\Z")
_LONG: Final = re.compile(rb"(?:0|-?[1-9][0-9]*)L?\Z")
_FLOAT: Final = re.compile(rb"-?(?:[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|inf|nan)\Z")
_LOOSE: Final = re.compile(rb"\s*[+-]?[0-9a-fA-FxXoO_]*[lL]?\s*\Z")
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-f]{2}|[\\'\"nrt]|)")
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_LENGTHS: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: "<B",
    pickletools.TAKEN_FROM_ARGUMENT4: "<i",
    pickletools.TAKEN_FROM_ARGUMENT4U: "<I",
    pickletools.TAKEN_FROM_ARGUMENT8U: "<Q",
}
_NUMBERS: Final = {
    "uint1": "<B",
    "uint2": "<H",
    "int4": "<i",
    "uint4": "<I",
    "uint8": "<Q",
    "float8": ">d",
}


class Window:
    """The bytes of an open file, as far as they are asked for: read in parts, never as a whole.

    Args:
        file: the file.
        start: where the bytes begin in it.
        size: how many there are; left out, all that follow.
    """

    def __init__(self, file: IO[bytes], start: int = 0, size: int | None = None) -> None:
        self._file = file
        self._start = start
        self._size = file.seek(0, io.SEEK_END) - start if size is None else size
        self._begin, self._chunk = 0, b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        begin, end = part.start or 0, min(self._size, part.stop)
        if not self._begin <= begin <= end <= self._begin + len(self._chunk):
            # Most files break at once: the first part is small.
            most = max(end - begin, _CHUNK if self._chunk else 4096)
            self._chunk = read_at(self._file, self._start + begin, min(most, self._size - begin))
            self._begin = begin
        return self._chunk[begin - self._begin : end - self._begin]

    def find(self, what: bytes, start: int, end: int) -> int:
        """Return where a byte is from there on, -1 if it is not before `end`."""
        while start < min(end, self._size):
            part = self[start : min(start + _CHUNK, end)]
            if not part or (at := part.find(what)) >= 0:
                return start + at if part else -1
            start += len(part)
        return -1


Data = bytes | Window


def read_at(file: IO[bytes], position: int, size: int) -> bytes:
    """Return up to so many bytes from there. A file without a buffer may give them in pieces."""
    file.seek(position)
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


class Op(NamedTuple):
    """One instruction.

    Attributes:
        name: its name, as in `pickletools`.
        argument: None, an int, a float, a str, bytes, or a pair (module, name).
        position: where it begins.
        end: where the next one begins.
        info: what it takes and leaves.
    """

    name: str
    argument: Any
    position: int
    end: int
    info: Info


class Info(NamedTuple):
    """What an instruction is like, whatever its argument.

    Attributes:
        name: its name.
        protocol: the first protocol that has it.
        number: the argument, if it is a number of fixed size.
        length: what stands before an argument of that many bytes.
        lines: how many lines the argument is.
        to_mark: whether it takes everything above the last mark.
        takes: how many values it takes besides.
        leaves: how many it leaves.
    """

    name: str
    protocol: int
    number: struct.Struct | None
    length: struct.Struct | None
    lines: int
    to_mark: bool
    takes: int
    leaves: int


def _info(known: pickletools.OpcodeInfo) -> Info:
    size = 0 if known.arg is None else known.arg.n
    before = list(known.stack_before)
    to_mark = pickletools.markobject in before
    takes = before.index(pickletools.markobject) if to_mark else len(before)
    lines = 0 if size != pickletools.UP_TO_NEWLINE else 2 if known.name in ("GLOBAL", "INST") else 1
    number = _NUMBERS[known.arg.name] if known.arg is not None and size > 0 else None
    return Info(
        known.name,
        known.proto,
        struct.Struct(number) if number else None,
        struct.Struct(_LENGTHS[size]) if size in _LENGTHS else None,
        lines,
        to_mark,
        takes,
        0 if known.name == "MARK" else len(known.stack_after),
    )


_INSTRUCTIONS: Final = {ord(known.code): _info(known) for known in pickletools.opcodes}


def read_opcodes(
    data: Data,
    limits: PickleLimits = DEFAULT_PICKLE_LIMITS,
    start: int = 0,
    *,
    lenient: bool = False,
) -> Iterator[Op]:
    r"""Yield the instructions of the one pickle that begins at `start`, up to its STOP.

    All instructions are read, those that only an attack uses, too. What stands behind STOP is not
    looked at: compare the last `end` with the length of the data.

    Args:
        data: the bytes; for a large file, a `Window` of it.
        limits: how many instructions, and how long.
        start: where the pickle begins.
        lenient: take what any unpickler takes. Long arguments are then passed over, and numbers
            in text come as None.

    Raises:
        PickleRefused: there is no such instruction, or the data ends within it.
        LimitExceeded: there are too many, or a number is too large.
    """
    position, size = start, len(data)
    for _ in range(limits.opcodes):
        code = data[position : position + 1]
        if not code:
            raise _cut()
        info = _INSTRUCTIONS.get(code[0])
        if info is None:
            raise PickleRefused(
                f"There is no instruction {code[0]:#04x} in a pickle, as at byte {position}.",
                INTACT,
            )
        argument, end = None, position + 1
        if info.number is not None:
            end += info.number.size
            raw = data[position + 1 : end]
            if len(raw) != info.number.size:
                raise _cut()
            (argument,) = info.number.unpack(raw)
        elif info.length is not None:
            argument, end = _sized(info, data, position, size, limits, lenient)
        elif info.lines:
            argument, end = _lined(info, data, position, limits, lenient)
        if end - start > limits.data_bytes:
            raise too_large(limits)
        yield Op(info.name, argument, position, end, info)
        if info.name == "STOP":
            return
        position = end
    raise LimitExceeded(
        f"The pickle has more than {limits.opcodes} instructions.",
        "Split what it holds, or raise PickleLimits.opcodes.",
    )


def _sized(
    info: Info, data: Data, position: int, size: int, limits: PickleLimits, lenient: bool
) -> tuple[Any, int]:
    length: Any = info.length
    begin = position + 1 + length.size
    raw = data[position + 1 : begin]
    if len(raw) != length.size:
        raise _cut()
    (count,) = length.unpack(raw)
    end = begin + count
    if count < 0:
        raise _malformed(info.name, position)
    if end > size:
        raise _cut()
    text = "UNICODE" in info.name or "STRING" in info.name
    if lenient and (count > _CHUNK or not text):
        return _ANY if text else None, end
    if info.name in ("LONG1", "LONG4"):
        if count * 8 > limits.integer_bits:
            raise _too_many_bits(limits)
        return int.from_bytes(data[begin:end], "little", signed=True), end
    raw = data[begin:end]
    if len(raw) != count:
        raise _cut()
    if not text:
        return raw, end
    return _decoded(_utf8 if "UNICODE" in info.name else _ascii, raw, info.name, position), end


def _lined(
    info: Info, data: Data, position: int, limits: PickleLimits, lenient: bool
) -> tuple[Any, int]:
    begin, lines = position + 1, []
    # Only an unpickler that was made for such ids goes on behind one, and they are short.
    most = _ID if lenient and info.name == "PERSID" else limits.data_bytes
    for _ in range(info.lines):
        end = data.find(b"\n", begin, begin + most + 1)
        if end < 0:
            raise too_large(limits) if len(data) - begin > limits.data_bytes == most else _cut()
        lines.append(data[begin:end])
        begin = end + 1
    if info.lines == 2:
        return tuple(_decoded(_utf8, line, "name", position) for line in lines), begin
    decode = _LOOSELY[info.name] if lenient else _STRICTLY[info.name]
    # log10(2) is a little more than 0.301; a sign, an L and the last digit come on top.
    digits = limits.integer_bits * 302 // 1000 + 3
    if not lenient and info.name in ("INT", "LONG", "GET", "PUT") and len(lines[0]) > digits:
        raise _too_many_bits(limits)
    what = "memo index" if info.name in ("GET", "PUT") else info.name
    value = _decoded(decode, lines[0], what, position)
    if not lenient and type(value) is int and value.bit_length() > limits.integer_bits:
        raise _too_many_bits(limits)
    return value, begin


def _decoded(decode: Callable[[bytes], Any], raw: bytes, what: str, position: int) -> Any:
    try:
        return decode(raw)
    except ValueError:
        problem = _malformed(what, position)
    raise problem


def _utf8(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _ascii(raw: bytes) -> str:
    # Bytes of Python 2 that are no ASCII become half characters, which are no text.
    return raw.decode("ascii", "surrogateescape")


def _escaped_unicode(raw: bytes) -> str:
    return raw.decode("raw-unicode-escape")


def _spelled(spelling: re.Pattern[bytes], make: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def decode(raw: bytes) -> Any:
        if not spelling.match(raw):
            raise ValueError
        return make(raw)

    return decode


def _int(raw: bytes) -> int | bool:
    return raw == b"01" if raw in (b"00", b"01") else _spelled(_INT, int)(raw)


def _index(raw: bytes) -> int:
    if not _INT.match(raw) or raw[:1] == b"-":
        raise ValueError
    return int(raw)


def _quoted(raw: bytes) -> bytes:
    if len(raw) < 2 or raw[:1] not in (b"'", b'"') or raw[-1:] != raw[:1]:
        raise ValueError
    return raw[1:-1]


def _string(raw: bytes) -> str:
    """Return what Python 2 wrote between quotes."""
    return _ascii(_ESCAPE.sub(_unescape, _quoted(raw)))


def _unescape(escape: re.Match[bytes]) -> bytes:
    letters = escape[1]
    if not letters:
        raise ValueError
    if letters[:1] == b"x":
        return bytes.fromhex(letters[1:].decode())
    return _ESCAPED.get(letters, letters)


def _loose_string(raw: bytes) -> str:
    return _ANY if b"\\" in raw else _quoted(raw.rstrip()).decode("latin-1")


def _loose_number(raw: bytes) -> None:
    if not _LOOSE.match(raw.partition(b"\0")[0]):
        raise ValueError


def _loose_float(raw: bytes) -> None:
    float(raw.partition(b"\0")[0])


_STRICTLY: Final[dict[str, Callable[[bytes], Any]]] = {
    "INT": _int,
    "LONG": _spelled(_LONG, lambda raw: int(raw.removesuffix(b"L"))),
    "FLOAT": _spelled(_FLOAT, float),
    "STRING": _string,
    "UNICODE": _escaped_unicode,
    "GET": _index,
    "PUT": _index,
    "PERSID": _utf8,
}
_LOOSELY: Final[dict[str, Callable[[bytes], Any]]] = {
    **_STRICTLY,
    "INT": _loose_number,
    "LONG": _loose_number,
    "FLOAT": _loose_float,
    "STRING": _loose_string,
    "UNICODE": lambda raw: raw.decode("latin-1") if b"\\" not in raw else _ANY,
    "GET": lambda raw: int(raw.partition(b"\0")[0]),
    "PUT": lambda raw: int(raw.partition(b"\0")[0]),
    "PERSID": lambda _: None,
}


def _cut() -> PickleRefused:
    return PickleRefused(CUT, INTACT)


def _malformed(what: str, position: int) -> PickleRefused:
    return PickleRefused(f"The pickle holds a malformed {what} at byte {position}.", INTACT)


def _too_many_bits(limits: PickleLimits) -> LimitExceeded:
    return LimitExceeded(
        f"The pickle holds an integer of more than {limits.integer_bits} bits.",
        "Write large numbers as text or bytes, or raise PickleLimits.integer_bits.",
    )


def too_large(limits: PickleLimits) -> LimitExceeded:
    """Return the error for too many bytes."""
    return LimitExceeded(
        f"The pickle is larger than {limits.data_bytes} bytes.",
        "Split what it holds, or raise PickleLimits.data_bytes.",
    )


def named(module: str, name: str) -> str:
    """Return `module.name` for a message: as it is if it is a name, and quoted if it is not."""
    full = f"{module}.{name}"
    is_name = full.isascii() and all(word.isidentifier() for word in full.split("."))
    return full if is_name and len(full) <= 100 else quoted(full)


class Asked(NamedTuple):
    """A name that a pickle asks for, and the byte at which it does so."""

    module: str
    name: str
    position: int

    def __str__(self) -> str:
        return named(self.module, self.name)


class Scan(NamedTuple):
    """What the instructions of one pickle say, as far as any unpickler could follow them.

    Attributes:
        asked: the names that it asks for, each where it does so first.
        unclear: what else it asks for: a name that is only known when it runs.
        opcodes: how many instructions it has.
        protocol: the one that it names, 0 if it names none.
        calls: whether it would call something.
        asks: whether an unpickler gets to where it asks for a name, or calls what it asked for.
        stopped: whether an unpickler gets to its STOP, with a value.
        sound: whether each instruction found what it takes on the stack.
        end: where it ends, or where it cannot be read further.
        broken: why it cannot be read further. What is above has run by then.
    """

    asked: tuple[Asked, ...]
    unclear: tuple[str, ...]
    opcodes: int
    protocol: int
    calls: bool
    asks: bool
    stopped: bool
    sound: bool
    end: int
    broken: CheckpointError | None

    @property
    def imports(self) -> tuple[str, ...]:
        """What it asks for, as text, sorted."""
        return tuple(sorted({*map(str, self.asked), *self.unclear}))


_TOLD: Final = 1_000
_PROTOCOL: Final = 5
_CALLS: Final = frozenset(["REDUCE", "NEWOBJ", "NEWOBJ_EX", "BUILD", "INST", "OBJ"])
_ASKS: Final = frozenset(["GLOBAL", "INST", "STACK_GLOBAL"])
_NUMBERED: Final = frozenset(["EXT1", "EXT2", "EXT4"])
_PUTS: Final = frozenset(["PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"])
_GETS: Final = frozenset(["GET", "BINGET", "LONG_BINGET"])
_KEEPS: Final = frozenset(["APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"])
_TUPLE: Final = object()
_WANTED: Final = object()
_LEFT: Final = {
    **dict.fromkeys(("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_TUPLE"), _TUPLE),
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4"), _WANTED),
    **dict.fromkeys(("PERSID", "BINPERSID", "INST"), _WANTED),
}

# Those that take and leave so many values, and do nothing else.
_SIMPLE: Final = frozenset(info.name for info in _INSTRUCTIONS.values() if not info.to_mark) - {
    *_CALLS,
    *_PUTS,
    *_GETS,
    *_KEEPS,
    "DUP",
    "POP",
    "MARK",
    "PROTO",
}


def scan(
    data: Data,
    start: int = 0,
    *,
    limits: PickleLimits = DEFAULT_PICKLE_LIMITS,
    until: Literal["end", "break", "name"] = "end",
) -> Scan:
    """Look at the pickle that begins at `start`. It raises nothing: what is wrong is in `broken`.

    Args:
        data: the bytes, or a `Window` of a file.
        start: where it begins.
        limits: how much is looked at.
        until: look no further than to where every unpickler breaks, or to the first name.
    """
    stack = _Stack()
    asked: dict[tuple[str, str], Asked] = {}
    unclear: dict[str, None] = {}
    count, protocol, calls, asks, stopped, end, name = 0, 0, False, False, False, start, ""
    broken: CheckpointError | None = None
    try:
        for op in read_opcodes(data, limits, start, lenient=True):
            name = op.name
            if name in _ASKS:
                pair = op.argument if name != "STACK_GLOBAL" else stack.top(2)
                asks = asks or (stack.sound and _may_be_a_name(*pair))
                if len(asked) + len(unclear) > _TOLD:
                    unclear[f"more than {_TOLD} names"] = None
                elif isinstance(pair[0], str) and isinstance(pair[1], str):
                    asked.setdefault((pair[0], pair[1]), Asked(pair[0], pair[1], op.position))
                else:
                    unclear[f"a name that is made while it runs (byte {op.position})"] = None
            elif name in _NUMBERED and len(unclear) <= _TOLD:
                unclear[f"number {op.argument} of copyreg's extensions"] = None
            elif name == "PROTO":
                protocol = max(protocol, op.argument)
            if name in _CALLS:
                calls = True
            if stack.follow(op) and stack.sound:
                asks = True
            count, end = count + 1, op.end
            if until != "end" and (not stack.sound or (asks and until == "name")):
                break
        stopped = name == "STOP" and stack.sound
    except (PickleRefused, LimitExceeded) as error:
        broken = error
    told = tuple(asked.values()), tuple(unclear)
    return Scan(*told, count, protocol, calls, asks, stopped, stack.sound, end, broken)


def asks(data: Data, limits: PickleLimits = DEFAULT_PICKLE_LIMITS) -> Scan:
    """Look at the pickles that stand one behind another, up to the first that asks for a name."""
    start, left = 0, limits.opcodes
    while True:
        found = scan(data, start, limits=limits, until="name")
        left -= found.opcodes
        if found.asks or not found.stopped or found.end >= len(data) or left < 0:
            return found
        start = found.end


def _may_be_a_name(module: object, name: object) -> bool:
    is_text = isinstance(module, str) and isinstance(name, str)
    return is_text and all(word.isidentifier() for word in str(module).split("."))


class _Stack:
    """The stack of an unpickler: texts, tuples, and what was asked for. The rest is None.

    Attributes:
        sound: whether every instruction so far found what it takes. Afterwards values are made up.
    """

    def __init__(self) -> None:
        self._values: list[object] = []
        self._marks: list[int] = []
        self._memo: dict[int, object] = {}
        self.sound = True

    def top(self, count: int) -> list[object]:
        """Return the last values, None for each that is not there."""
        found = self._values[-count:]
        return [None] * (count - len(found)) + found

    def follow(self, op: Op) -> bool:
        """Do what an instruction does, and tell whether it calls what was asked for oddly."""
        values, name, info = self._values, op.name, op.info
        if name in _SIMPLE:
            if info.takes:
                self._take(info.takes)
            if info.leaves:
                text = op.argument
                values.append(text if type(text) is str else _LEFT.get(name))
            return False
        if name in _PUTS:
            (top,) = self._take(1)
            values.append(top)
            self._memo[len(self._memo) if op.argument is None else op.argument] = top
            return False
        if name in _GETS:
            self.sound &= op.argument in self._memo
            values.append(self._memo.get(op.argument))
            return False
        if name == "DUP":
            values += self._take(1) * 2
            return False
        if name == "POP" and self._marks and self._marks[-1] == len(values):
            self._marks.pop()
            return False
        gone: list[object] = []
        if info.to_mark:
            self.sound &= bool(self._marks)
            first = self._marks.pop() if self._marks else 0
            gone = values[first:]
            del values[first:]
        taken = self._take(info.takes)
        if name == "MARK":
            self._marks.append(len(values))
        self.sound &= name != "PROTO" or op.argument <= _PROTOCOL
        left = op.argument if isinstance(op.argument, str) else _LEFT.get(name)
        values += [taken[0] if name in _KEEPS else left] * info.leaves
        return _calls(name, gone if name == "OBJ" else taken)

    def _take(self, count: int) -> list[object]:
        first = len(self._values) - count
        if first < (self._marks[-1] if self._marks else 0):
            self.sound = False
            taken = self.top(count)
            del self._values[max(first, 0) :]
            return taken
        taken = self._values[first:]
        del self._values[first:]
        return taken


def _calls(name: str, taken: list[object]) -> bool:
    """Tell whether it calls what was asked for by an odd name, by a number or by an id."""
    if not taken or taken[0] is not _WANTED:
        return False
    # BUILD only gives it data, and the bytes of tensors read so now and then.
    return name in ("OBJ", "NEWOBJ_EX") or (name in ("REDUCE", "NEWOBJ") and taken[1] is _TUPLE)
