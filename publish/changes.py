"""CHANGELOG.md as a page, and as what the feed says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from posixpath import normpath
from typing import Final

from publish.broken import BrokenPage
from publish.project import Project
from publish.sources import read_text

FILE: Final = "CHANGELOG.md"
_VERSION: Final = re.compile(
    r"^## \[?(?P<name>[^\]\s]+)\]?(?: +[-(]+ *(?P<day>\d{4}-\d\d-\d\d)\)?)?\s*$", re.MULTILINE
)
_SECTION: Final = re.compile(r"^### (?P<name>.+)$", re.MULTILINE)
_ITEM: Final = re.compile(r"^- (?P<text>.+(?:\n(?:  .*|(?=\n  )))*)", re.MULTILINE)
_LEAD: Final = re.compile(r"\*\*(?P<lead>[^*]+)\*\*")
_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Version:
    """What changed up to a release.

    Attributes:
        name: its number, or Unreleased.
        day: when it was released, if it was.
        text: what the file says about it, without its heading.
    """

    name: str
    day: date | None
    text: str

    @property
    def anchor(self) -> str:
        """Where it stands on its page."""
        return re.sub(r"[^\w]+", "-", self.name.lower())

    @property
    def summary(self) -> str:
        """What is new, by the first words of each line."""
        said = []
        parts = _SECTION.split(self.text)
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            leads = [_lead(found["text"]) for found in _ITEM.finditer(text)]
            said.append(f"{name}: {'; '.join(leads)}.")
        return " ".join(said) or self.name


def versions(project: Project) -> list[Version]:
    """Return what the file says, the newest first.

    Raises:
        BrokenPage: it holds what no page may hold, or a day that there is not.
    """
    text = read_text(project.root, FILE)
    found = list(_VERSION.finditer(text))
    ends = [each.start() for each in found[1:]] + [len(text)]
    return [
        Version(
            each["name"],
            _day(each),
            text[each.end() : end].strip("\n"),
        )
        for each, end in zip(found, ends, strict=True)
    ]


def _day(found: re.Match[str]) -> date | None:
    try:
        return date.fromisoformat(found["day"]) if found["day"] else None
    except ValueError:
        line = found.string.count("\n", 0, found.start()) + 1
        raise BrokenPage(f"{FILE}:{line}: {found['day']} is no day; correct it") from None


def markdown(project: Project) -> str:
    """Return the versions as they stand on their page."""
    parts = []
    for version in versions(project):
        day = f" · {version.day.isoformat()}" if version.day else ""
        parts.append(
            f"## {version.name}{day} {{ #{version.anchor} }}\n\n{_linked(version.text, project)}"
        )
    return "\n\n".join(parts)


def _linked(text: str, project: Project) -> str:
    """Let links lead where they lead on the site: to pages, and nowhere else in the repository."""

    def linked(found: re.Match[str]) -> str:
        path, mark, fragment = found["target"].partition("#")
        if ":" in path:
            return found[0]
        src = normpath(path).removeprefix("docs/")
        if src in project.pages:
            return f"[{found['text']}]({src}{mark}{fragment})"
        return found["text"]

    return _LINK.sub(linked, text)


def _lead(text: str) -> str:
    lead = _LEAD.match(text)
    words = lead["lead"] if lead else re.split(r"(?<=[.:])\s", text)[0]
    return " ".join(words.split()).rstrip(".:")
