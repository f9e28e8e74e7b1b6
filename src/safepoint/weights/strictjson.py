"""JSON with one meaning: no key twice, integers alone, nothing after it but spaces."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NoReturn

from safepoint.errors import quoted

_WINDOW: Final = 64 * 1024


class NotStrict(Exception):
    """What is wrong with the text, as the end of a sentence about the file."""


def read_json(header: bytes, made: Callable[[dict[str, Any]], Any]) -> Any:
    """Read an object.

    Args:
        header: the text, in UTF-8, from its `{` on.
        made: what to make of each object in it, innermost first.

    Raises:
        NotStrict: it is not JSON, or is not strict.
    """
    if header[:1] != b"{":
        raise NotStrict("has a header that is not JSON")
    decoder = json.JSONDecoder(
        object_pairs_hook=lambda pairs: made(_unique(pairs)),
        parse_float=_not_integer,
        parse_constant=_not_integer,
        parse_int=_integer if b"-0" in header else None,
    )
    try:
        text = header.decode()
        content, end = decoder.raw_decode(text)
    except RecursionError:
        raise NotStrict("has a header that is nested too deep") from None
    except ValueError:  # not UTF-8, not JSON, a number of thousands of digits
        raise NotStrict("has a header that is not JSON") from None
    if text[end:].strip(" "):
        raise NotStrict("has something else after the JSON of its header")
    return content


def exceeds(header: bytes, marks: bytes, most: int) -> bool:
    """Tell whether JSON text has more of these marks than that, before anything parses it.

    Marks in strings do not count. They are told apart window by window, so that a megabyte of
    quotes does not become a list of a million pieces.
    """
    if _count(header, marks) <= most:
        return False
    # Outside of a string a backslash ends the parse, so it does not matter what follows it.
    bare = header.replace(b"\\\\", b"").replace(b'\\"', b"")
    inside = False
    total = 0
    for start in range(0, len(bare), _WINDOW):
        pieces = bare[start : start + _WINDOW].split(b'"')
        total += _count(b"".join(pieces[inside::2]), marks)
        inside ^= not len(pieces) % 2
    return total > most


def _count(text: bytes, marks: bytes) -> int:
    return sum(map(text.count, marks))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise NotStrict(f"has {quoted(name)} twice in its header")
            seen.add(name)
    return found


def _not_integer(text: str) -> NoReturn:
    raise NotStrict(f"has the number {quoted(text)} in its header, which is not an integer")


def _integer(text: str) -> int:
    if text == "-0":
        _not_integer(text)
    return int(text)
