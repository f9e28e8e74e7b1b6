"""What a storage in memory says; what it does is in `test_conformance.py`."""

from __future__ import annotations

from typing import Any

import pytest

from safepoint.errors import Conflict, EncodeError, NotFound
from safepoint.storage import CheckpointStorage, InMemoryCheckpointStorage


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


def test_the_repr_shows_no_state(storage: InMemoryCheckpointStorage) -> None:
    storage.append("a", 1, b"canary")
    assert repr(storage) == "InMemoryCheckpointStorage(<1 threads>)"
