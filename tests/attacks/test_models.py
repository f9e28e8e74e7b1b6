"""The attacks on models: each hurts the naive victim, and each is refused for the right reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint.attacks import Attack
from safepoint.attacks.models import MODEL_ATTACKS, CarefulModels, ModelTarget, NaiveModels
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


def refusal(strike: Strike, attack: str) -> str:
    """Return the one refusal of the careful victim."""
    outcome, refused = strike(attack, CarefulModels)
    assert outcome is Outcome.DETECTED
    (line,) = refused
    return line


def test_model_payload_runs_on_the_naive_loader_and_is_refused(strike: Strike) -> None:
    assert strike("model-payload", NaiveModels)[0] is Outcome.EXECUTED
    line = refusal(strike, "model-payload")
    assert line.startswith("ModelRefused: ")
    assert "wants os.mkdir" in line


def test_model_allow_list_runs_on_the_naive_loader_and_is_refused(strike: Strike) -> None:
    assert strike("model-allow-list", NaiveModels)[0] is Outcome.EXECUTED
    line = refusal(strike, "model-allow-list")
    assert line.startswith(
        "Unsafe: In this process torch.load may also build posix.mkdir, for every file."
    )


def test_model_swapped_is_refused_by_its_seal(strike: Strike) -> None:
    assert strike("model-swapped", NaiveModels)[0] is Outcome.EXECUTED
    line = refusal(strike, "model-swapped")
    assert line.startswith("SealBroken: ")
    assert line.endswith(
        "own.pt is not the file that was sealed as own. Nothing was loaded. Find out who can write"
        " it, then restore the one that verifies."
    )


def test_model_edited_is_refused_by_its_seal(strike: Strike) -> None:
    assert strike("model-edited", NaiveModels)[0] is Outcome.ACCEPTED
    line = refusal(strike, "model-edited")
    assert line.startswith("SealBroken: ")
    assert "own.safetensors is not the file that was sealed as own." in line


def test_model_disguised_is_refused_for_its_content(strike: Strike) -> None:
    assert strike("model-disguised", NaiveModels)[0] is Outcome.EXECUTED
    line = refusal(strike, "model-disguised")
    assert line.startswith("ModelRefused: ")
    assert "is a PyTorch archive, whatever its name says." in line


def test_model_unnamed_is_looked_at_whatever_it_is_called(strike: Strike) -> None:
    assert strike("model-unnamed", NaiveModels)[0] is Outcome.ACCEPTED
    assert "is a pickle, and asks for os.mkdir." in refusal(strike, "model-unnamed")


def test_model_nested_is_not_called_clean(strike: Strike) -> None:
    assert strike("model-nested", NaiveModels)[0] is Outcome.ACCEPTED
    assert "weights.gz" in refusal(strike, "model-nested")


def test_hidden_load_is_seen(strike: Strike) -> None:
    assert strike("hidden-load", NaiveModels)[0] is Outcome.ACCEPTED
    assert refusal(strike, "hidden-load").startswith("Rejected: ")


def test_stray_plugin_does_not_turn_a_test_green(strike: Strike) -> None:
    """The page on loading models shows that the naive one accepts it."""
    assert refusal(strike, "stray-plugin").startswith("Rejected: ")


def test_every_attack_has_a_test_here() -> None:
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    for attack in MODEL_ATTACKS:
        assert any(test.startswith(attack.replace("-", "_")) for test in tests), attack


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
