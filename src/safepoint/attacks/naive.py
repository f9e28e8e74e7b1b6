"""UNSAFE: the twin that the attacks hurt. Do not use it for anything else.

It keeps checkpoints the way that many frameworks do in principle: JSON, with a pickle embedded for
every value that JSON cannot hold, and a type check after decoding.

And it loads models as many programs do: the safe way first, and the other way if that fails.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

_PLAIN = (str, int, float, bool, type(None))


class Kept(NamedTuple):
    """A state, and its number in the thread."""

    sequence: int
    state: Any


class NaiveLedger:
    """UNSAFE: saves and loads with no verification at all.

    Args:
        storage_path: a folder, made if it is missing, with whatever mode the umask gives.
    """

    def __init__(self, storage_path: str | os.PathLike[str]) -> None:
        self.path = Path(storage_path)
        self.path.mkdir(parents=True, exist_ok=True)

    def save(self, thread: str, state: Any, *, after: int | None = None) -> Kept:
        """UNSAFE: write the state as JSON with embedded pickles, over whatever is there."""
        sequence = (self._head(thread) if after is None else after) + 1
        self._file(thread, sequence).write_bytes(record(thread, sequence, encode(state)))
        return Kept(sequence, state)

    def load(self, thread: str, sequence: int) -> Kept:
        """UNSAFE: decode whatever the file holds."""
        fields = json.loads(self._file(thread, sequence).read_bytes())
        return Kept(sequence, decode(fields["state"]))

    def latest(self, thread: str) -> Kept:
        """UNSAFE: return the newest file's state, whoever wrote it."""
        return self.load(thread, self._head(thread))

    def _head(self, thread: str) -> int:
        found = [int(file.name.split(".")[-2]) for file in self.path.glob(f"{thread}.*.json")]
        return max(found, default=0)

    def _file(self, thread: str, sequence: int) -> Path:
        return self.path / f"{thread}.{sequence}.json"


def record(thread: str, sequence: int, state: Any) -> bytes:
    """Return what is written for an encoded state."""
    now = datetime.now(UTC).isoformat()
    fields = {"thread": thread, "sequence": sequence, "created": now, "state": state}
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
