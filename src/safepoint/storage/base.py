"""What a storage is: four methods over bytes; more if it can forget, lease, or follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from safepoint.lease import Lease


class CheckpointStorage(Protocol):
    """The four methods that a storage needs. No base class: any object that has them will do.

    Treat whatever you implement this on as private infrastructure. The ledger detects a record
    that somebody changed; it cannot give you back the one that was there.
    """

    def append(self, thread: str, sequence: int, record: bytes) -> None:
        """Keep `record` at `(thread, sequence)`, durably, and never over another one.

        Raises:
            Conflict: there is a record already.
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


class RetentionStorage(CheckpointStorage, Protocol):
    """A storage that can forget the beginning of a thread, and read many records at once.

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

    def scan(self, thread: str, first: int, last: int) -> Iterator[bytes]:
        """Return the records from `first` to `last`, downwards if `last` is the lower one.

        Raises:
            NotFound: one of them is not there. Those before it were already handed out.
        """


class FollowingStorage(CheckpointStorage, Protocol):
    """A storage that can append after one record and no other, which saves asking for the head."""

    def follow(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> bool:
        """Keep `record` at `sequence` if the thread ends right before it, and tell whether it did.

        Where it ends elsewhere nothing is kept, also if it is empty: somebody else saved, pruned,
        deleted or cut it off, and the ledger looks again.
        """


class LeasingStorage(CheckpointStorage, Protocol):
    """A storage that knows which worker owns a thread, and takes records of that one alone.

    A token is one higher than the one before it, whatever became of that lease: expired, released,
    or lost in a crash. Hand it out once it is durable. Compare it and keep the record in one step:
    if a new token goes out between the two, a worker that slept overwrites the work of another.
    """

    def append(
        self, thread: str, sequence: int, record: bytes, *, fence: int | None = None
    ) -> None:
        """Keep `record` at `(thread, sequence)`, durably, and never over another one.

        Raises:
            Conflict: there is a record already.
            NotOwner: the thread has an owner whose token is not `fence`, be the lease expired or
                not; or it has none, and `fence` is not None.
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
