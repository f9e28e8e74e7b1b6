"""One member of a zip archive: what the directory says of it, and what stands before it.

A zip says most things twice. Readers that believe different halves see different files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from safepoint.errors import quoted
from safepoint.weights.refusals import malformed

MAX_32: Final = 0xFFFFFFFF
STORED: Final = 0
DEFLATED: Final = 8
DESCRIBED: Final = 0x0008
"""The flag of a member whose size stands behind its bytes."""
ZIP64: Final = 1
_PADDING: Final = 0x4246  # "FB": PyTorch pads with it, so that tensors begin at a round offset
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_DESCRIPTOR: Final = struct.Struct("<4s3L")
_DESCRIPTOR_64: Final = struct.Struct("<4sL2Q")


@dataclass(frozen=True, slots=True)
class Member:
    """One file in the archive.

    Attributes:
        name: its name, as text.
        start: where its bytes begin in the archive.
        packed: how many bytes it takes there.
        size: how many bytes it becomes.
        crc: its checksum as the archive tells it; PyTorch can leave it 0.
        deflated: whether it is compressed.
    """

    name: str
    start: int
    packed: int
    size: int
    crc: int
    deflated: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """What the directory says of a member.

    Attributes:
        raw: its name, as bytes.
        flags: how it is written.
        method: whether it is compressed.
        crc: its checksum.
        packed: how many bytes it takes.
        size: how many bytes it becomes.
        header: where it begins.
        large: whether a number of these needs more than 32 bits.
    """

    raw: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    header: int
    large: bool


def member_of(file: BinaryIO, entry: Entry, position: int, most: int) -> tuple[Member, int]:
    """Compare the entry with the header before the member, and tell where the member ends.

    Args:
        file: the archive.
        entry: what the directory says.
        position: where the member must begin.
        most: where the directory begins, which no member reaches beyond.

    Raises:
        ModelMalformed: the two halves do not say the same, or the member is elsewhere.
    """
    shown = shown_name(entry.raw)
    if entry.header != position:
        raise malformed(f"The member {shown} overlaps another, or leaves a gap.")
    after = position + _LOCAL.size + len(entry.raw)
    head = read_exactly(file, position, after - position)
    fields = _LOCAL.unpack_from(head)
    (signature, _, flags, method, _, _, crc, packed, size, name_length, extra_length) = fields
    if (signature, flags, method, name_length) != (
        b"PK\3\4",
        entry.flags,
        entry.method,
        len(entry.raw),
    ) or head[_LOCAL.size :] != entry.raw:
        raise malformed(f"The member {shown} is another one in the directory of the archive.")
    described = bool(flags & DESCRIBED)
    told = (crc, packed, size)
    same = (entry.crc, min(entry.packed, MAX_32), min(entry.size, MAX_32))
    if told != same and not (described and told == (0, 0, 0)):
        raise malformed(f"The member {shown} has another size in the directory.")
    start = after + extra_length
    end = start + entry.packed
    tail = _DESCRIPTOR_64 if entry.large else _DESCRIPTOR
    if end + (tail.size if described else 0) > most:
        raise malformed(f"The member {shown} reaches beyond the archive.")
    list(extras(read_exactly(file, after, extra_length)))
    if described:
        if tail.unpack(read_exactly(file, end, tail.size)) != (
            b"PK\7\10",
            entry.crc,
            entry.packed,
            entry.size,
        ):
            raise malformed(f"The member {shown} has another size in the directory.")
        end += tail.size
    try:
        name = entry.raw.decode("utf-8")
    except UnicodeDecodeError:
        raise malformed(f"The member {shown} has a name that is not text.") from None
    deflated = method == DEFLATED
    return Member(name, start, entry.packed, entry.size, entry.crc, deflated), end


def read_exactly(file: BinaryIO, start: int, length: int) -> bytes:
    """Return that many bytes from there.

    Raises:
        ModelMalformed: the file ends before.
    """
    file.seek(start)
    data = file.read(length)
    while len(data) < length and (more := file.read(length - len(data))):
        data += more  # a file without a buffer may give less than was asked for
    if len(data) != length:
        raise malformed("The archive is cut short.")
    return data


def shown_name(raw: bytes) -> str:
    """Return the name of a member for a message."""
    return quoted(raw.decode("utf-8", "backslashreplace"))


def extras(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Split an extra field into its parts: padding, and sizes of large members."""
    at = 0
    seen = set()
    while at < len(data):
        if len(data) - at < 4:
            raise malformed("A member's extra field is damaged.")
        kind, length = struct.unpack_from("<2H", data, at)
        at += 4
        if kind not in (ZIP64, _PADDING) or kind in seen or len(data) - at < length:
            raise malformed("A member's extra field is damaged, or of a tool that is not PyTorch.")
        seen.add(kind)
        yield kind, data[at : at + length]
        at += length
