"""Published advisories about checkpoints and model files, and the rules that help with each."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from publish.project import Project

FILE: Final = "publish/advisories.toml"
GROUPS: Final = {
    "checkpoints": "Stored state",
    "approvals": "Approvals and sessions",
    "models": "Model files",
    "scanners": "Scanners",
}
_GHSA: Final = r"GHSA(?:-[23456789cfghjmpqrvwx]{4}){3}"
_RELEASE: Final = re.compile(r"\d+(?:\.\d+)*(?:rc\d+)?")


@dataclass(frozen=True)
class Advisory:
    """One of them, as `advisories.toml` explains the fields."""

    id: str
    group: str
    package: str
    affected: str
    fixed: str
    about: str
    rules: Sequence[str]
    page: str
    source: str
    how: str = ""
    also: Sequence[str] = ()
    date: str | None = None

    @property
    def anchor(self) -> str:
        """Where it stands on its page."""
        return self.id.lower()

    @property
    def versions(self) -> str:
        """What is affected and what is fixed, as far as the sources say."""
        fixed = f"Fixed in {self.fixed}." if self.fixed else "For the fix see its source."
        return f"Affects {self.affected}. {fixed}" if self.affected else fixed

    @property
    def release(self) -> str:
        """The release that has the fix, or "" where its sources name none."""
        found = _RELEASE.match(self.fixed)
        return found[0] if found else ""

    @property
    def first_day(self) -> dt.date | None:
        """The day on which it was published, or the first day of the month."""
        return None if self.date is None else dt.date.fromisoformat(f"{self.date}-01"[:10])


def read(project: Project) -> list[Advisory]:
    """Return all of them, in the order of the file."""
    text = (project.root / FILE).read_text("utf-8")
    return [Advisory(**entry) for entry in tomllib.loads(text)["advisory"]]


def markdown(project: Project) -> str:
    """Return all of them as they stand on their page."""
    advisories = read(project)
    parts = []
    for group, title in GROUPS.items():
        shown = [each for each in advisories if each.group == group]
        if shown:
            parts += [f"### {title}", *(_entry(each, project) for each in shown)]
    return "\n\n".join(parts)


def in_short(project: Project) -> str:
    """Return which release of each package has every fix, and which one the pages ran on."""
    packages: dict[str, list[Advisory]] = {}
    for each in read(project):
        packages.setdefault(each.package, []).append(each)
    pinned = (project.root / "requirements.txt").read_text("utf-8")
    ran = dict(re.findall(r"^([\w.-]+)==([\w.]+)", pinned, re.MULTILINE))
    rows = ["| package | at least | these pages ran on | because of |", "|:---|:---|:---|:---|"]
    for name, found in packages.items():
        releases = [each.release for each in found]
        least = max(releases, key=_order) if all(releases) else "see the entries"
        because = ", ".join(f"[{each.id}](#{each.anchor})" for each in found)
        rows.append(f"| {name} | {least} | {ran.get(name, 'none')} | {because} |")
    return "\n".join(rows)


def _order(release: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", release)))


def _entry(each: Advisory, project: Project) -> str:
    names = f" Also known as {', '.join(each.also)}." if each.also else ""
    how = f" {each.how}" if each.how else ""
    published = f" Published {each.date}." if each.date else ""
    rules = " and ".join(
        f"[{rule}](rules.md#{rule.lower()}) “{project.rules[rule].title}”" for rule in each.rules
    )
    page = project.pages[each.page]
    return (
        f'<div class="fold" markdown>\n\n'
        f"#### {each.id} · {each.package} {{ #{each.anchor} }}\n\n"
        f"{each.about}\n\n"
        f"- **{each.package}.** {each.versions}{published}{names}\n"
        f"- Rules that help: {rules}.{how} See it happen: [{page.title}]({each.page}).\n"
        f"- Source: <{each.source}>\n\n</div>"
    )
