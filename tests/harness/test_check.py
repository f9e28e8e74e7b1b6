"""`make check` finds nothing: a whole run has it beside the other tests."""

from __future__ import annotations

import os
import subprocess

from tests.harness.blocks import ROOT


def test_lint_format_types_and_words() -> None:
    command = ["make", "--no-print-directory", "--old-file=.venv/.ready", "check"]
    # To write a cache that nobody reads takes a quarter of mypy's time.
    once = {} if (ROOT / ".mypy_cache").exists() else {"MYPY_CACHE_DIR": os.devnull}
    env = os.environ | once
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
