"""Others prune, save and read at the same time: no false alarm, and nothing is lost."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    CheckpointError,
    FileAnchor,
    FileCheckpointStorage,
    Head,
    InMemoryAnchor,
    Ledger,
    NotFound,
)
from tests.unit.tampered import (
    KEYS,
    STORE,
    THREAD,
    Files,
    Memory,
    fill,
    opened,
    states,
)


def test_a_prune_that_loses_the_race_has_nothing_to_do(
    storage: Memory | Files, anchor: InMemoryAnchor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look at the thread and its cut, another process prunes further."""
    ledger, rival = opened(storage, anchor), opened(storage, anchor)
    fill(ledger, 10)
    genuine = ledger._view.open

    def raced(thread: str, sequence: int) -> Any:
        monkeypatch.setattr(ledger._view, "open", genuine)
        rival.save(thread, {"n": 11})
        assert rival.prune(thread, keep=2) == 9
        return genuine(thread, sequence)

    span = ledger._view.span

    def race(thread: str) -> Any:
        monkeypatch.setattr(ledger._view, "span", span)
        monkeypatch.setattr(ledger._view, "open", raced)
        return span(thread)

    monkeypatch.setattr(ledger._view, "span", race)
    assert ledger.prune(THREAD, keep=5) == 0
    assert states(opened(storage, anchor)) == [10, 11]


def test_a_save_of_another_process_does_not_make_a_prune_outrun_the_anchor(
    storage: Memory | Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an interval, the other's checkpoint is not anchored; what is must stay."""
    anchor = InMemoryAnchor()
    ledger, rival = opened(storage, anchor, every=100), opened(storage, anchor, every=100)
    fill(ledger, 5)
    genuine = anchor.advance

    def raced(store: str, thread: str, head: Head) -> None:
        genuine(store, thread, head)
        for number in (6, 7, 8):
            rival.save(thread, {"n": number})

    monkeypatch.setattr(anchor, "advance", raced)
    ledger.prune(THREAD, keep=1)
    monkeypatch.setattr(anchor, "advance", genuine)
    again = opened(storage, anchor, every=100)
    assert again.latest(THREAD).state == {"n": 8}
    assert again.verify(THREAD) == 4


@pytest.mark.parametrize("use", ["latest", "load", "verify", "history", "save", "delete"])
def test_a_prune_of_another_process_is_no_alarm(
    storage: Memory | Files, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    """It moves the anchor and removes records, right after this one has asked the anchor."""
    anchor = InMemoryAnchor()
    ledger, rival = opened(storage, anchor, every=100), opened(storage, anchor, every=100)
    fill(opened(storage, anchor, every=100), 5)
    genuine = anchor.read

    def raced(store: str, thread: str) -> Head | None:
        before = genuine(store, thread)
        monkeypatch.setattr(anchor, "read", genuine)
        rival.save(thread, {"n": 6})
        assert rival.prune(thread, keep=2) == 4
        return before

    monkeypatch.setattr(anchor, "read", raced)
    if use == "latest":
        assert ledger.latest(THREAD).state == {"n": 6}
    elif use == "load":
        assert ledger.load(THREAD, 5).state == {"n": 5}
    elif use == "verify":
        assert ledger.verify(THREAD) == 2
    elif use == "history":
        assert states(ledger) == [5, 6]
    elif use == "save":
        assert ledger.save(THREAD, {"n": 7}).sequence == 7
    else:
        assert ledger.delete(THREAD).sequence == 7


def test_a_thread_that_is_pruned_while_it_is_verified_verifies(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    ledger, rival = opened(storage, anchor), opened(storage, anchor)
    fill(rival, 10)
    pruned: list[int] = []

    def progress(done: int, total: int) -> None:
        if done == 2 and not pruned:
            pruned.append(rival.prune(THREAD, keep=2))

    assert ledger.verify(THREAD, progress=progress) == 2
    assert pruned == [8]


def test_a_history_that_is_pruned_while_it_is_read_says_so(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 10)
    history = ledger.history(THREAD)
    assert next(history).state == {"n": 1}
    opened(storage, anchor).prune(THREAD, keep=2)
    with pytest.raises(NotFound, match="was pruned while it was read"):
        next(history)


def test_a_missing_record_of_a_busy_thread_is_still_missing(
    storage: Memory | Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The anchor moves each time that it is asked, and that is no reason to ask for ever."""
    anchor = InMemoryAnchor()
    ledger, rival = opened(storage, anchor), opened(storage, anchor)
    fill(rival, 5)
    genuine = anchor.read

    def busy(store: str, thread: str) -> Head | None:
        head = genuine(store, thread)
        with monkeypatch.context() as patch:
            patch.setattr(anchor, "read", genuine)
            rival.save(thread, {})
        return head

    monkeypatch.setattr(anchor, "read", busy)
    with pytest.raises(NotFound):
        ledger.load(THREAD, 10_000)


def prune_and_save(path: str, number: int) -> int:
    """Save and prune by turns, as one of several workers; return how often it got through."""
    ledger = Ledger(
        FileCheckpointStorage(f"{path}/store"),
        store=STORE,
        keys=KEYS,
        anchor=FileAnchor(f"{path}/anchor", create=True),
        anchor_every=3,
    )
    done = 0
    for turn in range(25):
        try:
            ledger.save(THREAD, {"n": number, "turn": turn})
            done += 1
        except CheckpointError as refusal:
            if type(refusal).__name__ not in ("Conflict", "RecordsMissing"):
                raise
        ledger.prune(THREAD, keep=3)
        ledger.verify(THREAD)
    return done


@pytest.mark.parametrize("workers", [3])
def test_workers_that_save_and_prune_at_once(tmp_path: Path, workers: int) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers) as pool:
        done = pool.starmap(prune_and_save, [(str(tmp_path), n) for n in range(workers)])
    ledger = Ledger(
        FileCheckpointStorage(tmp_path / "store"),
        store=STORE,
        keys=KEYS,
        anchor=FileAnchor(tmp_path / "anchor"),
    )
    assert ledger.latest(THREAD).sequence == sum(done)
    assert 3 <= ledger.verify(THREAD) <= 3 + workers
    ledger.prune(THREAD, keep=1)
    assert ledger.verify(THREAD) == 1


def test_threads_that_prune_at_once(storage: Memory | Files) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 30)
    removed: list[int] = []
    errors: list[BaseException] = []

    def work(keep: int) -> None:
        try:
            removed.append(opened(storage, anchor).prune(THREAD, keep=keep))
        except BaseException as error:  # noqa: BLE001  shown below
            errors.append(error)

    workers = [threading.Thread(target=work, args=(keep,)) for keep in (20, 15, 10, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    assert sum(removed) == 25
    assert opened(storage, anchor).verify(THREAD) == 5
