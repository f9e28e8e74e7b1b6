"""InMemoryAnchor: for tests, and for runs that may be forgotten."""

from __future__ import annotations

from threading import Lock

from safepoint.anchor.base import checked, is_further
from safepoint.names import Head, check_name


class InMemoryAnchor:
    """Keeps the heads in this process until it ends, of any number of stores.

    It notices what is done to a storage while the process runs, and forgets with it: after a
    restart nothing is anchored. Several threads of one process may share it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._heads: dict[tuple[str, str], Head] = {}

    def __repr__(self) -> str:
        return f"InMemoryAnchor(<{len(self._heads)} threads>)"

    def read(self, store: str, thread: str) -> Head | None:
        """Return the thread's head as it was last seen, or None if it never was.

        Raises:
            InvalidId: a name is outside the grammar.
        """
        place = _place(store, thread)
        with self._lock:
            return self._heads.get(place)

    def advance(self, store: str, thread: str, head: Head) -> None:
        """Remember `head`. One that is older than what is known, or the same, is ignored.

        Raises:
            InvalidId: a name is outside the grammar.
            ConfigurationError: `head` is not a head.
            Forked: another record is known at that sequence. The anchor stays as it is.
        """
        place = _place(store, thread)
        with self._lock:
            if is_further(thread, self._heads.get(place), head):
                self._heads[place] = head

    def threads(self, store: str) -> list[str]:
        """Return the name of each thread of the store that was ever seen, sorted.

        Raises:
            InvalidId: the name of the store is outside the grammar.
        """
        check_name("store", store)
        with self._lock:
            return sorted(thread for owner, thread in self._heads if owner == store)

    def rewind(self, store: str, thread: str, head: Head | None) -> None:
        """Set the head to what you say, further back or forgotten (None).

        It is for an operator who accepts a loss. What lay behind `head` is given up: from now on
        nothing tells a rollback to it from the truth.

        Raises:
            InvalidId: a name is outside the grammar.
            ConfigurationError: `head` is not a head.
        """
        place = _place(store, thread)
        with self._lock:
            if head is None:
                self._heads.pop(place, None)
            else:
                self._heads[place] = checked(head)


def _place(store: str, thread: str) -> tuple[str, str]:
    return check_name("store", store), check_name("thread", thread)
