"""The ladder, computed: each rung stops something, and only the top stops everything."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from safepoint.attacks import ATTACKS, RESIDUE, TARGETS, Disk, Memory, Outcome, defeats, matrix
from safepoint.attacks.kit import EVERY
from safepoint.attacks.ladder import outcome_of
from safepoint.attacks.rungs import TOP, SealedTarget
from safepoint.keys import Keyring, SigningKey
from safepoint.rules import RULES
from tests.harness.ladder import on

BELOW = [name for name in TARGETS if name != TOP]
MEDIA = {"disk": Disk, "memory": Memory}

# Bytes have no alias, and whoever reads once leaves no time between check and use. There is
# nothing to refuse, and nothing came of it.
NOTHING_TO_REFUSE = {"aliasing", "time-of-check"}

each_attack = pytest.mark.parametrize("attack", ATTACKS)
each_residue = pytest.mark.parametrize("attack", RESIDUE)
each_medium = pytest.mark.parametrize("medium", MEDIA)


def applies(attack: str, medium: str) -> bool:
    """Tell whether there is such an attack on such a medium."""
    return ATTACKS[attack].needs in (None, MEDIA[medium])


@each_medium
@each_attack
def test_the_top_detects_every_attack_that_applies(attack: str, medium: str) -> None:
    outcome = on(medium)[0][attack][TOP]
    if not applies(attack, medium) or attack in NOTHING_TO_REFUSE:
        assert outcome is Outcome.NOT_APPLICABLE
    else:
        assert outcome is Outcome.DETECTED


@each_attack
def test_an_attack_hurts_a_rung_below_the_top(attack: str) -> None:
    """Or it proves nothing."""
    rows = [on(medium)[0][attack] for medium in MEDIA if applies(attack, medium)]
    assert any(row[rung].succeeded for row in rows for rung in BELOW)


@pytest.mark.parametrize("rung", BELOW)
@each_medium
def test_a_rung_falls_to_an_attack_that_the_next_one_detects(rung: str, medium: str) -> None:
    """Or the next rung is not worth its page."""
    assert defeats({name: on(medium)[0][name] for name in ATTACKS})[rung]


@pytest.mark.parametrize(
    ("rung", "attack", "outcome"),
    [
        ("naive", "pickle-payload", "executed"),
        ("naive", "duplicate-keys", "accepted"),
        ("naive", "not-a-number", "accepted"),
        ("allow-list", "plant-record", "accepted"),
        ("encrypted", "edit-state", "accepted"),
        ("hash-chain", "edit-and-rehash", "accepted"),
        ("mac", "swap-threads", "accepted"),
        ("mac", "swap-stores", "accepted"),
        ("mac", "replay-old-on-top", "accepted"),
        ("mac", "other-bytes", "accepted"),
        ("mac", "strip-signature", "accepted"),
        ("mac", "algorithm-downgrade", "accepted"),
        ("mac", "key-substitution", "accepted"),
        ("mac-place", "splice-branches", "accepted"),
        ("mac-place", "reorder", "accepted"),
        ("mac-place", "delete-middle", "accepted"),
        ("mac-place", "secret-in-error", "accepted"),
        ("mac-place", "oversized-record", "accepted"),
        ("mac-place", "deep-nesting", "crashed"),
        ("signed-chain", "restore-snapshot", "accepted"),
        ("signed-chain", "cut-newest", "accepted"),
        ("signed-chain", "delete-thread", "accepted"),
        ("signed-chain", "fork", "accepted"),
        ("signed-chain", "stolen-key-rewrite", "accepted"),
        ("signed-chain", "retired-key", "accepted"),
        ("signed-chain", "thief-prunes", "accepted"),
        ("signed-chain", "stolen-key-undelete", "accepted"),
        ("signed-chain", "rollback-denial", "accepted"),
        ("anchored", "former-owner", "accepted"),
        ("anchored", "second-writer", "accepted"),
        ("anchored", "old-checkpoint", "accepted"),
        ("anchored", "other-version", "accepted"),
        ("anchored", "wider-tools", "accepted"),
        ("anchored", "changed-tool", "accepted"),
        ("anchored", "wider-permissions", "accepted"),
        ("anchored", "ride-along", "accepted"),
        ("anchored", "stranger-approval", "accepted"),
        ("anchored", "self-approval", "accepted"),
        ("anchored", "swap-request", "accepted"),
        ("anchored", "change-request", "accepted"),
        ("anchored", "reuse-approval", "accepted"),
        ("anchored", "race-approval", "accepted"),
        ("anchored", "expired-approval", "accepted"),
        ("anchored", "journal-down", "accepted"),
        ("anchored", "journal-edit", "accepted"),
        ("anchored", "journal-cut", "accepted"),
        ("anchored", "journal-inject", "accepted"),
        ("anchored", "journal-plant", "accepted"),
    ],
)
@each_medium
def test_the_rung_above_is_there_for_this_attack(
    rung: str, attack: str, outcome: str, medium: str
) -> None:
    row = on(medium)[0][attack]
    above = list(TARGETS)[list(TARGETS).index(rung) + 1]
    assert row[rung] == outcome
    assert row[above] is Outcome.DETECTED


# The threats that a store can face. Not here: a crash or a failing disk in the middle of a save
# (23, 24) and the time that a comparison takes (31), which have tests of their own; and what comes
# with SQL (38).
FACED = {*range(1, 23), *range(25, 31), *range(32, 38), *range(39, 43)}


def test_an_attack_is_a_leg_of_its_rule_and_has_a_threat_and_a_story_of_its_own() -> None:
    every = ATTACKS | RESIDUE
    assert [*ATTACKS, *RESIDUE] == list(every)
    assert every.keys() == EVERY.keys()
    for name, attack in every.items():
        assert attack.id == name
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
        assert attack.residue is (name in RESIDUE)
        assert attack.residue or name in RULES[attack.rule].legs["attack"]
        assert re.fullmatch(r".{1,89}\.", attack.story)
        assert attack.about.endswith(".")
    assert len({attack.story for attack in every.values()}) == len(every) == 80
    assert {attack.threat for attack in ATTACKS.values()} == FACED


@each_medium
def test_only_a_store_that_reads_twice_can_be_deceived_between_the_two(medium: str) -> None:
    row = on(medium)[0]["time-of-check"]
    assert {rung for rung, outcome in row.items() if outcome.succeeded} == {"hash-chain"}
    assert set(row.values()) == {Outcome.ACCEPTED, Outcome.NOT_APPLICABLE}


@each_medium
@each_residue
def test_the_top_does_not_detect_the_residue(attack: str, medium: str) -> None:
    """If this fails, something got better: say so on the page."""
    assert on(medium)[0][attack][TOP] is Outcome.ACCEPTED


def test_code_runs_on_the_lowest_rung_alone() -> None:
    ran = {
        (attack, target)
        for medium in MEDIA
        for attack, row in on(medium)[0].items()
        for target, outcome in row.items()
        if outcome is Outcome.EXECUTED
    }
    assert {target for _, target in ran} == {"naive"}
    assert {"pickle-payload", "unknown-type", "row-chooses-decoder"} <= {a for a, _ in ran}


@each_medium
def test_nothing_is_left_behind(medium: str) -> None:
    assert on(medium)[1] == []
    assert [name for name in sys.modules if name.startswith("sentinel_")] == []
    assert [entry for entry in sys.path if "safepoint-attack-" in entry] == []


NO_PROCESS_IS_LEFT = """
    import os
    from safepoint.attacks import matrix
    from safepoint.attacks.ladder import isolated_outcome_of

    matrix(["race-approval", "journal-down"], in_memory=True)
    isolated_outcome_of("pickle-payload", "naive")
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("none is left")
"""


def test_no_process_is_left_behind() -> None:
    code = textwrap.dedent(NO_PROCESS_IS_LEFT)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "none is left\n"


def test_the_matrix_is_what_the_cells_are() -> None:
    few = ["edit-state", "cut-newest"]
    assert matrix(few, BELOW) == {
        attack: {target: on("disk")[0][attack][target] for target in BELOW} for attack in few
    }
    assert matrix(["aliasing"], ["naive"], in_memory=True) == {
        "aliasing": {"naive": Outcome.ACCEPTED}
    }


def test_defeats_counts_what_falls_and_is_detected_one_rung_up() -> None:
    got, seen, none = Outcome.ACCEPTED, Outcome.DETECTED, Outcome.NOT_APPLICABLE
    rungs = list(TARGETS)
    found = defeats(
        {
            "a": dict(zip(rungs, [got, seen, *[none] * 7], strict=True)),
            "b": dict(zip(rungs, [Outcome.CRASHED, seen, *[none] * 7], strict=True)),
            "c": dict(zip(rungs, [none, seen, *[none] * 7], strict=True)),
            "d": dict(zip(rungs, [got, none, *[none] * 7], strict=True)),
        }
    )
    assert found == {"naive": ["a", "b"], **{rung: [] for rung in rungs[1:-1]}}


def test_defeats_computes_the_matrix_if_it_is_not_given_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("safepoint.attacks.ladder.matrix", lambda: on("disk")[0])
    assert defeats() == defeats(on("disk")[0])


class Ed25519Target(SealedTarget):
    """The rung below the top, with the other kind of key."""

    name = "ed25519"

    def __init__(self, folder: str | Path, medium: Memory | None = None) -> None:
        super().__init__(folder, medium)
        self.keys = Keyring(SigningKey.generate("ed25519"))


@each_attack
def test_the_kind_of_key_makes_no_difference(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The top itself seals with Ed25519, so that its writer could sign an approval."""
    monkeypatch.setitem(TARGETS, "ed25519", Ed25519Target)
    expected = on("memory")[0][attack]["anchored"]
    assert outcome_of(attack, "ed25519", in_memory=True) is expected


@each_medium
@each_attack
def test_the_rung_that_pages_show_stops_the_attack(attack: str, medium: str) -> None:
    row = on(medium)[0][attack]
    assert row[ATTACKS[attack].stopped_by] is row[TOP]


@each_medium
def test_the_gate_changes_nothing_about_the_store(medium: str) -> None:
    """The page shows one column for both."""
    for attack, row in on(medium)[0].items():
        if (ATTACKS | RESIDUE)[attack].stopped_by == "anchored":
            assert row["gated"] is row["anchored"]


@each_medium
@pytest.mark.parametrize(
    "attack", [name for name, attack in ATTACKS.items() if attack.stopped_by == TOP]
)
def test_what_the_gate_stops_hurts_the_naive_twin(attack: str, medium: str) -> None:
    assert on(medium)[0][attack]["naive"] is Outcome.ACCEPTED
