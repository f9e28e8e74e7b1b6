"""The examples as files: what they are, and copies that a program can fetch."""

from __future__ import annotations

import ast
import hashlib
import re
from pathlib import Path
from typing import Any, Final

from publish.broken import BrokenPage, decoded
from publish.machine.prose import plain
from publish.project import Project
from publish.sources import EXAMPLES

PAGE: Final = "examples.md"
_ROW: Final = re.compile(
    r"^\| \[`(?P<name>[^`]+)`\]\S+ \| (?P<gives>.+?) \| (?P<read>.+?) \|$", re.MULTILINE
)


_MARK: Final = re.compile(rb"^ *# --8<-- \[(?:start|end):\w+\]\n", re.MULTILINE)


def sources(project: Project) -> list[Path]:
    """Return the files, by name."""
    folder = project.root / "snippets"
    return sorted(
        file
        for file in folder.glob("[!.]*")
        if file.suffix in EXAMPLES and file.is_file() and not file.is_symlink()
    )


def copies(project: Project) -> dict[str, bytes]:
    """Return each file under the address at which the site has it."""
    return {f"examples/{file.name}": _copy(file) for file in sources(project)}


def _copy(file: Path) -> bytes:
    """Leave out the marks by which pages find parts of the file."""
    return _MARK.sub(b"", file.read_bytes())


def described(project: Project) -> list[dict[str, Any]]:
    """Return what is known about each file.

    Raises:
        BrokenPage: one is no text, or no Python although it is called so.
    """
    page = project.pages.get(PAGE)
    gives = {
        found["name"]: plain(found["gives"]) for found in _ROW.finditer(page.text if page else "")
    }
    return [_described(file, gives, project) for file in sources(project)]


def _described(file: Path, gives: dict[str, str], project: Project) -> dict[str, Any]:
    content = file.read_bytes()
    name = f"snippets/{file.name}"
    try:
        about = _opening(file.name, decoded(name, content))
    except SyntaxError as error:
        raise BrokenPage(f"{name}:{error.lineno or 1}: this is no Python; correct it") from None
    title, _, rest = about.partition("\n")
    copy = _copy(file)
    return {
        "name": file.name,
        "title": title.strip(),
        "description": gives.get(file.name) or " ".join(rest.split()) or title.strip(),
        "rules": [rule.id for rule in project.rules.values() if name in rule.legs["defence"]],
        "sha256": hashlib.sha256(copy).hexdigest(),
        "size": len(copy),
        "address": f"examples/{file.name}",
    }


def _opening(name: str, text: str) -> str:
    """Return what a file says about itself: its docstring, or the comment that it begins with."""
    if name.endswith(".py"):
        return ast.get_docstring(ast.parse(text)) or ""
    lines = [line for line in text.split("\n") if not line.startswith("#!")]
    opening: list[str] = []
    for line in lines:
        if not line.startswith("#") or "--8<--" in line:
            break
        opening.append(line.lstrip("# "))
    return "\n".join(opening)
