"""Every attack on models, every built-in victim, and how one ends on the other."""

from __future__ import annotations

from safepoint.attacks.isolation import in_a_process
from safepoint.attacks.models.kit import ModelAttack
from safepoint.attacks.models.strikes import ALL
from safepoint.attacks.models.target import ModelTarget
from safepoint.attacks.models.victims import CarefulModels, NaiveModels
from safepoint.attacks.outcome import Outcome

MODEL_ATTACKS: dict[str, type[ModelAttack]] = {each.id: each for each in ALL}
"""Every attack on models by its id."""

MODEL_TARGETS: dict[str, type[ModelTarget]] = {
    each.name: each for each in (NaiveModels, CarefulModels)
}
"""The built-in victims by name."""


def outcome_of(attack: str, target: str) -> Outcome:
    """Run one attack on a built-in victim, in a process and a temporary folder of its own."""
    return in_a_process(lambda folder: MODEL_ATTACKS[attack]().run(MODEL_TARGETS[target](folder)))
