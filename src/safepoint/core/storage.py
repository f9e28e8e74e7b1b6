"""What a storage is, who may write a thread, what every storage says, and the one in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, Final, Protocol, Self, cast, runtime_checkable

from safepoint.core.errors import (
    ConfigurationError,
    Conflict,
    InvalidId,
    NotFound,
    NotOwner,
    RecordsMissing,
)
from safepoint.core.names import check_name, check_sequence, check_tenant, spelled

MAX_SECONDS: Final = 86_400
_LEAST = 0.001
_AGAIN: Final = "Load the latest checkpoint and decide again from there."


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a thread, as a storage gave it.

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
        #> Nothing was saved. Stop this run: another one took it over.
    ```

    Args:
        thread: the thread.
        owner: the worker that holds it.
        token: its number. Each later lease of the thread has a higher one.
        expires: from when on another worker may take the thread over.

    Raises:
        InvalidId: the thread, the owner or the token is outside its grammar.
    """

    thread: str
    owner: str
    token: int
    expires: datetime

    def __post_init__(self) -> None:
        check_name("thread", self.thread)
        check_name("worker", self.owner)
        if self.token < 1:
            raise InvalidId(f"{self.token} is not the token of a lease.", "Acquire the thread.")


@dataclass(frozen=True, slots=True)
class Ownership:
    """All that a storage keeps of the leases of a thread. It changes nothing and asks no clock.

    Attributes:
        thread: the thread.
        token: the highest token that was handed out, or 0.
        holder: the lease that counts, also if it has expired; None if the thread is free.
    """

    thread: str
    token: int = 0
    holder: Lease | None = None

    def acquired(self, owner: str, seconds: float, now: datetime) -> Ownership:
        """Return what is to be kept once `owner` has the thread.

        Raises:
            NotOwner: another worker owns it until later than `now`.
        """
        holder = self.holder
        # One that ends later than any can has a clock that is wrong, and counts as expired: the
        # token keeps the two apart.
        latest = now + timedelta(seconds=MAX_SECONDS, hours=1)
        if holder is not None and holder.owner != owner and now < holder.expires <= latest:
            raise NotOwner(
                f"Thread '{self.thread}' is owned by worker '{holder.owner}' until"
                f" {spelled(holder.expires)}.",
                "Wait until then, or let that worker release it. If it is dead for certain, own the"
                " thread under its name: what it saves is refused from then on.",
            )
        lease = Lease(self.thread, owner, self.token + 1, now + timedelta(seconds=seconds))
        return Ownership(self.thread, lease.token, lease)

    def renewed(self, lease: Lease, seconds: float, now: datetime) -> Ownership:
        """Return what is to be kept once `lease` ends so many seconds after `now`.

        Raises:
            NotOwner: the lease was released, or another one took its place.
        """
        self._check_holder(lease)
        return replace(self, holder=replace(lease, expires=now + timedelta(seconds=seconds)))

    def released(self, lease: Lease) -> Ownership:
        """Return what is to be kept once the thread is free: its highest token.

        Raises:
            NotOwner: another lease took its place.
        """
        if self.holder is not None or self.token != lease.token:
            self._check_holder(lease)
        return replace(self, holder=None)

    def check_fence(self, fence: int | None) -> None:
        """Refuse a save by anybody but the holder.

        Raises:
            NotOwner: the thread has a holder with another token, or the token is of no holder.
        """
        if fence != (None if self.holder is None else self.holder.token):
            refusal = self._refusal("save carries", fence)
            raise NotOwner(refusal.what, f"Nothing was saved. {refusal.do}")

    def _check_holder(self, lease: Lease) -> None:
        holder = self.holder
        if holder is None or (holder.token, holder.owner) != (lease.token, lease.owner):
            raise self._refusal(f"lease of worker '{lease.owner}' has", lease.token)

    def _refusal(self, what: str, token: int | None) -> NotOwner:
        owner, holder = "has no owner", self.holder
        do = f"It was released: acquire the thread. {_AGAIN}"
        if holder is not None:
            owner = f"is owned by worker '{holder.owner}' with token {holder.token}"
            do = "Stop this run: another one took it over."
            if token is None:
                do = "Acquire the thread before you write to it."
        carried = "no token" if token is None else f"token {token}"
        return NotOwner(f"Thread '{self.thread}' {owner}, and this {what} {carried}.", do)


def check_span(seconds: float, now: datetime) -> datetime:
    """Return `now` in UTC if a lease can last for so many seconds.

    Raises:
        ConfigurationError: a lease cannot.
    """
    if not _LEAST <= seconds <= MAX_SECONDS:
        raise ConfigurationError(
            f"{seconds} is not how many seconds a lease can last.",
            f"Write a number from {_LEAST} to {MAX_SECONDS}, and renew the lease in good time.",
        )
    return now.astimezone(UTC)


class CheckpointStorage(Protocol):
    """The four methods that a storage needs. No base class: any object that has them will do.

    Treat whatever you implement this on as private infrastructure. The ledger detects a record
    that somebody changed; it cannot give you back the one that was there.

    What more a storage can do, the protocols below say, each by itself. If it has an attribute
    `path`, a ledger keeps keys, anchor and journal out of that. Refuse bad names and sequences with
    InvalidId, or say `guarded = False` in the suite.
    """

    def append(self, thread: str, sequence: int, record: bytes) -> None:
        """Keep `record` at `(thread, sequence)`, durably, behind the last one and nowhere else.

        A thread without a record takes any place: a copy begins where a pruned thread does.

        Raises:
            Conflict: there is a record already, or there was one before the thread was pruned.
            RecordsMissing: the record before it is not there.
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
    """A storage that reads faster than one record at a time."""

    def newest(self, thread: str) -> tuple[int, bytes | None]:
        """Return the head with the record there, or with None where `read` is to be asked."""

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is the lower one.

        Raises:
            NotFound: one is not there. Those before it were already handed out.
        """


@runtime_checkable
class TenantStorage(Protocol):
    """A storage that keeps the threads of each tenant apart."""

    def tenant(self, name: str) -> Any:
        """Return one that shares what this is kept in, and sees that tenant's threads alone."""

    def tenants(self) -> Iterable[str]:
        """Return the name of each tenant that has a record; none, of a tenant's own."""


@runtime_checkable
class RetentionStorage(Protocol):
    """A storage that can forget the beginning of a thread, which `prune` and `erase` need.

    What was pruned is gone for every method: below the base there is nothing to read, to scan or
    to append, even while the files are still being removed.
    """

    def base(self, thread: str) -> tuple[int, bytes] | None:
        """Return the first sequence that is kept and what `prune` left before it, or None."""

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Keep `base`, durably, then remove every record below `first`.

        A thread never moves backwards: if it begins after `first` already, its base stays. If it
        begins at `first`, the new base takes the place of the old one, which is how a base is
        sealed anew. What an interrupted prune left below is removed in either case.

        Returns:
            How many records were removed.

        Raises:
            NotFound: there is no record at `first`.
        """


@runtime_checkable
class PurgingStorage(Protocol):
    """A storage that keeps what was pruned for a while, in a log or among what was set aside."""

    def purge(self, thread: str) -> int:
        """Remove that, too, after `prune`, and return how many more went; raise if some stay."""


@runtime_checkable
class LeasingStorage(Protocol):
    """A storage that knows which worker owns a thread, and takes records of that one alone.

    Its `append` takes a `fence`: the token of the lease under which somebody saves, None if the
    thread is not leased. It raises NotOwner if the thread has an owner whose token is not `fence`,
    whether or not the lease has expired; or if it has none, and `fence` is not None.

    A token is one higher than the one before it, whatever became of that lease: expired, released,
    or lost in a crash. Hand it out once it is durable. Compare it and keep the record in one step:
    if a new token goes out between the two, a worker that slept overwrites the work of another.
    """

    def acquire(self, thread: str, owner: str, seconds: float) -> Lease:
        """Let a worker own a thread, with a new token, also if it owned the thread before.

        Raises:
            NotOwner: another worker owns it, and its lease has not expired.
        """

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Let a lease end so many seconds from now. Its token stays.

        Raises:
            NotOwner: it was released, or another one took its place.
        """

    def release(self, lease: Lease) -> None:
        """Let a thread be free.

        Raises:
            NotOwner: another one took its place.
        """

    def lease(self, thread: str) -> Lease | None:
        """Return the lease that counts for a thread, also if it has expired; None if it is free.

        If your storage refuses saves for another reason as well, say so with a method
        `foreign(thread) -> bool`: a ledger asks it before a step acts.
        """


def utc_now() -> datetime:
    """Return what time it is."""
    return datetime.now(UTC)


class Tenants:
    """What keeps the threads of each tenant apart, by a name that stands before each of them."""

    _tenant = ""

    def tenant(self, name: str) -> Self:
        """Return the same for one tenant, which sees its own threads alone and shares all else.

        Raises:
            InvalidId: the name is outside the grammar.
            ConfigurationError: this is a tenant's itself.
        """
        scope = copy(self)
        scope._tenant = check_tenant(name, self._tenant)  # noqa: SLF001  of our own kind
        return scope

    def _tenants_in(self, found: Iterable[str]) -> list[str]:
        """Return the names that a tenant can have, sorted. A tenant itself has none."""
        return [] if self._tenant else sorted({name for name in found if is_thread(name)})


class Leasing(ABC):
    """The leases of a storage: who may write a thread.

    They keep honest workers out of each other's way. Whoever can write the storage itself can
    change what it says of an owner, as they can change the records; the seal shows the second.
    """

    _clock: Callable[[], datetime] = staticmethod(utc_now)

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
        check_name("thread", thread)
        check_name("worker", owner)
        moment = check_span(seconds, self._clock())
        kept = self._change_ownership(thread, lambda old: old.acquired(owner, seconds, moment))
        return cast("Lease", kept.holder)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Let a lease end so many seconds from now. Its token stays.

        One that has expired is renewed too, as long as nobody has taken the thread over.

        Raises:
            ConfigurationError: the seconds are not a number from 0.001 to 86400.
            NotOwner: it was released, or another one took its place.
            StorageError: the storage could not keep it.
        """
        moment = check_span(seconds, self._clock())
        kept = self._change_ownership(lease.thread, lambda old: old.renewed(lease, seconds, moment))
        return cast("Lease", kept.holder)

    def release(self, lease: Lease) -> None:
        """Let a thread be free. Its tokens go on from where they are.

        To release a lease twice does nothing.

        Raises:
            NotOwner: another one took its place.
            StorageError: the storage could not keep that.
        """
        self._change_ownership(lease.thread, lambda old: old.released(lease))

    def lease(self, thread: str) -> Lease | None:
        """Return the lease that counts for a thread, also if it has expired; None if it is free.

        Raises:
            InvalidId: the thread is outside the grammar.
            StorageError: the storage cannot tell.
        """
        return self._ownership(check_name("thread", thread)).holder

    def token(self, thread: str) -> int:
        """Return the highest token that was ever handed out for a thread, 0 if none was."""
        return self._ownership(thread).token

    @abstractmethod
    def _ownership(self, thread: str) -> Ownership:
        """Return what is kept of the thread's leases."""

    @abstractmethod
    def _change_ownership(self, thread: str, step: Callable[[Ownership], Ownership]) -> Ownership:
        """Keep what `step` makes of it, durably, with nobody in between. Return that."""


def is_thread(name: object) -> bool:
    """Tell whether a name that was found is one that a thread can have."""
    try:
        check_name("thread", name)
    except InvalidId:
        return False
    return True


def span(first: object, last: object) -> range:
    """Return the sequences from `first` to `last`, downwards if `last` is the lower one.

    Raises:
        InvalidId: one of the two is not a sequence.
    """
    start, end = check_sequence(first), check_sequence(last)
    return range(start, end + 1) if start <= end else range(start, end - 1, -1)


def taken(thread: str, sequence: int, first: int) -> Conflict:
    """Say that another writer was first; `first` is where the thread begins."""
    what = f"Thread '{thread}' already has a checkpoint {sequence}."
    if sequence < first:
        what = f"Thread '{thread}' had a checkpoint {sequence}, and begins at {first} by now."
    return Conflict(what, f"Nothing was overwritten. {_AGAIN}")


def ahead(thread: str, sequence: int, head: int) -> RecordsMissing:
    """Say that a record does not follow upon the last one."""
    what = f"Thread '{thread}' is at checkpoint {head}, so {sequence} does not follow."
    return RecordsMissing(what, f"Nothing was saved. {_AGAIN}")


def missing(thread: str, sequence: int, first: int) -> NotFound:
    """Say that there is no such record; `first` is where the thread begins."""
    if sequence < first:
        return NotFound(
            f"Checkpoint {sequence} of thread '{thread}' was pruned; the thread begins at {first}"
            " now.",
            f"Ask for {first} or a later one, or look for {sequence} in a backup.",
        )
    return NotFound(
        f"Thread '{thread}' has no checkpoint {sequence}.",
        "Check the thread's name; its head is the highest sequence that it has.",
    )


def check_place(thread: object, sequence: object) -> None:
    """Refuse what is not the place of a record.

    Raises:
        InvalidId: the thread or the sequence is outside the grammar.
    """
    check_name("thread", thread)
    check_sequence(sequence)


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
        check_place(thread, sequence)
        data = bytes(record)
        with self._lock:
            self._owners.get(thread, Ownership(thread)).check_fence(fence)
            head, first = self._heads.get(thread, 0), self._first(thread)
            if sequence <= head:
                raise taken(thread, sequence, first)
            if head and sequence != head + 1:
                raise ahead(thread, sequence, head)
            self._records.setdefault(thread, {})[sequence] = data
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
        return self._heads.get(check_name("thread", thread), 0)

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record."""
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
        return self._bases.get(check_name("thread", thread))

    def prune(self, thread: str, first: int, base: bytes) -> int:
        """Keep `base`, then remove every record below `first`. A thread never moves backwards.

        If it begins at `first` already, the new base takes the place of the old one.

        Returns:
            How many records were removed.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            NotFound: there is no record at `first`.
        """
        check_place(thread, first)
        data = bytes(base)
        with self._lock:
            if first < self._first(thread):
                return 0
            records = self._records.get(thread, {})
            if first not in records:
                raise missing(thread, first, 0)
            self._bases[thread] = first, data
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
        return self._owners.get(thread, Ownership(thread))

    def _change_ownership(self, thread: str, step: Callable[[Ownership], Ownership]) -> Ownership:
        with self._lock:
            after = step(self._owners.get(thread, Ownership(thread)))
            self._owners[thread] = after
            return after

    def _first(self, thread: str) -> int:
        return self._bases[thread][0] if thread in self._bases else 0
