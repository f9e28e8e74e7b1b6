"""The project as the site sees it: its pages, its rules, its evidence, where it stands in git."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml

from publish.broken import BrokenPage, decoded
from publish.dates import reviewed
from publish.evidence import Evidence, read
from publish.git import git
from safepoint.rules import RULES, Rule
from tests.harness.sources import commit_of

ROOT: Final = Path(__file__).resolve().parents[1]
_FRONT_MATTER: Final = re.compile(r"\A---\n(?P<yaml>.*?)\n---\n", re.DOTALL)
_WORDS: Final = frozenset({"title", "description"})
_META: Final = _WORDS | frozenset({"hide", "search"})
_PLAIN_WORDS: Final = re.compile(r'[^<>&"\\\x00-\x1f\x7f-\x9f\u2028\u2029]+')
_HEADING: Final = re.compile(r"^# (?P<title>.+?)(?: \{[^}]*\})?$", re.MULTILINE)


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
    def sections(self) -> list[tuple[str, list[str]]]:
        """The navigation: each section with its pages. Pages outside of one have the name ""."""
        found: list[tuple[str, list[str]]] = []
        for entry in self.settings["nav"]:
            [(name, value)] = entry.items()
            if isinstance(value, list):
                found.append((name, list(_sources(value))))
            elif found and not found[-1][0]:
                found[-1][1].append(value)
            else:
                found.append(("", [value]))
        return found

    @property
    def navigation(self) -> list[str]:
        """The pages in the order of the navigation."""
        return [src for _, pages in self.sections for src in pages]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What mkdocs.yml says."""
        text = (self.root / "mkdocs.yml").read_text(encoding="utf-8")
        settings: dict[str, Any] = yaml.load(text, Loader=_Plain)  # noqa: S506  plain data
        return settings

    @cached_property
    def evidence(self) -> Evidence:
        """What is known about the blocks."""
        file = os.environ.get("EVIDENCE") or "build/evidence.jsonl"
        return read(self.root / file, self.root, self.commit)

    @cached_property
    def commit(self) -> str | None:
        """The commit that is checked out, or None."""
        return commit_of(self.root)

    @cached_property
    def committed(self) -> datetime | None:
        """When that was committed."""
        seconds = git(self.root, "log", "-1", "--format=%ct")
        try:
            return datetime.fromtimestamp(int(seconds or ""), UTC)
        except (ValueError, OverflowError, OSError):  # no commit, or a date that no calendar has
            return None

    @cached_property
    def reviewed(self) -> Mapping[str, date | None]:
        """When each page was last changed in git."""
        return reviewed(self.root)


class _Plain(yaml.SafeLoader):
    """Reads mkdocs.yml without looking at the environment."""


def _first_or_none(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    """Take the default of an !ENV."""
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node)[-1]
    return None


_Plain.add_constructor("!ENV", _first_or_none)


def _sources(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        [value] = entry.values() if isinstance(entry, dict) else [entry]
        if isinstance(value, list):
            yield from _sources(value)
        else:
            yield value


def _page(src: str, file: Path) -> Page:
    text = decoded(f"docs/{src}", file.read_bytes(), "page")
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
    if not isinstance(meta, dict):
        raise BrokenPage(f"docs/{src}:2: front matter without names; write title: and description:")
    for name, value in meta.items():
        if name not in _META:
            known = ", ".join(sorted(_META))
            raise BrokenPage(f"docs/{src}:2: front matter has {name!r}; known: {known}")
        if name in _WORDS and not (isinstance(value, str) and _PLAIN_WORDS.fullmatch(value)):
            # A theme puts it into an attribute as it is.
            raise BrokenPage(f'docs/{src}:2: the {name} is words on one line, without < > & "')
    return meta
