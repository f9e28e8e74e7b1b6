"""Stop a build at what would not be built as it was meant: all of it at once, line by line."""

from __future__ import annotations

from publish.broken import BrokenPage
from publish.fill import broken_lines
from publish.links import broken_links
from publish.project import Project
from publish.sources import check_sources


def check(project: Project) -> None:
    """Look at every page and file that the site is made from.

    Raises:
        BrokenPage: with one line for each place.
    """
    check_sources(project.root)
    problems = [
        problem
        for src in project.pages
        for problem in broken_lines(src, (project.docs / src).read_text(encoding="utf-8"), project)
    ]
    # Where a page cannot be read as it was meant, its links cannot either.
    problems = problems or broken_links(project)
    if problems:
        raise BrokenPage("\n".join(problems))
