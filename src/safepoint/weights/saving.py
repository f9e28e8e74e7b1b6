"""save_checkpoint: tensors as safetensors, the rest as JSON, and one seal over both."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from safepoint._files import translated
from safepoint.errors import ConfigurationError, shell
from safepoint.keys import SigningKey
from safepoint.weights.files import SAFETENSORS, open_model, path_of
from safepoint.weights.limits import DEFAULT_MODEL_LIMITS, ModelLimits
from safepoint.weights.packing import pack
from safepoint.weights.publishing import Slot, publish_seal, slot
from safepoint.weights.seals import Sealed, make_seal, name_of
from safepoint.weights.tensorfile import open_tensorfile
from safepoint.weights.writing import write_into


def save_checkpoint(
    path: str | os.PathLike[str],
    state: Any,
    *,
    key: SigningKey,
    name: str | None = None,
    app: str = "",
    limits: ModelLimits = DEFAULT_MODEL_LIMITS,
) -> str:
    """Save a model, or all that a training run needs to go on, in files that cannot execute.

    ```python
    import torch

    from safepoint import Keyring, SigningKey
    from safepoint.weights import load_checkpoint, save_checkpoint

    key = SigningKey.generate()
    state = {"model": {"weight": torch.ones(2, 3)}, "epoch": 7}
    save_checkpoint("run-7.safetensors", state, key=key)

    again = load_checkpoint("run-7.safetensors", keys=Keyring(key))
    print(again["epoch"], again["model"]["weight"].sum().item())
    #> 7 6.0
    ```

    Tensors go into a safetensors file, which every tool that knows the format can read. What else
    the state holds goes into the seal beside it, as JSON that you can read, with the file's digest.

    Args:
        path: a new file, whose name ends in `.safetensors`. Nothing is overwritten.
        state: a state dict, or a dict of those and of plain values: epoch, learning rate, RNG.
        key: the key to seal it with.
        name: the name that the seal is bound to. Left out, it is the file's.
        app: what wrote it, as it should stand in the seal.
        limits: what readers will accept. A file that is over them is not written.

    Returns:
        The digest of the file.

    Raises:
        ModelUnsupported: it holds what safetensors cannot, and the message says what and why.
        EncodeError: the rest holds a value that could not be restored.
        Conflict: the file exists.
        LimitExceeded: it is over a limit.
        InvalidId: the name cannot be that of a model. Pass another.
        StorageFull: there is no room; nothing was saved.
        StorageUnavailable: the folder cannot be written.
        MissingPackage: PyTorch or safetensors is not installed.
        ConfigurationError: the path or the key is of the wrong kind.
    """
    target = target_of(path)
    model = name_of(target, name)
    packed = pack(state)
    # Before any byte is written: a key or an app that cannot be used is told now.
    make_seal(Sealed(model, "sha256-tree:" + "0" * 64, 0, packed.rest), key, app=app)
    with slot(target) as place:
        with translated("save to", target):
            write_into(place.file.fileno(), packed.tensors)
        return finish(place, model, packed.rest, key, app, limits).digest


def seal_model(
    path: str | os.PathLike[str],
    *,
    key: SigningKey,
    name: str | None = None,
    app: str = "",
    limits: ModelLimits = DEFAULT_MODEL_LIMITS,
) -> str:
    """Seal a model file that is there, whatever its format, and leave it as it is.

    A seal says who vouches for these bytes. It does not make them safe: what you seal, and others
    then load with `safe=False`, runs with their rights.

    Args:
        path: the file. The seal goes beside it.
        key: the key to seal it with.
        name: the name that the seal is bound to. Left out, it is the file's.
        app: what made the model, as it should stand in the seal.
        limits: what is too large.

    Returns:
        The digest of the file.

    Raises:
        Conflict: it has a seal.
        ModelMalformed: it is empty, two things at once, or not what its name says.
        CheckpointError: it cannot be read, or the seal cannot be written.
    """
    with open_model(path, limits) as model:
        sealed = Sealed(name_of(model.path, name), model.digest(), model.size)
        publish_seal(model.path, make_seal(sealed, key, app=app))
    return sealed.digest


def target_of(path: str | os.PathLike[str]) -> str:
    """Return the path of a file to be, if its name says what it will be.

    Raises:
        ConfigurationError: it ends otherwise, or is no path.
    """
    target = str(Path(path_of(path)))  # without a slash at its end
    if Path(target).suffix.lower() != SAFETENSORS:
        raise ConfigurationError(
            f"{shell(target)} does not end in {SAFETENSORS}, which is what it will be.",
            f"Write {shell(str(Path(target).with_suffix(SAFETENSORS)))}",
        )
    return target


def finish(
    place: Slot, name: str, rest: bytes | None, key: SigningKey, app: str, limits: ModelLimits
) -> Sealed:
    """Look at what was written as a reader will, seal it, and give it its name."""
    with translated("save to", place.path):
        written = open_tensorfile(place.file, limits, private=True)
    written.table()
    sealed = Sealed(name, written.digest(), len(written.buffer), rest)
    place.publish(make_seal(sealed, key, app=app))
    return sealed
