"""Models written: tensors as safetensors, the rest as JSON, one seal over both.

A model and its seal appear together, or not at all, and never over another. The tensors are written
and synced under a name that begins with `.safepoint-model-`. Then comes the seal, under its own
name, and last the model's name: from that instant on there is a checkpoint. A crash before it
leaves a seal without a model, which is nothing; the next save sets it aside. What a crash leaves
under a temporary name, the next save in that folder removes.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from safepoint import _files as _posix
from safepoint.errors import ConfigurationError, Conflict, StorageUnavailable, shell
from safepoint.keys import Keyring, SigningKey
from safepoint.models.isolated import load_apart
from safepoint.models.limits import DEFAULT_MODEL_LIMITS, ModelLimits
from safepoint.models.loading import (
    SAFETENSORS,
    ModelFile,
    about,
    check_flags,
    in_memory,
    named_tensors,
    open_model,
    path_text,
    say_unrestricted,
    verified,
)
from safepoint.models.look import Kind
from safepoint.models.packing import pack, unpack
from safepoint.models.schema import Schema
from safepoint.models.seals import ENDING, Sealed, check_rest, digest, make_seal, name_of
from safepoint.models.tensors import buffer_of, open_tensors, read_table, write_all, write_into

_TEMP: Final = ".safepoint-model-"
_TEMP_NAME: Final = re.compile(re.escape(_TEMP) + r"[0-9a-f]{32}\Z")
_CREATE: Final = (
    os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)
_PATIENCE: Final = 60.0
_NO_DIGEST: Final = "sha256-tree:" + "0" * 64


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
    from safepoint.models import load_checkpoint, save_checkpoint

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
    target = _target(path)
    model = name_of(target, name)
    packed = pack(state)
    # Before any byte is written: a key or an app that cannot be used is told now.
    make_seal(Sealed(model, _NO_DIGEST, 1, packed.rest), key, app=app)
    with _slot(target) as slot:
        with _posix.translated("save to", target):
            write_into(slot.file.fileno(), packed.tensors)
        return _finish(slot, model, packed.rest, key, app, limits).digest


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
    with open_model(path, limits, load=False) as model:
        sealed = Sealed(name_of(model.path, name), model.digest(), model.size)
        seal = make_seal(sealed, key, app=app)
        _posix.require_posix()
        with (
            _folder_of(model.path) as folder,
            _posix.translated("save to", model.path + ENDING),
            _locked(folder),
        ):
            try:
                _put_seal(folder, Path(model.path).name, seal)
            except FileExistsError:
                raise Conflict(
                    f"{model.shown} has a seal already.",
                    "Verify it instead; to seal the file anew, move"
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
    check_flags(safe=safe)
    path = _target(target)
    model_name = name_of(path, name)
    make_seal(Sealed(model_name, _NO_DIGEST, 1), key, app=app)
    with in_memory(source), open_model(source, limits) as model:
        sealed = verified(model, keys, name)
        if sealed is None and safe is False and model.kind is not Kind.SAFETENSORS:
            say_unrestricted(model)
        with _slot(path) as slot, tempfile.TemporaryFile() as rest:
            watch = _watched(slot.file.fileno(), model, progress)
            load_apart(model, slot.file, rest, limits=limits, safe=safe, watch=watch)
            tensors = open_tensors(slot.file, limits, private=True)
            text = check_rest(rest)
            state = unpack(tensors, text)  # what is sealed can be loaded
            if schema is not None:
                with about(model.shown):
                    schema.check(named_tensors(state))
            done = _finish(slot, model_name, text, key, app, limits)
            if progress is not None:
                progress(model.size, model.size)
    return Converted(path, done.digest, len(tensors), done.size)


def _watched(
    descriptor: int, model: ModelFile, progress: Callable[[int, int], None] | None
) -> Callable[[], Any] | None:
    if progress is None:
        return None
    return lambda: progress(min(os.fstat(descriptor).st_size, model.size), model.size)


def _target(path: str | os.PathLike[str]) -> str:
    """Return the path of a file to be, if its name says what it will be."""
    target = str(Path(path_text(path)))  # without a slash at its end
    if Path(target).suffix.lower() != SAFETENSORS:
        raise ConfigurationError(
            f"{shell(target)} does not end in {SAFETENSORS}, which is what it will be.",
            f"Write {shell(str(Path(target).with_suffix(SAFETENSORS)))}",
        )
    return target


def _finish(
    slot: _Slot, name: str, rest: bytes, key: SigningKey, app: str, limits: ModelLimits
) -> Sealed:
    """Look at what was written as a reader will, seal it, and give it its name."""
    with _posix.translated("save to", slot.path):
        buffer = buffer_of(slot.file, limits, private=True)
    read_table(buffer, len(buffer), limits)
    sealed = Sealed(name, digest(buffer), len(buffer), rest)
    slot.publish(make_seal(sealed, key, app=app))
    return sealed


class _Slot:
    """A file in the making, beside where it will be."""

    def __init__(self, path: str, folder: int, temp: str, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self._folder = folder
        self._temp = temp

    def publish(self, seal: bytes) -> None:
        """Give the file its name, and put its seal beside it.

        Raises:
            Conflict: something of that name appeared meanwhile.
            StorageFull: there is no room.
            StorageUnavailable: another step failed. Nothing appears under the name.
        """
        folder, name = self._folder, Path(self.path).name
        with _posix.translated("save to", self.path):
            os.fsync(self.file.fileno())
            with _locked(folder):
                _check_free(self.path, name, folder)
                with _set_aside(name + ENDING, folder):
                    _put_seal(folder, name, seal)
                    try:
                        os.link(self._temp, name, src_dir_fd=folder, dst_dir_fd=folder)
                        _sync(folder, name)
                    except BaseException as error:
                        _remove(name + ENDING, folder)
                        if isinstance(error, FileExistsError):
                            raise _taken(self.path) from None
                        raise


@contextmanager
def _slot(path: str) -> Iterator[_Slot]:
    """Make room for a model file: a temporary one in the same folder, gone at the end."""
    _posix.require_posix()
    with _folder_of(path) as folder:
        _check_free(path, Path(path).name, folder)
        temp = f"{_TEMP}{secrets.token_hex(16)}"
        with _posix.translated("save to", path), _locked(folder):
            _clean(folder)
            fd = os.open(temp, _CREATE, 0o600, dir_fd=folder)
            _posix.try_lock(fd)  # so that nobody takes it for a left-over
        try:
            with os.fdopen(fd, "r+b", buffering=0) as file:
                os.fchmod(fd, 0o600)  # whatever the umask
                yield _Slot(path, folder, temp, file)
        finally:
            _remove(temp, folder)


def _clean(folder: int) -> None:
    """Remove what crashed savers left. A living one holds a lock on its own."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if _TEMP_NAME.match(entry.name)]
    for name in names:
        # A left-over harms nobody, so one that cannot be removed is no reason to stop.
        with suppress(OSError), _posix.opened(name, _posix.READ, folder) as fd:
            if _posix.try_lock(fd):
                os.unlink(name, dir_fd=folder)


def _put_seal(folder: int, name: str, seal: bytes) -> None:
    """Make a seal appear, whole and on disk, and never over another.

    Raises:
        FileExistsError: there is one.
        OSError: another step failed. Nothing is left behind.
    """
    temp = f"{_TEMP}{secrets.token_hex(16)}"
    try:
        with _posix.opened(temp, _CREATE, folder) as descriptor:
            os.fchmod(descriptor, 0o600)  # whatever the umask
            write_all(descriptor, seal)
            os.fsync(descriptor)
        os.link(temp, name + ENDING, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        _sync(folder, name + ENDING)
    finally:
        _remove(temp, folder)


def _sync(folder: int, new: str) -> None:
    """Bring the name of a new file to disk, or take it back."""
    try:
        os.fsync(folder)
    except BaseException:
        _remove(new, folder)
        raise


@contextmanager
def _set_aside(name: str, folder: int) -> Iterator[None]:
    """Keep a seal whose model is gone under another name: it may hold the rest of a checkpoint."""
    aside = f"{name}.{secrets.token_hex(4)}"
    with suppress(FileNotFoundError):
        if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.link(aside, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(aside, dir_fd=folder)
        raise


def _remove(name: str, folder: int) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


@contextmanager
def _locked(folder: int) -> Iterator[None]:
    if not _posix.wait_for_lock(folder, _PATIENCE):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    try:
        yield
    finally:
        _posix.unlock(folder)


@contextmanager
def _folder_of(path: str) -> Iterator[int]:
    folder = str(Path(path).parent)
    try:
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError as error:
        raise StorageUnavailable(
            f"The folder {shell(folder)} cannot be opened ({error.strerror}).",
            f"Make it first: mkdir -p -m 700 {shell(folder)}",
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_free(path: str, name: str, folder: int) -> None:
    # By descriptor: the path may lead elsewhere by now.
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _posix.translate(error, "save to", path) from None
    raise _taken(path)


def _taken(path: str) -> Conflict:
    return Conflict(
        f"{shell(path)} exists, and a checkpoint is never overwritten.",
        "Nothing was saved. Give the new one a name of its own, with the epoch or the date in it.",
    )
