"""The command line, without a process of its own."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from safepoint.command.cli import main


def settled(folder: Path) -> dict[str, str]:
    """Return an environment that names the settings of a folder, if it has some."""
    told = {"SAFEPOINT_CONFIG": str(folder / "safepoint.toml")}
    return {**os.environ, **(told if (folder / "safepoint.toml").exists() else {})}


def said(*arguments: str | Path, folder: Path | None = None) -> tuple[int, str, str]:
    """Run `safepoint` in a folder, and return its status, its output and its errors."""
    out, err = io.StringIO(), io.StringIO()
    with chdir(folder or "."), redirect_stdout(out), redirect_stderr(err):
        status = main([str(each) for each in arguments])
    return status, out.getvalue(), err.getvalue()


def audit(arguments: Sequence[str]) -> int:
    """Run `safepoint audit`."""
    return main(["audit", *arguments])
