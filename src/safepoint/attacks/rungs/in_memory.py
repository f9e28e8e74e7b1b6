"""The storage in memory, filled from what the adversary left and written back afterwards."""

from __future__ import annotations

from safepoint.attacks.medium import Medium
from safepoint.storage.memory import InMemoryCheckpointStorage

_BASE = "base"
_RECORD = ".checkpoint"


def load(medium: Medium) -> InMemoryCheckpointStorage:
    """Return a storage that holds what the medium holds."""
    storage = InMemoryCheckpointStorage()
    tap, medium.tap = medium.tap, None  # this is the storage's own memory, not a read of its user
    bases: list[tuple[str, bytes]] = []
    for name in medium.names():
        thread, _, rest = name.partition("/")
        if rest == _BASE:
            bases.append((thread, medium.read(name)))
        elif rest.endswith(_RECORD):
            storage.append(thread, int(rest.removesuffix(_RECORD)), medium.read(name))
    for thread, content in bases:
        first, _, base = content.partition(b"\n")
        storage.prune(thread, int(first), base)
    medium.tap = tap
    return storage


def store(medium: Medium, storage: InMemoryCheckpointStorage) -> None:
    """Write back what one use of the storage can change: an end, and a base with nothing below."""
    for thread in storage.threads():
        head = storage.head(thread)
        medium.write(_name(thread, head), storage.read(thread, head))
        base = storage.base(thread)
        if base is not None:
            medium.write(f"{thread}/{_BASE}", b"%d\n%b" % base)
            for name in medium.names():
                if name.startswith(f"{thread}/") and name < _name(thread, base[0]):
                    medium.delete(name)


def _name(thread: str, sequence: int) -> str:
    return f"{thread}/{sequence:010d}{_RECORD}"
