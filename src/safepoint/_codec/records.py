"""Records: dataclasses and pydantic models, field by field through the codec.

A record is rebuilt by its own constructor, so that its validation runs on what was stored.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cached_property
from json.encoder import encode_basestring_ascii as escape
from typing import Any, Final

from safepoint._codec.writer import Refusal, Writer, is_plain, refuse, type_name
from safepoint.errors import CodecError, DecodeError

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
