"""What programs read: Markdown twins, llms.txt, JSON, the feed and the sitemap.

All of it comes from the sources (pages, rules, catalogues, snippets), never from the HTML, so that
it is the same whichever generator built the pages.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from publish import verified
from publish.machine import data, examples, feed, llms, sitemap, twins
from publish.project import Project

_DATA: Final = ("rules", "attacks", "examples", "errors", "matrix", "advisories", "evidence")


def apply(site: Path, project: Project, counts: Counter[str]) -> None:
    """Write everything that programs read into a built site that shows so many blocks."""
    for name, text in files(project, counts).items():
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text)
    sitemap.apply(site, project)


def served(project: Project) -> list[str]:
    """Return the addresses of all but the twins, for pages that link there before it is written."""
    names = [f"data/{name}.json" for name in _DATA]
    return ["llms.txt", *names, "feed.xml", *examples.copies(project)]


def files(project: Project, counts: Counter[str] | None = None) -> dict[str, bytes]:
    """Return what programs read, by its address below the site's root, the sitemap aside."""
    texts = {
        **{
            name: verified.with_census(text, counts or Counter(), project)
            for name, text in twins.twins(project).items()
        },
        "llms.txt": llms.text(project),
        **{
            f"data/{name}.json": data.dump(value)
            for name, value in data.documents(project, counts).items()
        },
        "feed.xml": feed.atom(project),
    }
    return {name: text.encode() for name, text in texts.items()} | examples.copies(project)
