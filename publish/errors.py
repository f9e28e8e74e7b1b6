"""The body of the page "By error": what each error means, from `safepoint.shared.explanations`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

from markdown.extensions.toc import slugify, unique

from publish.project import BrokenPage, Project
from safepoint.shared.explanations import EXPLANATIONS, Explanation
from tests.harness.blocks import without_fences

_HEADING: Final = re.compile(r"^#{1,6} (?P<title>.+?)(?: \{ #(?P<id>[\w-]+) \})?$", re.MULTILINE)
_ATTACK: Final = "Attack:"
_ATTRIBUTE: Final = re.compile(r"^    (?P<name>\w+): (?P<text>.+)$", re.MULTILINE)
# What every page about a rule has. Alone, such a name says nothing about where a link leads.
_ON_EVERY_PAGE: Final = frozenset(["The attack", "The fix", "What is refused"])


def markdown(project: Project) -> str:
    """Return for each error what to know about it."""
    parts = ["## The errors"]
    for found in EXPLANATIONS.values():
        parts += _explained(found, project)
    return "\n\n".join(parts)


def _explained(found: Explanation, project: Project) -> Iterator[str]:
    # The heading's own id is the one that the reference links to. The short one is what a message
    # carries, and stays even if the class moves.
    path = f"{found.error.__module__}.{found.name}"
    yield f'<div class="fold" id="{found.name.lower()}" markdown>'
    yield f"### {found.name} {{ #{path} }}"
    kind = f", a kind of [{found.parent}](#{found.parent.lower()})" if found.parent else ""
    yield f"`{path}`{kind}"
    yield found.says
    yield found.means
    attributes = (inspect.getdoc(found.error) or "").partition("Attributes:")[2]
    yield _ATTRIBUTE.sub(r"- `error.\g<name>`: \g<text>", attributes).strip("\n")
    yield f"**First:** {found.first}"
    yield "Possible causes:"
    yield "\n".join(f"- {cause}" for cause in found.causes).replace(_ATTACK, f"**{_ATTACK}**")
    pages = "; ".join(_link(page, found, project) for page in found.pages)
    rules = ", ".join(f"[{rule}](rules.md#{rule.lower()})" for rule in found.rules)
    yield f"See {pages}." + (f" Rules: {rules}." if rules else "") + "\n</div>"


def _link(page: str, found: Explanation, project: Project) -> str:
    src, _, anchor = page.partition("#")
    section = sections(project.pages[src].text).get(anchor) if src in project.pages else None
    if section is None:
        raise BrokenPage(
            f"src/safepoint/core/errors.toml: {found.name} names {page}, which is not there;"
            " correct it"
        )
    title = project.pages[src].title
    return f"[{title if section in _ON_EVERY_PAGE else f'{title}: {section}'}]({page})"


def sections(text: str) -> dict[str, str]:
    """Return the headings of a page by their anchors, as the site will have them."""
    found: dict[str, str] = {}
    for heading in _HEADING.finditer(without_fences(text)):
        anchor = heading["id"] or unique(slugify(heading["title"], "-"), {*found})
        found[anchor] = heading["title"]
    return found
