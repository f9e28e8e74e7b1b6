r"""Attacks that carry code. Each payload does one harmless thing: it leaves a marker.

The pickles are written by hand, opcode by opcode, so that this module needs no pickler and you can
see how little it takes: `c` imports a name, the arguments follow, `R` calls it.
"""

from __future__ import annotations

import base64
import importlib
import json
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from safepoint.attacks.kit import Attack, got, unnoticed, worst
from safepoint.attacks.outcome import HONEST, MARKER, Miss, Outcome
from safepoint.attacks.target import Target

_TYPE = "datetime:timedelta"


def marker_pickle(marker: Path) -> bytes:
    """Return a pickle that makes the folder `marker` while it is decoded, and yields None."""
    return b"cos\nmkdir\n(V%b\ntR." % str(marker).encode()


def marker_pickle_of_type(marker: Path) -> bytes:
    """Return a pickle that does the same, and then yields an honest `datetime.timedelta`."""
    run = b"cos\nmkdir\n(V%b\ntR0" % str(marker).encode()
    return run + b"cdatetime\ntimedelta\n(I1\ntR."


class PicklePayload(Attack):
    """Replace the state by a pickle that runs code."""

    id = "pickle-payload"
    rule = "SP03"
    threat = 13
    story = "A pickle in the record runs while it is decoded; the type check then fails, too late."

    def pickle(self, marker: Path) -> bytes:
        """Return a pickle whose result has the wrong type."""
        return marker_pickle(marker)

    def prepare(self, target: Target) -> None:
        """Plant the pickle."""
        super().prepare(target)
        plant_pickle(target, self.pickle(target.folder / MARKER))

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return unnoticed(target.latest("victim"))


class PickleRightType(PicklePayload):
    """Run code and still return a value of the declared type."""

    id = "pickle-right-type"
    story = "The pickle runs and returns the declared type, so the type check passes."

    def pickle(self, marker: Path) -> bytes:
        """Return a pickle whose result has the right type."""
        return marker_pickle_of_type(marker)


class UnknownType(Attack):
    """Name a class, and wait for somebody to import it."""

    id = "unknown-type"
    rule = "SP09"
    threat = 13
    story = "The record names a class that nobody listed, and its module is imported to look."

    def prepare(self, target: Target) -> None:
        """Save, and write a module that leaves the marker when it is imported."""
        super().prepare(target)
        self._module = f"sentinel_{secrets.token_hex(4)}"
        marker = str(target.folder / MARKER)
        code = f"import os\nos.mkdir({marker!r})\nclass Thing: pass\n"
        (target.folder / f"{self._module}.py").write_text(code, encoding="utf-8")

    def strike(self, target: Target) -> Outcome:
        """Name the class in the ways that are in use, with the module in reach."""
        sys.path.insert(0, str(target.folder))
        importlib.invalidate_caches()
        try:
            return worst(target, self._looks(target))
        finally:
            sys.path.remove(str(target.folder))
            sys.modules.pop(self._module, None)

    def _looks(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        states: list[dict[str, Any]] = [
            {"__type__": f"{self._module}:Thing"},
            {f"${self._module}.Thing": {}},
            {"py/object": f"{self._module}.Thing"},
            {"lc": 2, "type": "constructor", "id": [self._module, "Thing"], "kwargs": {}},
        ]
        payloads = [json.dumps(state, separators=(",", ":")).encode() for state in states]
        yield from _each(target, payloads)
        plant_pickle(target, f"c{self._module}\nThing\n.".encode())
        yield lambda: _nothing_ran(target.latest("victim"))


class RowChoosesDecoder(Attack):
    """Let the data say how it is to be decoded."""

    id = "row-chooses-decoder"
    rule = "SP10"
    threat = 41
    story = "What a user typed into a form looks like the store's own mark for a pickle, and runs."

    def strike(self, target: Target) -> Outcome:
        """Save it as a user's input, which must come back as it was; then put it in a record."""
        return worst(target, self._looks(target))

    def _looks(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        pickle = base64.b64encode(marker_pickle_of_type(target.folder / MARKER)).decode()
        states = ({"__pickled__": pickle, "__type__": _TYPE}, {"$pickle": pickle})
        for state in states:
            yield partial(self._as_input, target, {"note": state})
        payloads = [json.dumps(state, separators=(",", ":")).encode() for state in states]
        yield from _each(target, payloads)

    def _as_input(self, target: Target, typed: dict[str, Any]) -> Outcome:
        target.save("user", typed)
        return got(target.latest("user") != typed)


def plant_pickle(target: Target, pickle: bytes) -> None:
    """Put a pickle where the format has room for one; else in place of a state, key and all."""
    record = target.pickled(pickle, _TYPE)
    if record is None:
        target.smuggle("victim", pickle)
    else:
        target.medium.write(target.records("victim")[-1], record)
        target.relink("victim")


def _each(target: Target, payloads: Iterable[bytes]) -> Iterator[Callable[[], Outcome]]:
    """Put each payload in place of a state, in a thread of its own, and let the victim load."""
    for number, payload in enumerate(payloads):
        thread = f"victim-{number}"
        target.save(thread, HONEST)
        with suppress(Miss):
            target.smuggle(thread, payload)
            yield partial(_load, target, thread)


def _load(target: Target, thread: str) -> Outcome:
    return _nothing_ran(target.latest(thread))


def _nothing_ran(seen: object) -> Outcome:
    """Say that plain data came back as plain data. If anything ran, the marker tells."""
    del seen
    return got(False)
