"""A pickle of state, read as data: what may stand behind a name in it and nothing else may.

Each function takes exactly what a pickler writes for its type, and checks it. None of them imports,
looks up an attribute by name, or sets one. This is for moving in and for looking at files. No path
that loads a checkpoint uses it.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from functools import cached_property, partial
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID, SafeUUID

from ormsgpack import Ext, packb

from safepoint.core.codec import Codec
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    DecodeError,
    LimitExceeded,
    quoted,
)
from safepoint.models.limits import DEFAULT_PICKLE_LIMITS, PickleLimits
from safepoint.models.machine import Collect, Functions, Name, run
from safepoint.models.opcodes import Ref

Types = Iterable[type] | Mapping[str, type]


def read_pickle(
    data: bytes, *, types: Types = (), limits: PickleLimits = DEFAULT_PICKLE_LIMITS
) -> Any:
    r"""Return the state that a pickle holds, if it is data that a `Codec` of these types can hold.

    The pickle is not unpickled: nothing in it is imported or run. An OrderedDict and a
    defaultdict become a dict.

    ```python
    import pickle
    from datetime import date

    from safepoint.core.errors import DecodeError
    from safepoint.models import read_pickle

    print(read_pickle(pickle.dumps({"order": 7, "due": date(2026, 1, 31)})))
    #> {'order': 7, 'due': datetime.date(2026, 1, 31)}
    try:
        read_pickle(b"cos\nsystem\n(S'id'\ntR.")
    except DecodeError as refusal:
        print(refusal.what)
        #> The pickle wants os.system, which is not on the list of what may be built.
    ```

    Args:
        data: the pickle, of protocol 0 to 5 and nothing behind it.
        types: dataclasses, Enums, Flags and pydantic models that may occur in it. Give a mapping
            for those that had another name: `{"old.module.Invoice": Invoice}`.
        limits: what is too large, too deep or too many.

    Raises:
        DecodeError: it is malformed, or holds more than such data. The message says what.
        LimitExceeded: it is too large, too deep or has too many values.
        ConfigurationError: a name in `types` has no module, or a type could not be restored
            faithfully. As for `Codec`.
    """
    return run(data, functions=functions_for(types), limits=limits)


def strict_json(
    text: bytes,
    size: int,
    items: int,
    revive: Callable[[dict[str, Any]], Any] | None = None,
) -> Any:
    """Return what a text says, if it is JSON without a second meaning.

    Args:
        text: the bytes.
        size: how many there may be.
        items: how many values there may be.
        revive: makes something else of an object, the inner ones first.

    Raises:
        DecodeError: it is not JSON, has a key twice, or a number that JSON does not have.
        LimitExceeded: it has more bytes or values, or is nested too deep.
    """
    # Before a parser builds them. Those in a text count too, and few texts have as many.
    if len(text) > size or text.count(b",") + text.count(b"[") + text.count(b"{") > items:
        raise LimitExceeded(f"It has more than {size} bytes, or than {items} values.", _WHO)

    def made(pairs: list[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError
        return revive(found) if revive else found

    problem: CheckpointError  # raised below: the error of the parser carries the text along
    try:
        return json.loads(text.decode(), object_pairs_hook=made, parse_constant=_refuse)
    except RecursionError:
        problem = LimitExceeded("It is nested too deep.", _WHO)
    except CheckpointError:
        raise
    except ValueError:
        problem = DecodeError("It is not strict JSON.", "Repair it, or leave it out.")
    raise problem


def _refuse(constant: str) -> float:
    raise ValueError(constant)


_WHO: Final = "Find out who wrote it."
_BUILTINS: Final = ("builtins", "__builtin__")  # the second in Python 2, and so in protocols 0 to 2
_COPYREG: Final = ("copyreg", "copy_reg")
_PATHLIB: Final = ("pathlib", "pathlib._local")  # the second one in Python 3.13
_DECIMAL: Final = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?(?:[Ee][+-][0-9]+)?|Infinity|s?NaN[0-9]*)")
_DIGITS: Final = 4096
# These may be arguments, and are not called. The last two are int and str in Python 2.
_PASSED: Final = (
    *("bool", "bytes", "dict", "float", "int", "list", "str", "tuple", "object"),
    *("long", "unicode"),
)


def _must(*facts: bool) -> None:
    if not all(facts):
        raise ValueError  # the machine says of which name


def _moment(cls: Any, state: Any, *zone: Any) -> Any:
    """Make a date, a time or both of the bytes that their pickles hold, which it believes."""
    _must(type(state) is bytes, all(type(each) is timezone for each in zone))
    made = cls(state, *zone)
    _must(cls.fromisoformat(made.isoformat()) == made)  # so that no hour is the 200th
    return made


def made_of(make: Callable[..., Any], *kinds: type) -> Callable[..., Any]:
    """Return what makes a value of arguments of these types, the last of which may be missing."""

    def made(*given: Any) -> Any:
        _must(len(kinds) - 1 <= len(given) <= len(kinds))
        _must(*(type(each) is kind for each, kind in zip(given, kinds, strict=False)))
        return make(*given)

    return made


def _decimal(text: str) -> Decimal:
    _must(len(text) <= _DIGITS and bool(_DECIMAL.fullmatch(text)))
    return Decimal(text)


def _encode(text: str, encoding: str) -> bytes:
    """Bytes, as protocols 0 to 2 write them: as text whose characters are the bytes."""
    _must(encoding == "latin1")
    return bytes(text, "latin1")


def _path(cls: type[PurePath], *parts: Any) -> PurePath:
    _must(all(type(part) is str for part in parts))
    return cls(*parts)


def _default(factory: Any = None) -> dict[Any, Any]:
    """A dict: what is made up for a missing key is part of the program and not of the state."""
    passed = type(factory) is Name and factory.key[0] in _BUILTINS
    _must(factory is None or passed or factory in (bool, dict, float, int, list, str, tuple))
    return {}


def _only_passed(*_: Any) -> None:
    raise ValueError


class _NewUuid:
    """A UUID that has no number yet."""

    def __build__(self, state: Any) -> UUID:
        _must(type(state) is dict and {"int"} <= state.keys() <= {"int", "is_safe"})
        number, safe = state["int"], state.get("is_safe")
        _must(type(number) is int, safe is None or type(safe) is int)
        return UUID(int=number, is_safe=SafeUUID(safe))


def _reconstructor(makers: Mapping[Ref, Callable[[], Any]], cls: Any, base: Any, state: Any) -> Any:
    """Make an object as protocols 0 and 1 do: of these classes, and of no other."""
    _must(type(cls) is Name, type(base) is Name and base.key[1] == "object", state is None)
    return makers[cls.key]()


_UUIDS: Final[Mapping[Ref, Callable[[], Any]]] = {("uuid", "UUID"): _NewUuid}
PLAIN: Final[Functions] = MappingProxyType(
    {
        **{("datetime", cls.__name__): partial(_moment, cls) for cls in (datetime, date, time)},
        ("datetime", "timedelta"): made_of(timedelta, int, int, int),
        ("datetime", "timezone"): made_of(timezone, timedelta, str),
        ("decimal", "Decimal"): made_of(_decimal, str),
        ("_codecs", "encode"): made_of(_encode, str, str),
        ("collections", "OrderedDict"): Collect(dict),
        ("collections", "defaultdict"): _default,
        **_UUIDS,
        **{(module, "_reconstructor"): partial(_reconstructor, _UUIDS) for module in _COPYREG},
        **{(module, name): _only_passed for module in _BUILTINS for name in _PASSED},
        **{(module, "bytes"): lambda: b"" for module in _BUILTINS},
        **{(m, each.__name__): Collect(each) for m in _BUILTINS for each in (set, frozenset)},
        **{
            (module, cls.__name__): partial(_path, cls)
            for module in _PATHLIB
            for cls in (PurePosixPath, PureWindowsPath, type(Path()))
        },
    }
)
"""The names of plain data: all that a `Codec` without registered types can hold."""


def functions_for(types: Types) -> Functions:
    """Return what may stand behind a name: plain data, and these types of the caller's.

    An instance of a dataclass or a pydantic model is rebuilt as a `Codec` does it, from exactly
    its fields, so that its validation runs. pickle would set its attributes past both. A member of
    an Enum is found in the list of its members.

    Raises:
        ConfigurationError: these are not types, or a name has no module; or a type could not be
            restored faithfully. As for `Codec`.
    """
    listed = _listed(types)
    tags: dict[type, str] = {}
    for _, cls in listed:
        same = sum(cls is not other and cls.__name__ == other.__name__ for other in tags)
        tags.setdefault(cls, f"{cls.__name__}{'_' * same}")
    codec = Codec({tag: cls for cls, tag in tags.items()})  # which says what is wrong with them
    makers: dict[Ref, Callable[[], Any]] = dict(_UUIDS)
    enums: dict[Ref, type[Enum]] = {}
    found: dict[Ref, Any] = dict(PLAIN)
    for keys, cls in listed:
        for key in keys:
            if issubclass(cls, Enum):
                enums[key] = cls
                found[key] = partial(_member, cls)
                if issubclass(cls, Flag):
                    found[key] = partial(_flag, cls)
            else:
                found[key] = makers[key] = partial(_New, codec, tags[cls], cls)
    for module in _COPYREG:
        found[module, "_reconstructor"] = partial(_reconstructor, makers)
    for module in _BUILTINS if enums else ():
        found[module, "getattr"] = partial(_named_member, enums)
    return found


def _listed(types: Any) -> list[tuple[list[Ref], type]]:
    if isinstance(types, Mapping):
        return [(_splits(name), cls) for name, cls in types.items()]
    return [([(getattr(t, "__module__", ""), getattr(t, "__qualname__", ""))], t) for t in types]


def _splits(name: Any) -> list[Ref]:
    """Return each way to split a name into a module and a name in it, which may contain dots."""
    words = name.split(".") if type(name) is str else []
    if len(words) < 2 or not all(word.isidentifier() for word in words):
        raise ConfigurationError(
            f"{quoted(name)} is not the name of a type.",
            'Write its module as well: types={"old.module.Invoice": Invoice}.',
        )
    return [(".".join(words[:at]), ".".join(words[at:])) for at in range(1, len(words))]


def _member(cls: type[Enum], value: Any) -> Enum:
    members = cls.__members__.values()
    return next(m for m in members if type(m.value) is type(value) and m.value == value)


def _flag(cls: type[Flag], value: Any) -> Flag:
    _must(type(value) is int)
    found = cls(value)
    _must(found.value == value)  # Python 3.11.2 drops the bits that it does not know
    return found


def _named_member(enums: Mapping[Ref, type[Enum]], cls: Any, name: Any) -> Enum:
    """Find a member by its name, as some Pythons do: in these Enums alone."""
    _must(type(cls) is Name, type(name) is str)
    return enums[cls.key].__members__[name]


class _New:
    """An instance of a type of the caller's that has no fields yet."""

    __slots__ = ("_cls", "_codec", "_tag")

    def __init__(self, codec: Codec, tag: str, cls: type) -> None:
        self._codec, self._tag, self._cls = codec, tag, cls

    def __build__(self, state: Any) -> Any:
        saved = self._codec.encode(dict(sorted(self._fields(state).items())))
        # It refuses fields that the class does not have, and a class that changes them.
        named = b"%c%b%b" % (len(self._tag), self._tag.encode(), saved)
        return self._codec.decode(packb(Ext(0, named)))

    def _fields(self, state: Any) -> dict[str, Any]:
        """Return the fields by name, from the ways in which they are pickled."""
        if hasattr(self._cls, "model_fields"):
            lost = [state["__pydantic_extra__"], state["__pydantic_private__"]]
            saved: dict[str, Any] = state["__dict__"]
            _must(type(state) is dict, len(state) == 4, not any(lost), type(saved) is dict)
            _must(type(state["__pydantic_fields_set__"]) is set)
            return saved
        if state is None:
            return {}
        if type(state) is list and is_dataclass(self._cls):  # frozen and with slots
            return dict(zip((field.name for field in fields(self._cls)), state, strict=True))
        if type(state) is tuple and len(state) == 2 and type(state[1]) is dict:  # with slots
            state = {**(state[0] or {}), **state[1]}
        _must(type(state) is dict)
        return {
            name: item
            for name, item in state.items()
            if not isinstance(inspect.getattr_static(self._cls, name, None), cached_property)
        }


# What Microsoft Agent Framework puts into its checkpoints: the messages that are under way.
_CONTEXT: Final = "agent_framework._workflows._runner_context"
_FIELDS: Final = {
    *("data", "source_id", "target_id", "type", "trace_contexts", "source_span_ids"),
    "original_request_info_event",
}


class _Delivery(Enum):
    """The framework's `MessageType`."""

    STANDARD = "standard"
    RESPONSE = "response"


class _Message:
    """The framework's `WorkflowMessage`, which becomes what its own `to_dict` returns."""

    def __build__(self, state: Any) -> dict[str, Any]:
        _must(type(state) is dict and state.keys() == _FIELDS, type(state["type"]) is _Delivery)
        return {**state, "type": state["type"].value}


FRAMEWORK: Final[Functions] = {
    **functions_for({f"{_CONTEXT}.MessageType": _Delivery}),
    (_CONTEXT, "WorkflowMessage"): _Message,
}
"""What may stand behind a name in a checkpoint of Agent Framework, to look at it."""
