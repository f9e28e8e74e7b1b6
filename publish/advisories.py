"""Published advisories about checkpoints and model files, and the rules that help with each."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from dataclasses import asdict, dataclass
from typing import Any, Final

from publish.project import Project

FILE: Final = "publish/advisories.toml"
GROUPS: Final = {
    "checkpoints": "Stored state",
    "models": "Model files",
    "scanners": "Scanners",
}
_ID: Final = re.compile(r"CVE-\d{4}-\d{4,}|GHSA(?:-[23456789cfghjmpqrvwx]{4}){3}")
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
    def first_day(self) -> dt.date | None:
        """The day on which it was published, or the first day of the month."""
        if self.date is None:
            return None
        return dt.date.fromisoformat(self.date if len(self.date) > 7 else f"{self.date}-01")

    def fields(self) -> dict[str, Any]:
        """Return it as plain data."""
        data = asdict(self)
        return {**data, "rules": list(self.rules), "also": list(self.also)}


def read(project: Project) -> list[Advisory]:
    """Return all of them, in the order of the file.

    Raises:
        ValueError: one names a rule, a page, a group or an id that there is not.
    """
    file = project.root / FILE
    if not file.is_file():
        return []
    found = []
    for entry in tomllib.loads(file.read_text(encoding="utf-8")).get("advisory", []):
        lists = {name: tuple(entry.get(name, ())) for name in ("rules", "also")}
        advisory = Advisory(**{**entry, **lists})
        wrong = _wrong(advisory, project)
        if wrong:
            raise ValueError(f"{FILE}: {advisory.id} names {wrong}; correct it")
        found.append(advisory)
    if len({each.id for each in found}) < len(found):
        raise ValueError(f"{FILE}: an id stands twice; keep one")
    return found


def _wrong(advisory: Advisory, project: Project) -> str | None:
    ids = [name for name in (advisory.id, *advisory.also) if not _ID.fullmatch(name)]
    rules = [rule for rule in advisory.rules if rule not in project.rules]
    if ids or rules:
        return f"{(ids + rules)[0]}, which is no id that is known"
    if advisory.group not in GROUPS:
        return f"the group {advisory.group}, and there are {', '.join(GROUPS)}"
    if advisory.page not in project.pages:
        return f"the page {advisory.page}, which does not exist"
    return None


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
