"""What a storage is: four methods over bytes."""

from __future__ import annotations

from collections.abc import Iterable
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
