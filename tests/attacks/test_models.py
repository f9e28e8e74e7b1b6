"""The attacks on models: each hurts the naive victim, and each is refused for the right reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint.attacks import Attack
from safepoint.attacks.models import (
    MODEL_ATTACKS,
    CarefulModels,
    ModelTarget,
    NaiveModels,
)
from safepoint.attacks.outcome import Outcome
from safepoint.rules import RULES
from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install '.[torch]'")

Strike = Callable[[str, type[ModelTarget]], tuple[Outcome, list[str]]]


@pytest.fixture
def strike(tmp_path: Path) -> Strike:
    """Run an attack on a victim, and return how it ended and what the victim said."""

    def run(attack: str, victim: type[ModelTarget]) -> tuple[Outcome, list[str]]:
        folder = tmp_path / f"{attack}-{victim.name}"
        folder.mkdir()
        target = victim(folder)
        return MODEL_ATTACKS[attack].run(target), target.refused

    return run


EXECUTED, ACCEPTED = Outcome.EXECUTED, Outcome.ACCEPTED
ENDS: dict[str, tuple[Outcome | None, str, str]] = {
    "model-payload": (EXECUTED, "ModelRefused", "wants os.mkdir"),
    "model-allow-list": (EXECUTED, "Unsafe", "torch.load may also build posix.mkdir, for every"),
    "model-swapped": (EXECUTED, "SealBroken", "own.pt is not the file that was sealed as own."),
    "model-edited": (ACCEPTED, "SealBroken", "own.safetensors is not the file that was sealed"),
    "model-disguised": (EXECUTED, "ModelRefused", "is a PyTorch archive, whatever its name says."),
    "model-unnamed": (ACCEPTED, "Rejected", "is a pickle, and asks for os.mkdir."),
    "model-nested": (ACCEPTED, "Rejected", "weights.gz"),
    "hidden-load": (ACCEPTED, "Rejected", ""),
    "stray-plugin": (None, "Rejected", ""),  # the page on loading models shows the naive one
}
"""How it ends for the naive victim, and the one refusal of the careful one."""


@pytest.mark.parametrize("attack", MODEL_ATTACKS)
def test_an_attack_hurts_the_naive_victim_and_is_refused_for_its_own_reason(
    attack: str, strike: Strike
) -> None:
    naive, error, words = ENDS[attack]
    assert naive in (None, strike(attack, NaiveModels)[0] if naive else None)
    outcome, (line,) = strike(attack, CarefulModels)
    assert outcome is Outcome.DETECTED
    assert line.startswith(f"{error}: ")
    assert words in line


@pytest.mark.parametrize("attack", MODEL_ATTACKS.values(), ids=lambda attack: attack.id)
def test_an_attack_names_its_rule_and_the_rule_names_it(attack: Attack) -> None:
    assert attack.id in RULES[attack.rule].legs["attack"]
    assert attack.story.endswith(".")


class OnlyLoads(ModelTarget):
    """A loader of somebody's own, with the two methods that every target has."""

    name = "only-loads"
    refusals = (ValueError,)

    def save(self, name: str, state: dict[str, Any]) -> Path:
        import torch

        file = self.path / name
        torch.save(state, file)
        return file

    def load(self, file: Path) -> Any:
        import torch

        with file.open("rb") as opened:
            return torch.load(opened, weights_only=False)


def test_a_target_of_two_methods_meets_what_it_can(tmp_path: Path) -> None:
    outcomes = {}
    for attack in MODEL_ATTACKS.values():
        folder = tmp_path / attack.id
        folder.mkdir()
        outcomes[attack.id] = attack.run(OnlyLoads(folder))
    assert outcomes == {
        "model-payload": Outcome.EXECUTED,
        "model-allow-list": Outcome.EXECUTED,
        "model-swapped": Outcome.NOT_APPLICABLE,
        "model-edited": Outcome.ACCEPTED,
        "model-disguised": Outcome.EXECUTED,
        "model-unnamed": Outcome.NOT_APPLICABLE,
        "model-nested": Outcome.NOT_APPLICABLE,
        "hidden-load": Outcome.NOT_APPLICABLE,
        "stray-plugin": Outcome.NOT_APPLICABLE,
    }


def test_a_payload_that_ran_counts_whatever_the_loader_says_afterwards(tmp_path: Path) -> None:
    class TooLate(OnlyLoads):
        def load(self, file: Path) -> Any:
            loaded = super().load(file)
            if loaded is None:
                raise ValueError
            return loaded

    assert MODEL_ATTACKS["model-payload"].run(TooLate(tmp_path)) is Outcome.EXECUTED
