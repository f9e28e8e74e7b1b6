"""Published advisories about checkpoints and model files, and the rules that help with each."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Final

from publish.broken import BrokenPage
from publish.project import Project
from publish.sources import flaw, read_text
from safepoint.errors import quoted

FILE: Final = "publish/advisories.toml"
GROUPS: Final = {
    "checkpoints": "Stored state",
    "models": "Model files",
    "scanners": "Scanners",
}
_ID: Final = re.compile(r"CVE-\d{4}-\d{4,}|GHSA(?:-[23456789cfghjmpqrvwx]{4}){3}")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}(?:-[0-9]{2})?")
_RELEASE: Final = re.compile(r"\d+(?:\.\d+)*(?:rc\d+)?")
_SOURCE: Final = re.compile(r"https?://[^\s<>]+")
_HEAD: Final = re.compile(r"^\s*\[\[\s*advisory\s*\]\]")
_AT_LINE: Final = re.compile(r"\(at line (?P<number>\d+), ")
_LISTS: Final = ("rules", "also")
_IN_CORPUS: Final = re.compile(r"GHSA(?:-[23456789cfghjmpqrvwx]{4}){3}")


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
        return None if self.date is None else _first_day(self.date)

    def fields(self) -> dict[str, Any]:
        """Return it as plain data."""
        data = asdict(self)
        return {**data, "rules": list(self.rules), "also": list(self.also)}


def read(project: Project) -> list[Advisory]:
    """Return all of them, in the order of the file.

    Raises:
        BrokenPage: the file is no list of them, or one has another form, or names a rule, a page, a
            group or an id that there is not.
    """
    found: dict[str, Advisory] = {}
    for place, entry in _entries(read_text(project.root, FILE)):
        wrong = _malformed(entry) or _wrong(_made(entry), project)
        if not wrong and entry["id"] in found:
            wrong = "stands twice"
        if wrong:
            raise BrokenPage(f"{place}: {_name(entry)} {wrong}; correct it")
        found[entry["id"]] = _made(entry)
    return list(found.values())


def _made(entry: Mapping[str, Any]) -> Advisory:
    return Advisory(**{**entry, **{name: tuple(entry.get(name, ())) for name in _LISTS}})


def _name(entry: Mapping[str, Any]) -> str:
    name = entry.get("id")
    return name if isinstance(name, str) and name.isprintable() else "this advisory"


def _entries(text: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return what the file lists, each with where it begins."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        at = _AT_LINE.search(str(error))
        line = int(at["number"]) if at else text.count("\n") + 1
        raise BrokenPage(f"{FILE}:{line}: this is no TOML; correct it") from None
    entries = content.pop("advisory", [])
    if content or not isinstance(entries, list) or any(type(each) is not dict for each in entries):
        raise BrokenPage(f"{FILE}: not only [[advisory]] tables; remove the rest")
    heads = [number for number, line in enumerate(text.split("\n"), 1) if _HEAD.match(line)]
    if len(heads) != len(entries):
        return [(FILE, entry) for entry in entries]
    return [(f"{FILE}:{line}", entry) for line, entry in zip(heads, entries, strict=True)]


def _malformed(entry: Mapping[str, Any]) -> str | None:
    """Say what in the form of an entry is not as the file explains it."""
    known = {field.name: field.default is MISSING for field in fields(Advisory)}
    unknown = [name for name in entry if name not in known]
    missing = [name for name, needed in known.items() if needed and name not in entry]
    if unknown or missing:
        return f"has the unknown key {quoted(unknown[0])}" if unknown else f"has no {missing[0]}"
    for name, value in entry.items():
        texts = value if name in _LISTS and isinstance(value, list) else [value]
        if (name in _LISTS) != isinstance(value, list) or not all(map(_is_line, texts)):
            kind = "a list of lines" if name in _LISTS else "one line"
            return f"needs {kind} of text as {name}"
        flawed = next(filter(None, map(flaw, texts)), None)
        if flawed:
            return f"has in {name} {flawed[1]}"
    return None


def _is_line(value: object) -> bool:
    return isinstance(value, str) and "\n" not in value


def _wrong(advisory: Advisory, project: Project) -> str | None:
    ids = [name for name in (advisory.id, *advisory.also) if not _ID.fullmatch(name)]
    rules = [rule for rule in advisory.rules if rule not in project.rules]
    if ids or rules:
        return f"names {(ids + rules)[0]}, which is no id that is known"
    if advisory.group not in GROUPS:
        return f"names the group {advisory.group}, and there are {', '.join(GROUPS)}"
    if advisory.page not in project.pages:
        return f"names the page {advisory.page}, which does not exist"
    if not _SOURCE.fullmatch(advisory.source):
        return "has a source that is no address with https or http"
    if advisory.date is not None and not _is_date(advisory.date):
        return f"has the date {quoted(advisory.date)}, which is no day and no month"
    return None


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text)) and bool(_first_day(text))
    except ValueError:
        return False


def _first_day(text: str) -> dt.date:
    return dt.date.fromisoformat(text if len(text) > 7 else f"{text}-01")


def corpus(project: Project) -> list[str]:
    """Return the advisories whose technique is in the corpus that the scanners are measured on."""
    folder = project.root / "tests" / "corpus"
    files = sorted(folder.glob("*.py")) if folder.is_dir() else []
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    return sorted(set(_IN_CORPUS.findall(text)))


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
    rules = " and ".join(_rule(rule, project) for rule in each.rules)
    page = project.pages[each.page]
    return (
        f"### {each.id} · {each.package} {{ #{each.anchor} }}\n\n"
        f"{each.about}\n\n"
        f"- **{each.package}.** {each.versions}{published}{names}\n"
        f"- Rules that help: {rules}.{how} See it happen: [{page.title}]({each.page}).\n"
        f"- Source: <{each.source}>"
    )


def _rule(name: str, project: Project) -> str:
    return f"[{name}](rules.md#{name.lower()}) “{project.rules[name].title}”"
