"""What the attacks are, and that each has a rule, a threat and a story."""

from __future__ import annotations

import re

import pytest

from safepoint.attacks import ATTACKS, RESIDUE, Attack, Outcome
from safepoint.attacks.isolation import isolated_outcome_of
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
    "former-owner": Outcome.ACCEPTED,
    "old-checkpoint": Outcome.ACCEPTED,
    "other-version": Outcome.ACCEPTED,
    "wider-tools": Outcome.ACCEPTED,
    "swap-request": Outcome.ACCEPTED,
    "replay-approval": Outcome.ACCEPTED,
    "journal-down": Outcome.ACCEPTED,
    "everything-in-one-folder": Outcome.ACCEPTED,
}

# The threats that a store can face. Not here: a crash or a failing disk in the middle of a save
# (23, 24) and the time that a comparison takes (31), which have tests of their own; and what comes
# with SQL (38).
FACED = {*range(1, 23), *range(25, 31), *range(32, 38), *range(39, 43)}

each_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=lambda attack: attack.id)
each_at_all = pytest.mark.parametrize(
    "attack", [*ATTACKS.values(), *RESIDUE.values()], ids=lambda attack: attack.id
)


@pytest.mark.parametrize("attack", HURTS)
def test_the_naive_twin_is_hurt(attack: str) -> None:
    assert isolated_outcome_of(attack, "naive") == HURTS[attack]


@pytest.mark.parametrize("attack", HURTS)
def test_the_sealed_store_detects(attack: str) -> None:
    assert isolated_outcome_of(attack, ATTACKS[attack].stopped_by) == Outcome.DETECTED


@each_attack
def test_an_attack_is_a_leg_of_its_rule(attack: type[Attack]) -> None:
    assert attack.id in RULES[attack.rule].legs["attack"]


@each_at_all
def test_an_attack_has_a_story(attack: type[Attack]) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", attack.id)
    assert attack.rule in RULES
    assert attack.story.endswith(".")
    assert len(attack.story) <= 90
    assert attack.__doc__


def test_there_is_an_attack_for_every_threat_that_a_store_can_face() -> None:
    assert {attack.threat for attack in ATTACKS.values()} == FACED


def test_no_two_attacks_are_one() -> None:
    every = [*ATTACKS.values(), *RESIDUE.values()]
    assert len({attack.story for attack in every}) == len(every) >= 80
    assert ATTACKS.keys().isdisjoint(RESIDUE)


@pytest.mark.parametrize("attack", RESIDUE.values(), ids=lambda attack: attack.id)
def test_the_residue_is_marked(attack: type[Attack]) -> None:
    assert attack.residue
