"""The ledger and its anchor: what extends it is accepted, what does not is refused."""

from __future__ import annotations

from typing import Any

import pytest

from safepoint import InMemoryAnchor, NotFound, RolledBack
from safepoint.errors import (
    AnchorUnavailable,
    ConfigurationError,
    Forked,
    RecordsMissing,
    UnsafeLocation,
    WrongPlace,
)
from safepoint.names import Head
from tests.unit.tampered import STORE, THREAD, USES, Memory, Writable, fill, opened, states

NOBODYS = "sha256:" + "0" * 64


def cut(storage: Writable, head: int) -> None:
    for sequence in range(storage.head(THREAD), head, -1):
        storage.remove(THREAD, sequence)


def seen(anchor: InMemoryAnchor) -> int | None:
    head = anchor.read(STORE, THREAD)
    return None if head is None else head.sequence


def test_an_interval_anchors_the_first_and_then_each_nth(storage: Writable) -> None:
    anchor, at = InMemoryAnchor(), []
    ledger = opened(storage, anchor, every=3)
    for _ in range(8):
        ledger.save(THREAD, {})
        at.append(seen(anchor))
    assert at == [1, 1, 1, 4, 4, 4, 7, 7]
    saved = ledger.save(THREAD, {"about to": "pay"}, anchor="now")
    assert anchor.read(STORE, THREAD) == Head(9, saved.digest)


def test_anchor_now_without_an_anchor_is_refused_before_anything_is_saved() -> None:
    storage = Memory()
    with pytest.raises(ConfigurationError, match="no anchor"):
        opened(storage).save(THREAD, {}, anchor="now")
    assert storage.head(THREAD) == 0


def test_a_thread_is_settled_before_a_step_acts(storage: Writable) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage), 3)
    opened(storage).settle(THREAD)  # there is nothing to do without an anchor
    genuine = storage.read(THREAD, 2)
    storage.put(THREAD, 2, storage.read(THREAD, 1))
    with pytest.raises(WrongPlace):  # nothing vouches for the past yet, so all of it is looked at
        opened(storage, anchor).settle(THREAD)
    assert seen(anchor) is None
    storage.put(THREAD, 2, genuine)
    opened(storage, anchor).settle(THREAD)
    assert seen(anchor) == 3
    fill(opened(storage), 1)
    opened(storage, anchor, every=100).settle(THREAD)
    assert seen(anchor) == 4


@pytest.mark.parametrize("left", range(5))
def test_a_cut_of_any_length_is_refused(storage: Writable, left: int) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 5)
    cut(storage, left)
    for use in USES.values():
        with pytest.raises(RolledBack) as refusal:
            use(opened(storage, anchor))
        gone = f"ends at #{left}" if left else "is gone"
        assert refusal.value.what == f"order-7 {gone}, and the anchor has seen #5."
        assert "accept_loss" in refusal.value.do
    assert storage.head(THREAD) == left
    assert opened(storage, anchor).threads() == [THREAD]
    assert opened(Memory(), anchor).threads() == [THREAD]  # and if not even its name is left


@pytest.mark.parametrize("length", [1, 3])
def test_a_fork_is_refused(storage: Writable, length: int) -> None:
    """A copy of the store went on by itself, with the same key."""
    anchor, original = InMemoryAnchor(), Memory()
    fill(opened(original), 3)
    opened(original).copy_to(opened(storage))
    fill(opened(original, anchor), 1)
    fill(opened(storage), length)
    load = lambda ledger: ledger.load(THREAD, 3 + length)  # noqa: E731
    for use in (load, *USES.values()):
        with pytest.raises(Forked, match="order-7 #4 is not the record that the anchor has seen"):
            use(opened(storage, anchor))


def test_what_the_anchor_says_counts_in_a_process_that_has_looked_before(storage: Writable) -> None:
    anchor = InMemoryAnchor()
    ledger = opened(storage, anchor, every=100)
    fill(ledger, 5)
    ledger.latest(THREAD)
    for sequence, use in [(3, "latest"), (5, "save"), (5, "latest")]:
        anchor.rewind(STORE, THREAD, Head(sequence, NOBODYS))
        with pytest.raises(Forked):
            USES[use](ledger)


def test_a_fork_that_the_anchor_finds_while_it_moves_is_told_as_one() -> None:
    class Racing(InMemoryAnchor):
        def advance(self, store: str, thread: str, head: Head) -> None:
            super().advance(store, thread, Head(head.sequence, NOBODYS))
            super().advance(store, thread, head)

    with pytest.raises(Forked):
        opened(Memory(), Racing()).save(THREAD, {})


def test_the_anchor_is_asked_before_the_storage(storage: Writable) -> None:
    """A save that ends between the two questions must not look like a rollback."""
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 3)

    class Busy(InMemoryAnchor):
        def read(self, store: str, thread: str) -> Head | None:
            head = anchor.read(store, thread)
            opened(storage, anchor).save(thread, {"by": "another process"})
            return head

    ledger = opened(storage, Busy())
    assert [ledger.latest(THREAD).sequence for _ in range(3)] == [4, 5, 6]


class Failing(InMemoryAnchor):
    """An anchor that fails when told to."""

    reading: Any = None
    moving: Exception | None = None

    def read(self, store: str, thread: str) -> Head | None:
        if isinstance(self.reading, Exception):
            raise self.reading
        return super().read(store, thread) if self.reading is None else self.reading

    def advance(self, store: str, thread: str, head: Head) -> None:
        if self.moving:
            raise self.moving
        super().advance(store, thread, head)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (OSError(5, "away"), "could not be asked about order-7: it raised OSError"),
        ((1, NOBODYS), "could not be asked about order-7: it raised AttributeError"),
    ],
)
def test_an_anchor_that_cannot_be_read_lets_nothing_through(answer: Any, told: str) -> None:
    storage, anchor = Memory(), Failing()
    ledger = opened(storage, anchor)
    fill(ledger, 1)
    anchor.reading = answer
    for each in (ledger, opened(storage, anchor)):
        for use in USES.values():
            with pytest.raises(AnchorUnavailable, match=told):
                use(each)
    assert storage.head(THREAD) == 1


@pytest.mark.parametrize("error", [OSError(5, "away"), UnsafeLocation("It is open.", "Close it.")])
def test_an_anchor_that_cannot_be_moved_says_that_the_checkpoint_is_saved(
    storage: Writable, error: Exception
) -> None:
    anchor = Failing()
    ledger = opened(storage, anchor)
    fill(ledger, 1)
    anchor.moving = error
    with pytest.raises(AnchorUnavailable, match=r"^order-7 #2 is saved, but not anchored\."):
        ledger.save(THREAD, {"n": 2})
    with pytest.raises((AnchorUnavailable, UnsafeLocation)):
        opened(storage, anchor).prune(THREAD, keep=1)  # and nothing is removed
    anchor.moving = None
    assert states(ledger) == [1, 2]
    fill(ledger, 1, first=3)
    assert seen(anchor) == 3


def test_latest_reads_what_is_newer_than_the_anchor_and_that_once() -> None:
    class Counting(Memory):
        reads = 0

        def read(self, thread: str, sequence: int) -> bytes:
            self.reads += 1
            return super().read(thread, sequence)

    for every, first in [(1, 1), (100, 10)]:
        storage, anchor = Counting(), InMemoryAnchor()
        fill(opened(storage, anchor, every=every), 10)
        assert storage.reads == 0
        ledger = opened(storage, anchor, every=every)
        ledger.latest(THREAD)
        assert storage.reads == first
        ledger.latest(THREAD)
        assert storage.reads == first + 1


def test_progress_counts_what_is_newer_than_the_anchor(storage: Writable) -> None:
    anchor, told = InMemoryAnchor(), []
    fill(opened(storage, anchor, every=5), 7)
    opened(storage, anchor).verify(THREAD, progress=lambda *given: told.append(given))
    assert told == [(2, 7), (3, 7), (4, 7), (5, 7), (6, 7), (7, 7)]


@pytest.mark.parametrize("left", [3, 0])
def test_a_loss_is_accepted_by_name_only(storage: Writable, left: int) -> None:
    anchor = InMemoryAnchor()
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    before = anchor.read(STORE, THREAD)
    cut(storage, left)
    assert ledger.accept_loss(THREAD) == (before, anchor.read(STORE, THREAD))
    assert seen(anchor) == (left or None)
    if left:
        assert ledger.latest(THREAD).state == {"n": left}
    else:
        with pytest.raises(NotFound):
            ledger.latest(THREAD)
    assert ledger.save(THREAD, {}).sequence == left + 1


def test_a_loss_is_not_accepted_if_what_is_left_does_not_verify(storage: Writable) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 5)
    cut(storage, 3)
    storage.put(THREAD, 2, storage.read(THREAD, 1))
    with pytest.raises(WrongPlace):
        opened(storage, anchor).accept_loss(THREAD)
    assert seen(anchor) == 5


def test_an_anchored_record_that_was_pruned_without_the_anchor_is_missed(storage: Writable) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 5)
    fill(opened(storage), 5, first=6)
    opened(storage).prune(THREAD, keep=2)
    ledger = opened(storage, anchor)
    for use in ("latest", "verify", "save"):
        with pytest.raises(RecordsMissing, match="order-7 #5, which the anchor has seen"):
            USES[use](ledger)
    ledger.accept_loss(THREAD)
    assert ledger.latest(THREAD).state == {"n": 10}
