"""Owning threads, as a ledger offers it."""

from __future__ import annotations

from datetime import UTC, datetime

from safepoint._ledger.owning import Owned
from safepoint._ledger.parts import Parts
from safepoint.ids import check_name


class Ownership(Parts):
    """The part of a ledger that says who writes a thread."""

    def own(self, thread: str, worker: str, *, seconds: float = 60.0) -> Owned:
        """Own a thread: from now on the storage refuses what anybody else saves to it.

        Use it in a `with`. The storage counts the owners, and knows a former one, who was paused
        or cut off, by the number that comes with each of its saves. A step of a workflow renews
        the lease before it runs.

        Args:
            thread: the thread, which may be new.
            worker: the name of this worker, and of no other live one: whoever gives the same name
                takes the thread at once, with a new token.
            seconds: after how long without renewal another worker may take the thread.

        Raises:
            NotOwner: another worker owns it.
            ConfigurationError: the storage knows no owners, or `seconds` is no time.
            JournalError: it cannot be written down.
        """
        return self._owner.acquire(check_name("thread", thread), worker, seconds)

    def owner(self, thread: str) -> str | None:
        """Return the name of the worker that owns a thread now, or None if it is free."""
        return self.owner_at_time(thread, datetime.now(UTC))

    def owner_at_time(self, thread: str, now: datetime) -> str | None:
        """Return the name of the worker that owns a thread at that time, or None."""
        return self._owner.holder_at_time(check_name("thread", thread), now)

    def holder(self, thread: str) -> str | None:
        """Return the name of another worker whose lease on a thread counts, also if it has ended.

        Until somebody owns the thread after it, the storage refuses what anybody else saves.
        """
        return self._owner.other(check_name("thread", thread))

    def worker(self, thread: str) -> str | None:
        """Return under which name this ledger owns a thread, or None if it does not."""
        lease = self._owner.held(thread)
        return None if lease is None else lease.owner

    def keep(self, thread: str) -> None:
        """Renew the lease on a thread, if this ledger has one, before a step acts.

        Raises:
            NotOwner: another worker holds it.
        """
        self._owner.keep(thread)
