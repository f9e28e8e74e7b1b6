"""Finding the head of a thread, and what is missing from it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint.errors import Conflict, RecordsMissing
from safepoint.names import MAX_SEQUENCE
from safepoint.storage import FileCheckpointStorage
from safepoint.storage._head import find_head, highest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def storage(root: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(root)


@given(st.integers(0, 3000), st.integers(0, 5000), st.integers(1, 3000))
def test_the_head_is_found_from_any_start(head: int, start: int, first: int) -> None:
    assert highest(lambda number: 1 <= number <= head, start) == head
    found = highest(lambda number: first <= number <= head, start, first)
    assert found == max(head, first - 1)


def test_the_head_is_found_up_to_the_last_sequence() -> None:
    for head in (MAX_SEQUENCE - 1, MAX_SEQUENCE):
        assert highest(lambda number: number <= head) == head  # noqa: B023 - used at once


def count_stats(
    monkeypatch: pytest.MonkeyPatch, storage: FileCheckpointStorage, records: int
) -> tuple[int, int]:
    """Let the thread seem to have that many records; count the names asked, cold and warm."""
    real, asked = os.stat, []

    def fake(path: Any, **options: Any) -> os.stat_result:
        if not str(path).endswith(".checkpoint"):
            return real(path, **options)
        asked.append(path)
        if int(str(path).removesuffix(".checkpoint")) > records:
            raise FileNotFoundError
        return real(".")

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", fake)
        assert storage.head("a") == records
        cold = len(asked)
        assert storage.head("a") == records
    return cold, len(asked) - cold


def test_finding_the_head_does_not_grow_with_the_thread(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten or a hundred thousand records: three names once known, a few at first, no listing."""

    def never(*_: Any) -> None:
        raise AssertionError("the head was found by listing or reading")

    monkeypatch.setattr(os, "scandir", never)
    monkeypatch.setattr(os, "listdir", never)
    monkeypatch.setattr(os, "read", never)
    (root / "a").mkdir(parents=True, mode=0o700)
    root.chmod(0o700)
    few = count_stats(monkeypatch, FileCheckpointStorage(root), 10)
    many = count_stats(monkeypatch, FileCheckpointStorage(root), 100_000)
    assert few[1] == many[1] == 3
    assert few[0] <= 8 + 33
    assert many[0] <= 34 + 33


@pytest.mark.parametrize("removed", [[1], [3], [2, 3], [1, 2, 3, 4], [7], [4, 5, 6, 7]])
def test_a_record_removed_from_the_middle_is_noticed(
    storage: FileCheckpointStorage, root: Path, removed: list[int]
) -> None:
    """Neither an older head nor a save into the gap: both would lose what came after it."""
    for sequence in range(1, 10):
        storage.append("a", sequence, b"")
    for sequence in removed:
        (root / f"a/{sequence:010d}.checkpoint").unlink()
    with pytest.raises(RecordsMissing) as refusal:
        FileCheckpointStorage(root).head("a")
    assert re.fullmatch(
        rf"Thread 'a' has checkpoint \d but not {removed[0]}\. Somebody removed it, or put a later"
        r" one there\. Restore it from a backup, or move the later one away; until then nothing is"
        r" loaded or saved\.",
        str(refusal.value),
    )


@pytest.mark.parametrize("removed", range(1, 40))
def test_one_missing_record_never_makes_an_older_one_the_head(
    storage: FileCheckpointStorage, root: Path, removed: int
) -> None:
    """Whatever the search happens to ask: the newest is found, or the gap is."""
    (root / "a").mkdir(mode=0o700)
    for sequence in range(1, 42):
        (root / f"a/{sequence:010d}.checkpoint").touch(mode=0o600)
    (root / f"a/{removed:010d}.checkpoint").unlink()
    try:
        found = str(storage.head("a"))
    except RecordsMissing as refusal:
        found = refusal.what
    assert found == "41" or found.endswith(f"but not {removed}.")


class Thread:
    """Numbers that stand for records. At the n-th question whether one exists, `event` happens."""

    def __init__(self, numbers: Iterable[int], begin: int = 0) -> None:
        self.numbers = set(numbers)
        self.begin = begin
        self.asked = 0
        self.at = 0
        self.event: Callable[[], None] = lambda: None

    def exists(self, sequence: int) -> bool:
        self.asked += 1
        if self.asked == self.at:
            self.event()
        return sequence in self.numbers

    def first(self) -> int:
        return self.begin

    def anything(self) -> int | None:
        return next(iter(self.numbers), None)

    def prune(self, first: int) -> None:
        self.begin = first
        self.numbers = {number for number in self.numbers if number >= first}


def test_records_saved_while_the_head_is_looked_for_are_no_gap() -> None:
    """Two appear at each possible moment."""
    for at in range(1, 60):
        thread = Thread(range(1, 10))
        thread.at, thread.event = at, partial(thread.numbers.update, {10, 11})
        assert find_head("a", thread, 0) in (9, 10, 11)


@pytest.mark.parametrize("start", [0, 3, 37, 100])
@pytest.mark.parametrize("first", [2, 38, 64, 99, 100])
def test_a_prune_while_the_head_is_looked_for_is_no_gap(start: int, first: int) -> None:
    """At each possible moment; a head below the true one would be a rollback."""
    asked = 1000
    for at in range(1, 80):
        thread = Thread(range(1, 101))
        thread.at, thread.event = at, partial(thread.prune, first)
        assert find_head("a", thread, start) == 100
        asked = min(asked, thread.asked)
    assert asked < 80


@given(st.integers(1, 500), st.integers(0, 600), st.data())
def test_the_head_of_a_pruned_thread_is_found_past_any_left_overs(
    head: int, start: int, data: st.DataObject
) -> None:
    """After a power loss any of the removed files may be back: none of them is a gap or a head."""
    first = data.draw(st.integers(1, head))
    left = data.draw(st.sets(st.integers(1, first)))
    assert find_head("a", Thread({*left, *range(first, head + 1)}, first), start) == head


def test_the_head_of_a_pruned_thread_takes_as_many_questions_as_it_has_records() -> None:
    """Not as many as the records it once had."""
    few, many = Thread(range(1, 11)), Thread(range(1_000_000_001, 1_000_000_011), 1_000_000_001)
    assert find_head("a", few, 0) == 10
    assert find_head("a", many, 0) == 1_000_000_010
    assert many.asked <= few.asked


@pytest.mark.parametrize("first", [1, 20])
@pytest.mark.parametrize("kept", [range(0), range(21, 30), range(1, 15)], ids=str)
def test_a_pruned_thread_without_its_first_record_is_refused(first: int, kept: range) -> None:
    numbers = {number for number in kept if number != first}
    with pytest.raises(RecordsMissing) as refusal:
        find_head("a", Thread(numbers, first), 0)
    assert str(refusal.value) == (
        f"Thread 'a' was pruned to begin at checkpoint {first}, and that one is gone. Somebody"
        " removed it, or put a later one there. Restore it from a backup, or move the later one"
        " away; until then nothing is loaded or saved."
    )


def test_records_without_their_beginning_are_never_an_empty_thread(
    storage: FileCheckpointStorage, root: Path
) -> None:
    """However far away what is left is: somebody removed the base, or the records before it."""
    (root / "a").mkdir(mode=0o700)
    for sequence in (20, 23, 700_000):
        record = root / f"a/{sequence:010d}.checkpoint"
        record.touch(mode=0o600)
        with pytest.raises(RecordsMissing, match=rf"has checkpoint {sequence} but not 1\."):
            storage.head("a")
        record.unlink()
    assert storage.head("a") == 0


def test_a_head_that_moved_back_is_seen(storage: FileCheckpointStorage, root: Path) -> None:
    """What is remembered is only where to begin: the ledger must see a store that was cut."""
    for sequence in range(1, 8):
        storage.append("a", sequence, b"")
    assert storage.head("a") == 7
    for sequence in (5, 6, 7):
        (root / f"a/{sequence:010d}.checkpoint").unlink()
    assert storage.head("a") == 4
    (root / "a").rename(root / "b")
    assert (storage.head("a"), storage.head("b")) == (0, 4)


def test_what_is_remembered_is_bounded(
    storage: FileCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safepoint.storage.file._REMEMBERED", 3)
    for number in range(10):
        storage.head(f"t{number}")
    assert len(storage._heads) <= 3


def test_a_save_into_a_gap_is_refused(storage: FileCheckpointStorage, root: Path) -> None:
    """It would be acknowledged, and then an older record would be the head."""
    for sequence in (1, 2, 3):
        storage.append("a", sequence, b"")
    (root / "a/0000000002.checkpoint").unlink()
    with pytest.raises(RecordsMissing, match=r"has checkpoint 3 but not 2\."):
        storage.append("a", 2, b"")
    with pytest.raises(Conflict):
        storage.append("a", 1, b"")


def test_a_thread_whose_first_record_is_gone_is_still_listed(
    storage: FileCheckpointStorage, root: Path
) -> None:
    storage.append("a", 1, b"")
    storage.append("a", 2, b"")
    (root / "a/0000000001.checkpoint").unlink()
    assert storage.threads() == ["a"]
    with pytest.raises(RecordsMissing):
        FileCheckpointStorage(root).head("a")
