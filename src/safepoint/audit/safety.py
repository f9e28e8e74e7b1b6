"""Does a project test that its loads are safe, the same everywhere? By its text: nothing is run."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from safepoint.audit.files import Closed, content, existing_folder
from safepoint.audit.finding import Finding
from safepoint.errors import shell
from safepoint.models.lint import Walk

LOOKED_AT: Final = 1024 * 1024
_TEST: Final = re.compile(r"(test_.+|.+_test)\.py")
_LOADS: Final = re.compile(rb"\b(load_checkpoint|torch\.load)\b")
_REFUSAL: Final = re.compile(rb"\braises\(\s*(RuntimeError|[\w.]*Unsafe\w+|[\w.]*ModelError)\b")
_SKIPS: Final = re.compile(rb"\bimportorskip\(")
_GRACEFUL: Final = re.compile(rb"\bexc_type\s*=\s*ImportError\b")
_AUTOLOAD: Final = b"PYTEST_DISABLE_PLUGIN_AUTOLOAD"
_COPY: Final = "Copy tests/utils/test_checkpointing_safe_load.py from the examples of this guide."


def check_safety_test(project: str | os.PathLike[str]) -> list[Finding]:
    """Look for a test that expects a refusal of an unsafe load, and for how it is run.

    ```python
    from pathlib import Path

    from safepoint.audit import check_safety_test

    Path("project").mkdir()
    print(check_safety_test("project")[0].what.split("/")[-1])
    #> project has no test that expects an unsafe load to be refused.
    ```

    Returns:
        Under SP27 a warning if there is no such test; if there is, a warning where a broken
        PyTorch fails it instead of skipping it, and one if nothing in the project keeps stray
        plugins out.

    Raises:
        StorageUnavailable: there is no such folder.
    """
    root = existing_folder(project)
    walk, closed = Walk(), Closed()
    tests: list[tuple[str, bytes]] = []
    isolated = False
    for file in walk.files(root):
        try:
            found = content(file, LOOKED_AT)
        except OSError as error:
            closed.add(file, error)
            continue
        text = found[0] if found is not None else b""
        isolated = isolated or _AUTOLOAD in text
        if _TEST.fullmatch(Path(file).name) and _LOADS.search(text) and _REFUSAL.search(text):
            tests.append((file, text))
    closed.update(walk.failed)
    if not tests:
        what = f"{shell(root)} has no test that expects an unsafe load to be refused."
        return [Finding("SP27", "warning", what, _COPY, root), *closed.findings("SP27")]
    findings = [
        Finding(
            "SP27",
            "warning",
            f"{shell(file)} fails instead of skipping where PyTorch is installed and broken.",
            'Write pytest.importorskip("torch", exc_type=ImportError).',
            file,
        )
        for file, text in tests
        if _SKIPS.search(text) and not _GRACEFUL.search(text)
    ]
    if not isolated:
        findings.append(
            Finding(
                "SP27",
                "warning",
                f"Nothing in {shell(root)} keeps stray pytest plugins out of the safety test.",
                "Run it with PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 in CI.",
                root,
            )
        )
    return findings + closed.findings("SP27")
