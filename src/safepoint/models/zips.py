"""A zip archive, read so that no two readers can differ on it. Nothing is unpacked unasked.

A zip says most things twice: in a directory at the end and in a header before each member. Readers
that believe different halves see different files, and bytes between the members are seen by none.
Here both halves must agree, and the members fill the file without a gap.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import IO, Final, NamedTuple

from safepoint.core.errors import ModelRefused, quoted
from safepoint.models.limits import ModelLimits, over
from safepoint.models.opcodes import read_at

_AGAIN: Final = "Get the file again from its author. Nothing in it was loaded."
_DAMAGED: Final = "The directory of the archive is damaged, or says two things of one member"
_HIDDEN: Final = "The archive has bytes that belong to none of its members"
STORED: Final = 0
_DEFLATED: Final = 8
_ENCRYPTED: Final = 0x0001
DESCRIBED: Final = 0x0008
"""The flag of a member whose size stands behind its bytes."""

_END: Final = struct.Struct("<4s4H2LH")
_END_64: Final = struct.Struct("<4sQ4s2L4Q")
_LOCATOR: Final = struct.Struct("<4sLQL")
_TAIL: Final = _END_64.size + _LOCATOR.size + _END.size
_ENTRY: Final = struct.Struct("<4s4x2H4x3L4H2x2L")
_LOCAL: Final = struct.Struct("<4s2x2H4x3L2H")
_BEHIND: Final = (struct.Struct("<4sL2Q"), struct.Struct("<4s3L"))
_MAX_16: Final = 0xFFFF
_MAX_32: Final = 0xFFFFFFFF
_ZIP64: Final = 1
_DIRECTORY: Final = 64 * 1024 * 1024
_FEW: Final = 10  # members of a PyTorch file that are no tensors


class Member(NamedTuple):
    """One file in an archive.

    Attributes:
        name: its name; what is not UTF-8 in it is replaced.
        flags: how it is written.
        method: how it is packed.
        crc: its checksum as the archive tells it; PyTorch can leave it 0.
        packed: how many bytes it takes.
        size: how many bytes it becomes.
        start: where its bytes begin.
        extras: the kinds of its extra fields, in both halves.
        odd: it has a comment, or is a folder.
    """

    name: str
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    start: int
    extras: tuple[int, ...]
    odd: bool


def read_directory(file: IO[bytes], size: int, limits: ModelLimits) -> tuple[Member, ...]:
    """Return the members of an archive, which has them in the order of its directory.

    Raises:
        ModelRefused: the archive is damaged, ambiguous, or hides bytes.
        LimitExceeded: it has too many members.
    """
    try:
        count, start, length = _end(file, size, limits)
        members = dict(_members(file, read_exactly(file, start, length), count, start))
    except struct.error:  # where something is too short
        raise unclear(_DAMAGED) from None
    if len(members) != count:
        raise unclear(_DAMAGED)
    return tuple(members.values())


def content(file: IO[bytes], member: Member, most: int, *, checked: bool = True) -> bytes:
    """Return the bytes of a member, up to so many.

    Args:
        file: the archive.
        member: one of its members.
        most: how many bytes.
        checked: whether its checksum has to match, which PyTorch does not look at.

    Raises:
        ModelRefused: they are not packed as its entry says, or do not match its checksum.
    """
    if member.flags & _ENCRYPTED or member.method not in (STORED, _DEFLATED):
        raise unclear(f"The member {quoted(member.name)} is encrypted, or packed in a rare way")
    data = read_exactly(file, member.start, min(member.packed, most))
    if member.method == _DEFLATED:
        reader = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = reader.decompress(data, min(member.size, most) + 1)
        except zlib.error:
            data = b""
        whole = len(data) == member.size and reader.eof and not reader.unused_data
        if not whole and member.packed <= most and member.size <= most:
            raise unclear(f"The member {quoted(member.name)} is not compressed as its entry says")
    is_whole = len(data) == member.size
    if checked and is_whole and member.crc and zlib.crc32(data) != member.crc:
        raise unclear(f"The member {quoted(member.name)} does not match its checksum")
    return data[:most]


def read_exactly(file: IO[bytes], start: int, length: int) -> bytes:
    """Return that many bytes from there.

    Raises:
        ModelRefused: the file ends before.
    """
    data = read_at(file, start, length)
    if len(data) != length:
        raise unclear("The archive is cut short")
    return data


def ends_as_zip(file: IO[bytes], size: int) -> bool:
    """Tell whether some reader would find an archive in a file that does not begin as one.

    Readers look for the directory from the end, and forgive what stands behind or before it.
    """
    first = max(0, size - _END.size - _MAX_16)
    tail = read_at(file, first, size - first)
    for found in re.finditer(rb"PK\x05\x06(?=.{18})", tail, re.DOTALL):
        *_, length, start, _ = _END.unpack_from(tail, found.start())
        end = first + found.start()
        # Some look for the directory before its end, and others where it says it is.
        places = (end - length, start, end - _LOCATOR.size)
        if any(read_at(file, at, 4) in (b"PK\1\2", b"PK\6\7") for at in places if at >= 0):
            return True
    return False


def _end(file: IO[bytes], size: int, limits: ModelLimits) -> tuple[int, int, int]:
    """Return how many entries the directory has, where it starts, and its length.

    The records that end the archive are read, and then written again as they have to be: of one
    part, without a comment, and both with the same numbers.
    """
    tail = read_at(file, max(0, size - _TAIL), _TAIL)
    count, length, start = _END.unpack(tail[-_END.size :].rjust(_END.size))[4:7]
    ends = b""
    if tail[_END_64.size :][:4] == b"PK\6\7":
        *_, count, length, start = large = _END_64.unpack(tail[: _END_64.size])
        ends = _END_64.pack(b"PK\6\6", 44, large[2], 0, 0, count, count, length, start)
        ends += _LOCATOR.pack(b"PK\6\7", 0, start + length, 1)
    small = min(count, _MAX_16), min(length, _MAX_32), min(start, _MAX_32)
    ends += _END.pack(b"PK\5\6", 0, 0, small[0], *small, 0)
    if not tail.endswith(ends):
        raise unclear(
            "The file begins as a zip archive, but does not end as one: it is cut short, bytes"
            " follow, or its last records disagree"
        )
    before = size - len(ends) - length - start
    if before and read_at(file, max(0, before - _END.size), 4) == b"PK\5\6":
        raise ModelRefused(
            "The file is several archives, one behind another, as a distributed checkpoint of"
            " PyTorch has them.",
            "Nothing in it was loaded. Ask its author for one file:"
            " torch.distributed.checkpoint.format_utils.dcp_to_torch_save writes it.",
        )
    if before:
        raise unclear(_HIDDEN)
    if count > limits.tensors + _FEW:
        raise over(limits, "tensors")
    if length > _DIRECTORY:
        raise unclear("The directory of the archive is longer than its names need")
    return count, start, length


def _members(
    file: IO[bytes], directory: bytes, count: int, stop: int
) -> Iterator[tuple[bytes, Member]]:
    """Compare each entry with the header before its member, which begins where the last one ends.

    Args:
        file: the archive.
        directory: its entries.
        count: how many there are.
        stop: where the last member has to end.
    """
    at = position = 0
    for _ in range(count):
        entry = _ENTRY.unpack_from(directory, at)
        mark, flags, method, crc, packed, size, named, extra, comment, disk, folder, header = entry
        at += _ENTRY.size + named
        raw, kinds = directory[at - named : at], _extras(directory[at : at + extra])
        at += extra + comment
        size, packed, header = _widened(kinds, size, packed, header)
        if mark != b"PK\1\2" or disk or (method == STORED and packed != size):
            raise unclear(_DAMAGED)
        name = raw.decode("utf-8", "backslashreplace")
        if header != position:
            raise unclear(
                f"The member {quoted(name)} overlaps another, leaves a gap, or is out of order"
            )
        head = read_exactly(file, position, _LOCAL.size + named)
        mark, *how, small_crc, small_packed, small, length, extra = _LOCAL.unpack_from(head)
        position += len(head)
        extras = _extras(read_exactly(file, position, extra))
        start = position + extra
        position = start + packed
        here = small_crc, *_widened(extras, small, small_packed)
        fits = here == (crc, size, packed)
        if flags & DESCRIBED:
            behind, told = read_at(file, position, 24), (b"PK\7\10", crc, packed, size)
            lengths = [form.size for form in _BEHIND if form.unpack_from(behind) == told]
            fits = lengths != [] and (fits or here == (0, 0, 0))
            position += max(lengths, default=0)
        said = mark, how, length, head[_LOCAL.size :]
        if not fits or said != (b"PK\3\4", [flags, method], named, raw):
            raise unclear(f"The member {quoted(name)} is not as the directory says")
        odd = bool(comment or folder & 0x10) or raw.endswith(b"/")
        found = name, flags, method, crc, packed, size, start, (*kinds, *extras), odd
        yield raw, Member(*found)
    if at != len(directory):
        raise unclear(_DAMAGED)
    if position != stop:
        raise unclear(_HIDDEN)


def _widened(extras: dict[int, bytes], *numbers: int) -> tuple[int, ...]:
    """Take those numbers that need more than 32 bits from the extra field."""
    if _MAX_32 not in numbers:
        return numbers
    wide = iter(struct.unpack_from(f"<{numbers.count(_MAX_32)}Q", extras.get(_ZIP64, b"")))
    return tuple(next(wide) if number == _MAX_32 else number for number in numbers)


def _extras(data: bytes) -> dict[int, bytes]:
    """Split an extra field into its parts."""
    at, found = 0, dict[int, bytes]()
    while at < len(data):
        kind, length = struct.unpack_from("<2H", data, at)
        at += 4 + length
        if kind in found or at > len(data):
            raise unclear(_DAMAGED)
        found[kind] = data[at - length : at]
    return found


def unclear(what: str) -> ModelRefused:
    """Return the error for a file that is damaged, or that readers could differ on."""
    return ModelRefused(f"{what}.", _AGAIN)
