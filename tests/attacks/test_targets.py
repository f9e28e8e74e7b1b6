"""Targets and media: the built-in ones work unharmed, and yours takes three methods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from safepoint import RolledBack
from safepoint.attacks import TARGETS, Target
from safepoint.attacks.outcome import step
from safepoint.attacks.rungs import GatedTarget

Make = Callable[[str], Target]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda name: TARGETS[name](tmp_path)


def test_a_thief_has_neither_anchor_nor_journal_and_a_replica_has(make: Make) -> None:
    """A thief who could move the anchor would prove that it detects less than it does."""
    target = make("gated")
    target.save("victim", step(1))
    assert isinstance(target, GatedTarget)
    replica = target.on(target.medium.copy())
    target.twin(target.medium).save("victim", step(2))
    target.medium.delete(target.records("victim")[-1])
    assert target.latest("victim") == step(1)
    target.save("victim", step(2))
    with pytest.raises(RolledBack, match="the anchor has seen"):
        replica.latest("victim")
    thief = target.by_default(target.medium.copy())
    assert thief.keys.signing.id != target.keys.signing.id
    assert thief.anchor is not target.anchor
    assert thief.written is None
