"""Links, anchors and images that lead nowhere, each with its line.

MkDocs finds them as well, and says on which page, but not where. What it alone can know is left to
it: the anchors of a page that the build fills in, and names that the reference resolves.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from functools import cached_property
from posixpath import dirname, join, normpath, relpath
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from publish.errors import sections
from publish.generated import generated
from publish.machine import served
from publish.project import Project
from tests.harness.fences import without_fences

_CODE: Final = re.compile(
    r"(?<![\\`])(?P<ticks>`++)(?:[^`\n]++|\n(?!\s*\n)|(?!(?P=ticks)(?!`))`++)+(?P=ticks)(?!`)"
)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_ADDRESS: Final = r"[^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*"
_TITLE: Final = r"""(?:\s+(?:"[^"]*"|'[^']*'))?"""
_LINK: Final = re.compile(
    rf"(?<!\\)\]\(\s*<?(?P<inline>{_ADDRESS})>?{_TITLE}\s*\)"
    rf"|^ *\[(?!\^)[^\]\n]+\]:\s+<?(?P<defined>{_ADDRESS})",
    re.MULTILINE,
)
_ATTRIBUTE: Final = re.compile(r"\{:?(?:[^{}\n]*\s)?#(?P<id>[^\s{}]+)[^{}\n]*\}")
_TAG: Final = re.compile(r"""<\w[^>]*\s(?:id|name)=["']?(?P<id>[^\s"'>]+)""")
_OF_EXTENSIONS: Final = ("fn:", "fnref:", "__")
_FILLED: Final = re.compile(r"^\s*(?:<!-- fill |::: )", re.MULTILINE)


def broken_links(project: Project) -> list[str]:
    """Return each link that leads nowhere, as `docs/page.md:line: what is wrong; what to do`."""
    site = _Site(project)
    return [
        f"docs/{src}:{link.line}: {problem}"
        for src in project.pages
        for link in _links(site.texts[src])
        for problem in site.problems(src, link.target)
    ]


class _Link(NamedTuple):
    line: int
    target: str


def _links(text: str) -> Iterator[_Link]:
    for found in _LINK.finditer(text):
        name = "inline" if found["defined"] is None else "defined"
        yield _Link(text.count("\n", 0, found.start(name)) + 1, found[name])


def _without_code(text: str) -> str:
    """Leave out what is shown and not followed, so that every line keeps its number."""
    text = without_fences(text)
    for hidden in (_CODE, _COMMENT):
        text = hidden.sub(lambda found: " " + "\n" * found[0].count("\n"), text)
    return text


class _Site:
    """What a link can lead to.

    Attributes:
        texts: every page without its code, whose lines have the numbers that they have in the file.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self.texts = {
            src: _without_code((project.docs / src).read_text(encoding="utf-8"))
            for src in project.pages
        }
        self._anchors: dict[str, frozenset[str] | None] = {}

    @cached_property
    def _files(self) -> frozenset[str]:
        docs = self._project.docs
        written = [file.relative_to(docs).as_posix() for file in docs.rglob("*") if file.is_file()]
        return frozenset([*written, *generated(self._project), *served(self._project)])

    def problems(self, src: str, target: str) -> Iterator[str]:
        """Yield what is wrong with a link of a page, if anything is."""
        address = urlsplit(target)
        if address.scheme or address.netloc:
            return
        path, anchor = unquote(address.path), unquote(address.fragment)
        if path.startswith("/"):
            yield f"{path} begins at the root of the host; write the path from this page"
            return
        to = normpath(join(dirname(src), path)) if path else src
        if to not in self._files or path.endswith("/"):
            what = "page" if path.endswith(".md") else "file"
            names = [relpath(name, dirname(src) or ".") for name in self._files]
            near = _near(path, names, "write its path from this page")
            yield f"there is no {what} {path}; {near}"
        elif anchor and to in self._project.pages:
            yield from self._misses(path or "this page", to, anchor)

    def _misses(self, called: str, to: str, anchor: str) -> Iterator[str]:
        if to not in self._anchors:
            self._anchors[to] = _anchors(self._project.pages[to].text, self.texts[to])
        known = self._anchors[to]
        if known is not None and anchor not in known and not anchor.startswith(_OF_EXTENSIONS):
            near = _near(anchor, known, "take one of its headings", mark="#")
            yield f"{called} has no #{anchor}; {near}"


def _anchors(text: str, bare: str) -> frozenset[str] | None:
    """Return the anchors of a page, or None if the build adds some."""
    if _FILLED.search(text) or "--8<--" in bare:
        return None
    explicit = {found["id"] for each in (_ATTRIBUTE, _TAG) for found in each.finditer(bare)}
    return frozenset(explicit | {*sections(text)})


def _near(wanted: str, known: Collection[str], otherwise: str, *, mark: str = "") -> str:
    near = difflib.get_close_matches(wanted, sorted(known), n=1)
    return f"is it {mark}{near[0]}?" if near else otherwise
