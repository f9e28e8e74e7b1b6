"""FileCheckpointStorage: one file per checkpoint, in a folder that only its owner can write.

    <storage_path>/<thread>/
        0000000001.checkpoint  published by link(2), never changed afterwards
        base                   written by `prune`: the first remaining sequence, and a record
        lease                  the owner of the thread, the expiry, and the highest token so far
        .next                  a file while it is written; after a crash, the next write removes it
    <storage_path>/@<tenant>/  the same for each tenant: no thread's name begins with @

A record is written under the name `.next`, synced, and then linked to its own name, which fails if
that name exists. So a record is absent or complete, and one writer wins. Every save takes a lock on
the thread's folder, so that nothing changes between the check of the lease and the link.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from safepoint.core import files
from safepoint.core.errors import (
    ConfigurationError,
    RolledBack,
    Unsafe,
)
from safepoint.core.names import (
    DEFAULT_LIMITS,
    MAX_SEQUENCE,
    Limits,
    check_name,
    check_place,
    sized,
)
from safepoint.core.storage import (
    Lease,
    Leasing,
    Tenants,
    ahead,
    gap,
    is_thread,
    malformed_base,
    no_record,
    read_lease,
    sequences,
    taken,
    utc_now,
    write_lease,
)
from safepoint.stores import disk

BASE = "base"
LEASE = "lease"
RECORD_NAME = re.compile(r"([0-9]{10}\.checkpoint|base)\Z")
"""The files of a thread: its records and its base."""
_NUMBER = re.compile(r"([0-9]{10})\.checkpoint\Z")
_FIRST = re.compile(rb"([0-9]{10})\n")
_FIRST_BYTES = 11
_LEASE_BYTES = 256
_REMEMBERED = 10_000


class FileCheckpointStorage(Leasing, Tenants):
    """Keeps each record in its own file, below a folder that you name.

    A missing folder is created with mode 0700; missing parents are not created. A place where
    somebody else could change the files is refused, and each call checks the folder itself again.
    Any number of processes may share it. No file stays open between calls.

    Leases keep honest workers out of each other's way. An attacker with write access to the folder
    can edit the lease file.

    Args:
        storage_path: the folder. There is no default: where state is stored is your decision.
        limits: how large a record may be.
        clock: returns the current time, for leases. A test passes its own.
        read_only: read an existing folder; create and change nothing.

    Raises:
        Unsafe: others could change what is stored there. The message says what to run.
        Unavailable: the folder cannot be created or opened, or the system is not POSIX.
    """

    def __init__(
        self,
        storage_path: str | os.PathLike[str],
        *,
        limits: Limits = DEFAULT_LIMITS,
        clock: Callable[[], datetime] = utc_now,
        read_only: bool = False,
    ) -> None:
        disk.require_posix()
        self._clock, self._read_only = clock, read_only
        self._limit = limits.record_bytes
        self._path = disk.absolute(storage_path)
        self._heads: dict[str, int] = {}
        self._store, self._made = self._path, False
        with disk.translated("open", self._path):
            disk.enforce(disk.location_refusals(self._path))
            if not read_only:
                disk.create_root(self._path)
            found = disk.folder(self._path, self._path)
            with found:
                self._identity = found.identity

    def __repr__(self) -> str:
        return f"FileCheckpointStorage({self._path!r})"

    @property
    def path(self) -> Path:
        """The absolute path of the folder, with the links above it resolved."""
        return Path(self._path)

    def tenant(self, name: str) -> Self:
        """Return the storage of one tenant, in its own folder, which the first write creates.

        Raises:
            InvalidId: the name is outside the grammar.
            ConfigurationError: this is a tenant's storage itself.
        """
        scope = super().tenant(name)
        scope._path, scope._heads = f"{self._store}/@{name}", {}  # noqa: SLF001  of our own kind
        return scope

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        """Store `record` at `(thread, sequence)`, on disk, without replacing an existing one."""
        check_place(thread, sequence)
        data = sized(record, self._limit)
        with self._writing("save to", thread) as folder:
            lease = folder.lease()
            if lease is not None or fence is not None:
                (lease or Lease(thread)).check_fence(fence)
            if not folder.follows(sequence):
                # Even if the folder is not new: its creator may have died before this line.
                os.fsync(folder.root)
            try:
                folder.put(_file(sequence), data)
            except FileExistsError:
                raise taken(thread, sequence, 0) from None
        self._remember(thread, sequence)

    def read(self, thread: str, sequence: int) -> bytes:
        """Return the record exactly as it was appended.

        Raises:
            NotFound: there is none, or it was pruned.
            LimitExceeded: the file is larger than a record may be.
            Unavailable: others can write the file, or it cannot be read.
        """
        check_place(thread, sequence)
        with self._reading(thread) as folder:
            if folder is None:
                raise no_record(thread, sequence, 0)
            return folder.record(sequence, folder.first())

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record.

        Sequences are contiguous from 1, or from where a pruned thread begins. So this neither lists
        nor reads records: it checks whether a few names exist, O(log n) for n records at first,
        and three once the head is known and has not moved.

        Raises:
            RolledBack: there are records after one that is gone.
            SealBroken: the base of the thread does not say where it begins.
            Unavailable: others could change what is stored there, or it cannot be read.
        """
        check_name("thread", thread)
        with self._reading(thread) as folder:
            found = 0 if folder is None else folder.head(self._heads.get(thread, 0))
        self._remember(thread, found)
        return found

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record.

        A folder that cannot be opened, or that others can write, does not make this fail: it is
        listed, and reading it is refused.

        Raises:
            Unavailable: others could change what is stored there, or it cannot be read.
        """
        with disk.translated("read from", self._path):
            around = self._root()
            if around is None:
                return []
            with around as root:
                with os.scandir(root) as entries:
                    names = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
                return [name for name in names if is_thread(name) and self._has_files(root, name)]

    def tenants(self) -> list[str]:
        """Return the name of each tenant that has a folder.

        Raises:
            Unavailable: others could change what is stored there, or it cannot be read.
        """
        with (
            disk.translated("read from", self._store),
            disk.same_folder(self._store, self._identity) as root,
            os.scandir(root) as entries,
        ):
            folders = [each.name for each in entries if each.is_dir(follow_symlinks=False)]
        return self._tenants_in(each[1:] for each in folders if each.startswith("@"))

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first remaining sequence and the base that `prune` stored, or None.

        Raises:
            SealBroken: the base of the thread does not say where it begins.
            LimitExceeded: the base is larger than a record may be.
            Unavailable: others can write it, or it cannot be read.
        """
        check_name("thread", thread)
        with self._reading(thread) as folder:
            return None if folder is None else folder.base()

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Store `base` on disk, then remove every record below `first`.

        From then on the thread begins at `first` for every reader, even if this is interrupted and
        some files remain. A thread never moves backwards: if it already begins after `first`, its
        base stays, and remaining files below it are removed. If it begins at `first`, the new base
        replaces the old one, which is how a base is resealed.

        Returns:
            How many records were removed.

        Raises:
            NotFound: there are records and none at `first`.
            Unavailable: there is no room. Nothing was removed; or the folder cannot be used, or the
                disk fails.
        """
        check_place(thread, first)
        data = sized(base, self._limit)
        with self._writing("prune", thread) as folder:
            below, removed = folder.begin(first, data), 0
            for sequence in below:
                with suppress(FileNotFoundError):
                    os.unlink(_file(sequence), dir_fd=folder.fd)
                    removed += 1
            if removed:
                os.fsync(folder.fd)
            return removed

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is lower.

        The folders stay open until the end, so that a record costs only four system calls.

        Raises:
            NotFound: one is missing. Those before it were already returned.
            CheckpointError: as for `read`.
        """
        return self._scan(check_name("thread", thread), sequences(first, last))

    def _scan(self, thread: str, sequences: range) -> Iterator[bytes]:
        with self._reading(thread) as folder:
            if folder is None:
                raise no_record(thread, sequences[0], 0)
            first = folder.first()
            for sequence in sequences:
                yield folder.record(sequence, first)

    def _last_lease(self, thread: str) -> Lease:
        with self._reading(thread) as folder:
            return (folder and folder.lease()) or Lease(thread)

    def _change_lease(self, thread: str, step: Callable[[Lease], Lease]) -> Lease:
        self._check_writable()
        with self._reading(thread) as found:
            if found is None:
                step(Lease(thread))  # a refusal must not create a folder
        # Not "save to", whose message says that nothing was saved: this may have been.
        with self._writing("keep the lease in", thread) as folder:
            before = folder.lease()
            after = step(before or Lease(thread))
            if before is None:
                # The folder may be new, and its token must not be lost with it.
                os.fsync(folder.root)
            # Written even if it is unchanged: its writer may have died before it was on disk.
            folder.put(LEASE, write_lease(after), over=True)
            return after

    def _check_writable(self) -> None:
        if self._read_only:
            raise ConfigurationError("This storage is read_only, and changes nothing.")

    def _root(self, *, make: bool = False) -> disk.opened | None:
        """Open the folder that contains the threads; None if it is a tenant's and missing."""
        store = disk.same_folder(self._store, self._identity)
        if not self._tenant:
            return store
        with store as fd:
            if make and not self._made:
                files.make_folder(f"@{self._tenant}", fd)
                os.fsync(fd)  # its creator may have died before this
                self._made = True
            try:
                return disk.folder(self._path, f"@{self._tenant}", fd)
            except FileNotFoundError:
                self._made = False
                return None

    @contextmanager
    def _reading(self, thread: str) -> Iterator[ThreadFolder | None]:
        """Open the folder of a thread, or return None if it does not exist."""
        with disk.translated("read from", self._path), ExitStack() as stack:
            around, found, path = self._root(), None, f"{self._path}/{thread}"
            if around is not None:
                root = stack.enter_context(around)
                with suppress(FileNotFoundError):
                    fd = stack.enter_context(disk.folder(path, thread, root))
                    found = ThreadFolder(path, thread, root, fd, self._limit)
            yield found

    @contextmanager
    def _writing(self, doing: str, thread: str) -> Iterator[ThreadFolder]:
        """Open or create the folder of a thread while holding its lock."""
        self._check_writable()
        with disk.translated(doing, self._path):
            around = self._root(make=True)
            if around is None:
                raise FileNotFoundError(self._path)
            with around as root:
                if not disk.exists(thread, root):
                    files.make_folder(thread, root)
                path = f"{self._path}/{thread}"
                with disk.folder(path, thread, root) as fd, disk.locked(fd, path):
                    yield ThreadFolder(path, thread, root, fd, self._limit)

    def _has_files(self, root: int, name: str) -> bool:
        try:
            with (
                disk.folder(f"{self._path}/{name}", name, root) as folder,
                os.scandir(folder) as files,
            ):
                return any(RECORD_NAME.match(file.name) for file in files)
        except FileNotFoundError:
            return False
        except (Unsafe, OSError):
            return True

    def _remember(self, thread: str, sequence: int) -> None:
        if len(self._heads) >= _REMEMBERED:
            self._heads.clear()
        self._heads[thread] = sequence


@dataclass(eq=False)
class ThreadFolder:
    """The files of one thread, while its folder is open.

    Errors of the system, such as `FileNotFoundError`, are not translated here.

    Attributes:
        path: its path, for messages.
        name: the thread.
        root: the descriptor of the store's folder.
        fd: the descriptor of the thread's folder.
        limit: how many bytes a record may have.
    """

    path: str
    name: str
    root: int
    fd: int
    limit: int

    def exists(self, sequence: int) -> bool:
        """Tell whether a file with the name of that record exists."""
        return disk.exists(_file(sequence), self.fd)

    def numbers(self) -> Iterator[int]:
        """Yield the number of each record, in any order."""
        with os.scandir(self.fd) as entries:
            for entry in entries:
                found = _NUMBER.match(entry.name)
                if found is not None:
                    yield int(found[1])

    def record(self, sequence: int, first: int) -> bytes:
        """Return a record unless it is below `first`, where remaining files do not count."""
        if sequence >= first:
            try:
                return self._read(_file(sequence), self.limit, whole=True)
            except FileNotFoundError:
                first = self.first()  # it may have been pruned in the meantime
        raise no_record(self.name, sequence, first)

    def first(self) -> int:
        """Return where the thread begins according to its base, or 0 if it was never pruned."""
        try:
            return self._begins(self._read(BASE, _FIRST_BYTES))
        except FileNotFoundError:
            return 0

    def base(self) -> tuple[int, bytes] | None:
        """Return where the thread begins and the record that `prune` stored, or None."""
        try:
            content = self._read(BASE, self.limit + _FIRST_BYTES, whole=True)
        except FileNotFoundError:
            return None
        return self._begins(content), content[_FIRST_BYTES:]

    def begin(self, first: int, base: bytes) -> list[int]:
        """Make the thread begin at `first`, unless it begins later. Return the numbers below.

        A crash or an error leaves either the old base with all records, or the new base with some
        records below it that no reader sees. A second try removes them.
        """
        present = self.base()
        if present is not None and present[0] > first:
            first, base = present
        elif not self.exists(first) and any(self.numbers()):
            raise no_record(self.name, first, 0)
        below = [number for number in self.numbers() if number < first]
        # Written even if it is unchanged: its writer may have died or failed before it was on disk,
        # and without the base the records below would belong to the thread again.
        if present != (first, base) or below:
            self.put(BASE, b"%010d\n%b" % (first, base), over=True)
        return below

    def lease(self) -> Lease | None:
        """Return the last lease according to its file, or None if there never was one."""
        try:
            text = self._read(LEASE, _LEASE_BYTES)
        except FileNotFoundError:
            return None
        return read_lease(f"{self.path}/{LEASE}", self.name, text)

    def put(self, name: str, content: bytes, *, over: bool = False) -> None:
        """Create a file, complete and on disk. Call it only while holding the lock."""
        disk.put(f"{self.path}/{name}", self.fd, content, over=over)

    def follows(self, sequence: int) -> bool:
        """Tell whether there is a record before `sequence`; refuse a place that must stay free.

        Raises:
            Conflict: it is taken, below the base, or after the end.
            RolledBack: it is in a gap, or after one.
        """
        first, before = self.first(), sequence - 1
        if sequence < first or self.exists(sequence):
            raise taken(self.name, sequence, first)
        if self.exists(sequence + 1):
            raise gap(self.name, sequence, sequence + 1)
        if before < max(first, 1):
            return False
        if not self.exists(before):
            raise ahead(self.name, sequence, self.head(0))
        return True

    def head(self, start: int) -> int:
        """Return the highest contiguous number, or 0 if there is no record.

        Args:
            start: a number to start from, such as the head as it was last seen.

        Raises:
            RolledBack: there are records after one that is gone.
        """
        while True:
            first = self.first()
            head = self._highest(max(first, 1), start)
            behind = self._behind(head, far=head != start or not start)
            if behind is None and not head:
                behind = next(self.numbers(), None)
            saved = behind is not None and self.exists(head + 1)
            if self.first() != first:
                continue  # pruned in the meantime: the missing records were removed by that
            if head < first:
                raise RolledBack(
                    f"Thread '{self.name}' was pruned to begin at checkpoint {first}, and that one"
                    " is gone.",
                    kind="missing",
                )
            if behind is None:
                return head
            if not saved:
                raise gap(self.name, head + 1, behind)
            start = head + 1  # saved a moment ago

    def _highest(self, first: int, start: int) -> int:
        """Return the last contiguous number from `first` on, or `first - 1` if there is none."""
        low = start if start >= first and self.exists(start) else first - 1
        step = 1
        while low + step <= MAX_SEQUENCE and self.exists(low + step):
            low += step
            step *= 2
        high = min(low + step, MAX_SEQUENCE + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.exists(middle) else (low, middle)
        return low

    def _behind(self, head: int, *, far: bool) -> int | None:
        """Return an existing number after the gap that follows `head`, or None if none is found.

        It checks at growing distances, so it finds a long remainder from far away but a short one
        only nearby. That is a courtesy, not a proof: an attacker who can delete one record can
        delete the rest.
        """
        distance = 1
        while head + 1 + distance <= MAX_SEQUENCE and (far or distance == 1):
            if self.exists(head + 1 + distance):
                return head + 1 + distance
            distance *= 2
        return None

    def _begins(self, content: bytes) -> int:
        found = _FIRST.match(content)
        if found is None or not int(found[1]):
            raise malformed_base(f"{self.path}/{BASE}")
        return int(found[1])

    def _read(self, name: str, most: int, *, whole: bool = False) -> bytes:
        return disk.read(f"{self.path}/{name}", name, self.fd, most, whole=whole)


def _file(sequence: int) -> str:
    return f"{sequence:010d}.checkpoint"
