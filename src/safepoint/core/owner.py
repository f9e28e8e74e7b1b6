"""Who writes a thread: the leases that a ledger has, or takes when it first writes."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Final, Self

from safepoint.core.chain import storage_errors
from safepoint.core.errors import ConfigurationError, NotOwner
from safepoint.core.journal import Notes
from safepoint.core.names import check_name
from safepoint.core.storage import CheckpointStorage, Lease, LeasingStorage


class Held:
    """What one worker holds, of all tenants. A ledger and its `tenant` and `rotated` share it.

    Attributes:
        worker: as whom the first write to a thread takes its lease; None if none does.
        seconds: how long such a lease lasts. A write renews it once half of that has passed.
    """

    def __init__(self, worker: str | None, seconds: float) -> None:
        self.worker = None if worker is None else check_name("worker", worker)
        self.seconds = seconds
        self.threads: dict[tuple[str, str], Owned] = {}  # by tenant and thread
        self.lock = Lock()


class Owners:
    """The leases on the threads of one ledger.

    Args:
        storage: what knows them, if it is a `LeasingStorage`.
        tenant: whose threads these are, or "".
        notes: where each owner is written down.
        held: what this worker holds.

    Raises:
        ConfigurationError: a worker is named, and the storage knows no owners.
    """

    def __init__(self, storage: CheckpointStorage, tenant: str, notes: Notes, held: Held) -> None:
        self._storage: Final = storage if isinstance(storage, LeasingStorage) else None
        self._kind, self._tenant, self._notes, self.held = type(storage), tenant, notes, held
        if held.worker is not None:
            self._leasing()

    def own(self, thread: str, worker: str, seconds: float) -> Owned:
        """Take the lease of a thread, as `Ledger.own` says."""
        storage, at = self._leasing(), (self._tenant, check_name("thread", thread))
        if at in self.held.threads:
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
        self.held.threads[at] = owned = Owned(self, lease, seconds)
        return owned

    def owner(self, thread: str) -> str | None:
        """Return the name of the worker whose lease on a thread counts, None if it is free.

        A lease that has ended counts until somebody owns the thread after it: until then the
        storage refuses what anybody else saves.
        """
        lease = self._lease(thread)
        return None if lease is None else lease.owner

    def other(self, thread: str) -> str | None:
        """Return the same, if that is another worker than this one.

        A worker that takes leases by itself takes over one that has ended.
        """
        lease, owned = self._lease(thread), self._mine(thread)
        if lease is None or (owned is not None and owned.lease.token == lease.token):
            return None
        if self.held.worker and owned is None and lease.expires <= datetime.now(UTC):
            return None
        return lease.owner

    def token(self, thread: str) -> int | None:
        """Return the token to save with, of a lease that is taken or renewed if need be."""
        owned, held = self._mine(thread), self.held
        if held.worker is not None:
            if owned is None:
                with held.lock:  # or two threads of this process would fence each other off
                    owned = held.threads.get((self._tenant, thread))
                    owned = owned or self.own(thread, held.worker, held.seconds)
            elif time.monotonic() - owned.renewed > owned.seconds / 2:
                self._renew(owned)
        return None if owned is None else owned.lease.token

    def keep(self, thread: str) -> None:
        """Renew the lease on a thread, or take it, before a step acts.

        Raises:
            NotOwner: another worker holds it.
        """
        if owned := self._mine(thread):
            self._renew(owned)
            return
        if self.token(thread) is not None:
            return
        other = self.other(thread)
        why = other and f"is held by worker '{other}', and this ledger does not own it"
        with storage_errors("find the owner of", thread):
            foreign = getattr(self._storage, "foreign", None)  # of PostgreSQL, which knows logins
            if other is None and foreign is not None and foreign(thread):
                why = "was written by another login, and this one has not acquired it"
        if why:
            raise NotOwner(
                f"Thread '{thread}' {why}.", "Own it first: what you save would be refused."
            )

    def release(self, thread: str | None = None) -> None:
        """Let a thread go that this worker holds; all of them, if you name none.

        If another worker has it by now, it stays theirs.
        """
        for (tenant, name), owned in list(self.held.threads.items()):
            if tenant == self._tenant and thread in (None, name):
                owned.release()

    def let_go(self, owned: Owned) -> None:
        """Let one lease go, once."""
        at = self._tenant, owned.lease.thread
        if self.held.threads.get(at) is owned:
            del self.held.threads[at]
            if owned.process == os.getpid():  # and not that of the process this was forked from
                with suppress(NotOwner), storage_errors("release", owned.lease.thread):
                    self._leasing().release(owned.lease)

    def _mine(self, thread: str) -> Owned | None:
        """Return what this worker holds of a thread. What it took before a fork is left."""
        owned = self.held.threads.get((self._tenant, thread))
        if owned and owned.process != os.getpid() and self.held.worker is not None:
            self.held.threads.pop((self._tenant, thread), None)
            return None
        return owned

    def _renew(self, owned: Owned) -> None:
        thread = owned.lease.thread
        with self._notes.watching("own", thread), storage_errors("lease", thread):
            owned.lease = self._leasing().renew(owned.lease, owned.seconds)
        owned.renewed = time.monotonic()

    def _lease(self, thread: str) -> Lease | None:
        check_name("thread", thread)
        if self._storage is None:
            return None
        with storage_errors("find the owner of", thread):
            return self._storage.lease(thread)

    def _leasing(self) -> LeasingStorage:
        if self._storage is None:
            raise ConfigurationError(
                f"{self._kind.__name__} knows no owners.",
                "Add the methods of safepoint.core.storage.LeasingStorage to it.",
            )
        return self._storage


@dataclass(eq=False)
class Owned:
    """A thread that a ledger owns, until the end of a `with`.

    Attributes:
        owners: the leases of the ledger that owns it.
        lease: the lease as it was last renewed.
        seconds: for how long it is renewed before each step.
    """

    owners: Owners = field(repr=False)
    lease: Lease
    seconds: float
    renewed: float = field(default_factory=time.monotonic, init=False, repr=False)
    process: int = field(default_factory=os.getpid, init=False, repr=False)

    def release(self) -> None:
        """Let the thread go. If another worker has it by now, it stays theirs."""
        self.owners.let_go(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
