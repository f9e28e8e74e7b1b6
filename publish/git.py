"""What git knows about the project: when each page was last changed."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import date
from pathlib import Path
from typing import Final

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


def git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, or None if it fails. It reads this folder's history and no other."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603  nothing here comes from outside
            ["git", "-c", f"safe.directory={root.resolve()}", *arguments],  # noqa: S607
            cwd=root,
            env=environment | {"GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            check=False,
        )
    except OSError:
        return None
    return None if done.returncode else done.stdout.decode(errors="surrogateescape")


def reviewed(root: Path) -> dict[str, date]:
    """Return the author's date of the last commit that touched each page below `docs/`.

    Where that cannot be known there is no date, and never a wrong one: without git, in a shallow
    clone, whose oldest commit seems to have written everything, and for a page that differs from
    what is committed.
    """
    # A merge counts for the files that it changed itself, and a rename is a change.
    listed = ("--no-renames", "--relative", "--name-only", "-z")
    log = git(root, "log", "-c", *listed, "--format=%x01%as", "HEAD", "--", "docs/")
    changed = git(root, "diff", *listed, "HEAD", "--", "docs/")
    kept = git(root, "ls-files", "-z", "--", "docs/")
    shallow = git(root, "rev-parse", "--is-shallow-repository")
    if log is None or changed is None or kept is None or shallow != "false\n":
        return {}
    days: dict[str, date | None] = dict.fromkeys(changed.split("\0"))
    # A name can hold the mark, but not begin with it.
    for commit in f"\0{log}".split("\0\1")[1:]:
        day, _, names = commit.partition("\0")
        for name in names.strip("\n\0").split("\0"):
            days.setdefault(name, date.fromisoformat(day) if _DAY.fullmatch(day) else None)
    return {
        name.removeprefix("docs/"): day
        for name, day in days.items()
        if day and name in kept.split("\0") and name.endswith(".md")
    }
