"""The arguments of a pickle's instructions: how each is read from the bytes behind its code.

Each length is compared with what is left before a byte is copied, and a number in text has one
spelling.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Final

from safepoint.errors import LimitExceeded, PickleRefused
from safepoint.pickles.limits import PickleLimits

CUT: Final = "The pickle is cut short."
INTACT: Final = "Restore an intact copy, or write the state again."

# As Python writes them. C's unpickler reads I010 as 8, and I-0 as False.
_INT: Final = re.compile(rb"(?:0|-?[1-9][0-9]*)\Z")
_LONG: Final = re.compile(rb"(?:0|-?[1-9][0-9]*)L?\Z")
_FLOAT: Final = re.compile(rb"-?(?:[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|inf|nan)\Z")
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-f]{2}|[\\'\"nrt]|)")
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}

Read = Callable[[bytes, int, PickleLimits], tuple[Any, int]]


def cut() -> PickleRefused:
    """Return the error for data that ends too early."""
    return PickleRefused(CUT, INTACT)


def _malformed(what: str, position: int) -> PickleRefused:
    return PickleRefused(f"The pickle holds a malformed {what} at byte {position}.", INTACT)


def _too_many_bits(limits: PickleLimits) -> LimitExceeded:
    return LimitExceeded(
        f"The pickle holds an integer of more than {limits.integer_bits} bits.",
        "Write large numbers as text or bytes, or raise PickleLimits.integer_bits.",
    )


def _number(layout: str) -> Read:
    unpack = struct.Struct(layout)

    def read(data: bytes, position: int, _: PickleLimits) -> tuple[Any, int]:
        end = position + unpack.size
        if end > len(data):
            raise cut()
        return unpack.unpack_from(data, position)[0], end

    return read


def _sized(layout: str, what: str, decode: Callable[[bytes], Any] = bytes) -> Read:
    length = _number(layout)

    def read(data: bytes, position: int, limits: PickleLimits) -> tuple[Any, int]:
        count, begin = length(data, position, limits)
        if count < 0:
            raise _malformed(what, position - 1)
        if count > len(data) - begin:
            raise cut()
        end = begin + count
        return _decoded(decode, data[begin:end], what, position - 1), end

    return read


def _line(what: str, decode: Callable[[bytes], Any]) -> Read:
    def read(data: bytes, position: int, _: PickleLimits) -> tuple[Any, int]:
        end = data.find(b"\n", position)
        if end < 0:
            raise cut()
        return _decoded(decode, data[position:end], what, position - 1), end + 1

    return read


def _decoded(decode: Callable[[bytes], Any], raw: bytes, what: str, position: int) -> Any:
    try:
        return decode(raw)
    except ValueError:
        problem = _malformed(what, position)
    raise problem


def _utf8(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _escaped_unicode(raw: bytes) -> str:
    return raw.decode("raw-unicode-escape")


def _ascii(raw: bytes) -> str:
    # Bytes of Python 2 that are no ASCII become half characters, which are no text.
    return raw.decode("ascii", "surrogateescape")


def _quoted(raw: bytes) -> str:
    """Return what Python 2 wrote between quotes."""
    if len(raw) < 2 or raw[:1] not in (b"'", b'"') or raw[-1:] != raw[:1]:
        raise ValueError
    return _ascii(_ESCAPE.sub(_unescape, raw[1:-1]))


def _unescape(escape: re.Match[bytes]) -> bytes:
    letters = escape[1]
    if not letters:
        raise ValueError
    return (
        bytes.fromhex(letters[1:].decode())
        if letters[:1] == b"x"
        else (_ESCAPED.get(letters, letters))
    )


def _float(raw: bytes) -> float:
    if not _FLOAT.match(raw):
        raise ValueError
    return float(raw)


def _decimal(what: str, spelling: re.Pattern[bytes]) -> Read:
    def read(data: bytes, position: int, limits: PickleLimits) -> tuple[Any, int]:
        end = data.find(b"\n", position)
        if end < 0:
            raise cut()
        if what == "INT" and data[position:end] in (b"00", b"01"):
            return data[position:end] == b"01", end + 1
        # log10(2) is a little more than 0.301; a sign, an L and the last digit come on top.
        if end - position > limits.integer_bits * 302 // 1000 + 3:
            raise _too_many_bits(limits)
        raw = data[position:end]
        if not spelling.match(raw):
            raise _malformed(what, position - 1)
        value = _decoded(int, raw.removesuffix(b"L"), what, position - 1)
        if value.bit_length() > limits.integer_bits:
            raise _too_many_bits(limits)
        return value, end + 1

    return read


def _long(layout: str) -> Read:
    length = _number(layout)

    def read(data: bytes, position: int, limits: PickleLimits) -> tuple[Any, int]:
        count, begin = length(data, position, limits)
        if count < 0:
            raise _malformed("LONG4", position - 1)
        if count > len(data) - begin:
            raise cut()
        if count * 8 > limits.integer_bits:
            raise _too_many_bits(limits)
        return int.from_bytes(data[begin : begin + count], "little", signed=True), begin + count

    return read


def _index(data: bytes, position: int, limits: PickleLimits) -> tuple[Any, int]:
    value, end = _decimal("memo index", _INT)(data, position, limits)
    if value < 0:
        raise _malformed("memo index", position - 1)
    return value, end


def _pair(data: bytes, position: int, limits: PickleLimits) -> tuple[Any, int]:
    module, middle = _line("name", _utf8)(data, position, limits)
    name, end = _line("name", _utf8)(data, middle, limits)
    return (module, name), end


_U1, _U2, _U4, _S4, _U8 = map(_number, ("<B", "<H", "<I", "<i", "<Q"))
TABLE: Final[dict[int, tuple[str, int, Read | None]]] = {
    code: (name, protocol, read)
    for protocol, entries in (
        (
            0,
            {
                b"(": ("MARK", None),
                b".": ("STOP", None),
                b"0": ("POP", None),
                b"2": ("DUP", None),
                b"F": ("FLOAT", _line("FLOAT", _float)),
                b"I": ("INT", _decimal("INT", _INT)),
                b"L": ("LONG", _decimal("LONG", _LONG)),
                b"N": ("NONE", None),
                b"P": ("PERSID", _line("PERSID", _utf8)),
                b"R": ("REDUCE", None),
                b"S": ("STRING", _line("STRING", _quoted)),
                b"V": ("UNICODE", _line("UNICODE", _escaped_unicode)),
                b"a": ("APPEND", None),
                b"b": ("BUILD", None),
                b"c": ("GLOBAL", _pair),
                b"d": ("DICT", None),
                b"g": ("GET", _index),
                b"i": ("INST", _pair),
                b"l": ("LIST", None),
                b"p": ("PUT", _index),
                b"s": ("SETITEM", None),
                b"t": ("TUPLE", None),
            },
        ),
        (
            1,
            {
                b"1": ("POP_MARK", None),
                b")": ("EMPTY_TUPLE", None),
                b"G": ("BINFLOAT", _number(">d")),
                b"J": ("BININT", _S4),
                b"K": ("BININT1", _U1),
                b"M": ("BININT2", _U2),
                b"Q": ("BINPERSID", None),
                b"T": ("BINSTRING", _sized("<i", "BINSTRING", _ascii)),
                b"U": ("SHORT_BINSTRING", _sized("<B", "SHORT_BINSTRING", _ascii)),
                b"X": ("BINUNICODE", _sized("<I", "BINUNICODE", _utf8)),
                b"]": ("EMPTY_LIST", None),
                b"e": ("APPENDS", None),
                b"h": ("BINGET", _U1),
                b"j": ("LONG_BINGET", _U4),
                b"o": ("OBJ", None),
                b"q": ("BINPUT", _U1),
                b"r": ("LONG_BINPUT", _U4),
                b"u": ("SETITEMS", None),
                b"}": ("EMPTY_DICT", None),
            },
        ),
        (
            2,
            {
                b"\x80": ("PROTO", _U1),
                b"\x81": ("NEWOBJ", None),
                b"\x82": ("EXT1", _U1),
                b"\x83": ("EXT2", _U2),
                b"\x84": ("EXT4", _S4),
                b"\x85": ("TUPLE1", None),
                b"\x86": ("TUPLE2", None),
                b"\x87": ("TUPLE3", None),
                b"\x88": ("NEWTRUE", None),
                b"\x89": ("NEWFALSE", None),
                b"\x8a": ("LONG1", _long("<B")),
                b"\x8b": ("LONG4", _long("<i")),
            },
        ),
        (
            3,
            {
                b"B": ("BINBYTES", _sized("<I", "BINBYTES")),
                b"C": ("SHORT_BINBYTES", _sized("<B", "SHORT_BINBYTES")),
            },
        ),
        (
            4,
            {
                b"\x8c": ("SHORT_BINUNICODE", _sized("<B", "SHORT_BINUNICODE", _utf8)),
                b"\x8d": ("BINUNICODE8", _sized("<Q", "BINUNICODE8", _utf8)),
                b"\x8e": ("BINBYTES8", _sized("<Q", "BINBYTES8")),
                b"\x8f": ("EMPTY_SET", None),
                b"\x90": ("ADDITEMS", None),
                b"\x91": ("FROZENSET", None),
                b"\x92": ("NEWOBJ_EX", None),
                b"\x93": ("STACK_GLOBAL", None),
                b"\x94": ("MEMOIZE", None),
                b"\x95": ("FRAME", _U8),
            },
        ),
        (
            5,
            {
                b"\x96": ("BYTEARRAY8", _sized("<Q", "BYTEARRAY8")),
                b"\x97": ("NEXT_BUFFER", None),
                b"\x98": ("READONLY_BUFFER", None),
            },
        ),
    )
    for (code,), (name, read) in entries.items()
}
"""The name, the first protocol and the argument of each instruction, by its byte."""
