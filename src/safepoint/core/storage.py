"""The protocol of a storage, leases, common errors, and the storage in memory."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, Final, Protocol, Self, runtime_checkable

from safepoint.core.errors import (
    ConfigurationError,
    Conflict,
    InvalidId,
    NotFound,
    NotOwner,
    RolledBack,
    SealBroken,
    Unavailable,
    shell,
)
from safepoint.core.names import (
    check_name,
    check_place,
    check_sequence,
    check_tenant,
    sized,
    stamp,
    too_large,
)

MAX_SECONDS: Final = 86_400
_LEAST = 0.001
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a thread, granted by a storage: a value, without a clock.

    ```python
    import time

    from safepoint import InMemoryCheckpointStorage
    from safepoint.core.errors import NotOwner

    storage = InMemoryCheckpointStorage()
    first = storage.acquire("order-7", "worker-a", 0.001)
    time.sleep(0.01)  # worker-a sleeps for too long, and worker-b takes over
    second = storage.acquire("order-7", "worker-b", 60)
    storage.append("order-7", 1, b"...", fence=second.token)
    try:
        storage.append("order-7", 2, b"...", fence=first.token)
    except NotOwner as refusal:
        print(refusal.do)
        #> Nothing was saved. Own the thread, or pass worker=NAME. If another worker has it, stop.
    ```

    Args:
        thread: the thread.
        owner: the worker that holds it; "" once it is released, and before the first one.
        token: its number. Each later lease on the thread has a higher one.
        expires: when another worker may take over the thread.

    Raises:
        InvalidId: the thread, the owner or the token of an owner is outside its grammar.
    """

    thread: str
    owner: str = ""
    token: int = 0
    expires: datetime = _NEVER

    def __post_init__(self) -> None:
        check_name("thread", self.thread)
        if self.owner:
            check_name("worker", self.owner)
            if self.token < 1:
                raise InvalidId(f"{self.token} is not the token of a lease.", "Acquire the thread.")

    def acquired(self, owner: str, seconds: float, now: datetime) -> Lease:
        """Return the lease after `owner` acquires the thread.

        Raises:
            NotOwner: another worker owns it until later than `now`.
        """
        # A lease that ends later than any lease can comes from a wrong clock and counts as expired:
        # the token still tells the two owners apart.
        latest = now + timedelta(seconds=MAX_SECONDS, hours=1)
        if self.owner not in ("", owner) and now < self.expires <= latest:
            raise NotOwner(
                f"Thread '{self.thread}' is owned by worker '{self.owner}' until"
                f" {stamp(self.expires)}.",
                "Wait until then. If it is dead for certain, own the thread under its name.",
            )
        return Lease(self.thread, owner, self.token + 1, now + timedelta(seconds=seconds))

    def renewed(self, lease: Lease, seconds: float, now: datetime) -> Lease:
        """Return `lease` extended to so many seconds from `now`.

        Raises:
            NotOwner: the lease was released, or another one took its place.
        """
        self._check_holder(lease)
        return replace(self, expires=now + timedelta(seconds=seconds))

    def released(self, lease: Lease) -> Lease:
        """Return the lease after the thread is released: only its token counts.

        Raises:
            NotOwner: another lease took its place.
        """
        if self.owner or self.token != lease.token:
            self._check_holder(lease)
        return replace(self, owner="")

    def check_fence(self, fence: int | None) -> None:
        """Refuse a save by anyone but the holder.

        Raises:
            NotOwner: the thread has a holder with another token, or the token is of no holder.
        """
        if fence != (self.token if self.owner else None):
            raise self._refusal("save carries", fence)

    def _check_holder(self, lease: Lease) -> None:
        if not self.owner or (self.token, self.owner) != (lease.token, lease.owner):
            raise self._refusal(f"lease of worker '{lease.owner}' has", lease.token)

    def _refusal(self, what: str, token: int | None) -> NotOwner:
        owner = "has no owner"
        if self.owner:
            owner = f"is owned by worker '{self.owner}' with token {self.token}"
        carried = "no token" if token is None else f"token {token}"
        return NotOwner(f"Thread '{self.thread}' {owner}, and this {what} {carried}.")


LEASE_LINE: Final = re.compile(
    rb"safepoint-lease/1 ([1-9][0-9]{0,17}) (?:- -|([a-z0-9][a-z0-9_-]{0,63})"
    rb" ([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{6}Z))\n\Z"
)


def write_lease(lease: Lease) -> bytes:
    """Return a lease as files and SQLite keep it: one line, even if the thread was released."""
    rest = f"{lease.owner} {stamp(lease.expires)}" if lease.owner else "- -"
    return f"safepoint-lease/1 {lease.token} {rest}\n".encode()


def read_lease(path: str, thread: str, text: object) -> Lease:
    """Return the lease that `write_lease` wrote.

    Raises:
        Unavailable: `write_lease` did not write it.
    """
    found = LEASE_LINE.match(text) if isinstance(text, bytes) else None
    if found is not None:
        token = int(found[1])
        if found[2] is None:
            return Lease(thread, token=token)
        with suppress(ValueError):  # no such day, or the name of a device
            expires = datetime.fromisoformat(found[3].decode())
            return Lease(thread, found[2].decode(), token, expires)
    raise Unavailable(
        f"{shell(path)} does not say who owns its thread, so nothing of the thread is saved.",
        "Stop every worker of the thread and restore it from a backup.",
    )


def check_seconds(seconds: float) -> None:
    """Refuse a time that a lease cannot last.

    Raises:
        ConfigurationError: it is shorter or longer than a lease.
    """
    if not _LEAST <= seconds <= MAX_SECONDS:
        raise ConfigurationError(
            f"{seconds} is not how many seconds a lease can last.",
            f"Write a number from {_LEAST} to {MAX_SECONDS}, and renew the lease in good time.",
        )


class CheckpointStorage(Protocol):
    """The four methods that a storage needs. No base class: any object that has them will do.

    Treat the backend as private infrastructure. The ledger detects a changed record, but cannot
    restore the original.

    The protocols below describe optional features, each by itself. If the storage has an attribute
    `path`, a ledger refuses keys, an anchor or a journal inside that folder. Refuse bad names and
    sequences with InvalidId, or set `guarded = False` in the suite.
    """

    def append(self, thread: str, sequence: int, record: bytes) -> None:
        """Store `record` durably at `(thread, sequence)`, directly after the last record.

        The first record is 1, or the one that the thread's base names.

        Raises:
            Conflict: there is a record already, there was one before the thread was pruned, or it
                does not follow the last one.
        """

    def read(self, thread: str, sequence: int) -> bytes:
        """Return the record exactly as it was appended.

        Raises:
            NotFound: there is none.
        """

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record."""

    def threads(self) -> Iterable[str]:
        """Return the name of each thread that has a record, in any order."""


@runtime_checkable
class ScanningStorage(Protocol):
    """A storage that can read several records at once."""

    def newest(self, thread: str) -> tuple[int, bytes | None]:
        """Return the head and its record, or None in place of a record that `read` must get."""

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is lower.

        Raises:
            NotFound: one is missing. Those before it were already returned.
        """


@runtime_checkable
class TenantStorage(Protocol):
    """A storage or an anchor that separates the threads of each tenant: either both, or none."""

    def tenant(self, name: str) -> Any:
        """Return the same on the same backend, which sees only that tenant's threads."""

    def tenants(self, *store: str) -> Iterable[str]:
        """Return the name of each tenant that has a thread; empty for a tenant's own.

        Args:
            store: for an anchor, the name of the store.
        """


@runtime_checkable
class RetentionStorage(Protocol):
    """A storage that can remove the beginning of a thread, as `prune` and `erase` need.

    Pruned records are gone for every method: below the base nothing can be read, scanned or
    appended, even while the files are still being removed.
    """

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first remaining sequence and the base that `prune` stored, or None."""

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Store `base` durably, then remove every record below `first`.

        A thread never moves backwards: if it already begins after `first`, its base stays. If it
        begins at `first`, the new base replaces the old one, which is how a base is resealed. In
        either case, records that an interrupted prune left below are removed. A thread without
        records will begin at `first`, as the copy of a pruned one does.

        Returns:
            How many records were removed.

        Raises:
            NotFound: there are records and none at `first`.
        """


@runtime_checkable
class PurgingStorage(Protocol):
    """A storage where pruned records remain for a while, for example in a log."""

    def purge(self, thread: str) -> int:
        """Remove those after `prune`, and return how many there were; raise if some remain."""


@runtime_checkable
class LeasingStorage(Protocol):
    """A storage that knows which worker owns a thread, and accepts only that worker's records.

    Its `append` takes a `fence`: the token of the lease under which a worker saves, or None if the
    thread is not leased. It raises NotOwner if the thread has an owner whose token is not `fence`,
    whether or not the lease has expired; or if it has none and `fence` is not None.

    Each token is one higher than the previous one, even if that lease expired, was released or was
    lost in a crash. Issue a token only once it is durable. Compare it and store the record in one
    step: otherwise a worker that slept could overwrite the work of its successor.
    """

    def acquire(self, thread: str, owner: str, seconds: float) -> Lease:
        """Give a worker a thread, with a new token, even if it owned the thread before.

        Raises:
            NotOwner: another worker owns it, and its lease has not expired.
        """

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Extend a lease to so many seconds from now. Its token stays the same.

        Raises:
            NotOwner: it was released, or another one took its place.
        """

    def release(self, lease: Lease) -> None:
        """Release a thread.

        Raises:
            NotOwner: another one took its place.
        """

    def lease(self, thread: str) -> Lease | None:
        """Return the current lease of a thread, even if it has expired; None if it is free."""


@runtime_checkable
class LoginStorage(Protocol):
    """A storage that knows logins, and refuses a thread that another one has written."""

    def foreign(self, thread: str) -> bool:
        """Tell whether it would refuse a save to this thread. A ledger asks before a step acts."""


def utc_now() -> datetime:
    """Return what time it is."""
    return datetime.now(UTC)


class Closing:
    """What is closed at the end of a `with` block."""

    def close(self) -> None:
        """Close it. Closing it twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Tenants:
    """Gives a storage or an anchor a scope for each tenant, which its own methods keep apart."""

    _tenant = ""

    def tenant(self, name: str) -> Self:
        """Return the same for one tenant. It sees only that tenant's threads.

        Raises:
            InvalidId: the name is outside the grammar.
            ConfigurationError: this is a tenant's itself.
        """
        scope = copy(self)
        scope._tenant = check_tenant(name, self._tenant)  # noqa: SLF001  of our own kind
        return scope

    def _tenants_in(self, found: Iterable[str]) -> list[str]:
        """Return the valid tenant names among those found, sorted."""
        return [] if self._tenant else sorted({name for name in found if is_thread(name)})


class Leasing(ABC):
    """The leases of a storage: who may write a thread.

    They keep honest workers out of each other's way. An attacker with write access to the storage
    can change leases as well as records, but only a changed record is detected, by its seal.
    """

    _clock: Callable[[], datetime] = staticmethod(utc_now)

    def acquire(self, thread: str, owner: str, seconds: float) -> Lease:
        """Give a worker a thread for so many seconds, with a new token.

        The thread need not have a record yet. If this worker already owns it, it still gets a new
        token: it was restarted, and its former process can no longer write.

        Args:
            thread: the thread.
            owner: the name of the worker, unique to it.
            seconds: when another worker may take over the thread, unless the lease is renewed.

        Raises:
            InvalidId: the thread or the owner is outside the grammar.
            ConfigurationError: the seconds are not a number from 0.001 to 86400.
            NotOwner: another worker owns it. The message says which, and until when.
            Unavailable: the storage could not keep it. Anyone who owned the thread may be fenced
                off by now: try again.
        """
        check_name("thread", thread)
        check_name("worker", owner)
        check_seconds(seconds)
        moment = self._clock().astimezone(UTC)
        return self._change_lease(thread, lambda old: old.acquired(owner, seconds, moment))

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Extend a lease to so many seconds from now. Its token stays the same.

        An expired lease can be renewed as long as nobody has taken over the thread.

        Raises:
            ConfigurationError: the seconds are not a number from 0.001 to 86400.
            NotOwner: it was released, or another one took its place.
            Unavailable: the storage could not keep it.
        """
        check_seconds(seconds)
        moment = self._clock().astimezone(UTC)
        return self._change_lease(lease.thread, lambda old: old.renewed(lease, seconds, moment))

    def release(self, lease: Lease) -> None:
        """Release a thread. The next token is still higher.

        Releasing a lease twice does nothing.

        Raises:
            NotOwner: another one took its place.
            Unavailable: the storage could not keep that.
        """
        self._change_lease(lease.thread, lambda old: old.released(lease))

    def lease(self, thread: str) -> Lease | None:
        """Return the current lease of a thread, even if it has expired; None if it is free.

        Raises:
            InvalidId: the thread is outside the grammar.
            Unavailable: the storage cannot tell.
        """
        found = self._last_lease(check_name("thread", thread))
        return found if found.owner else None

    @abstractmethod
    def _last_lease(self, thread: str) -> Lease:
        """Return the last lease of the thread, even if it was released."""

    @abstractmethod
    def _change_lease(self, thread: str, step: Callable[[Lease], Lease]) -> Lease:
        """Apply `step` to it and store the result durably, in one step. Return the result."""


def is_thread(name: object) -> bool:
    """Tell whether a name is a valid thread name."""
    try:
        check_name("thread", name)
    except InvalidId:
        return False
    return True


def sequences(first: object, last: object) -> range:
    """Return the sequences from `first` to `last`, downwards if `last` is lower.

    Raises:
        InvalidId: one of the two is not a sequence.
    """
    start, end = check_sequence(first), check_sequence(last)
    return range(start, end + 1) if start <= end else range(start, end - 1, -1)


def taken(thread: str, sequence: int, first: int) -> Conflict:
    """Return the error for a sequence that is taken; `first` is where the thread begins."""
    what = f"Thread '{thread}' already has a checkpoint {sequence}."
    if sequence < first:
        what = f"Thread '{thread}' had a checkpoint {sequence}, and begins at {first} now."
    return Conflict(what)


def ahead(thread: str, sequence: int, head: int) -> Conflict:
    """Return the error for a record that does not follow the last one."""
    return Conflict(f"Thread '{thread}' is at checkpoint {head}, so {sequence} does not follow.")


def no_record(thread: str, sequence: int, first: int) -> NotFound:
    """Return the error for a missing record; `first` is where the thread begins."""
    if sequence < first:
        return NotFound(
            f"Checkpoint {sequence} of thread '{thread}' was pruned; the thread begins at {first}"
            " now.",
            f"Ask for {first} or a later one, or look for {sequence} in a backup.",
        )
    return NotFound(f"Thread '{thread}' has no checkpoint {sequence}.")


def gap(thread: str, sequence: int, behind: int) -> RolledBack:
    """Return the error for a record that is missing in the middle of a thread."""
    return RolledBack(
        f"Thread '{thread}' has checkpoint {behind} but not {sequence}.", kind="missing"
    )


def malformed_base(path: str) -> SealBroken:
    """Return the error for a base that does not say where its thread begins."""
    return SealBroken(
        f"{shell(path)} does not say at which checkpoint its thread begins.", kind="form"
    )


def record_of(thread: str, sequence: int, size: object, record: object, limit: int) -> bytes:
    """Return a record that was read from a database, if it is within the limit.

    Raises:
        LimitExceeded: it has more bytes than a record may have.
        SealBroken: it is not bytes.
    """
    if type(record) is bytes:
        return sized(record, limit)
    if record is None and type(size) is int and size > limit:
        raise too_large(size, limit)
    raise SealBroken(f"Checkpoint {sequence} of thread '{thread}' is not bytes.", kind="form")


class InMemoryCheckpointStorage(Leasing, Tenants):
    """Keeps records in this process, as bytes, until it ends.

    It stores copies, so changing a buffer after `append` has no effect. Several threads of one
    process may share it.

    In memory does not mean trusted: code in the process, or a debugger attached to it, can change
    the records. The ledger verifies them like all others.

    Args:
        clock: what time it is, for leases. A test passes its own.
    """

    def __init__(self, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._clock = clock
        self._lock = Lock()
        # By tenant and thread.
        self._records: dict[tuple[str, str], dict[int, bytes]] = {}
        self._heads: dict[tuple[str, str], int] = {}
        self._bases: dict[tuple[str, str], tuple[int, bytes]] = {}
        self._leases: dict[tuple[str, str], Lease] = {}

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        """Store a copy of `record` at `(thread, sequence)`, directly after the last record."""
        check_place(thread, sequence)
        data, at = bytes(record), (self._tenant, thread)
        with self._lock:
            self._last_lease(thread).check_fence(fence)
            head, first = self._heads.get(at, 0), self._first(thread)
            if sequence <= head or sequence < first:
                raise taken(thread, sequence, first)
            if sequence != (head + 1 if head else first or 1):
                raise ahead(thread, sequence, head)
            self._records.setdefault(at, {})[sequence] = data
            self._heads[at] = sequence

    def read(self, thread: str, sequence: int) -> bytes:
        """Return the record exactly as it was appended.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            NotFound: there is none, or it was pruned.
        """
        check_place(thread, sequence)
        with self._lock:
            record = self._records.get((self._tenant, thread), {}).get(sequence)
            if record is None:
                raise no_record(thread, sequence, self._first(thread))
            return record

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record.

        Raises:
            InvalidId: the thread is outside the grammar.
        """
        return self._heads.get((self._tenant, check_name("thread", thread)), 0)

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record."""
        return [thread for tenant, thread in list(self._heads) if tenant == self._tenant]

    def tenants(self) -> list[str]:
        """Return the name of each tenant that has a record."""
        return self._tenants_in(tenant for tenant, _ in list(self._heads))

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first remaining sequence and the base that `prune` stored, or None.

        Raises:
            InvalidId: the thread is outside the grammar.
        """
        return self._bases.get((self._tenant, check_name("thread", thread)))

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Store `base`, then remove every record below `first`. A thread never moves backwards.

        If it already begins at `first`, the new base replaces the old one.

        Returns:
            How many records were removed.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            NotFound: there are records and none at `first`.
        """
        check_place(thread, first)
        data, at = bytes(base), (self._tenant, thread)
        with self._lock:
            if first < self._first(thread):
                return 0
            records = self._records.get(at, {})
            if records and first not in records:
                raise no_record(thread, first, 0)
            self._bases[at] = first, data
            below = [sequence for sequence in records if sequence < first]
            for sequence in below:
                del records[sequence]
            return len(below)

    def newest(self, thread: str) -> tuple[int, bytes | None]:
        """Return the head and its record; 0 and None for a thread without records."""
        head = self.head(thread)
        with self._lock:
            return head, self._records.get((self._tenant, thread), {}).get(head)

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is lower.

        Raises:
            InvalidId: the thread or a sequence is outside the grammar.
            NotFound: one is missing. Those before it were already returned.
        """
        check_name("thread", thread)
        return (self.read(thread, sequence) for sequence in sequences(first, last))

    def _last_lease(self, thread: str) -> Lease:
        return self._leases.get((self._tenant, thread), Lease(thread))

    def _change_lease(self, thread: str, step: Callable[[Lease], Lease]) -> Lease:
        with self._lock:
            after = step(self._last_lease(thread))
            self._leases[self._tenant, thread] = after
            return after

    def _first(self, thread: str) -> int:
        return self._bases.get((self._tenant, thread), (0, b""))[0]
