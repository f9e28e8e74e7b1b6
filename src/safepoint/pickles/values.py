"""What may stand behind a name in a pickle of state: plain data, and your own types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum, Flag
from functools import cached_property
from typing import Any

from safepoint.codec import Entry, register
from safepoint.errors import ConfigurationError, DecodeError, PickleRefused, quoted
from safepoint.pickles._plain import BUILTINS, COPYREG, PLAIN, UUIDS, reconstructor
from safepoint.pickles.machine import Functions, Name

__all__ = ["PLAIN", "for_types"]

Key = tuple[str, str]


def for_types(types: Iterable[type] | Mapping[str, type]) -> Functions:
    """Return what may stand behind the names of these types, to go beside `PLAIN`.

    An instance of a dataclass or a pydantic model is rebuilt by its own constructor, from exactly
    its fields, so that its validation runs. pickle would set its attributes past both. A member of
    an Enum is found in the list of its members.

    Args:
        types: dataclasses, Enums, Flags and pydantic models. Each goes by its module and name;
            give a mapping to choose the names, which is what you do for a class that was renamed
            or moved since: `{"old.module.Invoice": Invoice}`.

    Raises:
        ConfigurationError: these are no types, or a name has no module.
        CodecError: a type could not be restored faithfully. As for `Codec`.
    """
    makers: dict[Key, Callable[[], Any]] = dict(UUIDS)
    enums: dict[Key, type[Enum]] = {}
    functions: dict[Key, Callable[..., Any]] = {}
    for keys, cls in _listed(types):
        (entry,) = register([cls], ()).values()
        for key in keys:
            if issubclass(cls, Enum):
                enums[key] = cls
                functions[key] = _flag(entry) if issubclass(cls, Flag) else _member(cls)
            else:
                functions[key] = makers[key] = _maker(cls, entry)
    for module in COPYREG:
        functions[module, "_reconstructor"] = reconstructor(makers)
    if enums:
        for module in BUILTINS:
            functions[module, "getattr"] = _named_member(enums)
    return functions


def _listed(types: Any) -> Iterable[tuple[list[Key], type]]:
    if isinstance(types, Mapping):
        return [(_splits(name), cls) for name, cls in types.items()]
    if isinstance(types, str | type) or not isinstance(types, Iterable):
        raise ConfigurationError(
            f"types is {quoted(types)}, which is no list of types.",
            'Write types=[Invoice], or types={"old.module.Invoice": Invoice}.',
        )
    listed = list(types)
    return [([(getattr(t, "__module__", ""), getattr(t, "__qualname__", ""))], t) for t in listed]


def _splits(name: Any) -> list[Key]:
    """Return each way to part a name into a module and a name in it, which may have a dot, too."""
    words = name.split(".") if type(name) is str else []
    if len(words) < 2 or not all(word.isidentifier() for word in words):
        raise ConfigurationError(
            f"{quoted(name)} is no name of a type.",
            'Write its module as well: types={"old.module.Invoice": Invoice}.',
        )
    return [(".".join(words[:at]), ".".join(words[at:])) for at in range(1, len(words))]


def _member(cls: type[Enum]) -> Callable[..., Enum]:
    values = [(member.value, member) for member in cls.__members__.values()]

    def member(value: Any) -> Enum:
        return next(one for own, one in values if type(own) is type(value) and own == value)

    return member


def _flag(entry: Entry) -> Callable[..., Any]:
    def flag(value: Any) -> Any:
        if type(value) is not int:
            raise TypeError
        return entry.revive(value)

    return flag


def _named_member(enums: Mapping[Key, type[Enum]]) -> Callable[..., Enum]:
    """Return what some Pythons call to find a member by its name: in these Enums alone."""

    def named_member(cls: Any, name: Any) -> Enum:
        if type(cls) is not Name or type(name) is not str:
            raise TypeError
        return enums[cls.key].__members__[name]

    return named_member


def _maker(cls: type, entry: Entry) -> Callable[[], Any]:
    return lambda: _New(cls, entry)


class _New:
    """An instance that has no fields yet."""

    __slots__ = ("_cls", "_entry")

    def __init__(self, cls: type, entry: Entry) -> None:
        self._cls = cls
        self._entry = entry

    def __build__(self, state: Any) -> Any:
        saved = self._fields(state)
        before = {name: _seen(item) for name, item in saved.items()}
        problem: PickleRefused
        try:
            value = self._entry.revive(saved)
        except DecodeError as error:
            problem = PickleRefused(error.what, error.do)
        else:
            for name, item in before.items():
                if _seen(getattr(value, name)) != item:
                    raise PickleRefused(
                        f"{self._cls.__name__} changes its field {name} when it is rebuilt.",
                        "Let the class accept, unchanged, the fields of its own instances.",
                    )
            return value
        raise problem

    def _fields(self, state: Any) -> dict[str, Any]:
        """Return the fields by name, from the ways in which they are pickled."""
        if hasattr(self._cls, "model_fields"):
            return self._model_fields(state)
        if state is None:
            return {}
        if type(state) is list and is_dataclass(self._cls):  # frozen and with slots
            names = [field.name for field in fields(self._cls)]
            return dict(zip(names, state, strict=True))
        if type(state) is tuple and len(state) == 2 and type(state[1]) is dict:  # with slots
            state = {**(state[0] or {}), **state[1]}
        if type(state) is not dict:
            raise TypeError
        return {
            name: item
            for name, item in state.items()
            if not isinstance(inspect.getattr_static(self._cls, name, None), cached_property)
        }

    def _model_fields(self, state: Any) -> dict[str, Any]:
        lost = [state["__pydantic_extra__"], state["__pydantic_private__"]]
        if type(state) is not dict or len(state) != 4 or any(lost):
            raise TypeError
        if type(state["__dict__"]) is not dict or type(state["__pydantic_fields_set__"]) is not set:
            raise TypeError
        return state["__dict__"]


def _seen(value: Any) -> Any:
    """Return a copy to compare with: a constructor may change what it is given."""
    if type(value) in (list, tuple):
        return type(value), [_seen(item) for item in value]
    if type(value) is dict:
        return dict, [(key, _seen(item)) for key, item in value.items()]
    if type(value) is set:
        return set, frozenset(value)
    return type(value), value
