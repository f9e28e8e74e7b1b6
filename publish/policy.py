"""The content security policy of each page: what it may load and run, and nothing else.

A static site has no header to say it with, so it stands in the page: a `meta` before anything
that it rules.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from typing import Final

STYLES: Final = "'self'"
_SCRIPT: Final = re.compile(r"<script(?P<attributes>[^>]*)>(?P<body>.*?)</script>", re.DOTALL)
_ARTICLE: Final = re.compile(r"<article\b.*</article>", re.DOTALL)
_CHARSET: Final = '<meta charset="utf-8">'
_ALIGNED: Final = re.compile(r' style="text-align: (?P<side>left|center|right);"')


class ForeignScript(ValueError):
    """A script stands in the text of the page; only the theme's own, around it, are expected."""


class NoHead(ValueError):
    """The HTML has no place for the policy."""


def without_styles(html: str) -> str:
    """Return the HTML with the alignment of cells as classes, so that no style is written in it."""
    return _ALIGNED.sub(r' class="to-\g<side>"', html)


def with_policy(html: str, styles: str = STYLES) -> str:
    """Return the HTML with its policy, which names each inline script by its digest.

    Raises:
        ForeignScript: a script in the text of the page. The policy would have to allow it.
        NoHead: the policy would come too late, or nowhere.
    """
    text = _ARTICLE.search(html)
    if text and "<script" in text[0].lower():
        raise ForeignScript("a script in the text of the page; put it into docs/assets")
    if _CHARSET not in html:
        raise NoHead(f"{_CHARSET} is missing")
    content = policy(html, styles)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{content}">'
    return html.replace(_CHARSET, f"{_CHARSET}{meta}", 1)


def policy(html: str, styles: str = STYLES) -> str:
    """Return the policy of a page whose styles may come from `styles`."""
    scripts = {
        f"'sha256-{b64encode(hashlib.sha256(found['body'].encode()).digest()).decode()}'"
        for found in _SCRIPT.finditer(html)
        if "src=" not in found["attributes"] and "application/json" not in found["attributes"]
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
