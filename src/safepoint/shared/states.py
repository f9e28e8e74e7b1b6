"""What is in a store, for people and for programs that do not know its types."""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from safepoint.core.chain import View
from safepoint.core.codec import Tagged, inspect_state
from safepoint.core.ledger import Ledger
from safepoint.core.names import DEFAULT_LIMITS, Limits
from safepoint.resume.approval import shown

# Text that nobody takes for a number, another type, the end of a value or a run's name here.
_WORD: Final = re.compile(
    r"(?!(?:true|false|none|nan|inf(inity)?|[lio\d.]+(e[+-]?[lio\d]+)?)$|[tbh]--)[a-z][\w.@+-]*",
    re.I | re.A,
)
_SPELLED: Final[dict[type, str]] = {Decimal: "decimal", UUID: "uuid"}


def brief(value: object) -> str:
    """Return a value without the name of its type, and text in quotes if it could mislead."""
    if isinstance(value, str):
        return value if _WORD.fullmatch(value) else shown(value)
    return str(value) if isinstance(value, Decimal | UUID | date | time) else shown(value)


def view_of(ledger: Ledger) -> View:
    """Return a view of the ledger's storage that remembers nothing of what it saw before."""
    limits, tenant = ledger.codec.limits, ledger.tenant_name
    return View(ledger.storage, ledger.store, ledger.keys, ledger.anchor, limits, tenant=tenant)


def read_as_json(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Return what encoded bytes hold as values of JSON. Nothing of the caller's types is built.

    A type that JSON does not know is an object with one key that begins with `$`, as in
    `{"$Invoice": {"number": 7}}`. No dict of a state looks like that: one with such a key, or with
    a key that is not text, is `{"$dict": [[key, value]]}`.

    Raises:
        DecodeError: the bytes are not state.
        LimitExceeded: they are too large, too deep or have too many values.
    """
    return _as_json(inspect_state(data, limits))


def _as_json(value: Any) -> Any:
    cls = type(value)
    if cls is dict:
        if all(key[:1] != "$" for key in value):
            return {key: _as_json(each) for key, each in value.items()}
        value = Tagged("dict", [*chain.from_iterable(value.items())])
    if cls is list:
        return [*map(_as_json, value)]
    if isinstance(value, Tagged) and value.tag == "dict":
        items = [*map(_as_json, value.content)]
        return {"$dict": [[*pair] for pair in zip(items[::2], items[1::2], strict=True)]}
    if cls is Tagged:
        return {f"${value.tag}": _as_json(value.content)}
    if cls is tuple:
        return {"$tuple": [*map(_as_json, value)]}
    if cls is bytes:
        return {"$bytes": b64encode(value).decode()}
    if cls is timedelta:
        return {"$timedelta": f"{value.days},{value.seconds},{value.microseconds}"}
    if cls in (datetime, date, time):
        return {f"${cls.__name__}": value.isoformat()}
    if cls in _SPELLED or isinstance(value, PurePath):
        return {f"${_SPELLED.get(cls, 'path')}": str(value)}
    return {"$int": hex(value)} if cls is int and not -(2**63) <= value < 2**64 else value
