"""The attacks on models: each hurts the naive victim, and each is refused for the right reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint.attacks.models import MODEL_ATTACKS, CarefulModels, ModelTarget, NaiveModels
from safepoint.attacks.outcome import Outcome
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


def hurts_and_is_refused(strike: Strike, attack: str, harm: Outcome, kind: str, word: str) -> None:
    """See how it ends on the naive victim, and that the careful one refuses it once, for that."""
    assert strike(attack, NaiveModels)[0] is harm
    outcome, (line,) = strike(attack, CarefulModels)
    assert outcome is Outcome.DETECTED
    assert line.startswith(f"{kind}: ")
    assert word in line


def test_model_payload_runs_on_the_naive_loader_and_is_refused(strike: Strike) -> None:
    word = "wants os.mkdir"
    hurts_and_is_refused(strike, "model-payload", Outcome.EXECUTED, "ModelRefused", word)


def test_model_allow_list_runs_on_the_naive_loader_and_is_refused(strike: Strike) -> None:
    word = "In this process torch.load may also build posix.mkdir, for every file."
    hurts_and_is_refused(strike, "model-allow-list", Outcome.EXECUTED, "Unsafe", word)


def test_model_swapped_is_refused_by_its_seal(strike: Strike) -> None:
    word = "own.pt is not the file that was sealed. Nothing was loaded."
    hurts_and_is_refused(strike, "model-swapped", Outcome.EXECUTED, "SealBroken", word)


def test_model_edited_is_refused_by_its_seal(strike: Strike) -> None:
    word = "own.safetensors is not the file that was sealed."
    hurts_and_is_refused(strike, "model-edited", Outcome.ACCEPTED, "SealBroken", word)


def test_model_disguised_is_refused_for_its_content(strike: Strike) -> None:
    word = "is a PyTorch archive, whatever its name says."
    hurts_and_is_refused(strike, "model-disguised", Outcome.EXECUTED, "ModelRefused", word)


def test_model_unnamed_is_looked_at_whatever_it_is_called(strike: Strike) -> None:
    word = "is a pickle, and asks for os.mkdir."
    hurts_and_is_refused(strike, "model-unnamed", Outcome.ACCEPTED, "Rejected", word)


def test_model_nested_is_not_called_clean(strike: Strike) -> None:
    hurts_and_is_refused(strike, "model-nested", Outcome.ACCEPTED, "Rejected", "weights.gz")


def test_hidden_load_is_seen(strike: Strike) -> None:
    hurts_and_is_refused(strike, "hidden-load", Outcome.ACCEPTED, "Rejected", "")


def test_stray_plugin_does_not_turn_a_test_green(strike: Strike) -> None:
    """The page on loading models shows that the naive one accepts it."""
    outcome, (line,) = strike("stray-plugin", CarefulModels)
    assert (outcome, line.partition(":")[0]) == (Outcome.DETECTED, "Rejected")


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
