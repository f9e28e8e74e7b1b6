"""JSON as bytes: looked at, and never parsed.

A parser that is handed `[[],[],…` builds millions of lists before it can be asked how many there
were. What stands in strings is told here without one.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from typing import Final

# Nothing but space so far may still become JSON.
_JSON: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*(?:[\[{]|\Z)")
_STRING: Final = re.compile(rb'(?:\xef\xbb\xbf)?[ \t\r\n]*(?:[\[{"]|\Z)')
_ASCII: Final = re.compile(rb"\\u00([0-7][0-9A-Fa-f])")
_BASE64: Final = frozenset(f"{string.ascii_letters}{string.digits}+/=".encode())
_DROPPED: Final = (b"\\\\", b'\\"', b"\\n", b"\\r", b"\\t", b"\\b", b"\\f")


def is_json(data: bytes, *, string: bool = False) -> bool:
    """Tell whether a file that begins like this may hold an object or an array, or a string."""
    begins = _STRING if string else _JSON
    return begins.match(narrow(data[:64])) is not None


def narrow(data: bytes) -> bytes:
    """Return JSON with one byte for each ASCII letter: a parser reads UTF-16 and UTF-32, too."""
    if b"\0" in data[:4]:
        return data.removeprefix(b"\xff\xfe").removeprefix(b"\xfe\xff").replace(b"\0", b"")
    return data


def unescaped(text: bytes) -> bytes:
    """Return JSON with its escapes undone, as far as they could stand for a letter of base64.

    Others are dropped, as readers of base64 drop what is no letter of it.
    """
    if b"\\" not in text:
        return text
    for escape in _DROPPED:
        text = text.replace(escape, b"")
    return _ASCII.sub(_letter, text.replace(b"\\/", b"/"))


def _letter(escape: re.Match[bytes]) -> bytes:
    code = int(escape[1], 16)
    return bytes([code]) if code in _BASE64 else b""


def quoted_strings(text: bytes) -> Iterator[bytes]:
    """Return what stands between each two quotes of a text in which none is escaped."""
    start = text.find(b'"')
    while start >= 0:
        end = text.find(b'"', start + 1)
        if end < 0:
            return
        yield text[start + 1 : end]
        start = text.find(b'"', end + 1)
