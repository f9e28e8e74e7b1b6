"""Does a file begin with a pickle, and with how many? By their instructions, which are not run."""

from __future__ import annotations

import pickletools
from typing import BinaryIO, Final, NamedTuple

from safepoint.errors import LimitExceeded, PickleRefused
from safepoint.pickles._zips import read_at
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.opcodes import CUT, read_opcodes, too_large

HEAD: Final = 64 * 1024
"""How much of a file is looked at first."""

_PROTO: Final = 0x80
_MARK: Final = ord("(")
_POP: Final = ord("0")
_TORCH: Final = 0x1950A86A20F9469CFC6C


class Pickles(NamedTuple):
    """What a file begins with.

    Attributes:
        count: how many pickles.
        end: where the last one ends.
        is_torch: the first one is the number with which PyTorch's files began before 1.6. The
            others are not counted then.
    """

    count: int  # type: ignore[assignment]  # it hides that of a tuple
    end: int
    is_torch: bool


class _Found(NamedTuple):
    """A pickle: where it ends, or None if it goes on behind what was looked at."""

    end: int | None
    opcodes: int
    is_magic: bool


def pickles_in(file: BinaryIO, size: int, limits: PickleLimits) -> Pickles | None:
    """Return what pickles a file begins with, or None if it begins with none.

    Raises:
        LimitExceeded: they are too large, or have too many instructions.
    """
    if _pickle_at(read_at(file, 0, HEAD), 0, limits, more=size > HEAD) is None:
        return None
    data = read_at(file, 0, min(size, limits.data_bytes + 1))
    end, count, opcodes = 0, 0, 0
    while end < len(data):
        found = _pickle_at(data, end, limits, more=size > len(data))
        if found is None:
            break
        if found.end is None:
            raise too_large(limits)
        if found.is_magic and not count:
            return Pickles(1, found.end, is_torch=True)
        count, opcodes, end = count + 1, opcodes + found.opcodes, found.end
        if opcodes > limits.opcodes:
            raise LimitExceeded(
                f"The file has pickles of more than {limits.opcodes} instructions together.",
                "Split it, or raise PickleLimits.opcodes.",
            )
    if not count or (end < size and count == 1 and opcodes == 2 and data[0] != _PROTO):
        return None  # two letters of a text, such as "N."
    return Pickles(count, end, is_torch=False)


def _pickle_at(data: bytes, start: int, limits: PickleLimits, *, more: bool) -> _Found | None:
    """Look whether a pickle begins there: instructions that leave a value, and then STOP."""
    stack = _Stack()
    count, magic = 0, False
    try:
        for op in read_opcodes(data, limits, start):
            if not stack.follow(op.code):
                return None
            count += op.name not in ("PROTO", "FRAME")
            magic = magic or (op.name == "LONG1" and op.argument == _TORCH)
            if op.name == "STOP":
                return _Found(op.end, count, magic and count == 2)
    except PickleRefused as error:
        cut = error.what == CUT
    return _Found(None, count, is_magic=False) if cut and more else None


class _Stack:
    """How high the stack of a pickle is, and where its marks are."""

    def __init__(self) -> None:
        self._height = 0
        self._marks: list[int] = []

    def follow(self, code: int) -> bool:
        """Do what an instruction does, and tell whether it found what it takes."""
        if code == _POP and self._marks and self._marks[-1] == self._height:
            self._marks.pop()
            return True
        to_mark, takes, leaves = _EFFECTS[code]
        if to_mark:
            if not self._marks:
                return False
            self._height = self._marks.pop()
        self._height -= takes
        if self._height < (self._marks[-1] if self._marks else 0):
            return False
        if code == _MARK:
            self._marks.append(self._height)
        self._height += leaves
        return True


def _effect(known: pickletools.OpcodeInfo) -> tuple[bool, int, int]:
    """Return whether it takes all down to a mark, how many values besides, and what it leaves."""
    before = list(known.stack_before)
    to_mark = pickletools.markobject in before
    takes = before.index(pickletools.markobject) if to_mark else len(before)
    return to_mark, takes, 0 if known.name == "MARK" else len(known.stack_after)


_EFFECTS: Final = {ord(known.code): _effect(known) for known in pickletools.opcodes}
