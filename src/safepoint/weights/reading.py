"""The two ways to read a model file: restricted, and unrestricted.

Each has its own call of `torch.load` with its own literal, so that a person and a linter see at
once what happens. Neither ever falls back to the other.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from safepoint.errors import (
    CheckpointError,
    LimitExceeded,
    ModelError,
    ModelMalformed,
    UnsafeModel,
    shell,
)
from safepoint.pickles.kinds import Kind
from safepoint.weights import _packages
from safepoint.weights.files import ModelFile, about, unknown
from safepoint.weights.limits import ModelLimits
from safepoint.weights.plan import Plan, read_plan
from safepoint.weights.runtime import check_runtime, has_flag
from safepoint.weights.schema import Schema
from safepoint.weights.tensorfile import open_tensorfile

_TORCH: Final = (Kind.TORCH_ZIP, Kind.TORCH_LEGACY)
_OTHER_WAYS: Final = {
    Kind.TORCH_SCRIPT: "It is a program. Ask for the weights alone: a state_dict, as safetensors.",
    Kind.TORCH_TAR: "PyTorch before 0.1.10 wrote it. Load it where it was made, and save it anew.",
    Kind.PICKLE: "See what it wants: python -m safepoint.pickles inspect FILE",
    Kind.PICKLES: "See what it wants: python -m safepoint.pickles inspect FILE",
    Kind.SEALED: "Name the model; its seal stands beside it.",
}
_CONVERT: Final = (
    "Or convert it, if you made it yourself and nobody can have changed it:"
    " python -m safepoint.weights convert --trusted"
)
_NO_MEMORY: Final = ("can't allocate memory", "Cannot allocate memory", "bad_alloc")


def restricted(model: ModelFile, schema: Schema | None, limits: ModelLimits) -> Any:
    """Load what can be loaded without running code, and nothing else.

    Raises:
        UnsafeRuntime: this PyTorch cannot keep the promise of `weights_only`.
        UnsafeModel: the file wants more than data.
        ModelMalformed: it is damaged, or of no format that is loaded.
        ModelMismatch: its tensors are not those of the schema.
        LimitExceeded: it is over a limit.
        MissingPackage: PyTorch is not installed.
    """
    torch = _packages.torch()
    if model.kind is Kind.SAFETENSORS:
        return _tensors(model, schema, limits)
    check_kind(model)
    check_runtime(torch)
    # What the file would build is known, and within the limits, before PyTorch sees a byte of it.
    with about(model.shown):
        plan = _planned(model, limits)
        if schema is not None:
            schema.check(plan.tensors)
    model.file.seek(0)
    try:
        return torch.load(model.file, weights_only=True, map_location="cpu", mmap=False)
    except Exception as error:  # noqa: BLE001  it raises whatever a file makes it raise
        problem = _translated(model, error)
    raise problem


def unrestricted(model: ModelFile, limits: ModelLimits) -> Any:
    """Load a file that is trusted, and let it run what it wants.

    Raises:
        ModelMalformed: it is of no format that is loaded.
        ModelError: loading it raised something.
        MissingPackage: PyTorch is not installed.
    """
    torch = _packages.torch()
    if model.kind is Kind.SAFETENSORS:
        return _tensors(model, None, limits)
    check_kind(model)
    model.file.seek(0)
    try:
        if has_flag(torch):
            # safepoint: allow SL02 asked for by safe=False, and said aloud
            return torch.load(model.file, weights_only=False, map_location="cpu")
        # safepoint: allow SL01 the same, from before there was a flag
        return torch.load(model.file, map_location="cpu")
    except Exception as error:  # noqa: BLE001  it raises whatever a file makes it raise
        problem = _translated(model, error)
    raise problem


def _tensors(model: ModelFile, schema: Schema | None, limits: ModelLimits) -> Any:
    with about(model.shown):
        found = open_tensorfile(model.file, limits, private=model.private)
        table = found.table()
        if schema is not None:
            schema.check(table.tensors)
        return found.tensors()


def _planned(model: ModelFile, limits: ModelLimits) -> Plan:
    try:
        return read_plan(model.file, model.kind, limits)
    except UnsafeModel as error:
        if " wants " not in error.what:
            raise  # a kind of tensor that no conversion keeps
        raise UnsafeModel(error.what, f"{error.do} {_CONVERT}") from None


def check_kind(model: ModelFile) -> None:
    """Go on if it is of a format of PyTorch that is loaded.

    Raises:
        UnsafeModel: it is a program.
        ModelMalformed: it is something else.
    """
    if model.kind is Kind.UNKNOWN:
        raise unknown(model.path)
    if model.kind not in _TORCH:
        refuse = UnsafeModel if model.kind is Kind.TORCH_SCRIPT else ModelMalformed
        raise refuse(
            f"{model.shown} is {model.kind.sentence}, which is not loaded.",
            _OTHER_WAYS.get(model.kind, "Check that this is the file."),
        )


def wants_memory(error: Exception) -> bool:
    """Tell whether there was not enough memory, in the words of Python, PyTorch and the system."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or any(sign in str(error) for sign in _NO_MEMORY)
    )


@contextmanager
def in_memory(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn running out of memory, at whatever point, into our error.

    Raises:
        LimitExceeded: there was not enough.
    """
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        if not wants_memory(error):
            raise
    else:
        return
    raise no_memory(shell(os.fspath(path))) from None


def no_memory(shown: str) -> LimitExceeded:
    """Return the error for that."""
    return LimitExceeded(
        f"{shown} does not fit into the memory.",
        "Nothing was loaded. Load it where there is more, or in parts.",
    )


def _translated(model: ModelFile, error: Exception) -> CheckpointError:
    """Return one of our errors. What PyTorch says may quote the file, so it is not repeated."""
    if isinstance(error, CheckpointError):
        return error
    if wants_memory(error):
        return no_memory(model.shown)
    if isinstance(error, (ImportError, AttributeError)):
        return ModelError(
            f"{model.shown} needs a class or a function that is not here ({type(error).__name__}).",
            "Load it where the code that made it can be imported.",
        )
    kind = ModelError if isinstance(error, OSError) else ModelMalformed
    return kind(
        f"PyTorch could not load {model.shown} ({type(error).__name__}).",
        "Nothing was loaded. Copy it again; if that does not help, ask whoever made it.",
    )
