"""What an attack is, and how it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from safepoint.attacks.medium import Medium
from safepoint.attacks.outcome import HONEST, MARKER, Miss, Outcome, step
from safepoint.attacks.target import Target

Attacker = Literal["writer", "key", "resumes"]
"""What somebody has: write access, the key as well, or a run that they can resume."""
Look = Callable[[], bool]
"""What the victim does next. It raises what the store raises, and tells whether the adversary got
what they wanted."""
Plot = Callable[[Any], Iterator[Look]]
"""Lets the victim work, tampers, and yields what the victim does next; and so on. It raises `Miss`
where there is nothing to touch. What else it raises is never taken for a refusal."""


def works(target: Target, thread: str = "control") -> bool:
    """Use the store as a victim does, with nobody attacking, and tell whether it does its job."""
    for state in (HONEST, step(2)):
        target.save(thread, state)
        if target.latest(thread) != state or target.history(thread)[-1] != state:
            return False
    return True


def runs(target: Target) -> bool:
    """Use the store, interrupt a run and let it continue, and tell whether it acts."""
    target.begin("control-begun", HONEST)
    target.ask("control-asked", HONEST)
    yes = target.approve("control-asked")
    acted = [target.resume("control-begun"), target.resume("control-asked", yes)]
    return works(target) and acted == [HONEST, HONEST]


@dataclass(frozen=True)
class Attack:
    """One thing that somebody might do to a store, or to those who load models.

    Attributes:
        id: a stable name.
        rule: the rule that it shows the reason for.
        story: what happens, in one line.
        act: what is done. Of several looks of the victim the worst counts.
        about: what it has in common with those that pages show next to it.
        attacker: what somebody has who does it: `writer`, `key` or `resumes`.
        control: lets the victim do, with nobody attacking, what is attacked; tells if that works.
        needs: the kind of medium without which there is no such attack, or None.
        residue: whether nothing that a store can do detects it. The pages say so.
    """

    id: str
    rule: str
    story: str
    act: Plot
    about: str = ""
    attacker: Attacker = "writer"
    control: Callable[[Any], bool] = works
    needs: type[Medium] | None = None
    residue: bool = False

    @property
    def stopped_by(self) -> str:
        """The rung that pages show next to the naive one."""
        return "gated" if self.control is runs else "anchored"

    def run(self, target: Any) -> Outcome:
        """Have the victim work without an attack, then attack, and tell how it ended.

        A victim that does not work unharmed has crashed: its refusals would prove nothing.

        Args:
            target: a `Target`, or a `ModelTarget` for an attack on those who load models.
        """
        if self.needs is not None and not isinstance(target.medium, self.needs):
            return Outcome.NOT_APPLICABLE
        try:
            if not self.control(target):
                return Outcome.CRASHED
        except (Miss, ModuleNotFoundError):
            return Outcome.NOT_APPLICABLE
        except Exception:  # noqa: BLE001  whatever it was, it was not the attack
            return Outcome.CRASHED
        outcome = worst(target, self.act(target))
        return Outcome.EXECUTED if (target.folder / MARKER).exists() else outcome


EVERY: Final[dict[str, Attack]] = {}
"""Each attack on a store that a module of this package defines, by its id."""


def attacks(
    about: str, into: dict[str, Attack] = EVERY, **common: Any
) -> Callable[..., Callable[[Plot], Attack]]:
    """Return a decorator that makes an attack of a function, whose docstring is the story.

    The decorator takes id and rule.

    Args:
        about: what the attacks of this decorator have in common.
        into: where they are kept.
        common: more that they have in common: see `Attack`.
    """

    def named(name: str, rule: str, **special: Any) -> Callable[[Plot], Attack]:
        def keep(act: Plot) -> Attack:
            into[name] = Attack(name, rule, act.__doc__ or "", act, about, **{**common, **special})
            return into[name]

        return keep

    return named


def worst(target: Any, looks: Iterator[Look]) -> Outcome:
    """Return how the most harmful of several looks ended. One without effect counts least."""
    found = Outcome.NOT_APPLICABLE
    while True:
        try:
            look = next(looks)
        except (StopIteration, Miss):
            return found
        except Exception:  # noqa: BLE001  the adversary's own work failed
            return Outcome.CRASHED
        found = max(found, _attempt(target, look), key=[*Outcome].index)


def _attempt(target: Any, look: Look) -> Outcome:
    """Let the victim look, keep what it says if it refuses, and tell how that ended."""
    try:
        return Outcome.ACCEPTED if look() else Outcome.NOT_APPLICABLE
    except Miss:
        return Outcome.NOT_APPLICABLE
    except target.refusals as error:
        target.refused.append(f"{type(error).__name__}: {error}")
        return Outcome.DETECTED
    except Exception:  # noqa: BLE001  whatever else escapes is a crash
        return Outcome.CRASHED


def loads(target: Target, wanted: object, thread: str = "victim") -> Look:
    """Let the victim load, and see whether it gets what the adversary wants."""
    return lambda: bool(target.latest(thread) == wanted)


def resumes(target: Target, wanted: object, yes: bytes = b"", thread: str = "victim") -> Look:
    """Let a worker continue, and see whether it acts as the adversary wants."""
    return lambda: bool(target.resume(thread, yes) == wanted)


def unnoticed(look: Callable[[], object]) -> Look:
    """Let the victim look at what was tampered with: any answer is one too many."""

    def looked() -> bool:
        look()
        return True

    return looked


def saved(target: Target) -> str:
    """Let the victim save the honest state, and return the name of its record."""
    target.save("victim", HONEST)
    return target.records("victim")[-1]


def overwrite(target: Target, name: str, record: bytes, thread: str = "victim") -> None:
    """Write over a record, and mend whatever of its thread can be mended without a key."""
    target.medium.write(name, record)
    target.relink(thread)


def save_steps(target: Target, count: int, thread: str = "victim") -> list[str]:
    """Let the victim save so many steps, and return the names of their records.

    Raises:
        Miss: the store does not keep them all.
    """
    for number in range(1, count + 1):
        target.save(thread, step(number))
    names = target.records(thread)
    if len(names) != count:
        raise Miss
    return names
