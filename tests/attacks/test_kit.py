"""The kit itself: it must not call a store safe that is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safepoint import JournalUnavailable, RecordMalformed
from safepoint.attacks import (
    ATTACKS,
    MARKER,
    RESIDUE,
    Attack,
    GatedTarget,
    Memory,
    Miss,
    NaiveTarget,
    Outcome,
    SealedTarget,
    Target,
    isolation,
)
from safepoint.attacks import command as command_line
from safepoint.attacks.edit import EditState
from safepoint.attacks.isolation import isolated_outcome_of
from safepoint.attacks.kit import Bungled, RunAttack, attempt, worst
from safepoint.attacks.outcome import HONEST, WANTED
from safepoint.attacks.payload import PicklePayload, marker_pickle
from safepoint.cli import main

REFUSAL = RecordMalformed("It is refused.", "Always.")


class Raises(Attack):
    """An attack that makes the target raise what it is given."""

    id = "raises"
    rule = "SP01"
    story = "A test."

    def __init__(self, error: Exception) -> None:
        self.error = error

    def strike(self, target: Target) -> Outcome:
        raise self.error


class LeavesMarker(Attack):
    """An attack whose payload runs, whatever the store says afterwards."""

    id = "leaves-marker"
    rule = "SP03"
    story = "A test."

    def strike(self, target: Target) -> Outcome:
        (target.folder / MARKER).mkdir()
        raise REFUSAL


class BadlyPrepared(Raises):
    """An attack in which something fails before the victim looks."""

    def prepare(self, target: Target) -> None:
        raise self.error


def test_a_refusal_counts_as_detected(tmp_path: Path) -> None:
    assert Raises(REFUSAL).run(SealedTarget(tmp_path)) is Outcome.DETECTED


def test_a_target_tells_what_it_refused(tmp_path: Path) -> None:
    target = SealedTarget(tmp_path)
    Raises(REFUSAL).run(target)
    assert target.refused == ["RecordMalformed: It is refused. Always."]


def test_a_raw_exception_counts_as_a_crash(tmp_path: Path) -> None:
    assert Raises(KeyError("x")).run(SealedTarget(tmp_path)) is Outcome.CRASHED


def test_nothing_to_touch_counts_as_not_applicable(tmp_path: Path) -> None:
    assert Raises(Miss()).run(SealedTarget(tmp_path / "a")) is Outcome.NOT_APPLICABLE
    assert BadlyPrepared(Miss()).run(SealedTarget(tmp_path / "b")) is Outcome.NOT_APPLICABLE


def test_a_refusal_before_the_victim_looks_is_not_a_detection(tmp_path: Path) -> None:
    assert BadlyPrepared(REFUSAL).run(SealedTarget(tmp_path)) is Outcome.CRASHED


def test_a_refusal_after_the_payload_ran_counts_as_executed(tmp_path: Path) -> None:
    assert LeavesMarker().run(SealedTarget(tmp_path)) is Outcome.EXECUTED


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir(mode=0o700)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["not applicable"], "not applicable"),
        (["not applicable", "detected"], "detected"),
        (["crashed", "detected"], "crashed"),
        (["accepted", "crashed", "detected"], "accepted"),
        (["accepted", "executed", "detected"], "executed"),
        ([], "not applicable"),
    ],
)
def test_of_several_tries_the_most_harmful_counts(
    tmp_path: Path, outcomes: list[str], expected: str
) -> None:
    tries = (lambda outcome=outcome: Outcome(outcome) for outcome in outcomes)
    assert worst(SealedTarget(tmp_path), tries) == expected


def failing(error: Exception) -> Iterator[Callable[[], Outcome]]:
    yield lambda: Outcome.DETECTED
    raise error


def test_tampering_that_fails_between_tries_is_not_a_detection(tmp_path: Path) -> None:
    target = SealedTarget(tmp_path)
    with pytest.raises(Bungled):
        worst(target, failing(REFUSAL))
    assert attempt(target, lambda: worst(target, failing(REFUSAL))) is Outcome.CRASHED
    assert worst(target, failing(Miss())) is Outcome.DETECTED


@pytest.mark.parametrize("outcome", Outcome)
def test_what_counts_as_success(outcome: Outcome) -> None:
    assert outcome.succeeded == (outcome in ("accepted", "executed", "crashed"))


def test_the_payload_really_runs_and_only_leaves_a_marker(tmp_path: Path) -> None:
    """Under plain pickle.loads, in a process of its own."""
    folder = tmp_path / "a"
    (folder / "payload").write_bytes(marker_pickle(folder / MARKER))
    code = "import pickle, sys; pickle.loads(open('payload', 'rb').read())"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
    assert sorted(path.name for path in folder.iterdir()) == [MARKER, "payload"]


def test_a_target_without_room_for_a_pickle_is_not_applicable(tmp_path: Path) -> None:
    class NoPickle(NaiveTarget):
        def pickled(self, pickle: bytes, type_name: str) -> Any:
            return None

        def forge(self, record: bytes, payload: bytes, trick: Any = "best") -> bytes:
            raise Miss

    assert PicklePayload().run(NoPickle(tmp_path)) is Outcome.NOT_APPLICABLE


class Unusable(SealedTarget):
    """A store that refuses whatever it is asked, attacked or not."""

    def latest(self, thread: str) -> Any:
        raise REFUSAL


class Forgetful(SealedTarget):
    """A store that works once and hands out an old state from then on."""

    def latest(self, thread: str) -> Any:
        return HONEST


class Encoded(NaiveTarget):
    """A store without protection whose bytes the attack does not recognise."""

    def save(self, thread: str, state: dict[str, Any]) -> None:
        self.medium.write(self.place(thread, 1), json.dumps(state)[::-1].encode())

    def load(self, thread: str, sequence: int) -> Any:
        return json.loads(self.medium.read(self.place(thread, 1)).decode()[::-1])


@pytest.mark.parametrize("broken", [Unusable, Forgetful])
@pytest.mark.parametrize("attack", [*ATTACKS, *RESIDUE])
def test_a_store_that_does_not_work_has_not_detected_an_attack(
    tmp_path: Path, attack: str, broken: type[Target]
) -> None:
    strike = (ATTACKS | RESIDUE)[attack]
    medium = Memory() if strike.needs is Memory else None
    assert strike().run(broken(tmp_path, medium)) is Outcome.CRASHED


class Refuses(GatedTarget):
    """A store that lets no run go on, attacked or not."""

    def resume(self, thread: str, approval: bytes = b"", **_: Any) -> Any:
        raise REFUSAL


class Idle(GatedTarget):
    """A store on which no run ever acts."""

    def resume(self, thread: str, approval: bytes = b"", **_: Any) -> Any:
        return None


class Careless(GatedTarget):
    """A store whose runs act on anything but what was approved."""

    def resume(self, thread: str, approval: bytes = b"", **_: Any) -> Any:
        return WANTED


RUN_ATTACKS = [name for name, attack in ATTACKS.items() if issubclass(attack, RunAttack)]


@pytest.mark.parametrize("broken", [Refuses, Idle, Careless])
@pytest.mark.parametrize("attack", RUN_ATTACKS)
def test_runs_that_do_not_go_on_unharmed_have_not_detected_an_attack(
    tmp_path: Path, attack: str, broken: type[Target]
) -> None:
    assert ATTACKS[attack]().run(broken(tmp_path)) is Outcome.CRASHED


def test_a_refusal_after_the_deed_is_not_a_detection(tmp_path: Path) -> None:
    """The journal is lost between the gate and the save, and the payment in between was made."""
    target = GatedTarget(tmp_path)
    target.begin("victim", HONEST)
    assert target.resume("victim", meanwhile=target.journal.lose) == HONEST
    with pytest.raises(JournalUnavailable):
        target.resume("victim")


def test_an_attack_without_effect_was_not_detected(tmp_path: Path) -> None:
    assert EditState().run(Encoded(tmp_path)) is Outcome.NOT_APPLICABLE


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "safepoint", "attack", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_prints_a_table() -> None:
    """The pages show this table, to the letter."""
    done = run("edit-state", "plant-record")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "attack             naive     anchored\n"
        "edit-state         accepted  detected\n"
        "plant-record       accepted  detected\n"
    )


def test_the_command_compares_with_the_rung_that_stops_the_attack() -> None:
    """The pages on resuming show the first of these, to the letter."""
    done = run("wider-tools", "swap-request")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "attack             naive     gated\n"
        "wider-tools        accepted  detected\n"
        "swap-request       accepted  detected\n"
    )
    both = run("wider-tools", "edit-state")
    assert both.returncode == 0
    assert both.stdout == (
        "attack             naive     anchored  gated\n"
        "wider-tools        accepted  accepted  detected\n"
        "edit-state         accepted  detected  detected\n"
    )


def test_the_command_fails_on_a_bad_name() -> None:
    done = run("nonsense")
    assert done.returncode == 2
    assert "there is no attack 'nonsense'. Choose from edit-state, " in done.stderr
    assert run("--target", "nonsense").returncode == 2


def test_the_command_shows_the_ladder() -> None:
    done = run("--ladder", "algorithm-downgrade", "cut-newest")
    head, downgrade, cut = done.stdout.splitlines()
    assert head.split()[1:] == [
        "naive",
        "allow-list",
        "encrypted",
        "hash-chain",
        "mac",
        "mac-place",
        "signed-chain",
        "anchored",
        "gated",
    ]
    assert downgrade.split()[1:] == ["-"] * 4 + ["accepted"] + ["detected"] * 4
    assert cut.split()[1:] == ["accepted"] * 7 + ["detected"] * 2
    assert head.index("anchored") == cut.index("detected")
    assert head.index("gated") == cut.rindex("detected") == downgrade.rindex("detected")


def test_the_command_shows_the_targets_that_it_is_given() -> None:
    done = run("fork", "--target", "mac", "--target", "anchored")
    assert done.stdout.split() == ["attack", "mac", "anchored", "fork", "accepted", "detected"]


def test_the_command_attacks_memory() -> None:
    done = run("--in-memory", "aliasing", "plant-symlink", "edit-state")
    assert done.returncode == 0
    assert [line.split()[1:] for line in done.stdout.splitlines()[1:]] == [
        ["accepted", "-"],
        ["-", "-"],
        ["accepted", "detected"],
    ]


def test_the_command_lists_what_applies_and_runs_nothing() -> None:
    listed = run("--list").stdout.splitlines()
    assert f"edit-state (SP01): {EditState.story}" in listed
    assert len(listed) == len(ATTACKS) - 1  # aliasing needs memory
    assert [line.split()[0] for line in run("--list", "--residue").stdout.splitlines()] == [
        *RESIDUE
    ]
    assert "aliasing" in run("--list", "--in-memory").stdout


def test_what_nothing_detects_is_no_failure_of_the_command() -> None:
    done = run("compromised-worker")
    assert done.returncode == 0
    assert done.stdout.split()[-3:] == ["compromised-worker", "accepted", "accepted"]


@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.CRASHED, Outcome.EXECUTED])
def test_the_command_fails_if_the_sealed_store_lets_an_attack_through(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outcome: Outcome
) -> None:
    monkeypatch.setattr(command_line, "isolated_outcome_of", lambda *_, **__: outcome)
    assert main(["attack", "edit-state"]) == 1
    assert capsys.readouterr().out.endswith(f"edit-state         {outcome:<10}{outcome}\n")
    assert main(["attack", "edit-state", "--target", "naive"]) == 0
    assert main(["attack", "edit-state", "--target", "gated"]) == 1
    assert main(["attack", "wider-tools"]) == 1
    assert main(["attack", "wider-tools", "--target", "anchored"]) == 0


class SaysWhere(Attack):
    """An attack that notes in which process it runs, and writes to its output."""

    id = "says-where"
    rule = "SP01"
    story = "A test."
    note: Path

    def strike(self, target: Target) -> Outcome:
        os.write(1, b"something")
        self.note.write_text(str(os.getpid()))
        return Outcome.DETECTED


class Dies(SaysWhere):
    """An attack that takes the process down."""

    def strike(self, target: Target) -> Outcome:
        os.kill(os.getpid(), signal.SIGKILL)
        return Outcome.DETECTED


class Hangs(SaysWhere):
    """An attack that does not come to an end."""

    def strike(self, target: Target) -> Outcome:
        super().strike(target)
        time.sleep(600)
        return Outcome.DETECTED


def test_an_attack_runs_in_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SaysWhere, "note", tmp_path / "note", raising=False)
    monkeypatch.setitem(ATTACKS, "says-where", SaysWhere)
    assert isolated_outcome_of("says-where", "naive") is Outcome.DETECTED
    assert int((tmp_path / "note").read_text()) != os.getpid()
    assert capfd.readouterr() == ("", "")


def test_a_process_that_dies_or_hangs_has_crashed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(SaysWhere, "note", tmp_path / "note", raising=False)
    monkeypatch.setattr(isolation, "_PATIENCE", 1.0)
    monkeypatch.setitem(ATTACKS, "dies", Dies)
    monkeypatch.setitem(ATTACKS, "hangs", Hangs)
    assert isolated_outcome_of("dies", "naive") is Outcome.CRASHED
    assert isolated_outcome_of("hangs", "naive") is Outcome.CRASHED
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "note").read_text()), 0)
