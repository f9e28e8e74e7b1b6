"""Pickles taken out of a zip archive, such as PyTorch and NumPy write."""

from __future__ import annotations

import io
import os
import re
import zipfile
from dataclasses import dataclass, field
from typing import IO, BinaryIO, Final, NamedTuple

from safepoint.errors import CheckpointError, LimitExceeded, PickleRefused, shell
from safepoint.pickles._arrays import MAGIC, MOST, header_end, header_of, plain_size
from safepoint.pickles.kinds import Kind
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.opcodes import too_large
from safepoint.pickles.sniffing import HEAD, begins, is_marked, is_whole
from safepoint.pickles.walking import walk

LOOK: Final = "Nothing was run. Ask who wrote it, and do not load it."
MEMBERS: Final = 100_000
_DIRECTORY: Final = 16 * 1024 * 1024
_STORAGE: Final = re.compile(r"[^/]+/data/\d+\Z")
_READABLE: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Piece(NamedTuple):
    """A pickle, and where it was.

    Attributes:
        where: its place, empty if it is the whole file.
        data: the bytes, from its first one on.
    """

    where: str
    data: bytes


@dataclass(slots=True)
class Taken:
    """What was taken out of a file.

    Attributes:
        kind: what the file is.
        size: its bytes.
        pieces: its pickles.
        trailing: the bytes behind the last one, in a file of pickles.
        unseen: what was not looked into, each as a sentence.
    """

    kind: Kind
    size: int
    pieces: list[Piece] = field(default_factory=list)
    trailing: int = 0
    unseen: list[str] = field(default_factory=list)


def unzip(file: BinaryIO, taken: Taken, limits: PickleLimits) -> None:
    """Take the pickles out of an archive.

    Raises:
        PickleRefused: it is damaged.
        LimitExceeded: there is too much in it.
    """
    try:
        _walk(file, taken, limits)
    except (CheckpointError, MemoryError):
        raise
    except Exception:  # noqa: BLE001  a damaged archive fails in many ways
        problem = PickleRefused("The archive is damaged.", LOOK)
    else:
        return
    raise problem


def _walk(file: BinaryIO, taken: Taken, limits: PickleLimits) -> None:
    capped = _Capped(file, _DIRECTORY)
    with zipfile.ZipFile(capped) as archive:
        members = archive.infolist()
        if len(members) > MEMBERS:
            raise _too_many()
        capped.most = limits.data_bytes + _DIRECTORY
        budget = limits.data_bytes
        for number, member in enumerate(members):
            if not budget:
                name = shell(members[number - 1].filename)
                taken.unseen.append(f"What follows {name} in the archive was not looked at.")
                break
            budget -= _member(archive, member, taken, limits, budget)
            if budget < 0:
                raise LimitExceeded(
                    f"The pickles in the archive are larger than {limits.data_bytes} bytes.",
                    "Look what it is before you raise PickleLimits.data_bytes.",
                )


def _member(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    taken: Taken,
    limits: PickleLimits,
    left: int,
) -> int:
    """Take what is in one member, and return how many bytes that were."""
    name = shell(member.filename)
    if member.flag_bits & 1 or member.compress_type not in _READABLE:
        taken.unseen.append(f"{name} is encrypted, or packed in a rare way.")
        return 0
    with archive.open(member) as opened:
        head = opened.read(HEAD)
        if not head:
            return 0
        is_storage = taken.kind is Kind.TORCH_ZIP and _STORAGE.match(member.filename)
        if head.startswith(MAGIC):
            head += opened.read(MOST - len(head))
            return objects(name, head, member.file_size, opened, taken, limits)
        if head[:4] == b"PK\x03\x04" and not is_storage:
            taken.unseen.append(f"{name} is an archive in the archive, which is not entered.")
            return 0
        walked = walk(opened, limits, size=member.file_size, most=left, several=True)
    # The bytes of a tensor are any bytes: their first two say nothing.
    named = member.filename.endswith((".pkl", ".pickle"))
    sure = walked.asks or named or (is_marked(head) and not is_storage)
    if walked.over and not sure:
        taken.unseen.append(f"{name} reads as a pickle for longer than was looked at.")
    if not (sure or (walked.cut and walked.stopped)):
        # So that many members together are not looked at for longer than one.
        return min(left, max(walked.reached, walked.opcodes * limits.data_bytes // limits.opcodes))
    with archive.open(member) as opened:
        data = opened.read(limits.data_bytes + 1)
    if sure and len(data) > limits.data_bytes:
        raise too_large(limits)
    if sure or is_whole(data, limits):
        taken.pieces.append(Piece(name, data))
    return len(data)


class _Capped(io.RawIOBase):
    """A file of which nobody reads more at once than they should."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file = file
        self.most = most

    def read(self, size: int = -1, /) -> bytes:
        if size > self.most:
            raise _too_many()
        data = self._file.read(self.most + 1 if size < 0 else size)
        if len(data) > self.most:
            raise _too_many()
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


def _too_many() -> LimitExceeded:
    return LimitExceeded(
        f"The archive has more than {MEMBERS} members.", "Look what it is before you unpack it."
    )


def objects(
    where: str, head: bytes, size: int, file: IO[bytes], taken: Taken, limits: PickleLimits
) -> int:
    """Take the pickle behind the header of an array of Python objects.

    Args:
        where: the place of the array, empty if it is the whole file.
        head: what was read of it, with its header.
        size: the bytes of the array.
        file: where the rest of it can be read.
        taken: what to add the pickle to.
        limits: how large it may be.

    Returns:
        How many bytes were taken.

    Raises:
        LimitExceeded: the pickle is too large.
    """
    if plain_size(head) == size:
        return 0
    data = head + file.read(max(0, limits.data_bytes - len(head) + 1))
    pickled = data[header_end(head) :]
    # Every header of NumPy's own for an array of objects has this letter.
    if b"O" not in header_of(head) and not begins(pickled, limits):
        taken.unseen.append(
            f"{where or 'It'} is a NumPy array of a form that is not known here, and may hold"
            " objects."
        )
        return 0
    if len(data) > limits.data_bytes:
        raise too_large(limits)
    taken.pieces.append(Piece(f"{where}, the objects of the array".lstrip(", "), pickled))
    return len(pickled)
