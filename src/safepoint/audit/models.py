"""Are the models in a folder files that cannot execute? By their bytes: nothing is loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from safepoint.audit.files import Closed, existing_folder, files
from safepoint.audit.finding import Finding, worst_first
from safepoint.errors import (
    MissingPackage,
    NotFound,
    StorageUnavailable,
    UnsafeRuntime,
    quoted,
    shell,
)
from safepoint.models import Classified, Kind, Verdict, classify
from safepoint.models.runtime import check_runtime
from safepoint.models.seals import seal_beside
from safepoint.models.tensors import package

# Content decides what a file is. A name can only make a file suspect that would be left alone.
_NAMES: Final = re.compile(
    r"\.(pt|pth|ckpt|bin|safetensors|pkl|pickle|joblib|h5|hdf5|keras)\Z", re.IGNORECASE
)
_TORCH: Final = frozenset([".pt", ".pth", ".ckpt", ".bin"])
_IT: Final = re.compile(r"(It|The file)(?= )")
_NAMED: Final = 3
_DISTRUST: Final = "Do not load it, unless you made it: then convert it with --trusted."
_SEAL: Final = "Seal it where it is made: safepoint seal-model FILE --key KEY"
_CONVERT: Final = "Convert it once: safepoint convert FILE NEW --key KEY"
_READ: Final = "Read it once, as data, with safepoint.models.read_pickle, and save it as JSON."
_FIND_OUT: Final = "Find out what it is before you load it."


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
    """Look at every file below `folder`. Content decides what it is, and never its name.

    Links to folders are not followed.

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
        All of it, the worst first. Under SP24 an error for each file that wants more than data, a
        note for each model without a seal; under SP25 an error for each that is not what its name
        says, or is damaged; a warning for each pickle of plain values, for what could be
        safetensors, and for what could not be looked at; a note that counts the files that are no
        models.

    Raises:
        StorageUnavailable: there is no such folder, or no model in it.
    """
    root = existing_folder(folder)
    closed = Closed()
    findings: list[Finding] = []
    looked, skipped = False, list[str]()
    for file in files(root, closed):
        try:
            found = classify(file)
        except (NotFound, StorageUnavailable) as error:
            closed[file] = error.what
            continue
        if found.kind is Kind.SEALED:
            continue  # it says of another file what it is
        judged = list(_judged(file, found))
        if judged or found.verdict is not Verdict.NOT_A_MODEL:
            looked = True
            findings += judged
        else:
            skipped.append(os.path.relpath(file, root))
    if not looked:
        raise _nothing(root, skipped, closed)
    if skipped:
        findings.append(_skipped(root, skipped))
    return worst_first([*findings, *closed.findings("SP25")])


def _judged(file: str, found: Classified) -> Iterator[Finding]:
    shown, suffix = shell(file), Path(file).suffix.lower()
    said = _IT.match(found.what)
    what = f"{shown}{found.what[said.end() :]}" if said else f"{shown}: {found.what}"
    verdict, kind = found.verdict, found.kind
    if verdict is Verdict.RUNS_CODE:
        yield Finding("SP24", "error", what, _DISTRUST, file)
    elif verdict is Verdict.REFUSED:
        yield Finding("SP25", "error", what, _DISTRUST, file)
    elif kind is not None and _lies(suffix, kind):
        what = f"{shown} is {kind.sentence}, whatever its name says."
        yield Finding("SP25", "error", what, _DISTRUST, file)
    elif verdict is Verdict.NOT_LOOKED_INTO:
        yield Finding("SP25", "warning", what, _FIND_OUT, file)
    elif verdict is Verdict.TORCH and kind is not None:
        what = f"{shown} is {kind.sentence}, and holds nothing but tensors and plain values."
        yield Finding("SP25", "warning", what, _CONVERT, file)
    elif verdict is Verdict.PICKLE and kind is not None:
        what = f"{shown} is {kind.sentence}, and what is pickled in it is plain values."
        yield Finding("SP25", "warning", what, _READ, file)
    elif verdict is Verdict.NOT_A_MODEL:
        if kind is None or not _NAMES.search(file):
            return
        what = f"{shown} is {kind.sentence}, and has the name of a model."
        yield Finding("SP25", "warning", what, _FIND_OUT, file)
    if seal_beside(file) is None:
        yield Finding("SP24", "note", f"{shown} has no seal.", _SEAL, file)


def _lies(suffix: str, kind: Kind) -> bool:
    is_safe = kind is Kind.SAFETENSORS
    return not is_safe if suffix == ".safetensors" else is_safe and suffix in _TORCH


def _skipped(root: str, skipped: list[str]) -> Finding:
    many = len(skipped) > 1
    return Finding(
        "SP25",
        "note",
        f"{len(skipped)} {'files' if many else 'file'} in {shell(root)}"
        f" {'are no models and were' if many else 'is no model and was'} skipped:"
        f" {_listed(skipped)}.",
        "If your code loads one as a model, find out what it is.",
        root,
    )


def _nothing(root: str, skipped: list[str], closed: Closed) -> StorageUnavailable:
    if closed:
        path, reason = next(iter(closed.items()))
        why = f"{shell(path)} could not be looked at ({reason})"
    else:
        why = f"skipped: {_listed(skipped)}" if skipped else "it holds no file"
    return StorageUnavailable(
        f"No model was looked at in {shell(root)}: {why}.", "Name the folder that holds the models."
    )


def _listed(names: list[str]) -> str:
    shown = ", ".join(quoted(name) for name in names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown
