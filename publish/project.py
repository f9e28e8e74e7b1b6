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

import yaml
from mkdocs.utils.yaml import yaml_load

from publish.evidence import Evidence, read
from safepoint.rules import RULES, Rule
from tests.harness.evidence import commit_of

ROOT: Final = Path(__file__).resolve().parents[1]
_FRONT_MATTER: Final = re.compile(r"\A---\n(?P<yaml>.*?)\n---\n", re.DOTALL)
_WORDS: Final = frozenset({"title", "description"})
_META: Final = _WORDS | frozenset({"hide", "search"})
_PLAIN_WORDS: Final = re.compile(r'[^<>&"\\\x00-\x1f\x7f-\x9f\u2028\u2029]+')
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
        said = _TESTED_BY.search(self.text)
        return re.findall(r"tests/[\w/.]+\.py(?:::\w+)?", said[0]) if said else []


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
        order = {src: number for number, src in enumerate(self.navigation)}
        files = [file.relative_to(self.docs).as_posix() for file in self.docs.rglob("*.md")]
        files.sort(key=lambda src: (order.get(src, len(order)), src))
        return {src: _page(src, self.docs / src) for src in files}

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
        file = os.environ.get("EVIDENCE") or "build/evidence.jsonl"
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


def decoded(name: str, content: bytes) -> str:
    """Return the text of a file.

    Raises:
        BrokenPage: it is no UTF-8, with the line.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BrokenPage(f"{name}:{line}: not UTF-8; save the file as UTF-8") from None


def _sources(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from _sources(each)


def _page(src: str, file: Path) -> Page:
    text = decoded(f"docs/{src}", file.read_bytes())
    front = _FRONT_MATTER.match(text)
    if front is None and not text.startswith("# "):
        # A generator would read more kinds of front matter than this one.
        raise BrokenPage(f"docs/{src}:1: neither --- nor a heading; begin with one of them")
    meta = _meta(src, front["yaml"]) if front else {}
    body = text[front.end() :] if front else text
    heading = _HEADING.search(body)
    title = meta.get("title") or (heading["title"] if heading else src)
    parts = src.removesuffix(".md").split("/")
    parts = parts[:-1] if parts[-1] == "index" else parts
    url = "".join(f"{part}/" for part in parts)
    return Page(src, url, title, meta.get("description", ""), body)


def _meta(src: str, text: str) -> dict[str, Any]:
    """Read the front matter, which begins on the second line."""
    try:
        meta = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 2 if mark else 2
        raise BrokenPage(f"docs/{src}:{line}: front matter that is no YAML; mend it") from None
    if not isinstance(meta, dict) or not _META.issuperset(meta):
        known = ", ".join(sorted(_META))
        raise BrokenPage(f"docs/{src}:2: front matter names what nobody knows; known: {known}")
    for name in _WORDS & meta.keys():
        if not (isinstance(meta[name], str) and _PLAIN_WORDS.fullmatch(meta[name])):
            # A theme puts it into an attribute as it is.
            raise BrokenPage(f'docs/{src}:2: the {name} is words on one line, without < > & "')
    return meta
