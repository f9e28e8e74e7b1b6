"""The instructions of a pickle, read one after another. Nothing is run and nothing is built.

`read_opcode` is the one reader. It is strict, for whoever goes on to build something: a number has
one spelling. Or it is as lenient as any unpickler, for whoever asks what bytes would do that may be
anything. `scan` follows the instructions with a stack of texts, and says what they ask for.
"""

from __future__ import annotations

import codecs
import io
import pickletools
import re
import struct
from typing import IO, Any, Final, Literal, NamedTuple

from safepoint.core.errors import CheckpointError, DecodeError, LimitExceeded, quoted
from safepoint.models.limits import DEFAULT_PICKLE_LIMITS, PickleLimits, over

INTACT: Final = "Restore an intact copy, or write the state again."

_CHUNK: Final = 64 * 1024
_LONGEST: Final = 9  # bytes of an instruction, but for what has a length of its own
_ID: Final = 1024 * 1024
_ANY: Final = "x"  # stands for a text that was not decoded, and may be any name
_LOOSE: Final = re.compile(rb"\s*[+-]?[0-9a-fA-FxXoO_]*[lL]?\s*\Z")
_MODULE: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*")  # any folder imports, such as site-packages
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
        self.scans: dict[tuple[int, PickleLimits], Scan] = {}  # those that came to a STOP

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        begin = min(self._size, part.start or 0)
        end = max(begin, min(self._size, part.stop))
        if not self._begin <= begin <= end <= self._begin + len(self._chunk):
            # Most files break at once: the first part is small.
            most = max(end - begin, _CHUNK if self._chunk else 4096)
            self._chunk = read_at(self._file, self._start + begin, min(most, self._size - begin))
            self._begin = begin
        return self._chunk[begin - self._begin : end - self._begin]

    def part(self, position: int) -> tuple[bytes, int]:
        """Return bytes in which the instruction at `position` begins, and where they begin."""
        end = min(self._size, position + _LONGEST)
        if not self._begin <= position <= end <= self._begin + len(self._chunk):
            self[position:end]
        return self._chunk, self._begin

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
        number: the argument, if it is a number of fixed size, or begins with one.
        sized: whether that number is the length of the argument, which follows.
        lines: how many lines the argument is.
        to_mark: whether it takes everything above the last mark.
        takes: how many values it takes besides.
        leaves: how many it leaves.
        length: how many bytes it has, but for what has a length of its own.
    """

    name: str
    protocol: int
    number: struct.Struct | None
    sized: bool
    lines: int
    to_mark: bool
    takes: int
    leaves: int
    length: int


def _info(known: pickletools.OpcodeInfo) -> Info:
    size = 0 if known.arg is None else known.arg.n
    before = list(known.stack_before)
    to_mark = pickletools.markobject in before
    takes = before.index(pickletools.markobject) if to_mark else len(before)
    lines = 0 if size != pickletools.UP_TO_NEWLINE else 2 if known.name in ("GLOBAL", "INST") else 1
    spelled = _LENGTHS.get(size) or (_NUMBERS[known.arg.name] if known.arg and size > 0 else None)
    number = struct.Struct(spelled) if spelled else None
    return Info(
        known.name,
        known.proto,
        number,
        size in _LENGTHS,
        lines,
        to_mark,
        takes,
        0 if known.name == "MARK" else len(known.stack_after),
        1 + (number.size if number else 0),
    )


INSTRUCTIONS: Final = {ord(known.code): _info(known) for known in pickletools.opcodes}
"""What each instruction is like, by its code."""


def read_opcode(
    data: Data, position: int, start: int, limits: PickleLimits, *, lenient: bool
) -> Op:
    """Return the one instruction at `position`, of the pickle that begins at `start`.

    All instructions are read, those that only an attack uses, too.

    Args:
        data: the bytes; for a large file, a `Window` of it.
        position: where the instruction begins.
        start: where the pickle begins.
        limits: how long it may be.
        lenient: take what any unpickler takes. Long arguments are then passed over, and numbers
            in text come as None.

    Raises:
        DecodeError: there is no such instruction, or the data ends within it.
        LimitExceeded: the pickle is too long by now, or a number is too large.
    """
    chunk, base = (data, 0) if type(data) is bytes else data.part(position)  # type: ignore[union-attr]
    at = position - base
    if at >= len(chunk):
        raise _cut()
    info = INSTRUCTIONS.get(chunk[at])
    if info is None:
        raise DecodeError(
            f"There is no instruction {chunk[at]:#04x} in a pickle, as at byte {position}.", INTACT
        )
    argument, end = None, position + 1
    if info.number is not None:
        end += info.number.size
        if end - base > len(chunk):
            raise _cut()
        (argument,) = info.number.unpack_from(chunk, at + 1)
        if info.sized:
            begin, end = end, end + argument
            argument = _sized(info.name, data, begin, end, limits, lenient)
    elif info.lines:
        argument, end = _lined(info, data, position, limits, lenient)
    if end - start > limits.data_bytes:
        raise over(limits, "data_bytes")
    return Op(info.name, argument, position, end, info)


def _sized(name: str, data: Data, begin: int, end: int, limits: PickleLimits, lenient: bool) -> Any:
    if end < begin:
        raise _malformed(name, begin)
    if end > len(data):
        raise _cut()
    text, is_long = "UNICODE" in name or "STRING" in name, name in ("LONG1", "LONG4")
    if lenient and (end - begin > _CHUNK or not text):
        return _ANY if text else None
    if is_long and (end - begin) * 8 > limits.integer_bits:
        raise over(limits, "integer_bits")
    raw = data[begin:end]
    if len(raw) != end - begin:
        raise _cut()
    if is_long:
        return int.from_bytes(raw, "little", signed=True)
    encoding = "ascii" if "STRING" in name else "utf-8"  # the first is of Python 2
    return _decoded(raw, encoding, lenient, name, begin) if text else raw


def _lined(
    info: Info, data: Data, position: int, limits: PickleLimits, lenient: bool
) -> tuple[Any, int]:
    name, begin, lines = info.name, position + 1, []
    # Only an unpickler that was made for such ids goes on behind one, and they are short.
    most = _ID if lenient and name == "PERSID" else limits.data_bytes
    for _ in range(info.lines):
        end = data.find(b"\n", begin, begin + most + 1)
        if end < 0 and lenient and info.lines == 2 and begin < len(data) <= begin + most:
            end = len(data) - 1  # Python's own unpickler takes the last letter for the newline
        if end < 0:
            large = len(data) - begin > limits.data_bytes == most
            raise over(limits, "data_bytes") if large else _cut()
        lines.append(data[begin:end])
        begin = end + 1
    if info.lines == 2:
        return tuple(_decoded(line, "utf-8", lenient, "name", position) for line in lines), begin
    if not lenient and name in ("INT", "LONG") and len(lines[0]) > limits.integer_bits:
        raise over(limits, "integer_bits")
    try:
        value = (_loose if lenient else _strict)(name, lines[0])
    except (ValueError, DeprecationWarning):  # as for an unknown escape, where those are errors
        problem = _malformed("memo index" if name in ("GET", "PUT") else name, position)
    else:
        if type(value) is int and value.bit_length() > limits.integer_bits:
            raise over(limits, "integer_bits")
        return value, begin
    raise problem  # here, so that it does not carry the bytes


def _decoded(raw: bytes, encoding: str, lenient: bool, what: str, position: int) -> str:
    errors = {"utf-8": "surrogatepass", "ascii": "surrogateescape"}[encoding]
    try:
        return raw.decode(encoding, errors if lenient else "strict")
    except ValueError:
        problem = _malformed(what, position)
    raise problem


def _strict(name: str, raw: bytes) -> Any:
    """Return what a line says, if Python writes it so. C's unpickler reads I010 as 8."""
    value: Any
    if name in ("UNICODE", "PERSID"):
        value = raw.decode("raw-unicode-escape" if name == "UNICODE" else "utf-8")
        value.encode()  # half a character is no text
        return value
    if name == "STRING":  # of Python 2
        value = codecs.escape_decode(_unquoted(raw))[0]
        if repr(value)[1:].encode() != raw:
            raise ValueError
        return value.decode("ascii")
    if name == "INT" and raw in (b"00", b"01"):
        return raw == b"01"
    value = float(raw) if name == "FLOAT" else int(raw.removesuffix(b"L"))
    spelled = f"{value!r}L" if name == "LONG" and raw.endswith(b"L") else repr(value)
    if spelled.encode() != raw or (name in ("GET", "PUT") and value < 0):
        raise ValueError
    return value


def _loose(name: str, raw: bytes) -> Any:
    """Return what any unpickler takes a line for: a text, an index of the memo, or None."""
    before = raw.partition(b"\0")[0]
    if name in ("GET", "PUT"):
        return int(before)
    if name in ("INT", "LONG") and not _LOOSE.match(before):
        raise ValueError
    if name == "FLOAT":
        float(before)
    if name not in ("STRING", "UNICODE"):
        return None
    if b"\\" in raw:
        return _ANY
    return (_unquoted(raw.rstrip()) if name == "STRING" else raw).decode("latin-1")


def _unquoted(raw: bytes) -> bytes:
    if len(raw) < 2 or raw[:1] not in (b"'", b'"') or raw[-1:] != raw[:1]:
        raise ValueError
    return raw[1:-1]


def _cut() -> DecodeError:
    return DecodeError("The pickle is cut short.", INTACT)


def _malformed(what: str, position: int) -> DecodeError:
    return DecodeError(f"The pickle holds a malformed {what} at byte {position}.", INTACT)


def named(module: str, name: str) -> str:
    """Return `module.name` for a message: as it is if it is a name, and quoted if it is not."""
    full = f"{module}.{name}"
    is_name = full.isascii() and all(word.isidentifier() for word in full.split("."))
    return full if is_name and len(full) <= 100 else quoted(full)


class Import(NamedTuple):
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
        asks: whether an unpickler gets to where it asks for a name, or calls what it asked for.
        stopped: whether an unpickler gets to its STOP, with a value.
        sound: whether each instruction found what it takes on the stack.
        end: where it ends, or where it cannot be read further.
        broken: why it cannot be read further. What is above has run by then.
        plain: whether it was read as data, too, and is some.
    """

    asked: tuple[Import, ...]
    unclear: tuple[str, ...]
    opcodes: int
    asks: bool
    stopped: bool
    sound: bool
    end: int
    broken: CheckpointError | None
    plain: bool = False

    @property
    def imports(self) -> tuple[str, ...]:
        """What it asks for, as text, sorted."""
        return tuple(sorted({*map(str, self.asked), *self.unclear}))


_TOLD: Final = 1_000
_PROTOCOL: Final = 5
_ASKS: Final = frozenset(["GLOBAL", "INST", "STACK_GLOBAL"])
_NUMBERED: Final = frozenset(["EXT1", "EXT2", "EXT4"])
_PUTS: Final = frozenset(["PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"])
_GETS: Final = frozenset(["GET", "BINGET", "LONG_BINGET"])
_KEEPS: Final = frozenset(["APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"])
# C's unpickler drops what is left of a frame, and reads the instruction from what follows.
_CROSSED: Final = "what stands behind a frame that an instruction crosses"
_WANTED: Final = object()
_LEFT: Final = {
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4"), _WANTED),
    **dict.fromkeys(("PERSID", "BINPERSID", "INST"), _WANTED),
}


# Of the instructions that are followed quickly: what each does, and how many bytes it has.
_CODES: Final = {info.name: code for code, info in INSTRUCTIONS.items()}
_TEXT, _PUT, _GET, _NOTHING, _MARK, _TUPLE, _TAKES, _GROWS, _PERSID, _CALL = range(1, 11)
_KINDS: Final = bytearray(256)
_MEMOIZE: Final = _CODES["MEMOIZE"]
for _kind, _names in {
    _TEXT: ("SHORT_BINUNICODE", "BINUNICODE"),
    _PUT: ("MEMOIZE", "BINPUT", "LONG_BINPUT"),
    _GET: ("BINGET", "LONG_BINGET"),
    _NOTHING: (
        *("NONE", "NEWTRUE", "NEWFALSE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE", "EMPTY_SET"),
        *("BININT", "BININT1", "BININT2", "BINFLOAT"),
    ),
    _MARK: ("MARK",),
    _TUPLE: ("TUPLE",),
    _TAKES: ("TUPLE1", "TUPLE2", "TUPLE3"),
    _GROWS: ("APPENDS", "SETITEMS", "ADDITEMS"),
    _PERSID: ("BINPERSID",),
    _CALL: ("REDUCE",),
}.items():
    for _name in _names:
        _KINDS[_CODES[_name]] = _kind
_QUICK: Final = [INSTRUCTIONS[code].length if kind else 0 for code, kind in enumerate(_KINDS)]


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
    kept = data.scans if isinstance(data, Window) else {}
    known = kept.get((start, limits))
    if known is not None and not (known.asks and until == "name"):
        return known
    stack = _Stack()
    asked: dict[tuple[str, str], Import] = {}
    unclear: dict[str, None] = {}
    count, asks, stopped, end, name, frame = 0, False, False, start, "", start
    broken: CheckpointError | None = None
    try:
        while name != "STOP":
            if stack.sound:
                most = start + limits.data_bytes
                most = min(most, frame) if end < frame else most
                end, quick = stack.quickly(data, end, most, limits.opcodes - count, asks=asks)
                count += quick
            if count >= limits.opcodes:
                raise over(limits, "opcodes")
            op = read_opcode(data, end, start, limits, lenient=True)
            name = op.name
            if name in _ASKS:
                pair = op.argument if name != "STACK_GLOBAL" else stack.top(2)
                asks = asks or (stack.sound and _may_be_a_name(name, *pair))
                if len(asked) + len(unclear) > _TOLD:
                    unclear[f"more than {_TOLD} names"] = None
                elif isinstance(pair[0], str) and isinstance(pair[1], str):
                    asked.setdefault((pair[0], pair[1]), Import(pair[0], pair[1], op.position))
                else:
                    unclear[f"a name that is made while it runs (byte {op.position})"] = None
            elif name in _NUMBERED and len(unclear) <= _TOLD:
                unclear[f"number {op.argument} of copyreg's extensions"] = None
            called = stack.follow(op)
            reach = op.end + op.argument if name == "FRAME" else op.end
            if op.position < frame and (reach > frame or (name == "STOP" and reach < frame)):
                unclear[_CROSSED], called = None, True
            if name == "FRAME" and reach <= len(data):  # no unpickler goes on in a longer one
                frame = max(frame, reach)
            asks = asks or (called and stack.sound)
            count, end = count + 1, op.end
            if until != "end" and (not stack.sound or (asks and until == "name")):
                break
        stopped = name == "STOP" and stack.sound
    except (DecodeError, LimitExceeded) as error:
        broken = error
        if end < frame and data[end : end + 1][0] in INSTRUCTIONS:
            unclear[_CROSSED], asks = None, asks or stack.sound
    told = tuple(asked.values()), tuple(unclear)
    found = Scan(*told, count, asks, stopped, stack.sound, end, broken)
    if stopped and len(kept) < _TOLD:
        kept[start, limits] = found
    return found


def asks(data: Data, limits: PickleLimits = DEFAULT_PICKLE_LIMITS) -> Scan:
    """Look at the pickles that stand one behind another, up to the first that asks for a name.

    The instructions are those of all of them.
    """
    start, left = 0, limits.opcodes
    while True:
        found = scan(data, start, limits=limits, until="name")
        left -= found.opcodes
        if found.asks or not found.stopped or found.end >= len(data) or left < 0:
            return found._replace(opcodes=limits.opcodes - left)
        start = found.end


def _may_be_a_name(op: str, module: object, name: object) -> bool:
    if not isinstance(module, str) or not isinstance(name, str):
        return False
    # A text may begin with a c, too. What is no name of a module counts once it is called.
    return op == "STACK_GLOBAL" or _MODULE.fullmatch(module) is not None


class _Stack:
    """The stack of an unpickler: texts, and what was asked for. The rest is None.

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

    def quickly(
        self, data: Data, position: int, most: int, left: int, *, asks: bool
    ) -> tuple[int, int]:
        """Follow the instructions that plain data is made of, up to the first that is another.

        It does what `follow` does, and leaves to it whatever is odd.

        Args:
            data: the bytes.
            position: where to begin.
            most: where to end at the latest.
            left: how many instructions to follow at most.
            asks: whether it is known that the pickle asks for a name, so that a call tells no more.

        Returns:
            Where it came to, and how many there were.
        """
        values, marks, memo = self._values, self._marks, self._memo
        chunk, base = (data, 0) if type(data) is bytes else data.part(position)  # type: ignore[union-attr]
        at, most, count = position - base, min(most - base, len(chunk)), 0
        floor = marks[-1] if marks else 0
        while at < most and count < left:
            code = chunk[at]
            end = at + _QUICK[code]
            if end == at or end > most:
                break
            kind = _KINDS[code]
            if kind == _NOTHING:
                values.append(None)
            elif kind == _TEXT:
                begin, size = end, chunk[at + 1]
                if begin - at > 2:
                    size = int.from_bytes(chunk[at + 1 : end], "little")
                end += size
                if end > most or size > _CHUNK:
                    break
                try:
                    values.append(chunk[begin:end].decode("utf-8", "surrogatepass"))
                except ValueError:
                    break
                if end < most and chunk[end] == _MEMOIZE and count + 1 < left:
                    memo[len(memo)] = values[-1]  # as most texts are
                    end, count = end + 1, count + 1
            elif kind == _PUT:
                if len(values) <= floor:
                    break
                number = chunk[at + 1 : end]
                memo[int.from_bytes(number, "little") if number else len(memo)] = values[-1]
            elif kind == _GET:
                index = int.from_bytes(chunk[at + 1 : end], "little")
                if index not in memo:
                    break
                values.append(memo[index])
            elif kind == _MARK:
                floor = len(values)
                marks.append(floor)
            elif kind in (_TUPLE, _GROWS):
                before = marks[-2] if len(marks) > 1 else 0
                if not marks or (kind == _GROWS and floor <= before):
                    break
                del values[floor:]
                marks.pop()
                floor = before
                if kind == _TUPLE:
                    values.append(None)
            elif kind == _PERSID:
                if len(values) <= floor:
                    break
                values[-1] = _WANTED
            else:
                first = len(values) - INSTRUCTIONS[code].takes
                if first < floor or (kind == _CALL and not asks):
                    break
                del values[first:]
                values.append(None)
            at, count = end, count + 1
        return base + at, count

    def follow(self, op: Op) -> bool:
        """Do what an instruction does, and tell whether it calls what was asked for oddly."""
        values, name, info = self._values, op.name, op.info
        if name in _PUTS:
            (top,) = self._take(1)
            values.append(top)
            self._memo[len(self._memo) if op.argument is None else op.argument] = top
        elif name in _GETS:
            self.sound &= op.argument in self._memo
            values.append(self._memo.get(op.argument))
        elif name == "DUP":
            values += self._take(1) * 2
        elif name == "POP" and self._marks and self._marks[-1] == len(values):
            self._marks.pop()
        elif name == "MARK":
            self._marks.append(len(values))
        else:
            gone: list[object] = []
            if info.to_mark:
                self.sound &= bool(self._marks)
                first = self._marks.pop() if self._marks else 0
                gone = values[first:]
                del values[first:]
            taken = self._take(info.takes) if info.takes else []
            self.sound &= name != "PROTO" or op.argument <= _PROTOCOL
            left = op.argument if type(op.argument) is str else _LEFT.get(name)
            values += [taken[0] if name in _KEEPS else left] * info.leaves
            return _calls(name, gone if name == "OBJ" else taken)
        return False

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
    # BUILD only gives it data, and the bytes of tensors read so now and then.
    called = taken[:1] == [_WANTED] and name in ("OBJ", "NEWOBJ_EX", "REDUCE", "NEWOBJ")
    return called or name == "INST"
