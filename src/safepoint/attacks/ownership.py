"""Attacks without an attacker: a worker writes what is no longer its own."""

from __future__ import annotations

from safepoint.attacks.kit import RunAttack, got
from safepoint.attacks.outcome import WANTED, Outcome, step
from safepoint.attacks.target import Target


class FormerOwner(RunAttack):
    """Let a worker that was given up for dead go on writing."""

    id = "former-owner"
    rule = "SP07"
    threat = 7
    story = "A worker that slept for an hour wakes up, and writes over its successor's work."

    def prepare(self, target: Target) -> None:
        """Let one worker take a thread over from another."""
        self._former = target.own("victim", "worker-1")
        self._former.save("victim", step(1))
        successor = target.own("victim", "worker-2")
        successor.save("victim", step(2))

    def strike(self, target: Target) -> Outcome:
        """Let the first one save."""
        self._former.save("victim", WANTED)
        return got(target.latest("victim") == WANTED)


class SecondWriter(RunAttack):
    """Let a process write that owns nothing."""

    id = "second-writer"
    rule = "SP07"
    threat = 7
    story = "A script writes the state of a run that a worker is busy with, and nothing objects."

    def prepare(self, target: Target) -> None:
        """Let a worker own a thread."""
        target.own("victim", "worker-1").save("victim", step(1))

    def strike(self, target: Target) -> Outcome:
        """Save, without asking who owns it."""
        target.save("victim", WANTED)
        return got(target.latest("victim") == WANTED)
