"""Thread: the files of one thread as a listing shows them, whatever lies there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from safepoint._files import TEMP
from safepoint.audit.files import content
from safepoint.errors import RecordMalformed
from safepoint.storage.base import malformed_base
from safepoint.storage.file import BASE, LEASE

_RECORD: Final = re.compile(r"([0-9]{10})\.checkpoint\Z")
_FIRST: Final = re.compile(rb"([0-9]{10})\n")


@dataclass(frozen=True, slots=True)
class Record:
    """The file of a record: where it is, and what `lstat` says of it."""

    number: int
    path: str
    info: os.stat_result


class Thread:
    """What a listing of a thread's folder shows.

    A busy store changes meanwhile. The base is read after the folder was listed, because `prune`
    moves it before any record goes; and where a record seems to be missing the folder is listed
    once more, because one that was saved during the listing may not be on it.

    Attributes:
        name: the thread.
        path: its folder.
        records: the file of each record by its sequence.
        strange: the names that this storage never gives.
        first: where the thread begins by what `prune` left, or 0.
        pruned: when that was written, in seconds since 1970.
        malformed: what is wrong with what `prune` left, or None.
    """

    __slots__ = ("first", "malformed", "name", "path", "pruned", "records", "strange")

    def __init__(self, root: str, name: str) -> None:
        self.name = name
        self.path = f"{root}/{name}"
        self._list()
        if self.missing:
            self._list()

    @property
    def last(self) -> int:
        """The highest sequence, or 0 if there is no record."""
        return max(self.records, default=0)

    @property
    def below(self) -> list[int]:
        """The records that `prune` should have removed."""
        return [number for number in self.records if number < self.first]

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The first and the last of each row of sequences that are not there."""
        gaps = []
        expected = max(self.first, 1)
        for number in sorted(number for number in self.records if number >= expected):
            if number > expected:
                gaps.append((expected, number - 1))
            expected = number + 1
        return gaps

    def _list(self) -> None:
        self.records: dict[int, Record] = {}
        self.strange: list[str] = []
        self.malformed: RecordMalformed | None = None
        self.first = 0
        self.pruned = 0.0
        for name in sorted(os.listdir(self.path)):  # noqa: PTH208  names, as strings
            self._add(name)
        base = f"{self.path}/{BASE}"
        if os.path.lexists(base):
            found = content(base, 11)
            line = _FIRST.match(found[0]) if found is not None else None
            self.first = int(line[1]) if line is not None else 0
            if not self.first:
                self.malformed = malformed_base(base)
            self.pruned = Path(base).lstat().st_mtime

    def _add(self, name: str) -> None:
        match = _RECORD.match(name)
        number = int(match[1]) if match is not None else 0
        if number:
            path = f"{self.path}/{name}"
            try:
                self.records[number] = Record(number, path, Path(path).lstat())
            except FileNotFoundError:
                return  # pruned a moment ago
        elif name not in (BASE, LEASE, TEMP):
            self.strange.append(name)
