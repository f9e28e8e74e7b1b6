"""What is tried on the files: each takes a path. They run in a child, see `tests.corpus.forked`."""

from __future__ import annotations

import io
import json
import os
import pickle
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
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


def torch_size(path: Path) -> object:
    """Load a model file as PyTorch does by default, and say how many elements its weight has."""
    loaded: Any = torch_weights_only(path)
    return loaded["weight"].numel()


def torch_used(path: Path) -> object:
    """Load a model file as PyTorch does by default, and use its weight."""
    loaded: Any = torch_weights_only(path)
    return loaded["weight"].to_dense()


def read_pickle(path: Path) -> object:
    """Read as moving in does."""
    from safepoint.models import read_pickle as read

    return read(path.read_bytes(), types=REGISTERED)


def load_checkpoint(path: Path) -> object:
    """Load a model file."""
    from safepoint.models import load_checkpoint as load

    return load(path)


def apart(path: Path) -> object:
    """Load a model file in a process of its own, or convert it: they take turns."""
    from safepoint import SigningKey
    from safepoint.models import convert
    from safepoint.models import load_checkpoint as load

    if int(path.parent.name) % 2:
        return load(path, isolated=True)
    return convert(path, path.with_suffix(".safetensors"), key=SigningKey.generate())


def worker(path: Path) -> object:
    """Do what the isolated process does, in a fork: the real one imports PyTorch for seconds."""
    from safepoint.core.errors import ModelRefused
    from safepoint.models import DEFAULT_MODEL_LIMITS as LIMITS
    from safepoint.models.isolated import DONE, main, task_of
    from safepoint.models.loading import open_model

    with ExitStack() as files:
        model = files.enter_context(open_model(path, LIMITS))
        made = [files.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        fds = [each.fileno() for each in (model.file, *made)]
        child = os.fork()
        if not child:
            main(task_of(model.path, fds, LIMITS, safe=True))
        os.waitpid(child, 0)
        made[1].seek(0)
        answer = made[1].read()
    if not answer.startswith(DONE):
        raise ModelRefused(answer.decode(), "It is refused.")
    return "loaded"


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


def fickled(path: Path) -> object:
    """Ask fickling for its verdict on each pickle of a file."""
    from safepoint.models import inspect as look
    from safepoint.models.fickled import decompile

    return {decompile(each.data)[0] for each in look(path).pickles}


def every_guard(path: Path) -> str:
    """Let everything of ours look at each form of a gadget, and say what each raised or said.

    The isolated process gets the two formats in turn: it costs a fork.
    """
    forms = (ARCHIVE, LEGACY)
    return _each(
        path.parent,
        (read_pickle, path.name),
        *((inspect, form) for form in (path.name, ARCHIVE, LEGACY, BARE)),
        *((load_checkpoint, form) for form in (ARCHIVE, LEGACY, BARE)),
        (worker, forms[int(path.parent.name) % len(forms)]),
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
