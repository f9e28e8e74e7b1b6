"""Forgetting the beginning of a thread, and reading many records: the same in each storage."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from safepoint.errors import Conflict, EncodeError, InvalidId, NotFound
from safepoint.storage import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    RetentionStorage,
)

Storage = FileCheckpointStorage | InMemoryCheckpointStorage


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "memory":
        return InMemoryCheckpointStorage()
    return FileCheckpointStorage(tmp_path / "store")


def fill(storage: Storage, last: int, first: int = 1) -> None:
    for sequence in range(first, last + 1):
        storage.append("a", sequence, b"record %d" % sequence)


def pruned(sequence: int, first: int) -> str:
    return (
        f"Checkpoint {sequence} of thread 'a' was pruned; the thread begins at {first} now."
        f" Ask for {first} or a later one, or look for {sequence} in a backup."
    )


def test_it_is_a_storage_that_can_forget(storage: Storage) -> None:
    """The methods have the types of the contract (checked by mypy) and work through it."""
    contract: RetentionStorage = storage
    fill(storage, 3)
    assert contract.base("a") is None
    assert contract.prune("a", 3, b"base") == 2
    assert contract.base("a") == (3, b"base")
    assert list(contract.scan("a", 3, 3)) == [b"record 3"]


def test_what_is_below_the_base_is_gone_and_the_rest_goes_on(storage: Storage) -> None:
    fill(storage, 30)
    storage.append("b", 1, b"other")
    assert storage.prune("a", 20, b"base") == 19
    assert (storage.head("a"), storage.head("b")) == (30, 1)
    assert sorted(storage.threads()) == ["a", "b"]
    for sequence in (1, 19):
        with pytest.raises(NotFound) as refusal:
            storage.read("a", sequence)
        assert str(refusal.value) == pruned(sequence, 20)
    with pytest.raises(NotFound, match=r"Thread 'a' has no checkpoint 31\."):
        storage.read("a", 31)
    assert [storage.read("a", sequence) for sequence in (20, 30)] == [b"record 20", b"record 30"]
    fill(storage, 32, first=31)
    assert storage.head("a") == 32
    assert storage.prune("a", 32, b"newer") == 12
    assert (storage.base("a"), storage.head("a")) == ((32, b"newer"), 32)
    assert (storage.base("b"), storage.read("b", 1)) == (None, b"other")


def test_a_thread_never_moves_backwards(storage: Storage) -> None:
    fill(storage, 30)
    storage.prune("a", 20, b"base")
    for first in (19, 1):
        assert storage.prune("a", first, b"older") == 0
        assert storage.base("a") == (20, b"base")
    assert storage.head("a") == 30


def test_a_base_at_the_same_place_takes_the_place_of_the_old_one(storage: Storage) -> None:
    """So an operator can seal it anew, under a key that counts."""
    fill(storage, 30)
    storage.prune("a", 20, b"base")
    assert storage.prune("a", 20, b"sealed anew") == 0
    assert storage.base("a") == (20, b"sealed anew")
    assert storage.head("a") == 30
    assert [storage.read("a", sequence) for sequence in (20, 30)] == [b"record 20", b"record 30"]
    with pytest.raises(NotFound, match="begins at 20 now"):
        storage.read("a", 19)


def test_a_base_at_the_first_record_removes_nothing(storage: Storage) -> None:
    fill(storage, 3)
    assert storage.prune("a", 1, b"base") == 0
    assert (storage.base("a"), storage.head("a")) == ((1, b"base"), 3)
    assert storage.read("a", 1) == b"record 1"


def test_a_base_before_no_record_is_refused(storage: Storage) -> None:
    """It would leave a thread that begins with nothing."""
    fill(storage, 3)
    for thread, first in [("a", 4), ("b", 1)]:
        with pytest.raises(NotFound) as refusal:
            storage.prune(thread, first, b"base")
        assert refusal.value.what == f"Thread '{thread}' has no checkpoint {first}."
        assert storage.base(thread) is None
    assert (storage.head("a"), storage.threads()) == (3, ["a"])
    storage.prune("a", 2, b"base")
    with pytest.raises(NotFound):
        storage.prune("a", 4, b"base")
    assert storage.base("a") == (2, b"base")
    assert [storage.read("a", sequence) for sequence in (2, 3)] == [b"record 2", b"record 3"]


def test_nothing_is_saved_below_the_base(storage: Storage) -> None:
    fill(storage, 30)
    storage.prune("a", 20, b"base")
    for sequence in (1, 19):
        with pytest.raises(Conflict) as refusal:
            storage.append("a", sequence, b"late")
        assert str(refusal.value) == (
            f"Thread 'a' had a checkpoint {sequence}, and begins at 20 by now."
            " Nothing was overwritten. Load the latest checkpoint and decide again from there."
        )
    with pytest.raises(Conflict, match="already has a checkpoint 20"):
        storage.append("a", 20, b"late")
    assert storage.head("a") == 30


def test_a_base_is_a_copy_of_bytes(storage: Storage) -> None:
    fill(storage, 2)
    buffer: Any = bytearray(b"base")
    storage.prune("a", 2, buffer)
    buffer[:] = b"EVIL"
    assert storage.base("a") == (2, b"base")
    fill(storage, 3, first=3)
    text: Any = "text"
    with pytest.raises(EncodeError, match=r"A record is bytes, and this is str\."):
        storage.prune("a", 3, text)
    assert storage.base("a") == (2, b"base")


@pytest.mark.parametrize("base", [b"", b"\n", b"0000000009\n", b"\0\xff" * 5000])
def test_a_base_comes_back_exactly(storage: Storage, base: bytes) -> None:
    fill(storage, 2)
    storage.prune("a", 2, base)
    assert storage.base("a") == (2, base)


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", None, 7])
def test_an_odd_name_is_refused_by_every_method(storage: Storage, name: Any) -> None:
    for call in (
        lambda: storage.base(name),
        lambda: storage.prune(name, 1, b""),
        lambda: storage.scan(name, 1, 1),
    ):
        with pytest.raises(InvalidId):
            call()
    assert storage.threads() == []


@pytest.mark.parametrize("sequence", [0, -1, True, 1.0, "1", None, 10_000_000_000])
def test_an_odd_sequence_is_refused(storage: Storage, sequence: Any) -> None:
    fill(storage, 1)
    for call in (
        lambda: storage.prune("a", sequence, b""),
        lambda: storage.scan("a", sequence, 1),
        lambda: storage.scan("a", 1, sequence),
    ):
        with pytest.raises(InvalidId):
            call()
    assert storage.base("a") is None


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        (1, 5, [1, 2, 3, 4, 5]),
        (2, 3, [2, 3]),
        (5, 5, [5]),
        (4, 2, [4, 3, 2]),
        (5, 1, [5, 4, 3, 2, 1]),
    ],
)
def test_a_scan_goes_from_the_first_to_the_last(
    storage: Storage, first: int, last: int, found: list[int]
) -> None:
    fill(storage, 5)
    assert list(storage.scan("a", first, last)) == [b"record %d" % number for number in found]


def test_a_scan_stops_where_a_read_would(storage: Storage) -> None:
    fill(storage, 3)
    records = storage.scan("a", 2, 5)
    assert [next(records), next(records)] == [b"record 2", b"record 3"]
    with pytest.raises(NotFound, match=r"Thread 'a' has no checkpoint 4\."):
        next(records)
    with pytest.raises(NotFound, match=r"Thread 'b' has no checkpoint 7\."):
        list(storage.scan("b", 7, 9))
    storage.prune("a", 2, b"base")
    with pytest.raises(NotFound) as refusal:
        next(storage.scan("a", 1, 3))
    assert str(refusal.value) == pruned(1, 2)
    downwards = storage.scan("a", 3, 1)
    assert [next(downwards), next(downwards)] == [b"record 3", b"record 2"]
    with pytest.raises(NotFound) as refusal:
        next(downwards)
    assert str(refusal.value) == pruned(1, 2)


def test_a_scan_is_told_that_the_thread_was_pruned_meanwhile(storage: Storage) -> None:
    """Not that somebody removed a record."""
    fill(storage, 9)
    records = storage.scan("a", 1, 9)
    assert next(records) == b"record 1"
    storage.prune("a", 5, b"base")
    with pytest.raises(NotFound) as refusal:
        next(records)
    assert str(refusal.value) == pruned(2, 5)


def test_the_latest_prune_wins_among_threads(storage: Storage) -> None:
    """Whatever the order in which they come: the base is the highest, and nothing above it went."""
    for trial in range(10):
        name = f"t{trial}"
        for sequence in range(1, 41):
            storage.append(name, sequence, b"%d" % sequence)
        start = threading.Barrier(4)

        def prune(first: int, name: str = name, start: threading.Barrier = start) -> int:
            start.wait()
            return storage.prune(name, first, b"base %d" % first)

        with ThreadPoolExecutor(4) as pool:
            removed = list(pool.map(prune, (10, 30, 20, 25)))
        assert sum(removed) == 29
        assert storage.base(name) == (30, b"base 30")
        assert storage.head(name) == 40
        assert list(storage.scan(name, 30, 40)) == [b"%d" % n for n in range(30, 41)]


def test_one_of_four_threads_wins_each_sequence(storage: Storage) -> None:
    """Each of four saves 75 of its own, one after the other; who loses looks again and retries."""
    start = threading.Barrier(4)

    def write(writer: int) -> tuple[list[int], int]:
        start.wait()
        won: list[int] = []
        lost = 0
        while len(won) < 75:
            sequence = storage.head("a") + 1
            try:
                storage.append("a", sequence, b"%d:%d" % (writer, sequence))
            except Conflict:
                lost += 1
            else:
                won.append(sequence)
        return won, lost

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(write, range(4)))
    assert sorted(sequence for won, _ in results for sequence in won) == list(range(1, 301))
    assert storage.head("a") == 300
    winner = {sequence: n for n, (won, _) in enumerate(results) for sequence in won}
    for sequence, record in enumerate(storage.scan("a", 1, 300), start=1):
        assert record == b"%d:%d" % (winner[sequence], sequence)
