"""Is it a safetensors file, a NumPy array, a tar archive, JSON? And does it end where it should?

Only headers are read, except of JSON, which has none.
"""

from __future__ import annotations

import json
import re
from typing import BinaryIO, Final

from safepoint.errors import DecodeError, LimitExceeded, ModelMalformed
from safepoint.migrate import strict_json
from safepoint.pickles._arrays import MAGIC, header_end, plain_size
from safepoint.pickles._zips import AGAIN, read_at

_HEADER: Final = 32 * 1024 * 1024
_ITEMS: Final = 2_000_000
_BLOCK: Final = 512
_TAR_MEMBERS: Final = 100_000
_PADDING: Final = 1024 * 1024
_ARRAY: Final = 10
_JSON: Final = re.compile(rb'[ \t\r\n]*(?:([{\[])|["\-0-9tfn])')


def is_safetensors(file: BinaryIO, head: bytes, size: int) -> bool:
    """Tell whether a file begins with a header of safetensors.

    Raises:
        ModelMalformed: it does, and does not end where its last tensor does.
        LimitExceeded: the header is too large.
    """
    length = int.from_bytes(head[:8], "little")
    if len(head) < 10 or head[8:9] != b"{" or length > size - 8:
        return False
    if length > _HEADER:
        raise LimitExceeded(
            f"The header of the safetensors file is larger than {_HEADER} bytes.",
            "Split the file: a header of that size names millions of tensors.",
        )
    end = _last_offset(read_at(file, 8, length))
    if end is None:
        return False
    if 8 + length + end != size:
        raise ModelMalformed(
            "The safetensors file does not end where its last tensor does: it is cut short, or"
            " bytes follow.",
            AGAIN,
        )
    return True


def _last_offset(header: bytes) -> int | None:
    """Return where the tensors end, or None if this is no header.

    Whoever reads the tensors parses it again, strictly. Here it is only told apart.
    """
    if header.count(b"{") > _ITEMS:
        raise LimitExceeded(
            f"The header of the safetensors file has more than {_ITEMS} entries.",
            "Split the file: it names millions of tensors.",
        )
    try:
        entries = json.loads(header.decode("utf-8"))
        tensors = [entry for name, entry in entries.items() if name != "__metadata__"]
        ends = [entry["data_offsets"][1] for entry in tensors]
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError):
        return None
    return max(ends, default=0) if all(type(end) is int for end in ends) else None


def is_array(head: bytes, size: int) -> bool:
    """Tell whether a file begins with the header of a NumPy array.

    Raises:
        ModelMalformed: it does, and does not end where the array does.
    """
    if not head.startswith(MAGIC):
        return False
    if header_end(head) > size or size < _ARRAY:
        raise ModelMalformed("The NumPy array is cut short.", AGAIN)
    if plain_size(head) not in (None, size):
        raise ModelMalformed(
            "The NumPy array does not end where its last item does: it is cut short, or bytes"
            " follow.",
            AGAIN,
        )
    return True


def tar_names(file: BinaryIO, head: bytes, size: int) -> list[str] | None:
    """Return the names of the first members of a tar archive, or None if it is none.

    Raises:
        ModelMalformed: it is one, and is cut short, or has bytes behind its end.
        LimitExceeded: it has too many members.
    """
    if _tar_size(head[:_BLOCK]) is None:
        return None
    names: list[str] = []
    position = 0
    while position < size:
        block = read_at(file, position, _BLOCK)
        length = _tar_size(block)
        if length is None:
            break
        if len(names) >= _TAR_MEMBERS:
            raise LimitExceeded(
                f"The tar archive has more than {_TAR_MEMBERS} members.", "Split it."
            )
        names.append(block[:100].rstrip(b"\0").decode("utf-8", "replace"))
        position += _BLOCK + -(-length // _BLOCK) * _BLOCK
    if position > size:
        raise ModelMalformed("The tar archive is cut short.", AGAIN)
    if size - position > _PADDING or read_at(file, position, _PADDING).strip(b"\0"):
        raise ModelMalformed("The tar archive has bytes that belong to no member.", AGAIN)
    return names


def _tar_size(block: bytes) -> int | None:
    """Return the size of the member that this is the header of, or None if it is no header."""
    if len(block) < _BLOCK:
        return None
    try:
        told = int(block[148:156].strip(b"\0 ") or b"-1", 8)
        length = (
            int.from_bytes(block[125:136], "big")
            if block[124] & 0x80
            else int(block[124:136].strip(b"\0 ") or b"0", 8)
        )
    except ValueError:
        return None
    summed = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    return length if told == summed and length >= 0 else None


def is_json(file: BinaryIO, head: bytes, size: int, most: int) -> bool:
    """Tell whether a file is JSON, and nothing but one value of it.

    Raises:
        LimitExceeded: it begins like JSON, and is too large or nested too deep to tell.
    """
    begins = _JSON.match(head)
    if begins is None or (begins[1] is None and size > most):
        return False
    try:
        strict_json(read_at(file, 0, most + 1), "The file", most, _ITEMS)
    except DecodeError:
        return False
    return True
