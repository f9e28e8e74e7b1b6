"""Attacks on what came before: the newest record stays as it is.

The victim is a careful one, who looks at the whole history. Where a store has no means to do that,
nobody notices.
"""

from __future__ import annotations

from itertools import pairwise

from safepoint.attacks.kit import Attack, unnoticed
from safepoint.attacks.outcome import WANTED, Miss, Outcome, step
from safepoint.attacks.target import Target


class _Past(Attack):
    rule = "SP14"

    def strike(self, target: Target) -> Outcome:
        """Look at everything."""
        return unnoticed(target.history("victim"))


class Reorder(_Past):
    """Swap two records in the middle."""

    id = "reorder"
    threat = 8
    story = "First approved, then asked: two steps of the past have changed places."

    def prepare(self, target: Target) -> None:
        """Swap the second and the third of four."""
        names = save_steps(target, 4)
        second, third = target.medium.read(names[1]), target.medium.read(names[2])
        target.medium.write(names[1], third)
        target.medium.write(names[2], second)
        target.relink("victim")


class DeleteMiddle(_Past):
    """Take a record out of the middle, and close the gap."""

    id = "delete-middle"
    threat = 9
    story = "The step in which a limit was set is gone from the history, and the rest moved up."

    def prepare(self, target: Target) -> None:
        """Move each later record one place down."""
        names = save_steps(target, 4)
        for earlier, later in pairwise(names[1:]):
            target.medium.rename(later, earlier)
        target.relink("victim")


class CutOldest(_Past):
    """Take the beginning away."""

    id = "cut-oldest"
    threat = 9
    story = "The first steps of a thread are gone, and with them who asked for it."

    def prepare(self, target: Target) -> None:
        """Delete the first two of four, and move the rest down where names can be foretold."""
        names = save_steps(target, 4)
        for name in names[:2]:
            target.medium.delete(name)
        for free, name in zip(names[:2], names[2:], strict=True):
            target.medium.rename(name, free)
        target.relink("victim")


class SpliceBranches(_Past):
    """Put a record of an abandoned branch into the one that was kept."""

    id = "splice-branches"
    threat = 9
    story = "After a restart from an older step, a record of the abandoned try is put back in."

    def prepare(self, target: Target) -> None:
        """Go back from 3 to 2, go on to 4, then put the old 3 in place of the new one."""
        save_steps(target, 2)
        target.save("victim", WANTED)
        abandoned = target.medium.read(target.records("victim")[2])
        target.go_back("victim", 2)
        target.save("victim", step(3))
        target.save("victim", step(4))
        target.medium.write(target.records("victim")[2], abandoned)
        target.relink("victim")


def save_steps(target: Target, count: int) -> list[str]:
    """Let the victim save so many steps, and return the names of their records.

    Raises:
        Miss: the store does not keep them all.
    """
    for number in range(1, count + 1):
        target.save("victim", step(number))
    names = target.records("victim")
    if len(names) != count:
        raise Miss
    return names
