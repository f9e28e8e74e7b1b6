"""The reference as text: what mkdocstrings shows, short, from the same docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import griffe
import yaml

from publish.project import Project

_CODE: Final = re.compile(r"^```(?!text|\{ \.text)(?:.*\n)*?```$\n?", re.MULTILINE)
_FENCE: Final = re.compile(r"^```\{ \.text.*$", re.MULTILINE)


def reference(path: str, options: str, project: Project) -> str:
    """Return what `::: path` stands for: name, signature, what it says, and its members."""
    given: Mapping[str, Any] = (yaml.safe_load(options) or {}).get("options", {})
    folder = project.root / "src"
    stamp = max((file.stat().st_mtime_ns for file in folder.rglob("*.py")), default=0)
    package, *parts = path.split(".")
    documented = _package(package, folder, stamp)
    for part in parts:
        documented = _final(documented[part])
    level = given.get("heading_level", 2)
    lines: list[str] = []
    if given.get("show_root_heading", True):
        lines += _head(documented, level, path)
        level += 1
    lines += _said(documented)
    members = _members(documented, given)
    if not documented.is_module:
        return "\n".join([*lines, *_listed(members)])
    for member in members:
        lines += _head(member, level, f"{path}.{member.name}")  # as the site has it
        lines += _said(member)
        lines += _listed(_members(member, {**given, "members": None}))
    return "\n".join(lines)


@lru_cache(maxsize=2)
def _package(name: str, folder: Path, stamp: int) -> griffe.Object:  # noqa: ARG001  differs after a change
    return _final(
        griffe.load(
            name,
            search_paths=[folder],
            docstring_parser="google",
            docstring_options={"returns_multiple_items": False},
            resolve_aliases=True,
            allow_inspection=False,
        )
    )


def _final(found: griffe.Object | griffe.Alias) -> griffe.Object:
    return found.final_target if isinstance(found, griffe.Alias) else found


def _members(documented: griffe.Object, given: Mapping[str, Any]) -> Iterator[griffe.Object]:
    """Yield what has a docstring and is public, in the order of the source."""
    inherited = given.get("inherited_members") and documented.is_class
    exported = (documented.exports or ()) if documented.is_module else ()
    wanted = given.get("members")
    for name, member in (documented.all_members if inherited else documented.members).items():
        if isinstance(wanted, list):
            is_shown = name in wanted
        else:
            is_shown = wanted is not False and (
                not member.is_alias or inherited or name in exported
            )
        if not is_shown or name.startswith("_"):
            continue
        found = _final(member)
        if found.docstring is not None and not found.is_module:
            yield found


def _signature(documented: griffe.Object) -> str:
    if isinstance(documented, griffe.Function) and "property" not in documented.labels:
        return documented.signature() or f"{documented.name}()"
    if isinstance(documented, griffe.Class):
        own = griffe.Parameters(*(p for p in documented.parameters if p.name != "self"))
        return griffe.Function(documented.name, parameters=own).signature() or documented.name
    kind = getattr(documented, "annotation", None)
    return f"{documented.name}: {kind}" if kind else documented.name


def _head(documented: griffe.Object, level: int, path: str) -> list[str]:
    said = documented.path if documented.is_module else _signature(documented)
    return [f'<a id="{path}"></a>', "", f"{'#' * level} `{said}`", ""]


def _said(documented: griffe.Object) -> list[str]:
    """Return the docstring's own text, without examples and without lists of parameters.

    A block of text stays: it is a drawing, or what something prints.
    """
    sections = documented.docstring.parsed if documented.docstring else []
    texts = [str(each.value) for each in sections if each.kind is griffe.DocstringSectionKind.text]
    return [_FENCE.sub("```text", _CODE.sub("", text)).strip("\n") + "\n" for text in texts]


def _listed(members: Iterator[griffe.Object]) -> list[str]:
    lines = []
    for each in members:
        said = (each.docstring.value if each.docstring else "").strip().split("\n\n")[0]
        lines.append(f"- `{_signature(each)}`: {' '.join(said.split())}")
    return [*lines, ""]
