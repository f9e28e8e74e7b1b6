"""What the site may be made from: files of known kinds, and text without surprises."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from publish.project import BrokenPage, decoded
from safepoint.command.examples import KINDS
from tests.harness.svg import svg_problems

# A generator copies whatever it finds, so each kind is named, with the folder that it lies below.
_KINDS: Final[Mapping[str, frozenset[str]]] = {
    "docs": frozenset({".md", ".png", ".svg"}),
    "docs/assets": frozenset({".css", ".js"}),
    "docs/vectors": frozenset({".json"}),
    "snippets": KINDS,
    "overrides": frozenset({".html"}),
}
# What XML cannot hold, and what no reader sees. Tab and newline are neither.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
_LINK: Final = "a link, and what it leads to would be published; put the file itself there"


def check_sources(root: Path) -> None:
    """Refuse what would be published although nobody meant it: links, unknown kinds, live SVG.

    Raises:
        BrokenPage: with one line for each file.
    """
    problems = []
    for folder in ("docs", "snippets", "overrides"):
        for path in _below(root, folder):
            problem = _problem(root, path)
            if problem:
                name = str(path) if str(path).isprintable() else ascii(str(path))[1:-1]
                problems.append(f"{name}: {problem}")
    if problems:
        raise BrokenPage("\n".join(problems))


def read_text(root: Path, name: str) -> str:
    """Return a text that becomes part of pages and of the feed, or "" if it is not there.

    Raises:
        BrokenPage: it is a link, or holds what no page may hold, with the line.
    """
    file = root / name
    if file.is_symlink():
        raise BrokenPage(f"{name}: {_LINK}")
    text = decoded(name, file.read_bytes() if file.is_file() else b"").replace("\r\n", "\n")
    control = _CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        said = f"the control character U+{ord(control[0]):04X}"
        raise BrokenPage(f"{name}:{line}: {said}; remove it")
    return text


def _below(root: Path, top: str) -> Iterator[PurePosixPath]:
    """Go through all files, and the links to folders, without following any."""
    if (root / top).is_symlink():
        yield PurePosixPath(top)
        return
    for place, folders, files in os.walk(root / top):
        folders.sort()
        where = Path(place)
        linked = [name for name in folders if (where / name).is_symlink()]
        for name in sorted([*files, *linked]):
            yield PurePosixPath((where / name).relative_to(root).as_posix())


def _problem(root: Path, path: PurePosixPath) -> str | None:
    file = root / path
    if file.is_symlink():
        return _LINK
    if not path.name.isprintable():
        return "a name with letters that cannot be shown; rename it"
    if any(part.startswith(".") for part in path.parts):
        # No generator publishes it. As a page it would still get a twin, and be listed.
        return "a hidden page; rename or remove it" if path.suffix == ".md" else None
    if path.parts[0] == "snippets" and "__pycache__" in path.parts:
        return None
    if not file.is_file():
        return "neither a file nor a folder; remove it"
    if not any(path.suffix in _KINDS.get(str(parent), ()) for parent in path.parents):
        return "no file of this kind belongs here; move it, or list its kind in publish/sources.py"
    if path.suffix != ".svg":
        return None
    text = decoded(str(path), file.read_bytes())
    # An instruction could name a style sheet elsewhere, or an encoding in which other tags appear.
    problems = ["has <?; remove it"] if "<?" in text else svg_problems(text)
    return f"this SVG {problems[0]}" if problems else None
