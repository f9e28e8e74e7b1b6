"""Attacks on where checkpoints lie. They need a disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from safepoint.attacks.kit import Attack, got, unnoticed, worst
from safepoint.attacks.medium import Disk
from safepoint.attacks.outcome import Outcome
from safepoint.attacks.target import Target


class _Location(Attack):
    rule = "SP04"
    needs = Disk

    def strike(self, target: Target) -> Outcome:
        """Load."""
        return unnoticed(target.latest("victim"))


class PlantSymlink(_Location):
    """Replace a record by a link to a file elsewhere."""

    id = "plant-symlink"
    threat = 14
    story = "A record becomes a symbolic link, and the store reads a file from somewhere else."

    def prepare(self, target: Target) -> None:
        """Move the genuine record out of the store and link to it."""
        super().prepare(target)
        file = _newest(target)
        elsewhere = target.folder / "elsewhere"
        file.rename(elsewhere)
        file.symlink_to(elsewhere)


class PlantHardLink(_Location):
    """Give a record a second name elsewhere."""

    id = "plant-hard-link"
    threat = 15
    story = "A record has a second name outside the store, and can be changed under that one."

    def prepare(self, target: Target) -> None:
        """Link."""
        super().prepare(target)
        (target.folder / "elsewhere").hardlink_to(_newest(target))


class OpenFolder(_Location):
    """Use a folder that everybody can write."""

    id = "open-folder"
    threat = 18
    story = "The store's folder is open to every user of the machine, and nobody is told."

    def prepare(self, target: Target) -> None:
        """Open the folder's mode."""
        super().prepare(target)
        target.path.chmod(0o777)


class PlantTemp(_Location):
    """Lay a link where the next save will write."""

    id = "plant-temp"
    threat = 14
    story = "The next save follows a planted link, and overwrites a file outside the store."

    def strike(self, target: Target) -> Outcome:
        """Try each name that the store is about to write, then save."""
        return worst(target, self._looks(target))

    def _looks(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        for number, name in enumerate(target.ahead("victim")):
            snapshot = target.medium.copy()
            planted = target.path / name
            outside = target.folder / f"outside-{number}"
            if planted.is_dir():
                planted.rename(target.folder / f"moved-{number}")
                outside.mkdir()
            else:
                outside.write_bytes(b"precious")
            planted.symlink_to(outside)
            yield partial(self._look, target, outside)
            target.medium.restore(snapshot)

    def _look(self, target: Target, outside: Path) -> Outcome:
        before = _content(outside)
        target.save("victim", {"amount": 43})
        return got(_content(outside) != before)


class TraverseId(_Location):
    """Let a thread's name climb out of the folder."""

    id = "traverse-id"
    threat = 17
    story = "A thread named ../outside writes a file next to the store's folder."

    def strike(self, target: Target) -> Outcome:
        """Save under a name that climbs, and look what appeared outside."""
        before = set(target.folder.iterdir())
        target.save("../outside", {"amount": 42})
        return got(set(target.folder.iterdir()) != before)


def _newest(target: Target) -> Path:
    return target.path / target.records("victim")[-1]


def _content(path: Path) -> object:
    return list(path.iterdir()) if path.is_dir() else path.read_bytes()
