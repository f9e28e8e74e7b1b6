"""When each page was last changed, by the commits that changed it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Final

_PATIENCE: Final = 30.0


def reviewed(root: Path) -> dict[str, date | None]:
    """Return the author's date of the last commit that touched each page below `docs/`.

    Where that cannot be known there is no date, and never a wrong one: without git, in a shallow
    clone, whose oldest commit seems to have written everything, and for a page that differs from
    what is committed.

    Args:
        root: the project.
    """
    pages = sorted(file.relative_to(root).as_posix() for file in (root / "docs").rglob("*.md"))
    dates = _dates(root)
    return {page.removeprefix("docs/"): dates.get(page) for page in pages}


def _dates(root: Path) -> Mapping[str, date]:
    if _git(root, "rev-parse", "--is-shallow-repository") != "false\n":
        return {}
    kept = _git(root, "ls-tree", "-r", "-z", "--name-only", "HEAD", "docs/")
    changed = _git(root, "diff", "-z", "--name-only", "--no-renames", "--relative", "HEAD", "docs/")
    # A merge counts for the files that it changed itself, and a rename is a change.
    log = _git(
        root,
        *("log", "-c", "--no-renames", "--relative", "--name-only", "-z", "--no-show-signature"),
        *("--format=%x01%as", "HEAD", "--", "docs/"),
    )
    if kept is None or changed is None or log is None:
        return {}
    dates: dict[str, date] = {}
    for entry in log.split("\1")[1:]:
        day, _, names = entry.partition("\0")
        for name in names.strip("\n\0").split("\0"):
            dates.setdefault(name, date.fromisoformat(day.strip()))
    current = set(kept.split("\0")) - set(changed.split("\0"))
    return {name: day for name, day in dates.items() if name in current}


def _git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, or None if it fails. It reads this folder's history and no other."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    settings = ("-c", f"safe.directory={root.resolve()}", "-c", "core.fsmonitor=false")
    try:
        done = subprocess.run(  # noqa: S603  nothing here comes from outside
            ["git", *settings, *arguments],  # noqa: S607
            cwd=root,
            env=environment | {"GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.decode(errors="surrogateescape")
