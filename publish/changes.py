"""CHANGELOG.md as a page, and as what the feed says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Final

from publish.project import BrokenPage, Project
from publish.sources import read_text

FILE: Final = "CHANGELOG.md"
_VERSION: Final = re.compile(
    r"^## \[?(?P<name>[^\]\s]+)\]?(?: - (?P<day>\d{4}-\d\d-\d\d))?\s*$", re.MULTILINE
)
_SECTION: Final = re.compile(r"^### (?P<name>.+)$", re.MULTILINE)
_ITEM: Final = re.compile(r"^- (?P<text>.+(?:\n(?:  .*|(?=\n  )))*)", re.MULTILINE)
_LEAD: Final = re.compile(r"\*\*(?P<lead>[^*]+)\*\*|(?P<words>.+?)(?=[.:](?:\s|$)|$)", re.DOTALL)
_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")


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
            leads = [_LEAD.match(item["text"]) for item in _ITEM.finditer(text)]
            words = [" ".join((lead["lead"] or lead["words"]).split()) for lead in leads if lead]
            said.append(f"{name}: {'; '.join(each.rstrip('.:') for each in words)}.")
        return " ".join(said) or self.name


def versions(project: Project) -> list[Version]:
    """Return what the file says, the newest first.

    Raises:
        BrokenPage: it holds what no page may hold, or a day that there is not.
    """
    text = read_text(project.root, FILE)
    found = list(_VERSION.finditer(text))
    ends = [each.start() for each in found[1:]] + [len(text)]
    try:
        return [
            Version(
                each["name"],
                date.fromisoformat(each["day"]) if each["day"] else None,
                text[each.end() : end].strip("\n"),
            )
            for each, end in zip(found, ends, strict=True)
        ]
    except ValueError as error:
        raise BrokenPage(f"{FILE}: {error}; correct the day") from None


def markdown(project: Project) -> str:
    """Return the versions as they stand on their page."""

    def linked(found: re.Match[str]) -> str:
        """Lead to a page of the site, and nowhere else in the repository."""
        src = found["path"].removeprefix("docs/")
        there = f"[{found['text']}]({src}{found['anchor'] or ''})"
        return there if src in project.pages else found["text"]

    return "\n\n".join(
        f"## {each.name}{f' · {each.day}' if each.day else ''} {{ #{each.anchor} }}\n\n"
        + _LINK.sub(linked, each.text)
        for each in versions(project)
    )
