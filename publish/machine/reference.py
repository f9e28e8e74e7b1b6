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
from tests.harness.fences import parse_info

_BLOCK: Final = re.compile(r"^```(?P<info>.*)\n(?P<body>(?:.*\n)*?)```$", re.MULTILINE)
_DEFAULTS: Final[Mapping[str, Any]] = {
    "heading_level": 2,
    "show_root_heading": True,
    "inherited_members": False,
    "members": None,
}


def reference(path: str, options: str, project: Project) -> str:
    """Return what `::: path` stands for: name, signature, what it says, and its members."""
    given = (yaml.safe_load(options) or {}).get("options", {}) if options.strip() else {}
    chosen = {**_DEFAULTS, **given}
    folder = project.root / "src"
    package = _package(path.partition(".")[0], folder, _stamp(folder))
    documented = _target(package, path)
    level = int(chosen["heading_level"])
    lines: list[str] = [""]
    if chosen["show_root_heading"]:
        lines += _head(documented, level, path)
        level += 1
    lines += _said(documented)
    members = list(_members(documented, chosen))
    if documented.is_module:
        for member in members:
            lines += _head(member, level, f"{path}.{member.name}")  # as the site has it
            lines += _said(member)
            lines += _listed(_members(member, {**chosen, "members": None}))
    else:
        lines += _listed(iter(members))
    return "\n".join([*lines, ""])


def _stamp(folder: Path) -> int:
    """Return what differs once a file was changed: while a site is served, they are."""
    return max((file.stat().st_mtime_ns for file in folder.rglob("*.py")), default=0)


@lru_cache(maxsize=2)
def _package(name: str, folder: Path, stamp: int) -> griffe.Object:  # noqa: ARG001
    loaded = griffe.load(
        name,
        search_paths=[folder],
        docstring_parser="google",
        docstring_options={"returns_multiple_items": False},
        resolve_aliases=True,
        allow_inspection=False,
    )
    return _final(loaded)


def _final(found: griffe.Object | griffe.Alias) -> griffe.Object:
    return found.final_target if isinstance(found, griffe.Alias) else found


def _target(package: griffe.Object, path: str) -> griffe.Object:
    found = package
    for part in path.split(".")[1:]:
        found = _final(found[part])
    return found


def _members(documented: griffe.Object, chosen: Mapping[str, Any]) -> Iterator[griffe.Object]:
    """Yield what has a docstring and is public, in the order of the source."""
    inherited = chosen["inherited_members"] and documented.is_class
    members = documented.all_members if inherited else documented.members
    exported = (documented.exports or ()) if documented.is_module else ()
    wanted = chosen["members"]
    for name, member in members.items():
        if wanted is False or (isinstance(wanted, list) and name not in wanted):
            continue
        imported = member.is_alias and not inherited and not isinstance(wanted, list)
        if name.startswith("_") or (imported and name not in exported):
            continue
        try:
            found = _final(member)
        except griffe.AliasResolutionError:
            continue
        if found.docstring is not None and not found.is_module:
            yield found


def _signature(documented: griffe.Object) -> str:
    if isinstance(documented, griffe.Function):
        if "property" in documented.labels:
            return f"{documented.name}: {documented.returns}"
        return documented.signature() or f"{documented.name}()"
    if isinstance(documented, griffe.Class):
        shown = griffe.Function(documented.name, parameters=_own_parameters(documented))
        return shown.signature() or documented.name
    if isinstance(documented, griffe.Attribute) and documented.annotation:
        return f"{documented.name}: {documented.annotation}"
    return documented.name


def _own_parameters(documented: griffe.Class) -> griffe.Parameters:
    return griffe.Parameters(*(p for p in documented.parameters if p.name != "self"))


def _head(documented: griffe.Object, level: int, path: str) -> list[str]:
    heading = f"{'#' * level} `{_signature(documented)}`"
    if documented.is_module:
        heading = f"{'#' * level} `{documented.path}`"
    return [f'<a id="{path}"></a>', "", heading, ""]


def _said(documented: griffe.Object) -> list[str]:
    """Return the docstring's own text, without examples and without lists of parameters."""
    if documented.docstring is None:
        return []
    lines: list[str] = []
    for section in documented.docstring.parsed:
        if section.kind is griffe.DocstringSectionKind.text:
            lines += [_without_examples(str(section.value)), ""]
    return lines


def _without_examples(text: str) -> str:
    """Leave out blocks of code, but not of text: that is a drawing, or what something prints."""
    return _BLOCK.sub(_text_block, text).strip("\n")


def _text_block(found: re.Match[str]) -> str:
    shown = parse_info(found["info"]).language == "text"
    return f"```text\n{found['body']}```" if shown else ""


def _listed(members: Iterator[griffe.Object]) -> list[str]:
    lines = [f"- `{_signature(member)}`: {_summary(member)}" for member in members]
    return [*lines, ""] if lines else []


def _summary(documented: griffe.Object) -> str:
    text = documented.docstring.value if documented.docstring else ""
    return " ".join(text.strip().split("\n\n")[0].split())
