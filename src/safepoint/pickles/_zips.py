"""Is it a zip archive, and is there a byte in it that belongs to none of its members?

Only the directory and the headers are read. What a member holds is not looked at.
"""

from __future__ import annotations

import struct
from typing import IO, BinaryIO, Final, NamedTuple

from safepoint.errors import LimitExceeded, ModelMalformed

AGAIN: Final = "Get the file again from whoever made it. Nothing in it was loaded."

_END: Final = struct.Struct("<4s4H2LH")
_LOCATOR: Final = struct.Struct("<4sLQL")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_COMMENT: Final = 0xFFFF
_WIDE: Final = 0xFFFFFFFF
_DESCRIBED: Final = 0x0008
_DESCRIPTORS: Final = (12, 16, 20, 24)
_DIRECTORY: Final = 64 * 1024 * 1024
_MEMBERS: Final = 200_000


class _Member(NamedTuple):
    name: str
    header: int
    packed: int
    described: bool


class _Directory(NamedTuple):
    start: int
    size: int
    count: int  # type: ignore[assignment]  # it hides that of a tuple
    end: int


def read_at(file: IO[bytes], position: int, size: int) -> bytes:
    """Return up to so many bytes from there. A file without a buffer may give them in pieces."""
    file.seek(position)
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


def ends_as_zip(file: BinaryIO, size: int) -> bool:
    """Tell whether some reader would find an archive in a file that does not begin as one.

    Readers look for the directory from the end, and forgive what stands behind or before it.
    """
    first = max(0, size - _END.size - _COMMENT)
    tail = read_at(file, first, size - first)
    at = tail.rfind(b"PK\5\6")
    while at >= 0:
        if at + _END.size <= len(tail):
            for start in _starts(file, first + at, tail[at : at + _END.size]):
                if start >= 0 and read_at(file, start, 4) == b"PK\1\2":
                    return True
        at = tail.rfind(b"PK\5\6", 0, at)
    return False


def _starts(file: BinaryIO, end: int, record: bytes) -> list[int]:
    """Return where readers look for the directory: before its end, and where it says it is."""
    _, _, _, _, _, size, start, _ = _END.unpack(record)
    places = [end - size, start]
    locator = read_at(file, max(0, end - _LOCATOR.size), _LOCATOR.size)
    if locator[:4] == b"PK\6\7":
        _, _, where, _ = _LOCATOR.unpack(locator)
        for place in (where, end - _LOCATOR.size - _END_64.size):
            wide = read_at(file, min(place, end), _END_64.size) if place >= 0 else b""
            if len(wide) == _END_64.size and wide[:4] == b"PK\6\6":
                *_, size, start = _END_64.unpack(wide)
                places += [place - size, min(start, end)]
    return places


def member_names(file: BinaryIO, size: int) -> list[str]:
    """Return the names of the members of an archive that begins as one.

    Raises:
        ModelMalformed: it is cut short or damaged, or has bytes outside of its members.
        LimitExceeded: it has too many members.
    """
    directory = _directory(file, size)
    members = _members(read_at(file, directory.start, directory.size), directory.count)
    position, described = 0, False
    for member in sorted(members, key=lambda member: member.header):
        if member.header != position and not (
            described and member.header - position in _DESCRIPTORS
        ):
            raise _hidden()
        local = read_at(file, member.header, _LOCAL.size)
        if len(local) < _LOCAL.size or local[:4] != b"PK\3\4":
            raise _damaged()
        *_, name, extra = _LOCAL.unpack(local)
        position = member.header + _LOCAL.size + name + extra + member.packed
        described = member.described
    rest = directory.start - position
    if rest and not (described and rest in _DESCRIPTORS):
        raise _hidden()
    return [member.name for member in members]


def _directory(file: BinaryIO, size: int) -> _Directory:
    end = size - _END.size
    record = read_at(file, max(0, end), _END.size)
    if len(record) < _END.size or record[:4] != b"PK\5\6":
        raise ModelMalformed(
            "The file begins as a zip archive, and does not end as one: it is cut short, or bytes"
            " follow.",
            AGAIN,
        )
    _, _, _, _, count, length, start, comment = _END.unpack(record)
    locator = read_at(file, max(0, end - _LOCATOR.size), _LOCATOR.size)
    if locator[:4] == b"PK\6\7" and end >= _LOCATOR.size + _END_64.size:
        end -= _LOCATOR.size + _END_64.size
        wide = read_at(file, end, _END_64.size)
        if wide[:4] != b"PK\6\6":
            raise _damaged()
        *_, count, length, start = _END_64.unpack(wide)
    if comment or start + length != end:
        raise _hidden()
    if count > _MEMBERS or length > _DIRECTORY:
        raise LimitExceeded(
            f"The archive has more than {_MEMBERS} members, or a directory of more than"
            f" {_DIRECTORY} bytes.",
            "Split it, or keep it out.",
        )
    return _Directory(start, length, count, end)


def _members(data: bytes, count: int) -> list[_Member]:
    members = []
    at = 0
    for _ in range(count):
        if data[at : at + 4] != b"PK\1\2" or len(data) - at < _ENTRY.size:
            raise _damaged()
        fields = _ENTRY.unpack_from(data, at)
        flags, packed, size = fields[3], fields[8], fields[9]
        name_length, extra_length, comment, _, _, _, header = fields[10:]
        names = at + _ENTRY.size
        extras = names + name_length
        at = extras + extra_length + comment
        if at > len(data):
            raise _damaged()
        wide = _wide(data[extras : extras + extra_length])
        for value in (size, packed, header):
            if value == _WIDE and not wide:
                raise _damaged()
        if size == _WIDE:
            wide.pop(0)
        packed = wide.pop(0) if packed == _WIDE and wide else packed
        header = wide.pop(0) if header == _WIDE and wide else header
        name = data[names:extras].decode("utf-8", "replace")
        members.append(_Member(name, header, packed, bool(flags & _DESCRIBED)))
    if at != len(data):
        raise _hidden()
    return members


def _wide(extra: bytes) -> list[int]:
    """Return the numbers that need more than 32 bits."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        content = extra[at + 4 : at + 4 + length]
        if kind == 1:
            return [number for (number,) in struct.iter_unpack("<Q", content[: length // 8 * 8])]
        at += 4 + length
    return []


def _hidden() -> ModelMalformed:
    return ModelMalformed("The archive has bytes that belong to none of its members.", AGAIN)


def _damaged() -> ModelMalformed:
    return ModelMalformed("The archive is damaged.", AGAIN)
