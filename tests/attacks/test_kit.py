"""The kit itself: it must not call a store safe that is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

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
    ladder,
)
from safepoint.attacks import command as command_line
from safepoint.attacks.kit import Act, Look
from safepoint.attacks.ladder import isolated_outcome_of
from safepoint.attacks.outcome import HONEST, WANTED
from safepoint.attacks.payload import marker_pickle
from safepoint.cli import main
from safepoint.errors import JournalUnavailable, RecordMalformed

REFUSAL = RecordMalformed("It is refused.", "Always.")


def attack_of(act: Act) -> Attack:
    return Attack("a-test", "SP01", 1, "A test.", act)


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
        ([True], "accepted"),
        ([[REFUSAL]], "detected"),
        ([[KeyError("x")]], "crashed"),
        ([[Miss()]], "not applicable"),
        ([Miss()], "not applicable"),
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
    assert ended(target, *steps) == outcome
    if outcome == "detected":
        assert target.refused == ["RecordMalformed: It is refused. Always."]


def test_a_refusal_after_the_payload_ran_counts_as_executed(tmp_path: Path) -> None:
    def act(target: Target) -> Iterator[Look]:
        (target.folder / MARKER).mkdir()
        yield refuses

    def refuses() -> bool:
        raise REFUSAL

    assert attack_of(act).run(SealedTarget(tmp_path)) is Outcome.EXECUTED


@pytest.mark.parametrize("outcome", Outcome)
def test_what_counts_as_success(outcome: Outcome) -> None:
    assert outcome.succeeded == (outcome in ("accepted", "executed", "crashed"))


def test_the_payload_really_runs_and_only_leaves_a_marker(tmp_path: Path) -> None:
    """Under plain pickle.loads, in a process of its own."""
    (tmp_path / "payload").write_bytes(marker_pickle(tmp_path / MARKER))
    code = "import pickle, sys; pickle.loads(open('payload', 'rb').read())"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [MARKER, "payload"]


def test_a_target_without_room_for_a_pickle_is_not_applicable(tmp_path: Path) -> None:
    class NoPickle(NaiveTarget):
        def pickled(self, pickle: bytes, type_name: str) -> Any:
            return None

        def forge(self, record: bytes, payload: bytes, trick: Any = "best") -> bytes:
            raise Miss

    assert ATTACKS["pickle-payload"].run(NoPickle(tmp_path)) is Outcome.NOT_APPLICABLE


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
def test_a_store_that_does_not_work_has_not_detected_an_attack(
    tmp_path: Path, broken: type[Target]
) -> None:
    for name, attack in (ATTACKS | RESIDUE).items():
        folder = tmp_path / name
        folder.mkdir(mode=0o700)
        medium = Memory() if attack.needs is Memory else None
        assert attack.run(broken(folder, medium)) is Outcome.CRASHED, name


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


@pytest.mark.parametrize("broken", [Refuses, Idle, Careless])
def test_runs_that_do_not_go_on_unharmed_have_not_detected_an_attack(
    tmp_path: Path, broken: type[Target]
) -> None:
    for name, attack in ATTACKS.items():
        if attack.on_runs:
            folder = tmp_path / name
            folder.mkdir(mode=0o700)
            assert attack.run(broken(folder)) is Outcome.CRASHED, name


def test_a_refusal_after_the_deed_is_not_a_detection(tmp_path: Path) -> None:
    """The journal is lost between the gate and the save, and the payment in between was made."""
    target = GatedTarget(tmp_path)
    target.begin("victim", HONEST)
    assert target.resume("victim", meanwhile=target.journal.lose) == HONEST
    with pytest.raises(JournalUnavailable):
        target.resume("victim")


def test_an_attack_without_effect_was_not_detected(tmp_path: Path) -> None:
    assert ATTACKS["edit-state"].run(Encoded(tmp_path)) is Outcome.NOT_APPLICABLE


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
    assert f"edit-state (SP01): {ATTACKS['edit-state'].story}" in listed
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


def says_where(note: Path) -> Attack:
    """An attack that notes in which process it runs, writes to its output, and never ends."""

    def act(target: Target) -> Iterator[Look]:
        os.write(1, b"something")
        note.write_text(str(os.getpid()))
        yield lambda: True
        if target.name == "allow-list":
            time.sleep(600)
        elif target.name == "encrypted":
            os.kill(os.getpid(), signal.SIGKILL)

    return attack_of(act)


def test_an_attack_runs_in_a_process_of_its_own_which_may_die_or_hang(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    note = tmp_path / "note"
    monkeypatch.setitem(ATTACKS, "says-where", says_where(note))
    assert isolated_outcome_of("says-where", "naive") is Outcome.ACCEPTED
    assert int(note.read_text()) != os.getpid()
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(ladder, "_PATIENCE", 3.0)
    assert isolated_outcome_of("says-where", "encrypted") is Outcome.CRASHED
    assert isolated_outcome_of("says-where", "allow-list") is Outcome.CRASHED
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
