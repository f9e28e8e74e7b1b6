"""feed.xml: the advisories that have a date, as Atom (RFC 4287)."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree as ET

from publish import advisories
from publish.project import Project, base, public

ATOM: Final = "http://www.w3.org/2005/Atom"
TAG: Final = "tag:safepoint,2026:"
"""What every id begins with. Ids stay when the site moves."""


def atom(project: Project) -> str:
    """Return the feed, the newest first; its addresses are relative without SITE_URL."""
    dated = [(each.first_day, each) for each in advisories.read(project) if each.first_day]
    dated.sort(key=lambda pair: (pair[0], pair[1].id), reverse=True)
    feed = ET.Element("feed", {"xmlns": ATOM} | ({"xml:base": base()} if base() else {}))
    name = project.settings["site_name"]
    _add(feed, "feed", f"{name}: advisories", str(dated[0][0]), "affected/")
    ET.SubElement(feed, "subtitle").text = project.settings["site_description"]
    ET.SubElement(ET.SubElement(feed, "author"), "name").text = name
    ET.SubElement(feed, "link", {"rel": "self", "href": public("feed.xml")})
    for day, each in dated:
        entry = ET.SubElement(feed, "entry")
        address = f"affected/#{each.anchor}"
        _add(entry, f"advisory/{each.id}", f"{each.id}: {each.package}", str(day), address)
        ET.SubElement(entry, "summary").text = f"{each.about} {each.versions}"
    ET.indent(feed, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(feed, encoding="unicode")}\n'


def _add(parent: ET.Element, name: str, title: str, day: str, address: str) -> None:
    """Add what both the feed and each of its entries have."""
    texts = {"id": f"{TAG}{name}", "title": title, "updated": f"{day}T00:00:00Z"}
    for tag, text in texts.items():
        ET.SubElement(parent, tag).text = text
    ET.SubElement(parent, "link", {"rel": "alternate", "href": public(address)})
