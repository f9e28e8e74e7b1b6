"""Several writers for one thread: one wins each sequence, nobody is lost, and there is no alarm."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from safepoint import CheckpointError, Conflict, InMemoryAnchor, Ledger
from tests.unit.tampered import THREAD, Writable, fill, ledger_in, opened, states

WRITERS = 3


def race(ledger: Ledger, writer: int, sequences: int) -> list[int]:
    """Try to be the one that saves each sequence, as soon as it can be saved."""
    won = []
    while (head := ledger.storage.head(THREAD)) < sequences:
        with contextlib.suppress(Conflict):
            won.append(ledger.save(THREAD, {"n": writer}, after=head).sequence)
    return won


def race_in(path: str, kind: str, writer: int, sequences: int) -> list[int]:
    return race(ledger_in(Path(path), kind, 5), writer, sequences)


def prune_in(path: str, kind: str, turns: int) -> int:
    """Save and prune by turns, as one of several workers; return how often it got through."""
    ledger, done = ledger_in(Path(path), kind, 3), 0
    for turn in range(turns):
        try:
            ledger.save(THREAD, {"n": turn})
            done += 1
        except CheckpointError as refusal:
            if type(refusal).__name__ not in ("Conflict", "RecordsMissing"):
                raise
        ledger.prune(THREAD, keep=3)
        ledger.verify(THREAD)
    return done


def check(ledger: Ledger, won: list[list[int]], sequences: int) -> int:
    """Each sequence was won once, by the writer whose state stands there, and all verifies."""
    wins = Counter(sequence for each in won for sequence in each)
    assert wins == dict.fromkeys(range(1, ledger.storage.head(THREAD) + 1), 1)
    assert len(wins) >= sequences
    for sequence, writer in enumerate(states(ledger), start=1):
        assert sequence in won[writer]
    assert ledger.verify(THREAD) == len(wins)
    return len(wins)


@pytest.mark.parametrize(
    ("kind", "sequences", "turns"),
    [
        ("files", 40, 8),
        pytest.param("files", 300, 25, marks=pytest.mark.deep),
        pytest.param("sqlite", 300, 25, marks=pytest.mark.deep),
    ],
)
def test_processes_that_save_and_prune_at_once(
    tmp_path: Path, kind: str, sequences: int, turns: int
) -> None:
    path = str(tmp_path)
    ledger_in(tmp_path, kind)
    with multiprocessing.get_context("spawn").Pool(WRITERS) as pool:
        won = pool.starmap(race_in, [(path, kind, n, sequences) for n in range(WRITERS)], 1)
        count = check(ledger_in(tmp_path, kind), won, sequences)
        done = pool.starmap(prune_in, [(path, kind, turns)] * WRITERS, 1)
    ledger = ledger_in(tmp_path, kind)
    assert ledger.latest(THREAD).sequence == count + sum(done)
    assert 3 <= ledger.verify(THREAD) <= 3 + WRITERS
    ledger.prune(THREAD, keep=1)
    assert ledger.verify(THREAD) == 1


def at_once(work: Callable[[int], None], workers: int) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(workers)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001  told below, in the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=[n]) for n in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_threads_that_share_a_ledger_race(storage: Writable) -> None:
    ledger = opened(storage, InMemoryAnchor(), every=5)
    won: list[list[int]] = [[] for _ in range(WRITERS)]
    at_once(lambda n: won[n].extend(race(ledger, n, 40)), WRITERS)
    check(ledger, won, 40)


def test_threads_that_prune_at_once(storage: Writable) -> None:
    anchor, removed = InMemoryAnchor(), []
    fill(opened(storage, anchor), 20)
    at_once(
        lambda n: removed.append(opened(storage, anchor).prune(THREAD, keep=15 - 5 * n)), WRITERS
    )
    assert sum(removed) == 15
    assert opened(storage, anchor).verify(THREAD) == 5
