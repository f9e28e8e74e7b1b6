"""Attacks while the store is in use: on what it keeps at hand, and between two of its reads."""

from __future__ import annotations

from safepoint.attacks.kit import Attack, got
from safepoint.attacks.medium import Memory
from safepoint.attacks.outcome import HONEST, WANTED, Miss, Outcome
from safepoint.attacks.target import Target


class Aliasing(Attack):
    """Change the object that was saved, not the store."""

    id = "aliasing"
    rule = "SP13"
    threat = 39
    story = "The store keeps the very object, so whoever still holds it changes the past."
    needs = Memory

    def strike(self, target: Target) -> Outcome:
        """Change what was saved, then what was loaded."""
        saved = dict(HONEST)
        target.save("victim", saved)
        saved.update(WANTED)
        loaded = target.latest("victim")
        if loaded != WANTED:
            loaded.update(WANTED)
        return got(target.latest("victim") == WANTED)


class TimeOfCheck(Attack):
    """Replace a record after it was checked and before it is used."""

    id = "time-of-check"
    rule = "SP02"
    threat = 16
    story = "The record is genuine when it is checked, and another one when it is loaded."

    def prepare(self, target: Target) -> None:
        """Get another record ready, and serve the genuine one exactly once."""
        super().prepare(target)
        name = target.records("victim")[-1]
        genuine = target.medium.read(name)
        other = target.edit(genuine, b"alice", b"mally")
        self._served = 0

        def serve(asked: str, record: bytes) -> bytes:
            if asked != name:
                return record
            self._served += 1
            return genuine if self._served == 1 else other

        target.medium.tap = serve

    def strike(self, target: Target) -> Outcome:
        """Load twice: a store that reads once is shown the other record at its second load."""
        if target.latest("victim") == WANTED:
            return Outcome.ACCEPTED
        if not self._served:
            raise Miss  # this store does not read through the medium
        return got(target.latest("victim") == WANTED)
