"""InMemoryCheckpointStorage: for tests and for runs that may be forgotten."""

from __future__ import annotations

from threading import Lock

from safepoint.ids import check_name, check_sequence
from safepoint.storage._record import frozen, missing, taken


class InMemoryCheckpointStorage:
    """Keeps records in this process, as bytes, until it ends.

    It holds copies, so that changing a buffer after `append` changes nothing stored. Several
    threads of one process may share it.

    In memory is not the same as trusted: whoever can run code in the process, or attach to it,
    can change what is kept here. The ledger verifies these records as it does all others.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._records: dict[str, dict[int, bytes]] = {}
        self._heads: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"InMemoryCheckpointStorage(<{len(self._heads)} threads>)"

    def append(self, thread: str, sequence: int, record: bytes) -> None:
        """Keep a copy of `record` at `(thread, sequence)`, never over another one.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            EncodeError: the record is not bytes.
            Conflict: there is a record already.
        """
        check_name("thread", thread)
        check_sequence(sequence)
        copy = frozen(record)
        with self._lock:
            records = self._records.setdefault(thread, {})
            if sequence in records:
                raise taken(thread, sequence)
            records[sequence] = copy
            self._heads[thread] = max(sequence, self._heads.get(thread, 0))

    def read(self, thread: str, sequence: int) -> bytes:
        """Return the record exactly as it was appended.

        Raises:
            InvalidId: the thread or the sequence is outside the grammar.
            NotFound: there is none.
        """
        check_name("thread", thread)
        check_sequence(sequence)
        with self._lock:
            record = self._records.get(thread, {}).get(sequence)
        if record is None:
            raise missing(thread, sequence)
        return record

    def head(self, thread: str) -> int:
        """Return the highest sequence of the thread, or 0 if it has no record.

        Raises:
            InvalidId: the thread is outside the grammar.
        """
        check_name("thread", thread)
        with self._lock:
            return self._heads.get(thread, 0)

    def threads(self) -> list[str]:
        """Return the name of each thread that has a record."""
        with self._lock:
            return list(self._heads)
