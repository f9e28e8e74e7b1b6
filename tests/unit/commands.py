"""The command line, without a process of its own."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from safepoint.command.cli import main
from safepoint.settings import Store


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


def in_settings(arguments: Sequence[str], file: Path) -> list[str]:
    """Write the parts of a store into settings, and return what names these.

    They are told as `[PATH, "--store", NAME, "--key", FILE, ...]`, by the keys of its table.
    """
    defaults = {each.name.replace("_", "-"): each.default for each in fields(Store)[1:]}
    parts: dict[str, object] = {}
    name, rest, given = "invoices", list[str](), iter(arguments)
    for each in given:
        key = each.removeprefix("--")
        if each.startswith("--") and key in defaults:
            value: object = int(next(given)) if key == "people" else next(given)
            many = isinstance(defaults[key], tuple)
            parts[key] = [*cast("list[object]", parts.get(key, [])), value] if many else value
        elif each == "--store":
            name = next(given)
        else:
            rest.append(each)
    if not parts:
        return list(arguments)
    if rest and not rest[0].startswith("--"):
        parts["storage"] = rest.pop(0)
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in parts.items()]
    file.write_text(f"[stores.{name}]\n{''.join(lines)}")
    return ["--config", str(file), "--store", name, *rest]


def audit(arguments: Sequence[str]) -> int:
    """Run `safepoint audit`, with the parts of a store in settings."""
    with TemporaryDirectory() as folder:
        return main(["audit", *in_settings(arguments, Path(folder, "safepoint.toml"))])
