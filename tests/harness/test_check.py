"""`make check` finds nothing: a whole run has it beside the other tests."""

from __future__ import annotations

import subprocess

from tests.harness.blocks import ROOT


def test_lint_format_types_and_words() -> None:
    command = ["make", "--no-print-directory", "--old-file=.venv/.ready", "check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
