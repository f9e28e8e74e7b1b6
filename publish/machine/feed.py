"""feed.xml: advisories and changes, as Atom (RFC 4287)."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from publish import advisories, changes
from publish.machine.address import base, public
from publish.project import Project

ATOM: Final = "http://www.w3.org/2005/Atom"
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
    found = [*_advisories(project), *_changes(project)]
    return sorted(found, key=lambda entry: (entry.updated, entry.id), reverse=True)


def atom(project: Project) -> str:
    """Return the feed. Its addresses are relative where the site does not know its own."""
    ET.register_namespace("", ATOM)
    shown = entries(project)
    feed = ET.Element(f"{{{ATOM}}}feed")
    if base():
        feed.set("{http://www.w3.org/XML/1998/namespace}base", base())
    name = project.settings["site_name"]
    _add(feed, "id", f"{TAG}feed")
    _add(feed, "title", f"{name}: advisories and changes")
    _add(feed, "subtitle", project.settings["site_description"])
    newest = max((entry.updated for entry in shown), default=datetime.fromtimestamp(0, UTC))
    _add(feed, "updated", _stamp(newest))
    _add(_add(feed, "author"), "name", name)
    _link(feed, "self", "feed.xml")
    _link(feed, "alternate", "changes/")
    for entry in shown:
        element = _add(feed, "entry")
        _add(element, "id", entry.id)
        _add(element, "title", entry.title)
        _add(element, "updated", _stamp(entry.updated))
        _link(element, "alternate", entry.address)
        _add(element, "summary", entry.summary)
    ET.indent(feed, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(feed, encoding="unicode")}\n'


def _advisories(project: Project) -> list[Entry]:
    return [
        Entry(
            f"{TAG}advisory/{each.id}",
            f"{each.id}: {each.package}",
            datetime.combine(each.first_day, time(), UTC),
            f"advisories/#{each.anchor}",
            f"{each.about} {each.versions}",
        )
        for each in advisories.read(project)
        if each.first_day is not None
    ]


def _changes(project: Project) -> list[Entry]:
    found = []
    for version in changes.versions(project):
        day = version.day
        updated = datetime.combine(day, time(), UTC) if day else project.committed
        if updated is None:
            continue
        found.append(
            Entry(
                f"{TAG}changes/{version.name.lower()}",
                f"{project.settings['site_name']}: {version.name}",
                updated,
                f"changes/#{version.anchor}",
                version.summary,
            )
        )
    return found


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _add(parent: ET.Element, name: str, text: str | None = None) -> ET.Element:
    element = ET.SubElement(parent, f"{{{ATOM}}}{name}")
    element.text = text
    return element


def _link(parent: ET.Element, relation: str, path: str) -> None:
    ET.SubElement(parent, f"{{{ATOM}}}link", {"rel": relation, "href": public(path)})
