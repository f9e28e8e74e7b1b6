"""Reading a file journal: the entries between two places, and its newest ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from safepoint.journal import _text
from safepoint.journal._chain import Chain, refused
from safepoint.journal._folder import Folder
from safepoint.journal._lines import aligned, lines
from safepoint.journal.event import Entry
from safepoint.keys import Keyring
from safepoint.names import Head

Progress = Callable[[int, int], None]

WINDOW: Final = 64 * 1024
"""How much of the end a writer verifies when it has not seen the journal before."""


class Spot(NamedTuple):
    """A place between two bytes: the number of a file, and an offset in it."""

    file: int
    offset: int


BEGINNING: Final = Spot(1, 0)


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the journal as it was last verified.

    Attributes:
        end: where the last whole line ends.
        torn: what stands there of an unfinished one.
        head: the last entry.
        stamp: what tells whether the file was touched since.
        listed: what tells whether files came or went since.
    """

    end: Spot
    torn: bytes
    head: Head | None
    stamp: tuple[int, ...]
    listed: int


class Walker:
    """Reads the files of one journal, and believes nothing that does not verify."""

    def __init__(self, folder: Folder, name: str, keys: Keyring) -> None:
        self._folder = folder
        self._name = name
        self._keys = keys

    def chain(self, start: Spot, known: Head | None = None, witness: str = "the anchor") -> Chain:
        """Return what follows the lines from a place on."""
        return Chain(
            self._name, self._keys, known=known, witness=witness, anywhere=start != BEGINNING
        )

    def entries(
        self,
        root: int,
        start: Spot,
        end: Spot,
        chain: Chain,
        *,
        torn: list[bytes] | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Entry]:
        """Yield the verified entries between two places.

        Args:
            root: the folder.
            start: where a line begins.
            end: where the journal ends.
            chain: what verifies them.
            torn: gets what stands at the end of an unfinished line.
            progress: called with how many bytes are done and how many there are.

        Raises:
            JournalBroken: a line was edited, moved or removed.
            OSError: a file cannot be read.
        """
        sizes = [self._size(root, n) for n in range(start.file, end.file)] + [end.offset]
        done, total = 0, sum(sizes) - start.offset
        for number, size in enumerate(sizes, start.file):
            where, is_last = self._folder.shown(number), number == end.file
            if size == 0 and not is_last:
                raise refused(f"{where} is empty, and another file follows it.")
            offset = start.offset if number == start.file else 0
            with self._folder.opened(root, number) as fd:
                for line in lines(fd, offset, size, where):
                    if is_last and _text.is_unfinished(line):
                        if torn is not None:
                            torn.append(line)
                        return
                    yield chain.follow(line, where)
                    done += len(line)
                    if progress is not None:
                        progress(done, total)

    def back(self, root: int, end: Spot, window: int) -> Spot:
        """Return where a line begins, about so many bytes before the end.

        Raises:
            JournalBroken: a line is longer than any that a journal writes.
            OSError: a file cannot be read.
        """
        number, size = end
        offset = max(0, size - window)
        while offset == 0 and number > 1:
            # The first line of a file is verified together with the one before it.
            window = max(window - size, _text.LINE_BYTES)
            number -= 1
            size = self._size(root, number)
            offset = max(0, size - window)
        with self._folder.opened(root, number) as fd:
            return Spot(number, aligned(fd, offset, self._folder.shown(number)))

    def newest(self, root: int, before: Tail | None, known: Head | None) -> Tail:
        """Return the verified end of the journal, with as little reading as that takes.

        Only under the lock.

        Args:
            root: the folder.
            before: the end as this process saw it last.
            known: what the anchor has seen.

        Raises:
            JournalBroken: the newest lines do not verify, or the anchor or this process has seen
                more.
            OSError: a file cannot be read.
        """
        listed = listed_of(root)
        if before is None or listed != before.listed:
            number = self._folder.last(root)
        else:
            number = before.end.file
            # Asked all the same: two changes within one tick of the clock have the same time.
            while self._folder.exists(root, number + 1):
                number += 1
        with self._folder.opened(root, number) as fd:
            info = os.fstat(fd)
        stamp, end = stamp_of(info), Spot(number, info.st_size)
        if before is not None and self._goes_on(root, before, end, stamp):
            start = before.end
            chain = Chain(self._name, self._keys, before.head, known=known)
        else:
            witness = "the anchor"
            seen = None if before is None else before.head
            if seen is not None and (known is None or known.sequence < seen.sequence):
                known, witness = seen, "this process"
            start = self.back(root, end, WINDOW)
            if known is not None and self._first(root, start, end) > known.sequence:
                start = BEGINNING  # what was seen is not among the newest
            chain = self.chain(start, known, witness)
        torn: list[bytes] = []
        for _ in self.entries(root, start, end, chain, torn=torn):
            pass
        chain.check_end()
        rest = b"".join(torn)
        return Tail(Spot(number, end.offset - len(rest)), rest, chain.head, stamp, listed)

    def _first(self, root: int, start: Spot, end: Spot) -> int:
        found = next(self.entries(root, start, end, self.chain(start)), None)
        return 0 if found is None else found.number

    def _goes_on(self, root: int, before: Tail, end: Spot, stamp: tuple[int, ...]) -> bool:
        """Tell whether the files are what they were, or that and more."""
        if end.file < before.end.file:
            return False
        if end.file == before.end.file:
            grown = stamp[:2] == before.stamp[:2] and end > before.end
            return grown or stamp == before.stamp
        with self._folder.opened(root, before.end.file) as fd:
            info = os.fstat(fd)
        return stamp_of(info)[:2] == before.stamp[:2] and info.st_size >= before.end.offset

    def _size(self, root: int, number: int) -> int:
        with self._folder.opened(root, number) as fd:
            return os.fstat(fd).st_size


def stamp_of(info: os.stat_result) -> tuple[int, ...]:
    """Return what changes when a file is replaced, grows, shrinks or is edited."""
    return info.st_dev, info.st_ino, info.st_size, info.st_ctime_ns


def listed_of(root: int) -> int:
    """Return what changes when a file is added to the folder or removed."""
    return os.fstat(root).st_ctime_ns
