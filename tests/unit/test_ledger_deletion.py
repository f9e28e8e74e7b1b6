"""Deleting a thread: a signed record says so, its name stays taken, and a crash is finished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    CheckpointError,
    InMemoryAnchor,
    Ledger,
    NotFound,
    RolledBack,
    StorageUnavailable,
    ThreadDeleted,
)
from tests.unit.tampered import (
    STORE,
    THREAD,
    Files,
    Memory,
    fill,
    opened,
    states,
)


def test_a_deleted_thread_says_so(storage: Memory | Files, anchor: InMemoryAnchor | None) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 3)
    last = ledger.latest(THREAD)
    head = ledger.delete(THREAD)
    assert head.sequence == 4
    assert storage.head(THREAD) == 4
    for again in (ledger, opened(storage, anchor)):
        for use in (
            Ledger.latest,
            states,
            lambda ledger, thread: ledger.load(thread, 4),
            lambda ledger, thread: ledger.save(thread, {"n": 5}),
            lambda ledger, thread: ledger.save(thread, {"n": 5}, after=4),
        ):
            with pytest.raises(ThreadDeleted) as refusal:
                use(again, THREAD)
            assert refusal.value.what.startswith("order-7 was deleted on 2")
            assert refusal.value.what.endswith("by a record that is signed.")
            assert "Start a thread of another name" in refusal.value.do
        assert again.verify(THREAD) == 1
        assert again.threads() == [THREAD]
    with pytest.raises(ThreadDeleted):
        opened(storage, anchor).load(THREAD, 3)
    assert storage.head(THREAD) == 4
    if anchor is not None:
        assert anchor.read(STORE, THREAD) == head
    assert last.digest.encode() in storage.read(THREAD, 4)


def test_nothing_of_a_deleted_thread_is_left(storage: Memory | Files, tmp_path: Path) -> None:
    ledger = opened(storage)
    for number in range(3):
        ledger.save(THREAD, f"canary-{number}")
    ledger.delete(THREAD)
    if isinstance(storage, Files):
        files = [file for file in tmp_path.rglob("*") if file.is_file()]
        assert sorted(file.name for file in files) == ["0000000004.checkpoint", "base"]
        assert not any(b"canary" in file.read_bytes() for file in files)
    else:
        assert list(storage._records[THREAD]) == [4]


def test_deleting_twice_is_the_same_as_once(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 3)
    assert ledger.delete(THREAD) == ledger.delete(THREAD) == opened(storage, anchor).delete(THREAD)
    assert opened(storage, anchor).verify(THREAD) == 1


def test_a_deleted_thread_has_nothing_to_prune(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 3)
    ledger.delete(THREAD)
    assert ledger.prune(THREAD, keep=1) == 0
    with pytest.raises(ThreadDeleted):
        opened(storage, anchor).latest(THREAD)


def test_a_pruned_thread_can_be_deleted(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    ledger.prune(THREAD, keep=2)
    assert ledger.delete(THREAD).sequence == 6
    assert opened(storage, anchor).verify(THREAD) == 1


def test_undoing_a_deletion_is_noticed(storage: Memory | Files) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 3)
    kept = {number: storage.read(THREAD, number) for number in (1, 2, 3)}
    opened(storage, anchor).delete(THREAD)
    for number, record in kept.items():
        storage.put(THREAD, number, record)
    storage.remove(THREAD, 4)
    storage.remove_base(THREAD)
    with pytest.raises(RolledBack, match="ends at #3, and the anchor has seen #4"):
        opened(storage, anchor).latest(THREAD)


def test_deleting_with_an_anchor_at_an_interval_anchors_the_tombstone(
    storage: Memory | Files,
) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor, every=100), 3)
    head = opened(storage, anchor, every=100).delete(THREAD)
    assert anchor.read(STORE, THREAD) == head
    with pytest.raises(ThreadDeleted):
        opened(storage, anchor, every=100).latest(THREAD)


def test_a_save_that_is_faster_keeps_the_thread(
    storage: Memory | Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, rival = opened(storage), opened(storage)
    fill(ledger, 3)
    genuine = storage.append

    def raced(thread: str, sequence: int, record: bytes) -> None:
        monkeypatch.setattr(storage, "append", genuine)
        rival.save(thread, {"n": 4})
        genuine(thread, sequence, record)

    monkeypatch.setattr(storage, "append", raced)
    with pytest.raises(CheckpointError, match="already has a checkpoint 4"):
        ledger.delete(THREAD)
    assert states(opened(storage)) == [1, 2, 3, 4]


# A crash between the two writes, or at any other moment


class Killed(BaseException):
    """As a kill: nothing catches it, and nothing is tidied up."""


def killing(
    monkeypatch: pytest.MonkeyPatch, thing: object, name: str, *, after: bool
) -> Callable[[], None]:
    """Let the next call of a method end the process before or after its work."""
    genuine = getattr(thing, name)

    def killed(*given: Any, **named: Any) -> Any:
        if after:
            genuine(*given, **named)
        raise Killed

    monkeypatch.setattr(thing, name, killed)
    return lambda: monkeypatch.setattr(thing, name, genuine)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["append", "prune", "advance"])
@pytest.mark.parametrize("every", [1, 100])
def test_a_deletion_that_was_cut_off_is_finished_by_the_next(
    storage: Memory | Files,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    every: int,
    *,
    after: bool,
) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor, every=every), 4)
    thing = anchor if name == "advance" else storage
    restore = killing(monkeypatch, thing, name, after=after)
    with pytest.raises(Killed):
        opened(storage, anchor, every=every).delete(THREAD)
    restore()
    is_there = (name, after) != ("append", False)
    ledger = opened(storage, anchor, every=every)
    assert ledger.verify(THREAD) >= 1  # and no alarm
    if is_there:
        with pytest.raises(ThreadDeleted):
            ledger.latest(THREAD)
        with pytest.raises(ThreadDeleted):
            ledger.save(THREAD, {"n": 5})
    else:
        assert ledger.latest(THREAD).state == {"n": 4}
    assert ledger.delete(THREAD).sequence == 5
    for again in (ledger, opened(storage, anchor, every=every)):
        assert again.verify(THREAD) == 1
        with pytest.raises(ThreadDeleted):
            again.latest(THREAD)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["prune", "advance"])
@pytest.mark.parametrize("every", [1, 100])
def test_a_prune_that_was_cut_off_is_finished_by_the_next(
    storage: Memory | Files,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    every: int,
    *,
    after: bool,
) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor, every=every), 6)
    thing = anchor if name == "advance" else storage
    restore = killing(monkeypatch, thing, name, after=after)
    with pytest.raises(Killed):
        opened(storage, anchor, every=every).prune(THREAD, keep=2)
    restore()
    pruned = (name, after) == ("prune", True)
    ledger = opened(storage, anchor, every=every)
    assert ledger.verify(THREAD) == (2 if pruned else 6)
    assert ledger.prune(THREAD, keep=2) == (0 if pruned else 4)
    assert states(opened(storage, anchor, every=every)) == [5, 6]


def test_records_that_a_killed_prune_left_are_not_seen_and_go_with_the_next(
    tmp_path: Path,
) -> None:
    """On disk the base comes first, and the files below it go one after another."""
    storage = Files(tmp_path / "store")
    fill(opened(storage), 6)
    left = {number: storage.read(THREAD, number) for number in (2, 4)}
    opened(storage).prune(THREAD, keep=2)
    for number, record in left.items():
        storage.put(THREAD, number, record)
    ledger = opened(Files(tmp_path / "store"))
    assert states(ledger) == [5, 6]
    assert ledger.verify(THREAD) == 2
    with pytest.raises(NotFound):
        ledger.load(THREAD, 4)
    ledger.save(THREAD, {"n": 7})
    ledger.prune(THREAD, keep=2)
    names = sorted(file.name for file in (tmp_path / "store" / THREAD).glob("*.checkpoint"))
    assert names == ["0000000006.checkpoint", "0000000007.checkpoint"]


def test_a_storage_that_fails_to_prune_is_named(
    storage: Memory | Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(storage)
    fill(ledger, 3)

    def failing(*_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(storage, "prune", failing)
    with pytest.raises(StorageUnavailable, match="could not prune order-7: it raised ZeroDiv"):
        ledger.prune(THREAD, keep=1)
