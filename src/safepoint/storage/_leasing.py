"""Leasing: acquire, renew and release, over whatever keeps the state of a lease."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from typing import cast

from safepoint.ids import check_name
from safepoint.lease import Lease, Ownership, check_lease, check_span


class Leasing(ABC):
    """The leases of a storage: who may write a thread.

    They keep honest workers out of each other's way. Whoever can write the storage itself can
    change what it says of an owner, as they can change the records; the seal shows the second.
    """

    def acquire(self, thread: str, owner: str, seconds: float) -> Lease:
        """Let a worker own a thread for so many seconds, with a token that none had before it.

        The thread needs no record yet. If this worker owns it already, it gets a new token as well:
        it was restarted, and what may be left of its former self is fenced off.

        Args:
            thread: the thread.
            owner: the name of the worker; each worker needs one of its own.
            seconds: after which another worker may take the thread over, unless it is renewed.

        Raises:
            InvalidId: the thread or the owner is outside the grammar.
            ConfigurationError: the seconds are not a number from 0.001 to 86400.
            NotOwner: another worker owns it. The message says which, and until when.
            StorageError: the storage could not keep it. Whoever owned the thread may be fenced off
                by now: try again.
        """
        return self.acquire_at_time(thread, owner, seconds, datetime.now(UTC))

    def acquire_at_time(self, thread: str, owner: str, seconds: float, now: datetime) -> Lease:
        """Do as `acquire` does, with the time that you give."""
        check_name("thread", thread)
        check_name("worker", owner)
        moment = check_span(seconds, now)
        kept = self._change_ownership(thread, lambda old: old.acquired(owner, seconds, moment))
        return cast("Lease", kept.holder)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Let a lease end so many seconds from now. Its token stays.

        One that has expired is renewed too, as long as nobody has taken the thread over.

        Raises:
            ConfigurationError: it is no lease, or the seconds are not a number from 0.001 to 86400.
            NotOwner: it was released, or another one took its place.
            StorageError: the storage could not keep it.
        """
        return self.renew_at_time(lease, seconds, datetime.now(UTC))

    def renew_at_time(self, lease: Lease, seconds: float, now: datetime) -> Lease:
        """Do as `renew` does, with the time that you give."""
        check_lease(lease)
        moment = check_span(seconds, now)
        kept = self._change_ownership(lease.thread, lambda old: old.renewed(lease, seconds, moment))
        return cast("Lease", kept.holder)

    def release(self, lease: Lease) -> None:
        """Let a thread be free. Its tokens go on from where they are.

        To release a lease twice does nothing.

        Raises:
            ConfigurationError: it is no lease.
            NotOwner: another one took its place.
            StorageError: the storage could not keep that.
        """
        check_lease(lease)
        self._change_ownership(lease.thread, lambda old: old.released(lease))

    def lease(self, thread: str) -> Lease | None:
        """Return the lease that counts for a thread, also if it has expired; None if it is free.

        Raises:
            InvalidId: the thread is outside the grammar.
            StorageError: the storage cannot tell.
        """
        return self._ownership(check_name("thread", thread)).holder

    @abstractmethod
    def _ownership(self, thread: str) -> Ownership:
        """Return what is kept of the thread's leases."""

    @abstractmethod
    def _change_ownership(self, thread: str, step: Callable[[Ownership], Ownership]) -> Ownership:
        """Keep what `step` makes of it, durably, with nobody in between. Return that."""
