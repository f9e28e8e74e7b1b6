"""State to bytes and back, without a way for the bytes to choose what happens.

The bytes are canonical JSON: ASCII, sorted keys, no spaces. None, bool, int, float, str, list and
dict are what they are in JSON. Everything else is an object with one key that begins with `$`:

| type | example |
|---|---|
| datetime, date, time | `{"$datetime":"2026-01-31T09:30:00+00:00"}` |
| timedelta | `{"$timedelta":[1,3600,0]}`: days, seconds, microseconds |
| Decimal, UUID, bytes | `{"$decimal":"12.50"}`, `{"$uuid":"…"}`, `{"$bytes":"aGk="}` |
| tuple, set, frozenset | `{"$tuple":[1,2]}` |
| Path | `{"$path":"a/b"}`; PurePosixPath and PureWindowsPath are `$posixpath`, `$windowspath` |
| int beyond 64 bits | `{"$int":"0x10000000000000000"}` |
| dict with other keys | `{"$dict":[[1,"one"]]}`: keys that are not str, or that begin with `$` |
| OrderedDict | `{"$odict":[["b",1],["a",2]]}`: in its order |
| a type that you registered | `{"$Invoice":{"number":7}}`, `{"$Colour":"RED"}`, `{"$Rights":3}` |
| a type with a converter | `{"$deque":[1,2]}`: what the converter makes of it |

A tag is a key into the list of types that the reader gave to its codec. It is never imported, and
an unknown one is refused.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from base64 import b64decode, b64encode
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from functools import cached_property, lru_cache, partial
from itertools import accumulate, chain, repeat, starmap
from json.encoder import encode_basestring_ascii as escape
from math import isfinite
from operator import attrgetter, eq, getitem, is_, itemgetter
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import FunctionType
from typing import Any, Final, NamedTuple, NoReturn
from uuid import UUID

from safepoint.core.errors import (
    CheckpointError,
    CodecError,
    DecodeError,
    EncodeError,
    LimitExceeded,
    quoted,
)
from safepoint.core.names import DEFAULT_LIMITS, Limits

_INT64: Final = 2**63
_LONGEST_PATH: Final = 32_767  # on Windows; elsewhere it is less
_SHARED_HASHES: Final = 1000
_ONE_HASH: Final = 64  # as -1 and -2 share theirs, so do the corners of a cube of six dimensions
_FEW: Final = 8  # values that are not worth a column
_PLAIN: Final = (dict, list, tuple, set, frozenset, bytes, str, int, float)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]{1,24}\Z")
_TAG: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, not in C
_FROM_HERE: Final = "Restore a checkpoint that this codec wrote."
_NO_NUMBER: Final = "Save None, or a word of your own, in place of NaN and infinity."


_write_json: Final = json.JSONEncoder(
    check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


class _Refusal(Exception):
    """Why a value is not written. The way to it is collected while the exception unwinds."""

    def __init__(self, what: str, do: str, *steps: str) -> None:
        self.what, self.do, self.steps = what, do, list(steps)


class _Writer:
    """The walk over a state that writes it, and what is left of each limit.

    Attributes:
        find: `get` of the table from type to the function that writes values of it.
        many: values of one type are written together, where most loops can run in C: the records
            of a list are written field by field. A refusal there does not say which value it is
            of, so the walk is tried once more without.
        depth: levels of containers that are left.
        items: values of the text that are left, counted as `check_shape` counts them. Scalars
            take theirs off unchecked; the next container, or the end, notices.
        room: characters that are left for strings.
        fixed: types of values that a class of the caller may be given as they are, since it
            cannot change them.
        records: the fields of each value of a class of the caller, if all are fixed, by the
            function that tells whether the class gives them back.
        unproven: there is a value of a class of the caller that is not among those.
        converted: the text of what a converter gave, with what it was given, and the function that
            compares that with what is restored, if the text is not enough.
    """

    def __init__(
        self, table: dict[type, _Write], limits: Limits, fixed: set[type], *, many: bool
    ) -> None:
        self.find, self.fixed, self.many = table.get, fixed, many
        self.depth, self.items, self.room = limits.depth, limits.items, limits.state_bytes
        self.records: dict[_GivesBack, list[tuple[Any, ...]]] = defaultdict(list)
        self.converted: list[_Part] = []
        self.unproven = False
        self._limits = limits

    def write(self, value: object) -> str:
        """Return the text of one value.

        Raises:
            LimitExceeded: it is too deep, too large or has too many values.
            _Refusal: it holds a value that could not be restored faithfully.
        """
        return self.find(type(value), _refuse)(self, (value,))[0]

    def enter(self, items: int) -> None:
        """Go into a container whose text holds `items` values more. Leave by `depth += 1`."""
        self.depth -= 1
        if self.depth < 0:
            raise LimitExceeded(
                f"The state is nested deeper than {self._limits.depth} levels, or contains itself.",
                "Save a flatter state, with ids in place of objects inside objects.",
            )
        self.take(0, items)

    def each(self, values: Sequence[Any], items: int, step: Callable[[int], str]) -> list[str]:
        """Return the texts of what a container holds.

        Args:
            values: what it holds.
            items: how many values that adds to the text.
            step: how the way to the value of that number is shown.
        """
        self.enter(items)
        texts: list[str] = []
        find, size = self.find, 0
        try:
            if self.many and len(values) > _FEW and len(set(map(type, values))) == 1:
                texts, values = find(type(values[0]), _refuse)(self, values), ()
            for value in values:
                cls = type(value)
                if cls is str and value.isascii():
                    text = escape(value)
                    size += len(text)
                    if size > self.room:
                        self.take(size)
                elif cls is int and -_INT64 <= value < _INT64:
                    text = repr(value)
                else:
                    (text,) = find(cls, _refuse)(self, (value,))
                texts.append(text)
        except _Refusal as refusal:
            refusal.steps.append(step(len(texts)))
            raise
        self.depth += 1
        self.room -= size
        return texts

    def container(self, value: Any, walk: _Walk) -> str:
        """Return the text of a list or dict, as a whole if that can be.

        That is tried at the upper levels alone, so that nothing is looked at many times, and not
        for a few scalars.
        """
        upper = self.depth >= self._limits.depth - 2
        inner = value.values() if type(value) is dict else value
        few = len(value) <= _FEW and {list, dict}.isdisjoint(map(type, inner))
        text = self.whole(value) if upper and not few else None
        if text is None:
            room = self.room
            text = walk(self, value)
            if upper and '{"$' not in text:  # then all of it counts, as it does for a whole
                self.take(len(text) + self.room - room)
        return text

    def whole(self, value: object) -> str | None:
        """Return the text of a list or dict that is JSON at every level, or None.

        It is looked at level by level, and the text is made by a function that is written in C.
        None is for whatever else: the walk finds out what it is, and where.
        """
        level: list[Any] = [value]
        texts: list[str] = []
        items = 0
        for left in range(self.depth, -1, -1):
            dicts: list[dict[str, Any]] = []
            lists: list[list[Any]] = []
            for one in level:
                cls = type(one)
                if cls is str:
                    texts.append(one)
                elif cls is dict:
                    dicts.append(one)
                elif cls is list:
                    lists.append(one)
                elif cls is int:
                    if not -_INT64 <= one < _INT64:
                        return None
                elif cls is float:
                    if not isfinite(one):
                        return None
                elif cls is not bool and one is not None:
                    return None
            if not (dicts or lists):
                break
            items += sum(map(len, dicts)) + sum(map(len, lists))
            if not left or items > self.items:
                return None
            texts += chain.from_iterable(dicts)
            level = [*chain.from_iterable(map(dict.values, dicts)), *chain.from_iterable(lists)]
        if not {str}.issuperset(map(type, texts)) or sum(map(len, texts)) > self.room:
            return None
        text = _write_json(value)
        # A key that begins with $, or perhaps a string; and perhaps half a character.
        if '{"$' in text or ',"$' in text or ("\\ud" in text and not _is_text("".join(texts))):
            return None
        self.take(len(text), items)
        return text

    def take(self, size: int, items: int = 0) -> None:
        """Take so many characters and values off what is left."""
        self.room -= size
        self.items -= items
        if min(self.room, self.items) >= 0:
            return
        limits = self._limits
        raise LimitExceeded(
            f"The state takes more than {limits.state_bytes} bytes when encoded."
            if self.room < 0
            else f"The state holds more than {limits.items} values.",
            "Keep large data elsewhere and save a reference to it, or raise"
            f" Limits.{'state_bytes' if self.room < 0 else 'items'}.",
        )


_Part = tuple[Callable[[Any, Any], None] | None, Any, str]
_Walk = Callable[[_Writer, Any], str]
_Write = Callable[[_Writer, Sequence[Any]], list[str]]
_Revive = Callable[[Any], Any]
_GivesBack = Callable[[list[tuple[Any, ...]]], bool]


class _Entry(NamedTuple):
    """How one type is written and brought back.

    Attributes:
        tag: what its text is tagged with, or "" if it is what it is in JSON.
        write: makes the texts of values.
        revive: makes the value out of what is tagged.
    """

    tag: str
    write: _Write
    revive: _Revive = str


def _one_by_one(write: _Walk) -> _Write:
    return lambda writer, values: [write(writer, value) for value in values]


def _is_text(value: str) -> bool:
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def _refuse(_: _Writer, values: Sequence[object]) -> NoReturn:
    """Refuse values whose exact type is not in the table."""
    cls = type(values[0])
    plain = next((base.__name__ for base in _PLAIN if issubclass(cls, base)), None)
    if any(
        hasattr(cls, name) for name in ("__dataclass_fields__", "__members__", "model_validate")
    ):
        do = f"Register it: Codec([{ascii(cls.__name__)[1:-1]}])."
    elif plain:
        do = f"Convert it first: {plain}(value) is kept, a subclass of {plain} is not."
    else:
        do = "Convert it first to a type that the codec knows, such as dict, list, str or bytes."
    raise _Refusal(f"is of the type {_type_name(cls)}, which this codec does not know.", do)


def _type_name(cls: type) -> str:
    return ascii(f"{cls.__module__}.{cls.__qualname__}")[1:-1]


# --- scalars


def _strings(writer: _Writer, values: Sequence[str]) -> list[str]:
    """Return strings in quotes.

    Raises:
        _Refusal: one holds half a character, which no UTF-8 file or database could keep.
        LimitExceeded: there is no room left.
    """
    if not all(map(str.isascii, values)) and not all(map(_is_text, values)):
        raise _Refusal(
            "holds a lone surrogate, which is half a character.",
            "Replace it before you save, for example with text.encode(errors='replace').decode().",
        )
    size = sum(map(len, values))
    writer.take(size)  # before they are copied
    texts = [*map(escape, values)]
    writer.take(sum(map(len, texts)) - size)
    return texts


def _ints(writer: _Writer, values: Sequence[int]) -> list[str]:
    return [
        repr(value) if -_INT64 <= value < _INT64 else _LONG.write(writer, (value,))[0]
        for value in values
    ]


def _floats(_: _Writer, values: Sequence[float]) -> list[str]:
    if not all(map(isfinite, values)):
        raise _Refusal("is a float that is not finite.", _NO_NUMBER)
    return [*map(repr, values)]


def _timedeltas(writer: _Writer, values: Sequence[timedelta]) -> list[str]:
    writer.items -= 4 * len(values)
    return [f'{{"$timedelta":[{v.days},{v.seconds},{v.microseconds}]}}' for v in values]


def _spelled(tag: str, spell: Callable[[Any], str], revive: _Revive) -> _Entry:
    """Return the entry of a type whose values have a spelling."""
    label = f'{{"${tag}":'

    def write(writer: _Writer, value: object) -> str:
        writer.items -= 1
        return f"{label}{_strings(writer, (spell(value),))[0]}}}"

    return _Entry(tag, _one_by_one(write), revive)


_LONG: Final = _spelled("int", "{:#x}".format, lambda text: int(text, 16))


def _timed(tag: str, revive: _Revive) -> _Entry:
    """Return the entry of times. One that occurs many times is spelled once."""

    def write(writer: _Writer, values: Sequence[datetime | time]) -> list[str]:
        writer.items -= len(values)
        texts = {}
        for key, value in dict(zip(map(id, values), values, strict=True)).items():
            texts[key] = f'{{"${tag}":"{_moment(value)}"}}'
            if value.tzinfo is not None and type(value.tzinfo) is not timezone:
                writer.unproven = True  # it will have a zone of another class
        return [*map(texts.__getitem__, map(id, values))]

    return _Entry(tag, write, revive)


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


def _path(tag: str, cls: type[PurePath]) -> _Entry:
    def spell(value: PurePath) -> str:
        text = str(value)
        # A Windows path of one file called "c:x" reads back as x on drive c.
        if len(text) > _LONGEST_PATH or cls(text) != value:
            raise _Refusal("is a path that its own text does not give back.", "Save it as a str.")
        return text

    def revive(text: str) -> PurePath:
        if len(text) > _LONGEST_PATH:
            raise ValueError
        return cls(text)

    return _spelled(tag, spell, revive)


# --- containers


def _contained(walk: _Walk) -> _Write:
    return lambda writer, values: [writer.container(value, walk) for value in values]


def _list(writer: _Writer, value: list[Any]) -> str:
    return f"[{','.join(writer.each(value, len(value), '[{}]'.format))}]"


def _tuple(writer: _Writer, value: tuple[Any, ...]) -> str:
    return f'{{"$tuple":[{",".join(writer.each(value, len(value) + 1, "[{}]".format))}]}}'


def _any_order(tag: str, make: Callable[[list[Any]], Any]) -> _Entry:
    def write(writer: _Writer, value: Collection[Any]) -> str:
        _check_hashes(value)
        texts = writer.each([*value], len(value) + 1, lambda _: "[…]")
        return f'{{"${tag}":[{",".join(sorted(texts))}]}}'

    def revive(items: list[Any]) -> Any:
        _check_hashes(items)
        return make(items)

    return _Entry(tag, _one_by_one(write), revive)


def _dict(writer: _Writer, value: dict[Any, Any]) -> str:
    if any(type(key) is not str or key[:1] == "$" for key in value):
        return f'{{"$dict":[{",".join(sorted(_pairs(writer, value)))}]}}'
    keys = sorted(value)
    if all(map(str.isascii, keys)):
        names = [*map(escape, keys)]
        writer.take(sum(map(len, names)), len(keys))
    else:
        names = writer.each(keys, len(keys), lambda n: _step(keys[n]))
    texts = writer.each([value[key] for key in keys], 0, lambda n: _step(keys[n]))
    return f"{{{','.join([f'{name}:{text}' for name, text in zip(names, texts, strict=True)])}}}"


def _odict(writer: _Writer, value: OrderedDict[Any, Any]) -> str:
    return f'{{"$odict":[{",".join(_pairs(writer, value))}]}}'


def _pairs(writer: _Writer, value: dict[Any, Any]) -> list[str]:
    _check_hashes(value)
    keys = list(value)
    names = writer.each(keys, 3 * len(keys) + 1, lambda _: ".keys()[…]")
    texts = writer.each([*value.values()], 0, lambda n: _step(keys[n]))
    return [f"[{name},{text}]" for name, text in zip(names, texts, strict=True)]


def _to_dict(make: Callable[..., Any], pairs: list[list[Any]]) -> Any:
    _check_hashes([key for key, _ in pairs])
    return make(pairs)


def _step(key: object) -> str:
    """Show a key if it is a short word; a longer one, or one with digits, may be a secret."""
    return f"['{key}']" if type(key) is str and _PLAIN_NAME.match(key) else "[…]"


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
        return type(value) is Decimal or not -_INT64 <= value < _INT64
    if isinstance(value, (tuple, frozenset)):
        inner: Iterable[Any] = value
    elif is_dataclass(value):  # it may keep its fields in slots
        inner = [getattr(value, field.name) for field in fields(value)]
    else:
        inner = getattr(value, "__dict__", {}).values()
    return any(map(_is_long, inner))


_BUILT_IN: Final[dict[type, _Entry]] = {
    type(None): _Entry("", lambda _, values: ["null"] * len(values)),
    bool: _Entry("", lambda _, values: ["true" if value else "false" for value in values]),
    dict: _Entry("dict", _contained(_dict), partial(_to_dict, dict)),
    OrderedDict: _Entry("odict", _one_by_one(_odict), partial(_to_dict, OrderedDict)),
    list: _Entry("", _contained(_list)),
    tuple: _Entry("tuple", _one_by_one(_tuple), tuple),
    set: _any_order("set", set),
    frozenset: _any_order("frozenset", frozenset),
    str: _Entry("", _strings),
    int: _LONG._replace(write=_ints),
    float: _Entry("", _floats),
    bytes: _spelled(
        "bytes",
        lambda value: b64encode(value).decode(),
        lambda text: b64decode(text, validate=True),
    ),
    datetime: _timed("datetime", lru_cache(datetime.fromisoformat)),
    date: _spelled("date", date.isoformat, date.fromisoformat),
    time: _timed("time", time.fromisoformat),
    timedelta: _Entry("timedelta", _timedeltas, lambda parts: timedelta(*parts)),
    Decimal: _spelled("decimal", _decimal, Decimal),
    UUID: _spelled("uuid", str, UUID),
    type(Path()): _path("path", Path),
    PurePosixPath: _path("posixpath", PurePosixPath),
    PureWindowsPath: _path("windowspath", PureWindowsPath),
}

_FIXED: Final = set(_BUILT_IN) - {dict, OrderedDict, list, tuple, set, frozenset}


# --- types of the caller


class Converter(NamedTuple):
    """Teaches a codec a type that is not yours to register.

    What `to` makes of a value is written in its place. That is proven on save: what `from_` makes
    of it again is of this class, the `same` as the value, and has the same text.

    Attributes:
        tag: what its text is tagged with.
        cls: the class, and none that extends it.
        to: makes what the codec knows out of a value. An EncodeError of its own is passed on: what
            it says follows the way to the value.
        from_: makes the value out of that.
        same: tells whether two values are equal, if `==` does not. None if `to` leaves nothing out
            that counts: then the same text again is proof enough.
    """

    tag: str
    cls: type
    to: Callable[[Any], Any]
    from_: Callable[[Any], Any]
    same: Callable[[Any, Any], Any] | None = eq


def _registered(
    types: Iterable[type] | Mapping[str, type], converters: Iterable[Converter]
) -> dict[type, _Entry]:
    """Return the entry of each type.

    Raises:
        CodecError: a class could not be restored faithfully, or a tag is not free.
    """
    named: list[tuple[str, type, Converter | None]] = (
        [(tag, cls, None) for tag, cls in types.items()]
        if isinstance(types, Mapping)
        else [(getattr(cls, "__name__", ""), cls, None) for cls in types]
    )
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
        if cls in found or (converter and cls in _BUILT_IN):
            raise CodecError(f"{_type_name(cls)} is registered twice.", "Give it one tag.")
        taken.add(tag)
        found[cls] = _converted(*converter) if converter else _entry(tag, cls)
    return found


def _entry(tag: str, cls: Any) -> _Entry:
    if issubclass(cls, Flag):
        return _flag(tag, cls)
    if issubclass(cls, Enum):
        return _enum(tag, cls)
    if hasattr(cls, "model_fields") and hasattr(cls, "model_validate"):  # pydantic, not imported
        # By name alone: an alias may be the name of another field.
        validate = partial(cls.model_validate, strict=True, by_name=True, by_alias=False)
        return _record(tag, cls, set(cls.model_fields), lambda **saved: validate(saved))
    if hasattr(cls, "__dataclass_fields__"):
        return _record(tag, cls, {field.name for field in fields(cls)}, cls)
    raise _cannot(
        cls,
        "it is not a dataclass, an Enum or a pydantic model",
        "Make it a dataclass, or convert it to one before you save.",
    )


def _cannot(cls: type, why: str, do: str) -> CodecError:
    return CodecError(f"{_type_name(cls)} cannot be registered: {why}.", do)


def _enum(tag: str, cls: type[Enum]) -> _Entry:
    members = dict(cls.__members__)

    def name(value: Enum) -> str:
        if members.get(value._name_) is not value:
            raise _Refusal(
                f"is of the type {tag} and not one of its members.",
                "Save a member that the class lists.",
            )
        return value._name_

    return _spelled(tag, name, members.__getitem__)


def _flag(tag: str, cls: type[Flag]) -> _Entry:
    def write(writer: _Writer, value: Flag) -> str:
        writer.items -= 1
        writer.unproven = True
        return f'{{"${tag}":{writer.write(value._value_)}}}'

    def revive(saved: int) -> Flag:
        value = cls(saved)
        if value._value_ != saved:  # Python 3.11.2 drops the bits that it does not know
            raise ValueError
        return value

    return _Entry(tag, _one_by_one(write), revive)


def _in_order(cls: Any, known: set[str]) -> Sequence[str]:
    """Return the names of the fields if a constructor takes them by position as well as by name.

    That is so if it is a function with these parameters, and nothing runs before it.
    """
    code = cls.__init__.__code__ if type(cls.__init__) is FunctionType else None
    before = cls.__new__ is not object.__new__ or type(cls).__call__ is not type.__call__
    if before or code is None or code.co_posonlyargcount:
        return ()
    names = code.co_varnames[1 : code.co_argcount]
    return names if set(names) == known else ()


def _row_of(several: Callable[..., _Revive], one: Any, names: Sequence[str]) -> _Revive:
    """Return what gets these attributes, or items, of a value."""
    if len(names) > 1 and all(map(str.isidentifier, names)):
        return several(*names)
    return lambda value: tuple([one(value, name) for name in names])


def _record(tag: str, cls: type, known: set[str], build: Callable[..., object]) -> _Entry:
    """Return the entry of a class with named fields, which its own constructor brings back."""
    _check_hidden_state(cls, known)
    in_order = _in_order(cls, known) if build is cls else ()
    names = in_order or sorted(known)
    make: Callable[..., object] = (
        build if in_order else lambda *row: build(**dict(zip(names, row, strict=True)))
    )
    columns = sorted(range(len(names)), key=names.__getitem__)  # as they are written
    labels = [f"{',' * bool(at)}{escape(names[n])}:" for at, n in enumerate(columns)]
    # pydantic keeps what is no field in places of its own.
    holders = ["__dict__"] if cls.__dictoffset__ else []
    holders += [n for n in ("__pydantic_extra__", "__pydantic_private__") if hasattr(cls, n)]
    read, pick = _row_of(attrgetter, getattr, names), _row_of(itemgetter, getitem, names)

    def held(values: Sequence[Any]) -> list[tuple[Any, ...]]:
        for holder in holders:
            there = chain.from_iterable(filter(None, map(attrgetter(holder), values)))
            _check_attributes(tag, cls, set(there).difference(known))
        try:
            return [*map(read, values)]
        except Exception:  # noqa: BLE001 - a property of the caller's class may raise anything
            raise _Refusal(
                f"is of the type {tag} and has a field that cannot be read.",
                "Set each field before you save.",
            ) from None

    def write(writer: _Writer, values: Sequence[Any]) -> list[str]:
        rows = held(values)
        if not writer.unproven:
            if writer.fixed.issuperset(map(type, chain.from_iterable(rows))):
                writer.records[gives_back] += rows
            else:
                writer.unproven = True
        if len(rows) == 1:
            row = [rows[0][number] for number in columns]
            texts = [[text] for text in writer.each(row, len(row) + 1, step)]
        else:
            writer.enter(len(rows))
            writer.depth += 1  # each column goes in again
            of = [*zip(*rows, strict=True)]
            texts = [writer.each(of[number], len(rows), str) for number in columns]
        pieces = chain.from_iterable(zip(map(repeat, labels), texts, strict=True))
        heads = repeat(f'{{"${tag}":{{', len(rows))
        return [*map("".join, zip(heads, *pieces, repeat("}}"), strict=False))]

    def step(number: int) -> str:
        return f".{ascii(names[columns[number]])[1:-1]}"

    def gives_back(rows: list[tuple[Any, ...]]) -> bool:
        try:
            again = [*starmap(make, rows)]
            return {cls}.issuperset(map(type, again)) and all(
                map(is_, chain.from_iterable(held(again)), chain.from_iterable(rows))
            )
        except Exception:  # noqa: BLE001 - whatever it is, the whole proof will tell
            return False

    def revive(saved: object) -> object:
        if type(saved) is not dict or saved.keys() != known:
            raise DecodeError(
                f"The saved fields of {tag} are not the fields that the class has now.",
                "Restore with the version of the class that wrote it.",
            )
        try:
            return make(*pick(saved))
        except Exception:  # noqa: BLE001 - whatever the caller's class raises
            problem = DecodeError(
                f"{tag} refuses its saved fields.",
                "Restore with the version of the class that wrote it, or let it accept this value.",
            )
        raise problem  # without its cause, which would carry the values

    return _Entry(tag, write, revive)


def _converted(tag: str, cls: type, to: _Revive, from_: _Revive, same: Any) -> _Entry:
    def write(writer: _Writer, value: Any) -> str:
        writer.enter(1)
        begin = len(writer.converted)
        try:
            known = to(value)
        except EncodeError as refused:  # it says why; the way to the value is added
            raise _Refusal(refused.what, refused.do) from None
        except Exception as failed:  # noqa: BLE001 - whatever the converter raises
            raise _Refusal(
                f"is of the type {tag}, whose converter raised {type(failed).__name__}.",
                "Convert it first, or let the converter accept it.",
            ) from None
        inner = writer.write(known) if type(known) is not dict else writer.whole(known)
        text = f'{{"${tag}":{inner or _dict(writer, known)}}}'
        writer.depth += 1
        # What is proven by its text alone is proven with the text around it.
        around = [part for part in writer.converted[begin:] if part[0] is not None]
        writer.converted[begin:] = [*around, (same and prove, value, text)]
        return text

    def prove(value: Any, again: Any) -> None:
        with suppress(Exception):  # whatever the comparison raises
            if same(value, again):
                return
        raise DecodeError(f"{tag} changes when it is rebuilt.", _FROM_HERE)

    def revive(known: Any) -> Any:
        value = from_(known)
        if type(value) is not cls:
            raise TypeError
        return value

    return _Entry(tag, _one_by_one(write), revive)


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
                f".{name}" if _PLAIN_NAME.match(name) else ".…",
            )


# --- bytes from outside

# The longest number that `repr` writes is -2.2250738585072014e-308, with 24 characters.
_LONG_TOKEN: Final = b"0" * 25
_LONG_INT: Final = b"0" * 19
_DIGITS: Final = bytes(ord("0") if byte in b"0123456789 \t\r\n" else 1 for byte in range(256))
_NO_BRACKETS: Final = bytes(set(range(128)) - set(b'[]{}"'))
_WINDOW: Final = 64 * 1024
_FLAT: Final = 8
# At most this many brackets per container: {"$dict":[[key,value]]}. A scalar adds two at most.
_BRACKETS: Final = 3
_SHAPES: Final = dict(zip(b'[{]},":', b'(()),":', strict=True))
_SHAPE: Final = bytes(_SHAPES.get(byte, ord("0")) for byte in range(256))


def check_shape(data: bytes, limits: Limits) -> bool:
    """Refuse bytes that are too large, too deep or too many for a parser to see.

    Nesting is measured in brackets here, and a state of the allowed depth may have a few per
    container; the exact depth is counted when the decoded state is encoded again.

    Returns:
        Whether the brackets are within the depth, and no number is longer than 64 bits.

    Raises:
        LimitExceeded: the size, the nesting or the number of values is over its limit.
        DecodeError: a byte that is not ASCII, or a token longer than any that is written.
    """
    if len(data) > limits.state_bytes:
        raise LimitExceeded(
            f"The encoded state has {len(data)} bytes, and the limit is {limits.state_bytes}.",
            "Restore an earlier checkpoint, or raise Limits.state_bytes if you expect this size.",
        )
    if not data.isascii():
        raise DecodeError("The encoded state holds a byte that is not ASCII.", _FROM_HERE)
    # Outside a string a backslash ends the parse, so it does not matter what follows it.
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    if (
        data.count(b'"') > len(data) // 32
        and (opened := data.count(b"[") + data.count(b"{")) + data.count(b",") <= limits.items
        and _LONG_INT not in bare.translate(_DIGITS)
    ):
        # Then the nesting is all that is left to look at, unless there are too few brackets for
        # it. What is between two quotes that meet is gone; without them, whatever else was inside
        # a string, or outside, still is.
        if opened + _FLAT <= limits.depth:
            return True
        bare = bare.translate(None, _NO_BRACKETS).replace(b'""', b"")
    shape = b"".join(_without_strings(bare)).translate(_SHAPE)
    if shape.count(b",") + shape.count(b"(") - shape.count(b"()") > limits.items:
        raise LimitExceeded(
            f"The encoded state holds more than {limits.items} values.",
            "Restore an earlier checkpoint, or raise Limits.items if you expect this many.",
        )
    if _LONG_TOKEN in shape:
        raise DecodeError(
            "The encoded state holds a token that is longer than any this codec writes.", _FROM_HERE
        )
    nesting = _nesting(shape)
    if nesting > _BRACKETS * limits.depth + 2:
        raise LimitExceeded(
            f"The encoded state is nested deeper than {limits.depth} levels.",
            "Restore an earlier checkpoint, or raise Limits.depth if you expect this nesting.",
        )
    return nesting <= limits.depth and _LONG_INT not in shape


def _without_strings(bare: bytes) -> Iterator[bytes]:
    """Yield bytes without escaped quotes, with each string replaced by one quote.

    It goes window by window, so that a megabyte of quotes does not become a list of a million
    pieces.
    """
    inside = False
    for start in range(0, len(bare), _WINDOW):
        pieces = bare[start : start + _WINDOW].split(b'"')
        yield b'"'.join(pieces[inside::2])
        inside ^= not len(pieces) % 2
        if inside and len(pieces) > 1:
            yield b'"'


def _nesting(shape: bytes) -> int:
    """Return how deep the brackets go.

    Each pass removes the innermost pairs, which ends soon for nearly every state. What remains
    after a few passes is walked, so that deep nesting costs one walk and not one pass per level.
    """
    brackets = shape.translate(None, b'0,":')
    for level in range(1, _FLAT + 1):
        brackets = brackets.replace(b"()", b"")
        if not brackets:
            return level
    return _FLAT + max(accumulate(1 if byte == ord("(") else -1 for byte in brackets), default=0)


def _out_of_resources() -> LimitExceeded:
    return LimitExceeded(
        "The state is nested too deep, or is too large, for this process.",
        "Save a flatter or smaller state, or lower the limits to what the process can hold.",
    )


class Codec:
    """Turns state into canonical JSON, and back into equal values of the same types.

    What it saves it can restore: each value comes back equal and of the same type, at every
    level. What could not come back is refused when you save it, not when you need it. Two things
    are not part of a value and are not kept: the order of a dict, where an OrderedDict keeps its
    own, and which fields of a pydantic model were set explicitly.

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
    print(data.decode())
    #> [{"$Invoice":{"due":{"$date":"2026-01-31"},"number":7,"total":{"$decimal":"12.50"}}}]
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
        Codec().decode(b'{"$os.system":"id"}')
    except DecodeError as error:
        print(error.what)
        #> The encoded state holds the tag 'os.system', which this codec does not know.
    ```

    Dataclasses and pydantic models are rebuilt through their own constructor, so their
    validation runs on what was stored. It also runs on save, once, as the proof that it accepts
    what it will be given.

    An instance does not change after it was made, and threads may share it.

    Args:
        types: dataclasses, Enums, Flags and pydantic models that may occur in a state. Each is
            stored under its name; give a mapping to choose the names, which is what you do
            before you rename a class: `Codec({"Invoice": BillingInvoice})`.
        converters: for types that are not yours to register.
        limits: what is too large, too deep or too many, on save and on load.

    Raises:
        CodecError: a type could not be restored faithfully, or two have one name.
    """

    __slots__ = ("_decoder", "_fixed", "_limits", "_table")

    def __init__(
        self,
        types: Iterable[type] | Mapping[str, type] = (),
        *,
        converters: Iterable[Converter] = (),
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        registered = _registered(types, converters)
        table = {**_BUILT_IN, **registered}
        self._fixed = _FIXED | {cls for cls in registered if issubclass(cls, Enum)}
        self._table = {cls: entry.write for cls, entry in table.items()}
        revive = {f"${entry.tag}": entry.revive for entry in table.values() if entry.tag}
        self._decoder = json.JSONDecoder(object_hook=_hook(revive.get))
        self._limits = limits

    @property
    def limits(self) -> Limits:
        """The limits that hold on save and on load."""
        return self._limits

    @property
    def types(self) -> frozenset[type]:
        """The types that it keeps: those that are built in, and yours."""
        return frozenset(self._table)

    def encode(self, value: Any) -> bytes:
        """Return the canonical bytes of a state.

        Raises:
            EncodeError: a value in it could not be restored faithfully. The message says where it
                is and of which type, and not what it is. A key on the way to it is shown if it is
                a short word of letters alone: another may be a token or an address.
            LimitExceeded: it is too large, too deep or has too many values.
        """
        text, writer = self._write(value, EncodeError)
        if writer.converted and not self._are_proven(writer.converted):
            for prove, given, part in writer.converted:  # says which it is
                self._prove(part, prove and partial(prove, given))
        if writer.unproven or not all(prove(rows) for prove, rows in writer.records.items()):
            self._prove(text)
        return text.encode("ascii")

    def decode(self, data: bytes) -> Any:
        """Return the state that was encoded.

        Size, depth and count are checked before anything is parsed. What was decoded is encoded
        once more: unless that gives the same bytes, it is refused.

        Raises:
            DecodeError: the bytes are not what `encode` writes, or hold a type that is not
                registered, or a registered type refuses them.
            LimitExceeded: they are too large, too deep or have too many values.
        """
        exact = check_shape(data, self._limits)
        text = data.decode("ascii")
        value = self._read(text)
        if exact and '"$' not in text and "\\ud" not in text:  # no tag, nor half a character
            with suppress(ValueError, RecursionError, MemoryError):  # NaN, for one
                if _write_json(value) == text:
                    return value
        if self._write(value, DecodeError)[0] != text:
            raise DecodeError("The encoded state is not in canonical form.", _FROM_HERE)
        return value

    def _write(self, value: object, error: type[CodecError]) -> tuple[str, _Writer]:
        """Return the text of a state, and what is left to prove."""

        def write(*, many: bool) -> tuple[str, _Writer]:
            writer = _Writer(self._table, self._limits, self._fixed, many=many)
            writer.unproven = error is DecodeError  # which is after the proof, and collects none
            text = writer.write(value)
            writer.room = self._limits.state_bytes
            writer.take(len(text))
            return text, writer

        # Raised after the handlers, so that no other exception hangs on to it with its values.
        problem: CheckpointError
        try:
            with suppress(_Refusal, LimitExceeded):
                return write(many=True)
            return write(many=False)  # says which value it is
        except _Refusal as refusal:
            where = "".join(reversed(refusal.steps))
            do = refusal.do if error is EncodeError else _FROM_HERE
            problem = error(f"state{where} {refusal.what}", do)
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

    def _read(self, text: str) -> Any:
        """Return the value of a text whose shape was checked; it may still be not canonical.

        Raises:
            DecodeError: it is not JSON, or a tag is unknown, or a type refuses what is tagged.
            LimitExceeded: the stack or the memory of this process does not suffice.
        """
        # Raised after the handlers: a JSONDecodeError carries the whole text along.
        problem: CheckpointError
        try:
            return self._decoder.decode(text) if '{"$' in text else json.loads(text)
        except CheckpointError:
            raise
        except ValueError:
            problem = DecodeError("The encoded state is not JSON.", _FROM_HERE)
        except (RecursionError, MemoryError):
            problem = _out_of_resources()
        raise problem

    def _are_proven(self, parts: Sequence[_Part]) -> bool:
        """Tell whether all that was converted can be restored, at one go."""
        text = f"[{','.join([part for *_, part in parts])}]"
        with suppress(CheckpointError):
            values = self._read(text)
            for (prove, given, _), again in zip(parts, values, strict=True):
                if prove:
                    prove(given, again)
            return self._write(values, DecodeError)[0] == text
        return False

    def _prove(self, text: str, compare: Callable[[Any], None] | None = None) -> None:
        """Restore what is about to be saved, or a part of it.

        Raises:
            EncodeError: that fails, or gives another value.
        """
        try:
            value = self._read(text)
            if compare:
                compare(value)
            again = self._write(value, DecodeError)[0]
            if again == text:
                return
            leaves = zip(_leaves(json.loads(text)), _leaves(json.loads(again)), strict=False)
            tag = next((tag for (tag, old), (_, new) in leaves if old != new), "A registered type")
            why = f"{tag} changes when it is rebuilt."
        except CheckpointError as error:
            why = error.what
        raise EncodeError(
            f"The state could not be restored. {why}",
            "Let the class accept, unchanged, the fields of its own instances.",
        )


def _hook(find: Callable[[str], _Revive | None]) -> _Revive:
    """Return what makes a JSON object a dict, or the value that is tagged in it."""

    def revived(plain: dict[str, Any]) -> Any:
        if len(plain) != 1:
            return plain
        (tag,) = plain
        revive = find(tag)
        if revive is None:
            if tag[:1] != "$":
                return plain
            raise DecodeError(
                f"The encoded state holds the tag {quoted(tag[1:])}, which this codec does not"
                " know.",
                "Register the type that is stored under that name, as Codec([Invoice]) does for"
                " Invoice.",
            )
        try:
            return revive(plain[tag])
        except CheckpointError:
            raise
        except Exception:  # noqa: BLE001 - each type has its own way to say that it is malformed
            problem = DecodeError(f"The encoded state holds a malformed {tag[1:]}.", _FROM_HERE)
        raise problem

    return revived


def _leaves(plain: Any, tag: str = "A registered type") -> Iterator[tuple[str, str]]:
    """Yield what parsed text holds, in order, each with the tag around it."""
    if not isinstance(plain, (dict, list)):
        yield tag, repr(plain)
        return
    yield tag, str(len(plain))
    for key, inner in plain.items() if isinstance(plain, dict) else enumerate(plain):
        yield from _leaves(inner, str(key)[1:] if str(key)[:1] == "$" else tag)
