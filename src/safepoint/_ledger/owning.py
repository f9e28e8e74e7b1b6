"""Owned: which threads this ledger may write, as far as the storage knows of leases."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Self, cast

from safepoint._ledger.guards import has_methods, storage_errors
from safepoint._ledger.noting import Notes
from safepoint.errors import ConfigurationError, NotOwner
from safepoint.lease import Lease
from safepoint.storage.base import CheckpointStorage, LeasingStorage

LEASING = ("acquire", "renew", "release", "lease")


class Owner:
    """The leases that a ledger holds.

    Args:
        storage: where the leases are, if it knows of any.
        notes: where to write that a thread was taken.
    """

    def __init__(self, storage: CheckpointStorage, notes: Notes) -> None:
        self._storage = storage
        self._notes = notes
        self._held: dict[str, Lease] = {}
        self._seconds: dict[str, float] = {}

    def fence(self, thread: str) -> int | None:
        """Return the token that a save to this thread must carry, or None if it has no owner."""
        lease = self._held.get(thread)
        return None if lease is None else lease.token

    def held(self, thread: str) -> Lease | None:
        """Return the lease that this ledger holds on a thread, or held when it last looked."""
        return self._held.get(thread)

    def holder_at_time(self, thread: str, now: datetime) -> str | None:
        """Return who owns the thread: this ledger's worker, another one, or None."""
        lease = self._holder(thread)
        own = self._held.get(thread)
        if lease is None:
            return None
        if own is not None and own.token == lease.token:
            return own.owner
        return lease.owner if lease.expires > now else None

    def other(self, thread: str) -> str | None:
        """Return who else holds a thread, also if their lease has ended; None if nobody does.

        The storage refuses what anybody but the holder saves, until another one takes the thread.
        """
        lease = self._holder(thread)
        own = self._held.get(thread)
        if lease is None or (own is not None and own.token == lease.token):
            return None
        return lease.owner

    def _holder(self, thread: str) -> Lease | None:
        if not has_methods(self._storage, LEASING):
            return None
        with storage_errors("find the owner of", thread):
            return cast("LeasingStorage", self._storage).lease(thread)

    def acquire(self, thread: str, worker: str, seconds: float) -> Owned:
        """Take a thread that is free, expired or the worker's own."""
        storage = self._leasing()
        if thread in self._held:
            raise ConfigurationError(
                f"This ledger owns {thread} already.",
                "Use what own returned, or release it first.",
            )
        with self._notes.watching("own", thread), storage_errors("lease", thread):
            lease = storage.acquire(thread, worker, seconds)
        try:
            detail = f"{lease.owner} with token {lease.token}"
            self._notes.write("own", "done", thread, detail=detail)
        except BaseException:
            storage.release(lease)
            raise
        self._held[thread], self._seconds[thread] = lease, seconds
        return Owned(self, thread)

    def keep(self, thread: str) -> None:
        """Renew the lease on a thread, if this ledger holds one.

        Raises:
            NotOwner: another worker holds it.
        """
        if thread in self._held:
            self.renew(thread)
            return
        other = self.other(thread)
        if other is not None:
            raise NotOwner(
                f"Thread '{thread}' is held by worker '{other}', and this ledger does not own it.",
                "Own it first: what you save would be refused.",
            )
        if has_methods(self._storage, ("foreign",)):
            with storage_errors("find the owner of", thread):
                foreign = cast("Any", self._storage).foreign(thread)
            if foreign:
                raise NotOwner(
                    f"Thread '{thread}' was written by another login, and this one has not acquired"
                    " it.",
                    "Own it first: what you save would be refused.",
                )

    def renew(self, thread: str) -> Lease:
        """Keep a thread for as long again, unless another worker has it by now.

        Raises:
            NotOwner: another worker has.
        """
        lease = self._held.get(thread)
        if lease is None:
            raise NotOwner(
                f"This ledger does not own {thread}.",
                'Take it first: with ledger.own("order-7", worker="worker-1").',
            )
        with self._notes.watching("own", thread), storage_errors("lease", thread):
            self._held[thread] = self._leasing().renew(lease, self._seconds[thread])
        return self._held[thread]

    def release(self, thread: str) -> None:
        """Let a thread go. If another worker has it by now, it stays theirs."""
        lease = self._held.pop(thread, None)
        if lease is None:
            return
        try:
            with storage_errors("release", thread):
                self._leasing().release(lease)
        except NotOwner:
            return

    def _leasing(self) -> LeasingStorage:
        if not has_methods(self._storage, LEASING):
            raise ConfigurationError(
                f"{type(self._storage).__name__} knows no owners.",
                f"Add the methods {', '.join(LEASING)} of LeasingStorage to it.",
            )
        return cast("LeasingStorage", self._storage)


class Owned:
    """A thread that this ledger owns, until the end of a `with`.

    Attributes:
        thread: the thread.
    """

    def __init__(self, owner: Owner, thread: str) -> None:
        self._owner: Final = owner
        self.thread: Final = thread

    @property
    def lease(self) -> Lease:
        """The lease as it is now.

        Raises:
            NotOwner: it was released.
        """
        lease = self._owner.held(self.thread)
        if lease is None:
            raise NotOwner(f"{self.thread} was released.", "Own it again.")
        return lease

    def renew(self) -> Lease:
        """Keep the thread for as long again, from now on.

        Raises:
            NotOwner: another worker has it by now. Stop: what you save is refused.
        """
        return self._owner.renew(self.thread)

    def release(self) -> None:
        """Let the thread go."""
        self._owner.release(self.thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
