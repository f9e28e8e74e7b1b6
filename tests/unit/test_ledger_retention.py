"""Pruning: what is left still verifies, and nothing goes without a signature."""

from __future__ import annotations

from typing import Any

import pytest

from safepoint import (
    AnchorUnavailable,
    CheckpointError,
    ConfigurationError,
    Head,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InvalidId,
    KeyRefused,
    Keyring,
    NotFound,
    RolledBack,
    SealError,
    SigningKey,
    StorageUnavailable,
    WrongPlace,
)
from tests.unit.tampered import (
    STORE,
    THREAD,
    Files,
    Memory,
    base_of,
    fill,
    opened,
    states,
)


def test_pruning_keeps_the_newest(storage: Memory | Files, anchor: InMemoryAnchor | None) -> None:
    fill(opened(storage, anchor), 10)
    assert opened(storage, anchor).prune(THREAD, keep=3) == 7
    ledger = opened(storage, anchor)
    assert states(ledger) == [8, 9, 10]
    assert ledger.verify(THREAD) == 3
    assert ledger.latest(THREAD).state == {"n": 10}
    assert ledger.load(THREAD, 8).state == {"n": 8}
    assert ledger.save(THREAD, {"n": 11}).sequence == 11
    assert states(opened(storage, anchor)) == [8, 9, 10, 11]


def test_what_was_pruned_is_gone(storage: Memory | Files, anchor: InMemoryAnchor | None) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    ledger.prune(THREAD, keep=2)
    for sequence in (1, 2, 3):
        with pytest.raises(NotFound, match="was pruned; the thread begins at 4 now"):
            ledger.load(THREAD, sequence)


def test_the_links_go_on_over_the_cut(storage: Memory | Files) -> None:
    """The first that is kept still names the digest of the one that is gone."""
    ledger = opened(storage)
    fill(ledger, 5)
    before = list(ledger.history(THREAD))
    ledger.prune(THREAD, keep=2)
    assert list(ledger.history(THREAD)) == before[3:]


@pytest.mark.parametrize("keep", [5, 6, 1000])
def test_keeping_as_many_as_there_are_removes_nothing(storage: Memory | Files, keep: int) -> None:
    ledger = opened(storage)
    fill(ledger, 5)
    assert ledger.prune(THREAD, keep=keep) == 0
    assert storage.base(THREAD) is None
    assert ledger.verify(THREAD) == 5


def test_pruning_again_and_again(storage: Memory | Files, anchor: InMemoryAnchor | None) -> None:
    fill(opened(storage, anchor), 10)
    removed = [opened(storage, anchor).prune(THREAD, keep=keep) for keep in (8, 8, 5, 9, 1, 1)]
    assert removed == [2, 0, 3, 0, 4, 0]
    assert states(opened(storage, anchor)) == [10]


def test_pruning_as_it_grows(storage: Memory | Files, anchor: InMemoryAnchor | None) -> None:
    ledger = opened(storage, anchor)
    for number in range(1, 21):
        ledger.save(THREAD, {"n": number})
        ledger.prune(THREAD, keep=3)
        assert ledger.verify(THREAD) == min(number, 3)
    assert states(opened(storage, anchor)) == [18, 19, 20]


def test_other_threads_stay(storage: Memory | Files, anchor: InMemoryAnchor | None) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    fill(ledger, 5, "order-8")
    ledger.prune(THREAD, keep=1)
    assert ledger.verify("order-8") == 5


@pytest.mark.parametrize("keep", [0, -1, True, 1.5, "3", None])
def test_keep_is_a_whole_number(storage: Memory | Files, keep: Any) -> None:
    ledger = opened(storage)
    fill(ledger, 3)
    with pytest.raises(ConfigurationError, match="keep"):
        ledger.prune(THREAD, keep=keep)
    assert ledger.verify(THREAD) == 3


@pytest.mark.parametrize("use", ["prune", "delete"])
def test_a_thread_that_is_not_there(
    storage: Memory | Files, anchor: InMemoryAnchor | None, use: str
) -> None:
    ledger = opened(storage, anchor)
    with pytest.raises(NotFound, match=f"no checkpoint of {THREAD} in store {STORE}"):
        ledger.prune(THREAD, keep=1) if use == "prune" else ledger.delete(THREAD)
    with pytest.raises(InvalidId):
        ledger.prune("../up", keep=1) if use == "prune" else ledger.delete("../up")
    assert ledger.threads() == []


def test_a_ring_that_only_verifies_removes_nothing(storage: Memory | Files) -> None:
    key = SigningKey.generate("ed25519")
    fill(opened(storage, keys=Keyring(key)), 3)
    reader = opened(storage, keys=Keyring(verify=key.public))
    with pytest.raises(KeyRefused, match="only verifies"):
        reader.prune(THREAD, keep=1)
    with pytest.raises(KeyRefused, match="only verifies"):
        reader.delete(THREAD)
    assert reader.verify(THREAD) == 3


@pytest.mark.parametrize("sequence", range(1, 7))
@pytest.mark.parametrize("use", ["prune", "delete"])
def test_nothing_is_removed_from_a_thread_that_does_not_verify(
    storage: Memory | Files, anchor: InMemoryAnchor | None, sequence: int, use: str
) -> None:
    """Pruning would otherwise take the evidence away, and vouch for what is left."""
    ledger = opened(storage, anchor)
    fill(ledger, 6)
    fill(ledger, 6, "order-8")
    storage.put(THREAD, sequence, storage.read("order-8", sequence))
    kept = [storage.read(THREAD, number) for number in range(1, 7)]
    again = opened(storage, anchor)
    with pytest.raises(CheckpointError):
        again.prune(THREAD, keep=2) if use == "prune" else again.delete(THREAD)
    assert [storage.read(THREAD, number) for number in range(1, 7)] == kept
    assert storage.base(THREAD) is None
    assert storage.head(THREAD) == 6


def test_a_thread_of_a_thief_is_not_pruned(storage: Memory | Files) -> None:
    """Somebody with the key replaces a record below the anchor; the links do not carry it."""
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 6)
    thief = opened(InMemoryCheckpointStorage())
    fill(thief, 1)
    for _ in range(5):
        thief.save(THREAD, {"n": 1_000_000})
    storage.put(THREAD, 5, thief.storage.read(THREAD, 5))
    with pytest.raises(SealError, match="#5"):
        opened(storage, anchor).prune(THREAD, keep=1)
    assert storage.base(THREAD) is None


# The anchor


def test_the_anchored_record_is_kept(storage: Memory | Files) -> None:
    """With an interval the anchor lags; pruning moves it first, so that it finds its record."""
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor, every=100), 10)
    assert anchor.read(STORE, THREAD) == Head(1, opened(storage).load(THREAD, 1).digest)
    ledger = opened(storage, anchor, every=100)
    assert ledger.prune(THREAD, keep=2) == 8
    assert anchor.read(STORE, THREAD) == Head(10, opened(storage).latest(THREAD).digest)
    again = opened(storage, anchor, every=100)
    assert again.latest(THREAD).state == {"n": 10}
    assert again.verify(THREAD) == 2
    assert again.save(THREAD, {"n": 11}).sequence == 11
    assert again.prune(THREAD, keep=2) == 1


@pytest.mark.parametrize("sequence", range(1, 6))
def test_what_changed_since_this_process_looked_is_noticed(
    storage: Memory | Files, sequence: int
) -> None:
    """A ledger that has followed the links once follows them again before it prunes."""
    anchor = InMemoryAnchor()
    ledger = opened(storage, anchor, every=100)
    fill(ledger, 5)
    fill(ledger, 5, "order-8")
    assert ledger.verify(THREAD) == 5
    storage.put(THREAD, sequence, storage.read("order-8", sequence))
    for use in (
        lambda: ledger.verify(THREAD),
        lambda: ledger.anchor_now(THREAD),
        lambda: ledger.prune(THREAD, keep=1),
    ):
        with pytest.raises(SealError):
            use()
    assert storage.head(THREAD) == 5
    assert storage.base(THREAD) is None


def test_nothing_is_removed_while_the_anchor_cannot_be_moved(storage: Memory | Files) -> None:
    class Stuck(InMemoryAnchor):
        stuck = False

        def advance(self, store: str, thread: str, head: Head) -> None:
            if self.stuck:
                raise OSError(5, "the witness is away")
            super().advance(store, thread, head)

    anchor = Stuck()
    fill(opened(storage, anchor, every=100), 5)
    anchor.stuck = True
    with pytest.raises(AnchorUnavailable):
        opened(storage, anchor, every=100).prune(THREAD, keep=1)
    assert opened(storage, anchor, every=100).verify(THREAD) == 5


def test_cutting_the_end_of_a_pruned_thread_is_noticed(storage: Memory | Files) -> None:
    anchor = InMemoryAnchor()
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    ledger.prune(THREAD, keep=3)
    storage.remove(THREAD, 5)
    with pytest.raises(RolledBack, match="ends at #4, and the anchor has seen #5"):
        opened(storage, anchor).latest(THREAD)


# A storage that cannot forget


class Four:
    """A storage of somebody's own, with the four methods and no more."""

    def __init__(self) -> None:
        self._inner = InMemoryCheckpointStorage()
        self.append = self._inner.append
        self.read = self._inner.read
        self.head = self._inner.head
        self.threads = self._inner.threads


@pytest.mark.parametrize("missing", ["base", "prune", "both"])
def test_a_storage_that_cannot_remove_records_says_so(missing: str) -> None:
    storage: Any = Four()
    if missing == "base":
        storage.prune = storage._inner.prune
    elif missing == "prune":
        storage.base = storage._inner.base
    ledger = opened(storage)
    fill(ledger, 3)
    for use in (lambda: ledger.prune(THREAD, keep=1), lambda: ledger.delete(THREAD)):
        with pytest.raises(ConfigurationError) as refusal:
            use()
        assert refusal.value.what == "Four cannot remove records."
        assert refusal.value.do == "Add the methods base, prune of RetentionStorage to it."
    assert ledger.verify(THREAD) == 3
    assert states(ledger) == [1, 2, 3]


@pytest.mark.parametrize(
    "answer",
    [
        (),
        (1,),
        (1, b"", 2),
        ("1", b""),
        (1, "text"),
        (True, b""),
        (1.0, b""),
        7,
        "base",
        [None] * 2,
    ],
    ids=repr,
)
def test_a_base_of_an_odd_shape_is_one_clear_error(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Memory()
    ledger = opened(storage)
    fill(ledger, 3)
    monkeypatch.setattr(storage, "base", lambda _: answer)
    with pytest.raises(StorageUnavailable, match="could not read the base of order-7"):
        ledger.verify(THREAD)


@pytest.mark.parametrize("first", [0, -1, 10**10])
def test_a_base_at_an_impossible_place_is_refused(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Memory()
    ledger = opened(storage)
    fill(ledger, 5)
    ledger.prune(THREAD, keep=3)
    record = base_of(storage)[1]
    monkeypatch.setattr(storage, "base", lambda _: (first, record))
    with pytest.raises(WrongPlace):
        ledger.verify(THREAD)
