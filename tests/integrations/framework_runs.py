"""Attacks on what only a run of a framework has: questions, answers, and what tasks wrote.

Whoever does them can write the store, and has no key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from safepoint.attacks import Attack
from safepoint.attacks.kit import Look, attacks
from safepoint.attacks.outcome import FORTUNE, HONEST
from tests.integrations.framework_stores import Run

RUN_ATTACKS: Final[dict[str, Attack]] = {}
"""Each by its id."""


def pays(target: Run) -> bool:
    """Let two runs end without an attack: one pays, once, and one is above its limit."""
    for thread, order, paid in (("control", HONEST, 42), ("control-high", FORTUNE, None)):
        target.pause(thread, order)
        if target.go_on(thread) is not None or target.go_on(thread, yes=True) != paid:
            return False
    return len(target.reserved) in (0, 2)


run = attacks("Attacks on a run that waits.", into=RUN_ATTACKS, control=pays)


def _paid(target: Run) -> Look:
    """Let the run go on, without an answer, and see whether it pays."""
    return lambda: target.go_on("victim") is not None


@run("forged-answer", "SP19")
def forged_answer(target: Run) -> Iterator[Look]:
    """An approval that nobody gave is written as the answer to the question, and the run pays."""
    target.pause("victim")
    stranger = target.stranger()
    stranger.pause("victim")
    stranger.go_on("victim", yes=True)
    target.give("victim", stranger.answer("victim"), forged=True)
    yield _paid(target)


@run("replayed-write", "SP19")
def replayed_write(target: Run) -> Iterator[Look]:
    """The genuine approval of one order is copied to another, and the run pays."""
    target.pause("other")
    target.go_on("other", yes=True)
    target.pause("victim")
    target.give("victim", target.answer("other"), forged=False)
    yield _paid(target)


@run("dropped-write", "SP14")
def dropped_write(target: Run) -> Iterator[Look]:
    """A finished task's writes are removed, and the task makes its reservation again."""
    target.pause("victim")
    target.reserved.clear()
    target.drop("victim")

    def again() -> bool:
        target.go_on("victim", yes=True)
        return bool(target.reserved)

    yield again


@run("attached-write", "SP12")
def attached_write(target: Run) -> Iterator[Look]:
    """What one task wrote is filed under the task that asks, which then counts as done."""
    target.pause("victim")
    target.attach("victim")
    yield _paid(target)


@run("changed-tag", "SP10")
def changed_tag(target: Run) -> Iterator[Look]:
    """The type tag of the limit is changed, and the run pays above it."""
    target.pause("victim", FORTUNE)
    target.retag("victim")
    yield lambda: target.go_on("victim", yes=True) is not None


@run("moved-parent", "SP14")
def moved_parent(target: Run) -> Iterator[Look]:
    """The newest checkpoint names another parent, and the step with the answer is left out."""
    target.pause("victim")
    target.go_on("victim", yes=True)
    first = target.reparent("victim")
    yield lambda: target.parent("victim") == first


@run("edited-metadata", "SP12")
def edited_metadata(target: Run) -> Iterator[Look]:
    """The metadata name another user, and a filter finds the run under that name."""
    target.pause("victim")
    target.remark("victim")
    yield lambda: target.metadata("victim")["user"] == "mally"
