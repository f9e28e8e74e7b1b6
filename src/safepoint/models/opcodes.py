"""The instructions of a pickle, and the two forms in which Python's unpickler gets to read them.

Nothing is imported, called or hashed: what would do that is written as another instruction.

- `rewritten` keeps the values, and refuses what data does not need. A dict, a set, a call of a
  class and an id become a persistent id.
- `scan` keeps the texts alone, and reads any bytes as leniently as unpicklers do, so that a file
  that one of them follows up to a name is never taken for no pickle. All else becomes None.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import repeat
from typing import IO, Any, Final, NamedTuple

from safepoint.core.errors import CheckpointError, DecodeError, LimitExceeded, quoted
from safepoint.models.limits import DEFAULT_PICKLE_LIMITS, PickleLimits, over

INTACT: Final = "Restore an intact copy, or write the state again."
NOT_DATA: Final = "Do not load it with pickle. If you wrote it, save plain data in its place."
_LENGTHS: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: struct.Struct("<B"),
    pickletools.TAKEN_FROM_ARGUMENT4: struct.Struct("<i"),
    pickletools.TAKEN_FROM_ARGUMENT4U: struct.Struct("<I"),
    pickletools.TAKEN_FROM_ARGUMENT8U: struct.Struct("<Q"),
}
Ref = tuple[str, str]
_TWO_LINES: Final = ("GLOBAL", "INST")


class _Info(NamedTuple):
    """How the argument of an instruction is written, and what the instruction does to the stack.

    Attributes:
        name: its name.
        size: of an argument of that many bytes.
        length: reads how many bytes follow.
        lines: how many lines follow.
        effect: instructions that take as much from the stack, and put None in its place.
    """

    name: str
    size: int
    length: struct.Struct | None
    lines: int
    effect: bytes


def _info(known: pickletools.OpcodeInfo) -> _Info:
    size = 0 if known.arg is None else known.arg.n
    before = list(known.stack_before)
    to_mark = pickletools.markobject in before
    takes = before.index(pickletools.markobject) if to_mark else len(before)
    effect = b"1" * to_mark + b"0" * takes + b"N" * len(known.stack_after)
    lines = 0 if size != pickletools.UP_TO_NEWLINE else 1 + (known.name in _TWO_LINES)
    return _Info(known.name, max(size, 0), _LENGTHS.get(size), lines, effect)


INSTRUCTIONS: Final = {ord(known.code): _info(known) for known in pickletools.opcodes}
"""What each instruction is like, by its code."""


def odd(what: str, at: int | None = None) -> DecodeError:
    """Return the error for a pickle that no pickler writes."""
    where = "" if at is None else f", at byte {at}"
    return DecodeError(f"The pickle {what}{where}.", INTACT)


def named(module: str, name: str) -> str:
    """Return `module.name` for a message: as it is if it is a name, and quoted if it is not."""
    full = f"{module}.{name}"
    is_name = full.isascii() and all(word.isidentifier() for word in full.split("."))
    return full if is_name and len(full) <= 100 else quoted(full)


def read_at(file: IO[bytes], position: int, size: int) -> bytes:
    """Return up to so many bytes from there. A file without a buffer may give them in pieces."""
    file.seek(position)
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


_SHORT: Final = 64  # bytes of a text in a run
_LOW: Final = 0xFFFFF  # index of the memo in a run
_RUN: Final = _Info("", 0, None, 0, b"")
_Instruction = tuple[_Info, int, int, int]


@cache
def _one_of(names: frozenset[str]) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return what matches a run of these instructions, and what matches one of them."""
    found = []
    for code, info in INSTRUCTIONS.items():
        if info.name in names and not info.lines:
            is_index = info.name in ("LONG_BINPUT", "LONG_BINGET")
            argument = rb"..[\0-\x0f]\0" if is_index else b".{%d}" % info.size
            if info.length is not None:
                lengths = [re.escape(n.to_bytes(info.length.size, "little")) for n in range(_SHORT)]
                argument = b"|".join(b"%b.{%d}" % (each, n) for n, each in enumerate(lengths))
            found.append(b"%b(?:%b)" % (re.escape(bytes([code])), argument))
    one = b"|".join(found)
    # Not possessive, which Python 3.11.4 gets wrong; and bounded, as is what it remembers.
    return re.compile(b"(?:%b){1,1000}" % one, re.DOTALL), re.compile(one, re.DOTALL)


def _instructions(
    data: bytes, start: int, limits: PickleLimits, plain: frozenset[str], *, goes_on: bool = False
) -> Iterator[_Instruction]:
    """Yield each instruction: what it is, where it and its argument begin, and where it ends.

    It ends behind STOP, or where the bytes do. Of so few bytes that they cannot be over a limit,
    plain instructions are yielded as one run, within a frame.

    Args:
        data: the bytes.
        start: where the pickle begins.
        limits: how much is looked at.
        plain: the names of those that need no look.
        goes_on: whether the file has more than these.

    Raises:
        DecodeError: there is something else.
    """
    at, size = start, len(data)
    frame = start
    most = min(limits.opcodes, limits.memo, limits.nodes // 2)
    run = _one_of(plain)[0] if size - start <= most and limits.memo >= _LOW else None
    while at < size:
        if run and (found := run.match(data, at, min(frame, size) if at < frame else size)):
            yield _RUN, at, at, found.end()
            at = found.end()
            continue
        info = INSTRUCTIONS.get(data[at])
        if info is None:
            raise odd("holds what is not an instruction", at)
        begin = end = at + 1
        if info.length is not None:
            begin += info.length.size
            if begin > size:
                return
            (length,) = info.length.unpack_from(data, at + 1)
            if length < 0:
                raise odd("is malformed", at)
            end = begin + length
        elif info.lines:
            for line in range(info.lines):
                newline = data.find(b"\n", end)
                if (
                    newline < 0 and line == 1 and not goes_on
                ):  # some take the last letter of a file for one
                    newline = size - 1 if end < size else -1
                if newline < 0:
                    return
                end = newline + 1
        else:
            end += info.size
        if end > size:
            return
        yield info, at, begin, end
        if info.name == "STOP":
            return
        if info.name == "FRAME":
            run = None if at < frame else run  # one in another, which no pickler writes
            frame = end + int.from_bytes(data[begin:end], "little")
        at = end


class _Unpickler(pickle.Unpickler):  # safepoint: allow SL09 it finds what the caller hands out
    """Python's own, which asks the caller for names and ids, and imports nothing."""

    def __init__(
        self, code: bytes, find: Callable[[Ref], Any], follow: Callable[[Any], Any], encoding: str
    ) -> None:
        super().__init__(io.BytesIO(code), encoding=encoding, buffers=repeat(OURS))
        self._find, self._follow = find, follow

    def find_class(self, module: str, name: str) -> Any:
        """Hand out a name."""
        return self._find((module, name))

    def persistent_load(self, identifier: Any) -> Any:
        """Hand out what stands for an id."""
        return self._follow(identifier)


def unpickled(
    code: bytes, find: Callable[[Ref], Any], follow: Callable[[Any], Any], encoding: str = "utf-8"
) -> Any:
    """Return what Python's unpickler makes of instructions that were written here.

    Args:
        code: them.
        find: returns what stands for a name.
        follow: returns what stands for an id.
        encoding: of texts that Python 2 wrote.

    Raises:
        DecodeError: they do not fit together.
        EOFError: they end before a STOP.
    """
    try:
        return _Unpickler(code, find, follow, encoding).load()
    except (CheckpointError, EOFError, RecursionError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  a malformed pickle makes it raise anything
        problem = odd(f"does not fit together ({type(error).__name__})")
    raise problem  # here, so that it does not carry the bytes


# --- values --------------------------------------------------------------------------------------

FORMS: Final = ("dict", "frozenset", "new dict", "new set", "pairs")
"""What is rewritten as a persistent id: what it is made of, an index in this, and `OURS`."""
OURS: Final = object()
"""What NEXT_BUFFER gives. No data has that instruction, so no id of a file has it within."""


def _as_id(form: str, before: bytes = b"") -> bytes:
    """Return instructions that hand what is on the stack to `persistent_load`, with its form."""
    return before + b"K%c\x97\x87Q" % FORMS.index(form)


_REWRITTEN: Final = {
    "DICT": _as_id("dict", b"t"),
    "FROZENSET": _as_id("frozenset", b"t"),
    "EMPTY_DICT": _as_id("new dict", b"N"),
    "EMPTY_SET": _as_id("new set", b"N"),
    "SETITEM": _as_id("pairs", b"\x86") + b"b",
    "SETITEMS": _as_id("pairs", b"t") + b"b",  # as a whole, in place of one by one
    "NEWOBJ": b"R",
    "FRAME": b"",
}
_PUTS: Final = {"PUT", "BINPUT", "LONG_BINPUT"}
_MEMO: Final = _PUTS | {"GET", "BINGET", "LONG_BINGET"}
_MAKES: Final = {*_REWRITTEN, "BINPERSID"} - {"FRAME", "SETITEM", "SETITEMS"} | {
    *("EMPTY_LIST", "LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "REDUCE")
}
_TEXTS: Final = {
    *("STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
_VALUES: Final = {
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "BINFLOAT"),
    *("BINBYTES", "SHORT_BINBYTES"),
}
_KEPT: Final = {"MARK", "MEMOIZE", "PROTO", "STOP", *_MEMO, *_TEXTS}
_ALLOWED: Final = {
    *("INT", "LONG", "LONG1", "FLOAT", "BINBYTES8", "GLOBAL", "STACK_GLOBAL", "BUILD"),
    *("APPEND", "APPENDS", "ADDITEMS", *_KEPT, *_VALUES, *_MAKES, *_REWRITTEN),
}
_PLAIN: Final = frozenset(_ALLOWED - {*_REWRITTEN, "LONG1", "PROTO", "STOP"})
_INTEGER: Final = 2048
_NUMBER: Final = re.compile(rb"\s*[+-]?[0-9a-fA-FxXoO_]*\s*[lL]?\s*")
_BITS: Final = {"INT": 3, "LONG": 3, "LONG1": 8}  # at least, for each byte of its argument


def rewritten(data: bytes, start: int, limits: PickleLimits) -> tuple[bytes, int]:
    """Return what Python's unpickler gets of the pickle at `start`, and where the pickle ends.

    Raises:
        DecodeError: it is malformed, or has an instruction that data does not need.
        LimitExceeded: it is too large, or has too many values or too large a number.
    """
    kept: list[bytes] = []
    made = puts = 0
    copied = end = frame = start
    name = ""
    most, memo = limits.opcodes, limits.memo
    steps = _instructions(data, start, limits, _PLAIN)
    for count, (info, at, begin, end) in enumerate(steps, 1):
        name = info.name
        if info is _RUN:
            continue
        if name not in _ALLOWED:
            raise DecodeError(f"The pickle uses {name}, which plain data does not need.", NOT_DATA)
        if at < frame and (end > frame or name == "FRAME"):
            raise odd("has an instruction that does not fit into its frame", at)
        if name in _MAKES:
            made += 1
        elif name in _PUTS or name == "MEMOIZE":
            puts += 1
            if puts > memo or _index(info, data[begin:end]) > memo:
                raise over(limits, "memo")
        elif name in _BITS and _BITS[name] * (end - begin - 1) > _INTEGER:
            if name == "LONG1" or _NUMBER.fullmatch(data, begin, end):
                raise LimitExceeded(
                    f"The pickle has an integer of more than {_INTEGER} bits.",
                    "Nothing was loaded. If you made it, save the integer as a text.",
                )
        elif name == "PROTO" and (at != start or data[begin] > pickle.HIGHEST_PROTOCOL):
            raise odd("has no beginning of protocol 2, 3, 4 or 5", at)
        if name in _REWRITTEN:
            kept += (data[copied:at], _REWRITTEN[name])
            copied = end
        frame = end + int.from_bytes(data[begin:end], "little") if name == "FRAME" else frame
        if count > most:
            raise over(limits, "opcodes")
        if 2 * made > limits.nodes:
            raise over(limits, "nodes")
    if name != "STOP":
        raise odd("is cut short", end)
    if frame > end:
        raise odd("ends before its last frame does", end)
    kept.append(data[copied:end])
    return b"".join(kept), end


def _index(info: _Info, argument: bytes) -> int:
    """Return the index of the memo that an instruction names, 0 if it names none.

    Raises:
        DecodeError: it is none.
    """
    if not info.lines:
        return int.from_bytes(argument, "little")
    try:
        return int(argument.partition(b"\0")[0])
    except ValueError:
        problem = odd("has an index that is none")
    raise problem


# --- names ---------------------------------------------------------------------------------------

_MOST_NAMES: Final = 1_000
_WINDOW: Final = 64 * 1024
_MODULE: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*")  # any folder imports, such as site-packages
# C's unpickler drops what is left of a frame, and reads the instruction from what follows.
_CROSSED: Final = "bytes after a frame that an instruction crosses"
_COMPUTED: Final = "a name that is made while it runs"
_LEFT: Final = _KEPT | {"POP", "POP_MARK", "DUP"}
_AS_IS: Final = frozenset(_LEFT - {"PROTO", "STOP"} | _VALUES)
_NUMBERED: Final = frozenset(["EXT1", "EXT2", "EXT4"])
# The second line changes what a name stands for, by its own methods.
_CALLS: Final = {
    *("REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ", "INST"),
    *("BUILD", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS"),
}
_ASKING: Final = 20  # other instructions take as long as one with a name
_CROSS: Final = b"\x88Q0"  # a persistent id that is True


class Scan(NamedTuple):
    """What the instructions of one pickle say, as far as any unpickler could follow them.

    Attributes:
        asked: the names that it asks for, module and name.
        unclear: what else it asks for: a name that is only known when it runs.
        opcodes: how many instructions it has; 0 of one that was read as data.
        asks: whether an unpickler gets to where it asks for a name, or calls what it asked for.
        calls: whether it gets to where it calls or changes that.
        stopped: whether an unpickler gets to its STOP, with a value.
        goes_on: whether it gets to the end of what was looked at.
        end: where it ends, or where it cannot be read further.
        broken: why it cannot be read further. What is above has run by then.
    """

    asked: tuple[Ref, ...]
    unclear: tuple[str, ...]
    opcodes: int
    asks: bool
    calls: bool
    stopped: bool
    goes_on: bool
    end: int
    broken: CheckpointError | None = None


def scan(file: IO[bytes], start: int = 0, *, limits: PickleLimits = DEFAULT_PICKLE_LIMITS) -> Scan:
    """Look at the pickle that begins at `start`. It raises nothing: what is wrong is in `broken`.

    Args:
        file: the bytes.
        start: where the pickle begins.
        limits: how much is looked at.
    """
    size = file.seek(0, io.SEEK_END) - start
    found = _scanned(read_at(file, start, _WINDOW), size, limits)
    if found.goes_on and found.broken is None:
        found = _scanned(read_at(file, start, limits.data_bytes + 1), size, limits)
    broken = found.broken
    if found.goes_on and broken is None:
        broken = over(limits, "data_bytes") if size > limits.data_bytes else odd("is cut short")
    return found._replace(end=start + found.end, broken=broken)


def scans(file: IO[bytes], limits: PickleLimits, known: Mapping[int, Scan]) -> Iterator[Scan]:
    """Look at the pickles that stand one behind another, up to one that does not end.

    Args:
        file: the bytes.
        limits: how much is looked at.
        known: what was found before, by where the pickle begins.
    """
    start, size = 0, file.seek(0, io.SEEK_END)
    while not start or start < size:
        found = known.get(start) or scan(file, start, limits=limits)
        yield found
        if not found.stopped:
            return
        start = found.end


class _Notes:
    """What an unpickler comes to."""

    def __init__(self) -> None:
        self.asked: dict[Ref, None] = {}
        self.unclear: dict[str, None] = {}
        self.asks = self.calls = False

    def take(self, note: Any) -> None:
        """Take note of a name, of a call, or of what is not clear."""
        if note is None:
            self.calls = self.calls or bool(self.asked or self.unclear)
            self.asks = self.asks or self.calls
        elif type(note) is tuple and type(note[0]) is type(note[1]) is str:
            module, name, *is_marked = note
            if len(self.asked) + len(self.unclear) > _MOST_NAMES:
                self.unclear[f"more than {_MOST_NAMES} names"] = None
            else:
                self.asked[module, name] = None
            # A text may begin with a c, too. What is no name of a module counts once it is called.
            is_name = not is_marked or (is_marked[0] and _MODULE.fullmatch(module))
            self.asks = self.asks or bool(is_name)
        elif type(note) is int:
            self.unclear[f"number {note} of copyreg's extensions"] = None
        else:
            self.unclear[_CROSSED if note is True else _COMPUTED] = None
            self.asks = True


def _scanned(data: bytes, size: int, limits: PickleLimits) -> Scan:
    """Look at the pickle that begins these bytes, out of so many."""
    code, count = bytearray(), 0
    large: dict[str, int] = {}  # of numbers that large, an attacker can choose some with one hash
    end = frame = 0
    name, broken = "", None
    most, memo = limits.opcodes, limits.memo
    try:
        steps = _instructions(data, 0, limits, _AS_IS, goes_on=len(data) < size)
        for info, at, begin, end in steps:
            name, argument = info.name, data[begin:end]
            if info is _RUN:
                code += argument
                count += len(_one_of(_AS_IS)[1].findall(argument))
                continue
            if count >= most:
                raise over(limits, "opcodes")
            reach = end + (int.from_bytes(argument, "little") if name == "FRAME" else 0)
            crosses = at < frame and (reach > frame or (name == "STOP" and reach < frame))
            left = _left(info, argument, data[at:end])
            if name in _MEMO and (index := _index(info, argument)) > memo:
                index = large.setdefault(str(index), memo + 1 + len(large))
                left = (b"r" if name in _PUTS else b"j") + struct.pack("<I", index)
            code += _CROSS * crosses + left
            count += _ASKING if name in _TWO_LINES else 1
            if name == "FRAME" and reach <= size:  # no unpickler goes on in a longer one
                frame = max(frame, reach)
    except (DecodeError, LimitExceeded) as error:
        broken = error
    if broken is None and name != "STOP" and end < frame <= len(data):
        code += _CROSS
    notes = _Notes()
    stopped = goes_on = False
    try:
        unpickled(bytes(code), notes.take, notes.take, "latin-1")
        stopped = True
    except EOFError:
        goes_on = True
    except DecodeError as error:
        broken = error
    asked, unclear = tuple(notes.asked), tuple(notes.unclear)
    return Scan(asked, unclear, count, notes.asks, notes.calls, stopped, goes_on, end, broken)


def _left(info: _Info, argument: bytes, whole: bytes) -> bytes:
    """Return what is left of an instruction where texts alone matter.

    Raises:
        DecodeError: no unpickler takes the argument.
    """
    name = info.name
    if name in _LEFT and not (name == "STRING" and b"\\" in argument):
        return whole
    if name == "STACK_GLOBAL":
        return b"\x86Q"
    if name in _TWO_LINES:
        texts = argument[:-1].split(b"\n")
        asked = b"".join(b"X" + struct.pack("<I", len(text)) + text for text in texts)
        # Some ask before they look for the mark.
        return asked + (b"\x88\x87Q" if name == "GLOBAL" else b"\x89\x87Q01NQ")
    if name in _NUMBERED:
        return b"J" + argument.ljust(4, b"\0") + b"Q"
    if name in ("INT", "LONG", "FLOAT"):
        before = argument.partition(b"\0")[0]
        try:
            fits = float(before) is not None if name == "FLOAT" else _NUMBER.fullmatch(before)
        except ValueError:
            fits = None
        if not fits:
            raise odd("has a number that is none")
    return info.effect + b"Q" * (name in _CALLS)
