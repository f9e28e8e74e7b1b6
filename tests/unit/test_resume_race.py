"""Eight workers for one answer: one of them goes on, and the bank pays once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from safepoint import Approver, CheckpointError, Ledger
from tests.unit.killed import ROOT, no_sync
from tests.unit.resume_helpers import DANA, ERIN, Place

WORKERS = 8
Told = dict[str, Any]


@cache
def ledger_of(path: str, worker: int) -> Ledger:
    return Place(Path(path)).ledger()


def work(worker: int) -> None:
    """Resume what each line of the input names, and say how that ended."""
    os.fsync = no_sync  # who does not wait for a disk races harder
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(resumed(worker, **json.loads(line))), flush=True)


def resumed(worker: int, path: str, thread: str, approvals: list[str]) -> Told:
    ledger, workflow = ledger_of(path, worker), Place(Path(path)).workflow()
    try:
        run = workflow.resume(ledger, thread, approvals=approvals)
    except CheckpointError as error:
        return {"error": type(error).__name__, "what": error.what}
    return {"paid": run.state.get("paid"), "denied": run.denied}


class Workers:
    """Eight processes that wait for the same word."""

    def __init__(self, stack: ExitStack) -> None:
        self._order = random.Random(7)  # noqa: S311  who is told first is no secret
        self._processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", __name__, str(number)],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for number in range(WORKERS)
        ]
        for process in self._processes:
            stack.callback(process.kill)
        for number in range(WORKERS):
            assert self._line(number) == "ready\n"

    def race(
        self,
        place: Place,
        thread: str,
        *answers: list[str],
    ) -> tuple[list[Told], list[Told]]:
        """Let them all resume a thread at the same moment, each with the next one of the answers.

        Returns:
            What those were told who came through, and what the others were told.
        """
        numbers = list(range(WORKERS))
        self._order.shuffle(numbers)
        for number in numbers:
            wish = {
                "path": str(place.path),
                "thread": thread,
                "approvals": answers[number % len(answers)],
            }
            stdin = self._processes[number].stdin
            assert stdin is not None
            stdin.write(json.dumps(wish) + "\n")
            stdin.flush()
        told = [json.loads(self._line(number)) for number in range(WORKERS)]
        return [t for t in told if "error" not in t], [t for t in told if "error" in t]

    def _line(self, number: int) -> str:
        stdout = self._processes[number].stdout
        assert stdout is not None
        return stdout.readline()


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with ExitStack() as stack:
        yield Workers(stack)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(os, "fsync", no_sync)
    return Place.create(tmp_path / "place")


@pytest.fixture
def ledger(place: Place) -> Ledger:
    return place.ledger()


def paused(place: Place, ledger: Ledger, count: int) -> Iterator[tuple[str, int]]:
    """Start threads that wait for people. Each has an amount of its own."""
    for number in range(count):
        thread, amount = f"order-{number}", 40 + number
        assert place.workflow().start(ledger, thread, amount=amount).paused
        yield thread, amount


def signed(place: Place, ledger: Ledger, thread: str, by: Approver = DANA) -> list[str]:
    """What dana says yes to, or erin no."""
    question = place.workflow().question(ledger, thread)
    assert question is not None
    return [by.approve(question) if by is DANA else by.deny(question)]


def check(place: Place, amounts: dict[str, int]) -> None:
    """The bank paid each of these threads once, what was approved, and everything verifies."""
    assert place.bank.payments == {
        f"invoices/{thread}/3/pay": {"amount": amount, "payee": "alice"}
        for thread, amount in amounts.items()
    }
    ledger = place.ledger()
    for thread, amount in amounts.items():
        assert ledger.verify(thread) == 5
        assert ledger.latest(thread).state["state"]["paid"] == amount
    lines = Counter(
        entry.thread
        for entry in place.journal().show(what="resume")
        if (entry.outcome, entry.sequence) == ("done", 4)
    )
    assert amounts.keys() <= lines.keys()


def test_one_of_eight_workers_uses_an_approval_200_times_over(
    place: Place, ledger: Ledger, workers: Workers
) -> None:
    """Single use: seven are told that it is spent, and no step of theirs ran."""
    amounts, at_the_last_moment = {}, 0
    for thread, amount in paused(place, ledger, 200):
        won, lost = workers.race(place, thread, signed(place, ledger, thread))
        assert won == [{"paid": amount, "denied": False}]
        assert {told["error"] for told in lost} == {"ApprovalSpent"}
        first = f"Another worker resumed {thread} first, so this approval is spent."
        at_the_last_moment += any(told["what"] == first for told in lost)
        amounts[thread] = amount
    assert at_the_last_moment >= 20, "hardly two of them ever met, so they did not race"
    check(place, amounts)


def test_an_approval_races_with_a_denial(place: Place, ledger: Ledger, workers: Workers) -> None:
    """Whichever is written first is the answer. After a denial nothing is paid, whoever asks."""
    amounts, denied = {}, 0
    for thread, amount in paused(place, ledger, 40):
        answers = signed(place, ledger, thread), signed(place, ledger, thread, ERIN)
        won, lost = workers.race(place, thread, *answers)
        assert {told["error"] for told in lost} == {"ApprovalSpent"}
        assert won in ([{"paid": amount, "denied": False}], [{"paid": None, "denied": True}])
        again = place.workflow().resume(ledger, thread)
        assert [{"paid": again.state.get("paid"), "denied": again.denied}] == won
        if again.denied:
            assert ledger.verify(thread) == 4
            denied += 1
        else:
            amounts[thread] = amount
    assert amounts, "no approval won, so they did not race"
    assert denied, "no denial won, so they did not race"
    check(place, amounts)


def test_eight_workers_go_on_with_a_run_whose_worker_died(
    place: Place, ledger: Ledger, workers: Workers
) -> None:
    """After the spend nobody is asked again. They may all act, and the key makes it one payment."""
    amounts, refusals = {}, Counter[str]()
    for thread, amount in paused(place, ledger, 40):
        approval = signed(place, ledger, thread)
        place.workflow().rehydrate(ledger, thread, approvals=approval)
        won, lost = workers.race(place, thread, [])
        assert won
        assert all(told == {"paid": amount, "denied": False} for told in won)
        refusals.update(told["error"] for told in lost)
        amounts[thread] = amount
    assert set(refusals) == {"Conflict"}
    check(place, amounts)


if __name__ == "__main__":
    work(int(sys.argv[1]))
