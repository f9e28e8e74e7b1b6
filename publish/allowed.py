"""What the HTML of a page may hold, whatever it was written as.

The pages are checked as they are written. But an escape or an entity can become a word that nobody
typed, so what a generator made of them is checked as well, before anything is added to it.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

from tests.harness.blocks import ATTRIBUTES, GENERATED
from tests.harness.census import VOID

_FOREIGN: Final = frozenset({"base", "embed", "frame", "iframe", "object"})
_NAMES: Final = ATTRIBUTES | frozenset(
    {"alt", "checked", "class", "disabled", "href", "id", "src", "start", "tabindex", "title"}
)
# The theme's scripts look for the first; the build adds the others, and nobody else does.
_OURS: Final = ("md-", "proof", "page-foot")
_SKIP: Final = "__skip"  # where one generator jumps to
_SCHEME: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)
_SCHEMES: Final = frozenset({"http:", "https:", "mailto:"})
# The words of code, of which there are thousands: a colour, and nothing else.
_COLOURED: Final = re.compile(r'</?span(?: class="[a-z][a-z0-9]{0,2}")?>')
_BLANKS: Final = re.compile(r"[\x00-\x20]")  # which a browser passes over


def foreign(html: str) -> list[str]:
    """Say what a page holds that only the build or the theme may put there."""
    reader = _Reader()
    reader.feed(_COLOURED.sub("", html))
    reader.close()
    return reader.problems


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self._open: list[tuple[str, frozenset[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        classes = frozenset(
            word for name, value in attrs if name == "class" for word in (value or "").split()
        )
        if tag in _FOREIGN or (tag == "meta" and any(name == "http-equiv" for name, _ in attrs)):
            self.problems.append(f"a foreign <{tag}>; remove what made it")
        if any(name == "article" for name, _ in self._open):
            self._check(tag, attrs, classes)
        if tag not in VOID:
            self._open.append((tag, classes))

    def handle_endtag(self, tag: str) -> None:
        if any(name == tag for name, _ in self._open):
            while self._open.pop()[0] != tag:
                pass

    def _check(
        self, tag: str, attrs: list[tuple[str, str | None]], classes: frozenset[str]
    ) -> None:
        for name, value in attrs:
            if name not in _NAMES and not (tag == "input" and name == "type"):
                self.problems.append(f"the attribute {name!r} on a <{tag}>; remove it")
            elif name in ("href", "src") and not _is_safe(name, value or ""):
                self.problems.append(f"a link to {value!r}; link to http, https or mailto")
            elif name == "id" and (value or "").startswith("__") and value != _SKIP:
                self.problems.append(f"the id {value!r}, which is the theme's; choose another")
        self.problems += [
            f"the class {word!r}, which the build gives; choose another"
            for word in sorted(classes)
            if word.startswith(_OURS)
        ]
        if classes & GENERATED and not self._is_made_from_code(tag):
            self.problems.append("a class that could hide code from the census; remove it")

    def _is_made_from_code(self, tag: str) -> bool:
        """Tell whether an element stands where mkdocstrings puts its own: no list, no paragraph."""
        return tag in ("div", "details") and "doc" in self._open[-1][1]


def _is_safe(name: str, address: str) -> bool:
    found = _SCHEME.match(_BLANKS.sub("", address))
    return found is None or (name == "href" and found["scheme"].lower() in _SCHEMES)
