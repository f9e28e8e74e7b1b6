"""The command line, without a process of its own."""

from __future__ import annotations

import io
import json
import os
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


def named(file: Path, name: str = "invoices", **parts: object) -> list[str]:
    """Write the parts of a store into settings, and return what names these for the audit."""
    given = {part.replace("_", "-"): value for part, value in parts.items() if value is not None}
    lines = [f"{part} = {json.dumps(value, default=str)}\n" for part, value in given.items()]
    file.write_text(f"[stores.{json.dumps(name)}]\n{''.join(lines)}")
    return ["--config", str(file), "--store", name]
