"""Models and the code that loads them, by their bytes: nothing is loaded, imported or run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from safepoint.audit.finding import (
    Closed,
    Finding,
    content,
    existing_folder,
    files,
    finding,
    listed,
    refused,
    unseen,
    worst_first,
)
from safepoint.core.errors import (
    CheckpointError,
    MissingPackage,
    Unavailable,
    Unsafe,
    quoted,
    shell,
)
from safepoint.models import Inspection, Kind, Verdict, inspect
from safepoint.models.lint import Report, Walk, check_paths
from safepoint.models.runtime import check_installed, check_runtime
from safepoint.models.seals import seal_beside
from safepoint.models.tensors import package

# Content decides what a file is. A name can only make a file suspect that would be left alone.
_NAMES: Final = re.compile(
    r"\.(pt|pth|ckpt|bin|safetensors|pkl|pickle|joblib|h5|hdf5|keras)\Z", re.IGNORECASE
)
_TORCH: Final = frozenset([".pt", ".pth", ".ckpt", ".bin"])
_IT: Final = re.compile(r"(It|The file)(?= )")
_NAMED: Final = 3


LOOKED_AT: Final = 1024 * 1024
_TEST: Final = re.compile(r"(test_.+|.+_test)\.py")
_LOADS: Final = re.compile(rb"\b(load_checkpoint|torch\.load)\b")
_REFUSAL: Final = re.compile(rb"\braises\(\s*(RuntimeError|[\w.]*Unsafe|[\w.]*ModelRefused)\b")
_SKIPS: Final = re.compile(rb"\bimportorskip\(")
_GRACEFUL: Final = re.compile(rb"\bexc_type\s*=\s*ImportError\b")
_AUTOLOAD: Final = b"PYTEST_DISABLE_PLUGIN_AUTOLOAD"


def check_torch() -> list[Finding]:
    """Look whether the PyTorch of this environment keeps the promise of `weights_only`.

    ```python
    import torch

    from safepoint.audit import check_torch

    print(check_torch())
    #> []
    release, torch.__version__ = torch.__version__, "2.5.1"
    print(check_torch()[0].id)
    #> SP23.unsafe
    torch.__version__ = release
    ```

    Returns:
        An error under SP23 if it does not. Nothing if there is no PyTorch.
    """
    try:
        if "torch" in sys.modules or not check_installed():
            check_runtime(package())
    except MissingPackage:
        return []
    except Unsafe as error:
        do = error.do.removeprefix("Nothing was loaded. ")
        return [replace(refused("SP23", error, "torch"), do=do)]
    return []


def check_models(folder: str | os.PathLike[str]) -> list[Finding]:
    """Look at every file below `folder`. Content decides what it is, and never its name.

    Links to folders are not followed.

    ```python
    from pathlib import Path

    import torch

    from safepoint import SigningKey
    from safepoint.audit import check_models
    from safepoint.models import save_checkpoint

    for name in ("models", "sealed"):
        Path(name).mkdir(mode=0o700)
    torch.save({"weight": torch.ones(2)}, "models/net.pt")
    for finding in check_models("models"):
        print(finding.rule, finding.severity, finding.what.split("/models/")[1])
        #> SP25 warning net.pt is a PyTorch archive, and holds nothing but tensors and plain values.
        #> SP24 note net.pt has no seal.

    save_checkpoint("sealed/net.safetensors", {"weight": torch.ones(2)}, key=SigningKey.generate())
    print([each.id for each in check_models("sealed") if each.severity != "note"])
    #> []
    ```

    Returns:
        All of it, the worst first. Under SP24 an error for each file that wants more than data, a
        note for each other model without a seal; under SP25 an error for each that is not what its
        name says, or is damaged; a warning for each pickle of plain values, for what could be
        safetensors, and for what could not be looked at; a note that counts the files that are no
        models.

    Raises:
        Unavailable: there is no such folder, or no model in it.
    """
    root = existing_folder(folder)
    closed, findings = Closed(), list[Finding]()
    looked, skipped = False, list[str]()
    for file in files(root, closed):
        about = judge(file, file, closed)
        if about is None:
            continue
        found, wrong = about
        if wrong or found.verdict is not Verdict.NOT_A_MODEL:
            looked = True
            findings += wrong
        elif found.kind is not Kind.SEALED:  # which says of another file what it is
            skipped.append(quoted(os.path.relpath(file, root)))
    missed = closed.findings("SP25")
    if not looked:
        why = f"skipped: {listed(skipped, _NAMED)}." if skipped else "It holds no file."
        raise Unavailable(
            f"No model was looked at in {shell(root)}. {missed[0].what if missed else why}",
            "Name the folder that holds the models.",
        )
    if skipped:
        values = {"count": len(skipped), "names": listed(skipped, _NAMED)}
        findings.append(finding("SP25.skipped", root, **values))
    return worst_first([*findings, *missed])


def judge(file: str, named: str, closed: Closed) -> tuple[Inspection, list[Finding]] | None:
    """Look at a file, and say what is wrong with it. One must never hide the others.

    Args:
        file: what to open.
        named: what it is called, for the findings.
        closed: where to keep why it could not be looked at; then there is nothing to return.
    """
    try:
        found = inspect(file)
        return found, list(judged(named, found))
    except CheckpointError as error:
        closed[named] = error.what.rstrip(".")
    except Exception as error:  # noqa: BLE001  whoever made the file may have meant it to
        closed[named] = f"{type(error).__name__}, which is a defect of safepoint"
    return None


def judged(file: str, found: Inspection) -> Iterator[Finding]:
    """Yield what is wrong with a file for whoever loads it as a model."""
    shown, suffix = shell(file), Path(file).suffix.lower()
    said = _IT.match(found.what)
    what = f"{shown}{found.what[said.end() :]}" if said else f"{shown}: {found.what}"
    verdict, kind = found.verdict, found.kind
    if verdict is Verdict.RUNS_CODE:
        yield finding("SP24.runs-code", file, what=what)
        return  # a seal would vouch for it
    if verdict is Verdict.REFUSED:
        yield finding("SP25.damaged", file, what=what)
    elif kind is not Kind.UNCLEAR and _lies(suffix, kind):
        yield finding("SP25.lies", file, kind=kind.sentence)
    elif verdict is Verdict.NOT_LOOKED_INTO:
        yield finding("SP25.unknown", file, what=what)
    elif verdict is Verdict.TORCH:
        yield finding("SP25.torch", file, kind=kind.sentence)
    elif verdict is Verdict.PICKLE:
        yield finding("SP25.pickle", file, kind=kind.sentence)
    elif verdict is Verdict.NOT_A_MODEL:
        if kind is Kind.SEALED or not _NAMES.search(file):
            return
        yield finding("SP25.named", file, kind=kind.sentence)
    if seal_beside(file) is None:
        yield finding("SP24.unsealed", file)


def _lies(suffix: str, kind: Kind) -> bool:
    is_safe = kind is Kind.SAFETENSORS
    return not is_safe if suffix == ".safetensors" else is_safe and suffix in _TORCH


def check_loads(path: str | os.PathLike[str]) -> list[Finding]:
    r"""Look for loads that can run what a file says, in a file of code or in a folder of it.

    This is `safepoint lint`, as a check. Its ids are in those of the findings: SP23.sl01.

    ```python
    from pathlib import Path

    from safepoint.audit import check_loads

    Path("train.py").write_text('from torch import load\nload("model.pt")\n')
    for finding in check_loads("train.py"):
        print(finding.rule, finding.severity, finding.what[:39])
        #> SP23 warning train.py:2:1 has SL01: torch.load witho
    Path("train.py").write_text('from torch import load\nload("model.pt", weights_only=True)\n')
    print(check_loads("train.py"))
    #> []
    ```

    Args:
        path: the file, or the folder.

    Returns:
        An error where a protection is switched off, and a warning for each other load that can
        execute, under SP03, SP23 or SP24. What could not be looked at is a warning under SP26.

    Raises:
        Unavailable: there is nothing at that path, or no Python file in it.
    """
    report = check_paths([os.fspath(path)])
    if report.failures:
        raise Unavailable(*report.failures[0])
    return loads(report)


def loads(report: Report) -> list[Finding]:
    """Return what `safepoint lint` found."""
    return worst_first(
        finding(f"{each.rule}.{each.id.lower()}", each.path, load=each) for each in report.findings
    )


def check_safety_test(project: str | os.PathLike[str]) -> list[Finding]:
    """Look for a test that expects a refusal of an unsafe load, and for how it is run.

    ```python
    from pathlib import Path

    from safepoint.audit import check_safety_test

    Path("project/tests").mkdir(parents=True)
    print(check_safety_test("project")[0].what.split("/")[-1])
    #> project has no test that expects an unsafe load to be refused.
    Path("project/ci.yml").write_text("env: {PYTEST_DISABLE_PLUGIN_AUTOLOAD: 1}")
    test = '''
    import pytest
    torch = pytest.importorskip("torch", exc_type=ImportError)
    def test_a_planted_model_is_refused():
        with pytest.raises(RuntimeError):
            load_checkpoint("planted.pt")
    '''
    Path("project/tests/test_load.py").write_text(test)
    print(check_safety_test("project"))
    #> []
    ```

    Returns:
        Under SP27 a warning if there is no such test; if there is, a warning where a broken
        PyTorch fails it instead of skipping it, and one if nothing in the project keeps stray
        plugins out.

    Raises:
        Unavailable: there is no such folder.
    """
    root, walk = existing_folder(project), Walk()
    found = safety_test(root, walk.files(root))
    return [*found, *(unseen("SP27", *each) for each in walk.failed)]


def safety_test(root: str, files: Iterable[str]) -> list[Finding]:
    """Look for such a test among the files of a project."""
    closed = Closed()
    isolated, tests = False, dict[str, bytes]()
    for file in files:
        try:
            text = _text(file)
        except OSError as error:
            closed.add(file, error)
            continue
        isolated = isolated or _AUTOLOAD in text
        if _TEST.fullmatch(Path(file).name) and _LOADS.search(text) and _REFUSAL.search(text):
            tests[file] = text
    fails = [f for f, text in tests.items() if _SKIPS.search(text) and not _GRACEFUL.search(text)]
    findings = [finding("SP27.fails", file) for file in fails]
    if not tests:
        findings.append(finding("SP27.no-test", root))
    elif not isolated:
        findings.append(finding("SP27.plugins", root))
    return findings + closed.findings("SP27")


def loads_models(code: Iterable[str]) -> bool:
    """Tell whether any of these files loads a model, so that a test has something to test."""
    with suppress(OSError):
        return any(_LOADS.search(_text(file)) for file in code)
    return True  # it may


def _text(file: str) -> bytes:
    found = content(file, LOOKED_AT)
    return b"" if found is None else found[0]
