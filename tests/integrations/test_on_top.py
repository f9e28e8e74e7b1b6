"""deepagents, LangChain's agents and Agent Framework's orchestrations on our storage."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from tests.harness.optional import need

ROOT: Final = Path(__file__).parents[2]
THERE: Final = ROOT / "build" / "on-top"
WANTED: Final = ("deepagents==0.7.32", "langchain==1.4.7", "agent-framework-orchestrations==1.4.0")
SAME: Final = ("langgraph", "langchain-core", "agent-framework-core")
PLAYS: Final = ("agent", "deep", "sequential", "concurrent", "group chat", "handoff", "magentic")


def _fetch() -> bool:
    """Install them from the package index into a folder, unless that was done before."""
    done = THERE / "done"
    if not done.exists():
        THERE.mkdir(parents=True, exist_ok=True)
        same = THERE / "same.txt"
        same.write_text("".join(f"{each}=={version(each)}\n" for each in SAME))
        pip = [sys.executable, "-m", "pip", "install", "-q", f"--target={THERE}", f"-c{same}"]
        if subprocess.run([*pip, *WANTED], check=False).returncode == 0:
            done.touch()
    return done.exists()


@pytest.mark.deep
def test_what_is_built_on_the_frameworks_does_the_same_on_our_storage() -> None:
    """Middlewares, questions, files and summaries; and a run from each checkpoint again."""
    need(_fetch, "needs the package index, for deepagents and the orchestrations")
    paths = os.pathsep.join(map(str, (THERE, ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "tests.integrations.on_top"],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [f"{each} the same" for each in PLAYS], done.stderr
