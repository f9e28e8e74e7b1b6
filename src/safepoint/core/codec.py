"""State to bytes and back. The bytes never choose which code runs.

The bytes are MessagePack. None, bool, int, float, str, bytes, list, and dict with str keys use its
own types. Everything else is an extension type, whose code says what follows:

| code | type | what follows |
|---|---|---|
| 1, 2, 3 | int beyond 64 bits, Decimal, UUID | its text: `0x10000000000000000`, `12.50` |
| 4, 5, 6 | datetime, date, time | its text in ISO 8601 |
| 7, 8 | Path, timedelta | its text; days, seconds and microseconds: `1,3600,0` |
| 9, 10, 11 | tuple, set, frozenset | MessagePack: an array; for a set, sorted by its bytes |
| 12 | dict with other keys | MessagePack: an array of key, value, key, value … |
| 0 | a type that you registered | one byte that says how long its tag is, the tag, MessagePack |

A tag is looked up in the allowlist of types that the reader gave to its codec. It is never
imported, and an unknown tag is refused. Text that people read and sign is canonical JSON:
`write_json`, `read_json`.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from itertools import chain
from operator import attrgetter, is_
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import ormsgpack
from ormsgpack import Ext, packb, unpackb

from safepoint.core.errors import (
    ConfigurationError,
    DecodeError,
    EncodeError,
    LimitExceeded,
    quoted,
)
from safepoint.core.names import DEFAULT_LIMITS, Limits

# Whatever is not exactly a plain value is handed to us: the library has an option for each kind.
_EXACT: Final = sum(
    option for name, option in vars(ormsgpack).items() if name.startswith("OPT_PASSTHROUGH_")
)
_LONGEST_PATH: Final = 32_767  # on Windows; elsewhere it is less
# Values of a set that may share one hash: -1 and -2 do, and so do 64 tuples of six of them.
_ONE_HASH: Final = 64
_PROVED: Final = 50_000  # how many values a codec remembers as proven to restore
# The library may copy so many times the limit of a state, because it copies nested extension types.
_COPIES: Final = 16
_UNSEEN: Final = 8  # how deep extension types are read before the depth of the rest is checked
_WORD: Final = re.compile(r"[A-Za-z_]{1,24}\Z")
_TAG: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,254}\Z")
_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")  # or other bytes that look like it
# First bytes of values that take no memory of their own, and nearly all of a text.
_LIGHT: Final = bytes(each for each in range(256) if not 0x80 <= each < 0xFB)
_NO_STATE: Final = "The encoded state is not MessagePack, or a value is malformed."


# The library reports only that a callback failed, so our own errors are kept and raised again.
# Other exceptions of the caller's types are not, because they may carry values.
_STOPPED: Final = RecursionError, MemoryError, KeyboardInterrupt, SystemExit
_KEPT: Final = EncodeError, DecodeError, LimitExceeded, *_STOPPED


class _Entry(NamedTuple):
    """How one type is written and restored.

    Attributes:
        tag: its name.
        code: the code of its extension type.
        take: converts a value to what is written.
        revive: converts that back to the value.
        label: for the caller's classes, the length of the tag and the tag.
    """

    tag: str
    code: int
    take: Callable[[Any], Any]
    revive: Callable[[Any], Any]
    label: bytes = b""


_Table = dict[type, _Entry]


# --- plain types


def _spell_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise EncodeError("is a Decimal that is not finite.")
    return str(value).upper()  # a decimal context can ask for 1e+5


def _spell_moment(value: datetime | time) -> str:
    text = value.isoformat()
    if value.tzinfo is UTC and not value.fold:
        return text
    again = type(value).fromisoformat(text)
    if (again, again.tzinfo, again.fold) != (value, value.tzinfo, value.fold):
        raise EncodeError(
            "has fold=1, or a time zone that is more than an offset, which ISO 8601 cannot say.",
            "Save the moment: convert with .astimezone(timezone.utc).",
        )
    return text


def _spell_span(value: timedelta) -> str:
    return f"{value.days},{value.seconds},{value.microseconds}"


def _spell_path(path: Path | str) -> str:
    if len(text := str(path)) > _LONGEST_PATH:
        raise ValueError
    return text


class _Pairs(dict[Any, Any]):
    """A dict whose keys are not all str, on its way to an extension type."""


def _flatten(pairs: dict[Any, Any]) -> list[Any]:
    return [*chain.from_iterable(zip(_check_hashes(pairs), pairs.values(), strict=True))]


def _pair(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(_check_hashes(items[::2]), items[1::2], strict=True))


def _check_hashes(values: Collection[Any]) -> list[Any]:
    """Refuse keys chosen to share one hash, which make a set or dict take forever."""
    times = Counter(map(hash, values))
    if len(times) < len(values):
        shared = [value for value in values if times[hash(value)] > 1]
        if max(times.values()) > _ONE_HASH or any(map(_holds_decimal, shared)):
            raise LimitExceeded(
                "Too many items of one set or dict share a hash, or a Decimal shares one.",
                "Save a list instead.",
            )
    return [*values]


def _holds_decimal(value: Any) -> bool:
    """Tell whether it may hold a Decimal: to compare a long one with an int takes very long."""
    if type(value) in _FIXED or isinstance(value, Enum):
        return type(value) is Decimal
    if not isinstance(value, (tuple, frozenset)):  # or a class of the caller's, with its fields
        names = getattr(value, "__dataclass_fields__", getattr(type(value), "model_fields", None))
        value = [Decimal()] if names is None else [getattr(value, name, None) for name in names]
    return any(map(_holds_decimal, value))


_LAST_TEXT, _TUPLE, _SETS, _DICT = 8, 9, (10, 11), 12  # extension codes
_BUILT_IN: Final[_Table] = {
    int: _Entry("int", 1, hex, lambda text: int(text, 16)),
    Decimal: _Entry("decimal", 2, _spell_decimal, Decimal),
    UUID: _Entry("uuid", 3, str, UUID),
    datetime: _Entry("datetime", 4, _spell_moment, datetime.fromisoformat),
    date: _Entry("date", 5, date.isoformat, date.fromisoformat),
    time: _Entry("time", 6, _spell_moment, time.fromisoformat),
    type(Path()): _Entry("path", 7, _spell_path, lambda text: Path(_spell_path(text))),
    timedelta: _Entry("timedelta", 8, _spell_span, lambda t: timedelta(*map(int, t.split(",")))),
    tuple: _Entry("tuple", 9, list, tuple),
    set: _Entry("set", 10, _check_hashes, lambda items: set(_check_hashes(items))),
    frozenset: _Entry("frozenset", 11, _check_hashes, lambda of: frozenset(_check_hashes(of))),
    _Pairs: _Entry("dict", _DICT, _flatten, _pair),
}
_TREES: Final = {bytes([code]) for code in (0, *range(_LAST_TEXT + 1, _DICT + 1))}
_NESTED: Final = {list, dict}
_STR: Final = {str}
# Types that the library writes as another type without an error.
_UNSAID: Final = {Ext, ormsgpack.Fragment, memoryview, bytearray}
_NATIVE: Final = (type(None), bool, float, str, bytes, list, dict)
_FIXED: Final = {type(None), bool, float, str, bytes, *[*_BUILT_IN][:_LAST_TEXT]}


# --- your types


class Converter(NamedTuple):
    """Teaches a codec a type that you cannot register.

    The result of `to` is written in place of the value. On save it is proven that `from_` restores
    a value of this class from it, and that `to` gives the same result again.

    Attributes:
        tag: the tag of its bytes.
        cls: the class, without its subclasses.
        to: converts a value to types that the codec knows. If it raises EncodeError, the path to
            the value is put before its message.
        from_: converts that back to the value.
    """

    tag: str
    cls: type
    to: Callable[[Any], Any]
    from_: Callable[[Any], Any]


def _register(types: Iterable[type] | Mapping[str, type], foreign: Iterable[Converter]) -> _Table:
    """Return the entry of each type, including the built-in ones.

    Raises:
        ConfigurationError: a class could not be restored faithfully, or a tag is not free.
    """
    named = types.items() if isinstance(types, Mapping) else [(cls.__name__, cls) for cls in types]
    table, taken = dict(_BUILT_IN), {entry.tag for entry in _BUILT_IN.values()}
    for tag, cls, to, from_ in [*(_describe(tag, cls) for tag, cls in named), *foreign]:
        if not _TAG.match(tag) or tag in taken or cls in table or cls in _NATIVE:
            raise ConfigurationError(
                f"{_type_name(cls)} cannot have the tag {quoted(tag)}, or is known already.",
                "Give each class one tag of its own: Codec({'billing.Invoice': Invoice}).",
            )
        taken.add(tag)
        table[cls] = _Entry(tag, 0, to, from_, b"%c%b" % (len(tag), tag.encode()))
    return table


def _describe(tag: str, cls: Any) -> Converter:
    """Return how a class of the caller's is written and restored."""
    if isinstance(cls, type) and issubclass(cls, Enum):
        return Converter(tag, cls, attrgetter("_name_"), cls.__members__.__getitem__)
    built_in = *_NATIVE, *_BUILT_IN, BaseException
    has_fields = isinstance(cls, type) and not issubclass(cls, built_in)
    if has_fields and hasattr(cls, "model_fields") and hasattr(cls, "model_validate"):  # pydantic
        # By name alone: an alias may be the name of another field.
        validate = partial(cls.model_validate, strict=True, by_name=True, by_alias=False)
        return _by_fields(tag, cls, cls.model_fields, lambda **saved: validate(saved))
    if has_fields and hasattr(cls, "__dataclass_fields__"):
        return _by_fields(tag, cls, [field.name for field in fields(cls)], cls)
    raise ConfigurationError(
        f"{quoted(tag)} is not a dataclass, Enum or pydantic model, or extends a built-in type.",
        "Make it a dataclass without such a base, or convert it to one before you save.",
    )


def _by_fields(tag: str, cls: type, names: Iterable[str], build: Callable[..., Any]) -> Converter:
    """Return the converter of a class with named fields, which its own constructor restores."""
    names, known, is_model = sorted(names), {*names}, hasattr(cls, "model_extra")

    def take(value: Any) -> dict[str, Any]:
        taken = {name: getattr(value, name) for name in names}
        extra = is_model and value.model_extra
        if extra and not known.isdisjoint(extra):
            raise EncodeError("has an extra value with the name of a field.", "Rename one of them.")
        return taken | extra if extra else taken

    def revive(saved: dict[str, Any]) -> object:
        with suppress(Exception):  # whatever the caller's class raises: it would carry the values
            if saved.keys() >= known:
                return build(**saved)
        raise DecodeError(
            f"{tag} refuses its saved fields, or has others now.",
            "Restore with the version of the class that wrote it, or make it accept this value.",
        )

    return Converter(tag, cls, take, revive)


def _reject(cls: type) -> EncodeError:
    """Return the error for a value of an unknown type."""
    can = any(hasattr(cls, n) for n in ("__dataclass_fields__", "__members__", "model_validate"))
    do = f"Register it: types=[{ascii(cls.__name__)[1:-1]}]." if can else None
    return EncodeError(f"is of the type {_type_name(cls)}, which this codec does not know.", do)


def _type_name(cls: type) -> str:
    return ascii(f"{cls.__module__}.{cls.__qualname__}")[1:-1]


# --- limits


_TOO_MUCH: Final = {
    "state_bytes": "The encoded state has {} bytes, and the limit is {}.",
    "depth": "The state is nested deeper than {1} levels, or contains itself.",
    "items": "The state holds more than {1} values.",
}


def _check_limits(limits: Limits, **numbers: int) -> None:
    for name, number in numbers.items():
        if number > (most := getattr(limits, name)):
            raise LimitExceeded(
                _TOO_MUCH[name].format(number, most),
                f"Save ids in place of what is large or nested, or raise Limits.{name}.",
            )


def _check_copies(size: int, limits: Limits) -> None:
    if size > _COPIES * (limits.state_bytes + 65_536):
        raise LimitExceeded("Too much of the state is nested deep.", "Save ids in its place.")


def _set_pairs_apart(value: Any) -> Any:
    """Return a value whose dicts with other keys than str are `_Pairs`."""
    if type(value) is list:
        return [*map(_set_pairs_apart, value)]
    if type(value) is dict and _STR.issuperset(map(type, value)):
        return {key: _set_pairs_apart(inner) for key, inner in value.items()}
    return _Pairs(value) if type(value) is dict else value


def _measure(value: Any, limits: Limits, items: int) -> tuple[int, int]:
    """Return how deep lists and dicts are nested in a value, and `items` plus their items.

    It works level by level, in C where possible, before anything is written: a value that occurs
    often counts as often, and its bytes could not be counted in time.
    """
    levels = 0
    found: list[Collection[Any]] = [[value]]
    while True:
        kinds = {*map(type, chain.from_iterable(found))}
        if not kinds.isdisjoint(_UNSAID):
            raise _reject((kinds & _UNSAID).pop())
        if kinds.isdisjoint(_NESTED):
            return levels, items
        nested = [each for each in chain.from_iterable(found) if type(each) in _NESTED]
        found = [each.values() if type(each) is dict else each for each in nested]
        levels, items = levels + 1, items + sum(map(len, found))
        if levels > limits.depth or items > limits.items:
            _check_limits(limits, depth=levels, items=items)


# What a first byte begins, and how many bytes or values follow, or minus the length of that number.
_HEADS: Final = {
    **{0x80 + n: ("map", n) for n in range(16)},
    **{0x90 + n: ("array", n) for n in range(16)},
    **{0xA0 + n: ("", n) for n in range(32)},  # str
    **{first + n: ("", -(1 << n)) for first in (0xC4, 0xD9) for n in range(3)},  # bytes, str
    **{0xC7 + n: ("ext", -(1 << n)) for n in range(3)},
    0xCA: ("", 4),
    0xCB: ("float", 8),
    **{first + n: ("", 1 << n) for first in (0xCC, 0xD0) for n in range(4)},  # int
    **{0xD4 + n: ("ext", 1 << n) for n in range(5)},
    **{0xDC + n: ("array", -(2 << n)) for n in range(2)},
    **{0xDE + n: ("map", -(2 << n)) for n in range(2)},
}


def check_shape(data: bytes, limits: Limits) -> bool:
    """Check the structure of MessagePack, header by header, without building anything.

    Returns:
        Whether every float is finite.

    Raises:
        LimitExceeded: it is too large, nested too deep, or holds too many values.
        DecodeError: it is cut short.
    """
    _check_limits(limits, state_bytes=len(data))
    items, is_finite = 0, True

    def skip(at: int, levels: int, inside: int) -> int:
        """Return the end of the value that begins here."""
        nonlocal items, is_finite
        kind, size = _HEADS.get(data[at], ("", 0)) if at < len(data) else ("", len(data))
        at += 1
        if size < 0:
            at, size = at - size, int.from_bytes(data[at : at - size])
        if kind == "array" or kind == "map":
            items += size
            _check_limits(limits, depth=levels + 1, items=items)
            for _ in range(size if kind == "array" else 2 * size):
                at = skip(at, levels + 1, inside)
            return at
        end = inner = at + size + (kind == "ext")  # a code is not counted
        if kind == "ext" and data[at : at + 1] in _TREES:
            _check_limits(limits, depth=inside)
            tag = data[at + 1 : at + 2] if data[at] == 0 else b""  # how long it is
            inner = skip(at + 1 + len(tag) + int.from_bytes(tag), levels, inside + 1)
        if inner != end or end > len(data):
            raise DecodeError(_NO_STATE)
        if kind == "float" and _NOT_FINITE.match(data, end - 9):
            is_finite = False
        return end

    skip(0, 0, 0)
    return is_finite


# --- writing


class _Writer:
    """Writes one state.

    Args:
        table: the known types.
        limits: how large, deep and long it may be.
        proof: restores the caller's classes as a proof, and the hashes of what it restored before;
            None for no proof.
        has_pairs: look for dicts with other keys than str, which are refused without that.
    """

    def __init__(
        self,
        table: _Table,
        limits: Limits,
        proof: _Proof | None = None,
        *,
        has_pairs: bool = False,
    ) -> None:
        self._table, self._limits, self._proof = table, limits, proof
        self._has_pairs = has_pairs
        self._items = self._inside = self._classes = self._copied = 0
        self._levels: dict[int, int] = defaultdict(int)  # by how many extension types are around
        self.problem: BaseException | None = None

    def write(self, value: Any) -> bytes:
        """Return the bytes of a state.

        Raises:
            LimitExceeded: it is too large, nested too deep, or holds too many values.
            EncodeError: a value could not be restored faithfully; it does not say where that is.
        """
        data = self._pack(value)
        _check_limits(self._limits, items=self._items, state_bytes=len(data))
        _check_copies(self._copied + len(data), self._limits)
        is_odd = sum(self._levels.values()) > self._limits.depth or _NOT_FINITE.search(data)
        if is_odd and not check_shape(data, self._limits):
            raise EncodeError("is a float that is not finite.")
        return data

    def _pack(self, value: Any, *, is_set: bool = False) -> bytes:
        if self._has_pairs:
            _measure(value, self._limits, 0)  # or copying it might never end
            value = _set_pairs_apart(value)
        levels, self._items = _measure(value, self._limits, self._items)
        if levels > self._levels[self._inside]:
            self._levels[self._inside] = levels
        if is_set:
            pieces = sorted(map(self._pack, value))
            return packb([None] * len(pieces))[: -len(pieces) or None] + b"".join(pieces)
        try:
            return packb(value, self._extend, _EXACT)
        except TypeError:
            pass  # and outside of it, so that nothing hangs on to values
        raise self.problem or EncodeError(
            "cannot be written: it holds half a character, or reading it raised an error.",
            "Set each field, and replace a lone surrogate: text.encode(errors='replace').decode().",
        )

    def _extend(self, value: Any) -> Ext:
        try:
            entry = self._table.get(type(value))
            if entry is None:
                raise _reject(type(value))
            code, content = entry.code, entry.take(value)
            if 0 < code <= _LAST_TEXT:
                return Ext(code, content.encode())
            if self._inside > self._limits.depth:
                _check_limits(self._limits, depth=self._inside)
            self._inside, self._classes = self._inside + 1, self._classes + (not code)
            others, self._copied = self._copied, 0
            data = self._pack(content, is_set=code in _SETS)
            self._copied = max(others, self._copied + len(data))
            self._inside, self._classes = self._inside - 1, self._classes - (not code)
            is_tried = not self._classes and code != _TUPLE
            if is_tried and not self._gives_back(value, content, data):
                raise EncodeError(
                    "is refused or changed when it is rebuilt.",
                    "Its class, or its converter, has to return unchanged what it gave.",
                )
        except _KEPT as problem:
            self.problem = self.problem or problem
            raise
        return Ext(code, entry.label + data)

    def _gives_back(self, value: Any, content: Any, data: bytes) -> bool:
        """Prove that a value of the caller's class, or a set or dict, can be restored."""
        entry = self._table[type(value)]
        if self._proof is None or (known := hash((entry.tag, data))) in self._proof[1]:
            return True
        reader, proved = self._proof
        try:
            is_flat = type(content) is dict and _FIXED.issuperset(map(type, content.values()))
            again = entry.revive({**content} if is_flat else reader.read(data))
            if type(again) is not (dict if entry.code == _DICT else type(value)):
                return False
            taken = entry.take(again)
            is_same = is_flat and [*taken] == [*content]
            if not (is_same and all(map(is_, taken.values(), content.values()))):
                anew = _Writer(self._table, self._limits, has_pairs=self._has_pairs)
                is_same = anew._pack(taken, is_set=entry.code in _SETS) == data
        except (LimitExceeded, RecursionError, MemoryError):
            raise
        except Exception:  # noqa: BLE001  whatever the caller's class raises
            return False
        if is_same:
            proved.add(known)
        return is_same


def _keep(value: Any, write: Callable[[Any], bytes], table: _Table, where: str = "state") -> bytes:
    """Return the bytes of a value, or raise an EncodeError that names the refused part."""
    try:
        return write(value)
    except EncodeError as problem:
        what, do = problem.what, problem.do
    # After the handler, so that no other exception hangs on to it with its values.
    for step, inner in _open(value, table):
        with suppress(LimitExceeded):
            _keep(inner, write, table, where + step)
    raise EncodeError(f"{where} {what}", do)


def _open(value: Any, table: _Table) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value, each with the step to it."""
    cls, entry = type(value), table.get(type(value))
    if cls is dict:
        yield from ((".keys()[…]", key) for key in value)
        for key, inner in value.items():  # a longer one, or one with digits, may be a secret
            yield (f"['{key}']" if type(key) is str and _WORD.match(key) else "[…]"), inner
    elif cls in (list, tuple, set, frozenset):
        yield from ((f"[{number}]", inner) for number, inner in enumerate(value))
    elif entry and not entry.code:
        with suppress(Exception):  # then it is refused itself
            yield "", entry.take(value)


# --- reading


class Tagged(NamedTuple):
    """A value of an unknown type: its tag and its content."""

    tag: str
    content: Any


_Proof = tuple["_Reader", set[int]]


class _Reader:
    """Builds one state from bytes.

    Args:
        entries: the known types, by tag or by code.
        limits: how deep it may be.
        shows: return a `Tagged` for an unknown type.
    """

    def __init__(self, entries: dict[Any, _Entry], limits: Limits, *, shows: bool = False) -> None:
        self._entries, self._limits, self._shows = entries, limits, shows
        self._inside = self._copied = 0
        self.problem: BaseException | None = None

    def read(self, data: bytes) -> Any:
        """Return the value of bytes that may not be canonical.

        Raises:
            DecodeError: they are not MessagePack, or a tag is unknown, or a type refuses what is
                tagged.
            LimitExceeded: they are nested too deep.
        """
        self._inside, self._copied = self._inside + 1, self._copied + len(data)
        if self._inside == _UNSEEN:
            check_shape(data, self._limits)
        _check_copies(self._copied, self._limits)
        with suppress(ValueError):
            value = unpackb(data, ext_hook=self._revive)
            self._inside, self._copied = self._inside - 1, self._copied - len(data)
            return value
        if self.problem is not None:  # the library loses it
            raise self.problem
        check_shape(data, self._limits)  # which says it, if it is too deep
        raise DecodeError(_NO_STATE)

    def _revive(self, code: int, data: bytes) -> Any:
        try:
            tag, body = "", data
            if code == 0 and data:
                tag, body = data[1 : data[0] + 1].decode("ascii", "replace"), data[data[0] + 1 :]
            entry = self._entries.get(code or tag)
            if entry is None and self._shows and code == 0:
                entry = _Entry(tag, 0, list, partial(Tagged, tag))
            if entry is None:
                raise DecodeError(
                    f"The encoded state holds the tag {quoted(code or tag)}, which is not"
                    " registered.",
                    "Register the type that is stored under that name, as in types=[Invoice].",
                )
            return entry.revive(body.decode() if 0 < code <= _LAST_TEXT else self.read(body))
        except _KEPT as problem:
            self.problem = self.problem or problem
            raise


_SHOWN: Final = {entry.code: entry for entry in _BUILT_IN.values()} | {
    code: _Entry(tag, code, list, partial(Tagged, tag))  # what they hold may have no hash
    for code, tag in ((10, "set"), (11, "frozenset"), (12, "dict"))
}


def inspect_state(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Return the contents of bytes, for people and programs that do not know all the types.

    Only plain types are built; everything else is a `Tagged`.

    Raises:
        DecodeError: they are not MessagePack.
        LimitExceeded: they are too large, too deep or have too many values.
    """
    check_shape(data, limits)
    return _Reader(_SHOWN, limits, shows=True).read(data)


class Codec:
    r"""Turns state into MessagePack, and back into equal values of the same types.

    It can restore what it saves: each value comes back equal and with the same type, at every
    level, and a dict in its order. A value that could not be restored is refused when you save it,
    not when you need it. Only the fields of a dataclass or a pydantic model are saved: not private
    attributes, not which fields of a model were set explicitly.

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

    Types are exact. A subclass that you did not register is refused on save and on load:

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
        #> Save plain values in its place: text, finite numbers, dates, lists and dicts.

    try:
        Codec().decode(b"\xc7\x0b\x00\x09os.system\xc0")
    except DecodeError as error:
        print(error.what)
        #> The encoded state holds the tag 'os.system', which is not registered.
    ```

    Dataclasses and pydantic models are rebuilt through their own constructor, so their validation
    runs on the stored values. It also runs on save, once for the same values, as proof that it
    accepts them.

    Threads may share a codec.

    Args:
        types: the allowlist: dataclasses, Enums and pydantic models that may occur in a state. Each
            is stored under its name; pass a mapping to choose the names, for example when you
            rename a class: `Codec({"Invoice": BillingInvoice})`.
        converters: for types that you cannot register.
        limits: how large, deep and long a state may be, on save and on load.

    Attributes:
        types: all types that it accepts, built in and yours.
        limits: as passed.

    Raises:
        ConfigurationError: a type could not be restored faithfully, or two have one name.
    """

    def __init__(
        self,
        types: Iterable[type] | Mapping[str, type] = (),
        *,
        converters: Iterable[Converter] = (),
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._table = _register(types, converters)
        self._entries = {entry.code or entry.tag: entry for entry in self._table.values()}
        self._proved: Final = set[int]()
        self.types: Final = frozenset([*_NATIVE, *self._table]) - {_Pairs}
        self.limits: Final = limits

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a state.

        Raises:
            EncodeError: a value in it could not be restored faithfully. The message says where it
                is and of which type, not what it is. A key on the way to it is shown if it is
                a short word of only letters: another may be a token or an address.
            LimitExceeded: it is too large, too deep or has too many values.
        """
        return _keep(value, partial(self._write, proves=True), self._table)

    def decode(self, data: bytes) -> Any:
        """Return the state that was encoded.

        Size and count are checked before anything is parsed. The decoded state is encoded again and
        refused unless that gives the same bytes.

        Raises:
            DecodeError: the bytes are not what `encode` writes, or hold a type that is not
                registered, or a registered type refuses them.
            LimitExceeded: they are too large, too deep or have too many values.
        """
        _check_limits(self.limits, state_bytes=len(data))
        # A value that takes memory has a first byte of its own. Others may look like one.
        if len(data) > self.limits.items < len(data.translate(None, _LIGHT)):
            check_shape(data, self.limits)
        value = _Reader(self._entries, self.limits).read(data)
        with suppress(EncodeError):
            if self._write(value) == data:
                return value
        raise DecodeError("The encoded state is not in canonical form.")

    def _write(self, value: Any, *, proves: bool = False) -> bytes:
        if len(self._proved) > _PROVED:
            self._proved.clear()
        proof = (_Reader(self._entries, self.limits), self._proved) if proves else None
        with suppress(EncodeError):
            return _Writer(self._table, self.limits, proof).write(value)
        return _Writer(self._table, self.limits, proof, has_pairs=True).write(value)


# --- text that people read and sign

_JSON: Final[_Table] = {
    **{cls: _BUILT_IN[cls] for cls in (Decimal, UUID, datetime, date, time)},
    bytes: _Entry("bytes", 0, lambda value: b64encode(value).decode(), b64decode),
}
_JSON_TAGS: Final = {f"${entry.tag}": entry.revive for entry in _JSON.values()}


def write_json(value: Any, most: int) -> bytes:
    """Return canonical JSON of at most so many bytes: ASCII, sorted keys, no spaces.

    In addition to JSON's own values it accepts bytes, Decimal, UUID, datetime, date and time, each
    as an object with one key: `{"$decimal":"12.50"}`.

    Raises:
        EncodeError: a value would not come back as it is. The message says where it is.
        LimitExceeded: it is too large.
    """
    return _keep(value, partial(_keep_json, most=most), {})


def read_json(data: bytes, most: int) -> Any:
    """Return what `write_json` wrote.

    Raises:
        DecodeError: it is not JSON, or not the one way to write it.
        LimitExceeded: it is too large.
    """
    _check_limits(Limits(state_bytes=most), state_bytes=len(data))
    with suppress(Exception):  # whatever a parser, or a type, says of it
        value = json.loads(data, object_hook=_from_json)
        json.dumps(value, ensure_ascii=False, default=str).encode()  # not half a character
        if _to_json(value).encode() == data:
            return value
    raise DecodeError("This is not canonical JSON.")


def _keep_json(value: Any, most: int) -> bytes:
    data = b""
    with suppress(EncodeError, TypeError, KeyError, ValueError):
        _Writer(_BUILT_IN, Limits(items=most)).write(value)  # which takes exact types alone
        data = _to_json(value).encode()
    with suppress(DecodeError):
        if read_json(data, most) == value:
            return data
    raise EncodeError(
        f"is of the type {_type_name(type(value))}, or holds what JSON does not keep."
    )


def _spell_json(value: Any) -> dict[str, str]:
    entry = _JSON[type(value)]
    return {f"${entry.tag}": entry.take(value)}


def _from_json(found: dict[str, Any]) -> Any:
    tag = next(iter(found), "")
    return _JSON_TAGS[tag](found[tag]) if len(found) == 1 and tag[:1] == "$" else found


_to_json: Final = json.JSONEncoder(
    allow_nan=False, sort_keys=True, separators=(",", ":"), default=_spell_json
).encode
