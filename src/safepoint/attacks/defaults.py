"""The attack on where a store keeps its parts when nobody says where."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from safepoint.attacks.kit import Attack, got, worst
from safepoint.attacks.medium import Disk
from safepoint.attacks.outcome import WANTED, Outcome, step
from safepoint.attacks.target import Target


class EverythingInOneFolder(Attack):
    """Use all that lies in the folder in which the records end up by default."""

    id = "everything-in-one-folder"
    rule = "SP22"
    threat = 4
    story = "By default key and anchor lie with the records, and whoever writes there has all."
    needs = Disk

    def prepare(self, target: Target) -> None:
        """Leave it to the victim's own set-up, which comes first."""

    def strike(self, target: Target) -> Outcome:
        """Take the folder back to an earlier day, then write it anew with the key found there."""
        return worst(target, self._looks(target))

    def _looks(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        victim = target.by_default()
        victim.save("victim", step(1))
        before = victim.medium.copy()
        victim.save("victim", step(2))
        after = victim.medium.copy()
        victim.medium.restore(before)
        yield lambda: got(victim.latest("victim") == step(1))
        # The same application on a copy of the folder: it has the key if that lies there.
        thief = target.by_default(after)
        try:
            thief.save("victim", WANTED)
        except target.refusals:
            _write_anew(thief)
        victim.medium.restore(thief.medium)
        yield lambda: got(victim.latest("victim") == WANTED)


def _write_anew(thief: Target) -> None:
    """Write another past with a key of one's own: the best that is left without the genuine one."""
    for name in thief.records("victim"):
        thief.medium.delete(name)
    for state in (step(1), step(2), WANTED):
        thief.save("victim", state)
