"""What the pytests of a run share is made once, and whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.blocks import ROOT
from tests.harness.shared import SHARED, built, shared

SAYS = """
import time
from tests.harness.shared import shared

def make(folder):
    print("made")
    time.sleep(0.2)
    (folder / "it").write_text("whole")

print((shared("it", make) / "it").read_text())
"""


def test_of_several_processes_one_makes_it_and_the_others_wait(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAYS]
    environ = {**os.environ, SHARED: str(tmp_path)}
    makers = [
        subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE) for _ in range(3)
    ]
    said = sorted(maker.communicate()[0] for maker in makers)
    assert said == [b"made\nwhole\n", b"whole\n", b"whole\n"]


def test_what_failed_half_way_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARED, str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise LookupError

    with pytest.raises(LookupError):
        shared("it", fail)
    folder = shared("it", lambda folder: (folder / "it").touch())
    assert [file.name for file in folder.iterdir()] == ["it"]
    assert shared("another", lambda _: None) != folder


def test_the_site_builds_with_warnings_as_errors() -> None:
    """Early in the run, for whoever looks at it: the census does."""
    site, evidence = built()
    assert (site / "index.html").is_file()
    assert evidence.is_file()
