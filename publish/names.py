"""Short names and commands that no line breaks, neither at a hyphen nor at a space."""

from __future__ import annotations

import re
from html import unescape
from typing import Final

_TABLE: Final = re.compile(r"(<table\b.*?</table>)", re.DOTALL)
# A block has an empty element before its code.
_CODE: Final = re.compile(r"(?<!</span>)<code>(?P<text>[^<]+)</code>")
_ROOM: Final = 26
_IN_A_CELL: Final = 16


def unbroken(html: str) -> str:
    """Return the HTML with a class on each name that has room on a line of a phone."""
    parts = _TABLE.split(html)
    parts[::2] = [_marked(part, _ROOM) for part in parts[::2]]
    parts[1::2] = [_marked(part, _IN_A_CELL) for part in parts[1::2]]
    return "".join(parts)


def _marked(html: str, room: int) -> str:
    return _CODE.sub(
        lambda found: (
            f'<code class="whole">{found["text"]}</code>'
            if len(unescape(found["text"])) <= room
            else found[0]
        ),
        html,
    )
