"""What is tried on the files: each takes a path. They run in a child, see `tests.corpus.forked`."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safepoint.core.errors import CheckpointError
from tests.corpus.benign_types import REGISTERED

PICKLE, SEVERAL, ARCHIVE, LEGACY, BARE = "x.pkl", "x.several", "archive.pt", "legacy.pt", "bare.pt"
"""The forms of a gadget, side by side in a folder."""


def careless(path: Path) -> object:
    """Do what must not be done: decode with pickle, or load without restriction."""
    if path.suffix == ".pt":
        import torch

        return torch.load(path, map_location="cpu", weights_only=False)
    file = io.BytesIO(path.read_bytes())
    if path.suffix != ".several":
        return pickle.loads(file.getvalue())
    value: object = None
    while file.tell() < len(file.getvalue()):
        value = pickle.load(file)
    return value


def torch_weights_only(path: Path) -> object:
    """Load a model file as PyTorch does by default."""
    import torch

    return torch.load(path, map_location="cpu", weights_only=True)


def read_pickle(path: Path) -> object:
    """Read as moving in does."""
    from safepoint.models import read_pickle as read

    return read(path.read_bytes(), types=REGISTERED)


def load_checkpoint(path: Path) -> object:
    """Load a model file."""
    from safepoint.models import load_checkpoint as load

    return load(path)


def converted(path: Path) -> object:
    """Turn a model file into safetensors."""
    from safepoint import SigningKey
    from safepoint.models import convert

    return convert(path, path.with_suffix(".safetensors"), key=SigningKey.generate())


def inspect(path: Path) -> object:
    """Say whether a file is plain data."""
    from safepoint.models import inspect as look

    return look(path).plain


def moved(path: Path) -> object:
    """Read a pickle as moving in does, and a model file as a safe load does."""
    return load_checkpoint(path) if path.suffix == ".pt" else read_pickle(path)


def folder(path: Path) -> object:
    """Move the folder `old` beside the path in, and say how many were sealed and refused."""
    from safepoint import Codec, InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
    from safepoint.moving import move, state_files

    keys, codec = Keyring(SigningKey.generate()), Codec(list(REGISTERED))
    ledger = Ledger(InMemoryCheckpointStorage(), store="corpus", keys=keys, codec=codec)
    files = state_files(path.parent / "old", types=REGISTERED)
    done = move(files, ledger, report=path.parent / "report.jsonl", vouched_by="dora")
    told = [each.outcome for each in done]
    return told.count("sealed"), told.count("refused"), len(ledger.threads())


def every_guard(path: Path) -> str:
    """Let everything of ours look at each form of a gadget, and say what each raised or said.

    A conversion gets the two formats in turn: it locks the folder.
    """
    forms = (ARCHIVE, LEGACY)
    return _each(
        path.parent,
        (read_pickle, path.name),
        *((inspect, form) for form in (path.name, ARCHIVE, LEGACY, BARE)),
        *((load_checkpoint, form) for form in (ARCHIVE, LEGACY, BARE)),
        (converted, forms[int(path.parent.name) % len(forms)]),
    )


def every_look(path: Path) -> str:
    """Let everything of ours look at one file, and say what each raised or said."""
    looks = (read_pickle, load_checkpoint, inspect)
    return _each(path.parent, *((look, path.name) for look in looks))


def _each(folder: Path, *looks: tuple[Callable[[Path], Any], str]) -> str:
    told = {}
    for look, form in looks:
        try:
            told[f"{look.__name__} {form}"] = str(look(folder / form))
        except CheckpointError as error:
            told[f"{look.__name__} {form}"] = f"CheckpointError: {type(error).__name__}"
    return json.dumps(told)
