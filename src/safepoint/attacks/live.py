"""Attacks while the store is in use: on what it keeps at hand, and between two of its reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from safepoint.attacks.kit import Attack, got, worst
from safepoint.attacks.medium import Memory
from safepoint.attacks.outcome import HONEST, WANTED, Outcome
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
    story = "A store that reads twice checks the genuine record, and then uses another one."

    def prepare(self, target: Target) -> None:
        """Get another record ready."""
        super().prepare(target)
        self._name = target.records("victim")[-1]
        self._other = target.edit(target.medium.read(self._name), b"alice", b"mally")

    def strike(self, target: Target) -> Outcome:
        """Load, with the other record there from the second read on, from the third, and so on.

        A store that reads once leaves no gap to step into.
        """
        return worst(target, self._loads(target))

    def _loads(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        reads: list[str] = []

        def serve(asked: str, record: bytes) -> bytes:
            if asked != self._name:
                return record
            reads.append(asked)
            return self._other if len(reads) > genuine else record

        target.medium.tap = serve
        genuine = 1_000
        target.latest("victim")
        for genuine in range(1, len(reads)):  # noqa: B007  serve looks at it
            reads.clear()
            yield lambda: got(target.latest("victim") == WANTED)
        target.medium.tap = None
