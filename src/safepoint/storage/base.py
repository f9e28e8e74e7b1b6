"""What a storage is: four methods over bytes, and three more if it can forget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol


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
