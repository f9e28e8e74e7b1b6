"""What the site may be made from: files of known kinds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from publish.project import BrokenPage
from safepoint.command.examples import KINDS
from tests.harness.svg import svg_problems

# A generator copies whatever it finds, so each kind is named, with the folder that it lies below.
_KINDS: Final[Mapping[str, frozenset[str]]] = {
    "docs": frozenset({".md", ".png", ".svg", ".webp"}),
    "docs/assets": frozenset({".css", ".js"}),
    "docs/vectors": frozenset({".json"}),
    "snippets": KINDS,
    "overrides": frozenset({".html"}),
}


def check_sources(root: Path) -> None:
    """Refuse what would be published although nobody meant it: links, unknown kinds, live SVG.

    Raises:
        BrokenPage: with one line for each file.
    """
    problems = []
    for folder in ("docs", "snippets", "overrides"):
        for file in sorted((root / folder).rglob("*")):
            path = PurePosixPath(file.relative_to(root).as_posix())
            if problem := _problem(file, path):
                problems.append(f"{path}: {problem}")
    if problems:
        raise BrokenPage("\n".join(problems))


def _problem(file: Path, path: PurePosixPath) -> str | None:
    if file.is_symlink():
        return "a link, and what it leads to would be published; put the file itself there"
    is_left_out = file.is_dir() or any(part.startswith(".") for part in path.parts)
    if is_left_out or (path.parts[0] == "snippets" and "__pycache__" in path.parts):
        return None
    if not any(path.suffix in _KINDS.get(str(parent), ()) for parent in path.parents):
        return "no file of this kind belongs here; move it, or list its kind in publish/sources.py"
    problems = svg_problems(file.read_text("utf-8")) if path.suffix == ".svg" else []
    return f"this SVG {problems[0]}" if problems else None
