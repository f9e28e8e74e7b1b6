"""The kit itself: it must not call a store safe that is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safepoint import RecordMalformed
from safepoint.attacks import MARKER, Attack, NaiveTarget, Outcome, SealedTarget, Target
from safepoint.attacks import __main__ as command_line
from safepoint.attacks.payload import marker_pickle
from safepoint.attacks.state import EditState


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
        raise RecordMalformed("It was refused.", "But too late.")


def test_a_refusal_counts_as_detected(tmp_path: Path) -> None:
    attack = Raises(RecordMalformed("x", "y"))
    assert attack.run(SealedTarget(tmp_path)) is Outcome.DETECTED


def test_a_raw_exception_counts_as_a_crash(tmp_path: Path) -> None:
    assert Raises(KeyError("x")).run(SealedTarget(tmp_path)) is Outcome.CRASHED


def test_a_refusal_after_the_payload_ran_counts_as_executed(tmp_path: Path) -> None:
    assert LeavesMarker().run(SealedTarget(tmp_path)) is Outcome.EXECUTED


def test_the_payload_really_runs_and_only_leaves_a_marker(tmp_path: Path) -> None:
    """Under plain pickle.loads, in a process of its own."""
    (tmp_path / "payload").write_bytes(marker_pickle(tmp_path / MARKER))
    code = "import pickle, sys; pickle.loads(open('payload', 'rb').read())"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [MARKER, "payload"]


def test_a_target_without_room_for_a_pickle_is_not_applicable(tmp_path: Path) -> None:
    from safepoint.attacks.payload import PicklePayload

    class NoPickle(NaiveTarget):
        def pickled(self, pickle: bytes, type_name: str) -> Any:
            return None

    assert PicklePayload().run(NoPickle(tmp_path)) is Outcome.NOT_APPLICABLE


def test_the_command_prints_a_table_and_fails_on_a_bad_name() -> None:
    command = [sys.executable, "-m", "safepoint.attacks", "edit-state"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == (
        "attack             naive     sealed\nedit-state         accepted  detected\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run([*command[:-1], "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no attack 'nonsense'. Choose from edit-state, " in done.stderr


def test_the_command_fails_if_the_sealed_store_lets_an_attack_through(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "outcome_of", lambda *_: Outcome.ACCEPTED)
    monkeypatch.setattr(sys, "argv", ["attacks", "edit-state"])
    assert command_line.main() == 1
    assert capsys.readouterr().out.endswith("edit-state         accepted  accepted\n")


def test_an_outcome_comes_from_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a payload does, it does there; a process that dies is a crash."""

    def never(*_: object) -> Outcome:
        raise AssertionError("ran in this process")

    monkeypatch.setattr(Attack, "run", never)
    assert command_line.outcome_of("pickle-payload", "naive") is Outcome.EXECUTED
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert command_line.outcome_of("pickle-payload", "naive") is Outcome.CRASHED


class Unusable(SealedTarget):
    """A store that refuses whatever it is asked, attacked or not."""

    def latest(self, thread: str) -> Any:
        raise RecordMalformed("It is refused.", "Always.")


class Encoded(NaiveTarget):
    """A store without protection whose bytes the attack does not recognise."""

    def save(self, thread: str, state: dict[str, Any]) -> None:
        self.store.mkdir(exist_ok=True)
        self.file_of(thread, 1).write_text(json.dumps(state)[::-1])

    def latest(self, thread: str) -> Any:
        return json.loads(self.file_of(thread, 1).read_text()[::-1])


def test_a_store_that_refuses_everything_has_not_detected_an_attack(tmp_path: Path) -> None:
    assert EditState().run(Unusable(tmp_path)) is Outcome.CRASHED


def test_an_attack_without_effect_was_not_detected(tmp_path: Path) -> None:
    assert EditState().run(Encoded(tmp_path)) is Outcome.NOT_APPLICABLE
