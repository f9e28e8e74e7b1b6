"""A zip archive, read so that no two readers can differ on it. Nothing is unpacked unasked.

A zip says most things twice: in a directory at the end and in a header before each member. Readers
that believe different halves see different files, and bytes between the members are seen by none.
Here both halves must agree, and the members fill the file without a gap.
"""

from __future__ import annotations

import struct
import zlib
from typing import IO, Final, NamedTuple

from safepoint.core.errors import ModelRefused, quoted
from safepoint.models.limits import ModelLimits, over
from safepoint.models.opcodes import read_at

_AGAIN: Final = "Get the file again from its author. Nothing in it was loaded."
_HIDDEN: Final = "The archive has bytes that belong to none of its members"
STORED: Final = 0
DEFLATED: Final = 8
ENCRYPTED: Final = 0x0001
DESCRIBED: Final = 0x0008
"""The flag of a member whose size stands behind its bytes."""

_END: Final = struct.Struct("<4s4H2LH")
_END_64: Final = struct.Struct("<4sQ4s2L4Q")
_LOCATOR: Final = struct.Struct("<4sLQL")
_TAIL: Final = _END_64.size + _LOCATOR.size + _END.size
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_DESCRIPTORS: Final = (struct.Struct("<4s3L"), struct.Struct("<4sL2Q"))
_MAX_16: Final = 0xFFFF
_MAX_32: Final = 0xFFFFFFFF
_ZIP64: Final = 1
_DIRECTORY: Final = 64 * 1024 * 1024


class Member(NamedTuple):
    """One file in an archive.

    Attributes:
        name: its name; what is not UTF-8 in it is replaced.
        flags: how it is written.
        method: how it is packed.
        crc: its checksum as the archive tells it; PyTorch can leave it 0.
        packed: how many bytes it takes.
        size: how many bytes it becomes.
        header: where it begins.
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
    header: int
    start: int
    extras: tuple[int, ...]
    odd: bool


# What the directory says of one. A tuple of such values is none that the garbage collector visits.
_Entry = tuple[str, int, int, int, int, int, int, tuple[int, ...], bool]


def read_directory(file: IO[bytes], size: int, limits: ModelLimits) -> tuple[Member, ...]:
    """Return the members of an archive, in the order of its directory.

    Raises:
        ModelRefused: the archive is damaged, ambiguous, or hides bytes.
        LimitExceeded: it has too many members.
    """
    count, start, length = _end(file, size, limits)
    listed = _listed(read_exactly(file, start, length), count)
    members: dict[bytes, Member] = {}
    position = 0
    for raw in sorted(listed, key=lambda each: listed[each][6]):
        members[raw], position = _located(file, raw, listed[raw], position, start)
    if position != start:
        raise unclear(_HIDDEN)
    return tuple(members[raw] for raw in listed)


def content(file: IO[bytes], member: Member, most: int) -> bytes:
    """Return the bytes of a member, up to so many.

    Raises:
        ModelRefused: they are not packed as its entry says, or do not match its checksum.
    """
    data = read_exactly(file, member.start, min(member.packed, most))
    if member.method == DEFLATED:
        reader = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = reader.decompress(data, min(member.size, most) + 1)
        except zlib.error:
            data = b""
        whole = len(data) == member.size and reader.eof and not reader.unused_data
        if not whole and member.packed <= most and member.size <= most:
            raise unclear(f"The member {quoted(member.name)} is not compressed as its entry says")
    if len(data) == member.size and member.crc and zlib.crc32(data) != member.crc:
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
    at = tail.rfind(b"PK\5\6")
    while at >= 0:
        end, record = first + at, tail[at : at + _END.size]
        if len(record) == _END.size:
            *_, length, start, _ = _END.unpack(record)
            if read_at(file, max(0, end - _LOCATOR.size), 4) == b"PK\6\7":
                return True
            # Some look for the directory before its end, and others where it says it is.
            places = (place for place in (end - length, start) if place >= 0)
            if any(read_at(file, place, 4) == b"PK\1\2" for place in places):
                return True
        at = tail.rfind(b"PK\5\6", 0, at)
    return False


def _end(file: IO[bytes], size: int, limits: ModelLimits) -> tuple[int, int, int]:
    """Return how many entries the directory has, where it starts, and its length.

    The records that end the archive are read, and then written again as they have to be: of one
    part, without a comment, and both with the same numbers.
    """
    tail = read_at(file, max(0, size - _TAIL), _TAIL)
    if len(tail) < _END.size or tail[-_END.size :][:4] != b"PK\5\6":
        raise unclear(
            "The file begins as a zip archive, but does not end as one: it is cut short, or bytes"
            " follow"
        )
    count, length, start = _END.unpack(tail[-_END.size :])[4:7]
    before = b""
    if len(tail) == _TAIL and tail[_END_64.size :][:4] == b"PK\6\7":
        _check_one(file, size - _TAIL, tail)
        *_, count, length, start = large = _END_64.unpack(tail[: _END_64.size])
        before = _END_64.pack(b"PK\6\6", 44, large[2], 0, 0, count, count, length, start)
        before += _LOCATOR.pack(b"PK\6\7", 0, (start + length) % 2**64, 1)
    small = min(count, _MAX_16), min(length, _MAX_32), min(start, _MAX_32)
    spelled = before + _END.pack(b"PK\5\6", 0, 0, small[0], *small, 0)
    if not tail.endswith(spelled):
        raise unclear("The records that end the archive disagree, or tell of several parts")
    if start + length + len(spelled) != size:
        raise unclear(_HIDDEN)
    if count > limits.entries:
        raise over(limits, "entries")
    if length > _DIRECTORY:
        raise unclear("The directory of the archive is longer than its names need")
    return count, start, length


def _check_one(file: IO[bytes], place: int, tail: bytes) -> None:
    """Refuse several archives, one behind another: the last one counts from its own beginning."""
    _, _, where, _ = _LOCATOR.unpack(tail[_END_64.size : -_END.size])
    before = place - where
    if before >= _END.size and read_at(file, before - _END.size, 4) == b"PK\5\6":
        raise ModelRefused(
            "The file is several archives, one behind another, as a distributed checkpoint of"
            " PyTorch has them.",
            "Nothing in it was loaded. Ask its author for one file:"
            " torch.distributed.checkpoint.format_utils.dcp_to_torch_save writes it.",
        )


def _listed(data: bytes, count: int) -> dict[bytes, _Entry]:
    """Read the directory: the name of each member as bytes, and what is said of it."""
    at, listed = 0, {}
    for _ in range(count):
        if len(data) - at < _ENTRY.size:
            raise unclear("The directory of the archive is cut short")
        fields = _ENTRY.unpack_from(data, at)
        (signature, _, _, flags, method, _, _, crc, packed, size) = fields[:10]
        (name_length, extra_length, comment, disk, _, attributes, header) = fields[10:]
        names = at + _ENTRY.size
        extra = names + name_length
        at = extra + extra_length + comment
        if signature != b"PK\1\2" or disk or at > len(data):
            raise unclear("The directory of the archive is damaged")
        raw = data[names:extra]
        name = raw.decode("utf-8", "backslashreplace")
        if raw in listed:
            raise unclear(f"Two members of the archive have the name {quoted(name)}")
        extras = _extras(data[extra : extra + extra_length])
        if _MAX_32 in (size, packed, header):
            size, packed, header = _widened(extras.get(_ZIP64, b""), size, packed, header)
        if method == STORED and packed != size:
            raise unclear(f"The member {quoted(name)} has two sizes")
        odd = bool(comment) or bool(attributes & 0x10) or raw.endswith(b"/")
        listed[raw] = name, flags, method, crc, packed, size, header, (*extras,), odd
    if at != len(data):
        raise unclear("The directory of the archive has bytes that belong to no entry")
    return listed


def _located(
    file: IO[bytes], raw: bytes, entry: _Entry, position: int, most: int
) -> tuple[Member, int]:
    """Compare an entry with the header before the member, and tell where the member ends."""
    name, *_, header, kinds, odd = entry
    same = entry[3:6]
    if header != position:
        raise unclear(f"The member {quoted(name)} overlaps another, or leaves a gap")
    after = position + _LOCAL.size + len(raw)
    head = read_exactly(file, position, after - position)
    fields = _LOCAL.unpack_from(head)
    (signature, _, flags, method, _, _, crc, packed, size, name_length, extra_length) = fields
    said = signature, flags, method, name_length, head[_LOCAL.size :]
    if said != (b"PK\3\4", *entry[1:3], len(raw), raw):
        raise unclear(f"The member {quoted(name)} is another one in the directory of the archive")
    extras = _extras(read_exactly(file, after, extra_length))
    described = bool(flags & DESCRIBED)
    small = (same[0], min(same[1], _MAX_32), min(same[2], _MAX_32))
    local = (crc, packed, size)
    if _MAX_32 in local[1:] and local != small:
        size, packed, _ = _widened(extras.get(_ZIP64, b""), size, packed, 0)
        local = (crc, packed, size)
    if local not in (same, small) and not (described and local == (0, 0, 0)):
        raise unclear(f"The member {quoted(name)} has another size in the directory")
    start = after + extra_length
    end = start + same[1]
    if end > most:
        raise unclear(f"The member {quoted(name)} reaches beyond the archive")
    if described:
        for tail in _DESCRIPTORS:
            if end + tail.size <= most and tail.unpack(read_exactly(file, end, tail.size)) == (
                b"PK\7\10",
                *same,
            ):
                end += tail.size
                break
        else:
            raise unclear(f"The member {quoted(name)} has another size in the directory")
    return Member(*entry[:7], start, (*kinds, *extras), odd), end


def _widened(wide: bytes, size: int, packed: int, header: int) -> tuple[int, int, int]:
    """Take those of the three numbers that need more than 32 bits from the extra field."""
    values = [size, packed, header]
    missing = [at for at, value in enumerate(values) if value == _MAX_32]
    if missing and len(wide) < 8 * len(missing):
        raise unclear("A member's entry has a size that does not fit it")
    for at, value in zip(missing, struct.iter_unpack("<Q", wide[: 8 * len(missing)]), strict=True):
        values[at] = value[0]
    size, packed, header = values
    return size, packed, header


def _extras(data: bytes) -> dict[int, bytes]:
    """Split an extra field into its parts."""
    at, found = 0, {}
    while at < len(data):
        if len(data) - at < 4:
            raise unclear("A member's extra field is damaged")
        kind, length = struct.unpack_from("<2H", data, at)
        at += 4
        if kind in found or len(data) - at < length:
            raise unclear("A member's extra field is damaged")
        found[kind] = data[at : at + length]
        at += length
    return found


def unclear(what: str) -> ModelRefused:
    """Return the error for a file that is damaged, or that readers could differ on."""
    return ModelRefused(f"{what}.", _AGAIN)
