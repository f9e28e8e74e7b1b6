"""llms.txt: what the site has, for a program that reads Markdown. See llmstxt.org."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from publish.machine.address import public
from publish.machine.prose import about, plain
from publish.project import Project

OPTIONAL: Final = "Reference"
"""The section that a program may leave out when it has little room."""
_LEGEND: Final = (
    "Every page below is Markdown. A block under `UNSAFE - do not copy` is an attack; one under "
    "`Refused:` raises; one under `Do this:` is what to write."
)
_DATA: Final = {
    "data/rules.json": "every rule with its four legs",
    "data/attacks.json": "every attack, and the rule that it shows the reason for",
    "data/examples.json": "every example with its digest; the files lie beside it in `examples/`",
    "data/errors.json": "every error, what it means and what to do first",
    "data/matrix.json": "rule, attack, example, test and check in one table",
    "data/advisories.json": "published advisories, and the rules that help against each",
    "data/evidence.json": "each block of each page, and how it ran",
    "feed.xml": "advisories and changes, as Atom",
}


def text(project: Project) -> str:
    """Return the file."""
    name = project.settings["site_name"]
    lines = [
        f"# {name}",
        "",
        f"> {project.settings['site_description']}",
        "",
        f"{_LEGEND} {project.evidence.said}",
    ]
    sections = [(title or "Overview", pages) for title, pages in _merged(project)]
    optional = [pages for title, pages in sections if title == OPTIONAL]
    for title, pages in sections:
        if title != OPTIONAL:
            lines += ["", f"## {title}", "", *_links(pages, project)]
    lines += ["", "## Data", ""]
    lines += [f"- [{path}]({public(path)}): {said}" for path, said in _DATA.items()]
    for pages in optional:
        lines += ["", "## Optional", "", *_links(pages, project)]
    return "\n".join([*lines, ""])


def _merged(project: Project) -> list[tuple[str, list[str]]]:
    """Return the sections, with all pages outside of one at the place of the first of them."""
    found: dict[str, list[str]] = {}
    for title, pages in project.sections:
        found.setdefault(title, []).extend(pages)
    return list(found.items())


def _links(pages: Sequence[str], project: Project) -> list[str]:
    shown = [project.pages[src] for src in pages if src in project.pages]
    return [f"- [{plain(page.title)}]({public(page.twin)}): {about(page)}" for page in shown]
