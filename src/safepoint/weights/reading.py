"""The two ways to read a model file: restricted, and unrestricted.

Each has its own call of `torch.load` with its own literal, so that a person and a linter see at
once what happens. Neither ever falls back to the other.
"""

from __future__ import annotations

from typing import Any, Final

from safepoint.errors import (
    CheckpointError,
    LimitExceeded,
    ModelError,
    ModelMalformed,
    UnsafeModel,
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
        return torch.load(model.file, weights_only=True, map_location="cpu")
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
        command = f"python -m safepoint.weights convert {model.shown} NEW.safetensors --key KEY"
        raise UnsafeModel(
            error.what, f"{error.do} Or convert it once: {command} --trusted"
        ) from None


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
            f"{_OTHER_WAYS.get(model.kind, 'Check that this is the file.')}",
        )


def wants_memory(error: Exception) -> bool:
    """Tell whether there was not enough memory, in the words of Python, PyTorch and the system."""
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY)


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
    kind = ModelError if isinstance(error, (OSError, ImportError)) else ModelMalformed
    return kind(
        f"PyTorch could not load {model.shown} ({type(error).__name__}).",
        "Nothing was loaded. Copy it again; if that does not help, ask whoever made it.",
    )
