"""Fill in what a page leaves to the build, and stop at what would not be built as it was meant.

A line `<!-- fill NAME -->` becomes what `FILLS[NAME]` writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from publish import advisories, attacks, changes, checks, errors, install, verified
from publish.project import BrokenPage, Project, repository
from publish.sources import check_sources
from tests.harness.blocks import scan_page, without_fences

Fill = Callable[[Project], str]

_ADAPTERS: Final = ("langgraph", "agent-framework")
FILLS: Final[Mapping[str, Fill]] = {
    "advisories": advisories.markdown,
    "advisories-in-short": advisories.in_short,
    **{f"attacks-{group}": partial(attacks.markdown, group=group) for group in attacks.GROUPS},
    "changes": changes.markdown,
    "checks": checks.markdown,
    "checks-refusals": checks.refusals,
    "errors": errors.markdown,
    "evidence": verified.evidence,
    "evidence-line": verified.line,
    "census": verified.census,
    "install": install.line,
    "install-guide": install.guide,
    **{f"install-{extra}": partial(install.line, extra=extra) for extra in _ADAPTERS},
    "matrix": verified.matrix,
    "versions": verified.versions,
}
_MARKER: Final = re.compile(r"^<!-- fill (?P<name>[\w-]+) -->$", re.MULTILINE)
_RULE: Final = re.compile(r"\bSP\d+\b")


def check(project: Project) -> None:
    """Look at every page and file that the site is made from.

    Raises:
        BrokenPage: with one line for each place.
    """
    repository()
    check_sources(project.root)
    problems = [
        problem
        for src in project.pages
        for problem in broken_lines(src, (project.docs / src).read_text(encoding="utf-8"), project)
    ]
    if problems:
        raise BrokenPage("\n".join(problems))


def broken_lines(src: str, text: str, project: Project) -> list[str]:
    """Return each place of a page that would not be built as it was meant."""
    page = f"docs/{src}"
    found = scan_page(text, page, root=project.root)
    problems = [str(block) for block in found if block.problem]
    for number, line in enumerate(without_fences(text).split("\n"), 1):
        marker = _MARKER.match(line)
        if marker and marker["name"] not in FILLS:
            known = ", ".join(sorted(FILLS))
            problems.append(f"{page}:{number}: nothing fills in {marker['name']!r}; known: {known}")
        problems += [
            f"{page}:{number}: there is no rule {found}; see src/safepoint/rules.toml"
            for found in _RULE.findall(line)
            if found not in project.rules
        ]
    return problems


def fill(text: str, project: Project) -> str:
    """Return the page with every marker replaced.

    Raises:
        BrokenPage: what takes its place holds markup that a page may not have, or a block.
    """
    return _MARKER.sub(lambda marker: _filled(marker["name"], project), text)


def _filled(name: str, project: Project) -> str:
    text = FILLS[name](project).strip("\n")
    found = scan_page(text, f"docs/(filled in by {name})", root=project.root)
    if found:
        said = "a block, which nobody ran"
        raise BrokenPage("\n".join(str(b) if b.problem else f"{b}{said}" for b in found))
    return text
