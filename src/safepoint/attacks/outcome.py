"""What the victim saves, what the adversary wants, and how it can end."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

MARKER: Final = "marker"
"""The one thing that a payload of this package does: it makes an empty folder of this name."""

HONEST: Final[dict[str, Any]] = {"amount": 42, "payee": "alice"}
"""The state that the victim saves."""

WANTED: Final[dict[str, Any]] = {"amount": 42, "payee": "mally"}
"""The state that the adversary wants to be resumed. It has the same length: no offset moves."""

FORTUNE: Final[dict[str, Any]] = {"amount": 5_000_000, "payee": "alice"}
"""What nobody would say yes to."""


def step(number: int) -> dict[str, Any]:
    """Return the state of the victim after so many steps."""
    return {**HONEST, "step": number}


class Outcome(StrEnum):
    """How an attack ended, from the best to the worst."""

    NOT_APPLICABLE = "not applicable"
    """The attack found nothing to touch, or what it did had no effect."""
    DETECTED = "detected"
    """The store refused, with an error of its own. Only a refusal counts."""
    CRASHED = "crashed"
    """The store raised something that it did not mean to raise."""
    ACCEPTED = "accepted"
    """The store handed out what the attacker wanted."""
    EXECUTED = "executed"
    """Code of the attacker's ran."""

    @property
    def succeeded(self) -> bool:
        """Whether the attacker got something: a state, a run of their code, or a dead worker."""
        return self in (Outcome.ACCEPTED, Outcome.EXECUTED, Outcome.CRASHED)


class Miss(Exception):
    """The attack found nothing to touch."""
