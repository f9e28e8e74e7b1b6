"""Send less: no style sheets and scripts of other pages, no spare spaces, no comments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_WHOLE: Final = re.compile(r"(<(pre|script|style|textarea)\b.*?</\2>)", re.DOTALL)
_SPACES: Final = re.compile(r"[ \t\r\n]+")
_ASSET: Final = re.compile(
    r"""<(?:link rel="stylesheet" href|script src)="[^"]*?"""
    r"""(?P<name>assets/[\w.-]+\.(?:css|js))">(?:</script>)?"""
)
# Each of these serves pages on which one of the classes stands.
_ONLY_WITH: Final = {
    "assets/_mkdocstrings.css": {"doc"},
    "assets/checklist.css": {"checklist"},
    "assets/checklist.js": {"checklist"},
    "assets/find.css": {"attacks", "ladder--stores"},
    "assets/home.css": {"front"},
}
_COMMENTS: Final = {
    "*.css": re.compile(r"/\*.*?\*/\s*", re.DOTALL),
    "*.js": re.compile(r"^ *//.*\n", re.MULTILINE),
}
_CLASSES: Final = re.compile(r'class="([^"]*)"')


def lean_page(html: str) -> str:
    """Return a page without the assets that it does not use, and without spare spaces."""
    classes = {name for names in _CLASSES.findall(html) for name in names.split()}

    def kept(asset: re.Match[str]) -> str:
        only = _ONLY_WITH.get(asset["name"])
        return asset[0] if only is None or only & classes else ""

    html = _ASSET.sub(kept, html)
    parts = _WHOLE.split(html)  # what is not whole, what is, and the name of its element
    parts[::3] = [_SPACES.sub(" ", part) for part in parts[::3]]
    del parts[2::3]
    return "".join(parts)


def lean_assets(site: Path) -> None:
    """Leave out of our own style sheets and scripts what only authors read."""
    for pattern, comment in _COMMENTS.items():
        for file in (site / "assets").glob(pattern):
            file.write_text(comment.sub("", file.read_text("utf-8")), "utf-8")
