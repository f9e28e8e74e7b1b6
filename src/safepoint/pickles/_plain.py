"""What may stand behind a name in a pickle of plain data: vetted functions, and nothing else.

Each takes exactly what a pickler writes for its type, and checks it. None of them imports, looks
up an attribute by name, or sets one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID, SafeUUID

from safepoint.pickles.machine import Collect, Functions, Name, Refused

BUILTINS: Final = ("builtins", "__builtin__")
"""The module of the built-in types, and its name in Python 2, which protocols 0 to 2 write."""

COPYREG: Final = ("copyreg", "copy_reg")

_PATHLIB: Final = ("pathlib", "pathlib._local")  # the second one in Python 3.13
_NUMPY: Final = ("numpy.core", "numpy._core")  # the second one since NumPy 2
_DECIMAL: Final = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?(?:[Ee][+-][0-9]+)?|Infinity|s?NaN[0-9]*)")
_DIGITS: Final = 4096
# The last two are int and str in Python 2, and so in protocols 0 to 2.
_FACTORIES: Final = (
    *("bool", "bytes", "dict", "float", "int", "list", "str", "tuple"),
    *("long", "unicode"),
)


def _must(*facts: bool) -> None:
    if not all(facts):
        raise ValueError


def _bytes(state: Any, size: int) -> bytes:
    _must(type(state) is bytes and len(state) == size)
    return bytes(state)


def _datetime(state: Any, zone: Any = None) -> datetime:
    high, low, month, day, hour, minute, second, *rest = _bytes(state, 10)
    _must(zone is None or type(zone) is timezone)
    year, micro = high * 256 + low, int.from_bytes(rest, "big")
    # The highest bit of the month is the fold.
    return datetime(
        year, month & 0x7F, day, hour, minute, second, micro, tzinfo=zone, fold=month >> 7
    )


def _date(state: Any) -> date:
    high, low, month, day = _bytes(state, 4)
    return date(high * 256 + low, month, day)


def _time(state: Any, zone: Any = None) -> time:
    hour, minute, second, *rest = _bytes(state, 6)
    _must(zone is None or type(zone) is timezone)
    micro = int.from_bytes(rest, "big")
    return time(hour & 0x7F, minute, second, micro, tzinfo=zone, fold=hour >> 7)


def _timedelta(days: Any, seconds: Any, microseconds: Any) -> timedelta:
    _must(type(days) is int, type(seconds) is int, type(microseconds) is int)
    return timedelta(days, seconds, microseconds)


def _timezone(offset: Any, *name: Any) -> timezone:
    _must(type(offset) is timedelta, all(type(part) is str for part in name))
    return timezone(offset, *name)


def _decimal(text: Any) -> Decimal:
    _must(type(text) is str and len(text) <= _DIGITS and bool(_DECIMAL.fullmatch(text)))
    return Decimal(text)


def _encode(text: Any, encoding: Any) -> bytes:
    """Bytes, as protocols 0 to 2 write them: as text whose characters are the bytes."""
    _must(type(text) is str, type(encoding) is str and encoding == "latin1")
    return bytes(text, "latin1")


def _no_bytes() -> bytes:
    return b""


def _path(cls: type[PurePath]) -> Callable[..., PurePath]:
    def path(*parts: Any) -> PurePath:
        _must(all(type(part) is str for part in parts))
        return cls(*parts)

    return path


def _ordered() -> dict[Any, Any]:
    return {}


def _default(factory: Any = None) -> dict[Any, Any]:
    """A dict: what is made up for a missing key is part of the program and not of the state."""
    _must(factory is None or (type(factory) is Name and factory.key[0] in BUILTINS))
    return {}


def _only_passed(*_: Any) -> None:
    """Stand for a name that may be an argument and is not called."""
    raise ValueError


class _NewUuid:
    """A UUID that has no number yet."""

    def __build__(self, state: Any) -> UUID:
        _must(type(state) is dict and {"int"} <= state.keys() <= {"int", "is_safe"})
        number, safe = state["int"], state.get("is_safe")
        _must(type(number) is int, safe is None or type(safe) is int)
        return UUID(int=number, is_safe=SafeUUID(safe))


def reconstructor(makers: Mapping[tuple[str, str], Callable[[], Any]]) -> Callable[..., Any]:
    """Return what protocols 0 and 1 call to make an object: of these classes, and of no other."""

    def reconstruct(cls: Any, base: Any, state: Any) -> Any:
        _must(type(cls) is Name, type(base) is Name, state is None)
        _must(base.key in ((module, "object") for module in BUILTINS))
        return makers[cls.key]()

    return reconstruct


UUIDS: Final[Mapping[tuple[str, str], Callable[[], Any]]] = {("uuid", "UUID"): _NewUuid}

_ON_WINDOWS: Final = isinstance(Path(), PureWindowsPath)
_ELSEWHERE: Final = Refused(
    "It is a path of the other operating system. Read the pickle there, or save str(path)."
)
_ARRAYS: Final = Refused("Save value.item() or value.tolist() in place of a value of NumPy.")
_INSTEAD: Final[Mapping[str, str]] = {
    "complex": "Save [value.real, value.imag] in place of a complex number.",
    "bytearray": "Save bytes(value) in place of a bytearray.",
    "range": "Save list(value), or its start, stop and step, in place of a range.",
    "xrange": "Save list(value), or its start, stop and step, in place of a range.",
    "slice": "Save its start, stop and step in place of a slice.",
    "getattr": "Save plain data in its place. A zoneinfo.ZoneInfo asks for it: convert times with"
    " .astimezone(timezone.utc). So does an Enum of some Pythons: pass its type.",
}

PLAIN: Final[Functions] = MappingProxyType(
    {
        ("datetime", "datetime"): _datetime,
        ("datetime", "date"): _date,
        ("datetime", "time"): _time,
        ("datetime", "timedelta"): _timedelta,
        ("datetime", "timezone"): _timezone,
        ("decimal", "Decimal"): _decimal,
        ("_codecs", "encode"): _encode,
        ("collections", "OrderedDict"): _ordered,
        ("collections", "defaultdict"): _default,
        **UUIDS,
        **{(module, "_reconstructor"): reconstructor(UUIDS) for module in COPYREG},
        **{(module, name): _only_passed for module in BUILTINS for name in (*_FACTORIES, "object")},
        **{(module, "bytes"): _no_bytes for module in BUILTINS},
        **{(module, "set"): Collect("set") for module in BUILTINS},
        **{(module, "frozenset"): Collect("frozenset") for module in BUILTINS},
        **{(module, "PurePosixPath"): _path(PurePosixPath) for module in _PATHLIB},
        **{(module, "PureWindowsPath"): _path(PureWindowsPath) for module in _PATHLIB},
        **{
            (module, name): _path(Path) if here else _ELSEWHERE
            for module in _PATHLIB
            for name, here in (("PosixPath", not _ON_WINDOWS), ("WindowsPath", _ON_WINDOWS))
        },
        **{(module, name): Refused(do) for module in BUILTINS for name, do in _INSTEAD.items()},
        ("collections", "Counter"): Refused("Save dict(value) in place of a Counter."),
        ("collections", "deque"): Refused("Save list(value) in place of a deque."),
        ("zoneinfo", "ZoneInfo"): Refused(
            "Save the moment and not the rules: convert with .astimezone(timezone.utc)."
        ),
        ("pydantic_core._pydantic_core", "TzInfo"): Refused(
            "Convert times with .astimezone(timezone.utc) before you save them."
        ),
        ("numpy", "dtype"): _ARRAYS,
        ("numpy", "ndarray"): _ARRAYS,
        **{(f"{core}.multiarray", "scalar"): _ARRAYS for core in _NUMPY},
        **{(f"{core}.multiarray", "_reconstruct"): _ARRAYS for core in _NUMPY},
        **{(f"{core}.numeric", "_frombuffer"): _ARRAYS for core in _NUMPY},
    }
)
"""The names of plain data: all that a `Codec` without registered types can hold."""
