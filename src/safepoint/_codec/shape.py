"""The shape of encoded bytes: how large, how deep, how many, before anything parses them.

A parser that is handed `[[],[],…` has built five million lists before it can be asked how many
there were. Here strings are cut out first, and what is left is counted at the speed of
`bytes.count`. The work grows with the input and with nothing else: there is no regular expression
that could be made to backtrack or to start over.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

from safepoint.errors import DecodeError, LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safepoint.limits import Limits

# The longest number that `repr` writes is -2.2250738585072014e-308, with 24 characters.
_LONG_TOKEN: Final = b"0" * 25
_WINDOW: Final = 64 * 1024
_FLAT: Final = 8
_OPEN: Final = ord("(")
# At most this many brackets per container: {"$dict":[[key,value]]}. A scalar adds two at most.
_BRACKETS: Final = 3


def _table() -> bytes:
    table = bytearray(b"0" * 256)
    for source, target in zip(b'[{]},":', b'(()),":', strict=True):
        table[source] = target
    return bytes(table)


_SHAPE: Final = _table()


def _without_strings(data: bytes) -> Iterator[bytes]:
    """Yield `data` with each string replaced by one quote.

    It goes window by window, so that a megabyte of quotes does not become a list of a million
    pieces. Outside a string a backslash ends the parse, so it does not matter what follows it.
    """
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    inside = False
    for start in range(0, len(bare), _WINDOW):
        pieces = bare[start : start + _WINDOW].split(b'"')
        yield b'"'.join(pieces[inside::2])
        inside ^= not len(pieces) % 2
        if inside and len(pieces) > 1:
            yield b'"'


def check_shape(data: bytes, limits: Limits) -> None:
    """Refuse bytes that are too large, too deep or too many for a parser to see.

    Nesting is measured in brackets here, and a state of the allowed depth may have a few per
    container; the exact depth is counted when the decoded state is encoded again.

    Raises:
        LimitExceeded: the size, the nesting or the number of values is over its limit.
        DecodeError: a byte that is not ASCII, or a token longer than any that is written.
    """
    if len(data) > limits.state_bytes:
        raise LimitExceeded(
            f"The encoded state has {len(data)} bytes, and the limit is {limits.state_bytes}.",
            "Restore an earlier checkpoint, or raise Limits.state_bytes if you expect this size.",
        )
    if not data.isascii():
        raise DecodeError(
            "The encoded state holds a byte that is not ASCII.",
            "Restore a checkpoint that this codec wrote.",
        )
    shape = b"".join(_without_strings(data)).translate(_SHAPE)
    if shape.count(b",") + shape.count(b"(") - shape.count(b"()") > limits.items:
        raise LimitExceeded(
            f"The encoded state holds more than {limits.items} values.",
            "Restore an earlier checkpoint, or raise Limits.items if you expect this many.",
        )
    if _LONG_TOKEN in shape:
        raise DecodeError(
            "The encoded state holds a token that is longer than any this codec writes.",
            "Restore a checkpoint that this codec wrote.",
        )
    if _nesting(shape) > _BRACKETS * limits.depth + 2:
        raise LimitExceeded(
            f"The encoded state is nested deeper than {limits.depth} levels.",
            "Restore an earlier checkpoint, or raise Limits.depth if you expect this nesting.",
        )


def _nesting(shape: bytes) -> int:
    """Return how deep the brackets go.

    Each pass removes the innermost pairs, which ends soon for nearly every state. What remains
    after a few passes is walked, so that deep nesting costs one walk and not one pass per level.
    """
    brackets = shape.translate(None, b'0,":')
    for level in range(1, _FLAT + 1):
        brackets = brackets.replace(b"()", b"")
        if not brackets:
            return level
    return _FLAT + max(accumulate(1 if byte == _OPEN else -1 for byte in brackets), default=0)
