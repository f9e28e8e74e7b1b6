"""FileCheckpointStorage: one file per checkpoint, in a folder that only its owner can write.

    <storage_path>/
        .tmp/                      records on their way in
        <thread>/
            0000000001.checkpoint  published by link(2), never changed afterwards

A record is written under a random name, synced, and then linked to its own name, which fails if
that name exists. So a record is absent or whole, and one writer wins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from safepoint.errors import InvalidId, StorageUnavailable, UnsafeLocation, shell
from safepoint.ids import check_name, check_sequence
from safepoint.limits import DEFAULT_LIMITS, Limits
from safepoint.location import absolute, enforce, hard_link_refusals, location_refusals
from safepoint.storage import _posix
from safepoint.storage._head import behind_gap, highest
from safepoint.storage._publish import clean, publish
from safepoint.storage._record import frozen, gap, missing, taken, too_large

TEMPS = ".tmp"
RECORD_NAME = re.compile(r"[0-9]{10}\.checkpoint\Z")
_ATTEMPTS = 5
_REMEMBERED = 10_000


class FileCheckpointStorage:
    """Keeps each record in a file of its own, below a folder that you name.

    The folder is created with mode 0700 if it is missing; its parents are not. A place where
    somebody else could change the files is refused; the folder itself is looked at again at each
    later call. Any number of processes may share it. No file stays open between calls.

    Args:
        storage_path: the folder. There is no default: where state lives is your decision.
        limits: how large a record may be.

    Raises:
        UnsafeLocation: others could change what is stored there. The message says what to run.
        StorageUnavailable: the folder cannot be made or opened, or the system is not POSIX.
    """

    def __init__(
        self, storage_path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        _posix.require_posix()
        self._path = absolute(storage_path)
        self._limit = limits.record_bytes
        self._heads: dict[str, int] = {}
        with _posix.translated("open", self._path):
            enforce(location_refusals(self._path))
            _posix.create_root(self._path)
            with _posix.folder(self._path, self._path) as root:
                self._identity = _identity(root)
                with suppress(FileNotFoundError), self._inside(root, TEMPS) as temps:
                    clean(temps)

    def __repr__(self) -> str:
        return f"FileCheckpointStorage({self._path!r})"

    def append(self, thread: str, sequence: int, record: bytes) -> None:
        """Keep `record` at `(thread, sequence)`: on disk when this returns, never over another.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            EncodeError: the record is not bytes.
            LimitExceeded: the record is too large.
            Conflict: there is a record already.
            StorageFull: there is no room. Nothing was saved.
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: the folder is gone, closed, or the disk fails.
        """
        check_name("thread", thread)
        check_sequence(sequence)
        data = frozen(record)
        if len(data) > self._limit:
            raise too_large(len(data), self._limit)
        with _posix.translated("save to", self._path):
            for _ in range(_ATTEMPTS):
                if self._save(thread, sequence, data):
                    break
            else:
                raise StorageUnavailable(
                    f"Something interferes with the files in {shell(f'{self._path}/{TEMPS}')},"
                    " so nothing was saved.",
                    "Find out what it is, and keep it away from the folder.",
                )
        self._remember(thread, sequence)

    def read(self, thread: str, sequence: int) -> bytes:
        """Return the record exactly as it was appended.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            NotFound: there is none.
            LimitExceeded: the file is larger than a record may be.
            UnsafeLocation: the file is a link, not a regular file, or others can write it.
            StorageUnavailable: the folder is gone, closed, or the disk fails.
        """
        check_name("thread", thread)
        name = _file_name(check_sequence(sequence))
        path = f"{self._path}/{thread}/{name}"
        with _posix.translated("read from", self._path), self._root() as root:
            try:
                with self._inside(root, thread) as folder, _posix.record(path, name, folder) as fd:
                    self._refuse_second_name(root, path, fd)
                    return _posix.read_all(path, fd, self._limit)
            except FileNotFoundError:
                raise missing(thread, sequence) from None

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record.

        Sequences are contiguous from 1, as the ledger appends them. So this lists and reads
        nothing: it asks whether a few names exist, O(log n) of them for n records at first and
        three once the head is known and has not moved.

        Raises:
            InvalidId: the thread is outside the grammar.
            RecordsMissing: there are records behind one that is gone.
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: the folder is gone, closed, or the disk fails.
        """
        check_name("thread", thread)
        start, found = self._heads.get(thread, 0), 0
        with (
            _posix.translated("read from", self._path),
            self._root() as root,
            suppress(FileNotFoundError),
            self._inside(root, thread) as folder,
        ):
            found = _find_head(thread, lambda n: _exists(_file_name(n), folder), start)
        self._remember(thread, found)
        return found

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record.

        Raises:
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: the folder is gone, closed, or the disk fails.
        """
        found = []
        with _posix.translated("read from", self._path), self._root() as root:
            with os.scandir(root) as entries:
                names = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
            for name in filter(is_thread, names):
                with (
                    suppress(FileNotFoundError),
                    self._inside(root, name) as folder,
                    os.scandir(folder) as records,
                ):
                    if any(RECORD_NAME.match(record.name) for record in records):
                        found.append(name)
        return found

    @contextmanager
    def _root(self) -> Iterator[int]:
        with _posix.folder(self._path, self._path) as root:
            if _identity(root) != self._identity:
                raise UnsafeLocation(
                    f"{shell(self._path)} is not the folder that this storage was opened on.",
                    "Find out who replaced it, and construct the storage again if that is right:"
                    f" ls -ld {shell(self._path)}",
                )
            yield root

    @contextmanager
    def _inside(self, root: int, name: str, *, create: bool = False) -> Iterator[int]:
        if create and not _exists(name, root):
            _posix.make_folder(name, root)
        with _posix.folder(f"{self._path}/{name}", name, root) as fd:
            yield fd

    def _save(self, thread: str, sequence: int, record: bytes) -> bool:
        name = _file_name(sequence)
        with (
            self._root() as root,
            self._inside(root, TEMPS, create=True) as temps,
            self._inside(root, thread, create=True) as folder,
        ):
            if _exists(_file_name(sequence + 1), folder) and not _exists(name, folder):
                raise gap(thread, sequence, sequence + 1)
            if sequence == 1:
                # Not only if the folder is new: whoever made it may have died before this line.
                os.fsync(root)
            try:
                path = f"{self._path}/{thread}/{name}"
                return publish(path, name, record, temps=temps, folder=folder)
            except FileExistsError:
                raise taken(thread, sequence) from None

    def _refuse_second_name(self, root: int, path: str, fd: int) -> None:
        if os.fstat(fd).st_nlink > 1:
            try:
                with self._inside(root, TEMPS) as temps:
                    enforce(hard_link_refusals(path, lambda: os.fstat(fd), temps))
            except FileNotFoundError:
                enforce(hard_link_refusals(path, lambda: os.fstat(fd), None))

    def _remember(self, thread: str, sequence: int) -> None:
        if len(self._heads) >= _REMEMBERED:
            self._heads.clear()
        self._heads[thread] = sequence


def _find_head(thread: str, exists: Callable[[int], bool], start: int) -> int:
    while True:
        head = highest(exists, start)
        behind = behind_gap(exists, head, far=head != start or not start)
        if behind is None:
            return head
        # It was saved a moment ago, unless the one before it is still missing.
        if not exists(head + 1):
            raise gap(thread, head + 1, behind)
        start = head + 1


def is_thread(name: str) -> bool:
    """Tell whether a name found in the folder is one that a thread can have."""
    try:
        check_name("thread", name)
    except InvalidId:
        return False
    return True


def _file_name(sequence: int) -> str:
    return f"{sequence:010d}.checkpoint"


def _exists(name: str, dir_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _identity(fd: int) -> tuple[int, int]:
    info = os.fstat(fd)
    return info.st_dev, info.st_ino
