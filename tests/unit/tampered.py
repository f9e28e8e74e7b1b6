"""A storage in the hands of somebody who can write it, in memory and on disk."""

from __future__ import annotations

from safepoint import (
    FileCheckpointStorage,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
)
from safepoint.storage.base import CheckpointStorage

KEY = SigningKey(bytes(range(32)))
KEYS = Keyring(KEY)
STORE = "invoices"
THREAD = "order-7"


class Memory(InMemoryCheckpointStorage):
    """A storage in the hands of somebody who can write it."""

    def put(self, thread: str, sequence: int, record: bytes) -> None:
        self._records[thread][sequence] = record
        self._heads[thread] = max(self._records[thread])

    def remove(self, thread: str, sequence: int) -> None:
        del self._records[thread][sequence]
        self._heads[thread] = max(self._records[thread], default=0)

    def put_base(self, thread: str, first: int, record: bytes) -> None:
        self._bases[thread] = first, record

    def remove_base(self, thread: str) -> None:
        del self._bases[thread]


class Files(FileCheckpointStorage):
    """The same, on disk."""

    def put(self, thread: str, sequence: int, record: bytes) -> None:
        file = self.path / thread / f"{sequence:010d}.checkpoint"
        file.touch(mode=0o600)
        file.write_bytes(record)

    def remove(self, thread: str, sequence: int) -> None:
        (self.path / thread / f"{sequence:010d}.checkpoint").unlink()

    def put_base(self, thread: str, first: int, record: bytes) -> None:
        file = self.path / thread / "base"
        file.touch(mode=0o600)
        file.write_bytes(b"%010d\n%b" % (first, record))

    def remove_base(self, thread: str) -> None:
        (self.path / thread / "base").unlink()


def opened(
    storage: CheckpointStorage,
    anchor: InMemoryAnchor | None = None,
    *,
    every: int = 1,
    keys: Keyring = KEYS,
) -> Ledger:
    """A ledger as a new process would open it."""
    return Ledger(storage, store=STORE, keys=keys, anchor=anchor, anchor_every=every)


def fill(ledger: Ledger, count: int, thread: str = THREAD) -> None:
    for number in range(1, count + 1):
        ledger.save(thread, {"n": number})


def states(ledger: Ledger, thread: str = THREAD) -> list[int]:
    return [each.state["n"] for each in ledger.history(thread)]


def base_of(storage: Memory | Files, thread: str = THREAD) -> tuple[int, bytes]:
    found = storage.base(thread)
    assert found is not None
    return found
