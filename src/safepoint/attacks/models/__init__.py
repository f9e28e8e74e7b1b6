"""The adversary of those who load models: somebody who can hand them a file, or a change.

`safepoint attack --models` runs each attack in a process and a temporary folder of its
own. Aim them at a loader of yours by writing a `ModelTarget`.
"""

from __future__ import annotations

from safepoint.attacks.models.catalogue import MODEL_ATTACKS, MODEL_TARGETS, outcome_of
from safepoint.attacks.models.kit import ModelAttack
from safepoint.attacks.models.target import ModelTarget
from safepoint.attacks.models.victims import CarefulModels, NaiveModels

__all__ = [
    "MODEL_ATTACKS",
    "MODEL_TARGETS",
    "CarefulModels",
    "ModelAttack",
    "ModelTarget",
    "NaiveModels",
    "outcome_of",
]
