"""The adversary, as code: somebody who can write the store.

`python -m safepoint.attacks` runs each attack in a process and a temporary folder of its own. Aim
them at a store of yours by writing a `Target`; `Attack.run` strikes in the process that calls it,
and if your store executes payloads, theirs run there. They make an empty folder.
"""

from __future__ import annotations

from safepoint.attacks.kit import MARKER, Attack, Outcome, Target
from safepoint.attacks.location import OpenFolder, PlantSymlink, TraverseId
from safepoint.attacks.payload import PicklePayload, PickleRightType
from safepoint.attacks.state import EditState, PlantRecord, SwapThreads
from safepoint.attacks.targets import TARGETS, NaiveTarget, SealedTarget

ATTACKS: dict[str, type[Attack]] = {
    attack.id: attack
    for attack in (
        EditState,
        PlantRecord,
        SwapThreads,
        PicklePayload,
        PickleRightType,
        TraverseId,
        PlantSymlink,
        OpenFolder,
    )
}
"""Every attack by its id."""

__all__ = [
    "ATTACKS",
    "MARKER",
    "TARGETS",
    "Attack",
    "NaiveTarget",
    "Outcome",
    "SealedTarget",
    "Target",
]
