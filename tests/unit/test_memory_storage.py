from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from safepoint.errors import Conflict, EncodeError, InvalidId, NotFound
from safepoint.storage import CheckpointStorage, InMemoryCheckpointStorage

ODD_NAMES = ["", ".", "..", "../x", "a/b", "a\\b", "a\0", "a\n", "A", "\u0430", "con", " ", "-x"]
ODD_SEQUENCES: list[Any] = [0, -1, True, 1.0, "1", None, 10_000_000_000]


@pytest.fixture
def storage() -> InMemoryCheckpointStorage:
    return InMemoryCheckpointStorage()


def test_it_is_a_storage(storage: InMemoryCheckpointStorage) -> None:
    """The four methods have the types of the contract (checked by mypy) and work through it."""
    contract: CheckpointStorage = storage
    contract.append("a", 1, b"one")
    assert contract.read("a", 1) == b"one"
    assert contract.head("a") == 1
    assert list(contract.threads()) == ["a"]


def test_what_was_appended_is_read_back_in_its_own_thread(
    storage: InMemoryCheckpointStorage,
) -> None:
    storage.append("a", 1, b"one")
    storage.append("a", 2, b"two")
    storage.append("b", 1, b"other")
    assert [storage.read("a", 1), storage.read("a", 2), storage.read("b", 1)] == [
        b"one",
        b"two",
        b"other",
    ]
    assert (storage.head("a"), storage.head("b"), storage.head("c")) == (2, 1, 0)
    assert sorted(storage.threads()) == ["a", "b"]


def test_a_changed_buffer_changes_nothing_stored(storage: InMemoryCheckpointStorage) -> None:
    """In-memory aliasing: the storage keeps its own bytes."""
    buffer: Any = bytearray(b"state")
    storage.append("a", 1, buffer)
    storage.append("a", 2, memoryview(buffer))  # type: ignore[arg-type]
    buffer[:] = b"EVIL!"
    assert storage.read("a", 1) == b"state"
    assert storage.read("a", 2) == b"state"
    assert type(storage.read("a", 1)) is bytes


def test_a_second_writer_is_told_and_nothing_is_overwritten(
    storage: InMemoryCheckpointStorage,
) -> None:
    storage.append("order-7", 1, b"first")
    with pytest.raises(Conflict) as caught:
        storage.append("order-7", 1, b"second")
    assert str(caught.value) == (
        "Thread 'order-7' already has a checkpoint 1. "
        "Nothing was overwritten. Load the latest checkpoint and decide again from there."
    )
    assert storage.read("order-7", 1) == b"first"


def test_what_is_not_there_is_not_found(storage: InMemoryCheckpointStorage) -> None:
    storage.append("order-7", 1, b"first")
    for thread, sequence in [("order-7", 2), ("order-8", 1)]:
        with pytest.raises(NotFound) as caught:
            storage.read(thread, sequence)
        assert str(caught.value) == (
            f"Thread '{thread}' has no checkpoint {sequence}. "
            "Check the thread's name; its head is the highest sequence that it has."
        )
    assert storage.threads() == ["order-7"]


@pytest.mark.parametrize("record", ["text", None, 7, [1]])
def test_a_record_that_is_not_bytes_is_refused(
    storage: InMemoryCheckpointStorage, record: Any
) -> None:
    with pytest.raises(EncodeError) as caught:
        storage.append("a", 1, record)
    assert caught.value.what == f"A record is bytes, and this is {type(record).__name__}."
    assert storage.head("a") == 0


@pytest.mark.parametrize("name", [*ODD_NAMES, None, 7, b"a"])
def test_an_odd_name_is_refused_by_every_method(
    storage: InMemoryCheckpointStorage, name: Any
) -> None:
    for call in (
        lambda: storage.append(name, 1, b""),
        lambda: storage.read(name, 1),
        lambda: storage.head(name),
    ):
        with pytest.raises(InvalidId):
            call()
    assert storage.threads() == []


@pytest.mark.parametrize("sequence", ODD_SEQUENCES)
def test_an_odd_sequence_is_refused(storage: InMemoryCheckpointStorage, sequence: Any) -> None:
    with pytest.raises(InvalidId):
        storage.append("a", sequence, b"")
    with pytest.raises(InvalidId):
        storage.read("a", sequence)
    assert storage.threads() == []


def test_one_of_many_threads_wins_each_sequence(storage: InMemoryCheckpointStorage) -> None:
    def write(writer: int) -> int:
        won = 0
        for sequence in range(1, 301):
            try:
                storage.append("a", sequence, str(writer).encode())
            except Conflict:
                continue
            won += 1
        return won

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(write, range(4))) == 300
    assert storage.head("a") == 300


def test_the_repr_shows_no_state(storage: InMemoryCheckpointStorage) -> None:
    storage.append("a", 1, b"canary")
    assert repr(storage) == "InMemoryCheckpointStorage(<1 threads>)"
