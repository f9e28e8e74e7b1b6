"""Write pickles by hand: a name, a call, a value kept in the memo, in any protocol."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple


class Name(NamedTuple):
    """Import `name` from `module`."""

    module: str
    name: str


class Call(NamedTuple):
    """Call what the first part gives, with these arguments."""

    what: Any
    args: tuple[Any, ...] = ()


class New(NamedTuple):
    """Call `cls.__new__(cls, *args, **kwargs)`."""

    cls: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None


class Build(NamedTuple):
    """Give the object this state: its `__setstate__`, or its attributes."""

    what: Any
    state: Any


class Steps(NamedTuple):
    """Do one after the other; what the last gives counts."""

    steps: tuple[Any, ...]


class Keep(NamedTuple):
    """Put the value into the memo, too."""

    number: int
    value: Any


class Kept(NamedTuple):
    """Take a value out of the memo."""

    number: int


class Raw(NamedTuple):
    """Opcodes as they are."""

    code: bytes


def name(path: str) -> Name:
    """Read "os:system"."""
    module, _, attribute = path.partition(":")
    return Name(module, attribute)


def call(path: str, *args: Any) -> Call:
    """Call "os:system" with these arguments."""
    return Call(name(path), args)


def described(what: str, **known: Any) -> Any:
    """Return what a line of gadgets.txt or foreign.txt describes, as calls of this module."""
    return eval(what, {"__builtins__": {}}, {**globals(), **known})  # noqa: S307  our own files


def pickled(value: Any, protocol: int = 4) -> bytes:
    """Return a pickle of the protocol that does what `value` describes, and gives what it gives."""
    head = b"\x80" + bytes([protocol]) if protocol >= 2 else b""
    return head + code_of(value, protocol) + b"."


def code_of(value: Any, protocol: int) -> bytes:
    """Return the opcodes that leave the value on the stack."""
    match value:
        case Raw():
            return value.code
        case Name():
            return _name(value, protocol)
        case Call():
            return code_of(value.what, protocol) + _tuple(value.args, protocol) + b"R"
        case New():
            code = code_of(value.cls, protocol) + _tuple(value.args, protocol)
            return code + (b"\x81" if value.kwargs is None else _dict(value.kwargs, 4) + b"\x92")
        case Build():
            return code_of(value.what, protocol) + code_of(value.state, protocol) + b"b"
        case Steps():
            return b"0".join(code_of(step, protocol) for step in value.steps)
        case Keep():
            return code_of(value.value, protocol) + b"p%d\n" % value.number
        case Kept():
            return b"g%d\n" % value.number
        case _:
            return _data(value, protocol)


def _name(value: Name, protocol: int) -> bytes:
    if protocol >= 4:
        return text(value.module) + text(value.name) + b"\x93"
    return b"c" + value.module.encode() + b"\n" + value.name.encode() + b"\n"


def _data(value: Any, protocol: int) -> bytes:
    match value:
        case None:
            return b"N"
        case bool():
            return (b"\x88" if value else b"\x89") if protocol >= 2 else b"I0%d\n" % value
        case int():
            return b"J" + struct.pack("<i", value) if protocol else b"I%d\n" % value
        case str():
            if not protocol:
                return b"V" + value.encode("raw-unicode-escape") + b"\n"
            return text(value, short=protocol >= 4)
        case bytes():
            if protocol < 3:
                encode = Name("_codecs", "encode")
                return code_of(Call(encode, (value.decode("latin-1"), "latin1")), protocol)
            return b"B" + struct.pack("<I", len(value)) + value
        case tuple():
            return _tuple(value, protocol)
        case list():
            items = b"".join(code_of(item, protocol) for item in value)
            return b"(" + items + b"l" if protocol == 0 else b"](" + items + b"e"
        case Mapping():
            return _dict(value, protocol)
    raise TypeError(type(value))


def _tuple(values: tuple[Any, ...], protocol: int) -> bytes:
    items = b"".join(code_of(item, protocol) for item in values)
    if protocol >= 2 and 0 < len(values) < 4:
        return items + bytes([0x84 + len(values)])
    return b"(" + items + b"t"


def _dict(value: Mapping[Any, Any], protocol: int) -> bytes:
    items = b"".join(code_of(k, protocol) + code_of(v, protocol) for k, v in value.items())
    return b"(" + items + b"d" if protocol == 0 else b"}(" + items + b"u"


def text(value: str, *, short: bool = True) -> bytes:
    """Return the opcode for a text: the short one where it fits."""
    raw = value.encode()
    if short and len(raw) < 256:
        return b"\x8c" + bytes([len(raw)]) + raw
    return b"X" + struct.pack("<I", len(raw)) + raw
