"""What nothing in a store can detect. These run as well, so that nobody claims otherwise.

Each is a class with `residue = True`. The rule that it names is the one that helps elsewhere.
"""

from __future__ import annotations

from safepoint.attacks.kit import Attack, got
from safepoint.attacks.outcome import WANTED, Outcome, step
from safepoint.attacks.past import save_steps
from safepoint.attacks.target import Target


class CutUnanchored(Attack):
    """Delete what is newer than the last anchor."""

    id = "cut-unanchored"
    rule = "SP15"
    threat = 5
    story = "The anchor moves after every hundredth record, and the ones since then are deleted."
    residue = True

    def prepare(self, target: Target) -> None:
        """Let the victim anchor seldom, and delete the newest record."""
        cheap = target.seldom()
        for number in (1, 2, 3):
            cheap.save("victim", step(number))
        target.medium.delete(target.records("victim")[-1])

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.seldom().latest("victim") == step(2))


class StolenKeyAppend(Attack):
    """Append with a stolen key that nobody misses."""

    id = "stolen-key-append"
    rule = "SP08"
    threat = 10
    story = "A thief of the key appends a new record, and nobody knows yet that it was stolen."
    residue = True

    def prepare(self, target: Target) -> None:
        """Append as the victim would."""
        target.save("victim", step(1))
        target.twin(target.medium).save("victim", WANTED)

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == WANTED)


class CompromisedWorker(Attack):
    """Let the worker itself save what the attacker wants."""

    id = "compromised-worker"
    rule = "SP19"
    threat = 10
    story = "The worker runs the attacker's code, and seals and anchors what it is told to."
    residue = True

    def prepare(self, target: Target) -> None:
        """Save through the front door."""
        target.save("victim", step(1))
        target.save("victim", WANTED)

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == WANTED)


class UnpruneThread(Attack):
    """Bring back what was pruned."""

    id = "unprune-thread"
    rule = "SP13"
    threat = 6
    story = "Old steps that were dropped on purpose come back out of a copy, genuine as they are."
    residue = True

    def prepare(self, target: Target) -> None:
        """Copy, let the victim prune, put the copy back."""
        save_steps(target, 3)
        snapshot = target.medium.copy()
        target.prune("victim", 1)
        target.medium.restore(snapshot)

    def strike(self, target: Target) -> Outcome:
        """Look at everything."""
        return got(target.history("victim")[0] == step(1))
