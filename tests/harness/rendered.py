"""What a page shows: the text of every <pre> in its HTML, and of whatever looks like one."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final, NamedTuple

from tests.harness.fences import without_fences
from tests.harness.markup import GENERATED, SHOWS_CODE

VOID: Final = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"})
"""Elements without an end tag."""

_FROM_CODE: Final = re.compile(r"^ *::: ", re.MULTILINE)
_ODD_COMMENT: Final = re.compile(r"<!---?>|--!>")


class _Open(NamedTuple):
    tag: str
    is_generated: bool


class Shown(NamedTuple):
    """A block as a page shows it: its text, and where its element ends in the HTML."""

    text: str
    end: int


def is_generated(page: str) -> bool:
    """Tell whether a page, as it is written, has parts that are made from the code."""
    return bool(_FROM_CODE.search(without_fences(page)))


def rendered_blocks(html: str, *, reference: bool = False) -> list[Shown]:
    """Return each block that a writer wrote, in order.

    The theme has none, so the whole page is read. Only a page of the reference has signatures and
    source that are made from the code itself.
    """
    if _ODD_COMMENT.search(html):
        raise ValueError(
            "a comment that a browser ends elsewhere than this reader; write <!-- x -->"
        )
    reader = _Reader(html, GENERATED if reference else frozenset())
    reader.feed(html)
    reader.close()
    reader.end(len(html))
    return reader.blocks


class _Reader(HTMLParser):
    def __init__(self, html: str, generated: frozenset[str]) -> None:
        super().__init__(convert_charrefs=True)
        self._html = html
        self._lines = [0, *(found.end() for found in re.finditer("\n", html))]
        self._generated = generated
        self.blocks: list[Shown] = []
        self._open: list[_Open] = []
        self._text: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        classes = set((dict(attrs).get("class") or "").split())
        self._open.append(_Open(tag, bool(classes & self._generated)))
        if tag in SHOWS_CODE and not self._ignored() and self._text is None:
            self._text = []

    def handle_endtag(self, tag: str) -> None:
        if not any(element.tag == tag for element in self._open):
            return
        # HTML lets some elements end without saying so; what they held ends with their parent.
        while self._open.pop().tag != tag:
            pass
        if not any(element.tag in SHOWS_CODE for element in self._open):
            line, column = self.getpos()
            self.end(self._html.index(">", self._lines[line - 1] + column) + 1)

    def end(self, place: int) -> None:
        """End the block that is open, if one is."""
        if self._text is not None:
            self.blocks.append(Shown("".join(self._text), place))
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._text is not None and not self._ignored():
            self._text.append(data)

    def _ignored(self) -> bool:
        return any(element.is_generated for element in self._open)
