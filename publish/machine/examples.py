"""The examples as files: what they are, and copies that a program can fetch."""

from __future__ import annotations

import ast
import hashlib
import re
from pathlib import Path
from typing import Any, Final

from publish.project import BrokenPage, Project, decoded
from publish.sources import EXAMPLES

PAGE: Final = "examples.md"
_ROW: Final = re.compile(
    r"^\| \[`(?P<name>[^`]+)`\]\S+ \| (?P<gives>.+?) \| (?P<read>.+?) \|$", re.MULTILINE
)
_MARK: Final = re.compile(rb"^ *# --8<-- \[(?:start|end):\w+\]\n", re.MULTILINE)
_OPENING: Final = re.compile(r"(?:#!.*\n)?(?P<lines>(?:#.*\n)*)")


def copies(project: Project) -> dict[str, bytes]:
    """Return each file under its address, without the marks by which pages find parts of it."""
    return {
        f"examples/{file.name}": _MARK.sub(b"", file.read_bytes())
        for file in sorted((project.root / "snippets").glob("[!.]*"))
        if file.suffix in EXAMPLES and file.is_file() and not file.is_symlink()
    }


def described(project: Project) -> list[dict[str, Any]]:
    """Return what is known about each file.

    Raises:
        BrokenPage: one is no text, or no Python although it is called so.
    """
    text = project.pages[PAGE].text if PAGE in project.pages else ""
    gives = {row["name"]: _plain(row["gives"]) for row in _ROW.finditer(text)}
    found = []
    for address, content in copies(project).items():
        name = Path(address).name
        source = f"snippets/{name}"
        title, _, rest = _opening(source, content).partition("\n")
        found.append(
            {
                "name": name,
                "title": title.strip(),
                "description": gives.get(name) or " ".join(rest.split()) or title.strip(),
                "rules": [r.id for r in project.rules.values() if source in r.legs["defence"]],
                "sha256": hashlib.sha256(content).hexdigest(),
                "size": len(content),
                "address": address,
            }
        )
    return found


def _opening(name: str, content: bytes) -> str:
    """Return what a file says about itself: its docstring, or the comment that it begins with."""
    text = decoded(name, content)
    if not name.endswith(".py"):
        found = _OPENING.match(text)
        return re.sub("^# ?", "", found["lines"], flags=re.MULTILINE) if found else ""
    try:
        return ast.get_docstring(ast.parse(text)) or ""
    except SyntaxError as error:
        raise BrokenPage(f"{name}:{error.lineno or 1}: this is no Python; correct it") from None


def _plain(text: str) -> str:
    """Return a sentence without its markup."""
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    return re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", text)
