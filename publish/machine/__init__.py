"""What programs read: Markdown twins, llms.txt, JSON, and the feed.

All of it comes from the sources (pages, rules, catalogues, snippets), never from the HTML, so that
it is the same whichever generator built the pages.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from publish import verified
from publish.machine import data, examples, feed, llms, twins
from publish.project import Project


def apply(site: Path, project: Project, counts: Counter[str]) -> None:
    """Write everything that programs read into a built site that shows so many blocks."""
    for name, text in files(project, counts).items():
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text)


def served(project: Project) -> list[str]:
    """Return the addresses of all but the twins, for pages that link there before it is written."""
    return [*llms.DATA, "llms.txt", *examples.copies(project)]


def files(project: Project, counts: Counter[str] | None = None) -> dict[str, bytes]:
    """Return what programs read, by its address below the site's root."""
    texts = {
        name: verified.with_census(text, counts or Counter(), project)
        for name, text in twins.twins(project).items()
    }
    texts |= {"llms.txt": llms.text(project), "feed.xml": feed.atom(project)}
    for name, document in data.documents(project, counts).items():
        texts[f"data/{name}.json"] = data.dump(document)
    return {name: text.encode() for name, text in texts.items()} | examples.copies(project)
