"""Is the HTML whole? What no browser complains of, because it repairs the page in its own way."""

from __future__ import annotations

from html.parser import HTMLParser

from tests.harness.census import VOID

ALONE = {"a", "button", "form", "label"}
"""What must not stand in another of its kind."""


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.open: list[str] = []
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ALONE and tag in self.open:
            self.problems.append(f"{self.getpos()}: {tag} in {tag}")
        for name in (value or "" for key, value in attrs if key == "id"):
            if not name or name in self.ids:
                self.problems.append(f"{self.getpos()}: the id {name!r} again")
            self.ids.add(name)

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1:] == [tag]:
            self.open.pop()
        else:
            self.problems.append(f"{self.getpos()}: {tag} ends, and open is {self.open[-1:]}")


def html_problems(html: str) -> list[str]:
    """Return ids that are there twice, and elements that end elsewhere or stand in their own."""
    read = _Elements()
    read.feed(html)
    read.close()
    return [*read.problems, *(f"{tag} does not end" for tag in read.open)]
