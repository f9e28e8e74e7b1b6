"""Attacks with the genuine key, which somebody copied."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from safepoint.attacks.kit import Attack, got, worst
from safepoint.attacks.outcome import WANTED, Outcome, step
from safepoint.attacks.past import save_steps
from safepoint.attacks.target import Target


class StolenKeyRewrite(Attack):
    """Write the whole thread again, with the genuine key."""

    id = "stolen-key-rewrite"
    rule = "SP15"
    threat = 10
    story = "A thief of the key writes another past, complete and correctly sealed."

    def prepare(self, target: Target) -> None:
        """Write another thread of the same name elsewhere, and copy it over."""
        save_steps(target, 2)
        thief = target.twin(target.medium.beside())
        for state in (step(1), step(2), WANTED):
            thief.save("victim", state)
        for name in thief.medium.names():
            target.medium.write(name, thief.medium.read(name))

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == WANTED)


class RetiredKey(Attack):
    """Append with a key that was replaced because it was lost."""

    id = "retired-key"
    rule = "SP08"
    threat = 10
    story = "The key was replaced after a theft, and what the thief seals with the old one counts."

    def prepare(self, target: Target) -> None:
        """Copy the key, let the operator rotate, and append with the copy."""
        save_steps(target, 2)
        thief = target.twin(target.medium)
        target.rotate()
        thief.save("victim", WANTED)

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == WANTED)


class ThiefPrunes(Attack):
    """Cut the beginning off with a key that was replaced because it was lost."""

    id = "thief-prunes"
    rule = "SP08"
    threat = 10
    story = "The key was replaced after a theft, and the thief prunes with it what is in the way."

    def prepare(self, target: Target) -> None:
        """Copy the key, let the operator rotate, and prune with the copy."""
        for thread in ("victim-1", "victim-2"):
            for number in (1, 2, 3):
                target.save(thread, step(number))
        thief = target.twin(target.medium)
        target.rotate()
        thief.prune("victim-1", 1)
        thief.prune("victim-2", 2)

    def strike(self, target: Target) -> Outcome:
        """Look at everything."""
        return worst(target, self._looks(target))

    def _looks(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        yield lambda: got(target.history("victim-1") == [step(3)])
        yield lambda: got(target.history("victim-2") == [step(2), step(3)])


class StolenKeyUndelete(Attack):
    """Go on where the thread was deleted."""

    id = "stolen-key-undelete"
    rule = "SP13"
    threat = 10
    story = "A thief of the key puts a record after the tombstone, and the deleted thread goes on."

    def prepare(self, target: Target) -> None:
        """Let the victim delete, and append."""
        save_steps(target, 2)
        target.delete("victim")
        target.smuggle("victim", json.dumps(WANTED, separators=(",", ":")).encode())

    def strike(self, target: Target) -> Outcome:
        """Load, and look at everything."""
        return worst(target, self._looks(target))

    def _looks(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        yield lambda: got(target.latest("victim") == WANTED)
        yield lambda: got(target.history("victim")[-1] == WANTED)
