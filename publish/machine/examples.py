"""The examples as files: what they are, and copies that a program can fetch."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Any, Final

from publish.project import Project
from safepoint.command.examples import digest, mark, opening, read_examples, rules_of

PAGE: Final = "rules.md"
_ROW: Final = re.compile(
    r"^\| \[`(?P<name>[^`]+)`\]\S+ \| (?P<gives>.+?) \| (?P<read>.+?) \|$", re.MULTILINE
)


def copies(project: Project) -> dict[str, bytes]:
    """Return each file under its address, as `safepoint examples` writes it."""
    examples = read_examples(project.root / "snippets")
    return {f"examples/{name}": mark(name, content) for name, content in examples.items()}


def described(project: Project) -> list[dict[str, Any]]:
    """Return what is known about each file."""
    text = project.pages[PAGE].text if PAGE in project.pages else ""
    gives = {row["name"]: _plain(row["gives"]) for row in _ROW.finditer(text)}
    found = []
    for name, content in read_examples(project.root / "snippets").items():
        title, _, rest = opening(name, content.decode()).partition("\n")
        found.append(
            {
                "name": name,
                "title": title.strip(),
                "description": gives.get(name) or " ".join(rest.split()) or title.strip(),
                "rules": rules_of(name),
                "size": len(mark(name, content)),
                "address": f"examples/{name}",
                "version": metadata.version("safepoint"),
                "sha256": digest(content),
            }
        )
    return found


def _plain(text: str) -> str:
    """Return a sentence without its markup."""
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    return re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", text)
