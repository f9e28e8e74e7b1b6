"""FileCheckpointStorage: one file per checkpoint, in a folder that only its owner can write.

    <storage_path>/
        .tmp/                      files on their way in
        <thread>/
            0000000001.checkpoint  published by link(2), never changed afterwards
            base                   what `prune` left: the first sequence that is kept, and a record
            lease                  who owns the thread, until when, and the highest token so far

A record is written under a random name, synced, and then linked to its own name, which fails if
that name exists. So a record is absent or whole, and one writer wins. The link is made under a lock
on the thread's folder, and so is a change of its lease, so that none comes between the look at the
token and the link.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from safepoint import _files as _posix
from safepoint._files import absolute
from safepoint.names import DEFAULT_LIMITS, Limits, check_name, check_sequence
from safepoint.storage._head import find_head
from safepoint.storage._own import change_ownership
from safepoint.storage._prune import prune
from safepoint.storage._publish import publish
from safepoint.storage._store import Absent, Store, is_thread
from safepoint.storage._thread import RECORD_NAME, TEMPS, ThreadFolder
from safepoint.storage.base import (
    Leasing,
    Ownership,
    check_place,
    missing,
    record_limit,
    sized,
    span,
)

__all__ = ["RECORD_NAME", "TEMPS", "FileCheckpointStorage", "is_thread"]

_REMEMBERED = 10_000


class FileCheckpointStorage(Leasing):
    """Keeps each record in a file of its own, below a folder that you name.

    The folder is created with mode 0700 if it is missing; its parents are not. A place where
    somebody else could change the files is refused; the folder itself is looked at again at each
    later call. Any number of processes may share it. No file stays open between calls.

    A lease keeps honest workers out of each other's way. Whoever can write the folder can edit the
    file in which it is kept.

    Args:
        storage_path: the folder. There is no default: where state lives is your decision.
        limits: how large a record may be.

    Raises:
        ConfigurationError: `limits` are no limits.
        UnsafeLocation: others could change what is stored there. The message says what to run.
        StorageUnavailable: the folder cannot be made or opened, or the system is not POSIX.
    """

    def __init__(
        self, storage_path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        _posix.require_posix()
        self._limit = record_limit("FileCheckpointStorage", limits)
        path = absolute(storage_path)
        self._heads: dict[str, int] = {}
        with _posix.translated("open", path):
            self._store = Store(path, self._limit)

    def __repr__(self) -> str:
        return f"FileCheckpointStorage({self._store.path!r})"

    @property
    def path(self) -> Path:
        """The folder: absolute, with the links above it resolved."""
        return Path(self._store.path)

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        """Keep `record` at `(thread, sequence)`: on disk when this returns, never over another.

        Args:
            thread: the thread.
            sequence: the place of the record in it.
            record: the bytes.
            fence: the token of the lease under which you save; None if the thread is not leased.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            EncodeError: the record is not bytes.
            LimitExceeded: the record is too large.
            ConfigurationError: the fence is not a token.
            Conflict: there is a record already, or there was one before the thread was pruned.
            NotOwner: the thread has an owner with another token, or the fence is of no owner.
            RecordsMissing: a record next to it is gone.
            StorageFull: there is no room. Nothing was saved.
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: the folder is gone, closed or locked, the file of its lease is
                malformed, or the disk fails.
        """
        check_place(thread, sequence, fence)
        data = sized(record, self._limit)
        seen = self._heads.get(thread, 0)

        def save() -> None:
            with (
                self._store.thread(thread, create=True) as folder,
                self._store.temps(folder.root) as temps,
            ):
                publish(folder, sequence, data, temps=temps, seen=seen, fence=fence)

        with _posix.translated("save to", self._store.path):
            self._store.persist("saved", save)
        self._remember(thread, sequence)

    def read(self, thread: str, sequence: int) -> bytes:
        """Return the record exactly as it was appended.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            NotFound: there is none, or it was pruned.
            RecordMalformed: the base of the thread does not say where it begins.
            LimitExceeded: the file is larger than a record may be.
            UnsafeLocation: the file is a link, not a regular file, or others can write it.
            StorageUnavailable: the folder is gone, closed, or the disk fails.
        """
        check_name("thread", thread)
        check_sequence(sequence)
        with _posix.translated("read from", self._store.path):
            try:
                with self._store.thread(thread) as folder:
                    return _read(folder, sequence, folder.first())
            except Absent:
                raise missing(thread, sequence, 0) from None

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record.

        Sequences are contiguous from 1, or from where a pruned thread begins, as the ledger
        appends them. So this lists and reads no records: it asks whether a few names exist,
        O(log n) of them for n records at first and three once the head is known and has not moved.

        Raises:
            InvalidId: the thread is outside the grammar.
            RecordsMissing: there are records behind one that is gone.
            RecordMalformed: the base of the thread does not say where it begins.
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: the folder is gone, closed, or the disk fails.
        """
        check_name("thread", thread)
        found = 0
        with (
            _posix.translated("read from", self._store.path),
            suppress(Absent),
            self._store.thread(thread) as folder,
        ):
            found = find_head(thread, folder, self._heads.get(thread, 0))
        self._remember(thread, found)
        return found

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record.

        Raises:
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: the folder is gone, closed, or the disk fails.
        """
        with _posix.translated("read from", self._store.path):
            return self._store.threads()

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first sequence that is kept and what `prune` left before it, or None.

        Raises:
            InvalidId: the thread is outside the grammar.
            RecordMalformed: the base of the thread does not say where it begins.
            LimitExceeded: the base is larger than a record may be.
            UnsafeLocation: it is a link, not a regular file, or others can write it.
            StorageUnavailable: the folder is gone, closed, or the disk fails.
        """
        check_name("thread", thread)
        with (
            _posix.translated("read from", self._store.path),
            suppress(Absent),
            self._store.thread(thread) as folder,
        ):
            return folder.base()
        return None

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Keep `base`, on disk, then remove every record below `first`.

        From then on the thread begins at `first` for every reader, also if this is interrupted and
        some files are left. It never moves backwards: if it begins later already, its base stays,
        and what is left below that is removed. If it begins there, the new base takes the place
        of the one that is there, so that it can be sealed anew.

        Returns:
            How many records were removed.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            EncodeError: the base is not bytes.
            LimitExceeded: the base is larger than a record may be.
            NotFound: there is no record at `first`.
            RecordMalformed: the base that is there does not say where the thread begins.
            StorageFull: there is no room. Nothing was removed.
            UnsafeLocation: others could change what is stored there.
            StorageUnavailable: the folder is gone, closed or locked, or the disk fails.
        """
        check_name("thread", thread)
        check_sequence(first)
        data = sized(base, self._limit)

        def remove() -> int:
            with (
                self._store.thread(thread) as folder,
                self._store.temps(folder.root) as temps,
            ):
                return prune(folder, first, data, temps=temps)

        with _posix.translated("prune", self._store.path):
            try:
                return self._store.persist("pruned", remove)
            except Absent:
                raise missing(thread, first, 0) from None

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is the lower one.

        The folders stay open until the end, so that a record costs four calls into the system.

        Raises:
            InvalidId: the thread or a sequence is outside the grammar.
            CheckpointError: as read does, at the first record for which that would. Those before it
                were handed out.
        """
        return self._scan(check_name("thread", thread), span(first, last))

    def _ownership(self, thread: str) -> Ownership:
        with (
            _posix.translated("read from", self._store.path),
            suppress(Absent),
            self._store.thread(thread) as folder,
        ):
            return folder.ownership()
        return Ownership(thread)

    def _change_ownership(self, thread: str, step: Callable[[Ownership], Ownership]) -> Ownership:
        def change() -> Ownership:
            try:
                opened = self._store.thread(thread)
            except Absent:
                step(Ownership(thread))  # what is refused makes no folder
                opened = self._store.thread(thread, create=True)
            with opened as folder, self._store.temps(folder.root) as temps:
                return change_ownership(folder, step, temps=temps)

        with _posix.translated("save to", self._store.path):
            return self._store.persist("saved", change)

    def _scan(self, thread: str, sequences: range) -> Iterator[bytes]:
        with _posix.translated("read from", self._store.path):
            try:
                with self._store.thread(thread) as folder:
                    first = folder.first()
                    for sequence in sequences:
                        yield _read(folder, sequence, first)
            except Absent:
                raise missing(thread, sequences[0], 0) from None

    def _remember(self, thread: str, sequence: int) -> None:
        if len(self._heads) >= _REMEMBERED:
            self._heads.clear()
        self._heads[thread] = sequence


def _read(folder: ThreadFolder, sequence: int, first: int) -> bytes:
    """Return a record unless it is below `first`, where what is left does not count."""
    if sequence >= first:
        try:
            return folder.read(sequence)
        except FileNotFoundError:
            first = folder.first()  # it may have been pruned meanwhile
    raise missing(folder.name, sequence, first)
