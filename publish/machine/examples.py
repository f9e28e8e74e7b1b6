"""The examples as files: what they are, and copies that a program can fetch."""

from __future__ import annotations

import re
from typing import Any, Final

from publish.project import BrokenPage, Project, decoded
from safepoint.command.examples import Catalogue, Release, opening, rules_of

PAGE: Final = "examples.md"
_ROW: Final = re.compile(
    r"^\| \[`(?P<name>[^`]+)`\]\S+ \| (?P<gives>.+?) \| (?P<read>.+?) \|$", re.MULTILINE
)


def copies(project: Project) -> dict[str, bytes]:
    """Return each file under its address, as `safepoint examples copy` writes it."""
    found = _catalogue(project)
    return {f"examples/{name}": found.copy_of(name) for name in found.current}


def described(project: Project) -> list[dict[str, Any]]:
    """Return what is known about each file, those that were withdrawn included.

    Raises:
        BrokenPage: one is no text, or no Python although it is called so.
    """
    text = project.pages[PAGE].text if PAGE in project.pages else ""
    gives = {row["name"]: _plain(row["gives"]) for row in _ROW.finditer(text)}
    catalogue = _catalogue(project)
    found = []
    for name, (*earlier, last) in sorted(catalogue.releases.items()):
        title, _, rest = _opening(name, catalogue.content(last) or b"").partition("\n")
        served = name in catalogue.current
        found.append(
            {
                "name": name,
                "title": title.strip(),
                "description": gives.get(name) or " ".join(rest.split()) or title.strip(),
                "rules": rules_of(name),
                "size": len(catalogue.copy_of(name)) if served else None,
                "address": f"examples/{name}" if served else None,
                **_release(last),
                "earlier": [_release(each) for each in earlier],
            }
        )
    return found


def _catalogue(project: Project) -> Catalogue:
    return Catalogue(project.root / "snippets")


def _release(each: Release) -> dict[str, Any]:
    return {
        "version": each.version,
        "sha256": each.sha256,
        "withdrawn": bool(each.reason),
        "reason": each.reason or None,
        "successor": each.successor or None,
    }


def _opening(name: str, content: bytes) -> str:
    source = f"snippets/{name}"
    try:
        return opening(name, decoded(source, content))
    except SyntaxError as error:
        raise BrokenPage(f"{source}:{error.lineno or 1}: this is no Python; correct it") from None


def _plain(text: str) -> str:
    """Return a sentence without its markup."""
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    return re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", text)
