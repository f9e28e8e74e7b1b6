"""The states in pickled checkpoints, brought back as data."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

from safepoint.errors import CodecError, LimitExceeded, PickleRefused, quoted
from safepoint.pickles.framework import EVENTS, NOT_SEALED, as_data, beside
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.machine import Functions, Refused
from safepoint.pickles.reading import read_pickle
from safepoint.pickles.scanning import scan
from safepoint.pickles.taking import PICKLED, TYPE, step
from safepoint.pickles.values import PLAIN, for_types

_YOURS: Final = (
    "If that is a dataclass, an Enum or a pydantic model of yours, pass it as a type. Anything else"
    " is not migrated: look what it does with safepoint.pickles decompile."
)
_WAITING: Final = (
    "It is a request that waits for an answer, and holds classes, which are no data. Let the run"
    " finish first; then copy its last checkpoint to a folder of its own, and migrate that with"
    " allow_missing_past."
)
_DICTS: Final = ("collections:OrderedDict", "collections:defaultdict")

Types = Iterable[type] | Mapping[str, type]


class Reviver:
    """Reads states with `read_pickle`, and says where a refusal comes from.

    Args:
        types: the types of yours that may occur.
        limits: for each pickle.

    Raises:
        ConfigurationError: these are no types.
        CodecError: a type could not be restored faithfully.
    """

    def __init__(self, types: Types, limits: PickleLimits) -> None:
        for_types(types := _kept(types))  # which says what is wrong with them
        self._types = beside(types)
        self._functions: Functions = {**PLAIN, **for_types(self._types)}
        self._limits = limits

    def unpickled(self, data: bytes, where: str = "") -> Any:
        """Return the state that a pickle holds.

        Args:
            data: the pickle.
            where: its place in the file, empty if it is the whole file.

        Raises:
            PickleRefused: it is more than data. The message says what, and where.
            LimitExceeded: it is too large.
        """
        try:
            return read_pickle(data, types=self._types, limits=self._limits)
        except CodecError as error:
            problem = self._explained(error, data, where)
        raise problem

    def revived(self, value: Any) -> Any:
        """Return what JSON of Agent Framework stands for, with each pickle in it read.

        Raises:
            PickleRefused: one is more than data, or is not what it is marked as.
            LimitExceeded: there is too much of it.
        """
        return as_data(self._revived(value, "", 0))

    def _revived(self, value: Any, where: str, depth: int) -> Any:
        if depth > self._limits.depth:
            raise LimitExceeded(
                f"It is nested deeper than {self._limits.depth} levels.",
                "Look what it is before you raise PickleLimits.depth.",
            )
        if isinstance(value, list):
            return [
                self._revived(each, f"{where}[{number}]", depth + 1)
                for number, each in enumerate(value)
            ]
        if not isinstance(value, dict):
            return value
        if PICKLED not in value and TYPE not in value:
            return {
                key: self._revived(each, step(where, key), depth + 1) for key, each in value.items()
            }
        pickled, named = value.get(PICKLED), value.get(TYPE)
        if len(value) != 2 or not isinstance(pickled, str) or not isinstance(named, str):
            raise PickleRefused(
                f"{where} is marked as a pickle, and is not written like one.", NOT_SEALED
            )
        state = self.unpickled(_decoded(pickled, where), where)
        if not self._is_of(state, named):
            raise PickleRefused(
                f"{where} is marked as {quoted(named)}, and is a {type(state).__name__}.",
                NOT_SEALED,
            )
        return state

    def _explained(self, error: CodecError, data: bytes, where: str) -> PickleRefused:
        found = scan(data, limits=self._limits)
        missing = [
            (asked, self._functions.get((asked.module, asked.name)))
            for asked in found.asked
            if isinstance(self._functions.get((asked.module, asked.name)), Refused | None)
        ]
        if not missing:
            return PickleRefused(f"{where}: {error.what}".lstrip(": "), error.do)
        wanted = " and ".join(f"{asked} (byte {asked.position})" for asked, _ in missing[:3])
        hint = missing[0][1]
        do = hint.do if isinstance(hint, Refused) else _YOURS
        if any(asked.module == EVENTS for asked, _ in missing):
            do = _WAITING
        return PickleRefused(f"{where or 'It'} wants {wanted}, which may not be built.", do)

    def _is_of(self, state: Any, named: str) -> bool:
        """Tell whether a state is of the type that its file names."""
        cls = type(state)
        module, _, name = named.rpartition(":")
        if f"{cls.__module__}:{cls.__qualname__}" == named or (cls is dict and named in _DICTS):
            return True
        if isinstance(state, PurePath):  # Python 3.13 has them in another module
            return module in ("pathlib", "pathlib._local") and name == cls.__name__
        return self._types.get(f"{module}.{name}") is cls


def _decoded(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        problem = PickleRefused(f"{where} is marked as a pickle, and is no base64.", NOT_SEALED)
    raise problem


def _kept(types: Any) -> Any:
    """Return types that can be gone through again. What are none is refused by who uses them."""
    return list(types) if isinstance(types, Iterator) else types
