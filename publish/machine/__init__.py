"""What programs read: Markdown twins, llms.txt, JSON, the feed and the sitemap.

All of it comes from the sources (pages, rules, catalogues, snippets), never from the HTML, so that
it is the same whichever generator built the pages.
"""

from __future__ import annotations

from pathlib import Path

from publish.machine import data, examples, feed, llms, sitemap, twins
from publish.project import Project


def apply(site: Path, project: Project) -> None:
    """Write everything that programs read into a built site."""
    for name, text in files(project).items():
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text)
    sitemap.apply(site, project)


def files(project: Project) -> dict[str, bytes]:
    """Return what programs read, by its address below the site's root, the sitemap aside."""
    texts = {
        **twins.twins(project),
        "llms.txt": llms.text(project),
        **{
            f"data/{name}.json": data.dump(value) for name, value in data.documents(project).items()
        },
        "feed.xml": feed.atom(project),
    }
    return {name: text.encode() for name, text in texts.items()} | examples.copies(project)
