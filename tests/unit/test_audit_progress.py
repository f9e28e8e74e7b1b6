"""How far a command is shows on a terminal alone, and is gone at the end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

SLOWLY = """
import time
from safepoint.shared import terminal as progress
from safepoint.command.cli import main

real = time.monotonic
progress.time.monotonic = lambda: real() + 10 * sum(each._count for each in progress._SHOWN)
raise SystemExit(main())
"""


def test_it_is_written_to_a_terminal_and_removed_and_never_to_a_pipe(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.json").write_text("{}")
    command = [sys.executable, "-c", SLOWLY, "audit", str(tmp_path)]
    piped = subprocess.run(command, capture_output=True, text=True, check=False)
    ours, theirs = pty.openpty()
    try:
        shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=False)
        seen = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert (shown.returncode, shown.stdout.decode()) == (piped.returncode, piped.stdout)
    assert piped.stderr == ""
    lines = [each for each in seen.split("\r") if each]
    assert lines[-2:] == ["Looked at 5 files and records", " " * len(lines[-2])]
    assert seen.endswith("\r")
