"""Rung 0: the unsafe twin."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safepoint.attacks import naive
from safepoint.attacks.medium import Disk, Medium
from safepoint.attacks.target import BOTH, Target


class NaiveTarget(Target):
    """The unsafe twin. It has no refusals of its own; its type check is all there is.

    In memory it is what such a store is there: the same records, and the objects themselves kept
    at hand for whoever asks next.
    """

    name = "naive"
    title = "no protection"
    refusals = (TypeError,)
    media = BOTH

    def __init__(self, folder: str | Path, medium: Medium | None = None) -> None:
        super().__init__(folder, medium)
        self._at_hand: dict[bytes, Any] = {}

    def save(self, thread: str, state: dict[str, Any]) -> None:
        """Save with the unsafe twin."""
        if isinstance(self.medium, Disk):
            naive.NaiveLedger(self.path).save(thread, state)
            return
        number = len(self.records(thread)) + 1
        record = _record(thread, number, naive.encode(state))
        self.medium.write(self.place(thread, number), record)
        self._at_hand[record] = state

    def latest(self, thread: str) -> Any:
        """Load with the unsafe twin."""
        return self.load(thread, self._numbers(thread)[-1])

    def history(self, thread: str) -> list[Any]:
        """Load everything."""
        return [self.load(thread, number) for number in self._numbers(thread)]

    def load(self, thread: str, sequence: int) -> Any:
        """Load whatever has that number."""
        if isinstance(self.medium, Disk):
            return naive.NaiveLedger(self.path).load(thread, sequence).state
        record = self.medium.read(self.place(thread, sequence))
        if record in self._at_hand:
            return self._at_hand[record]
        return naive.decode(json.loads(record)["state"])

    def records(self, thread: str) -> list[str]:
        """Return the twin's files."""
        return [self.place(thread, number) for number in self._numbers(thread)]

    def _numbers(self, thread: str) -> list[int]:
        parts = [name.rsplit(".", 2) for name in self.medium.names()]
        return sorted(int(part[1]) for part in parts if part[::2] == [thread, "json"])

    def place(self, thread: str, sequence: int) -> str:
        """Return the twin's name for a record."""
        return f"{thread}.{sequence}.json"

    def pickled(self, pickle: bytes, type_name: str) -> bytes:
        """Embed the pickle where the twin looks for one."""
        encoded = base64.b64encode(pickle).decode()
        return _record("victim", 1, {"__pickled__": encoded, "__type__": type_name})


def _record(thread: str, sequence: int, state: Any) -> bytes:
    record = {
        "thread": thread,
        "sequence": sequence,
        "app": "",
        "created": datetime.now(UTC).isoformat(),
        "state": state,
    }
    return json.dumps(record).encode()
