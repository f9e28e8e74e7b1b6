"""When each page was last changed, by the commits that changed it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

from publish.git import git


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
    if git(root, "rev-parse", "--is-shallow-repository") != "false\n":
        return {}
    kept = git(root, "ls-tree", "-r", "-z", "--name-only", "HEAD", "docs/")
    changed = git(root, "diff", "-z", "--name-only", "--no-renames", "--relative", "HEAD", "docs/")
    # A merge counts for the files that it changed itself, and a rename is a change.
    log = git(
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
