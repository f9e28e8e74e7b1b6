"""What all pytests of a run share: made once, by whoever needs it first. The others wait for it."""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from tests.harness.blocks import ROOT
from tests.harness.evidence import pretend

SHARED: Final = "SAFEPOINT_TESTS_SHARED"
"""The variable with the folder of a run. Without it a process shares with nobody."""
SUB_PATH: Final = "/some/folder/"
"""Not the root of a host, so that a link which only works there is found."""
ADDRESS: Final = f"https://docs.example{SUB_PATH}"
CODE: Final = "https://code.example/team/safepoint"


def shared(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder that `make` has filled.

    Args:
        name: what it is, and whatever makes it differ from another.
        make: fills a new folder. If it raises, the next one who asks tries again.
    """
    place = Path(os.environ.get(SHARED) or _own())
    place.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    folder, done = place / digest, place / f"{digest}.done"
    with (place / f"{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one who was killed
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@cache
def _own() -> str:
    folder = tempfile.mkdtemp(prefix="shared-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class BuildFailed(RuntimeError):
    """The site could not be built; the message is what the generator said."""


def built(root: Path = ROOT) -> tuple[Path, Path]:
    """Return the site, built as it is published, and the evidence that it was built with.

    The pages may run later than the tests that look at them, so that evidence is pretended.

    Raises:
        BuildFailed: with what mkdocs complained about.
    """

    def make(folder: Path) -> None:
        build(root, folder / "site", pretend(folder / "evidence.xml", root), PYTHONHASHSEED="1")

    folder = shared(f"site of {root}", make)
    return folder / "site", folder / "evidence.xml"


def build(root: Path, site: Path, evidence: Path, **environment: str) -> None:
    """Build the site into a folder, with warnings as errors.

    Raises:
        BuildFailed: with what mkdocs complained about.
    """
    known = {"NO_MKDOCS_2_WARNING": "1", "EVIDENCE": str(evidence)}
    known |= {"SITE_URL": ADDRESS, "REPO_URL": CODE, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        # Never --quiet: it drops the warnings before --strict can count them.
        [sys.executable, "-m", "tests.harness.as_reader", "--strict", "--site-dir", str(site)],
        cwd=root,
        env={**os.environ, **known, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildFailed(f"the site does not build; correct this first:\n{done.stderr}")
