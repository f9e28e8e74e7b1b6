"""When each page was last changed, by the commits that changed it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from publish.git import git


def reviewed(root: Path) -> dict[str, date | None]:
    """Return the author's date of the last commit that touched each page below `docs/`.

    Where that cannot be known there is no date, and never a wrong one: without git, in a shallow
    clone, whose oldest commit seems to have written everything, for a page that differs from what
    is committed, and where the author's clock cannot have been right.

    Args:
        root: the project.
    """
    pages = sorted(file.relative_to(root).as_posix() for file in (root / "docs").rglob("*.md"))
    dates = _dates(root)
    return {page.removeprefix("docs/"): dates.get(page) for page in pages}


def _dates(root: Path) -> Mapping[str, date]:
    if git(root, "rev-parse", "--is-shallow-repository") != "false\n":
        return {}
    kept = git(root, "ls-tree", "-r", "-z", "HEAD", "docs/")
    # A merge counts for the files that it changed itself, and a rename is a change.
    log = git(
        root,
        *("log", "-c", "--no-renames", "--relative", "--name-only", "-z"),
        *("--format=%x01%as", "HEAD", "--", "docs/"),
    )
    if kept is None or log is None:
        return {}
    dates: dict[str, date | None] = {}
    # A name can hold the mark, but not begin with it.
    for entry in f"\0{log}".split("\0\1")[1:]:
        day, _, names = entry.partition("\0")
        for name in names.strip("\n\0").split("\0"):
            dates.setdefault(name, _day(day))
    current = _unchanged(root, kept)
    return {name: day for name, day in dates.items() if day and name in current}


def _day(text: str) -> date | None:
    """Return the day, unless it is none or has not come yet anywhere on earth."""
    try:
        day = date.fromisoformat(text.strip())
    except ValueError:
        return None
    return day if day <= datetime.now(UTC).date() + timedelta(days=1) else None


def _unchanged(root: Path, kept: str) -> set[str]:
    """Return the files that are as git keeps them, by what `ls-tree -z` says.

    `git diff` would say the same, but it runs the commands that the repository's settings name as
    filters.
    """
    found = set()
    for entry in kept.split("\0")[:-1]:
        about, _, name = entry.partition("\t")
        identifier = about.rpartition(" ")[2]
        file = root / name
        if file.is_file() and _identifier(file.read_bytes(), len(identifier)) == identifier:
            found.add(name)
    return found


def _identifier(content: bytes, length: int) -> str:
    """Return the name that git gives to a content, of 40 or 64 digits."""
    kind = "sha1" if length == 40 else "sha256"
    data = b"blob %d\0%b" % (len(content), content)
    return hashlib.new(kind, data, usedforsecurity=False).hexdigest()
