"""The site as it is published, built once for all tests of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from tests.harness.blocks import ROOT
from tests.harness.pretend import pretend

SUB_PATH: Final = "/some/folder/"
"""Not the root of the host, so that a link which only works there is found."""
ADDRESS: Final = f"https://docs.example{SUB_PATH}"


class BuildFailed(RuntimeError):
    """The site could not be built; the message is what the generator said."""


def build(site: Path, evidence: Path, **environment: str) -> None:
    """Build the site into a folder, with warnings as errors.

    Raises:
        BuildFailed: with what it complained about.
    """
    known = {"NO_MKDOCS_2_WARNING": "1", "SITE_URL": ADDRESS, "EVIDENCE": str(evidence)}
    done = subprocess.run(
        # Never --quiet: it drops the warnings before --strict can count them.
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=ROOT,
        env={**os.environ, **known, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildFailed(f"the site does not build:\n{done.stderr}")


@cache
def built(temporary: Path) -> tuple[Path, Path]:
    """Return the folder of the site, and the evidence that it was built with.

    The pages may run later than the tests that look at them, so all of it is pretended.
    """
    folder = temporary / "built"
    folder.mkdir()
    evidence = pretend(folder / "evidence.jsonl", ROOT)
    build(folder / "site", evidence, PYTHONHASHSEED="1")
    return folder / "site", evidence
