"""load_checkpoint: a model from a file, without code from the file."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

from safepoint.errors import ConfigurationError, shell
from safepoint.keys import Keyring
from safepoint.pickles.kinds import Kind
from safepoint.weights import _packages
from safepoint.weights.files import ModelFile, about, open_model
from safepoint.weights.isolated import load_apart
from safepoint.weights.limits import DEFAULT_MODEL_LIMITS, ModelLimits
from safepoint.weights.packing import unpack
from safepoint.weights.paths import checked_path, joined
from safepoint.weights.reading import in_memory, restricted, unrestricted
from safepoint.weights.schema import Schema
from safepoint.weights.seals import (
    REST_BYTES,
    Sealed,
    check_digest,
    check_rest,
    read_seal,
    seal_beside,
)
from safepoint.weights.tensorfile import open_tensors


class UnrestrictedLoad(UserWarning):
    """A file was loaded that may run code, and nothing verified who made it."""


def load_checkpoint(
    path: str | os.PathLike[str],
    *,
    safe: bool = True,
    keys: Keyring | None = None,
    name: str | None = None,
    schema: Schema | None = None,
    limits: ModelLimits = DEFAULT_MODEL_LIMITS,
    isolated: bool = False,
) -> Any:
    """Load a model: a safetensors file, or what `torch.save` wrote.

    ```python
    import torch

    from safepoint.weights import load_checkpoint

    torch.save({"weight": torch.ones(2, 3)}, "model.pt")
    print(load_checkpoint("model.pt")["weight"].shape)
    #> torch.Size([2, 3])
    ```

    With `safe=True` no code of the file runs. What it would build is read first, without building
    it, and held against the limits and the schema; then `torch.load` gets it with
    `weights_only=True`. Where that cannot keep its promise, this raises. It never falls back.

    Args:
        path: the file. What it is, its content decides, and never its name.
        safe: False loads a PyTorch file without restriction, for artefacts that you trust. Give
            `keys` as the reason for your trust; without them it says that there is none.
        keys: verify the seal beside the file first, and refuse the file without one. With them
            you also get back the rest of what `save_checkpoint` saved.
        name: the name that the seal must be of. Left out, it is the file's.
        schema: what tensors there must be. They are compared before anything is loaded.
        limits: what is too large, and what an isolated process may use.
        isolated: load in a process of its own, under the limits on memory and time. It hands back
            safetensors, so this process reads nothing but those.

    Raises:
        UnsafeRuntime: this PyTorch cannot keep the promise of `weights_only`.
        UnsafeModel: the file wants more than data, or crashed the isolated process.
        ModelMalformed: it is damaged, or of no format that is loaded, or not what its name says.
        ModelMismatch: its tensors are not those of the schema.
        LimitExceeded: it is over a limit.
        SealError: its seal is not genuine, or of something else.
        NotFound: there is no such file; or there are keys, and no seal.
        StorageUnavailable: it cannot be read.
        MissingPackage: PyTorch is not installed.
        ConfigurationError: an argument is of the wrong kind.
    """
    check_arguments(schema, limits, safe=safe, isolated=isolated)
    if schema is not None and not safe and not isolated:
        raise ConfigurationError(
            "A schema is checked before a model reaches your process, and an unrestricted load"
            " cannot wait for that.",
            "Load with safe=True, or with isolated=True.",
        )
    with in_memory(path), open_model(path, limits) as model:
        sealed = verified(model, keys, name)
        if sealed is None and safe is False and model.kind is not Kind.SAFETENSORS:
            say_unrestricted(model)
        rest = None if sealed is None else sealed.rest
        if isolated:
            state = _apart(model, safe, limits)
        elif safe is True:
            state = restricted(model, schema if rest is None else None, limits)
        else:
            state = unrestricted(model, limits)
        with about(model.shown):
            if rest is not None:
                state = unpack(state, rest)
            if schema is not None and (isolated or rest is not None):
                # Not by the names in the file: a tensor in two places is there once.
                schema.check(dict(named_tensors(state)))
        return state


def say_unrestricted(model: ModelFile) -> None:
    """Warn whoever called that code of the file may run, and that nobody vouches for it."""
    warnings.warn(
        f"{model.shown} is loaded without restriction, so it can run code, and nothing verified who"
        " made it. Pass keys= to verify its seal, or convert it to safetensors.",
        UnrestrictedLoad,
        stacklevel=3,
    )


def check_arguments(schema: object, limits: object, **flags: object) -> None:
    """Refuse arguments of the wrong kind: whatever is truthy must not pass for a yes.

    Raises:
        ConfigurationError: one is.
    """
    for argument, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigurationError(
                f"{argument} is True or False, not {type(value).__name__}.",
                f"Write {argument}=True. Nothing was loaded.",
            )
    if schema is not None and not isinstance(schema, Schema):
        raise ConfigurationError(
            f"A schema is a Schema, not {type(schema).__name__}.",
            "Write schema=Schema({...}), or Schema.of(state_dict).",
        )
    if not isinstance(limits, ModelLimits):
        raise ConfigurationError(
            f"limits are ModelLimits, not {type(limits).__name__}.",
            "Write limits=ModelLimits(file_bytes=...), or leave it out.",
        )


def verified(model: ModelFile, keys: Keyring | None, name: str | None) -> Sealed | None:
    """Return what the seal of a model says, if there are keys to verify it with.

    Raises:
        ConfigurationError: there is a seal, and no keys.
        NotFound: there are keys, and no seal.
        SealError: it is not genuine, or of another file.
    """
    if keys is None:
        seal = seal_beside(model.path)
        if seal is not None:
            raise ConfigurationError(
                f"{model.shown} has a seal, and no keys were given to verify it.",
                f"Pass keys=Keyring(…). To do without, move {shell(seal)} away.",
            )
        return None
    sealed = read_seal(model.path, keys, name)
    check_digest(model.path, sealed, model.size, model.digest)
    return sealed


def named_tensors(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each tensor of a state with the way to it: keys and indices, joined with `/`."""
    if isinstance(state, dict):
        for key, item in state.items():
            yield from named_tensors(item, joined(path, str(key)))
    elif isinstance(state, (list, tuple)):
        for index, item in enumerate(state):
            yield from named_tensors(item, joined(path, str(index)))
    elif isinstance(state, _packages.torch().Tensor):
        yield checked_path(path) or "tensor", state


def _apart(model: ModelFile, safe: bool, limits: ModelLimits) -> Any:
    with tempfile.TemporaryFile() as tensors, tempfile.TemporaryFile() as rest:
        load_apart(model, tensors, rest, limits=limits, safe=safe)
        rest.seek(0)
        with about(f"What the isolated process made of {model.shown}"):
            # Copied: whatever the child has started may still hold the file.
            found = open_tensors(tensors, limits, private=False)
            return unpack(found, check_rest(rest.read(REST_BYTES + 1)))
