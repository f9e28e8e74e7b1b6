"""Anchors: the head of each thread, stored where a writer of the storage cannot change it."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Protocol, runtime_checkable

from safepoint.core.names import Head, check_name, is_further
from safepoint.core.storage import Tenants


class Anchor(Protocol):
    """Remembers the head of each thread in a place that the storage's writer cannot change.

    It is asked about the threads of a store, and of its journal, under a name of this package: a
    journal that has no anchor of its own is anchored in that of the ledger, when people answer.

    A signed chain reveals an edit. It does not reveal that its end was cut off, that a thread is
    gone, or that last week's copy was restored, because the remaining records are genuine. The
    anchor reveals these.

    You can write your own in ten lines, for a database, a bucket or a service:

    ```python
    from safepoint.core.names import Head, is_further


    class DictAnchor:
        def __init__(self):
            self._heads = {}
        def read(self, store, thread):
            return self._heads.get((store, thread))
        def advance(self, store, thread, head):
            if is_further(thread, self.read(store, thread), head):
                self._heads[store, thread] = head
        def threads(self, store):
            return [thread for owner, thread in self._heads if owner == store]


    anchor = DictAnchor()
    anchor.advance("invoices", "order-7", Head(2, "sha256:" + "b" * 64))
    anchor.advance("invoices", "order-7", Head(1, "sha256:" + "a" * 64))  # older: ignored
    print(anchor.read("invoices", "order-7"))
    #> #2
    ```

    Your anchor must guarantee the following, which this dict does not:

    - **Monotonic**: a head never moves back, regardless of the caller and the order of calls.
    - **Atomic**: comparison and write are one step for all processes that share it (a lock, a
      transaction, a compare-and-set), and a reader sees either the old head or the new one.
    - **Durable**: when `advance` returns, the head survives a crash of the machine.
    - **Out of reach**: it is written under a credential that the storage's other writers do not
      have. An anchor that they can write protects nothing.
    - **Never silent**: if it cannot answer, it raises an error. None means only that the thread
      was never seen.

    The anchors of this package also implement `TenantStorage` and `RewindingAnchor`.
    """

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was.

        Raises:
            RolledBack: this is the anchor of another store.
            Unavailable: the anchor cannot be read.
        """

    def advance(self, store: str, thread: str, head: Head) -> None:
        """Remember `head`. One that is older than what is known, or the same, is ignored.

        Raises:
            RolledBack: another record is known at that sequence. The anchor stays as it is; or this
                is the anchor of another store.
            Unavailable: the anchor cannot be written. It holds the head it had, or this one.
        """

    def threads(self, store: str) -> Iterable[str]:
        """Return the name of each thread of the store that was ever seen.

        Raises:
            RolledBack: this is the anchor of another store.
            Unavailable: the anchor cannot be read.
        """


@runtime_checkable
class RewindingAnchor(Protocol):
    """An anchor that an operator can set back, with `Ledger.accept_loss`."""

    def rewind(self, store: str, thread: str, head: Head | None) -> None:
        """Set the head, to an earlier one or to none, durably."""


class InMemoryAnchor(Tenants):
    """Keeps the heads in this process until it ends, of any number of stores.

    It detects changes to a storage only while the process runs: after a restart nothing is
    anchored. Several threads of one process may share it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._heads: dict[tuple[str, str, str], Head] = {}

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was."""
        return self._heads.get(self._place(store, thread))

    def advance(self, store: str, thread: str, head: Head) -> None:
        """Remember `head`. One that is older than what is known, or the same, is ignored.

        Raises:
            RolledBack: another record is known at that sequence.
        """
        place = self._place(store, thread)
        with self._lock:
            if is_further(thread, self._heads.get(place), head):
                self._heads[place] = head

    def threads(self, store: str) -> list[str]:
        """Return the name of each thread of the store that was ever seen, sorted."""
        scope = check_name("store", store), self._tenant
        return sorted(thread for *of, thread in list(self._heads) if (*of,) == scope)

    def tenants(self, store: str) -> list[str]:
        """Return the name of each tenant that has a thread in this anchor."""
        check_name("store", store)
        return self._tenants_in(tenant for of, tenant, _ in list(self._heads) if of == store)

    def rewind(self, store: str, thread: str, head: Head | None) -> None:
        """Set the head, to an earlier one or to none."""
        place = self._place(store, thread)
        with self._lock:
            self._heads.pop(place, None)
            if head is not None:
                self._heads[place] = head

    def _place(self, store: str, thread: str) -> tuple[str, str, str]:
        return check_name("store", store), self._tenant, check_name("thread", thread)
