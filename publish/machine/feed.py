"""feed.xml: advisories and changes, as Atom (RFC 4287); and sitemap.xml, every page."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from publish import advisories, changes
from publish.project import Project, base, public

ATOM: Final = "http://www.w3.org/2005/Atom"
SITEMAP: Final = "http://www.sitemaps.org/schemas/sitemap/0.9"
TAG: Final = "tag:safepoint,2026:"
"""What every id begins with. Ids stay when the site moves."""


class Entry(NamedTuple):
    """What a reader of the feed sees."""

    id: str
    title: str
    updated: datetime
    address: str
    summary: str


def entries(project: Project) -> list[Entry]:
    """Return what has a date, the newest first."""
    found = [
        Entry(
            f"{TAG}advisory/{each.id}",
            f"{each.id}: {each.package}",
            _midnight(each.first_day),
            f"advisories/#{each.anchor}",
            f"{each.about} {each.versions}",
        )
        for each in advisories.read(project)
        if each.first_day
    ]
    found += [
        Entry(
            f"{TAG}changes/{version.name.lower()}",
            f"{project.settings['site_name']}: {version.name}",
            _midnight(version.day),
            f"changes/#{version.anchor}",
            version.summary,
        )
        for version in changes.versions(project)
        if version.day
    ]
    return sorted(found, key=lambda entry: (entry.updated, entry.id), reverse=True)


def atom(project: Project) -> str:
    """Return the feed. Its addresses are relative where the site does not know its own."""
    shown = entries(project)
    feed = ET.Element("feed", {"xmlns": ATOM} | ({"xml:base": base()} if base() else {}))
    name = project.settings["site_name"]
    newest = shown[0].updated if shown else datetime.fromtimestamp(0, UTC)
    _add(feed, f"{TAG}feed", f"{name}: advisories and changes", newest)
    ET.SubElement(feed, "subtitle").text = project.settings["site_description"]
    ET.SubElement(ET.SubElement(feed, "author"), "name").text = name
    ET.SubElement(feed, "link", {"rel": "self", "href": public("feed.xml")})
    ET.SubElement(feed, "link", {"rel": "alternate", "href": public("changes/")})
    for entry in shown:
        element = ET.SubElement(feed, "entry")
        _add(element, entry.id, entry.title, entry.updated)
        ET.SubElement(element, "link", {"rel": "alternate", "href": public(entry.address)})
        ET.SubElement(element, "summary").text = entry.summary
    return _written(feed)


def sitemap(project: Project) -> str:
    """Return every page."""
    root = ET.Element("urlset", {"xmlns": SITEMAP})
    for page in project.pages.values():
        ET.SubElement(ET.SubElement(root, "url"), "loc").text = public(page.url)
    return _written(root)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _add(parent: ET.Element, identifier: str, title: str, updated: datetime) -> None:
    """Add what both the feed and each of its entries have."""
    stamp = updated.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for name, text in {"id": identifier, "title": title, "updated": stamp}.items():
        ET.SubElement(parent, name).text = text


def _written(root: ET.Element) -> str:
    ET.indent(root, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
