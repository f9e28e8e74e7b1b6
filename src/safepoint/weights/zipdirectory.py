"""The directory of a zip archive, read so strictly that no two readers can differ on it.

A zip says most things twice: in a directory at the end and in a header before each member. Readers
that believe different halves see different files, and bytes between the members are seen by none.
Here both halves must agree, and the members fill the file without a gap. Nothing is unpacked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, Final

from safepoint.errors import LimitExceeded
from safepoint.weights.limits import ModelLimits
from safepoint.weights.refusals import malformed, over_limit
from safepoint.weights.zipmember import (
    DEFLATED,
    DESCRIBED,
    MAX_32,
    STORED,
    ZIP64,
    Entry,
    Member,
    extras,
    member_of,
    read_exactly,
    shown_name,
)

_END: Final = struct.Struct("<4s4H2LH")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR: Final = struct.Struct("<4sLQL")
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")

_MAX_16: Final = 0xFFFF
_UTF8: Final = 0x0800
_LEVEL: Final = 0x0006  # of a deflated member, as a remark
# A reader that takes a member for a folder hands out memory that nobody filled.
_FOLDER: Final = 0x10
_NAME_BYTES: Final = 512


def read_directory(file: BinaryIO, limits: ModelLimits) -> tuple[Member, ...]:
    """Return the members of a zip archive, in the order of its directory.

    Raises:
        ModelMalformed: the archive is damaged, ambiguous, or hides bytes.
        LimitExceeded: it is too large, has too many members, or would unpack to too much.
    """
    size = file.seek(0, 2)
    if size > limits.file_bytes:
        raise over_limit(
            f"The archive is {size} bytes, over the limit of {limits.file_bytes}.", "file_bytes"
        )
    count, start, length = _end(file, size, limits)
    entries = list(_entries(read_exactly(file, start, length), count, limits))
    members = {}
    position = 0
    for index in sorted(range(count), key=lambda at: entries[at].header):
        members[index], position = member_of(file, entries[index], position, start)
    if position != start:
        raise malformed("The archive has bytes that belong to no member.")
    unpacked = sum(member.size for member in members.values())
    if unpacked > limits.file_bytes:
        raise over_limit(
            f"The archive unpacks to {unpacked} bytes, over the limit of {limits.file_bytes}.",
            "file_bytes",
        )
    return tuple(members[index] for index in range(count))


def _end(file: BinaryIO, size: int, limits: ModelLimits) -> tuple[int, int, int]:
    """Return how many entries the directory has, where it starts, and its length."""
    if size < _END.size:
        raise malformed("The archive is cut short.")
    data = read_exactly(file, size - _END.size, _END.size)
    signature, disk, first, here, count, length, start, comment = _END.unpack(data)
    if signature != b"PK\5\6" or comment:
        raise malformed("The archive does not end with the record that ends a zip.")
    if disk or first or here != count:
        raise malformed("The archive is one part of several.")
    end = size - _END.size
    locator = end - _LOCATOR.size
    if locator >= _END_64.size and read_exactly(file, locator, 4) == b"PK\6\7":
        end = locator - _END_64.size
        large = _end_64(file, locator)
        small = (min(large[0], _MAX_16), min(large[1], MAX_32), min(large[2], MAX_32))
        if small != (count, start, length):
            raise malformed("The two records that end the archive disagree.")
        count, start, length = large
    if count > limits.entries:
        raise over_limit(
            f"The archive has {count} members, over the limit of {limits.entries}.",
            "entries",
            "have that many",
        )
    if start + length != end:
        raise malformed("The directory of the archive does not reach to its end.")
    if not count * _ENTRY.size <= length <= count * (_ENTRY.size + _NAME_BYTES + 64):
        raise malformed("The directory of the archive is not as long as its entries.")
    return count, start, length


def _end_64(file: BinaryIO, locator: int) -> tuple[int, int, int]:
    """Return what the record for large archives says: count, start, length."""
    _, disk, where, disks = _LOCATOR.unpack(read_exactly(file, locator, _LOCATOR.size))
    place = locator - _END_64.size
    (signature, rest, _, _, this, first, here, count, length, start) = _END_64.unpack(
        read_exactly(file, place, _END_64.size)
    )
    if signature != b"PK\6\6" or where != place or rest != _END_64.size - 12:
        raise malformed("The record that ends a large archive is not where it should be.")
    if disk or this or first or disks != 1 or here != count:
        raise malformed("The archive is one part of several.")
    return count, start, length


def _entries(data: bytes, count: int, limits: ModelLimits) -> Iterator[Entry]:
    """Read the directory."""
    at = 0
    seen = set()
    for _ in range(count):
        if len(data) - at < _ENTRY.size:
            raise malformed("The directory of the archive is cut short.")
        fields = _ENTRY.unpack_from(data, at)
        (signature, _, _, flags, method, _, _, crc, packed, size) = fields[:10]
        (name_length, extra_length, comment, disk, _, attributes, header) = fields[10:]
        names = at + _ENTRY.size
        extras = names + name_length
        at = extras + extra_length
        if signature != b"PK\1\2" or comment or disk or at > len(data):
            raise malformed("The directory of the archive is damaged.")
        raw = data[names:extras]
        if not 0 < name_length <= _NAME_BYTES:
            raise malformed("A member of the archive has no name, or one that is too long.")
        # PyTorch finds a member whatever the case of its name.
        if raw.lower() in seen:
            raise malformed(f"Two members of the archive have the name {shown_name(raw)}.")
        seen.add(raw.lower())
        if flags & ~(DESCRIBED | _UTF8 | _LEVEL) or attributes & _FOLDER:
            raise malformed(f"The member {shown_name(raw)} is encrypted, a folder, or a patch.")
        packed, size, header, large = widened(data[extras:at], packed, size, header)
        _check_size(raw, method, packed, size, limits)
        yield Entry(raw, flags, method, crc, packed, size, header, large)
    if at != len(data):
        raise malformed("The directory of the archive has bytes that belong to no entry.")


def _check_size(raw: bytes, method: int, packed: int, size: int, limits: ModelLimits) -> None:
    if method not in (STORED, DEFLATED) or (method == STORED and packed != size):
        raise malformed(
            f"The member {shown_name(raw)} is stored in a way that PyTorch does not use."
        )
    if method == DEFLATED and (limits.ratio <= 1 or size > packed * limits.ratio):
        raise LimitExceeded(
            f"The member {shown_name(raw)} makes {size} bytes of {packed};"
            " PyTorch does not compress.",
            "If you compressed it, unpack it and pack it again without, "
            "or raise ModelLimits.ratio.",
        )


def widened(extra: bytes, packed: int, size: int, header: int) -> tuple[int, int, int, bool]:
    """Take those of the three numbers that need more than 32 bits from the extra field."""
    wide = {kind: content for kind, content in extras(extra) if kind == ZIP64}.get(ZIP64, b"")
    values = [size, packed, header]
    missing = [at for at, value in enumerate(values) if value == MAX_32]
    if len(wide) != 8 * len(missing):
        raise malformed("A member's entry has a size that does not fit it.")
    for at, value in zip(missing, struct.unpack(f"<{len(missing)}Q", wide), strict=True):
        if value < MAX_32:
            raise malformed("A member's entry has a size that does not fit it.")
        values[at] = value
    size, packed, header = values
    return packed, size, header, bool(missing)
