"""The stores that the attacks are aimed at: the unsafe twin, and ours."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safepoint import naive
from safepoint.attacks.kit import Target
from safepoint.codec import Codec
from safepoint.keys import Keyring, SigningKey
from safepoint.ledger import Ledger
from safepoint.seal import Place, seal
from safepoint.storage.file import FileCheckpointStorage


class NaiveTarget(Target):
    """The unsafe twin. It has no refusals of its own; its type check is all there is."""

    name = "naive"
    refusals = (TypeError,)

    def save(self, thread: str, state: dict[str, Any]) -> None:
        """Save with the unsafe twin."""
        naive.NaiveLedger(self.store).save(thread, state)

    def latest(self, thread: str) -> Any:
        """Load with the unsafe twin."""
        return naive.NaiveLedger(self.store).latest(thread).state

    def file_of(self, thread: str, sequence: int) -> Path:
        """Return the twin's file."""
        return self.store / f"{thread}.{sequence}.json"

    def forge(self, thread: str, state: dict[str, Any]) -> bytes:
        """Write the twin's format by hand. There is nothing to forge."""
        return self._record(thread, state)

    def pickled(self, pickle: bytes, type_name: str) -> bytes:
        """Embed the pickle where the twin looks for one."""
        encoded = base64.b64encode(pickle).decode()
        return self._record("victim", {"__pickled__": encoded, "__type__": type_name})

    def _record(self, thread: str, state: Any) -> bytes:
        record = {
            "thread": thread,
            "sequence": 1,
            "app": "",
            "created": datetime.now(UTC).isoformat(),
            "state": state,
        }
        return json.dumps(record).encode()


class SealedTarget(Target):
    """A ledger on files, with a key that the adversary does not have."""

    name = "sealed"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._keys = Keyring(SigningKey.generate())

    def save(self, thread: str, state: dict[str, Any]) -> None:
        """Save through the ledger."""
        self._ledger().save(thread, state)

    def latest(self, thread: str) -> Any:
        """Load through a ledger that was opened anew."""
        return self._ledger().latest(thread).state

    def file_of(self, thread: str, sequence: int) -> Path:
        """Return the file storage's file."""
        return self.store / thread / f"{sequence:010d}.checkpoint"

    def forge(self, thread: str, state: dict[str, Any]) -> bytes:
        """Write a perfect record, sealed by a key of the adversary's own."""
        place = Place("victim-store", thread, 1)
        payload = Codec().encode(state)
        record, _ = seal(payload, place, SigningKey.generate(), created=datetime.now(UTC))
        return record

    def pickled(self, pickle: bytes, type_name: str) -> bytes:
        """Offer the bare pickle: the format has no place for one."""
        del type_name
        return pickle

    def _ledger(self) -> Ledger:
        return Ledger(FileCheckpointStorage(self.store), store="victim-store", keys=self._keys)


TARGETS: dict[str, type[Target]] = {target.name: target for target in (NaiveTarget, SealedTarget)}
"""The built-in targets by name."""
