"""The adversary, as code: somebody who can write the store.

`safepoint attack` runs each attack in a process and a temporary folder of its own. Aim
them at a store of yours by writing a `Target`; `Attack.run` strikes in the process that calls it,
and if your store executes payloads, theirs run there. They make an empty folder.
"""

from __future__ import annotations

from safepoint.attacks.home_made import NaiveTarget
from safepoint.attacks.kit import Attack
from safepoint.attacks.ladder import ATTACKS, RESIDUE
from safepoint.attacks.medium import Disk, Medium
from safepoint.attacks.outcome import MARKER, Miss, Outcome
from safepoint.attacks.rungs import TARGETS, GatedTarget, SealedTarget
from safepoint.attacks.target import Target

__all__ = [
    "ATTACKS",
    "MARKER",
    "RESIDUE",
    "TARGETS",
    "Attack",
    "Disk",
    "GatedTarget",
    "Medium",
    "Miss",
    "NaiveTarget",
    "Outcome",
    "SealedTarget",
    "Target",
]
