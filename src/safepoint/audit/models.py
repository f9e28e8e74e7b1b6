"""Are the models in a folder files that cannot execute? By their bytes: nothing is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from safepoint.audit.files import Closed, existing_folder, files
from safepoint.audit.finding import Finding, shortened
from safepoint.errors import (
    LimitExceeded,
    MissingPackage,
    ModelError,
    StorageUnavailable,
    UnsafeModel,
    UnsafeRuntime,
    shell,
)
from safepoint.models.limits import DEFAULT_MODEL_LIMITS
from safepoint.models.loading import SAFETENSORS, ModelFile, open_model, planned
from safepoint.models.look import Kind
from safepoint.models.runtime import check_runtime
from safepoint.models.seals import seal_beside
from safepoint.models.tensors import package

_MODELS: Final = frozenset([".pt", ".pth", ".ckpt", ".bin", SAFETENSORS])
_TORCH: Final = (Kind.TORCH_ZIP, Kind.TORCH_LEGACY)
_DISTRUST: Final = "Do not load it, unless you made it: then convert it with --trusted."
_SEAL: Final = "Seal it where it is made: safepoint seal-model FILE --key KEY"
_CONVERT: Final = "Convert it once: safepoint convert FILE NEW --key KEY"


def check_torch() -> list[Finding]:
    """Look whether the PyTorch of this environment keeps the promise of `weights_only`.

    Returns:
        An error under SP23 if it does not. Nothing if there is no PyTorch.
    """
    try:
        check_runtime(package())
    except MissingPackage:
        return []
    except UnsafeRuntime as error:
        do = error.do.removeprefix("Nothing was loaded. ")
        return [Finding("SP23", "error", error.what, do, "torch")]
    return []


def check_models(folder: str | os.PathLike[str]) -> list[Finding]:
    """Look at every model below `folder`. Symbolic links are not followed.

    ```python
    from pathlib import Path

    import torch

    from safepoint.audit import check_models

    Path("models").mkdir(mode=0o700)
    torch.save({"weight": torch.ones(2)}, "models/net.pt")
    for finding in check_models("models"):
        print(finding.rule, finding.severity, finding.what.split("/models/")[1])
        #> SP25 warning net.pt is a PyTorch archive, and holds nothing but tensors and plain values.
        #> SP24 note net.pt has no seal.
    ```

    Returns:
        Under SP24 an error for each that wants more than data, a note for each without a seal;
        under SP25 an error for each that is not what its name says, a warning for each that could
        be safetensors; and a warning for what could not be looked at.

    Raises:
        StorageUnavailable: there is no such folder.
    """
    root = existing_folder(folder)
    closed = Closed()
    findings: list[Finding] = []
    for file in files(root, closed):
        if Path(file).suffix.lower() in _MODELS:
            try:
                findings += _look(file)
            except StorageUnavailable as error:
                closed[file] = error.what
    return [*shortened(findings, "SP25", root), *closed.findings("SP25", root)]


def _look(file: str) -> Iterator[Finding]:
    try:
        with open_model(file, DEFAULT_MODEL_LIMITS, load=False) as model:
            yield from _judged(model)
    except UnsafeModel as error:
        yield Finding("SP24", "error", error.what, _DISTRUST, file)
    except (ModelError, LimitExceeded) as error:
        yield Finding("SP25", "error", error.what, _DISTRUST, file)
    if seal_beside(file) is None:
        yield Finding("SP24", "note", f"{shell(file)} has no seal.", _SEAL, file)


def _judged(model: ModelFile) -> Iterator[Finding]:
    if model.kind is Kind.SAFETENSORS:
        planned(model, DEFAULT_MODEL_LIMITS)
        return
    if model.kind not in _TORCH:
        what = f"{model.shown} is {model.kind.sentence}, and has the name of a model."
        yield Finding(
            "SP25", "warning", what, "Find out what it is before you load it.", model.path
        )
        return
    planned(model, DEFAULT_MODEL_LIMITS)
    what = (
        f"{model.shown} is {model.kind.sentence}, and holds nothing but tensors and plain values."
    )
    yield Finding("SP25", "warning", what, _CONVERT, model.path)
