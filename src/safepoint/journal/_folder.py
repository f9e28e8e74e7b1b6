"""The folder of a file journal: its place, its lock, and its numbered files.

<path>/
    journal.000001.jsonl   the oldest lines
    journal.000002.jsonl   the newest, to which lines are appended
    .lock                  held by whoever writes
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from safepoint import _files as _posix
from safepoint import _files as location
from safepoint.anchor import _folder as anchored
from safepoint.errors import JournalUnavailable, UnsafeLocation, shell
from safepoint.journal._chain import refused
from safepoint.journal._place import WHAT, translated, unavailable

LOCK: Final = anchored.LOCK
WRITE: Final = _posix.READ | os.O_RDWR
_CLOSED: Final = frozenset([errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS])


class Folder:
    """The folder, checked when it is opened and each time that it is used.

    Args:
        path: the folder as somebody named it.
        name: the journal's, with which the names of its files begin.
        create: begin a journal if the folder is missing or empty.

    Raises:
        JournalUnavailable: there is no journal, or it cannot be made or opened.
        UnsafeLocation: others could change what is stored there.
    """

    def __init__(self, path: object, name: str, *, create: bool) -> None:
        if not _posix.SUPPORTED:
            raise JournalUnavailable(
                "FileJournal needs a POSIX system.",
                "Write a Journal of your own, for a database that you have: it is one method.",
            )
        self._name = name
        self._is_file = re.compile(re.escape(name) + r"\.([0-9]{6,10})\.jsonl")
        with translated("open the journal in", str(path)):
            self.path = location.absolute(path, WHAT)
        with translated("open the journal in", self.path):
            anchored.check_place(path, self.path, "journal")
            if create:
                _posix.create_root(self.path)
            elif not os.path.lexists(self.path):
                raise JournalUnavailable(
                    f"{shell(self.path)} does not exist, so nothing could be written down.",
                    "Correct the path, or mount the volume. To begin a new journal there, pass"
                    " create=True once.",
                )
            with _posix.folder(self.path, self.path) as root:
                self._identity = anchored.identity(root)
                if create and not self._numbers(root):
                    self._begin(root)
                self.last(root)

    def at(self, number: int) -> str:
        """Return the path of a file."""
        return f"{self.path}/{self.file_name(number)}"

    def shown(self, number: int) -> str:
        """Return the path of a file as a word for a shell."""
        return shell(self.at(number))

    def file_name(self, number: int) -> str:
        """Return the name of a file."""
        return f"{self._name}.{number:06d}.jsonl"

    @contextmanager
    def root(self, doing: str) -> Iterator[int]:
        """Open the folder, if it is still the one that was opened first.

        Raises:
            JournalUnavailable: it is another one, others could change it, it cannot be opened, or
                what is done in it failed.
        """
        with unavailable(doing, self.path), _posix.folder(self.path, self.path) as root:
            if anchored.identity(root) != self._identity:
                raise UnsafeLocation(
                    f"{shell(self.path)} is not the folder that this journal was opened on.",
                    "Find out who replaced it, and construct the journal again if that is right:"
                    f" ls -ld {shell(self.path)}",
                )
            yield root

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Open the folder as the only one that writes.

        Raises:
            JournalUnavailable: somebody else has held the lock for too long.
        """
        with self.root("write the journal in") as root, anchored.locked(root, self.path):
            yield root

    def settled(self, root: int) -> tuple[int, int]:
        """Return the number and size of the last file while nobody writes.

        What lies before that end does not change any more, so it is read without the lock. Where
        this user may not hold the lock, as in a frozen copy, nobody writes.

        Raises:
            JournalBroken: a file is missing.
            JournalUnavailable: there is no journal, or somebody holds the lock for too long.
        """
        try:
            held = os.open(LOCK, WRITE, dir_fd=root)
        except OSError as error:
            if error.errno not in _CLOSED:
                raise
            return self._end(root)
        with suppress(OSError):
            os.close(held)
        with anchored.locked(root, self.path):
            return self._end(root)

    def _end(self, root: int) -> tuple[int, int]:
        number = self.last(root)
        with self.opened(root, number) as fd:
            return number, os.fstat(fd).st_size

    def last(self, root: int) -> int:
        """Return the number of the last file, if none is missing before it.

        Raises:
            JournalBroken: one is.
            JournalUnavailable: there is no journal.
        """
        numbers = self._numbers(root)
        if not numbers:
            raise JournalUnavailable(
                f"{shell(self.path)} holds no journal: {self.file_name(1)!r} is missing.",
                "Correct the path or the name, mount the volume, or put the files back from a"
                " copy. To begin a new journal, in an empty folder, pass create=True once.",
            )
        for expected, number in enumerate(numbers, 1):
            if number != expected:
                raise refused(
                    f"{self.shown(expected)} is missing, and {self.file_name(numbers[-1])!r} is"
                    " there."
                )
        return numbers[-1]

    def exists(self, root: int, number: int) -> bool:
        """Tell whether there is a file of that number."""
        try:
            os.stat(self.file_name(number), dir_fd=root, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def opened(self, root: int, number: int, flags: int = _posix.READ) -> Iterator[int]:
        """Open a file that only this user can write, and that has one name.

        Raises:
            UnsafeLocation: it is something else.
            JournalBroken: it is gone.
            OSError: it cannot be opened.
        """
        name, path = self.file_name(number), self.at(number)
        try:
            fd = os.open(name, flags, dir_fd=root)
        except FileNotFoundError:
            raise refused(f"{shell(path)} is gone.") from None
        except OSError:
            # The code depends on the system (a link: ELOOP, EMLINK). Look what it is.
            info = os.stat(name, dir_fd=root, follow_symlinks=False)
            location.enforce(location.record_refusals(path, info))
            raise
        try:
            info = os.fstat(fd)
            if not _posix.private(info, stat.S_IFREG):
                location.enforce(location.record_refusals(path, info))
            location.enforce(location.hard_link_refusals(path, lambda: os.fstat(fd), None))
            yield fd
        finally:
            with suppress(OSError):
                os.close(fd)

    def add(self, root: int, number: int) -> None:
        """Make a new, empty file. The folder is for the caller to sync."""
        name = self.file_name(number)
        with _posix.opened(name, _posix.CREATE, root) as fd:
            try:
                os.fchmod(fd, 0o600)
            except BaseException:
                os.unlink(name, dir_fd=root)
                raise

    def remove(self, root: int, number: int) -> None:
        """Remove a file that nobody was told of."""
        os.unlink(self.file_name(number), dir_fd=root)
        os.fsync(root)

    def _numbers(self, root: int) -> list[int]:
        with os.scandir(root) as entries:
            found = [self._is_file.fullmatch(entry.name) for entry in entries]
        numbers = {match[0]: int(match[1]) for match in found if match}
        return sorted(n for name, n in numbers.items() if name == self.file_name(n))

    def _begin(self, root: int) -> None:
        with anchored.locked(root, self.path):
            if self._numbers(root):
                return  # another process was faster
            with os.scandir(root) as entries:
                strange = {entry.name for entry in entries} - {LOCK}
            if strange:
                raise JournalUnavailable(
                    f"{shell(self.path)} holds files but no journal of the name {self._name}, so"
                    " none is begun there.",
                    "Name a folder that is empty or does not exist. If it did hold a journal, put"
                    " its files back from a copy.",
                )
            self.add(root, 1)
            os.fsync(root)
