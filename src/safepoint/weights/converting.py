"""convert: a PyTorch file becomes safetensors, once, in a process of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from safepoint.keys import Keyring, SigningKey
from safepoint.pickles.kinds import Kind
from safepoint.weights.files import ModelFile, about, open_model
from safepoint.weights.isolated import load_apart
from safepoint.weights.limits import DEFAULT_MODEL_LIMITS, ModelLimits
from safepoint.weights.loading import (
    check_arguments,
    named_tensors,
    say_unrestricted,
    verified,
)
from safepoint.weights.packing import unpack
from safepoint.weights.publishing import slot
from safepoint.weights.reading import in_memory
from safepoint.weights.saving import finish, target_of
from safepoint.weights.schema import Schema
from safepoint.weights.seals import REST_BYTES, Sealed, check_rest, make_seal, name_of
from safepoint.weights.tensorfile import open_tensors


@dataclass(frozen=True, slots=True)
class Converted:
    """What became of a file.

    Attributes:
        path: the new file.
        digest: its digest, as in the seal.
        tensors: how many tensors it holds.
        size: its bytes.
    """

    path: str
    digest: str
    tensors: int
    size: int


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    key: SigningKey,
    name: str | None = None,
    app: str = "",
    safe: bool = True,
    keys: Keyring | None = None,
    schema: Schema | None = None,
    limits: ModelLimits = DEFAULT_MODEL_LIMITS,
    progress: Callable[[int, int], None] | None = None,
) -> Converted:
    """Turn what `torch.save` wrote into a sealed safetensors file, equal to the last bit.

    The file is loaded in a process of its own, under limits. That process writes the tensors,
    reads them back, and compares each with what it loaded. This one then reads the result as it
    would read a stranger's, and seals it. The original stays as it is.

    ```python
    import torch

    from safepoint import Keyring, SigningKey
    from safepoint.weights import convert, load_checkpoint

    key = SigningKey.generate()
    torch.save({"weight": torch.ones(2, 3)}, "old.pt")
    done = convert("old.pt", "new.safetensors", key=key)
    print(done.tensors)
    #> 1
    print(load_checkpoint("new.safetensors", keys=Keyring(key))["weight"].shape)
    #> torch.Size([2, 3])
    ```

    Args:
        source: the old file: `.pt`, `.pth`, the older format, or safetensors to be sealed.
        target: the new one, whose name ends in `.safetensors`. Nothing is overwritten.
        key: the key to seal it with.
        name: the name that the seals are bound to: the new one, and with `keys` the old one, too.
            Left out, each has the name of its file.
        app: what wrote it, as it should stand in the seal.
        safe: False loads the old file without restriction, in that process, with your rights. Only
            for a file that you made.
        keys: verify the seal of the old file first.
        schema: what tensors there must be.
        limits: what is too large, and what the process may use.
        progress: called with the bytes that are written, and those of the old file.

    Raises:
        ModelUnsupported: it holds what safetensors cannot, and the message says what and why.
        CheckpointError: whatever `load_checkpoint` and `save_checkpoint` raise.
    """
    check_arguments(schema, limits, safe=safe)
    path = target_of(target)
    model_name = name_of(path, name)
    make_seal(Sealed(model_name, "sha256-tree:" + "0" * 64, 0, None), key, app=app)
    with in_memory(source), open_model(source, limits) as model:
        sealed = verified(model, keys, name)
        if sealed is None and safe is False and model.kind is not Kind.SAFETENSORS:
            say_unrestricted(model)
        with slot(path) as place, tempfile.TemporaryFile() as rest:
            watch = _watched(place.file.fileno(), model, progress)
            load_apart(model, place.file, rest, limits=limits, safe=safe, watch=watch)
            tensors = open_tensors(place.file, limits, private=True)
            rest.seek(0)
            text = check_rest(rest.read(REST_BYTES + 1))
            state = unpack(tensors, text)  # what is sealed can be loaded
            if schema is not None:
                with about(model.shown):
                    schema.check(dict(named_tensors(state)))
            done = finish(place, model_name, text, key, app, limits)
            if progress is not None:
                progress(model.size, model.size)
    return Converted(path, done.digest, len(tensors), done.size)


def _watched(
    descriptor: int, model: ModelFile, progress: Callable[[int, int], None] | None
) -> Callable[[], Any] | None:
    if progress is None:
        return None

    def watch() -> None:
        progress(min(os.fstat(descriptor).st_size, model.size), model.size)

    return watch
