"""The project as the site sees it: its pages, its rules, its evidence, where it stands in git."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

from mkdocs.utils.meta import get_data
from mkdocs.utils.yaml import yaml_load

from publish.evidence import Evidence, read
from safepoint.rules import RULES, Rule
from tests.harness.evidence import FILE, commit_of

ROOT: Final = Path(__file__).resolve().parents[1]
_HEADING: Final = re.compile(r"^# (?P<title>.+?)(?: \{[^}]*\})?$", re.MULTILINE)
_TESTED_BY: Final = re.compile(r"^\*\*Tested by\*\*.*?(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
_HTTPS: Final = re.compile(r"https://[\w.:-]+/[\w./~-]*", re.ASCII)


class BrokenPage(ValueError):
    """A page that cannot be built: its name, the line, what is wrong and what to do."""


@dataclass(frozen=True)
class Page:
    """A page of the site, as it was written.

    Attributes:
        src: where it was written, below `docs/`.
        url: where it is read, below the site's root: "" for the home page.
        title: what it is called.
        description: one sentence about it.
        text: the Markdown, without its front matter.
    """

    src: str
    url: str
    title: str
    description: str
    text: str

    @property
    def html(self) -> str:
        """The file that it becomes."""
        return f"{self.url}index.html"

    @property
    def twin(self) -> str:
        """Where a program reads it as Markdown."""
        return f"{self.url.rstrip('/') or 'index'}.md"

    @property
    def tests(self) -> list[str]:
        """The tests, and files of tests, that it names under "Tested by"."""
        said = " ".join(_TESTED_BY.findall(self.text))
        return re.findall(r"tests/[\w/.]+\.py(?:::\w+)?", said)


@dataclass(frozen=True)
class Project:
    """All that the site is made from."""

    root: Path = ROOT

    @property
    def docs(self) -> Path:
        """The folder of the pages."""
        return self.root / "docs"

    @property
    def rules(self) -> Mapping[str, Rule]:
        """The guidance, by id."""
        return RULES

    @cached_property
    def pages(self) -> Mapping[str, Page]:
        """Every page, by where it was written, in the order of the navigation."""
        return {src: _page(src, self.docs / src) for src in self.navigation}

    @cached_property
    def sections(self) -> dict[str, list[str]]:
        """The navigation: each section with its pages. Those outside of one are under ""."""
        found: dict[str, list[str]] = {}
        for entry in self.settings["nav"]:
            [(name, value)] = entry.items()
            section = name if isinstance(value, list) else ""
            found.setdefault(section, []).extend(_sources(value))
        return found

    @property
    def navigation(self) -> list[str]:
        """The pages, section by section."""
        return [src for pages in self.sections.values() for src in pages]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What mkdocs.yml says."""
        return yaml_load((self.root / "mkdocs.yml").read_text(encoding="utf-8"))

    @cached_property
    def evidence(self) -> Evidence:
        """What is known about the blocks."""
        file = os.environ.get("EVIDENCE") or FILE
        return read(self.root / file, self.root)

    @cached_property
    def commit(self) -> str | None:
        """The commit that is checked out, or None."""
        return commit_of(self.root)


def base() -> str:
    """Return the address that the site is published at, with a slash at its end, or ""."""
    address = os.environ.get("SITE_URL", "").strip()
    return address if not address or address.endswith("/") else f"{address}/"


def repository() -> str:
    """Return the address of the code, which readers install from; "" in a build for oneself.

    Raises:
        BrokenPage: no reader could open it, or the site is published and it is not known.
    """
    code = os.environ.get("REPO_URL", "").strip()
    if code and not _HTTPS.fullmatch(code):
        raise BrokenPage("REPO_URL is not an https:// address; correct it, or leave it out")
    if base() and not code:
        raise BrokenPage("SITE_URL is set, and not where readers get the code; set REPO_URL, too")
    return code


def public(path: str) -> str:
    """Return where a reader finds what lies at `path` below the site's root."""
    return urljoin(base(), path) if base() else path or "./"


def _sources(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from _sources(each)


def _page(src: str, file: Path) -> Page:
    text, meta = get_data(file.read_text("utf-8"))
    heading = _HEADING.search(text)
    parts = src.removesuffix(".md").split("/")
    parts = parts[:-1] if parts[-1] == "index" else parts
    url = "".join(f"{part}/" for part in parts)
    return Page(src, url, heading["title"] if heading else src, meta.get("description", ""), text)
