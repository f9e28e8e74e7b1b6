"""Attacks that show the victim an earlier or another truth. Each record in it is genuine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from safepoint.attacks.kit import Attack, got, worst
from safepoint.attacks.outcome import WANTED, Outcome, step
from safepoint.attacks.past import save_steps
from safepoint.attacks.target import Target


class RestoreSnapshot(Attack):
    """Put an old copy of the store in its place."""

    id = "restore-snapshot"
    rule = "SP15"
    threat = 4
    story = "Last night's copy of the store is put back, and today's payments are made again."

    def prepare(self, target: Target) -> None:
        """Copy, let the victim go on, put the copy back."""
        target.save("victim", step(1))
        snapshot = target.medium.copy()
        target.save("victim", step(2))
        target.medium.restore(snapshot)

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == step(1))


class CutNewest(Attack):
    """Delete the newest record."""

    id = "cut-newest"
    rule = "SP15"
    threat = 5
    story = "The newest record is deleted, and the step that it recorded is taken once more."

    def prepare(self, target: Target) -> None:
        """Delete the last of three."""
        target.medium.delete(save_steps(target, 3)[-1])

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == step(2))


class CutAllButFirst(Attack):
    """Delete all records but the first."""

    id = "cut-all-but-first"
    rule = "SP15"
    threat = 5
    story = "All records but the first are deleted, and the workflow begins almost anew."

    def prepare(self, target: Target) -> None:
        """Delete the last three of four."""
        for name in save_steps(target, 4)[1:]:
            target.medium.delete(name)

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == step(1))


class DeleteThread(Attack):
    """Delete a thread with all its records."""

    id = "delete-thread"
    rule = "SP15"
    threat = 6
    story = "A thread vanishes, and an order that was paid is begun again as a new one."

    def prepare(self, target: Target) -> None:
        """Delete every record."""
        target.save("victim", step(1))
        target.save("victim", step(2))
        for name in target.records("victim"):
            target.medium.delete(name)

    def strike(self, target: Target) -> Outcome:
        """Begin the thread again."""
        target.save("victim", step(1))
        return got(target.latest("victim") == step(1))


class UndeleteThread(Attack):
    """Bring back a thread that its owner deleted."""

    id = "undelete-thread"
    rule = "SP15"
    threat = 6
    story = "A thread that was deleted on purpose comes back out of an old copy, and runs."

    def prepare(self, target: Target) -> None:
        """Copy, let the victim delete, put the copy back."""
        target.save("victim", step(1))
        snapshot = target.medium.copy()
        target.delete("victim")
        target.medium.restore(snapshot)

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == step(1))


class UndeleteByNumber(Attack):
    """Bring back the old records of a deleted thread, and ask for one by its number."""

    id = "undelete-by-number"
    rule = "SP13"
    threat = 6
    story = "A thread's old records are put back beside its tombstone, and one is asked for."

    def prepare(self, target: Target) -> None:
        """Copy, let the victim delete; keep the tombstone, and put the rest as it was."""
        save_steps(target, 2)
        before = {name: target.medium.read(name) for name in target.medium.names()}
        target.delete("victim")
        added = set(target.medium.names()) - set(before) - set(target.records("victim"))
        for name in added:
            target.medium.delete(name)
        for name, record in before.items():
            target.medium.write(name, record)

    def strike(self, target: Target) -> Outcome:
        """Load by number, and as the first of what a history hands out."""
        return worst(target, self._looks(target))

    def _looks(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        yield lambda: got(target.oldest("victim") == step(1))
        yield lambda: got(target.load("victim", 1) == step(1))


class Freeze(Attack):
    """Serve a copy that is never brought up to date."""

    id = "freeze"
    rule = "SP15"
    threat = 4
    story = "A replica stands still, and its readers are shown yesterday's head for ever."

    def prepare(self, target: Target) -> None:
        """Copy, and let the victim go on at the original."""
        target.save("victim", step(1))
        self._replica = target.medium.copy()
        target.save("victim", step(2))

    def strike(self, target: Target) -> Outcome:
        """Load from the replica."""
        return got(target.on(self._replica).latest("victim") == step(1))


class Fork(Attack):
    """Let a second process with the genuine key go on from an old copy, and swap its history in."""

    id = "fork"
    rule = "SP15"
    threat = 7
    story = "A copy of the store is continued elsewhere under the same key, then takes its place."

    def prepare(self, target: Target) -> None:
        """Continue both, the copy further, and put the copy in place of the original."""
        save_steps(target, 2)
        other = target.twin(target.medium.copy())
        target.save("victim", step(3))
        other.save("victim", step(33))
        other.save("victim", WANTED)
        target.medium.restore(other.medium)

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return got(target.latest("victim") == WANTED)
