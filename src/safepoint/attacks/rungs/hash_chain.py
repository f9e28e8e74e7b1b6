"""Rung 3: a hash chain without a key. It finds accidents, and whoever does not know about it."""

from __future__ import annotations

import hashlib
from typing import Any

from safepoint.attacks.rungs import plain
from safepoint.attacks.rungs.numbered import Numbered, Refused

_START = "0" * 64


class HashChainTarget(Numbered):
    """Each record names the hash of the one before it, and its own. Anybody can compute both.

    It checks the whole chain first and reads the newest record afterwards. That is two reads, and
    the adversary may come in between.
    """

    name = "hash-chain"
    title = "hash chain"

    def pack(self, thread: str, number: int, state: dict[str, Any]) -> bytes:
        """Write the own hash, the previous one, and the state."""
        previous = _START
        if number > 1:
            previous = _split(self.medium.read(self.place(thread, number - 1)))[0]
        return _linked(previous, plain.encode(state))

    def unpack(self, thread: str, number: int, record: bytes) -> Any:
        """Return the state."""
        del thread, number
        return plain.decode(_split(record)[2])

    def load(self, thread: str, sequence: int) -> Any:
        """Check the chain, then open one record."""
        self._check(thread)
        return super().load(thread, sequence)

    def _check(self, thread: str) -> None:
        previous = _START
        for name in self.records(thread):
            record = self.medium.read(name)
            own, link, payload = _split(record)
            if link != previous or _linked(link, payload) != record:
                raise Refused(f"{name} breaks the chain")
            previous = own

    def relink(self, thread: str) -> None:
        """Compute the chain again. It takes no secret."""
        previous = _START
        for name in self.records(thread):
            record = _linked(previous, _split(self.medium.read(name))[2])
            self.medium.write(name, record)
            previous = _split(record)[0]


def _linked(previous: str, payload: bytes) -> bytes:
    rest = previous.encode() + b"\n" + payload
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def _split(record: bytes) -> tuple[str, str, bytes]:
    own, _, rest = record.partition(b"\n")
    previous, _, payload = rest.partition(b"\n")
    return own.decode("latin-1"), previous.decode("latin-1"), payload
