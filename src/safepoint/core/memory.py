"""InMemoryCheckpointStorage: for tests and for runs that may be forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from threading import Lock

from safepoint.core.names import check_name, check_tenant
from safepoint.core.storage import (
    Leasing,
    Ownership,
    ahead,
    check_place,
    missing,
    sized,
    span,
    taken,
    utc_now,
)


class InMemoryCheckpointStorage(Leasing):
    """Keeps records in this process, as bytes, until it ends.

    It holds copies, so that changing a buffer after `append` changes nothing stored. Several
    threads of one process may share it.

    In memory is not the same as trusted: whoever can run code in the process, or attach to it,
    can change what is kept here. The ledger verifies these records as it does all others.

    Args:
        clock: what time it is, for leases. A test passes its own.
    """

    def __init__(self, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._clock = clock
        self._lock = Lock()
        self._records: dict[str, dict[int, bytes]] = {}
        self._heads: dict[str, int] = {}
        self._bases: dict[str, tuple[int, bytes]] = {}
        self._owners: dict[str, Ownership] = {}
        self._tenant = ""
        self._tenants: dict[str, InMemoryCheckpointStorage] = {}

    def __repr__(self) -> str:
        return f"InMemoryCheckpointStorage(<{len(self._heads)} threads>)"

    def tenant(self, name: str) -> InMemoryCheckpointStorage:
        """Return the storage of one tenant, which sees its own threads alone.

        Raises:
            InvalidId: the name is outside the grammar.
            ConfigurationError: this is a tenant's storage itself.
        """
        check_tenant(name, self._tenant)
        with self._lock:
            scope = self._tenants.setdefault(name, InMemoryCheckpointStorage(clock=self._clock))
            scope._tenant = name  # noqa: SLF001  of our own kind
            return scope

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        """Keep a copy of `record` at `(thread, sequence)`, behind the last one alone."""
        check_place(thread, sequence, fence)
        copy = sized(record)
        with self._lock:
            self._owners.get(thread, Ownership(thread)).check_fence(fence)
            head, first = self._heads.get(thread, 0), self._first(thread)
            if sequence <= head:
                raise taken(thread, sequence, first)
            if head and sequence != head + 1:
                raise ahead(thread, sequence, head)
            self._records.setdefault(thread, {})[sequence] = copy
            self._heads[thread] = sequence

    def read(self, thread: str, sequence: int) -> bytes:
        """Return the record exactly as it was appended.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            NotFound: there is none, or it was pruned.
        """
        check_place(thread, sequence)
        with self._lock:
            record = self._records.get(thread, {}).get(sequence)
            if record is None:
                raise missing(thread, sequence, self._first(thread))
            return record

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record.

        Raises:
            InvalidId: the thread is outside the grammar.
        """
        check_name("thread", thread)
        with self._lock:
            return self._heads.get(thread, 0)

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record."""
        with self._lock:
            return list(self._heads)

    def tenants(self) -> list[str]:
        """Return the name of each tenant that has a record."""
        with self._lock:
            return [name for name, scope in self._tenants.items() if scope.threads()]

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first sequence that is kept and what `prune` left before it, or None.

        Raises:
            InvalidId: the thread is outside the grammar.
        """
        check_name("thread", thread)
        with self._lock:
            return self._bases.get(thread)

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Keep `base`, then remove every record below `first`. A thread never moves backwards.

        If it begins at `first` already, the new base takes the place of the old one.

        Returns:
            How many records were removed.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            EncodeError: the base is not bytes.
            NotFound: there is no record at `first`.
        """
        check_place(thread, first)
        copy = sized(base)
        with self._lock:
            if first < self._first(thread):
                return 0
            records = self._records.get(thread, {})
            if first not in records:
                raise missing(thread, first, 0)
            self._bases[thread] = first, copy
            below = [sequence for sequence in records if sequence < first]
            for sequence in below:
                del records[sequence]
            return len(below)

    def newest(self, thread: str) -> tuple[int, bytes | None]:
        """Return the head with the record there; 0 and None of a thread that has none."""
        head = self.head(thread)
        with self._lock:
            return head, self._records.get(thread, {}).get(head)

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is the lower one.

        Raises:
            InvalidId: the thread or a sequence is outside the grammar.
            NotFound: one of them is not there. Those before it were already handed out.
        """
        check_name("thread", thread)
        return (self.read(thread, sequence) for sequence in span(first, last))

    def _ownership(self, thread: str) -> Ownership:
        with self._lock:
            return self._owners.get(thread, Ownership(thread))

    def _change_ownership(self, thread: str, step: Callable[[Ownership], Ownership]) -> Ownership:
        with self._lock:
            after = step(self._owners.get(thread, Ownership(thread)))
            self._owners[thread] = after
            return after

    def _first(self, thread: str) -> int:
        return self._bases[thread][0] if thread in self._bases else 0
