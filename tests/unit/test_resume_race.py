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
from tests.unit.resume_helpers import DANA, Place

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


@pytest.mark.parametrize("times", [12, pytest.param(200, marks=pytest.mark.deep)])
def test_one_of_eight_workers_uses_an_approval(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Single use: seven are told that it is spent, and no step of theirs ran."""
    monkeypatch.setattr(os, "fsync", no_sync)
    place = Place.create(tmp_path / "place")
    ledger, amounts = place.ledger(), {f"order-{number}": 40 + number for number in range(times)}
    for thread, amount in amounts.items():
        question = place.workflow().start(ledger, thread, amount=amount).question
        assert question is not None
        job = str(place.path), thread, [DANA.approve(question)]
        told = pool.starmap(resumed, [job] * WORKERS, 1)
        assert [each for each in told if "error" not in each] == [{"paid": amount, "denied": False}]
        assert [each.get("error") for each in told].count("ApprovalRefused") == WORKERS - 1
    assert place.bank.payments == {
        f"invoices/{thread}/3/pay": {"amount": amount, "payee": "alice"}
        for thread, amount in amounts.items()
    }
    assert all(ledger.verify(thread) == 5 for thread in amounts)
    resumes = [each for each in place.journal().show(what="resume") if each.outcome == "done"]
    assert amounts.keys() <= {each.thread for each in resumes if each.sequence == 3}
