"""Published advisories about checkpoints and model files, and the rules that help with each."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from dataclasses import asdict, dataclass
from typing import Final

from publish.project import BrokenPage, Project
from publish.sources import read_text

FILE: Final = "publish/advisories.toml"
GROUPS: Final = {
    "checkpoints": "Stored state",
    "approvals": "Approvals and sessions",
    "models": "Model files",
    "scanners": "Scanners",
}
_GHSA: Final = r"GHSA(?:-[23456789cfghjmpqrvwx]{4}){3}"
_ID: Final = re.compile(rf"CVE-\d{{4}}-\d{{4,}}|{_GHSA}")
_RELEASE: Final = re.compile(r"\d+(?:\.\d+)*(?:rc\d+)?")
_DATE: Final = re.compile(r"\d{4}-\d\d(-\d\d)?")
_LISTS: Final = ("rules", "also")
_LINE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\ufffe\uffff]*")


@dataclass(frozen=True)
class Advisory:
    """One of them, as `advisories.toml` explains the fields."""

    id: str
    group: str
    package: str
    affected: str
    fixed: str
    about: str
    rules: tuple[str, ...]
    page: str
    source: str
    how: str = ""
    also: tuple[str, ...] = ()
    date: str | None = None

    @property
    def anchor(self) -> str:
        """Where it stands on its page."""
        return self.id.lower()

    @property
    def versions(self) -> str:
        """What is affected and what is fixed, as far as the sources say."""
        affected = f"Affects {self.affected}. " if self.affected else ""
        return affected + (
            f"Fixed in {self.fixed}." if self.fixed else "For the fix see its source."
        )

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
    """Return all of them, in the order of the file.

    Raises:
        BrokenPage: a file is no list of them, or one has another form, or names a rule, a page, a
            group or an id that there is not.
    """
    found: dict[str, Advisory] = {}
    _read(project, FILE, found)
    return list(found.values())


def _read(project: Project, file: str, found: dict[str, Advisory]) -> None:
    try:
        content = tomllib.loads(read_text(project.root, file))
        for entry in content.pop("advisory", []):
            lists = {name: tuple(entry.get(name, ())) for name in _LISTS}
            each = Advisory(**{**entry, **lists})
            wrong = "stands twice" if each.id in found else _wrong(each, project)
            if wrong:
                raise BrokenPage(f"{file}: {each.id} {wrong}; correct it")
            found[each.id] = each
    except (tomllib.TOMLDecodeError, TypeError, AttributeError) as error:
        # No TOML, or no list; or an entry with a field too many, or too few, or of another kind.
        raise BrokenPage(f"{file}: not as it explains itself ({error}); correct it") from None
    if content:
        raise BrokenPage(f"{file}: not only [[advisory]] tables; remove the rest")


def _wrong(each: Advisory, project: Project) -> str | None:
    ids = [name for name in (each.id, *each.also) if not _ID.fullmatch(name)]
    rules = [rule for rule in each.rules if rule not in project.rules]
    if ids or rules:
        return f"names {(ids + rules)[0]}, which is no id that is known"
    if each.group not in GROUPS:
        return f"names the group {each.group}, and there are {', '.join(GROUPS)}"
    if each.page not in project.pages:
        return f"names the page {each.page}, which does not exist"
    lines = [value for name, value in asdict(each).items() if name not in _LISTS and value]
    if not all(map(_LINE.fullmatch, lines)):
        return "has a field that is not one line of text"
    if each.date is not None and not _is_date(each.date):
        return f"has the date {each.date}, which is no day and no month"
    return None


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text)) and bool(dt.date.fromisoformat(f"{text}-01"[:10]))
    except ValueError:
        return False


def corpus(project: Project) -> list[str]:
    """Return the advisories whose technique is in the corpus that the scanners are measured on."""
    files = sorted((project.root / "tests" / "corpus").glob("*.py"))
    return sorted({name for file in files for name in re.findall(_GHSA, file.read_text("utf-8"))})


def markdown(project: Project) -> str:
    """Return all of them as they stand on their page."""
    advisories = read(project)
    parts = []
    for group, title in GROUPS.items():
        shown = [each for each in advisories if each.group == group]
        if shown:
            parts += [f"## {title}", *(_entry(each, project) for each in shown)]
    reproduced = corpus(project)
    if reproduced:
        links = ", ".join(f"[{name}](https://github.com/advisories/{name})" for name in reproduced)
        said = f"pickles that use what {len(reproduced)} advisories describe, each harmless here"
        parts.append("## In the corpus")
        parts.append(f"The [scanners](security/scanners.md) are measured on {said}: {links}.")
    return "\n\n".join(parts)


def in_short(project: Project) -> str:
    """Return which release of each package has every fix, and the advisories that ask for it."""
    packages: dict[str, list[Advisory]] = {}
    for each in read(project):
        packages.setdefault(each.package, []).append(each)
    rows = ["| package | at least | because of |", "|:---|:---|:---|"]
    for name, found in packages.items():
        releases = [each.release for each in found]
        least = max(releases, key=_order) if all(releases) else "see the entries"
        because = ", ".join(f"[{each.id}](#{each.anchor})" for each in found)
        rows.append(f"| {name} | {least} | {because} |")
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
        f"### {each.id} · {each.package} {{ #{each.anchor} }}\n\n"
        f"{each.about}\n\n"
        f"- **{each.package}.** {each.versions}{published}{names}\n"
        f"- Rules that help: {rules}.{how} See it happen: [{page.title}]({each.page}).\n"
        f"- Source: <{each.source}>"
    )
