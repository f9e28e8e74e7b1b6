"""Eight workers for one answer: one of them goes on, and the bank pays once."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from safepoint import CheckpointError, Ledger
from tests.unit.resume_helpers import DANA, ERIN, Place

WORKERS = 8
Told = dict[str, Any]


def no_sync(*_: object) -> None:
    """Who does not wait for a disk races harder."""
    os.fsync = no_sync  # type: ignore[assignment]


@cache
def opened(path: str) -> tuple[Place, Ledger]:
    return Place(Path(path)), Place(Path(path)).ledger()


def resumed(path: str, thread: str, approvals: list[str]) -> Told:
    place, ledger = opened(path)
    try:
        run = place.workflow().resume(ledger, thread, approvals=approvals)
    except CheckpointError as error:
        return {"error": type(error).__name__, "what": error.what}
    return {"paid": run.state.get("paid"), "denied": run.denied}


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([__name__])  # one process imports it for all
    with forks.Pool(WORKERS, no_sync) as workers:
        yield workers


class Race:
    """A store in which threads wait for people, and eight workers who go on with them at once."""

    def __init__(self, pool: Any, place: Place) -> None:
        self.pool, self.place, self.ledger = pool, place, place.ledger()

    def paused(self, count: int) -> Iterator[tuple[str, int]]:
        """Start threads. Each has an amount of its own."""
        for number in range(count):
            thread, amount = f"order-{number}", 40 + number
            assert self.place.workflow().start(self.ledger, thread, amount=amount).paused
            yield thread, amount

    def signed(self, thread: str, *, yes: bool = True) -> list[str]:
        question = self.place.workflow().question(self.ledger, thread)
        assert question is not None
        return [DANA.approve(question) if yes else ERIN.deny(question)]

    def run(self, thread: str, *answers: list[str]) -> tuple[list[Told], list[Told]]:
        """Return what those were told who came through, and what the others were told."""
        path, each = str(self.place.path), [*answers] * WORKERS
        told = self.pool.starmap(resumed, [(path, thread, each[n]) for n in range(WORKERS)], 1)
        return [t for t in told if "error" not in t], [t for t in told if "error" in t]

    def check(self, amounts: dict[str, int], late: int = 0) -> None:
        """The bank paid each of these threads once, what was approved, and all verifies."""
        assert self.place.bank.payments == {
            f"invoices/{thread}/3/pay": {"amount": amount, "payee": "alice"}
            for thread, amount in amounts.items()
        }
        ledger = self.place.ledger()
        for thread, amount in amounts.items():
            assert 5 <= ledger.verify(thread) <= 5 + late
            assert ledger.latest(thread).state["state"]["paid"] == amount
        done = {
            entry.thread
            for entry in self.place.journal().show(what="resume")
            if (entry.outcome, entry.sequence) == ("done", 3)
        }
        assert amounts.keys() <= done


@pytest.fixture
def race(pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Race:
    monkeypatch.setattr(os, "fsync", no_sync)
    return Race(pool, Place.create(tmp_path / "place"))


@pytest.mark.parametrize("times", [12, pytest.param(200, marks=pytest.mark.deep)])
def test_one_of_eight_workers_uses_an_approval(race: Race, times: int) -> None:
    """Single use: seven are told that it is spent, and no step of theirs ran."""
    amounts = {}
    for thread, amount in race.paused(times):
        won, lost = race.run(thread, race.signed(thread))
        assert won == [{"paid": amount, "denied": False}]
        assert {told["error"] for told in lost} == {"ApprovalRefused"}
        amounts[thread] = amount
    race.check(amounts)


@pytest.mark.parametrize("times", [16, pytest.param(40, marks=pytest.mark.deep)])
def test_an_approval_races_with_a_denial(race: Race, times: int) -> None:
    """Whichever is used first is the answer. After a denial nothing is paid, whoever asks."""
    amounts = {}
    for number, (thread, amount) in enumerate(race.paused(times)):
        answers = [race.signed(thread), race.signed(thread, yes=False)]
        won, lost = race.run(thread, *(answers if number % 2 else answers[::-1]))
        assert {told["error"] for told in lost} == {"ApprovalRefused"}
        assert won in ([{"paid": amount, "denied": False}], [{"paid": None, "denied": True}])
        again = race.place.workflow().resume(race.ledger, thread)
        assert [{"paid": again.state.get("paid"), "denied": again.denied}] == won
        if again.denied:
            assert race.ledger.verify(thread) in (4, 5)  # or there is a yes that nobody used
        else:
            amounts[thread] = amount
    assert 0 < len(amounts) < times, "one of the two always won, so they did not race"
    race.check(amounts, late=1)  # a denial that came before the yes was used, and lost
