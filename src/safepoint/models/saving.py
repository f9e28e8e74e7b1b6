"""Models written: tensors as safetensors, the rest in the seal over both.

A model and its seal appear together, or not at all and never over another. The tensors are written
and synced under a name that begins with `.safepoint-model-`. Then comes the seal, under its own
name, and last the model's name: from that instant on there is a checkpoint. A crash before it
leaves a seal without a model, which is nothing; the next save replaces it. What a crash leaves
under a temporary name, the next save in that folder removes.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from safepoint.core import files
from safepoint.core.errors import ConfigurationError, Conflict, shell
from safepoint.core.keys import Keyring, SigningKey
from safepoint.models.limits import DEFAULT_MODEL_LIMITS, ModelLimits
from safepoint.models.loading import SAFETENSORS, open_model, restricted
from safepoint.models.packing import write_packed
from safepoint.models.seals import ENDING, Sealed, digest, make_seal, name_of
from safepoint.models.tensors import PREFIX, read_table
from safepoint.stores import disk

_TEMP: Final = ".safepoint-model-"
_TEMP_NAME: Final = re.compile(re.escape(_TEMP) + r"[0-9a-f]{32}\Z")
_CREATE: Final = os.O_RDWR | files.CREATE & ~os.O_WRONLY


def save_checkpoint(
    path: str | os.PathLike[str],
    state: Any,
    *,
    key: SigningKey,
    name: str | None = None,
    app: str = "",
) -> str:
    """Save a model, or all that a training run needs to continue, in files that cannot execute.

    ```python
    import torch

    from safepoint import Keyring, SigningKey
    from safepoint.models import load_checkpoint, save_checkpoint

    key = SigningKey.generate()
    state = {"model": {"weight": torch.ones(2, 3)}, "epoch": 7}
    save_checkpoint("run-7.safetensors", state, key=key)

    again = load_checkpoint("run-7.safetensors", keys=Keyring(key))
    print(again["epoch"], again["model"]["weight"].sum().item())
    #> 7 6.0
    ```

    Tensors go into a safetensors file, which every tool that knows the format can read. What else
    the state holds goes into the seal next to it, as JSON that you can read, with the file's
    digest.

    Args:
        path: a new file, whose name ends in `.safetensors`. Nothing is overwritten.
        state: a state dict, or a dict of those and of plain values: epoch, learning rate, RNG.
        key: the key to seal it with.
        name: the name that the seal is bound to. Left out, it is the file's.
        app: what wrote it, as it should be in the seal.

    Returns:
        The digest of the file.

    Raises:
        ModelRefused: it holds what safetensors cannot, and the message says what and why.
        EncodeError: the rest holds a value that could not be restored.
        Conflict: the file exists.
        LimitExceeded: it is over a limit.
        Unavailable: there is no room; nothing was saved; or the folder cannot be written.
        MissingPackage: PyTorch or safetensors is not installed.
        ConfigurationError: the name of the file ends otherwise.
    """
    target = _target(path)
    write = partial(write_packed, state)
    return _publish(target, name_of(target, name), key, write, app=app).digest


def seal_model(path: str | os.PathLike[str], *, key: SigningKey, name: str | None = None) -> str:
    """Seal a model file that is there, whatever its format, and leave it as it is.

    A seal says who vouches for these bytes. It does not make them safe: what you seal, and others
    then load with `safe=False`, runs with their rights.

    Args:
        path: the file. The seal goes next to it.
        key: the key to seal it with.
        name: the name that the seal is bound to. Left out, it is the file's.

    Returns:
        The digest of the file.

    Raises:
        Conflict: it has a seal.
        ModelRefused: it is empty, two things at once, or not what its name says.
        CheckpointError: it cannot be read, or the seal cannot be written.
    """
    with open_model(path, DEFAULT_MODEL_LIMITS, load=False) as model:
        sealed = Sealed(name_of(model.path, name), digest(model.file, model.size), model.size)
        seal = make_seal(sealed, key)
        with _folder_of(model.path + ENDING) as folder:
            try:
                disk.put(model.path + ENDING, folder, seal, temp=_temp())
            except FileExistsError:
                raise Conflict(
                    f"{shell(model.path)} has a seal already.",
                    "Verify it instead; to seal the file again, move"
                    f" {shell(model.path + ENDING)} away.",
                ) from None
    return sealed.digest


class Converted(NamedTuple):
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
    keys: Keyring | None = None,
    limits: ModelLimits = DEFAULT_MODEL_LIMITS,
) -> Converted:
    """Turn what `torch.save` wrote into a sealed safetensors file, equal to the last bit.

    The file is read as data. The tensors are written, read back, and compared, each with what was
    loaded; then the result is sealed. The original stays as it is.

    ```python
    import torch

    from safepoint import Keyring, SigningKey
    from safepoint.models import convert, load_checkpoint

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
        name: the name that the seals are bound to: the new one, and with `keys` the old one as
            well. Left out, each has the name of its file.
        keys: verify the seal of the old file first.
        limits: what is too large.

    Raises:
        ModelRefused: it holds what safetensors cannot, and the message says what and why.
        CheckpointError: whatever `load_checkpoint` and `save_checkpoint` raise.
    """
    path = _target(target)
    new = name_of(path, name)
    with open_model(source, limits, keys, name) as model:

        def write(file: BinaryIO) -> bytes:
            return write_packed(restricted(model, limits)[0], file, limits)

        return _publish(path, new, key, write, limits)


def _target(path: str | os.PathLike[str]) -> str:
    """Return the path of a file to be, if its name says what it will be."""
    target = str(Path(path))  # without a slash at its end
    if Path(target).suffix.lower() != SAFETENSORS:
        raise ConfigurationError(
            f"{shell(target)} does not end in {SAFETENSORS}, which is what it will be.",
            f"Write {shell(target + SAFETENSORS)}",
        )
    return target


def _publish(
    path: str,
    model: str,
    key: SigningKey,
    write: Callable[[BinaryIO], bytes],
    limits: ModelLimits = DEFAULT_MODEL_LIMITS,
    app: str = "",
) -> Converted:
    """Let `write` fill a file and return the rest, look at it as a reader will, and seal it.

    Raises:
        Conflict: something of that name is there.
        Unavailable: there is no room; or another step failed. Nothing appears under the name.
    """
    temp, parent = _temp(), str(Path(path).parent)
    with _folder_of(path) as folder:
        with disk.locked(folder, parent):
            _check_free(path, folder)
            _clean(folder)
            fd = os.open(temp, _CREATE, 0o600, dir_fd=folder)
            disk.try_lock(fd)  # so that nobody takes it for a left-over
        try:
            with os.fdopen(fd, "r+b", buffering=0) as file:
                os.fchmod(fd, 0o600)  # whatever the umask
                rest = write(file)
                size = file.seek(0, os.SEEK_END)
                length = int.from_bytes(os.pread(fd, PREFIX, 0), "little")
                head = os.pread(fd, PREFIX + min(length, limits.header_bytes), 0)
                tensors = len(read_table(head, size, limits))
                sealed = Sealed(model, digest(file, size), size, rest)
                os.fsync(fd)
                with disk.locked(folder, parent):
                    _check_free(path, folder)
                    _name(path, temp, folder, make_seal(sealed, key, app=app))
        finally:
            _remove(temp, folder)
    return Converted(path, sealed.digest, tensors, size)


def _name(path: str, temp: str, folder: int, seal: bytes) -> None:
    """Give both their names: the seal first, since a model counts once it is there."""
    name = Path(path).name
    made = [name + ENDING]
    try:
        disk.put(path + ENDING, folder, seal, over=True, temp=_temp())  # over what a crash left
        os.link(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
        made.append(name)
        os.fsync(folder)
    except BaseException:
        for each in reversed(made):
            _remove(each, folder)
        _check_free(path, folder)
        raise


def _check_free(path: str, folder: int) -> None:
    if disk.exists(Path(path).name, folder):  # by descriptor
        raise Conflict(
            f"{shell(path)} exists, and a checkpoint is never overwritten.",
            "Nothing was saved. Give the new one a name of its own, with the epoch or the date"
            " in it.",
        )


def _temp() -> str:
    return f"{_TEMP}{secrets.token_hex(16)}"


def _clean(folder: int) -> None:
    """Remove what crashed savers left. A living one holds a lock on its own."""
    for name in filter(_TEMP_NAME.match, os.listdir(folder)):
        # A left-over harms nobody, so one that cannot be removed is no reason to stop.
        with suppress(OSError), disk.opened(name, files.READ, folder) as fd:
            if disk.try_lock(fd):
                os.unlink(name, dir_fd=folder)


def _remove(name: str, folder: int) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


@contextmanager
def _folder_of(path: str) -> Iterator[int]:
    disk.require_posix()
    folder = str(Path(path).parent)
    gone = (f"{shell(folder)} does not exist.", f"Make it: mkdir -p -m 700 {shell(folder)}")
    flags = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
    with disk.translated("save to", path, gone=gone), disk.opened(folder, flags) as descriptor:
        yield descriptor
