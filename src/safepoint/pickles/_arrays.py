r"""The header of a NumPy array: a literal of Python, of which only what NumPy writes is believed.

NumPy evaluates the header. `'|\x4f'` and `'object'` are arrays of objects, as `'|O'` is. So an
array is taken for one of numbers and texts only if its header is spelled as NumPy spells it, and
its length is the one that follows.
"""

from __future__ import annotations

import math
import re
from typing import Final

MAGIC: Final = b"\x93NUMPY"
MOST: Final = 64 * 1024 + 12
"""How much of an array is looked at for its header. NumPy itself refuses more than 10,000 bytes."""

_WIDTHS: Final = {b"\1\0": 2, b"\2\0": 4, b"\3\0": 4}
_SHAPE: Final = rb"\((?:[0-9]{1,18},|[0-9]{1,18}(?:, [0-9]{1,18}){1,63}|)\)"
_TYPE: Final = rb"'[<>|=][?biufcSUVmM][0-9]{1,9}(?:\[[0-9]{0,9}[A-Za-z]{1,8}\])?'"
_FIELD: Final = rb"\('[^'\\\r\n]{0,500}', " + _TYPE + rb"(?:, " + _SHAPE + rb")?\)"
_HEADER: Final = re.compile(
    rb"\{'descr': ("
    + _TYPE
    + rb"|\["
    + _FIELD
    + rb"(?:, "
    + _FIELD
    + rb")*\]), 'fortran_order': (?:True|False), 'shape': ("
    + _SHAPE
    + rb"), \} *\n"
)
_ITEM: Final = re.compile(
    rb"'[<>|=]([?biufcSUVmM])([0-9]{1,9})(?:\[[^'\]]*\])?'(?:, (" + _SHAPE + rb"))?(?=\)|\Z)"
)


def header_end(head: bytes) -> int:
    """Return where the header says that it ends, 0 if its version is none of NumPy's."""
    width = _WIDTHS.get(head[6:8], 0)
    start = 8 + width
    return start + int.from_bytes(head[8:start], "little") if width and len(head) >= start else 0


def header_of(head: bytes) -> bytes:
    """Return the header, as far as it is there."""
    return head[8 + _WIDTHS.get(head[6:8], 0) : header_end(head)]


def plain_size(head: bytes) -> int | None:
    """Return how many bytes an array of numbers or texts with this header has.

    None if it may be one of objects: if the header is not as NumPy writes it for plain values.
    """
    end = header_end(head)
    if not end or end > len(head):
        return None
    found = _HEADER.fullmatch(header_of(head))
    if found is None:
        return None
    each = 0
    for item in _ITEM.finditer(found[1]):
        letter, size, shape = item.groups()
        each += int(size) * (4 if letter == b"U" else 1) * _count(shape or b"()")
    return end + each * _count(found[2])


def _count(shape: bytes) -> int:
    return math.prod(int(number) for number in re.findall(rb"[0-9]+", shape))
