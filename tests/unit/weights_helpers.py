"""What the tests of the weights share: models, a payload that leaves a marker, refusals."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from safepoint import Keyring, SigningKey
from safepoint.errors import CheckpointError

KEY = SigningKey.generate()
KEYS = Keyring(KEY)

# The signatures of torch.load in 1.12 and from 1.13 on. 1.12 hands what it does not know to the
# unpickler, which says that it does not know it either.
OLD_LOAD = """
def load(f, map_location=None, pickle_module=pickle, **pickle_load_args):
    calls.append({"map_location": map_location, **pickle_load_args})
    if pickle_load_args:
        raise TypeError("'weights_only' is an invalid keyword argument for Unpickler()")
    return {"loaded": True}
"""
NEW_LOAD = """
def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **rest):
    calls.append({"map_location": map_location, "weights_only": weights_only})
    return {"loaded": True}
"""


class Mark:
    """A payload: to unpickle it makes a folder, and that is all it does."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


class Calls:
    """A payload that calls a function: for files that are loaded as trusted."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def state_dict() -> dict[str, torch.Tensor]:
    return {"bias": torch.zeros(2), "weight": torch.arange(6.0).reshape(2, 3)}


def saved(path: Path, state: Any = None, *, legacy: bool = False) -> Path:
    """Write a file with torch.save, in today's format or the one before."""
    state = state_dict() if state is None else state
    torch.save(state, path, _use_new_zipfile_serialization=not legacy)
    return path


def hostile(path: Path, marker: Path, *, legacy: bool = False) -> Path:
    """Write a model file whose state dict holds a payload."""
    return saved(path, {**state_dict(), "extra": Mark(marker)}, legacy=legacy)


def not_data(path: Path, name: str = "posix.mkdir") -> str:
    """Return what is said of a file that wants that name."""
    return (
        f"{path} wants {name}, which is not data. Nothing of it was run. Do not load it. If you"
        " made it, save the state_dict and plain values instead. Or convert it, if you made it"
        " yourself and nobody can have changed it: python -m safepoint.weights convert --trusted"
    )


def bits(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor's elements."""
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


def same(one: Any, other: Any) -> bool:
    """Compare two states: structure, types, and tensors to the last bit."""
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor)
            and (one.dtype, one.shape) == (other.dtype, other.shape)
            and bits(one) == bits(other)
        )
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(item, other[key]) for key, item in one.items())
        )
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


@contextmanager
def refused(kind: type[CheckpointError], message: str) -> Iterator[None]:
    """Expect exactly this error, with exactly this message."""
    with pytest.raises(CheckpointError) as caught:
        yield
    assert (type(caught.value), str(caught.value)) == (kind, message)


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def stand_in(version: str = "2.13.0", source: str = NEW_LOAD) -> Any:
    """Return a module that looks like PyTorch of that version."""
    home = "site-packages/torch/serialization.py"
    calls: list[dict[str, Any]] = []
    space: dict[str, Any] = {"pickle": pickle, "calls": calls}
    exec(compile(source, home, "exec"), space)  # noqa: S102  the text above
    serialization = SimpleNamespace(__file__=home, get_safe_globals=list)
    return SimpleNamespace(
        __version__=version, load=space["load"], serialization=serialization, calls=calls
    )
