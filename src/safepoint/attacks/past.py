"""Attacks on what came before: the newest record stays as it is.

An operator went back to an older step and on from there, so there are two records of one number,
each of them genuine and in its place. Which of the two belongs there, only a link can say.

The victim is a careful one, who looks at the whole history. Where a store has no means to do that,
nobody notices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, get_args

from safepoint.attacks.kit import Attack, unnoticed, worst
from safepoint.attacks.outcome import WANTED, Miss, Outcome, step
from safepoint.attacks.target import Target, Trick


class _Past(Attack):
    rule = "SP14"

    def strike(self, target: Target) -> Outcome:
        """Look at everything."""
        return unnoticed(target.history("victim"))


class Reorder(_Past):
    """Swap two records in the middle for the same two in the other order."""

    id = "reorder"
    threat = 8
    story = "First approved, then asked: two steps of the past have changed places."

    def prepare(self, target: Target) -> None:
        """Take the second and the third of a try that was abandoned, which were the other way."""
        put_back(target, 1, [step(3), step(2)], [step(2), step(3), step(4)])


class DeleteMiddle(_Past):
    """Take a record out of the middle, and fill the gap with one that says nothing of it."""

    id = "delete-middle"
    threat = 9
    story = "The step that set a limit is gone, and one of an abandoned try fills its number."

    def prepare(self, target: Target) -> None:
        """Set the limit at the second try alone, and take the first."""
        put_back(target, 1, [step(2)], [{**step(2), "limit": 10}, step(3), step(4)])


class CutOldest(_Past):
    """Take the beginning away, and say that it was pruned."""

    id = "cut-oldest"
    threat = 9
    story = "The first steps are gone, and what an abandoned try was pruned to vouches for that."

    def prepare(self, target: Target) -> None:
        """Copy what a prune left; after a restart from an older step, cut there."""
        save_steps(target, 3)
        backup = target.medium.copy()
        target.prune("victim", 1)
        added = set(target.medium.names()) - set(backup.names())
        base = {name: target.medium.read(name) for name in added}
        target.medium.restore(backup)
        target.go_back("victim", 1)
        for number in (22, 33, 4):
            target.save("victim", step(number))
        names = target.records("victim")
        for name in names[:2]:
            target.medium.delete(name)
        for name, content in base.items():
            target.medium.write(name, content)
        if not base:  # the numbers must begin at 1, as if there had never been more
            for free, name in zip(names[:2], names[2:], strict=True):
                target.medium.rename(name, free)
        target.relink("victim")


class ForgedBase(_Past):
    """Cut the beginning off, and write oneself what a prune would leave."""

    id = "forged-base"
    rule = "SP13"
    threat = 9
    story = "The first steps are gone, and a note without the key says that they were pruned."

    def strike(self, target: Target) -> Outcome:
        """Forge the note in each way, or leave none; then look at everything."""
        return worst(target, self._cuts(target))

    def _cuts(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        for trick in get_args(Trick):
            thread = f"victim-{trick}"
            for number in (1, 2, 3):
                target.save(thread, step(number))
            with suppress(Miss):
                target.cut(thread, 2, trick)
                yield partial(self._look, target, thread)

    def _look(self, target: Target, thread: str) -> Outcome:
        return unnoticed(target.history(thread))


class SpliceBranches(_Past):
    """Put a record of an abandoned branch into the one that was kept."""

    id = "splice-branches"
    threat = 9
    story = "After a restart from an older step, a record of the abandoned try is put back in."

    def prepare(self, target: Target) -> None:
        """Go back from 3 to 2, go on to 4, then put the old 3 in place of the new one."""
        put_back(target, 2, [WANTED], [step(3), step(4)])


def put_back(
    target: Target, since: int, abandoned: list[dict[str, Any]], kept: list[dict[str, Any]]
) -> None:
    """Let the victim try twice after a step, and put the first try back over the second.

    Raises:
        Miss: the store does not keep them all.
    """
    save_steps(target, since)
    for state in abandoned:
        target.save("victim", state)
    old = [target.medium.read(name) for name in target.records("victim")[since:]]
    target.go_back("victim", since)
    for state in kept:
        target.save("victim", state)
    names = target.records("victim")[since:]
    if (len(old), len(names)) != (len(abandoned), len(kept)):
        raise Miss
    for name, record in zip(names, old, strict=False):
        target.medium.write(name, record)
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
