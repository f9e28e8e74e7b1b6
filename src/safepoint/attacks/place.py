"""Attacks that move genuine records to where they do not belong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from safepoint.attacks.kit import Attack, got, worst
from safepoint.attacks.outcome import WANTED, Outcome, step
from safepoint.attacks.target import Target
from safepoint.names import MAX_SEQUENCE

_DATE = re.compile(rb"20\d\d-\d\d-\d\dT")


class SwapThreads(Attack):
    """Copy a genuine record of one thread over another thread's."""

    id = "swap-threads"
    rule = "SP02"
    threat = 2
    story = "One customer's genuine checkpoint is resumed as another customer's."

    def prepare(self, target: Target) -> None:
        """Copy the record."""
        super().prepare(target)
        target.save("attacker", WANTED)
        record = target.medium.read(target.records("attacker")[-1])
        target.medium.write(target.records("victim")[-1], record)
        target.relink("victim")

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == WANTED)


class SwapStores(Attack):
    """Copy a genuine record of another store under the same key."""

    id = "swap-stores"
    rule = "SP12"
    threat = 3
    story = "A checkpoint of the test system, sealed by the same key, is resumed in production."

    def prepare(self, target: Target) -> None:
        """Save the same thread in another store, and copy the record."""
        super().prepare(target)
        other = target.twin(target.medium.beside(), "other-store")
        other.save("victim", WANTED)
        record = other.medium.read(other.records("victim")[-1])
        target.medium.write(target.records("victim")[-1], record)
        target.relink("victim")

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == WANTED)


class ReplayOldOnTop(Attack):
    """Put an old record of a thread where its newest belongs."""

    id = "replay-old-on-top"
    rule = "SP12"
    threat = 8
    story = "The genuine record of an earlier step is copied over the newest, and paid once more."

    def prepare(self, target: Target) -> None:
        """Copy the first record over the last."""
        target.save("victim", step(1))
        target.save("victim", step(2))
        first, *_, last = target.records("victim")
        target.medium.write(last, target.medium.read(first))
        target.relink("victim")

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == step(1))


class FastForward(Attack):
    """Put a record at a sequence that nobody has reached."""

    id = "fast-forward"
    rule = "SP13"
    threat = 29
    story = "An old record is copied far ahead, and is the newest, or hides what is saved later."

    def strike(self, target: Target) -> Outcome:
        """Try the next number, one and a thousand too high, and the highest."""
        return worst(target, self._jumps(target))

    def _jumps(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        for number in (3, 4, 1_000, MAX_SEQUENCE):
            thread = f"victim-{number}"
            target.save(thread, step(1))
            target.save(thread, step(2))
            old = target.medium.read(target.records(thread)[0])
            target.medium.write(target.place(thread, number), old)
            target.relink(thread)
            yield partial(self._look, target, thread)

    def _look(self, target: Target, thread: str) -> Outcome:
        if target.latest(thread) == step(1):
            return Outcome.ACCEPTED
        target.save(thread, step(3))
        return got(target.latest(thread) != step(3))


class BackdateClock(Attack):
    """Make the newest record look like the oldest, by its date."""

    id = "backdate-clock"
    rule = "SP13"
    threat = 40
    story = "The newest record is dated 1970, so a store that sorts by date resumes the one before."

    def prepare(self, target: Target) -> None:
        """Rewrite the dates in the newest record, and the one that its file has."""
        target.save("victim", step(1))
        target.save("victim", step(2))
        name = target.records("victim")[-1]
        target.medium.write(name, _DATE.sub(b"1970-01-01T", target.medium.read(name)))
        target.relink("victim")
        target.medium.backdate(name)

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == step(1))
