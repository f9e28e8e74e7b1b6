"""sitemap.xml: every page with its complete address, and so none where the site has no address."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from publish.machine.address import base, public
from publish.project import Project

SITEMAP: Final = "http://www.sitemaps.org/schemas/sitemap/0.9"


def apply(site: Path, project: Project) -> None:
    """Write the sitemap, or remove the empty one that MkDocs writes without SITE_URL.

    A compressed copy would carry the time of the build, so there is none.
    """
    (site / "sitemap.xml.gz").unlink(missing_ok=True)
    if base():
        (site / "sitemap.xml").write_text(sitemap(project), encoding="utf-8")
    else:
        (site / "sitemap.xml").unlink(missing_ok=True)


def sitemap(project: Project) -> str:
    """Return every page, with the day of its last change where git knows it."""
    ET.register_namespace("", SITEMAP)
    root = ET.Element(f"{{{SITEMAP}}}urlset")
    for page in project.pages.values():
        url = ET.SubElement(root, f"{{{SITEMAP}}}url")
        ET.SubElement(url, f"{{{SITEMAP}}}loc").text = public(page.url)
        changed = project.reviewed.get(page.src)
        if changed is not None:
            ET.SubElement(url, f"{{{SITEMAP}}}lastmod").text = changed.isoformat()
    ET.indent(root, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
