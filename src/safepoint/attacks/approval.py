"""Attacks on a person's yes: made up, meant for something else, or used once too often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import get_args

from safepoint.attacks.kit import RunAttack, got, worst
from safepoint.attacks.outcome import FORTUNE, HONEST, Miss, Outcome
from safepoint.attacks.target import Target, Trick


class _Yes(RunAttack):
    rule = "SP19"


class ForgeApproval(_Yes):
    """Make up the yes that nobody gave."""

    id = "forge-approval"
    threat = 42
    story = "Nobody was asked: whoever can write the store writes the yes as well."

    def strike(self, target: Target) -> Outcome:
        """Forge it in each way, and let a worker go on."""
        return worst(target, self._forged(target))

    def _forged(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        for trick in get_args(Trick):
            thread = f"victim-{trick}"
            target.ask(thread, FORTUNE)
            with suppress(Miss):
                yes = target.counterfeit(thread, FORTUNE, trick)
                yield partial(_resumed, target, thread, yes)


class StrangerApproval(_Yes):
    """Let somebody say yes who has no say in it."""

    id = "stranger-approval"
    threat = 42
    story = "Somebody who may not approve payments says yes, and nobody looks who it was."

    def prepare(self, target: Target) -> None:
        """Let mally approve, under her own name."""
        target.ask("victim", FORTUNE)
        self._yes = target.approve("victim", "mally")

    def strike(self, target: Target) -> Outcome:
        """Go on."""
        return _resumed(target, "victim", self._yes)


class SelfApproval(_Yes):
    """Let the worker say yes to itself."""

    id = "self-approval"
    threat = 36
    story = "The worker asks, and answers itself: whoever may write the state writes the yes."

    def strike(self, target: Target) -> Outcome:
        """Say yes with the writer's key in each way, and go on."""
        return worst(target, self._said(target))

    def _said(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        target.ask("victim", FORTUNE)
        for yes in target.self_approve("victim", FORTUNE):
            yield partial(_resumed, target, "victim", yes)


class SwapRequest(_Yes):
    """Show the person something else than what they say yes to."""

    id = "swap-request"
    threat = 42
    story = "A person sees 42 and says yes, and the worker pays 5,000,000."

    def prepare(self, target: Target) -> None:
        """Ask for much, and show little."""
        target.ask("victim", FORTUNE)
        self._yes = target.approve("victim", shown=HONEST)

    def strike(self, target: Target) -> Outcome:
        """Go on."""
        return _resumed(target, "victim", self._yes)


class ChangeRequest(_Yes):
    """Ask for little, and for much once the yes is there."""

    id = "change-request"
    threat = 42
    story = "After the yes to 42 the run asks for 5,000,000, and finds a yes in its state."

    def prepare(self, target: Target) -> None:
        """Get a yes to one request, and let the run make another."""
        target.ask("victim", HONEST)
        self._yes = target.approve("victim")
        target.resume("victim", self._yes)
        target.ask("victim", FORTUNE)

    def strike(self, target: Target) -> Outcome:
        """Go on with the first yes."""
        return _resumed(target, "victim", self._yes)


class ReplayApproval(_Yes):
    """Use one user's yes for another user."""

    id = "replay-approval"
    threat = 35
    story = "The yes to one customer's refund is copied, and another customer is refunded."

    def prepare(self, target: Target) -> None:
        """Let two ask for the same, and one get a yes; copy it, or the record that holds it."""
        target.ask("victim", FORTUNE)
        target.ask("attacker", FORTUNE)
        self._yes = target.approve("victim")
        if not self._yes:
            record = target.medium.read(target.records("victim")[-1])
            target.medium.write(target.records("attacker")[-1], record)
            target.relink("attacker")

    def strike(self, target: Target) -> Outcome:
        """Go on with the other thread."""
        return _resumed(target, "attacker", self._yes)


class ReuseApproval(_Yes):
    """Use a yes twice."""

    id = "reuse-approval"
    threat = 35
    story = "One yes pays twice: the run asks for the same once more, and nobody is asked."

    def prepare(self, target: Target) -> None:
        """Act on a yes, and ask again."""
        target.ask("victim", FORTUNE)
        self._yes = target.approve("victim")
        target.resume("victim", self._yes)
        target.ask("victim", FORTUNE)

    def strike(self, target: Target) -> Outcome:
        """Go on with the same yes."""
        return _resumed(target, "victim", self._yes)


class RaceApproval(_Yes):
    """Let two workers use one yes at the same time."""

    id = "race-approval"
    threat = 35
    story = "Two workers see the same yes at the same moment, and both of them pay."

    def strike(self, target: Target) -> Outcome:
        """Let a second worker go on between the decision of the first and its deed.

        It brings the same yes; or none, as one does that takes the first for dead.
        """
        return worst(target, self._races(target))

    def _races(self, target: Target) -> Iterator[Callable[[], Outcome]]:
        for thread, brings_it in (("victim-1", True), ("victim-2", False)):
            target.ask(thread, FORTUNE)
            yes = target.approve(thread)
            yield partial(self._race, target, thread, yes, yes if brings_it else b"")

    def _race(self, target: Target, thread: str, yes: bytes, also: bytes) -> Outcome:
        paid: list[object] = []

        def other() -> None:
            paid.append(target.resume(thread, also))

        paid.append(target.resume(thread, yes, meanwhile=other))
        return got(paid == [FORTUNE, FORTUNE])


class ExpiredApproval(_Yes):
    """Use a yes that was given long ago."""

    id = "expired-approval"
    threat = 35
    story = "A yes of last year, which everybody has forgotten, is used today."

    def prepare(self, target: Target) -> None:
        """Get a yes that is a year old."""
        target.ask("victim", FORTUNE)
        self._yes = target.approve("victim", ago=timedelta(days=365))

    def strike(self, target: Target) -> Outcome:
        """Go on."""
        return _resumed(target, "victim", self._yes)


class RollbackDenial(_Yes):
    """Cut off the no, and go on with the yes before it."""

    id = "rollback-denial"
    rule = "SP16"
    threat = 5
    story = "The newest record says that somebody denied it. It is deleted, and the run goes on."

    def prepare(self, target: Target) -> None:
        """Get a yes, then a no; delete what the no left."""
        target.ask("victim", FORTUNE)
        self._yes = target.approve("victim")
        before = set(target.records("victim"))
        target.deny("victim")
        for name in set(target.records("victim")) - before:
            target.medium.delete(name)

    def strike(self, target: Target) -> Outcome:
        """Go on with the yes."""
        return _resumed(target, "victim", self._yes)


def _resumed(target: Target, thread: str, yes: bytes) -> Outcome:
    return got(target.resume(thread, yes) == FORTUNE)
