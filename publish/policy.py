"""The content security policy of each page: what it may load and run, and nothing else.

A static site has no header to say it with, so it stands in the page: a `meta` before anything
that it rules.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Final

STYLES: Final = "'self'"
THEME: Final = frozenset(
    {
        "7eb3684fdacd2881f67b9428983273a29d8774d8bc82622af9b65a8ec1032a90",
        "213d571a86bd568ccb65bf92ca3cf95284d8c140997189b0272a503b72fa3988",
        "0eb10c249dbdb0beef225a10ce5cbe55418cc4a7014cc208f8e7d6ed8f00906e",
        "ffcc0f7735fdab434d257c80e65cec2e88d716991e69757185b7e450e41a5b2f",
    }
)
"""The digests of the themes' inline scripts, without the address of the page's root."""
_SCRIPT: Final = re.compile(r"<script(?P<attributes>[^>]*)>(?P<body>.*?)</script>", re.DOTALL)
_ROOT: Final = re.compile(r'(?<=new URL\(")(?:\.|\.\.(?:/\.\.)*|(?:/[\w.~%-]+)*/)(?=",location\))')
_ARTICLE: Final = re.compile(r"<article\b.*</article>", re.DOTALL)
_CHARSET: Final = '<meta charset="utf-8">'
_ALIGNED: Final = re.compile(r' style="text-align: (?P<side>left|center|right);"')


class ForeignScript(ValueError):
    """A script that is not the theme's own, or that stands in the text of the page."""


class NoHead(ValueError):
    """The HTML has no place for the policy."""


def without_styles(html: str) -> str:
    """Return the HTML with the alignment of cells as classes, so that no style is written in it."""
    return _ALIGNED.sub(r' class="to-\g<side>"', html)


def with_policy(html: str, styles: str = STYLES) -> str:
    """Return the HTML with its policy, which names each inline script by its digest.

    Raises:
        ForeignScript: the policy would have to allow it.
        NoHead: the policy would come too late, or nowhere.
    """
    text = _ARTICLE.search(html)
    if text and "<script" in text[0].lower():
        raise ForeignScript("a script in the text of the page; put it into docs/assets")
    if _CHARSET not in html:
        raise NoHead(f"{_CHARSET} is missing")
    for body in _inline(html):
        found = hashlib.sha256(_ROOT.sub("", body).encode()).hexdigest()
        if found not in THEME:
            raise ForeignScript(
                f"a script that the theme did not have before: {body.strip()[:60]!r}."
                f" Remove it, or add {found} to publish/policy.py"
            )
    content = policy(html, styles)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{content}">'
    return html.replace(_CHARSET, f"{_CHARSET}{meta}", 1)


def policy(html: str, styles: str = STYLES) -> str:
    """Return the policy of a page whose styles may come from `styles`."""
    scripts = {
        f"'sha256-{b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"
        for body in _inline(html)
    }
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(["'self'", *sorted(scripts)]),
        "style-src": styles,
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "worker-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _inline(html: str) -> Iterator[str]:
    for found in _SCRIPT.finditer(html):
        if "src=" not in found["attributes"] and "application/json" not in found["attributes"]:
            yield found["body"]
