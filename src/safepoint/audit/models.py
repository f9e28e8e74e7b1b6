"""Models and the code that loads them, by their bytes: nothing is loaded, imported or run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from safepoint.audit.contents import is_seal_of_model
from safepoint.audit.finding import Finding, content, finding, guard, refused, unseen
from safepoint.core.errors import MissingPackage, Unsafe, shell
from safepoint.models import Format, Inspection, Verdict
from safepoint.models.lint import IDS, check_source
from safepoint.models.loading import MODEL_NAMES, is_misnamed
from safepoint.models.runtime import check_installed, check_runtime
from safepoint.models.seals import seal_beside
from safepoint.models.tensors import package

# Content decides what a file is. A name can only make a file suspect that would be left alone.
_NAMES: Final = MODEL_NAMES - {".gguf", ".onnx"}
_WORST: Final = (Verdict.RUNS_CODE, Verdict.NEEDS_CODE, Verdict.REFUSED)
_FOUND: Final = {
    Verdict.RUNS_CODE: "SP24.runs-code",
    Verdict.NEEDS_CODE: "SP24.needs-code",
    Verdict.REFUSED: "SP25.damaged",
    Verdict.NOT_LOOKED_INTO: "SP25.unknown",
    Verdict.TORCH: "SP25.torch",
    Verdict.PICKLE: "SP25.pickle",
}
_IT: Final = re.compile(r"(It|The file)(?= )")


_CODE: Final = frozenset({".py", ".pyw", ".ipynb"})
_RUN_BY: Final = re.compile(rb"#!.*(python|pypy|\buv run\b)")
_LARGEST: Final = 8 * 1024 * 1024
LOOKED_AT: Final = 1024 * 1024
_KEPT: Final = frozenset(["SL12", "SL13", "SL14", "SL15", "SL16"])  # about state
_TEST: Final = re.compile(r"(test_.+|.+_test|conftest)\.py")
_LOADS: Final = re.compile(rb"\b(load_checkpoint|torch\.load)\b")
_REFUSAL: Final = re.compile(rb"\braises\(\s*(RuntimeError|[\w.]*Unsafe|[\w.]*ModelRefused)\b")
_SKIPS: Final = re.compile(rb"\bimportorskip\(")
_GRACEFUL: Final = re.compile(rb"\bexc_type\s*=\s*ImportError\b")
_AUTOLOAD: Final = b"PYTEST_DISABLE_PLUGIN_AUTOLOAD"


def check_torch() -> list[Finding]:
    """Look whether the PyTorch of this environment keeps the promise of `weights_only`."""
    try:
        if "torch" in sys.modules or not check_installed():
            check_runtime(package())
    except MissingPackage:
        return []
    except Unsafe as error:
        return [refused("SP23", error, "torch")]
    return []


def judged(file: str, found: Inspection) -> Iterator[Finding]:
    """Yield what is wrong with a file for anyone who loads it as a model."""
    shown, verdict, kind = shell(file), found.verdict, found.kind
    said = _IT.match(found.what)
    what = f"{shown}{found.what[said.end() :]}" if said else f"{shown}: {found.what}"
    values = {"what": what, "do": found.do.replace(" FILE ", f" {shown} "), "kind": kind.sentence}
    is_named, misnamed = Path(file).suffix.lower() in _NAMES, is_misnamed(file, kind)
    elsewhere = kind in (Format.GGUF, Format.ONNX, Format.TFLITE) and not is_named
    if verdict not in _WORST and kind is not Format.UNCLEAR and misnamed:
        yield finding("SP25.lies", file, **values)
    elif verdict in _FOUND and not (elsewhere and _is_sealed(file)):
        yield finding(_FOUND[verdict], file, **values)
    elif verdict is Verdict.NOT_A_MODEL:
        if kind is Format.SEALED or not is_named:
            return
        yield finding("SP25.named", file, **values)
    is_sealed = _is_sealed(file)
    cannot_be = verdict is Verdict.REFUSED or misnamed  # sealed: seal-model refuses it
    # For what runs code, a seal would vouch.
    if verdict is not Verdict.RUNS_CODE and not found.code and (is_sealed or not cannot_be):
        yield finding("SP24.not-verified" if is_sealed else "SP24.unsealed", file)


def _is_sealed(file: str) -> bool:
    return (seal := seal_beside(file)) is not None and is_seal_of_model(_text(seal))


def is_code(path: str) -> bool:
    """Tell whether a file is Python, by its name, or by its first line if that has no ending."""
    suffix = Path(path).suffix.lower()
    if suffix:
        return suffix in _CODE
    with suppress(OSError):
        return _RUN_BY.match(_text(path, 200)) is not None
    return False


def loads(code: Iterable[str]) -> Iterator[Finding]:
    """Yield the loads in files of Python and in notebooks that can run what a file says."""
    for file in code:
        try:
            data, size = content(os.path.realpath(file), _LARGEST) or (b"", 0)
        except OSError as error:
            yield unseen("SP26", file, error.strerror)
            continue
        if size > len(data):
            yield unseen("SP26", file, f"it has {size} bytes")
            continue
        is_test = _TEST.fullmatch(Path(file).name)  # which keeps nothing that anybody reads later
        for load in check_source(data, file):
            if is_test and load.id in _KEPT:
                continue
            known, cell = IDS[load.id], f"cell {load.cell}:" if load.cell else ""
            place = f"{shell(file)}:{cell}{load.line}:{load.column}"
            name = f"{known.rule}.{load.id.lower()}"
            yield finding(name, file, place=place, load=load, fix=known.fix)


def safety_test(root: str, code: Iterable[str], files: Iterable[str]) -> list[Finding]:
    """Look for a test among the files of a project that loads models, and for how it is run."""
    findings: list[Finding] = []
    with suppress(OSError):  # then it may load some
        if not any(_LOADS.search(_text(file)) for file in code):
            return findings
    isolated = tested = False
    for file in files:
        text = b""
        with guard("SP27", file, findings):
            text = _text(file)
        isolated = isolated or _AUTOLOAD in text
        refuses = _TEST.fullmatch(Path(file).name) and _LOADS.search(text) and _REFUSAL.search(text)
        graceful = _GRACEFUL.search(text) or not _SKIPS.search(text)
        tested = tested or bool(refuses and graceful)
    return findings if tested and isolated else [*findings, finding("SP27.no-test", root)]


def _text(file: str, most: int = LOOKED_AT) -> bytes:
    found = content(os.path.realpath(file), most)
    return b"" if found is None else found[0]
