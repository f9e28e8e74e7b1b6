"""CHANGELOG.md as a page."""

from __future__ import annotations

import re
from typing import Final

from publish.project import Project

_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")


def markdown(project: Project) -> str:
    """Return what changed, without the head of the file."""

    def linked(found: re.Match[str]) -> str:
        """Lead to a page of the site, and nowhere else in the repository."""
        src = found["path"].removeprefix("docs/")
        there = f"[{found['text']}]({src}{found['anchor'] or ''})"
        return there if src in project.pages else found["text"]

    _, heading, rest = (project.root / "CHANGELOG.md").read_text("utf-8").partition("\n## ")
    return _LINK.sub(linked, heading + rest)
