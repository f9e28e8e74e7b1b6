"""UNSAFE: the twin that the attacks hurt. Do not use it for anything else.

It keeps checkpoints the way that many frameworks do in principle: JSON, with a pickle embedded for
every value that JSON cannot hold, and a type check after decoding. It has the interface of
`Ledger`, so that the same workflow runs on both and you can compare what happens.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safepoint.checkpoint import Checkpoint

_PLAIN = (str, int, float, bool, type(None))


class NaiveLedger:
    """UNSAFE: saves and loads with no verification at all.

    Args:
        storage_path: a folder, made if it is missing, with whatever mode the umask gives.
    """

    def __init__(self, storage_path: str | os.PathLike[str]) -> None:
        self.path = Path(storage_path)
        self.path.mkdir(parents=True, exist_ok=True)

    def save(
        self, thread: str, state: Any, *, app: str = "", after: int | None = None
    ) -> Checkpoint:
        """UNSAFE: write the state as JSON with embedded pickles, over whatever is there."""
        sequence = (self._head(thread) if after is None else after) + 1
        created = datetime.now(UTC)
        record = {
            "thread": thread,
            "sequence": sequence,
            "app": app,
            "created": created.isoformat(),
            "state": encode(state),
        }
        self._file(thread, sequence).write_text(json.dumps(record), encoding="utf-8")
        return _checkpoint(record, state)

    def load(self, thread: str, sequence: int) -> Checkpoint:
        """UNSAFE: decode whatever the file holds."""
        record = json.loads(self._file(thread, sequence).read_text(encoding="utf-8"))
        return _checkpoint(record, decode(record["state"]))

    def latest(self, thread: str) -> Checkpoint:
        """UNSAFE: return the newest file's state, whoever wrote it."""
        return self.load(thread, self._head(thread))

    def _head(self, thread: str) -> int:
        found = [int(file.name.split(".")[-2]) for file in self.path.glob(f"{thread}.*.json")]
        return max(found, default=0)

    def _file(self, thread: str, sequence: int) -> Path:
        return self.path / f"{thread}.{sequence}.json"


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
        decoded = pickle.loads(base64.b64decode(value["__pickled__"]))  # noqa: S301  the flaw
        if type_name(decoded) != value["__type__"]:  # too late: the pickle has run
            raise TypeError(f"expected {value['__type__']}, got {type_name(decoded)}")
        return decoded
    if isinstance(value, dict):
        return {key: decode(item) for key, item in value.items()}
    return value


def type_name(value: Any) -> str:
    """Return the name under which a pickled value is labelled."""
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _checkpoint(record: dict[str, Any], state: Any) -> Checkpoint:
    return Checkpoint(
        store="naive",
        thread=record["thread"],
        sequence=record["sequence"],
        app=record["app"],
        created=datetime.fromisoformat(record["created"]),
        previous=None,
        digest="",
        tools=None,
        state=state,
    )
