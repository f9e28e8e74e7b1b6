"""Read what was written for programs."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from publish.machine.prose import slug
from publish.machine.twins import twin
from publish.project import Project
from tests.harness.fences import without_fences


def parsed(text: str | bytes) -> ET.Element:
    """Return the XML of our own feed or sitemap."""
    return ET.fromstring(text)  # noqa: S314  our own


def of(project: Project, src: str) -> str:
    """Return the Markdown of a page."""
    return twin(project.pages[src], project)


def anchors(text: str) -> set[str]:
    """Return all that a link into a page's Markdown can name."""
    headings = re.findall(r"^#+ (.*)$", without_fences(text), re.MULTILINE)
    return {slug(heading.replace("`", "")) for heading in headings} | set(
        re.findall(r'<a id="([^"]+)">', text)
    )
