"""load_checkpoint: a model from a file, without code from the file.

The order of work: open the file and say what it is by its content, verify its seal if there are
keys, and only then read it, as data. `torch.load` is called for `safe=False` alone, with its own
literal, so that a person and a linter see at once what happens. Neither way ever falls back to the
other.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    LimitExceeded,
    ModelRefused,
    SealBroken,
    shell,
)
from safepoint.core.keys import Keyring
from safepoint.models.limits import DEFAULT_MODEL_LIMITS, ModelLimits, over
from safepoint.models.look import Format, identified, opened
from safepoint.models.opcodes import read_at
from safepoint.models.packing import unpack
from safepoint.models.reader import Tensors, named_tensors, read_model
from safepoint.models.runtime import check_runtime, has_flag
from safepoint.models.seals import Sealed, digest, read_seal, seal_beside
from safepoint.models.tensors import PREFIX, open_tensors, package, read_table
from safepoint.models.zips import Member

SAFETENSORS: Final = ".safetensors"
_LOADED: Final = (Format.TORCH_ZIP, Format.TORCH_LEGACY, Format.SAFETENSORS)
_TORCH_NAMES: Final = frozenset([".pt", ".pth", ".ckpt", ".bin"])
MODEL_NAMES: Final = _TORCH_NAMES | {
    *(SAFETENSORS, ".pkl", ".pickle", ".joblib", ".h5", ".hdf5", ".keras", ".gguf", ".onnx"),
}
"""How the names of models end. A file of no known format under one of them is not the model."""
_ABOUT: Final = re.compile(r"\AThe (?:safetensors file|file|archive)\b")
_NO_MEMORY: Final = ("can't allocate memory", "Cannot allocate memory", "bad_alloc")


class UnrestrictedLoad(UserWarning):
    """A file was loaded that may run code and nothing verified who made it."""


def load_checkpoint(
    path: str | os.PathLike[str],
    *,
    safe: bool = True,
    keys: Keyring | None = None,
    name: str | None = None,
    limits: ModelLimits = DEFAULT_MODEL_LIMITS,
) -> Any:
    """Load a model: a safetensors file, or what `torch.save` wrote.

    ```python
    import torch

    from safepoint.models import load_checkpoint

    torch.save({"weight": torch.ones(2, 3)}, "model.pt")
    print(load_checkpoint("model.pt")["weight"].shape)
    #> torch.Size([2, 3])
    ```

    With `safe=True` no code of the file runs: it is read as data, within the limits. Where PyTorch
    itself could not keep the promise of `weights_only`, this raises. It never falls back.

    Args:
        path: the file. What it is, its content decides and never its name.
        safe: False loads a PyTorch file without restriction, for artefacts that you trust. Give
            `keys` as the reason for your trust; without them it says that there is none.
        keys: verify the seal next to the file first, and refuse the file without one. With them
            you also get back the rest of what `save_checkpoint` saved.
        name: the name that the seal must be of. Left out, it is the file's.
        limits: what is too large.

    Raises:
        Unsafe: this PyTorch cannot keep the promise of `weights_only`.
        ModelRefused: the file wants more than data; or it is damaged, or of no format that is
            loaded, or not what its name says.
        LimitExceeded: it is over a limit.
        SealBroken: its seal is not genuine, or of something else.
        NotFound: it does not exist; or there are keys and no seal.
        Unavailable: it cannot be read.
        MissingPackage: PyTorch is not installed.
        ConfigurationError: there is a seal and no keys.
    """
    with open_model(path, limits, keys, name, safe=safe) as model:
        # The literal, and nothing that is only false.
        is_free = safe is False and model.kind is not Format.SAFETENSORS
        state = _unrestricted(model) if is_free else restricted(model, limits)[0]
        rest = model.sealed and model.sealed.rest
        return state if rest is None else unpack(state, rest)


def load_tensors(
    path: str | os.PathLike[str], *, limits: ModelLimits = DEFAULT_MODEL_LIMITS
) -> Tensors:
    """Load the tensors of a file that holds more than data and say what was left behind.

    For a file that you were given: a whole module, or a training state with classes in it. None
    of its code runs; each tensor has the way to it as its name, and `left` of the result names
    what is missing.

    ```python
    import torch

    from safepoint.models import load_tensors

    torch.save({"epoch": 3, "model": torch.nn.Linear(2, 2)}, "whole.pt")
    found = load_tensors("whole.pt")
    print(sorted(found), found.left)
    #> ['model/bias', 'model/weight'] {'torch.nn.modules.linear.Linear': 1}
    ```

    Args:
        path: the file.
        limits: what is too large.

    Raises:
        CheckpointError: as `load_checkpoint`, but for names that are not data.
    """
    with open_model(path, limits) as model:
        state, left = restricted(model, limits, only_tensors=True)
        return Tensors(named_tensors(state, package().Tensor), left)


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model file, open.

    Attributes:
        path: where it is.
        file: its bytes. If others could write the file, this is a copy.
        size: how many.
        kind: what it is, by its content.
        members: those of an archive.
        sealed: what its seal says, None if nobody verified it.
    """

    path: str
    file: IO[bytes]
    size: int
    kind: Format
    members: tuple[Member, ...] = ()
    sealed: Sealed | None = None


@contextmanager
def open_model(
    path: str | os.PathLike[str],
    limits: ModelLimits,
    keys: Keyring | None = None,
    named: str | None = None,
    *,
    load: bool = True,
    safe: bool = True,
) -> Iterator[ModelFile]:
    """Open a model file. If there are keys, its seal is verified before anything else is read.

    Everything after this looks at the same bytes: the same open file if nobody else can write it,
    else a copy, which is made once it is vouched for, or known what it is. Anyone who swaps or
    edits the file meanwhile changes nothing.

    Args:
        path: where it is.
        limits: how large it may be.
        keys: what its seal is verified with.
        named: the name that the seal must be of. Left out, it is the file's.
        load: whether it is to be loaded, so that it has to be of a format that is.
        safe: False warns of an unrestricted load that nothing vouches for.

    Raises:
        NotFound: it does not exist; or there are keys and no seal.
        Unavailable: it is a folder, a pipe or a device, or cannot be read.
        SealBroken: its seal is not genuine, or of another file.
        ConfigurationError: it is to be loaded, and there is a seal and no keys.
        LimitExceeded: it is larger than `limits.file_bytes`; or, at whatever point, the memory does
            not suffice.
        ModelRefused: it is empty, two things at once, not what its name says, or not loaded.
    """
    name = str(Path(path))
    with opened(name) as source, _about(shell(name)), ExitStack() as stack:
        file: IO[bytes] = source
        size = os.fstat(source.fileno()).st_size
        if load and size > limits.file_bytes:
            raise over(limits, "file_bytes")
        sealed = None if keys is None else read_seal(name, keys, named)
        found = _admitted(name, file, sealed, limits, load)
        seal = seal_beside(name) if load and keys is None else None
        if seal is not None:
            raise ConfigurationError(
                f"{shell(name)} has a seal, but no keys were given to verify it.",
                f"Pass keys=Keyring(…). To do without, move {shell(seal)} away.",
            )
        if load and not _is_private(source.fileno()):
            file = stack.enter_context(copied(source))
            found = _admitted(name, file, sealed, limits, load)
        if keys is None and safe is False and found[0] is not Format.SAFETENSORS:
            warnings.warn(
                f"{shell(name)} is loaded without restriction, so it can run code, and its author"
                " was not verified. Pass keys= to verify its seal, or convert it to"
                " safetensors.",
                UnrestrictedLoad,
                stacklevel=4,
            )
        yield ModelFile(name, file, size, *found, sealed)


def _admitted(
    name: str, file: IO[bytes], sealed: Sealed | None, limits: ModelLimits, load: bool
) -> tuple[Format, tuple[Member, ...]]:
    """Say what a file is, once it was verified if there is a seal, and if it may be loaded.

    A name that says otherwise than the content is refused: tools choose a loader by the name, and
    people trust a file by it.
    """
    size = file.seek(0, os.SEEK_END)
    if sealed is not None and (size != sealed.size or digest(file, size) != sealed.digest):
        raise SealBroken(
            f"{shell(name)} is not the file that was sealed.",
            "Nothing was loaded. Find out who can write it, then restore the one that verifies.",
        )
    kind, members = identified(file, model=limits)
    named = Path(name).suffix.lower()
    if kind is Format.UNKNOWN and named == SAFETENSORS and read_at(file, PREFIX, 1) == b"{":
        read_table(read_at(file, 0, limits.header_bytes), size, limits)  # says what is wrong
    if is_misnamed(name, kind) and kind not in (Format.EMPTY, Format.POINTER):
        what = f"{shell(name)} is {kind.sentence}, whatever its name says."
        ask = "Ask who named it; if that was you, give it the right ending."
        do = kind.do if kind is Format.UNKNOWN else ask
        raise ModelRefused(what, f"Nothing was loaded. {do}")
    if kind in _LOADED or not (load or kind is Format.EMPTY):
        return kind, members
    see = f"See what it is: safepoint scan {shell(name)}"
    do = see if kind in (Format.PICKLE, Format.PICKLES) else kind.do or see
    raise ModelRefused(f"{shell(name)} is {kind.sentence}, and is not loaded.", do)


def is_misnamed(path: str, kind: Format) -> bool:
    """Tell whether the name of a file says that it is safetensors or a pickle, and it is not."""
    suffix = Path(path).suffix.lower()
    return suffix in _TORCH_NAMES if kind is Format.SAFETENSORS else suffix == SAFETENSORS


@contextmanager
def copied(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Copy what others can write to a file without a name: in memory, where there are such."""
    with (
        os.fdopen(os.memfd_create("model"), "w+b")
        if hasattr(os, "memfd_create")
        else tempfile.TemporaryFile()
    ) as copy:
        file.seek(0)
        shutil.copyfileobj(file, copy, 1 << 20)
        copy.flush()
        yield copy


@contextmanager
def _about(shown: str) -> Iterator[None]:
    """Let a refusal say which file it is about, and a lack of memory be one."""
    try:
        yield
    except (ModelRefused, LimitExceeded) as error:
        if shown in error.what:
            raise
        what = error.what
        begins = _ABOUT.match(what)
        what = f"{shown}{what[begins.end() :]}" if begins else f"{shown}: {what}"
        raise type(error)(what, error.do) from None
    except CheckpointError:
        raise
    except Exception as error:
        if not wants_memory(error):
            raise
        raise LimitExceeded(
            f"{shown} does not fit into the memory.",
            "Nothing was loaded. Load it where there is more, or in parts.",
            "memory",
        ) from None


def _is_private(descriptor: int) -> bool:
    """Tell whether this user alone can write the file that is open.

    Root can, always. Anyone who writes as this user can reach into the process itself.
    """
    information = os.fstat(descriptor)
    return (
        os.name == "posix"
        and information.st_uid in (os.geteuid(), 0)
        and not information.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def restricted(
    model: ModelFile, limits: ModelLimits, *, only_tensors: bool = False
) -> tuple[Any, Mapping[str, int]]:
    """Load what can be loaded without running code, and name what was left behind.

    Args:
        model: the file.
        limits: what is too large.
        only_tensors: leave behind what is not data, in place of refusing it.

    Raises:
        Unsafe: this PyTorch cannot keep the promise of `weights_only`.
        ModelRefused: the file wants more than data; or it is damaged.
        LimitExceeded: it is over a limit.
        MissingPackage: PyTorch is not installed.
    """
    torch = package()
    if model.kind is Format.SAFETENSORS:
        return open_tensors(model.file, limits), {}
    check_runtime(torch)
    found = read_model(model.file, model.members, limits, torch, only_tensors=only_tensors)
    return found.state, found.left


def _unrestricted(model: ModelFile) -> Any:
    """Load a file that is trusted, and let it run what it wants.

    Raises:
        ModelRefused: loading it raised something.
        MissingPackage: PyTorch is not installed.
    """
    torch = package()
    model.file.seek(0)
    try:
        if has_flag(torch):
            # safepoint: allow SL02 asked for by safe=False, and said aloud
            return torch.load(model.file, weights_only=False, map_location="cpu")
        # safepoint: allow SL01 the same, from before there was a flag
        return torch.load(model.file, map_location="cpu")
    except Exception as error:
        if isinstance(error, CheckpointError) or wants_memory(error):
            raise
        # What PyTorch says may quote the file, so it is not repeated.
        raise ModelRefused(
            f"PyTorch could not load {shell(model.path)} ({type(error).__name__}).",
            "Nothing was loaded. Load it where the code that made it can be imported. If that is"
            " here, copy the file again.",
        ) from None


def wants_memory(error: Exception) -> bool:
    """Tell whether there was not enough memory, in the words of Python, PyTorch and the system."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or any(sign in str(error) for sign in _NO_MEMORY)
    )
