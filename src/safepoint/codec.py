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
| a type that you registered | `{"$Invoice":{"number":7}}`, `{"$Colour":"RED"}`, `{"$Rights":3}` |

A tag is a key into the list of types that the reader gave to its codec. It is never imported, and
an unknown one is refused.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag
from functools import cached_property
from itertools import accumulate
from json.encoder import encode_basestring_ascii as escape
from math import isfinite
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn
from uuid import UUID

from safepoint.errors import (
    CheckpointError,
    CodecError,
    ConfigurationError,
    DecodeError,
    EncodeError,
    LimitExceeded,
    quoted,
)
from safepoint.names import DEFAULT_LIMITS, Limits

_PLAIN: Final = (dict, list, tuple, set, frozenset, bytes, str, int, float)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]{1,24}\Z")
_REGISTRABLE: Final = ("__dataclass_fields__", "__members__", "model_validate")


class Refusal(Exception):
    """Why a value is not written. The way to it is collected while the exception unwinds."""

    def __init__(self, what: str, do: str) -> None:
        super().__init__(what, do)
        self.what = what
        self.do = do
        self.steps: list[str] = []

    @property
    def sentence(self) -> str:
        """What happened, with the place inside the state where it did."""
        return f"state{''.join(reversed(self.steps))} {self.what}"


class Writer:
    """The table of types, and what is left of each limit.

    Attributes:
        find: `get` of the table from type to the function that writes it.
        depth: levels of containers that are left.
        items: values of the text that are left, counted as `check_shape` counts them. Scalars
            take theirs off unchecked; the next container, or the end, notices.
        rebuilt: a value was written that only the caller's own class can bring back.
    """

    __slots__ = ("_limits", "_room", "depth", "find", "items", "rebuilt")

    def __init__(self, table: dict[type, Write], limits: Limits) -> None:
        self.find = table.get
        self.depth = limits.depth
        self.items = limits.items
        self.rebuilt = False
        self._room = limits.state_bytes
        self._limits = limits

    def run(self, value: object) -> str:
        """Return the text of a whole state.

        Raises:
            LimitExceeded: it is too deep, too large or has too many values.
            Refusal: it holds a value that could not be restored faithfully.
        """
        text = self.write(value)
        if self.items < 0:
            raise self._too_many()
        if len(text) > self._limits.state_bytes:
            raise self._too_large()
        return text

    def write(self, value: object) -> str:
        """Return the text of one value."""
        return self.find(type(value), refuse)(self, value)

    def enter(self, items: int) -> None:
        """Go into a container whose text holds `items` values more. Leave by `depth += 1`.

        Raises:
            LimitExceeded: that is one level or one value too many.
        """
        self.depth -= 1
        self.items -= items
        if self.depth < 0:
            raise LimitExceeded(
                f"The state is nested deeper than {self._limits.depth} levels, or contains itself.",
                "Save a flatter state, with ids in place of objects inside objects.",
            )
        if self.items < 0:
            raise self._too_many()

    def string(self, value: str) -> str:
        """Return a string in quotes.

        Raises:
            Refusal: it holds half a character, which no UTF-8 file or database could keep.
            LimitExceeded: there is no room left.
        """
        if not (value.isascii() or _encodes(value)):
            raise Refusal(
                "holds a lone surrogate, which is half a character.",
                "Replace it before you save, for example with "
                "text.encode(errors='replace').decode().",
            )
        text = escape(value)
        self._room -= len(text)
        if self._room < 0:
            raise self._too_large()
        return text

    def spend(self, text: str) -> str:
        """Return `text`, and take its length off the room that is left.

        Raises:
            LimitExceeded: there is no room left.
        """
        self._room -= len(text)
        if self._room < 0:
            raise self._too_large()
        return text

    def _too_many(self) -> LimitExceeded:
        return LimitExceeded(
            f"The state holds more than {self._limits.items} values.",
            "Keep large data elsewhere and save a reference to it, or raise Limits.items.",
        )

    def _too_large(self) -> LimitExceeded:
        return LimitExceeded(
            f"The state takes more than {self._limits.state_bytes} bytes when encoded.",
            "Keep large data elsewhere and save a reference to it, or raise Limits.state_bytes.",
        )


Write = Callable[[Writer, Any], str]
Revive = Callable[[Any], Any]


def out_of_resources() -> LimitExceeded:
    """Return the error for limits that promise more than the process has."""
    return LimitExceeded(
        "The state is nested too deep, or is too large, for this process.",
        "Save a flatter or smaller state, or lower the limits to what the process can hold.",
    )


def _encodes(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_plain(name: object) -> bool:
    """Return whether a key is a short word; a longer one, or one with digits, may be a secret."""
    return type(name) is str and _PLAIN_NAME.match(name) is not None


def type_name(cls: type) -> str:
    """Return `module.qualname`, on one line and in ASCII."""
    return ascii(f"{cls.__module__}.{cls.__qualname__}")[1:-1]


def refuse(_: Writer, value: object) -> str:
    """Refuse a value whose exact type is not in the table.

    Raises:
        Refusal: always.
    """
    cls = type(value)
    plain = next((base.__name__ for base in _PLAIN if issubclass(cls, base)), None)
    if any(hasattr(cls, name) for name in _REGISTRABLE):
        do = f"Register it: Codec([{ascii(cls.__name__)[1:-1]}])."
    elif plain:
        do = f"Convert it first: {plain}(value) is kept, a subclass of {plain} is not."
    else:
        do = "Convert it first to a type that the codec knows, such as dict, list, str or bytes."
    raise Refusal(f"is of the type {type_name(cls)}, which this codec does not know.", do)


_INT64: Final = 2**63
_LONGEST_PATH: Final = 32_767  # on Windows; elsewhere it is less


def _none(_: Writer, __: None) -> str:
    return "null"


def _bool(_: Writer, value: bool) -> str:
    return "true" if value else "false"


def _int(writer: Writer, value: int) -> str:
    if -_INT64 <= value < _INT64:
        return int.__repr__(value)
    writer.items -= 1
    return writer.spend(f'{{"$int":"{value:#x}"}}')


def _float(_: Writer, value: float) -> str:
    if not isfinite(value):
        raise Refusal(
            "is a float that is not finite.",
            "Save None, or a word of your own, in place of NaN and infinity.",
        )
    return float.__repr__(value)


def _moment(tag: str) -> Write:
    def write_moment(writer: Writer, value: datetime | time) -> str:
        zone = value.tzinfo
        if zone is not None and zone is not UTC:
            _check_zone(zone)
        if value.fold:
            raise Refusal(
                "has fold=1, which ISO 8601 cannot say.",
                "Save an unambiguous time: convert with .astimezone(timezone.utc).",
            )
        writer.items -= 1
        return f'{{"${tag}":"{value.isoformat()}"}}'

    return write_moment


def _check_zone(zone: tzinfo) -> None:
    """Refuse a time zone whose rules or whose name would be lost."""
    core = sys.modules.get("pydantic_core")
    if core is not None and type(zone) is core.TzInfo:
        return  # a fixed offset, which is what pydantic gives to each time that it parses
    if type(zone) is not timezone:
        raise Refusal(
            f"has a time zone of the type {type_name(type(zone))}, whose rules cannot be saved.",
            "Save the moment and not the rules: convert with .astimezone(timezone.utc).",
        )
    offset = zone.utcoffset(None)
    if offset.microseconds:  # which fromisoformat reads as UTC if it is all there is
        raise Refusal(
            "has a UTC offset with a fraction of a second.",
            "Save the moment without it: convert with .astimezone(timezone.utc).",
        )
    if zone.tzname(None) != timezone(offset).tzname(None):
        raise Refusal(
            "has a time zone with a name of its own, which would be lost.",
            "Save the moment without it: convert with .astimezone(timezone.utc).",
        )


def _date(writer: Writer, value: date) -> str:
    writer.items -= 1
    return f'{{"$date":"{value.isoformat()}"}}'


def _timedelta(writer: Writer, value: timedelta) -> str:
    writer.items -= 4
    return f'{{"$timedelta":[{value.days},{value.seconds},{value.microseconds}]}}'


def _decimal(writer: Writer, value: Decimal) -> str:
    if not value.is_finite():
        raise Refusal(
            "is a Decimal that is not finite.",
            "Save None, or a word of your own, in place of NaN and infinity.",
        )
    writer.items -= 1
    # A decimal context can ask for 1e+5; the bytes must not depend on it.
    return writer.spend(f'{{"$decimal":"{str(value).upper()}"}}')


def _uuid(writer: Writer, value: UUID) -> str:
    writer.items -= 1
    return f'{{"$uuid":"{value}"}}'


def _bytes(writer: Writer, value: bytes) -> str:
    writer.items -= 1
    return writer.spend(f'{{"$bytes":"{b64encode(value).decode()}"}}')


def _path(tag: str) -> Write:
    def write_path(writer: Writer, value: PurePath) -> str:
        text = str(value)
        if len(text) > _LONGEST_PATH:
            raise Refusal("is a path that no system could follow.", "Save it as a str.")
        # A Windows path of one file called "c:x" reads back as x on drive c.
        if type(value)(text) != value:
            raise Refusal("is a path that its own text does not give back.", "Save it as a str.")
        writer.items -= 1
        return f'{{"${tag}":{writer.string(text)}}}'

    return write_path


def _short(text: str) -> str:
    if len(text) > _LONGEST_PATH:
        raise ValueError
    return text


SCALAR_WRITERS: Final[dict[type, Write]] = {
    type(None): _none,
    bool: _bool,
    int: _int,
    float: _float,
    str: Writer.string,
    datetime: _moment("datetime"),
    date: _date,
    time: _moment("time"),
    timedelta: _timedelta,
    Decimal: _decimal,
    UUID: _uuid,
    bytes: _bytes,
    type(Path()): _path("path"),
    PurePosixPath: _path("posixpath"),
    PureWindowsPath: _path("windowspath"),
}

SCALAR_REVIVERS: Final[dict[str, Revive]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": lambda text: b64decode(text, validate=True),
    "path": lambda text: Path(_short(text)),
    "posixpath": lambda text: PurePosixPath(_short(text)),
    "windowspath": lambda text: PureWindowsPath(_short(text)),
    "int": lambda text: int(text, 16),
}


_SHARED_HASHES: Final = 1000


def _list(writer: Writer, value: list[Any]) -> str:
    writer.enter(len(value))
    text = ",".join(_in_order(writer, value))
    writer.depth += 1
    return f"[{text}]"


def _tuple(writer: Writer, value: tuple[Any, ...]) -> str:
    writer.enter(len(value) + 1)
    text = ",".join(_in_order(writer, value))
    writer.depth += 1
    return f'{{"$tuple":[{text}]}}'


def _in_order(writer: Writer, values: Collection[Any]) -> list[str]:
    texts: list[str] = []
    find = writer.find
    try:
        for value in values:
            texts.append(find(type(value), refuse)(writer, value))  # noqa: PERF401 - for its length
    except Refusal as refusal:
        refusal.steps.append(f"[{len(texts)}]")
        raise
    return texts


def _any_order(tag: str) -> Write:
    def write_set(writer: Writer, value: Collection[Any]) -> str:
        writer.enter(len(value) + 1)
        check_hashes(value)
        try:
            text = ",".join(sorted(map(writer.write, value)))
        except Refusal as refusal:
            refusal.steps.append("[…]")
            raise
        writer.depth += 1
        return f'{{"${tag}":[{text}]}}'

    return write_set


def _dict(writer: Writer, value: dict[Any, Any]) -> str:
    for key in value:
        if type(key) is not str or key[:1] == "$":
            return _pairs(writer, value)
    writer.enter(len(value))
    texts = []
    find = writer.find
    string = writer.string
    key = None
    try:
        for key in sorted(value):
            item = value[key]
            texts.append(f"{string(key)}:{find(type(item), refuse)(writer, item)}")
    except Refusal as refusal:
        refusal.steps.append(_step(key))
        raise
    writer.depth += 1
    return f"{{{','.join(texts)}}}"


def _pairs(writer: Writer, value: dict[Any, Any]) -> str:
    writer.enter(3 * len(value) + 1)
    check_hashes(value)
    texts = []
    step = ""
    try:
        for key, item in value.items():
            step = ".keys()[…]"
            name = writer.write(key)
            step = _step(key)
            texts.append((name, writer.write(item)))
    except Refusal as refusal:
        refusal.steps.append(step)
        raise
    writer.depth += 1
    return '{"$dict":[' + ",".join(f"[{name},{item}]" for name, item in sorted(texts)) + "]}"


def _step(key: object) -> str:
    return f"['{key}']" if is_plain(key) else "[…]"


def check_hashes(values: Collection[Any]) -> None:
    """Refuse keys that were chosen to share one hash, which makes a set or dict take forever.

    A few may share one, unless they are long numbers: to compare two of those takes long by itself.
    """
    if len(values) == len(set(map(hash, values))):
        return
    times = Counter(map(hash, values))
    shared = [value for value in values if times[hash(value)] > 1]
    if len(values) - len(times) > _SHARED_HASHES or any(map(_is_long, shared)):
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


def _revive_set(items: list[Any]) -> set[Any]:
    check_hashes(items)
    return set(items)


def _revive_frozenset(items: list[Any]) -> frozenset[Any]:
    check_hashes(items)
    return frozenset(items)


def _revive_dict(pairs: list[list[Any]]) -> dict[Any, Any]:
    check_hashes([key for key, _ in pairs])
    return dict(pairs)


CONTAINER_WRITERS: Final[dict[type, Write]] = {
    list: _list,
    dict: _dict,
    tuple: _tuple,
    set: _any_order("set"),
    frozenset: _any_order("frozenset"),
}

CONTAINER_REVIVERS: Final[dict[str, Revive]] = {
    "tuple": tuple,
    "set": _revive_set,
    "frozenset": _revive_frozenset,
    "dict": _revive_dict,
}


_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, not in C


class Record:
    """How one class with named fields is written and revived."""

    __slots__ = ("_build", "_has_dict", "_is_model", "_known", "_labels", "_names", "_tag")

    def __init__(
        self,
        tag: str,
        cls: type,
        names: Iterable[str],
        build: Callable[[dict[str, Any]], object],
        *,
        is_model: bool = False,
    ) -> None:
        self._tag = tag
        self._names = sorted(names)
        self._known = frozenset(self._names)
        self._labels = [f"{escape(name)}:" for name in self._names]
        self._build = build
        self._has_dict = cls.__dictoffset__ != 0
        self._is_model = is_model
        _check_hidden_state(cls, self._known)

    @property
    def names(self) -> tuple[str, ...]:
        """The fields, in the order in which they are written."""
        return tuple(self._names)

    def write(self, writer: Writer, value: Any) -> str:
        """Return the text of one instance.

        Raises:
            Refusal: it holds more than its fields, or less, or a field is refused.
        """
        names = self._names
        writer.enter(len(names) + 1)
        writer.rebuilt = True
        if self._has_dict and not value.__dict__.keys() <= self._known:
            self._check_attributes(value.__dict__, type(value))
        if self._is_model and value.__pydantic_extra__:
            self._check_attributes(value.__pydantic_extra__, type(value))
        try:
            values = [getattr(value, name) for name in names]
        except Exception:  # noqa: BLE001 - a property of the caller's class may raise anything
            raise Refusal(
                f"is of the type {self._tag} and has a field that cannot be read.",
                "Set each field before you save.",
            ) from None
        texts: list[str] = []
        find = writer.find
        try:
            for label, item in zip(self._labels, values, strict=True):
                texts.append(label + find(type(item), refuse)(writer, item))
        except Refusal as refusal:
            refusal.steps.append(f".{ascii(names[len(texts)])[1:-1]}")
            raise
        writer.depth += 1
        return f'{{"${self._tag}":{{{",".join(texts)}}}}}'

    def _check_attributes(self, held: Iterable[str], cls: type) -> None:
        """Refuse attributes that are not fields: they would be gone after a restore."""
        for name in sorted(set(held) - self._known):
            derived = isinstance(inspect.getattr_static(cls, name, None), cached_property)
            if not derived and name != "__orig_class__":  # typing notes Box[int] there
                refusal = Refusal(
                    f"is an attribute but not a field of {self._tag}, so it would be lost.",
                    "Make it a field, a property or a functools.cached_property.",
                )
                refusal.steps.append(f".{name}" if is_plain(name) else ".…")
                raise refusal

    def revive(self, saved: object) -> object:
        """Return an instance that was built by its class from what was saved.

        Raises:
            DecodeError: these are not its fields, or the class refuses them. The cause is left
                out on purpose: it would carry the values.
        """
        if type(saved) is not dict or saved.keys() != self._known:
            raise DecodeError(
                f"The saved fields of {self._tag} are not the fields that the class has now.",
                "Restore with the version of the class that wrote it.",
            )
        try:
            return self._build(saved)
        except Exception as error:  # noqa: BLE001 - whatever the caller's class raises
            where = self._refused_fields(error)
        raise DecodeError(
            f"{self._tag} refuses its saved fields{where}.",
            "Restore with the version of the class that wrote it, or let it accept this value.",
        )

    def _refused_fields(self, error: Exception) -> str:
        """Return the fields that pydantic names, and nothing else of what it says."""
        core = sys.modules.get("pydantic_core")
        if core is None or not isinstance(error, core.ValidationError):
            return ""
        details = error.errors(include_url=False, include_context=False, include_input=False)
        named = {detail["loc"][0] for detail in details if detail["loc"]}
        return "".join(f", {name}" for name in self._names if name in named).replace(",", ":", 1)


def _cannot(cls: type, why: str, do: str) -> CodecError:
    return CodecError(f"{type_name(cls)} cannot be registered: {why}.", do)


def _check_hidden_state(cls: type, names: frozenset[str]) -> None:
    """Refuse a class whose instances hold something beside their fields."""
    for base in cls.__mro__[:-1]:
        if not base.__flags__ & _HEAP_TYPE:
            raise _cannot(
                cls,
                f"it extends {base.__name__}, whose content is not a field",
                "Make that content a field.",
            )
        slots = base.__dict__.get("__slots__", ())
        slots = {slots} if isinstance(slots, str) else set(slots)
        if any(slot not in names and not _is_dunder(slot) for slot in slots):
            raise _cannot(cls, "it has a slot that is not a field", "Make it a field.")


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def dataclass_record(tag: str, cls: Any) -> Record:
    """Return the record of a dataclass.

    Raises:
        CodecError: its fields are not what its constructor takes.
    """
    names = {field.name for field in fields(cls)}
    if any(not field.init for field in fields(cls)):
        raise _cannot(
            cls,
            "it has a field with init=False, which cannot be given back",
            "Compute it in a property instead, or make it a field of __init__.",
        )
    taken = inspect.signature(cls).parameters
    if any(name in taken for name in cls.__dataclass_fields__ if name not in names):
        raise _cannot(
            cls,
            "it has an InitVar, which is not kept and so cannot be given back",
            "Make it a field.",
        )
    return Record(tag, cls, names, lambda saved: cls(**saved))


def model_record(tag: str, cls: Any) -> Record:
    """Return the record of a pydantic model, without importing pydantic.

    Raises:
        CodecError: some of what an instance holds would be lost.
    """
    if getattr(cls, "__private_attributes__", None):
        raise _cannot(
            cls,
            "it has private attributes, which would be lost",
            "Make them fields, or compute them in a property.",
        )
    if cls.model_config.get("extra") == "allow":
        raise _cannot(
            cls,
            'it has extra="allow", and what is not a field would be lost',
            "Declare a field for the rest, for example extra: dict[str, object].",
        )
    if getattr(cls, "__pydantic_root_model__", False):
        raise _cannot(cls, "it is a RootModel", "Use a model with a field.")
    if "by_name" not in inspect.signature(cls.model_validate).parameters:
        raise _cannot(cls, "its model_validate has no by_name", "Use pydantic 2.11 or newer.")
    # By name alone: an alias may be the name of another field.
    return Record(
        tag,
        cls,
        cls.model_fields,
        lambda saved: cls.model_validate(saved, strict=True, by_name=True, by_alias=False),
        is_model=True,
    )


_TAG: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


class Entry(NamedTuple):
    """One registered type, and the fields that it has if it is a record."""

    cls: type
    write: Write
    revive: Revive
    fields: tuple[str, ...] = ()


def register(types: Iterable[type] | Mapping[str, type], taken: Iterable[str]) -> dict[str, Entry]:
    """Return the entry of each type by its tag.

    Args:
        types: the classes, or the classes by tag.
        taken: tags that are in use already.

    Raises:
        CodecError: a class that could not be restored faithfully, or a tag that is not free.
    """
    if isinstance(types, type) or not isinstance(types, Iterable):
        raise CodecError("Codec takes a list of types.", "Write Codec([Invoice]).")
    named = types.items() if isinstance(types, Mapping) else ((None, cls) for cls in types)
    entries: dict[str, Entry] = {}
    for name, cls in named:
        tag = _tag(name, cls)
        entry = _entry(tag, cls)
        if tag in entries or tag in taken:
            raise CodecError(
                f"The tag {quoted(tag)} is taken.",
                "Give the type another one: Codec({'billing.Invoice': Invoice}).",
            )
        if any(other.cls is cls for other in entries.values()):
            raise CodecError(f"{type_name(cls)} is registered twice.", "Give it one tag.")
        entries[tag] = entry
    return entries


def _tag(name: Any, cls: Any) -> str:
    if not isinstance(cls, type):
        raise CodecError(
            f"Codec takes types, and was given a value of the type {type_name(type(cls))}.",
            "Write Codec([Invoice]), with the class itself.",
        )
    tag = cls.__name__ if name is None else name
    if not isinstance(tag, str) or not _TAG.match(tag):
        raise CodecError(
            f"{quoted(tag)} cannot be a tag.",
            "Use letters, digits, '_' and '.', and begin with a letter or '_': "
            "Codec({'Invoice': Invoice}).",
        )
    return tag


def _entry(tag: str, cls: type) -> Entry:
    if issubclass(cls, Flag):
        return _flag(tag, cls)
    if issubclass(cls, Enum):
        return _enum(tag, cls)
    record: Record
    if hasattr(cls, "model_fields") and hasattr(cls, "model_validate"):
        record = model_record(tag, cls)
    elif is_dataclass(cls):
        record = dataclass_record(tag, cls)
    else:
        raise CodecError(
            f"{type_name(cls)} cannot be registered: "
            "it is not a dataclass, an Enum or a pydantic model.",
            "Make it a dataclass, or convert it to one before you save.",
        )
    return Entry(cls, record.write, record.revive, record.names)


def _enum(tag: str, cls: type[Enum]) -> Entry:
    members = dict(cls.__members__)
    texts = {name: f'{{"${tag}":{escape(name)}}}' for name in members}

    def write(writer: Writer, value: Enum) -> str:
        name = value._name_
        if members.get(name) is not value:
            raise Refusal(
                f"is of the type {tag} and not one of its members.",
                "Save a member that the class lists.",
            )
        writer.items -= 1
        return texts[name]

    return Entry(cls, write, members.__getitem__)


def _flag(tag: str, cls: type[Flag]) -> Entry:
    def write(writer: Writer, value: Flag) -> str:
        writer.items -= 1
        writer.rebuilt = True
        return f'{{"${tag}":{writer.write(value._value_)}}}'

    def revive(saved: int) -> Flag:
        value = cls(saved)
        if value._value_ != saved:  # Python 3.11.2 drops the bits that it does not know
            raise ValueError
        return value

    return Entry(cls, write, revive)


# The longest number that `repr` writes is -2.2250738585072014e-308, with 24 characters.
_LONG_TOKEN: Final = b"0" * 25
_WINDOW: Final = 64 * 1024
_FLAT: Final = 8
_OPEN: Final = ord("(")
# At most this many brackets per container: {"$dict":[[key,value]]}. A scalar adds two at most.
_BRACKETS: Final = 3


def _table() -> bytes:
    table = bytearray(b"0" * 256)
    for source, target in zip(b'[{]},":', b'(()),":', strict=True):
        table[source] = target
    return bytes(table)


_SHAPE: Final = _table()


def _without_strings(data: bytes) -> Iterator[bytes]:
    """Yield `data` with each string replaced by one quote.

    It goes window by window, so that a megabyte of quotes does not become a list of a million
    pieces. Outside a string a backslash ends the parse, so it does not matter what follows it.
    """
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    inside = False
    for start in range(0, len(bare), _WINDOW):
        pieces = bare[start : start + _WINDOW].split(b'"')
        yield b'"'.join(pieces[inside::2])
        inside ^= not len(pieces) % 2
        if inside and len(pieces) > 1:
            yield b'"'


def check_shape(data: bytes, limits: Limits) -> None:
    """Refuse bytes that are too large, too deep or too many for a parser to see.

    Nesting is measured in brackets here, and a state of the allowed depth may have a few per
    container; the exact depth is counted when the decoded state is encoded again.

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
        raise DecodeError(
            "The encoded state holds a byte that is not ASCII.",
            "Restore a checkpoint that this codec wrote.",
        )
    shape = b"".join(_without_strings(data)).translate(_SHAPE)
    if shape.count(b",") + shape.count(b"(") - shape.count(b"()") > limits.items:
        raise LimitExceeded(
            f"The encoded state holds more than {limits.items} values.",
            "Restore an earlier checkpoint, or raise Limits.items if you expect this many.",
        )
    if _LONG_TOKEN in shape:
        raise DecodeError(
            "The encoded state holds a token that is longer than any this codec writes.",
            "Restore a checkpoint that this codec wrote.",
        )
    if _nesting(shape) > _BRACKETS * limits.depth + 2:
        raise LimitExceeded(
            f"The encoded state is nested deeper than {limits.depth} levels.",
            "Restore an earlier checkpoint, or raise Limits.depth if you expect this nesting.",
        )


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
    return _FLAT + max(accumulate(1 if byte == _OPEN else -1 for byte in brackets), default=0)


FROM_HERE: Final = "Restore a checkpoint that this codec wrote."

Pairs = list[tuple[str, Any]]


class Reader:
    """Parses text and revives what is tagged. Its shape must have been checked before."""

    __slots__ = ("_decoder", "_revivers")

    def __init__(self, revivers: dict[str, Revive]) -> None:
        self._revivers = {f"${tag}": revive for tag, revive in revivers.items()}
        self._decoder = self._parser(self._object)

    def read(self, text: str) -> Any:
        """Return the value of a text, which may still be one that is not canonical.

        Raises:
            DecodeError: it is not JSON, or a tag is unknown, or a type refuses what is tagged.
            LimitExceeded: the stack or the memory of this process does not suffice.
        """
        return self._read(self._decoder, text)

    def read_watched(self, text: str, watch: Callable[[str, Any, Any], None]) -> None:
        """Read a text, and call `watch(tag, inner, value)` for each tagged value, innermost first.

        Raises:
            DecodeError: as for `read`.
            LimitExceeded: as for `read`.
        """

        def watched(pairs: Pairs) -> Any:
            value = self._object(pairs)
            if type(value) is not dict:
                watch(pairs[0][0][1:], pairs[0][1], value)
            return value

        self._read(self._parser(watched), text)

    @staticmethod
    def _parser(hook: Callable[[Pairs], Any]) -> json.JSONDecoder:
        return json.JSONDecoder(object_pairs_hook=hook, parse_constant=_not_finite)

    @staticmethod
    def _read(parser: json.JSONDecoder, text: str) -> Any:
        # Raised after the handlers: a JSONDecodeError carries the whole text along.
        problem: CheckpointError
        try:
            return parser.decode(text)
        except CheckpointError:
            raise
        except ValueError:
            problem = DecodeError("The encoded state is not JSON.", FROM_HERE)
        except (RecursionError, MemoryError):
            problem = out_of_resources()
        raise problem

    def _object(self, pairs: Pairs) -> Any:
        """Return the dict of a JSON object, or the value of a tagged one."""
        if len(pairs) == 1:
            tag, inner = pairs[0]
            if tag[:1] == "$":
                return self._revive(tag, inner)
        value = dict(pairs)
        if len(value) != len(pairs):
            raise DecodeError("The encoded state has a key twice in one object.", FROM_HERE)
        return value

    def _revive(self, tag: str, inner: object) -> Any:
        revive = self._revivers.get(tag)
        if revive is None:
            raise DecodeError(
                f"The encoded state holds the tag {quoted(tag[1:])}, "
                "which this codec does not know.",
                "Register the type that is stored under that name, as Codec([Invoice]) does for"
                " Invoice.",
            )
        try:
            return revive(inner)
        except CheckpointError:
            raise
        except Exception:  # noqa: BLE001 - each type has its own way to say that it is malformed
            problem = DecodeError(f"The encoded state holds a malformed {tag[1:]}.", FROM_HERE)
        raise problem


def _not_finite(_: str) -> NoReturn:
    raise DecodeError("The encoded state holds a number that is not finite.", FROM_HERE)


class Codec:
    """Turns state into canonical JSON, and back into equal values of the same types.

    What it saves it can restore: each value comes back equal and of the same type, at every
    level. What could not come back is refused when you save it, not when you need it. Two things
    are not part of a value and are not kept: the order of a dict, and which fields of a pydantic
    model were set explicitly.

    ```python
    from dataclasses import dataclass
    from datetime import date
    from decimal import Decimal

    from safepoint.codec import Codec


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
    from collections import OrderedDict

    from safepoint.codec import Codec
    from safepoint.errors import DecodeError, EncodeError

    try:
        Codec().encode({"cart": [OrderedDict(apples=2)]})
    except EncodeError as error:
        print(error.what)
        #> state['cart'][0] is of the type collections.OrderedDict, which this codec does not know.
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
        limits: what is too large, too deep or too many, on save and on load.

    Raises:
        ConfigurationError: `limits` are no limits.
        CodecError: a type could not be restored faithfully, or two have one name.
    """

    __slots__ = ("_fields", "_limits", "_reader", "_types", "_writers")

    def __init__(
        self,
        types: Iterable[type] | Mapping[str, type] = (),
        *,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        if not isinstance(limits, Limits):
            raise ConfigurationError(
                f"Codec takes limits, and was given {type(limits).__name__}.",
                "Write limits=Limits(state_bytes=...), or leave it out.",
            )
        revivers: dict[str, Revive] = {**SCALAR_REVIVERS, **CONTAINER_REVIVERS}
        writers: dict[type, Write] = {**SCALAR_WRITERS, **CONTAINER_WRITERS}
        entries = register(types, revivers)
        revivers.update({tag: entry.revive for tag, entry in entries.items()})
        writers.update({entry.cls: entry.write for entry in entries.values()})
        self._writers = writers
        self._reader = Reader(revivers)
        self._fields = {tag: entry.fields for tag, entry in entries.items()}
        self._types = MappingProxyType({tag: entry.cls for tag, entry in entries.items()})
        self._limits = limits

    @property
    def limits(self) -> Limits:
        """The limits that hold on save and on load."""
        return self._limits

    @property
    def types(self) -> Mapping[str, type]:
        """The registered types by tag."""
        return self._types

    def encode(self, value: Any) -> bytes:
        """Return the canonical bytes of a state.

        Raises:
            EncodeError: a value in it could not be restored faithfully. The message says where it
                is and of which type, and not what it is. A key on the way to it is shown if it is
                a short word of letters alone: another may be a token or an address.
            LimitExceeded: it is too large, too deep or has too many values.
        """
        text, rebuilt = self._write(value, EncodeError)
        if rebuilt:
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
        if not isinstance(data, bytes):
            raise DecodeError("The encoded state is not bytes.", "Give decode what encode gave.")
        check_shape(data, self._limits)
        text = data.decode("ascii")
        value = self._reader.read(text)
        if self._write(value, DecodeError)[0] != text:
            raise DecodeError("The encoded state is not in canonical form.", FROM_HERE)
        return value

    def _write(self, value: object, error: type[CodecError]) -> tuple[str, bool]:
        """Return the text of a state, and whether a class of the caller is needed to rebuild it."""
        writer = Writer(self._writers, self._limits)
        # Raised after the handlers, so that no other exception hangs on to it with its values.
        problem: CheckpointError
        try:
            text = writer.run(value)
        except Refusal as refusal:
            problem = error(refusal.sentence, refusal.do if error is EncodeError else FROM_HERE)
        except (RecursionError, MemoryError):
            problem = out_of_resources()
        except CheckpointError:
            raise
        except Exception as failed:  # noqa: BLE001  a property, a hash, another thread's edit
            problem = error(
                f"The state could not be read: it raised {type(failed).__name__}.",
                "Save a state that nothing else changes meanwhile.",
            )
        else:
            return text, writer.rebuilt
        raise problem

    def _prove(self, text: str) -> None:
        """Restore what is about to be saved.

        Raises:
            EncodeError: that fails, or gives another value.
        """
        try:
            again, _ = self._write(self._reader.read(text), DecodeError)
        except CheckpointError as error:
            why = error.what
        else:
            if again == text:
                return
            why = self._changed(text)
        raise EncodeError(
            f"The state could not be restored. {why}",
            "Let the class accept, unchanged, the fields of its own instances.",
        )

    def _changed(self, text: str) -> str:
        """Say which class gives a field another value than it had."""
        found: list[str] = []

        def watch(tag: str, saved: Any, value: Any) -> None:
            for name in self._fields.get(tag, ()):
                before, _ = self._write(saved[name], DecodeError)
                after, _ = self._write(getattr(value, name), DecodeError)
                if before != after:
                    found.append(f"{tag} changes its field {name} when it is rebuilt.")

        self._reader.read_watched(text, watch)
        return found[0] if found else "A registered type changes when it is rebuilt."
