"""What the HTML of every page promises, read by a parser: links, headings, weight, policy, marks.

What only a browser can tell is in `tests/browser`, on a page of each kind.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from tests.browser.html import html_problems
from tests.browser.site import NOT_FOUND, PAGES, Site
from tests.harness.census import VOID
from tests.harness.shared import ADDRESS, built

KILOBYTES: Final = 100


@cache
def sent(file: Path) -> int:
    """How many bytes a server sends of a file, with gzip."""
    return len(gzip.compress(file.read_bytes(), 9, mtime=0))


class Page(HTMLParser):
    """A page, as far as these tests look at it.

    Attributes:
        links: all that its elements lead to, drawings aside.
        loads: those that a browser asks for; `later`, those of them that it waits with.
        blocks: each block of its text: its classes, its first line, and how many marks it has.
        problems: images without words or a width.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.meta: dict[str, str] = {}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.later: list[str] = []
        self.headings: list[int] = []
        self.blocks: list[tuple[set[str], list[str], list[str]]] = []
        self.problems: list[str] = []
        self.words: dict[str, str] = {"title": "", "page-foot": ""}
        self._open: list[tuple[str, set[str]]] = []
        self.feed(html)
        self.close()

    def _within(self, name: str) -> bool:
        return any(name == tag or name in classes for tag, classes in self._open)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        classes = set(given.get("class", "").split())
        if tag == "meta":
            self.meta[given.get("name", given.get("http-equiv", ""))] = given.get("content", "")
        if not self._within("svg"):
            self.links += [given[name] for name in ("href", "src") if name in given]
        if "src" in given or {"stylesheet", "icon"} & {*given.get("rel", "").split()}:
            self.loads.append(given.get("src") or given["href"])
            self.later += self.loads[-1:] * (given.get("loading") == "lazy")
        if self._within("article"):
            self._written(tag, given, classes)
        elif tag == "img" and not given.get("alt"):
            self.problems.append(given["src"])
        if tag not in VOID:
            self._open.append((tag, classes))

    def _written(self, tag: str, given: dict[str, str], classes: set[str]) -> None:
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "img" and not (given.get("alt") and given.get("width")):
            self.problems.append(given["src"])
        if "highlight" in classes and "doc-signature" not in classes:
            self.blocks.append((classes, [], []))
        if "proof--ran" in classes and "highlight" in self._open[-1][1]:
            self.blocks[-1][2].append(tag)

    def handle_endtag(self, tag: str) -> None:
        if any(tag == name for name, _ in self._open):
            while self._open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        for name in self.words:
            self.words[name] += data if self._within(name) else ""
        if self.blocks and self._within("highlight") and not self._within("doc-signature"):
            self.blocks[-1][1].append(data)


@cache
def ids(file: Path) -> set[str]:
    return {*re.findall(r'\s(?:id|name)="?([^"\s>]+)', file.read_text(encoding="utf-8"))}


def broken(site: Site, links: list[str]) -> Iterator[str]:
    """Yield the links that lead nowhere."""
    for link in dict.fromkeys(links):
        url, anchor = urldefrag(link)
        if not url.startswith(site.address):
            if not link.startswith(("https://", "mailto:")):
                yield f"{link}: leaves the site, and not by https"
        elif (file := site.file(url)) is None:
            yield f"{link}: no such file"
        elif anchor and file.suffix == ".html" and unquote(anchor) not in ids(file):
            yield f"{link}: no such anchor"


def test_a_link_that_leads_nowhere_is_found() -> None:
    said = {
        "guide/": "",
        "https://code.example/": "",
        "gone/": "no such file",
        "guide/#gone": "no such anchor",
        "http://code.example/": "leaves the site, and not by https",
    }
    for link, why in said.items():
        problems = broken(Site(built()[0], ADDRESS), [urljoin(ADDRESS, link)])
        assert [problem.rpartition(": ")[2] for problem in problems] == [why] * bool(why)


@pytest.mark.parametrize(
    "html", ["<p><div></p></div>", "<p>", "<b id=x></b><i id=x></i>", "<a><b><a></a></b></a>"]
)
def test_html_that_is_not_whole_is_found(html: str) -> None:
    assert html_problems(html)


@pytest.mark.parametrize("name", PAGES, ids=lambda name: name or "home")
def test_the_html_of_a_page_is_whole_and_small(name: str) -> None:
    site = Site(built()[0], ADDRESS)
    file = site.file(ADDRESS + name)
    assert file is not None
    html = file.read_text(encoding="utf-8")
    assert html_problems(html) == []
    page = Page(html)
    loads = [urljoin(ADDRESS + name, link) for link in page.loads]
    assert "Safepoint" in page.words["title"]
    assert page.meta["description"]
    assert page.headings.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise([0, *page.headings]))
    policy = page.meta["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert "unsafe" not in policy
    assert list(broken(site, [urljoin(ADDRESS + name, link) for link in page.links])) == []
    assert page.problems == []
    assert [url for url in loads if not url.startswith(site.address)] == []
    later = {site.file(urljoin(ADDRESS + name, link)) for link in page.later}
    now = {file, *(site.file(url) for url in loads)} - later
    assert sum(sent(each) for each in now if each) < KILOBYTES * 1000
    assert all(each.stat().st_size < 60_000 for each in later if each)
    for classes, words, marks in page.blocks:
        first = "".join(words).strip().split("\n")[0]
        assert ("unsafe" in classes) == ("UNSAFE" in first), first
        assert len(marks) == 1, first
    foot = f"Blocks: {len(page.blocks)} ran" if page.blocks else "No blocks to run"
    assert (foot in page.words["page-foot"]) == (name != NOT_FOUND)
