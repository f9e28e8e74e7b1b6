"""What an attack on models is, and how it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

from safepoint.attacks.kit import attempt
from safepoint.attacks.models.target import ModelTarget
from safepoint.attacks.outcome import MARKER, Miss, Outcome

WEIGHTS: Final = (1.0, 2.0, 3.0)
"""What the victim's model is made of."""


class ModelAttack(ABC):
    """One thing that somebody might do to those who load models.

    Attributes:
        id: a stable name.
        rule: the rule that it shows the reason for.
        story: what happens, in one line.
    """

    id: ClassVar[str]
    rule: ClassVar[str]
    story: ClassVar[str]

    def control(self, target: ModelTarget) -> bool:
        """Let the victim do, with nobody attacking, what is attacked next; tell if that works."""
        return same(target.load(target.save("control", state())), WEIGHTS)

    @abstractmethod
    def strike(self, target: ModelTarget) -> Outcome:
        """Attack. Raise what the victim raises."""

    def run(self, target: ModelTarget) -> Outcome:
        """Let the victim work without an attack, then strike, and tell how it ended."""
        try:
            if not self.control(target):
                return Outcome.CRASHED
        except (Miss, ModuleNotFoundError):
            return Outcome.NOT_APPLICABLE
        except Exception:  # noqa: BLE001  whatever it was, it was not the attack
            return Outcome.CRASHED
        outcome = attempt(target, lambda: self.strike(target))
        return Outcome.EXECUTED if (target.folder / MARKER).exists() else outcome


def state() -> dict[str, Any]:
    """Return the victim's model."""
    import torch

    return {"weight": torch.tensor(WEIGHTS)}


def same(loaded: Any, weights: tuple[float, ...]) -> bool:
    """Tell whether what was loaded is a model of these weights."""
    return list(loaded) == ["weight"] and tuple(loaded["weight"].tolist()) == weights
