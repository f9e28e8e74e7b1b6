"""The closed registry: which types a codec may build, decided by the caller and by no data.

No name from the data is imported, and none is looked up on an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from enum import Enum, Flag
from json.encoder import encode_basestring_ascii as escape
from typing import Any, Final, NamedTuple

from safepoint._codec.records import Record, dataclass_record, model_record
from safepoint._codec.writer import Refusal, Revive, Write, Writer, type_name
from safepoint.errors import CodecError, quoted

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
