"""The content security policy of each page: what it may load and run, and nothing else.

A static site has no header to say it with, so it stands in the page: a `meta` before anything
that it rules.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from typing import Final

from publish.project import BrokenPage

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


def with_policy(html: str, name: str, styles: str = STYLES) -> str:
    """Return the HTML of the page `name` with its policy, which names each script by its digest.

    Args:
        html: the page.
        name: what to call it in a refusal.
        styles: where its styles may come from.

    Raises:
        BrokenPage: the policy would have to allow a foreign script, or would come too late.
    """
    text = _ARTICLE.search(html)
    if text and "<script" in text[0].lower():
        raise BrokenPage(f"{name}: a script in the text of the page; put it into docs/assets")
    if _CHARSET not in html:
        raise BrokenPage(f"{name}: {_CHARSET} is missing")
    scripts = set()
    for found in _SCRIPT.finditer(html):
        if "src=" in found["attributes"] or "application/json" in found["attributes"]:
            continue
        known = hashlib.sha256(_ROOT.sub("", found["body"]).encode()).hexdigest()
        if known not in THEME:
            raise BrokenPage(
                f"{name}: a script that the theme did not have before:"
                f" {found['body'].strip()[:60]!r}. Remove it, or add {known} to publish/policy.py"
            )
        digest = hashlib.sha256(found["body"].encode()).digest()
        scripts.add(f"'sha256-{b64encode(digest).decode()}'")
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
    content = "; ".join(f"{directive} {value}" for directive, value in rules.items())
    meta = f'<meta http-equiv="Content-Security-Policy" content="{content}">'
    return html.replace(_CHARSET, f"{_CHARSET}{meta}", 1)
