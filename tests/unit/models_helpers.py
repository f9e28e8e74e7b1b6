"""What the tests of models share: states, payloads that leave a marker, and comparison."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from safepoint import Keyring, SigningKey
from tests.harness.optional import Late

torch = Late("torch")

KEY = SigningKey(bytes(range(32)))  # the same in each process
KEYS = Keyring(KEY)


class Calls:
    """A payload that calls a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def mark(marker: Path) -> Calls:
    """Return a payload: to unpickle it makes a folder, and that is all it does."""
    return Calls(os.mkdir, str(marker))


def state_dict() -> dict[str, Any]:
    return {"bias": torch.zeros(2), "weight": torch.arange(6.0).reshape(2, 3)}


def saved(path: Path, state: Any = None, *, legacy: bool = False) -> Path:
    """Write a file with torch.save, in today's format or the one before."""
    state = state_dict() if state is None else state
    torch.save(state, path, _use_new_zipfile_serialization=not legacy)
    path.chmod(0o600)
    return path


def bits(tensor: Any) -> bytes:
    return bytes(tensor.resolve_conj().contiguous().reshape(-1).view(torch.uint8).tolist())
