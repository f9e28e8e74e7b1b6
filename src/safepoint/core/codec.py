"""State to bytes and back, without a way for the bytes to choose what happens.

The bytes are MessagePack. None, bool, int, float, str, bytes, list, and dict with keys of str are
what they are there. Everything else is an extension type, whose code says what follows:

| code | type | what follows |
|---|---|---|
| 1, 2, 3 | int beyond 64 bits, Decimal, UUID | its text: `0x10000000000000000`, `12.50` |
| 4, 5, 6 | datetime, date, time | its text in ISO 8601 |
| 7, 8 | Path, timedelta | its text; days, seconds and microseconds: `1,3600,0` |
| 9, 10, 11 | tuple, set, frozenset | MessagePack: an array; that of a set is sorted by its bytes |
| 12 | dict with other keys | MessagePack: an array of key, value, key, value … |
| 0 | a type that you registered | one byte that says how long its tag is, the tag, MessagePack |

A tag is a key into the list of types that the reader gave to its codec. It is never imported, and
an unknown one is refused. What people read and sign is canonical JSON: `write_json`, `read_json`.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import cached_property, partial
from gc import get_referents
from itertools import chain
from math import isfinite
from operator import attrgetter, eq, is_
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import ormsgpack
from ormsgpack import Ext, packb, unpackb

from safepoint.core.errors import (
    CheckpointError,
    CodecError,
    DecodeError,
    EncodeError,
    LimitExceeded,
    quoted,
)
from safepoint.core.names import DEFAULT_LIMITS, Limits

_EXACT: Final = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
"""Whatever is not exactly a plain value is handed to us."""
_LONGEST_PATH: Final = 32_767  # on Windows; elsewhere it is less
_SHARED_HASHES: Final = 1000
_ONE_HASH: Final = 64  # as -1 and -2 share theirs, so do the corners of a cube of six dimensions
_UNSEEN: Final = 8  # extension types inside one another that are read before nesting is measured
_PLAIN: Final = (dict, list, tuple, set, frozenset, bytes, str, int, float)
_SHOWN: Final = re.compile(r"[A-Za-z_]{1,24}\Z")
_TAG: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,254}\Z")
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, not in C
_FROM_HERE: Final = "Restore a checkpoint that this codec wrote."
_NO_NUMBER: Final = "Save None, or a word of your own, in place of NaN and infinity."
_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")  # or something that looks like it
_LIGHT: Final = bytes(each for each in range(256) if not 0x80 <= each < 0xE0)
"""First bytes of values that take no memory of their own, and nearly all of a text."""
_HALF: Final = (
    "holds a lone surrogate, which is half a character.",
    "Replace it before you save, for example with text.encode(errors='replace').decode().",
)
_LAST_TEXT, _SETS, _DICT = 8, (10, 11), 12  # extension codes


class _Refusal(Exception):
    """Why a value is not written, and what to do."""

    def __init__(self, what: str, do: str, step: str = "") -> None:
        self.what, self.do, self.step = what, do, step


class Tagged(NamedTuple):
    """A value whose type a reader does not know: its tag, and what follows it."""

    tag: str
    content: Any


class _Pairs(NamedTuple):
    """A dict with other keys than str, on its way to the bytes."""

    items: list[Any]


class _Entry(NamedTuple):
    """How one type is written and brought back.

    Attributes:
        tag: its name.
        code: of its extension type.
        take: makes what is written out of a value.
        revive: makes the value out of that.
        gives_back: for a class of the caller, whether it gives back fields that cannot change.
        same: for a converter, tells whether a value and what came back of it are equal.
    """

    tag: str
    code: int
    take: Callable[[Any], Any]
    revive: Callable[[Any], Any]
    gives_back: Callable[[Any], bool] | None = None
    same: Callable[[Any, Any], Any] | None = None


class Converter(NamedTuple):
    """Teaches a codec a type that is not yours to register.

    What `to` makes of a value is written in its place. That is proven on save: what `from_` makes
    of it again is of this class, the `same` as the value, and has the same bytes.

    Attributes:
        tag: what its bytes are tagged with.
        cls: the class, and none that extends it.
        to: makes what the codec knows out of a value. An EncodeError of its own is passed on: what
            it says follows the way to the value.
        from_: makes the value out of that.
        same: tells whether two values are equal, if `==` does not. None if `to` leaves nothing out
            that counts: then the same bytes again are proof enough.
    """

    tag: str
    cls: type
    to: Callable[[Any], Any]
    from_: Callable[[Any], Any]
    same: Callable[[Any, Any], Any] | None = eq


# --- types that are known


def _moment(value: datetime | time) -> str:
    zone = value.tzinfo
    if zone is not None and zone is not UTC and not _is_offset(zone):
        raise _Refusal(
            f"has a time zone of the type {_type_name(type(zone))}, whose rules or name would be"
            " lost.",
            "Save the moment: convert with .astimezone(timezone.utc).",
        )
    if value.fold:
        raise _Refusal(
            "has fold=1, which ISO 8601 cannot say.",
            "Save an unambiguous time: convert with .astimezone(timezone.utc).",
        )
    return value.isoformat()


def _is_offset(zone: object) -> bool:
    """Tell whether a time zone is an offset in seconds, and nothing else."""
    core = sys.modules.get("pydantic_core")
    if core is not None and type(zone) is core.TzInfo:
        return True  # which is what pydantic gives to each time that it parses
    if type(zone) is not timezone:
        return False
    offset = zone.utcoffset(None)  # fromisoformat reads a fraction as UTC if it is all there is
    return not offset.microseconds and zone.tzname(None) == timezone(offset).tzname(None)


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise _Refusal("is a Decimal that is not finite.", _NO_NUMBER)
    return str(value).upper()  # a decimal context can ask for 1e+5


def _duration(value: timedelta) -> str:
    return f"{value.days},{value.seconds},{value.microseconds}"


def _path(value: Path) -> str:
    text = str(value)
    if len(text) > _LONGEST_PATH or Path(text) != value:
        raise _Refusal("is a path that its own text does not give back.", "Save it as a str.")
    return text


def _to_path(text: str) -> Path:
    if len(text) > _LONGEST_PATH:
        raise ValueError
    return Path(text)


def _hashed(make: Callable[[Collection[Any]], Any]) -> Callable[[list[Any]], Any]:
    def revive(items: list[Any]) -> Any:
        _check_hashes(items)
        return make(items)

    return revive


def _to_dict(items: list[Any]) -> dict[Any, Any]:
    _check_hashes(items[::2])
    return dict(zip(items[::2], items[1::2], strict=True))


def _check_hashes(values: Collection[Any]) -> None:
    """Refuse keys that were chosen to share one hash, which makes a set or dict take forever.

    A few may share one, unless they are long numbers: to compare two of those takes long by itself.
    """
    if len(values) == len(set(map(hash, values))):
        return
    times = Counter(map(hash, values))
    shared = [value for value in values if times[hash(value)] > 1]
    crowded = max(times.values()) > _ONE_HASH  # each of them is compared with all the others
    if len(values) - len(times) > _SHARED_HASHES or crowded or any(map(_is_long, shared)):
        raise LimitExceeded(
            "Too many items of one set or dict share a hash.",
            "Save a list instead of a set or of the keys of a dict.",
        )


def _is_long(value: Any) -> bool:
    """Tell whether a value is, or holds, a number that is longer than 64 bits."""
    if isinstance(value, (int, Decimal)):
        return type(value) is Decimal or not -(2**63) <= value < 2**63
    if not isinstance(value, (tuple, frozenset)):  # or a class of the caller's, with its fields
        value = [getattr(value, name, None) for name in getattr(value, "__match_args__", ())]
    return any(map(_is_long, value))


_TEXTS: Final[dict[type, _Entry]] = {
    int: _Entry("int", 1, hex, lambda text: int(text, 16)),
    Decimal: _Entry("decimal", 2, _decimal, Decimal),
    UUID: _Entry("uuid", 3, str, UUID),
    datetime: _Entry("datetime", 4, _moment, datetime.fromisoformat),
    date: _Entry("date", 5, date.isoformat, date.fromisoformat),
    time: _Entry("time", 6, _moment, time.fromisoformat),
    type(Path()): _Entry("path", 7, _path, _to_path),
    timedelta: _Entry("timedelta", 8, _duration, lambda t: timedelta(*map(int, t.split(",")))),
}
_BUILT_IN: Final[dict[type, _Entry]] = {
    **_TEXTS,
    tuple: _Entry("tuple", 9, list, tuple),
    set: _Entry("set", 10, list, _hashed(set)),
    frozenset: _Entry("frozenset", 11, list, _hashed(frozenset)),
    _Pairs: _Entry("dict", 12, attrgetter("items"), _to_dict),
}
_PLAIN_ENTRIES: Final = {entry.code: entry for entry in _BUILT_IN.values()}
_TREES: Final = {bytes([code]) for code in (0, *range(_LAST_TEXT + 1, _DICT + 1))}
_NATIVE: Final = (type(None), bool, float, str, bytes, list, dict)
_FIXED: Final = {*_TEXTS, type(None), bool, float, str, bytes}


# --- types of the caller


def _registered(
    types: Iterable[type] | Mapping[str, type], converters: Iterable[Converter]
) -> dict[type, _Entry]:
    """Return the entry of each type.

    Raises:
        CodecError: a class could not be restored faithfully, or a tag is not free.
    """
    listed = types.items() if isinstance(types, Mapping) else _named(types)
    named: list[tuple[str, type, Converter | None]] = [(tag, cls, None) for tag, cls in listed]
    named += [(converter.tag, converter.cls, converter) for converter in converters]
    taken = {entry.tag for entry in _BUILT_IN.values()}
    found: dict[type, _Entry] = {}
    for tag, cls, converter in named:
        if not isinstance(cls, type):
            raise CodecError(
                f"{quoted(cls)} is not a class.", "Register classes: Codec([Invoice])."
            )
        if not isinstance(tag, str) or not _TAG.match(tag):
            raise CodecError(
                f"{quoted(tag)} cannot be a tag.",
                "Use letters, digits, '_' and '.', and begin with a letter or '_':"
                " Codec({'billing.Invoice': Invoice}).",
            )
        if tag in taken:
            raise CodecError(
                f"The tag {quoted(tag)} is taken.",
                "Give the type another one: Codec({'billing.Invoice': Invoice}).",
            )
        if cls in found or (converter and (cls in _BUILT_IN or cls in _NATIVE)):
            raise CodecError(f"{_type_name(cls)} is registered twice.", "Give it one tag.")
        taken.add(tag)
        found[cls] = _converted(converter) if converter else _entry(tag, cls)
    return found


def _named(types: Iterable[Any]) -> list[tuple[str, type]]:
    return [(getattr(cls, "__name__", ""), cls) for cls in types]


def _entry(tag: str, cls: Any) -> _Entry:
    if issubclass(cls, Enum):
        return _enum(tag, cls)
    if hasattr(cls, "model_fields") and hasattr(cls, "model_validate"):  # pydantic, not imported
        # By name alone: an alias may be the name of another field.
        validate = partial(cls.model_validate, strict=True, by_name=True, by_alias=False)
        return _record(tag, cls, sorted(cls.model_fields), lambda **saved: validate(saved))
    if hasattr(cls, "__dataclass_fields__"):
        return _record(tag, cls, sorted(field.name for field in fields(cls)), cls)
    raise _cannot(
        cls,
        "it is not a dataclass, an Enum or a pydantic model",
        "Make it a dataclass, or convert it to one before you save.",
    )


def _cannot(cls: type, why: str, do: str) -> CodecError:
    return CodecError(f"{_type_name(cls)} cannot be registered: {why}.", do)


def _enum(tag: str, cls: type[Enum]) -> _Entry:
    members = dict(cls.__members__)

    def take(value: Enum) -> str:
        if members.get(value._name_ or "") is not value:
            raise _Refusal(
                f"is of the type {tag} and not one of its members.",
                "Save a member that the class lists.",
            )
        return value._name_

    return _Entry(tag, 0, take, members.__getitem__, lambda _: True)


def _record(tag: str, cls: type, names: list[str], build: Callable[..., object]) -> _Entry:
    """Return the entry of a class with named fields, which its own constructor brings back."""
    _check_hidden_state(cls, set(names))
    known = frozenset(names)
    # pydantic keeps what is no field in places of its own.
    holders = ["__dict__"] if cls.__dictoffset__ else []
    holders += [n for n in ("__pydantic_extra__", "__pydantic_private__") if hasattr(cls, n)]

    def take(value: Any) -> dict[str, Any]:
        for holder in holders:
            if not known.issuperset(there := getattr(value, holder) or ()):
                _check_attributes(tag, cls, known.symmetric_difference(there) - known)
        try:
            return {name: getattr(value, name) for name in names}
        except Exception:  # noqa: BLE001 - a property of the caller's class may raise anything
            raise _Refusal(
                f"is of the type {tag} and has a field that cannot be read.",
                "Set each field before you save.",
            ) from None

    def gives_back(saved: dict[str, Any]) -> bool:
        if not _FIXED.issuperset(map(type, saved.values())):
            return False
        with suppress(Exception):  # whatever it is, the whole proof will tell
            again = build(**saved)
            there = take(again).values()
            return type(again) is cls and all(map(is_, there, saved.values()))
        return False

    def revive(saved: object) -> object:
        if type(saved) is not dict or saved.keys() != known:
            raise DecodeError(
                f"The saved fields of {tag} are not the fields that the class has now.",
                "Restore with the version of the class that wrote it.",
            )
        with suppress(Exception):  # whatever the caller's class raises: it would carry the values
            return build(**saved)
        raise DecodeError(
            f"{tag} refuses its saved fields.",
            "Restore with the version of the class that wrote it, or let it accept this value.",
        )

    return _Entry(tag, 0, take, revive, gives_back)


def _converted(converter: Converter) -> _Entry:
    tag, cls, to, from_, same = converter

    def take(value: Any) -> Any:
        try:
            return to(value)
        except EncodeError as refused:  # it says why; the way to the value is added
            raise _Refusal(refused.what, refused.do) from None
        except Exception as failed:  # noqa: BLE001 - whatever the converter raises
            raise _Refusal(
                f"is of the type {tag}, whose converter raised {type(failed).__name__}.",
                "Convert it first, or let the converter accept it.",
            ) from None

    def revive(known: Any) -> Any:
        value = from_(known)
        if type(value) is not cls:
            raise TypeError
        return value

    return _Entry(tag, 0, take, revive, None, same)


def _check_hidden_state(cls: type, names: set[str]) -> None:
    """Refuse a class whose instances hold something beside their fields."""
    for base in cls.__mro__[:-1]:
        slots = base.__dict__.get("__slots__", ())
        slots = {slots} if isinstance(slots, str) else set(slots)
        hidden = [slot for slot in slots - names if not (slot[:2] == slot[-2:] == "__")]
        if hidden or not base.__flags__ & _HEAP_TYPE:
            why = f"it extends {base.__name__}, whose content is not a field"
            raise _cannot(cls, why, "Make that content a field.")


def _check_attributes(tag: str, cls: type, names: Iterable[str]) -> None:
    """Refuse attributes that are not fields: they would be gone after a restore."""
    for name in sorted(names):
        derived = isinstance(inspect.getattr_static(cls, name, None), cached_property)
        if not derived and name != "__orig_class__":  # typing notes Box[int] there
            raise _Refusal(
                f"is an attribute but not a field of {tag}, so it would be lost.",
                "Make it a field, a property or a functools.cached_property.",
                f".{name}" if _SHOWN.match(name) else ".…",
            )


def _unknown(cls: type) -> _Refusal:
    """Return why a value is refused whose exact type is not known."""
    plain = next((base.__name__ for base in _PLAIN if issubclass(cls, base)), None)
    if any(
        hasattr(cls, name) for name in ("__dataclass_fields__", "__members__", "model_validate")
    ):
        do = f"Register it: Codec([{ascii(cls.__name__)[1:-1]}])."
    elif plain:
        do = f"Convert it first: {plain}(value) is kept, a subclass of {plain} is not."
    else:
        do = "Convert it first to a type that the codec knows, such as dict, list, str or bytes."
    return _Refusal(f"is of the type {_type_name(cls)}, which this codec does not know.", do)


def _type_name(cls: type) -> str:
    return ascii(f"{cls.__module__}.{cls.__qualname__}")[1:-1]


# --- writing


class _Writer:
    """One walk over a state that writes it.

    Attributes:
        deepest: no container is nested deeper than that; perhaps none is nested that deep.
        unproven: there is a value of a class of the caller that has yet to be proven.
        originals: what converters were given, by the bytes that it became.
    """

    def __init__(self, table: Mapping[type, _Entry], limits: Limits, *, proves: bool) -> None:
        self.deepest, self.unproven, self._proves = 0, False, proves
        self.originals: dict[bytes, list[tuple[Callable[[Any, Any], Any], Any]]] = {}
        self._table, self._limits, self._above, self._inside = table, limits, 0, 0
        self._left = limits.items
        self._problem: BaseException | None = None

    def pack(self, value: Any) -> bytes:
        """Return the bytes of a value.

        Raises:
            LimitExceeded: it is nested too deep, or holds too many values.
            _Refusal: it holds a value that could not be restored faithfully.
        """
        levels = self.measure(value)
        self._above += levels
        self.deepest = max(self.deepest, self._above)
        data = self._packed(value)
        if data is None:
            data = self._packed(_paired(value))
        if data is None:
            raise _Refusal(*_HALF)
        self._above -= levels
        return data

    def _packed(self, value: Any) -> bytes | None:
        """Return the bytes of a value; None if a key is no str, or a text is no text."""
        with suppress(TypeError):
            return packb(value, self._default, _EXACT)
        if self._problem is not None:  # the library would lose it
            raise self._problem
        return None

    def _default(self, value: Any) -> Ext:
        try:
            return self._extension(value)
        except BaseException as problem:
            self._problem = self._problem or problem
            raise

    def _extension(self, value: Any) -> Ext:
        entry = self._table.get(type(value))
        if entry is None:
            raise _unknown(type(value))
        content = entry.take(value)
        if 0 < entry.code <= _LAST_TEXT:
            try:
                return Ext(entry.code, content.encode())
            except UnicodeEncodeError:
                raise _Refusal(*_HALF) from None
        self._inside += 1
        if self._inside > self._limits.depth + 1:
            raise _too_deep(self._limits)
        if entry.code in (*_SETS, _DICT):
            _check_hashes(content if entry.code in _SETS else content[::2])
        data = self._sorted(content) if entry.code in _SETS else self.pack(content)
        self._inside -= 1
        if entry.code:
            return Ext(entry.code, data)
        data = b"%c%b%b" % (len(entry.tag), entry.tag.encode(), data)
        if self._proves and not (entry.gives_back and entry.gives_back(content)):
            self.unproven = True
        if self._proves and entry.same:
            self.originals.setdefault(data, []).append((entry.same, value))
        return Ext(0, data)

    def _sorted(self, content: list[Any]) -> bytes:
        self._above += 1
        self._count(len(content))
        pieces = sorted(map(self.pack, content))
        self._above -= 1
        self.deepest = max(self.deepest, self._above + 1)
        return packb([None] * len(pieces))[: -len(pieces) or None] + b"".join(pieces)

    def measure(self, value: Any) -> int:
        """Return how deep lists and dicts are nested in a value, and count what they hold.

        It goes level by level, in C where it can, before anything is written.
        """
        levels, level = 0, [value]
        while level := [each for each in level if type(each) is list or type(each) is dict]:
            levels += 1
            if levels > self._limits.depth:
                raise _too_deep(self._limits)
            self._count(sum(map(len, level)))
            level = get_referents(*level)
        return levels

    def _count(self, items: int) -> None:
        self._left -= items
        if self._left < 0:
            raise _too_many(self._limits)


def _paired(value: Any) -> Any:
    """Return a value with each dict that has other keys than str set apart."""
    if type(value) is list:
        return [*map(_paired, value)]
    if type(value) is not dict:
        return value
    if all(type(key) is str for key in value):
        return {key: _paired(inner) for key, inner in value.items()}
    return _Pairs([*chain.from_iterable(value.items())])


def _too_deep(limits: Limits) -> LimitExceeded:
    return LimitExceeded(
        f"The state is nested deeper than {limits.depth} levels, or contains itself.",
        "Save a flatter state, with ids in place of objects inside objects, or raise Limits.depth.",
    )


def _too_many(limits: Limits) -> LimitExceeded:
    return LimitExceeded(
        f"The state holds more than {limits.items} values.",
        "Keep large data elsewhere and save a reference to it, or raise Limits.items.",
    )


# --- bytes from outside

_HEADS: Final = {
    **{0xC4 + n: ("", -(1 << n)) for n in range(3)},  # bytes: how long its length is
    **{0xC7 + n: ("ext", -(1 << n)) for n in range(3)},
    0xCA: ("", 4),
    0xCB: ("float", 8),
    **{0xCC + n: ("", 1 << n) for n in range(4)},
    **{0xD0 + n: ("", 1 << n) for n in range(4)},
    **{0xD4 + n: ("ext", 1 << n) for n in range(5)},
    **{0xD9 + n: ("", -(1 << n)) for n in range(3)},  # str
    **{0xDC + n: ("array", -(2 << n)) for n in range(2)},
    **{0xDE + n: ("map", -(2 << n)) for n in range(2)},
    **{0x80 + n: ("map", n) for n in range(16)},
    **{0x90 + n: ("array", n) for n in range(16)},
    **{0xA0 + n: ("", n) for n in range(32)},
}
"""What a first byte begins, and how many bytes or values follow; below 0, how long that is."""


def check_shape(data: bytes, limits: Limits, inside: int = 0) -> None:
    """Walk over MessagePack, header by header, without building anything.

    Args:
        data: the bytes.
        limits: what is too large, too deep or too many.
        inside: how many extension types are around it.

    Raises:
        LimitExceeded: it is too large, nested too deep, or holds too many values.
        DecodeError: it is cut short, or holds a float that is not finite.
    """
    _check_size(data, limits)
    items, regions = 0, [(0, 0, inside)]
    while regions:
        at, above, inside = regions.pop()
        left = [1]  # values that are still to come, level by level
        while left:
            if not left[-1]:
                left.pop()
                continue
            left[-1] -= 1
            kind, size = _HEADS.get(data[at], ("", 0)) if at < len(data) else ("", len(data))
            at += 1
            if size < 0:
                at, size = at - size, int.from_bytes(data[at : at - size])
            if kind == "array" or kind == "map":
                items += size
                left.append(size if kind == "array" else 2 * size)
                if above + len(left) - 1 > limits.depth:
                    raise _too_deep(limits)
                if items > limits.items:
                    raise _too_many(limits)
                continue
            body, code = at + 1, data[at : at + 1]
            if kind == "ext":
                if code == b"\0":
                    body += 1 + int.from_bytes(data[body : body + 1])
                if code in _TREES:
                    regions.append((body, above + len(left) - 1, inside + 1))
                if inside > limits.depth:
                    raise _too_deep(limits)
                size += 1
            at += size
            if at > len(data):
                raise DecodeError("The encoded state is not MessagePack.", _FROM_HERE)
            if kind == "float" and _NOT_FINITE.match(data, at - 9):
                raise DecodeError("The encoded state holds a float that is not finite.", _FROM_HERE)


def _check_size(data: bytes, limits: Limits) -> None:
    if len(data) > limits.state_bytes:
        raise LimitExceeded(
            f"The encoded state has {len(data)} bytes, and the limit is {limits.state_bytes}.",
            "Keep large data elsewhere and save a reference to it, or raise Limits.state_bytes.",
        )


class _Reader:
    """One walk over bytes that builds a state.

    Args:
        entries: of the types that are known, by tag or by code.
        limits: what is too deep.
        lenient: make a `Tagged` of what is not known.
        check: what to do with each value that was tagged, its tag and its bytes.
    """

    def __init__(
        self,
        entries: Mapping[Any, _Entry],
        limits: Limits,
        *,
        lenient: bool = False,
        check: Callable[[Any, str, bytes], None] | None = None,
    ) -> None:
        self._entries, self._limits, self._lenient, self._check = entries, limits, lenient, check
        self._inside = 0
        self._problem: BaseException | None = None

    def read(self, data: bytes) -> Any:
        """Return the value of bytes that may still be not canonical.

        Raises:
            DecodeError: they are not MessagePack, or a tag is unknown, or a type refuses what is
                tagged.
            LimitExceeded: they are nested too deep.
        """
        with suppress(ValueError):
            return unpackb(data, ext_hook=self._hook)
        if self._problem is not None:  # the library would lose it
            raise self._problem
        check_shape(data, self._limits, self._inside)  # which says it, if it is too deep
        raise DecodeError("The encoded state is not MessagePack.", _FROM_HERE)

    def _hook(self, code: int, data: bytes) -> Any:
        try:
            return self._revived(code, data)
        except BaseException as problem:
            self._problem = self._problem or problem
            raise

    def _revived(self, code: int, data: bytes) -> Any:
        named, body = b"", data
        if code == 0 and data:
            named, body = data[1 : data[0] + 1], data[data[0] + 1 :]
        entry = self._entries.get(code or named.decode("ascii", "replace"))
        if entry is None and not self._lenient:
            what = f"tag {quoted(named.decode('ascii', 'replace'))}" if not code else f"code {code}"
            raise DecodeError(
                f"The encoded state holds the {what}, which this codec does not know.",
                "Register the type that is stored under that name, as Codec([Invoice]) does for"
                " Invoice.",
            )
        tag = entry.tag if entry else named.decode("ascii", "replace") or f"code {code}"
        content: Any = body
        try:
            if code == 0 or code > _LAST_TEXT:
                content = self._nested(body) if code <= _DICT else body
            else:
                content = body.decode()
            value = entry.revive(content) if entry else Tagged(tag, content)
            if self._check and not code:
                self._check(value, tag, data)
            return value  # noqa: TRY300
        except CheckpointError:
            raise
        except Exception:  # noqa: BLE001 - each type has its own way to say that it is malformed
            if self._lenient:
                return Tagged(tag, content)
        raise DecodeError(f"The encoded state holds a malformed {tag}.", _FROM_HERE)

    def _nested(self, body: bytes) -> Any:
        self._inside += 1
        if self._inside == _UNSEEN:
            check_shape(body, self._limits, self._inside)
        value = self.read(body)
        self._inside -= 1
        return value


def inspect_state(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Return what bytes hold, for people and for programs that do not know all of its types.

    Nothing but plain types is built: whatever else is a `Tagged`.

    Raises:
        DecodeError: they are not MessagePack.
        LimitExceeded: they are too large, too deep or have too many values.
    """
    check_shape(data, limits)
    return _Reader(_PLAIN_ENTRIES, limits, lenient=True).read(data)


class Codec:
    r"""Turns state into MessagePack, and back into equal values of the same types.

    What it saves it can restore: each value comes back equal and of the same type, at every
    level, and a dict in its order. What could not come back is refused when you save it, not
    when you need it. Two things are not kept: a bytearray comes back as bytes, and which fields
    of a pydantic model were set explicitly is lost.

    ```python
    from dataclasses import dataclass
    from datetime import date
    from decimal import Decimal

    from safepoint.core.codec import Codec


    @dataclass
    class Invoice:
        number: int
        total: Decimal
        due: date


    codec = Codec([Invoice])
    data = codec.encode([Invoice(7, Decimal("12.50"), date(2026, 1, 31))])
    print(codec.decode(data)[0].total)
    #> 12.50
    ```

    Types are exact. A subclass that you did not register is refused, on save and on load:

    ```python
    from collections import Counter

    from safepoint.core.codec import Codec
    from safepoint.core.errors import DecodeError, EncodeError

    try:
        Codec().encode({"cart": [Counter(apples=2)]})
    except EncodeError as error:
        print(error.what)
        #> state['cart'][0] is of the type collections.Counter, which this codec does not know.
        print(error.do)
        #> Convert it first: dict(value) is kept, a subclass of dict is not.

    try:
        Codec().decode(b"\xc7\x0b\x00\x09os.system\xc0")
    except DecodeError as error:
        print(error.what)
        #> The encoded state holds the tag 'os.system', which this codec does not know.
    ```

    Dataclasses and pydantic models are rebuilt through their own constructor, so their
    validation runs on what was stored. It also runs on save, once, as the proof that it accepts
    what it will be given.

    An instance does not change after it was made, and threads may share it.

    Args:
        types: dataclasses, Enums and pydantic models that may occur in a state. Each is
            stored under its name; give a mapping to choose the names, which is what you do
            before you rename a class: `Codec({"Invoice": BillingInvoice})`.
        converters: for types that are not yours to register.
        limits: what is too large, too deep or too many, on save and on load.

    Raises:
        CodecError: a type could not be restored faithfully, or two have one name.
    """

    __slots__ = ("_entries", "_limits", "_table")

    def __init__(
        self,
        types: Iterable[type] | Mapping[str, type] = (),
        *,
        converters: Iterable[Converter] = (),
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._table = {**_BUILT_IN, **_registered(types, converters)}
        self._entries = {entry.code or entry.tag: entry for entry in self._table.values()}
        self._limits = limits

    @property
    def limits(self) -> Limits:
        """The limits that hold on save and on load."""
        return self._limits

    @property
    def types(self) -> frozenset[type]:
        """The types that it keeps: those that are built in, and yours."""
        return frozenset([*_NATIVE, *self._table]) - {_Pairs}

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a state.

        Raises:
            EncodeError: a value in it could not be restored faithfully. The message says where it
                is and of which type, and not what it is. A key on the way to it is shown if it is
                a short word of letters alone: another may be a token or an address.
            LimitExceeded: it is too large, too deep or has too many values.
        """
        data, writer = self._write(value, EncodeError)
        if writer.unproven:
            self._prove(data, writer)
        return data

    def decode(self, data: bytes) -> Any:
        """Return the state that was encoded.

        Size and count are checked before anything is parsed. What was decoded is encoded once
        more: unless that gives the same bytes, it is refused.

        Raises:
            DecodeError: the bytes are not what `encode` writes, or hold a type that is not
                registered, or a registered type refuses them.
            LimitExceeded: they are too large, too deep or have too many values.
        """
        _check_size(data, self._limits)
        # A value that takes memory has a first byte of its own. Others may look like one.
        if len(data) > self._limits.items < len(data.translate(None, _LIGHT)):
            check_shape(data, self._limits)
        if self._write(value := self._read(data), DecodeError)[0] != data:
            raise DecodeError("The encoded state is not in canonical form.", _FROM_HERE)
        return value

    def _read(self, data: bytes, check: Callable[[Any, str, bytes], None] | None = None) -> Any:
        with suppress(RecursionError, MemoryError):
            return _Reader(self._entries, self._limits, check=check).read(data)
        raise _out_of_resources()

    def _write(self, value: object, error: type[CodecError]) -> tuple[bytes, _Writer]:
        """Return the bytes of a state, and what is left to prove."""
        # Raised after the handlers, so that no other exception hangs on to it with its values.
        problem: CheckpointError
        try:
            return self._pack(value, proves=error is EncodeError)
        except (_Refusal, DecodeError):
            problem = _locate(value, error, self._check, self._table)
        except (RecursionError, MemoryError):
            problem = _out_of_resources()
        except CheckpointError:
            raise
        except Exception as failed:  # noqa: BLE001  a property, a hash, another thread's edit
            problem = error(
                f"The state could not be read: it raised {type(failed).__name__}.",
                "Save a state that nothing else changes meanwhile.",
            )
        raise problem

    def _pack(self, value: object, *, proves: bool = False) -> tuple[bytes, _Writer]:
        writer = _Writer(self._table, self._limits, proves=proves)
        data = writer.pack(value)
        _check_size(data, self._limits)
        if writer.deepest > self._limits.depth or _NOT_FINITE.search(data):
            check_shape(data, self._limits)
        return data, writer

    def _check(self, value: Any) -> None:
        """Raise a `_Refusal` if a value is refused."""
        try:
            self._pack(value)
        except DecodeError:
            raise _Refusal("is a float that is not finite.", _NO_NUMBER) from None

    def _prove(self, data: bytes, writer: _Writer) -> None:
        """Restore what is about to be saved.

        Raises:
            EncodeError: that fails, or gives another value.
        """
        why = "A registered type changes when it is rebuilt."
        for each in (False, True):  # the second time says which it is

            def compare(value: Any, tag: str, saved: bytes, each: bool = each) -> None:
                with suppress(Exception):  # whatever the comparison raises
                    old = writer.originals.get(saved, ())
                    if all(same(given, value) for same, given in old) and (
                        not each or self._pack(value)[0].endswith(saved)
                    ):
                        return
                raise DecodeError(f"{tag} changes when it is rebuilt.", _FROM_HERE)

            try:
                if self._write(self._read(data, compare), DecodeError)[0] == data:
                    return
            except CheckpointError as error:
                why = error.what
        raise EncodeError(
            f"The state could not be restored. {why}",
            "Let the class accept, unchanged, the fields of its own instances.",
        )


def _locate(
    value: Any,
    error: type[CodecError],
    check: Callable[[Any], object],
    table: Mapping[type, _Entry],
) -> CodecError:
    """Return the error for a state that holds a value which is refused: where it is, and why."""
    where, refusal = "", _refusal(value, check)
    inner = _inner(value, table)
    while found := next(((step, v, r) for step, v in inner if (r := _refusal(v, check))), None):
        step, value, refusal = found
        where, inner = where + step, _inner(value, table)
    what, do, step = refusal or ("changes while it is saved.", "Save it again.", "")
    return error(f"state{where}{step} {what}", do if error is EncodeError else _FROM_HERE)


def _refusal(value: Any, check: Callable[[Any], object]) -> tuple[str, str, str] | None:
    with suppress(CheckpointError, RecursionError, MemoryError):
        try:
            check(value)
        except _Refusal as refusal:
            return refusal.what, refusal.do, refusal.step
    return None


def _inner(value: Any, table: Mapping[type, _Entry]) -> Iterator[tuple[str, Any]]:
    """Yield what a value holds, each with the step to it."""
    cls, entry = type(value), table.get(type(value))
    if cls is dict:
        is_plain = all(type(key) is str for key in value)
        yield from ((_step(key) if is_plain else ".keys()[…]", key) for key in value)
        yield from ((_step(key), inner) for key, inner in value.items())
    elif cls is list or cls is tuple:
        yield from ((f"[{number}]", inner) for number, inner in enumerate(value))
    elif cls is set or cls is frozenset:
        yield from (("[…]", inner) for inner in value)
    elif entry and not entry.code:
        with suppress(_Refusal):
            content = entry.take(value)
            if entry.gives_back and type(content) is dict:
                yield from ((f".{ascii(name)[1:-1]}", each) for name, each in content.items())
            else:
                yield "", content


def _step(key: object) -> str:
    """Show a key if it is a short word; a longer one, or one with digits, may be a secret."""
    return f"['{key}']" if type(key) is str and _SHOWN.match(key) else "[…]"


def _out_of_resources() -> LimitExceeded:
    return LimitExceeded(
        "The state is nested too deep, or is too large, for this process.",
        "Save a flatter or smaller state, or lower the limits to what the process can hold.",
    )


# --- what people read and sign

_JSON: Final[dict[type, _Entry]] = {
    **{cls: _TEXTS[cls] for cls in (Decimal, UUID, datetime, date, time)},
    bytes: _Entry("bytes", 0, lambda value: b64encode(value).decode(), b64decode),
}
_JSON_TAGS: Final = {f"${entry.tag}": entry.revive for entry in _JSON.values()}


def write_json(value: Any, most: int) -> bytes:
    """Return canonical JSON of at most so many bytes: ASCII, sorted keys, no spaces.

    Beside JSON's own values it keeps bytes, Decimal, UUID, datetime, date and time, each as an
    object with one key: `{"$decimal":"12.50"}`.

    Raises:
        EncodeError: a value would not come back as it is. The message says where it is.
        LimitExceeded: it is too large.
    """
    with suppress(_Refusal):
        return _kept_json(value, most)
    raise _locate(value, EncodeError, lambda inner: _kept_json(inner, most), {})


def read_json(data: bytes, most: int) -> Any:
    """Return what `write_json` wrote.

    Raises:
        DecodeError: it is not JSON, or not the one way to write it.
        LimitExceeded: it is too large.
    """
    if len(data) > most:
        raise _too_long(most)
    with suppress(Exception):  # whatever a parser, or a type, says of it
        value = json.loads(data, object_hook=_from_json)
        again = _to_json(value).encode()
        if again == data and json.dumps(value, ensure_ascii=False, default=str).encode():
            return value
    raise DecodeError("This is not canonical JSON.", "Pass on what was written, unchanged.")


def _kept_json(value: Any, most: int) -> bytes:
    problem = _Refusal(*_HALF)
    try:
        # A value takes a byte or more.
        _Writer({}, Limits(items=most), proves=False).measure(value)
    except LimitExceeded:
        raise _too_long(most) from None
    if type(value) is float and not isfinite(value):
        problem = _Refusal("is a float that is not finite.", _NO_NUMBER)
    elif type(value) is not str:
        problem = _Refusal(
            f"is of the type {_type_name(type(value))}, or holds what JSON does not keep.",
            "Use text, numbers, Decimal, dates, lists, and dicts whose keys are text.",
        )
    data = b""
    with suppress(ValueError, TypeError, RecursionError):
        data = _to_json(value).encode()
    if len(data) > most:
        raise _too_long(most)
    with suppress(DecodeError):
        if read_json(data, most) == value:
            return data
    raise problem


def _spelled(value: Any) -> dict[str, str]:
    if type(value) not in _JSON:
        raise TypeError
    entry = _JSON[type(value)]
    return {f"${entry.tag}": entry.take(value)}


def _from_json(found: dict[str, Any]) -> Any:
    for tag in found if len(found) == 1 else ():
        if tag[:1] == "$":
            return _JSON_TAGS[tag](found[tag])
    return found


_to_json: Final = json.JSONEncoder(
    allow_nan=False, sort_keys=True, separators=(",", ":"), default=_spelled
).encode


def _too_long(most: int) -> LimitExceeded:
    return LimitExceeded(
        f"This takes more than {most} bytes as JSON.", "Keep what is large elsewhere, and name it."
    )
