"""Each attack hurts the naive twin and is detected by the sealed store."""

from __future__ import annotations

import pytest

from safepoint.attacks import ATTACKS, Attack, Outcome
from safepoint.attacks.__main__ import outcome_of
from safepoint.rules import RULES

HURTS = {
    "edit-state": Outcome.ACCEPTED,
    "plant-record": Outcome.ACCEPTED,
    "swap-threads": Outcome.ACCEPTED,
    "pickle-payload": Outcome.EXECUTED,
    "pickle-right-type": Outcome.EXECUTED,
    "traverse-id": Outcome.ACCEPTED,
    "plant-symlink": Outcome.ACCEPTED,
    "open-folder": Outcome.ACCEPTED,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_naive_twin_is_hurt(attack: str) -> None:
    assert outcome_of(attack, "naive") == HURTS[attack]


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_sealed_store_detects(attack: str) -> None:
    assert outcome_of(attack, "sealed") == Outcome.DETECTED


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=lambda attack: attack.id)
def test_an_attack_has_a_rule_and_a_story(attack: type[Attack]) -> None:
    assert attack.id in RULES[attack.rule].legs["attack"]
    assert attack.story.endswith(".")
