"""A zip archive, read so that no two readers can differ on it. Nothing is unpacked unasked.

A zip says most things twice: in a directory at the end and in a header before each member. Readers
that believe different halves see different files, and bytes between the members are seen by none.
Here both halves must agree, and the members fill the file without a gap.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import IO, Final, NamedTuple

from safepoint.core.errors import ModelRefused, quoted
from safepoint.models.limits import ModelLimits, over
from safepoint.models.opcodes import read_at

_AGAIN: Final = "Get the file again from its author. Nothing in it was loaded."
_DAMAGED: Final = "The directory of the archive is damaged, or says two things of one member"
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
_BEHIND: Final = (struct.Struct("<4s3L"), struct.Struct("<4sL2Q"))
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
    members: dict[bytes, Member] = {}
    position = 0
    try:
        listed = _listed(read_exactly(file, start, length), count)
        for raw in sorted(listed, key=lambda each: listed[each][6]):
            members[raw], position = _located(file, raw, listed[raw], position)
    except struct.error:  # where something is too short
        position = -1
    if position != start:
        raise unclear(_HIDDEN if position >= 0 else _DAMAGED)
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
    for found in re.finditer(rb"PK\x05\x06(?=.{18})", tail, re.DOTALL):
        *_, length, start, _ = _END.unpack_from(tail, found.start())
        end = first + found.start()
        # Some look for the directory before its end, and others where it says it is.
        marks = {read_at(file, at, 4) for at in (end - length, start) if at >= 0}
        if b"PK\1\2" in marks or read_at(file, max(0, end - _LOCATOR.size), 4) == b"PK\6\7":
            return True
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
    if count > limits.tensors + _FEW:
        raise over(limits, "tensors")
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
        fields = _ENTRY.unpack_from(data, at)
        (signature, _, _, flags, method, _, _, crc, packed, size) = fields[:10]
        (name_length, extra_length, comment, disk, _, attributes, header) = fields[10:]
        names = at + _ENTRY.size
        extra = names + name_length
        at = extra + extra_length + comment
        raw, extras = data[names:extra], _extras(data[extra : extra + extra_length])
        if _MAX_32 in (size, packed, header):
            size, packed, header = _widened(extras, size, packed, header)
        two_sizes = method == STORED and packed != size
        if signature != b"PK\1\2" or disk or at > len(data) or raw in listed or two_sizes:
            raise unclear(_DAMAGED)
        name = raw.decode("utf-8", "backslashreplace")
        odd = bool(comment) or bool(attributes & 0x10) or raw.endswith(b"/")
        listed[raw] = name, flags, method, crc, packed, size, header, (*extras,), odd
    if at != len(data):
        raise unclear(_DAMAGED)
    return listed


def _located(file: IO[bytes], raw: bytes, entry: _Entry, position: int) -> tuple[Member, int]:
    """Compare an entry with the header before the member, and tell where the member ends."""
    name, *_, header, kinds, odd = entry
    same = entry[3:6]
    if header != position:
        raise unclear(f"The member {quoted(name)} overlaps another, or leaves a gap")
    after = position + _LOCAL.size + len(raw)
    head = read_exactly(file, position, after - position)
    fields = _LOCAL.unpack_from(head)
    (signature, _, flags, method, _, _, crc, packed, size, name_length, extra_length) = fields
    extras = _extras(read_exactly(file, after, extra_length))
    start = after + extra_length
    end = start + same[1]
    small = same[0], min(same[1], _MAX_32), min(same[2], _MAX_32)
    if _MAX_32 in (packed, size) and (crc, packed, size) != small:
        size, packed, _ = _widened(extras, size, packed, 0)
    fits = (crc, packed, size) in (same, small)
    if flags & DESCRIBED:
        forms = _BEHIND if same == small else _BEHIND[1:]
        behind = [form.pack(b"PK\7\10", *same) for form in forms]
        found = [each for each in behind if each == read_at(file, end, len(each))]
        fits = found != [] and (fits or (crc, packed, size) == (0, 0, 0))
        end += max(map(len, found), default=0)
    said = signature, flags, method, name_length, head[_LOCAL.size :]
    if not fits or said != (b"PK\3\4", *entry[1:3], len(raw), raw):
        raise unclear(f"The member {quoted(name)} is not as the directory says")
    return Member(*entry[:7], start, (*kinds, *extras), odd), end


def _widened(extras: dict[int, bytes], size: int, packed: int, header: int) -> list[int]:
    """Take those of the three numbers that need more than 32 bits from the extra field."""
    values = [size, packed, header]
    missing = [at for at, value in enumerate(values) if value == _MAX_32]
    wide = struct.unpack_from(f"<{len(missing)}Q", extras.get(_ZIP64, b""))
    for at, value in zip(missing, wide, strict=True):
        values[at] = value
    return values


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
