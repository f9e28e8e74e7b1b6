"""Attacks by the name of a thread. They need a disk, and what it makes of a name."""

from __future__ import annotations

import unicodedata
from pathlib import PurePosixPath

from safepoint.attacks.kit import Attack, got
from safepoint.attacks.medium import Disk
from safepoint.attacks.outcome import WANTED, Outcome
from safepoint.attacks.target import Target


class CaseFoldId(Attack):
    """Name a thread like another one, in capitals."""

    id = "case-fold-id"
    rule = "SP04"
    threat = 19
    story = "On a disk that does not tell capitals apart, VICTIM and victim are one file."
    needs = Disk

    def strike(self, target: Target) -> Outcome:
        """Save, and see whether two records would be one on such a disk."""
        target.save("VICTIM", WANTED)
        names = target.medium.names()
        return got(len({name.casefold() for name in names}) < len(names))


class UnicodeId(Attack):
    """Name a thread like another one, in other code points."""

    id = "unicode-id"
    rule = "SP04"
    threat = 20
    story = "Two spellings of one accented name are two threads here, and one file elsewhere."
    needs = Disk

    def strike(self, target: Target) -> Outcome:
        """Save both, and see whether two records would be one on a disk that normalises."""
        for form in ("NFC", "NFD"):
            target.save(unicodedata.normalize(form, "café"), WANTED)
        names = target.medium.names()
        return got(len({unicodedata.normalize("NFC", name) for name in names}) < len(names))


class DeviceNameId(Attack):
    """Name a thread like a device."""

    id = "device-name-id"
    rule = "SP04"
    threat = 21
    story = "A thread named con or nul is saved here, and goes to a device on Windows."
    needs = Disk

    def strike(self, target: Target) -> Outcome:
        """Save, and look for a file that would be a device there."""
        for device in ("con", "nul"):
            target.save(device, WANTED)
        parts = {part.partition(".")[0] for n in target.medium.names() for part in _parts(n)}
        return got(not parts.isdisjoint(("con", "nul")))


class NewlineId(Attack):
    """Put a line break into the name of a thread."""

    id = "newline-id"
    rule = "SP04"
    threat = 30
    story = "A line break in a name writes a second line into every log that shows the name."
    needs = Disk

    def strike(self, target: Target) -> Outcome:
        """Save, and look for the line break in a name."""
        target.save("victim\npaid by alice", WANTED)
        return got(any("\n" in name for name in target.medium.names()))


def _parts(name: str) -> tuple[str, ...]:
    return PurePosixPath(name).parts
