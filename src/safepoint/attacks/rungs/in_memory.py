"""The storage in memory, filled from what the adversary left and written back afterwards."""

from __future__ import annotations

from safepoint.attacks.medium import Medium
from safepoint.storage.file import LEASE, read_lease, write_lease
from safepoint.storage.memory import InMemoryCheckpointStorage

_BASE = "base"
_RECORD = ".checkpoint"


class Kept(InMemoryCheckpointStorage):
    """A storage whose memory the adversary can write between one use and the next."""

    def load(self, medium: Medium) -> None:
        """Hold what the medium holds, and nothing else."""
        super().__init__()
        tap, medium.tap = medium.tap, None  # this is the storage's own memory, not a user's read
        found = {name: medium.read(name) for name in medium.names()}
        medium.tap = tap
        for name, content in found.items():
            thread, _, rest = name.partition("/")
            if rest.endswith(_RECORD):
                self.append(thread, int(rest.removesuffix(_RECORD)), content)
        for name, content in found.items():
            thread, _, rest = name.partition("/")
            if rest == _BASE:
                first, _, base = content.partition(b"\n")
                self.prune(thread, int(first), base)
            elif rest == LEASE:
                self._owners[thread] = read_lease(name, thread, content)

    def store(self, medium: Medium) -> None:
        """Write back what one use can change: an end, a lease, a base with nothing below."""
        for thread, ownership in self._owners.items():
            medium.write(f"{thread}/{LEASE}", write_lease(ownership))
        for thread in self.threads():
            head = self.head(thread)
            medium.write(_name(thread, head), self.read(thread, head))
            base = self.base(thread)
            if base is not None:
                medium.write(f"{thread}/{_BASE}", b"%d\n%b" % base)
                for name in medium.names():
                    if name.startswith(f"{thread}/") and name < _name(thread, base[0]):
                        medium.delete(name)


def _name(thread: str, sequence: int) -> str:
    return f"{thread}/{sequence:010d}{_RECORD}"
