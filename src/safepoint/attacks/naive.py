"""UNSAFE: the twin that the attacks hurt. Do not use it for anything else.

It keeps checkpoints the way that many frameworks do in principle: JSON, with a pickle embedded for
every value that JSON cannot hold, and a type check after decoding. It has the interface of
`Ledger`, so that the same workflow runs on both and you can compare what happens.

Its approvals are what they often are as well: two fields of the state, `pending` and `approved`.
And it loads models as many programs do: the safe way first, and the other way if that fails.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safepoint.journal import Notes
from safepoint.names import digest_of
from safepoint.record import Checkpoint

_PLAIN = (str, int, float, bool, type(None))


class NaiveLedger:
    """UNSAFE: saves and loads with no verification at all.

    Args:
        storage_path: a folder, made if it is missing, with whatever mode the umask gives.
    """

    store = "naive"
    keys: tuple[()] = ()
    anchor = journal = actor = None  # it has none of these
    notes = Notes(None, None, "naive")

    def __init__(self, storage_path: str | os.PathLike[str]) -> None:
        self.path = Path(storage_path)
        self.path.mkdir(parents=True, exist_ok=True)

    def holder(self, thread: str) -> None:
        """UNSAFE: every thread is everybody's."""

    def keep(self, thread: str) -> None:
        """UNSAFE: there is no lease to keep."""

    def threads(self) -> list[str]:
        """UNSAFE: the names of whatever files are there."""
        return sorted({file.name.rsplit(".", 2)[0] for file in self.path.glob("*.*.json")})

    def settle(self, thread: str) -> None:
        """UNSAFE: there is no anchor to move."""

    def save(
        self,
        thread: str,
        state: Any,
        *,
        app: str = "",
        tools: str | None = None,
        after: int | None = None,
        anchor: str | None = None,
    ) -> Checkpoint:
        """UNSAFE: write the state as JSON with embedded pickles, over whatever is there."""
        sequence = (self._head(thread) if after is None else after) + 1
        written = record(thread, sequence, encode(state), app=app, tools=tools)
        self._file(thread, sequence).write_bytes(written)
        return _checkpoint(written, state)

    def load(self, thread: str, sequence: int, *, linked: bool = False) -> Checkpoint:
        """UNSAFE: decode whatever the file holds."""
        written = self._file(thread, sequence).read_bytes()
        return _checkpoint(written, decode(json.loads(written)["state"]))

    def latest(self, thread: str) -> Checkpoint:
        """UNSAFE: return the newest file's state, whoever wrote it."""
        return self.load(thread, self._head(thread))

    def ask(self, thread: str, arguments: Mapping[str, Any]) -> None:
        """UNSAFE: let a run wait for a person's yes to `arguments`, as a field of its state."""
        state = self.latest(thread).state if self._head(thread) else {}
        self.save(thread, asked(state, arguments))

    def approve(self, thread: str, who: str) -> None:
        """UNSAFE: set the field `approved`, as anybody could."""
        self.save(thread, answered(self.latest(thread).state, who, yes=True))

    def deny(self, thread: str, who: str) -> None:
        """UNSAFE: clear the field `approved`."""
        self.save(thread, answered(self.latest(thread).state, who, yes=False))

    def resume(self, thread: str) -> Any:
        """UNSAFE: return what the state says is approved, which is then paid, or None."""
        state = self.latest(thread).state
        arguments = due(state)
        if arguments is not None:
            self.save(thread, acted(state))
        return arguments

    def _head(self, thread: str) -> int:
        found = [int(file.name.split(".")[-2]) for file in self.path.glob(f"{thread}.*.json")]
        return max(found, default=0)

    def _file(self, thread: str, sequence: int) -> Path:
        return self.path / f"{thread}.{sequence}.json"


def record(
    thread: str, sequence: int, state: Any, *, app: str = "", tools: str | None = None
) -> bytes:
    """Return what is written for an encoded state."""
    now = datetime.now(UTC).isoformat()
    fields = {"thread": thread, "sequence": sequence, "app": app, "created": now, "state": state}
    if tools is not None:
        fields["tools"] = tools
    return json.dumps(fields).encode()


def encode(value: Any) -> Any:
    """UNSAFE: plain values as they are, containers item by item, everything else as a pickle."""
    if type(value) in _PLAIN:
        return value
    if type(value) is list:
        return [encode(item) for item in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: encode(item) for key, item in value.items()}
    pickled = base64.b64encode(pickle.dumps(value)).decode()
    return {"__pickled__": pickled, "__type__": type_name(value)}


def decode(value: Any) -> Any:
    """UNSAFE: unpickle first, and look at the type afterwards."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if isinstance(value, dict) and "__pickled__" in value:
        # safepoint: allow SL08 the flaw that this twin is there to show
        decoded = pickle.loads(base64.b64decode(value["__pickled__"]))  # noqa: S301  the flaw
        if type_name(decoded) != value["__type__"]:  # too late: the pickle has run
            raise TypeError(f"expected {value['__type__']}, got {type_name(decoded)}")
        return decoded
    if isinstance(value, dict):
        return {key: decode(item) for key, item in value.items()}
    return value


def asked(state: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """UNSAFE: ask for something. An earlier yes stays where it is."""
    return {"approved": False, **state, "pending": dict(arguments)}


def answered(state: Mapping[str, Any], who: str, *, yes: bool) -> dict[str, Any]:
    """UNSAFE: say yes or no to whatever is pending when this is read."""
    return {**state, "approved": yes, "by": who}


def due(state: Mapping[str, Any]) -> Any:
    """UNSAFE: return what is pending, unless a yes is wanted and the state has none."""
    return state.get("pending") if state.get("approved", True) else None


def acted(state: Mapping[str, Any]) -> dict[str, Any]:
    """UNSAFE: note that what was pending is done."""
    return {**state, "pending": None, "paid": state["pending"]}


def load_model(path: str | os.PathLike[str]) -> Any:
    """UNSAFE: try the restricted way, and let the file choose the unrestricted one by failing."""
    import torch

    with open(path, "rb") as file:  # noqa: PTH123
        try:
            return torch.load(file, weights_only=True)
        except Exception:  # noqa: BLE001  the flaw
            file.seek(0)
            # safepoint: allow SL04 the flaw that this twin is there to show
            return torch.load(file, weights_only=False)


def type_name(value: Any) -> str:
    """Return the name under which a pickled value is labelled."""
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _checkpoint(written: bytes, state: Any) -> Checkpoint:
    fields = json.loads(written)
    return Checkpoint(
        store="naive",
        thread=fields["thread"],
        sequence=fields["sequence"],
        app=fields["app"],
        created=datetime.fromisoformat(fields["created"]),
        previous=None,
        digest=digest_of(written),
        tools=fields.get("tools"),
        state=state,
    )
