"""The body of the page "By error": what each error means, from `safepoint.explain`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

from markdown.extensions.toc import slugify, unique

from publish.broken import BrokenPage
from publish.project import Project
from safepoint.explain import EXPLANATIONS, FAMILIES, Explanation
from tests.harness.fences import without_fences

_HEADING: Final = re.compile(r"^#{1,6} (?P<title>.+?)(?: \{ #(?P<id>[\w-]+) \})?$")
_ATTACK: Final = "Attack:"
_ATTRIBUTE: Final = re.compile(r"^    (?P<name>\w+): (?P<text>.+)$", re.MULTILINE)
# What every page about a rule has. Alone, such a name says nothing about where a link leads.
_ON_EVERY_PAGE: Final = frozenset(["The attack", "The refusal", "What to write"])


def names(project: Project) -> str:  # noqa: ARG001  every fill is given the project
    """Return every error by family, each a link to what there is to know about it."""
    return "\n".join(
        f"- {title}: "
        + ", ".join(
            f"[{found.name}](#{found.name.lower()})"
            for found in EXPLANATIONS.values()
            if found.family == root
        )
        for root, title in FAMILIES.items()
    )


def markdown(project: Project) -> str:
    """Return a heading for each family, and for each error what to know about it."""
    lines: list[str] = []
    for root, title in FAMILIES.items():
        lines += [f"## {title}", ""]
        for found in EXPLANATIONS.values():
            if found.family == root:
                lines += _explained(found, project)
    return "\n".join(lines)


def _explained(found: Explanation, project: Project) -> Iterator[str]:
    # The heading's own id is the one that the reference links to. The short one is what a message
    # carries, and stays even if the class moves.
    path = f"{found.error.__module__}.{found.name}"
    yield f'<div class="error" id="{found.name.lower()}" markdown>'
    yield ""
    yield f"### {found.name} {{ #{path} }}"
    yield ""
    kind = f", a kind of [{found.parent}](#{found.parent.lower()})" if found.parent else ""
    yield f"`{path}`{kind}"
    yield ""
    yield found.says
    yield ""
    yield found.means
    yield ""
    attributes = (inspect.getdoc(found.error) or "").partition("Attributes:")[2]
    for each in _ATTRIBUTE.finditer(attributes):
        yield f"- `error.{each['name']}`: {each['text']}"
    yield ""
    yield f"**First:** {found.first}"
    yield ""
    yield "What may be behind it:"
    yield ""
    for cause in found.causes:
        is_attack = cause.startswith(_ATTACK)
        yield f"- **{_ATTACK}**{cause.removeprefix(_ATTACK)}" if is_attack else f"- {cause}"
    yield ""
    pages = "; ".join(_link(page, found, project) for page in found.pages)
    rules = ", ".join(f"[{rule}](rules.md#{rule.lower()})" for rule in found.rules)
    yield f"See {pages}." + (f" Rules: {rules}." if rules else "")
    yield "</div>"
    yield ""


def _link(page: str, found: Explanation, project: Project) -> str:
    src, _, anchor = page.partition("#")
    section = sections(project.pages[src].text).get(anchor) if src in project.pages else None
    if section is None:
        raise BrokenPage(
            f"src/safepoint/errors.toml: {found.name} names {page}, which is not there; correct it"
        )
    title = project.pages[src].title
    return f"[{title if section in _ON_EVERY_PAGE else f'{title}: {section}'}]({page})"


def sections(text: str) -> dict[str, str]:
    """Return the headings of a page by their anchors, as the site will have them."""
    found: dict[str, str] = {}
    for line in without_fences(text).split("\n"):
        heading = _HEADING.match(line)
        if heading is not None:
            anchor = heading["id"] or unique(slugify(heading["title"], "-"), {*found})
            found[anchor] = heading["title"]
    return found
