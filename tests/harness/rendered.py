"""What a page shows: the text of every <pre> in the article of its HTML."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Final

# Elements without an end tag.
_VOID: Final = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"})
# Made from the code itself by mkdocstrings, or numbers beside the code.
_NOT_WRITTEN: Final = frozenset({"mkdocstrings-source", "doc-signature", "linenos", "linenodiv"})


@dataclass
class _Open:
    tag: str
    is_article: bool
    is_not_written: bool


def rendered_blocks(html: str) -> list[str]:
    """Return the text of each block that a writer wrote, in order."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.blocks


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = []
        self._open: list[_Open] = []
        self._text: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            return
        classes = set((dict(attrs).get("class") or "").split())
        self._open.append(_Open(tag, tag == "article", bool(classes & _NOT_WRITTEN)))
        in_article = any(element.is_article for element in self._open)
        if tag == "pre" and in_article and not self._ignored() and self._text is None:
            self._text = []

    def handle_endtag(self, tag: str) -> None:
        if not any(element.tag == tag for element in self._open):
            return
        # HTML lets some elements end without saying so; what they held ends with their parent.
        while self._open.pop().tag != tag:
            pass
        if tag == "pre" and self._text is not None:
            self.blocks.append("".join(self._text))
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._text is not None and not self._ignored():
            self._text.append(data)

    def _ignored(self) -> bool:
        return any(element.is_not_written for element in self._open)
