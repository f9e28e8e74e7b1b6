"""What an attack is, and how it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar, Protocol

from safepoint.attacks.medium import Medium
from safepoint.attacks.outcome import FROM_BEST_TO_WORST, HONEST, MARKER, Miss, Outcome, step
from safepoint.attacks.target import Target


class Bungled(Exception):
    """The adversary's own work failed, which is never taken for a refusal."""


class Refusing(Protocol):
    """What refuses with errors of its own, and keeps what it said."""

    refusals: ClassVar[tuple[type[Exception], ...]]
    refused: list[str]


class Attack(ABC):
    """One thing that somebody who can write the store might do.

    Attributes:
        id: a stable name.
        rule: the rule that it shows the reason for.
        threat: its number in our list of threats.
        story: what happens, in one line.
        needs: the kind of medium without which there is no such attack, or None.
        residue: whether nothing that a store can do detects it. The pages say so.
        stopped_by: the rung that pages show next to the naive one.
    """

    id: ClassVar[str]
    rule: ClassVar[str]
    threat: ClassVar[int] = 0
    story: ClassVar[str]
    needs: ClassVar[type[Medium] | None] = None
    residue: ClassVar[bool] = False
    stopped_by: ClassVar[str] = "anchored"

    def control(self, target: Target) -> bool:
        """Let the victim do, with nobody attacking, what is attacked next; tell if that works."""
        return works(target)

    def prepare(self, target: Target) -> None:
        """Let the victim work, and tamper. What is raised here is never taken for a refusal."""
        target.save("victim", HONEST)

    @abstractmethod
    def strike(self, target: Target) -> Outcome:
        """Let the victim use the store again. Raise what the store raises."""

    def run(self, target: Target) -> Outcome:
        """Use the store without an attack, then prepare and strike, and tell how it ended.

        A store that does not work unharmed has crashed: its refusals would prove nothing.
        """
        if self.needs is not None and not isinstance(target.medium, self.needs):
            return Outcome.NOT_APPLICABLE
        try:
            if not self.control(target):
                return Outcome.CRASHED
            self.prepare(target)
        except Miss:
            return Outcome.NOT_APPLICABLE
        except Exception:  # noqa: BLE001  whatever it was, it was not the attack
            return Outcome.CRASHED
        outcome = attempt(target, lambda: self.strike(target))
        return Outcome.EXECUTED if (target.folder / MARKER).exists() else outcome


class RunAttack(Attack):
    """One thing that somebody might do to a run while it is interrupted, or waits for people."""

    stopped_by = "gated"

    def control(self, target: Target) -> bool:
        """Use the store, then let one run go on after a crash and another after a yes."""
        return works(target) and runs(target)

    def prepare(self, target: Target) -> None:
        """Leave everything to the strike."""


def works(target: Target) -> bool:
    """Use the store as a victim does, with nobody attacking, and tell whether it does its job."""
    for state in (HONEST, step(2)):
        target.save("control", state)
        if target.latest("control") != state or target.history("control")[-1] != state:
            return False
    return True


def runs(target: Target) -> bool:
    """Interrupt a run and let it go on, with nobody attacking, and tell whether it acts."""
    target.begin("control-begun", HONEST)
    target.ask("control-asked", HONEST)
    yes = target.approve("control-asked")
    acted = [target.resume("control-begun"), target.resume("control-asked", yes)]
    return acted == [HONEST, HONEST]


def attempt(target: Refusing, look: Callable[[], Outcome]) -> Outcome:
    """Let the victim look, and tell how that ended."""
    try:
        return look()
    except Miss:
        return Outcome.NOT_APPLICABLE
    except target.refusals as error:
        target.refused.append(f"{type(error).__name__}: {error}")
        return Outcome.DETECTED
    except Exception:  # noqa: BLE001  whatever else escapes is a crash
        return Outcome.CRASHED


def worst(target: Target, tries: Iterator[Callable[[], Outcome]]) -> Outcome:
    """Return how the most harmful of several tries ended. One without effect counts least.

    Args:
        target: the store.
        tries: tampers, then yields what the victim does next, and so on. It ends with a `Miss`
            where there is nothing more to touch.

    Raises:
        Bungled: the tampering failed.
    """
    found = Outcome.NOT_APPLICABLE
    while True:
        try:
            look = next(tries)
        except (StopIteration, Miss):
            return found
        except Exception as error:
            raise Bungled from error
        found = max(found, attempt(target, look), key=FROM_BEST_TO_WORST.index)


def got(it: bool) -> Outcome:
    """Tell whether the adversary got what they wanted, or nothing happened."""
    return Outcome.ACCEPTED if it else Outcome.NOT_APPLICABLE


def unnoticed(seen: object) -> Outcome:
    """Say that the victim looked at a store that was tampered with, and nothing was refused."""
    del seen
    return Outcome.ACCEPTED
