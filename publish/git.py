"""What git knows about the project: when each page was last changed."""

from __future__ import annotations

import hashlib
import os
import subprocess
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

_PATIENCE: Final = 30.0


def git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, or None if it fails. It reads this folder's history and no other.

    The repository's own settings can name programs, to watch files, check signatures and fetch what
    is missing. None of these is run; a command that runs others, as `diff` does, is not for here.
    """
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    settings = (
        *("-c", f"safe.directory={root.resolve()}"),
        *("-c", "core.fsmonitor=false", "-c", "log.showSignature=false"),
    )
    try:
        done = subprocess.run(  # noqa: S603  nothing here comes from outside
            ["git", *settings, *arguments],  # noqa: S607
            cwd=root,
            env=environment | {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": ""},
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.decode(errors="surrogateescape")


def reviewed(root: Path) -> dict[str, date]:
    """Return the author's date of the last commit that touched each page below `docs/`.

    Where that cannot be known there is no date, and never a wrong one: without git, in a shallow
    clone, whose oldest commit seems to have written everything, for a page that differs from what
    is committed, and where the author's clock cannot have been right.
    """
    kept = git(root, "ls-tree", "-r", "-z", "HEAD", "docs/")
    # A merge counts for the files that it changed itself, and a rename is a change.
    log = git(
        root,
        *("log", "-c", "--no-renames", "--relative", "--name-only", "-z"),
        *("--format=%x01%as", "HEAD", "--", "docs/"),
    )
    shallow = git(root, "rev-parse", "--is-shallow-repository")
    if kept is None or log is None or shallow != "false\n":
        return {}
    unchanged = {entry.split("\t")[1] for entry in kept.split("\0")[:-1] if _is_kept(root, entry)}
    days: dict[str, date | None] = {}
    # A name can hold the mark, but not begin with it.
    for commit in f"\0{log}".split("\0\1")[1:]:
        day, _, names = commit.partition("\0")
        for name in names.strip("\n\0").split("\0"):
            days.setdefault(name, _day(day))
    return {
        name.removeprefix("docs/"): day
        for name, day in days.items()
        if day and name in unchanged and name.endswith(".md")
    }


def _is_kept(root: Path, entry: str) -> bool:
    """Tell whether a file is as a line of `ls-tree` says. `git diff` would run filters."""
    about, _, name = entry.partition("\t")
    if not (root / name).is_file():
        return False
    content = (root / name).read_bytes()
    blob = hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False)
    return about.endswith(f" {blob.hexdigest()}")


def _day(text: str) -> date | None:
    """Return the day, unless it is none or has not come yet anywhere on earth."""
    try:
        day = date.fromisoformat(text.strip())
    except ValueError:
        return None
    return day if day <= datetime.now(UTC).date() + timedelta(days=1) else None
