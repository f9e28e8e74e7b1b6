"""Entries of a list that open: each is its name until somebody wants to read it."""

from __future__ import annotations

import re
from typing import Final

_ENTRY: Final = re.compile(
    r'<div(?P<attributes> class="(?:fold|doc doc-object)\b[^>]*)>\s*'
    r"(?P<heading><(?P<level>h\d)\b.*?)(?:\s*<a [^>]*headerlink.*?</a>)?(?P<end></(?P=level)>)",
    re.DOTALL,
)
_DIV: Final = re.compile(r"<(?P<ends>/?)div\b[^>]*>")


def folded(html: str) -> str:
    """Return the HTML with each `div.fold`, and each object of the API, as a fold.

    Its heading opens it, stays a heading, and loses its own link: a button has none inside. A link
    to a place in it opens it as well. What is inside of another one is not folded again.
    """
    parts, done = list[str](), 0
    for entry in _ENTRY.finditer(html):
        if entry.start() < done:
            continue
        depth = 1
        for div in _DIV.finditer(html, entry.end()):
            depth += -1 if div["ends"] else 1
            if not depth:
                break
        head = f"<summary>{entry['heading']}{entry['end']}</summary>"
        parts += [html[done : entry.start()], f"<details{entry['attributes']}>{head}"]
        parts += [html[entry.end() : div.start()], "</details>"]
        done = div.end()
    return "".join([*parts, html[done:]])
