"""The kit itself: it must not call a store safe that is not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from safepoint.attacks import (
    ATTACKS,
    MARKER,
    RESIDUE,
    TARGETS,
    Attack,
    GatedTarget,
    Miss,
    Outcome,
    SealedTarget,
    Target,
    command,
    ladder,
)
from safepoint.attacks.kit import Look, Plot
from safepoint.attacks.ladder import outcome_of
from safepoint.attacks.models import MODEL_ATTACKS
from safepoint.attacks.network import NETWORK_ATTACKS
from safepoint.attacks.outcome import HONEST, WANTED
from safepoint.command.cli import main
from safepoint.core.errors import SealBroken, Unavailable

REFUSAL = SealBroken("It is refused.", "Always.")


def attack_of(act: Plot) -> Attack:
    return Attack("a-test", "SP01", "A test.", act)


def ended(target: Target, *steps: object) -> Outcome:
    """How an attack ended that looks and tampers so: a bool is what a look tells, an error in a
    list what it raises, and an error as it is what the tampering raises."""

    def act(_: Target) -> Iterator[Look]:
        for step in steps:
            if isinstance(step, Exception):
                raise step
            yield partial(told, step)

    def told(step: Any) -> bool:
        if isinstance(step, list):
            raise step[0]
        return bool(step)

    return attack_of(act).run(target)


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [
        ([], "not applicable"),
        ([False], "not applicable"),
        ([[REFUSAL]], "detected"),
        ([[KeyError("x")]], "crashed"),
        ([[Miss()]], "not applicable"),
        ([REFUSAL], "crashed"),  # nobody looked: it is no detection
        ([[REFUSAL], REFUSAL], "crashed"),
        ([[REFUSAL], Miss()], "detected"),
        ([False, [REFUSAL]], "detected"),
        ([[KeyError("x")], [REFUSAL]], "crashed"),
        ([True, [KeyError("x")], [REFUSAL]], "accepted"),
    ],
)
def test_of_several_looks_the_most_harmful_counts(
    tmp_path: Path, steps: list[object], outcome: str
) -> None:
    target = SealedTarget(tmp_path)
    found = ended(target, *steps)
    assert found == outcome
    assert found.succeeded == (outcome in ("accepted", "crashed"))
    if outcome == "detected":
        assert target.refused == ["SealBroken: It is refused. Always."]


def test_a_refusal_after_the_payload_ran_counts_as_executed(tmp_path: Path) -> None:
    target = SealedTarget(tmp_path)
    (target.folder / MARKER).mkdir()
    assert ended(target, [REFUSAL]) is Outcome.EXECUTED
    assert Outcome.EXECUTED.succeeded


def refuses(*_: Any, **__: Any) -> Any:
    raise REFUSAL


@pytest.mark.parametrize(
    ("kind", "method", "broken"),
    [
        (SealedTarget, "latest", refuses),
        (SealedTarget, "latest", lambda *_: HONEST),  # it hands out an old state
        (GatedTarget, "resume", lambda *_, **__: None),  # no run ever acts
        (GatedTarget, "resume", lambda *_, **__: WANTED),
    ],
)
def test_a_store_that_does_not_work_unharmed_has_not_detected_an_attack(
    kind: type[Target],
    method: str,
    broken: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kind, method, broken)
    attack = ATTACKS["edit-state" if method == "latest" else "wider-tools"]
    assert attack.run(kind(tmp_path)) is Outcome.CRASHED


def test_a_refusal_after_the_deed_is_not_a_detection(tmp_path: Path) -> None:
    """The journal is lost between the gate and the save, and the payment in between was made."""
    target = GatedTarget(tmp_path)
    target.begin("victim", HONEST)
    assert target.resume("victim", meanwhile=target.journal.lose) == HONEST
    with pytest.raises(Unavailable, match="journal could not be written"):
        target.resume("victim")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    """Return the words of each line that the command prints."""
    assert main(["attack", *arguments]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_the_command_compares_with_the_rungs_that_stop_the_attacks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(capsys, "wider-tools", "edit-state", "compromised-worker") == [
        ["attack", "naive", "anchored", "gated"],
        ["wider-tools", "accepted", "accepted", "detected"],
        ["edit-state", "accepted", "detected", "detected"],
        ["compromised-worker", "accepted", "accepted", "accepted"],  # no failure: nothing can
    ]
    head, cut = run(capsys, "--target", "ladder", "cut-newest")
    assert (head, cut[1:]) == (["attack", *TARGETS], ["accepted"] * 7 + ["detected"] * 2)
    assert run(capsys, "fork", "--target", "mac")[1] == ["fork", "accepted"]
    assert run(capsys, "aliasing")[1] == ["aliasing", "accepted", "-"]
    groups = {"stores": ATTACKS, "residue": RESIDUE, "models": MODEL_ATTACKS}
    for group, attacks in {**groups, "network": NETWORK_ATTACKS}.items():
        assert len(run(capsys, "--list", group)) == len(attacks)
    assert len(run(capsys, "--list")) == len(ATTACKS)
    assert len(run(capsys, "--list", "edit-state", "residue")) == len(RESIDUE) + 1
    assert run(capsys, "network", "--target", "verify-full")[0] == ["attack", "verify-full"]
    wrong = (["edit-state", "model-edited"], ["models", "nothing"], ["nothing"])
    for names in (*wrong, ["network", "--target", "naive"]):
        assert main(["attack", *names]) == 2


@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.CRASHED, Outcome.EXECUTED])
def test_the_command_fails_if_a_rung_lets_through_what_it_should_stop(
    monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    monkeypatch.setattr(command, "outcome_of", lambda *_, **__: outcome)
    assert main(["attack", "edit-state"]) == 1
    assert main(["attack", "edit-state", "--target", "naive"]) == 0
    assert main(["attack", "edit-state", "--target", "gated"]) == 1
    assert main(["attack", "wider-tools"]) == 1
    assert main(["attack", "wider-tools", "--target", "anchored"]) == 0


def test_an_attack_runs_in_a_process_of_its_own_which_may_die_or_hang(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    note = tmp_path / "note"

    def act(target: Target) -> Iterator[Look]:
        os.write(1, b"something")
        note.write_text(str(os.getpid()))
        yield lambda: True
        if target.name == "allow-list":
            time.sleep(600)
        elif target.name == "encrypted":
            os.kill(os.getpid(), signal.SIGKILL)

    attack = attack_of(act)
    assert outcome_of(attack, TARGETS["naive"]) is Outcome.ACCEPTED
    assert int(note.read_text()) != os.getpid()
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(ladder, "_PATIENCE", 3.0)
    assert outcome_of(attack, TARGETS["encrypted"]) is Outcome.CRASHED
    assert outcome_of(attack, TARGETS["allow-list"]) is Outcome.CRASHED
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
