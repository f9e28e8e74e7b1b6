"""Targets and media: the built-in ones work unharmed, and yours takes three methods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from safepoint import Keyring, RolledBack, SigningKey
from safepoint.attacks import TARGETS, Target
from safepoint.attacks.kit import runs, works
from safepoint.attacks.outcome import FORTUNE, step
from safepoint.attacks.rungs import GatedTarget, SignedChainTarget
from safepoint.core.errors import SealBroken

Make = Callable[[str], Target]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda name: TARGETS[name](tmp_path)


each_target = pytest.mark.parametrize("name", TARGETS)


def saved(target: Target, count: int = 3) -> Target:
    for number in range(1, count + 1):
        target.save("victim", step(number))
    return target


@each_target
def test_a_built_in_target_works_unharmed(name: str, make: Make) -> None:
    """Or an attack would prove nothing. Each operation of an attack shows in the ladder's table."""
    target = make(name)
    assert works(target)
    assert runs(target)
    assert target.title


@pytest.mark.parametrize("name", ["signed-chain", "anchored"])
def test_a_cut_with_a_forged_base_lacks_the_key_alone(
    name: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sealed by a key that the victim trusts, the same base is believed."""
    target = saved(make(name))
    assert isinstance(target, SignedChainTarget)
    own = SigningKey.generate()
    monkeypatch.setattr(SigningKey, "generate", lambda: own)
    target.cut("victim", 2)
    with pytest.raises(SealBroken, match="base #2"):
        target.history("victim")
    target.keys = Keyring(target.keys.signing, verify=[own])
    assert target.history("victim") == [step(2), step(3)]


def test_a_thief_has_neither_anchor_nor_journal_and_a_replica_has(make: Make) -> None:
    """A thief who could move the anchor would prove that it detects less than it does."""
    target = saved(make("gated"), 1)
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


def test_a_counterfeit_yes_on_the_top_lacks_the_key_alone(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made with a key that counts, the same statement is believed."""
    target = make("gated")
    assert isinstance(target, GatedTarget)
    target.ask("victim", FORTUNE)
    monkeypatch.setattr(SigningKey, "generate", lambda _="": target.people["dana"])
    assert target.resume("victim", target.counterfeit("victim", FORTUNE)) == FORTUNE


def test_a_self_made_yes_on_the_top_lacks_only_the_key(make: Make) -> None:
    """With dana's key it counts, brought along or in a note: she has signed this very question."""
    target = make("gated")
    assert isinstance(target, GatedTarget)
    for thread, as_note in (("victim-1", False), ("victim-2", True)):
        target.ask(thread, FORTUNE)
        keys, target.keys = target.keys, Keyring(target.people["dana"], verify=[*target.keys])
        said = target.self_approve(thread, FORTUNE)
        yes = next(said)
        target.keys = keys
        assert target.resume(thread, next(said) if as_note else yes) == FORTUNE
