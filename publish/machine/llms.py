"""llms.txt: what the site has, for a program that reads Markdown. See llmstxt.org."""

from __future__ import annotations

from typing import Final

from publish.project import Project, public

OPTIONAL: Final = "Reference"
"""The section that a program may leave out when it has little room."""
_LEGEND: Final = (
    "Every page below is Markdown. A block under `UNSAFE - do not copy` is an attack; one under "
    "`Refused:` raises; one under `Do this:` is what to write."
)
DATA: Final = {
    "data/rules.json": "every rule with its four legs",
    "data/attacks.json": "every attack, and the rule that it shows the reason for",
    "data/examples.json": "every example with its digest; the files lie beside it in `examples/`",
    "data/errors.json": "every error, what it means and what to do first",
    "data/checks.json": "every finding of the audit, what it looks at and what to do",
    "data/advisories.json": "published advisories, and the rules that help against each",
    "data/evidence.json": "each block of each page, and how it ran",
    "feed.xml": "advisories, as Atom",
}
"""What is no page and no example, with what it holds."""


def text(project: Project) -> str:
    """Return the file."""
    about = project.settings
    parts = [
        f"# {about['site_name']}\n\n> {about['site_description']}\n",
        f"{_LEGEND} {project.evidence.said}\n",
    ]
    sections = {name or "Overview": pages for name, pages in project.sections.items()}
    optional = sections.pop(OPTIONAL, [])
    lists = {
        name: [_listed(src, project) for src in pages if src in project.pages]
        for name, pages in {**sections, "Data": [], "Optional": optional}.items()
    }
    lists["Data"] = [f"- [{path}]({public(path)}): {said}\n" for path, said in DATA.items()]
    parts += [f"## {name}\n\n{''.join(lines)}" for name, lines in lists.items() if lines]
    return "\n".join(parts)


def _listed(src: str, project: Project) -> str:
    page = project.pages[src]
    return f"- [{page.title.replace('`', '')}]({public(page.twin)}): {page.description}\n"
