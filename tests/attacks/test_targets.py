"""Targets and media: the built-in ones work unharmed, and yours takes three methods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint import Keyring, RolledBack, SigningKey
from safepoint.attacks import TARGETS, Miss, Target
from safepoint.attacks.kit import runs, works
from safepoint.attacks.outcome import FORTUNE, HONEST, WANTED, step
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
def test_a_built_in_target_does_unharmed_what_an_attack_needs(name: str, make: Make) -> None:
    """Or an attack would prove nothing: save, load, go back, prune, rotate, smuggle, delete."""
    target = make(name)
    assert works(target)
    target.by_default().save("other", HONEST)
    records = saved(target).records("victim")
    assert records == [target.place("victim", number) for number in (1, 2, 3)]
    assert set(records) < set(target.medium.names())
    assert target.history("victim") == [step(1), step(2), step(3)]
    assert [target.load("victim", number) for number in (1, 2, 3)] == target.history("victim")
    assert target.oldest("victim") == step(1)
    copy = target.twin(target.medium.copy())
    assert copy.latest("victim") == step(3)  # the same key, in another place
    assert target.twin(target.medium.beside(), "other-store").store != target.store
    target.go_back("victim", 2)
    if name in ("mac", "mac-place", "signed-chain", "anchored", "gated"):
        target.rotate()
    else:
        with pytest.raises(Miss):
            target.rotate()
    target.save("victim", step(4))
    assert target.history("victim") == [step(1), step(2), step(4)]
    if name != "mac-place":  # its numbers begin at 1: that store cannot forget
        target.prune("victim", 2)
        target.relink("victim")  # the chain without a key breaks, and anybody can mend it
        assert target.history("victim") == [step(2), step(4)]
    target.smuggle("victim", target.encoded(WANTED))
    assert target.latest("victim") == target.history("victim")[-1] == WANTED
    target.delete("victim")
    with pytest.raises(Exception):  # noqa: B017  each store says it in its own way
        target.latest("victim")
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


def went_on(target: Target, thread: str, yes: bytes = b"") -> Any:
    """What a worker did, or None where it was refused."""
    try:
        return target.resume(thread, yes)
    except target.refusals:
        return None


@each_target
def test_a_run_goes_on_once_asks_and_acts_after_a_yes_alone(name: str, make: Make) -> None:
    """With nobody attacking, every rung does as it is told."""
    target = make(name)
    assert runs(target)
    target.begin("begun", HONEST)
    target.begin("other", FORTUNE)
    seen: list[Any] = []
    done = target.resume("begun", meanwhile=lambda: seen.append(target.resume("other")))
    assert (done, seen, went_on(target, "begun")) == (HONEST, [FORTUNE], None)
    for thread in ("yes", "no", "silence"):
        target.ask(thread, FORTUNE)
        assert went_on(target, thread) is None
    target.deny("no")
    assert went_on(target, "yes", target.approve("yes")) == FORTUNE
    assert went_on(target, "no") is went_on(target, "silence") is None
    target.ask("yes", HONEST)
    assert target.resume("yes", target.approve("yes")) == HONEST
    target.ask("page", HONEST)
    target.reword("page", FORTUNE)
    page = target.look("page")
    assert "5000000" in target.shown(page)
    assert went_on(target, "page", target.press("page", page)) == FORTUNE
    for thread, said in (("yes", "dana"), ("no", "erin")):
        lines = target.journalled(thread)
        assert [line for line in lines if said in line]
        assert all(line.isprintable() for line in lines)
    assert not [line for line in target.journalled("silence") if "dana" in line]
    worker = target.own("owned", "worker-1")
    worker.save("owned", step(1))
    worker.save("owned", step(2))
    assert target.own("owned", "worker-2").latest("owned") == target.latest("owned") == step(2)


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
