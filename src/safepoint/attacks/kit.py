"""What an attack is, what it is aimed at, and how it can end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from safepoint.errors import CheckpointError

MARKER = "marker"
"""The one thing that a payload of this package does: it makes an empty folder of this name."""


class Outcome(StrEnum):
    """How an attack ended."""

    DETECTED = "detected"
    """The store refused, with an error of its own. Only a refusal counts."""
    ACCEPTED = "accepted"
    """The store handed out what the attacker wanted."""
    EXECUTED = "executed"
    """Code of the attacker's ran."""
    CRASHED = "crashed"
    """The store raised something that it did not mean to raise."""
    NOT_APPLICABLE = "not applicable"
    """The attack found nothing to touch, or what it did had no effect."""


class Target(ABC):
    """A store under attack: how a victim uses it, and what an adversary who can write it sees.

    Subclass this to aim the attacks at a store of your own.

    Attributes:
        name: what the target is called in tables.
        folder: a temporary folder. The store is at `folder / "store"`, and nothing of the store
            may lie elsewhere.
        refusals: the errors by which this store refuses. Anything else counts as a crash.
    """

    name: ClassVar[str]
    refusals: ClassVar[tuple[type[Exception], ...]] = (CheckpointError,)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def store(self) -> Path:
        """The folder that the adversary can write."""
        return self.folder / "store"

    @abstractmethod
    def save(self, thread: str, state: dict[str, Any]) -> None:
        """The victim saves a state."""

    @abstractmethod
    def latest(self, thread: str) -> Any:
        """The victim, in a new process, loads the newest state."""

    @abstractmethod
    def file_of(self, thread: str, sequence: int) -> Path:
        """The adversary finds the file of a record."""

    @abstractmethod
    def forge(self, thread: str, state: dict[str, Any]) -> bytes:
        """The adversary writes a record of their own, as well as they can without a key."""

    def pickled(self, pickle: bytes, type_name: str) -> bytes | None:
        """The adversary writes a record that carries a pickle; None if the format has no room."""
        del pickle, type_name
        return None


class Attack(ABC):
    """One thing that somebody who can write the store might do.

    Attributes:
        id: a stable name.
        rule: the rule that it shows the reason for.
        story: what happens, in one line.
    """

    id: ClassVar[str]
    rule: ClassVar[str]
    story: ClassVar[str]

    @abstractmethod
    def strike(self, target: Target) -> Outcome:
        """Use the store, tamper with it, use it again. Raise what the store raises."""

    def run(self, target: Target) -> Outcome:
        """Use the store once without an attack, then strike, and tell how it ended.

        A store that does not work unharmed has crashed: its refusals would prove nothing.
        """
        marker = target.folder / MARKER
        try:
            target.save("control", {"amount": 7})
            if target.latest("control") != {"amount": 7}:
                return Outcome.CRASHED
        except Exception:  # noqa: BLE001  whatever it was, it was not the attack
            return Outcome.CRASHED
        try:
            outcome = self.strike(target)
        except target.refusals:
            outcome = Outcome.DETECTED
        except Exception:  # noqa: BLE001  whatever else escapes is a crash
            outcome = Outcome.CRASHED
        return Outcome.EXECUTED if marker.exists() else outcome
