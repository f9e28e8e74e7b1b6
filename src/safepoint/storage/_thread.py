"""ThreadFolder: the files of one thread, while its folder is open."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Self

from safepoint import _files as _posix
from safepoint._files import enforce, hard_link_refusals
from safepoint.errors import LimitExceeded, shell
from safepoint.storage._lease import LEASE, LIMIT, read_lease
from safepoint.storage.base import Ownership, malformed_base

BASE = "base"
TEMPS = ".tmp"
RECORD_NAME = re.compile(r"([0-9]{10}\.checkpoint|base)\Z")
"""The files of a thread: its records, and what `prune` left."""
_NUMBER = re.compile(r"([0-9]{10})\.checkpoint\Z")
_FIRST = re.compile(rb"([0-9]{10})\n\Z")
_FIRST_BYTES = 11


class ThreadFolder:
    """The records of one thread and the base that `prune` left, by descriptor.

    Everything here says `FileNotFoundError` of what is not there, and other errors of the system
    as they come.

    At the end of a `with`, both folders are closed.

    Args:
        store: the path of the store, for messages.
        name: the thread.
        root: the folder of the store, open.
        fd: the folder of the thread, open.
        limit: how many bytes a record may have.
    """

    __slots__ = ("_limit", "_store", "fd", "name", "path", "root")

    def __init__(self, store: str, name: str, root: int, fd: int, limit: int) -> None:
        self.name = name
        self.path = f"{store}/{name}"
        self.root = root
        self.fd = fd
        self._store = store
        self._limit = limit

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (self.fd, self.root):
            # An error here would only hide the one under way.
            with suppress(OSError):
                os.close(fd)

    def read(self, sequence: int) -> bytes:
        """Return a record.

        Raises:
            UnsafeLocation: it is a link, not a regular file, others can write it, or it has a
                second name.
            LimitExceeded: it is larger than a record may be.
        """
        return self._read(file_name(sequence), self._limit)

    def exists(self, sequence: int) -> bool:
        """Tell whether there is something under the name of that record."""
        return exists(file_name(sequence), self.fd)

    def anything(self) -> int | None:
        """Return the number of some record, or None if there is none."""
        return next(self._numbers(), None)

    def below(self, first: int) -> list[int]:
        """Return the number of each record below `first`."""
        return [number for number in self._numbers() if number < first]

    def remove(self, sequence: int) -> None:
        """Remove a record."""
        os.unlink(file_name(sequence), dir_fd=self.fd)

    def first(self) -> int:
        """Return where the thread begins by what `prune` left, or 0 if it was never pruned.

        Raises:
            RecordMalformed: what lies there says nothing of the kind.
            UnsafeLocation: it is not a file that only this user can write.
        """
        try:
            return self._first_of(self._read(BASE, self._limit + _FIRST_BYTES, _FIRST_BYTES))
        except FileNotFoundError:
            return 0

    def base(self) -> tuple[int, bytes] | None:
        """Return where the thread begins, and the record that `prune` left, or None.

        Raises:
            As `first`, and LimitExceeded: it is larger than a record may be.
        """
        try:
            content = self._read(BASE, self._limit + _FIRST_BYTES)
        except FileNotFoundError:
            return None
        return self._first_of(content[:_FIRST_BYTES]), content[_FIRST_BYTES:]

    def ownership(self) -> Ownership:
        """Return what the thread's folder says of its leases.

        Raises:
            StorageUnavailable: what lies there says nothing of the kind.
            UnsafeLocation: it is not a file that only this user can write.
        """
        try:
            text = self._read(LEASE, sys.maxsize, LIMIT)
        except FileNotFoundError:
            return Ownership(self.name)
        return read_lease(f"{self.path}/{LEASE}", self.name, text)

    def _first_of(self, line: bytes) -> int:
        found = _FIRST.match(line)
        if found is None or not int(found[1]):
            raise malformed_base(f"{self.path}/{BASE}")
        return int(found[1])

    def _numbers(self) -> Iterator[int]:
        with os.scandir(self.fd) as entries:
            for entry in entries:
                found = _NUMBER.match(entry.name)
                if found is not None:
                    yield int(found[1])

    def _read(self, name: str, limit: int, most: int | None = None) -> bytes:
        """Read a file whole, or its first bytes. Four system calls if all is well."""
        path = f"{self.path}/{name}"
        opened = _posix.record(path, name, self.fd)
        fd, info = opened.fd, opened.info
        try:  # a `with` would cost a tenth of the whole
            if info.st_nlink > 1:
                self._refuse_second_name(path, fd)
            if most is not None and info.st_size <= limit:
                return os.read(fd, most)
            return read_all(path, fd, limit, info.st_size)
        finally:
            os.close(fd)

    def _refuse_second_name(self, path: str, fd: int) -> None:
        try:
            with _posix.folder(f"{self._store}/{TEMPS}", TEMPS, self.root) as temps:
                enforce(hard_link_refusals(path, lambda: os.fstat(fd), temps))
        except FileNotFoundError:
            enforce(hard_link_refusals(path, lambda: os.fstat(fd), None))


def file_name(sequence: int) -> str:
    """Return the name of a record's file."""
    return f"{sequence:010d}.checkpoint"


def base_content(first: int, base: bytes) -> bytes:
    """Return what the file of a base holds: a line with the first sequence, and the record."""
    return b"%010d\n%b" % (first, base)


def exists(name: str, dir_fd: int) -> bool:
    """Tell whether a folder has something under a name, a link that leads nowhere included."""
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def read_all(path: str, fd: int, limit: int, size: int) -> bytes:
    """Read to the end, and never more than one byte over the limit.

    Args:
        path: the file, for the message.
        fd: the file, open.
        limit: how many bytes it may have.
        size: how many it has, by what `fstat` said.

    Raises:
        LimitExceeded: there is more.
    """
    # One more than it should have: if that does not come, this was all.
    part = os.read(fd, size + 1) if size <= limit else b""
    if len(part) == size:
        return part
    parts, total = [part], len(part)
    while size <= limit and total <= limit:
        part = os.read(fd, min(limit + 1 - total, max(size + 1 - total, 4096)))
        if not part:
            return b"".join(parts)
        parts.append(part)
        total += len(part)
    raise LimitExceeded(
        f"{shell(path)} has {max(size, total)} bytes or more, and the limit is {limit}.",
        "Find out who wrote it; if it was you, pass the same Limits here as there.",
    )
