"""The base that `prune` leaves: signed, of one place, and no stand-in for a record."""

from __future__ import annotations

import pytest

from safepoint import (
    InMemoryAnchor,
    KeyRevoked,
    Keyring,
    Ledger,
    NotFound,
    RecordsMissing,
    RolledBack,
    SealError,
    SigningKey,
    UnknownKey,
    WrongPlace,
)
from tests.unit.tampered import (
    KEY,
    KEYS,
    THREAD,
    Files,
    Memory,
    base_of,
    fill,
    opened,
    states,
)


def test_a_base_is_signed(storage: Memory | Files, anchor: InMemoryAnchor | None) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    ledger.prune(THREAD, keep=3)
    first, record = base_of(storage)
    assert (first, record.split(b" ")[1]) == (3, KEY.id.encode())
    for place in (0, 20, 60, 100, 200, len(record) - 2):
        storage.put_base(THREAD, first, record[:place] + b"?" + record[place + 1 :])
        for use in (Ledger.verify, states):
            with pytest.raises(SealError):
                use(opened(storage, anchor), THREAD)


def test_a_base_of_a_stranger_is_refused(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    fill(opened(storage, anchor), 5)
    other = Memory()
    stranger = opened(other, keys=Keyring(SigningKey.generate()))
    fill(stranger, 5)
    stranger.prune(THREAD, keep=2)
    for sequence in (1, 2, 3):
        storage.remove(THREAD, sequence)
    storage.put_base(THREAD, *base_of(other))
    with pytest.raises(UnknownKey):
        opened(storage, anchor).verify(THREAD)


def test_a_base_of_another_thread_is_refused(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    fill(ledger, 5, "order-8")
    ledger.prune("order-8", keep=3)
    storage.put_base(THREAD, *base_of(storage, "order-8"))
    for use in (Ledger.verify, states):
        with pytest.raises(WrongPlace, match=r"at order-7 #3 .* is the one of order-8 #3"):
            use(opened(storage, anchor), THREAD)


def test_a_base_of_another_store_is_refused(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    fill(opened(storage, anchor), 5)
    other = Memory()
    staging = Ledger(other, store="staging", keys=KEYS)
    fill(staging, 5)
    staging.prune(THREAD, keep=3)
    storage.put_base(THREAD, *base_of(other))
    with pytest.raises(WrongPlace, match="of store staging"):
        opened(storage, anchor).verify(THREAD)


def test_a_base_that_says_another_place_is_refused(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    ledger.prune(THREAD, keep=3)
    storage.put_base(THREAD, 4, base_of(storage)[1])
    with pytest.raises(WrongPlace, match=r"at order-7 #4 .* is the one of order-7 #3"):
        opened(storage, anchor).verify(THREAD)


def test_a_base_of_another_history_is_refused(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    """Of the same thread, by the same key, from a copy of the store that went another way."""
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    ledger.prune(THREAD, keep=3)
    copy = Memory()
    other = opened(copy)
    fill(other, 5)
    other.prune(THREAD, keep=3)
    storage.put_base(THREAD, *base_of(copy))
    for use in (Ledger.verify, states):
        with pytest.raises(WrongPlace, match="order-7 #3 does not follow"):
            use(opened(storage, anchor), THREAD)


def test_a_base_that_was_removed_is_missed(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    """Without it, the thread would have to begin at 1."""
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    ledger.prune(THREAD, keep=3)
    storage.remove_base(THREAD)
    for use in (Ledger.verify, states):
        with pytest.raises((RecordsMissing, NotFound)):
            use(opened(storage, anchor), THREAD)


def test_an_older_base_put_back_does_not_hide_what_is_missing(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 8)
    ledger.prune(THREAD, keep=6)
    older = base_of(storage)
    ledger.prune(THREAD, keep=2)
    storage.put_base(THREAD, *older)
    for use in (Ledger.verify, states):
        with pytest.raises((RecordsMissing, NotFound)):
            use(opened(storage, anchor), THREAD)


def test_an_older_base_with_its_records_says_nothing_false(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    """Restored from a backup of last week, what was pruned since is genuine, and in its place."""
    ledger = opened(storage, anchor)
    fill(ledger, 8)
    ledger.prune(THREAD, keep=6)
    older = base_of(storage)
    records = {number: storage.read(THREAD, number) for number in range(3, 7)}
    ledger.prune(THREAD, keep=2)
    storage.put_base(THREAD, *older)
    for number, record in records.items():
        storage.put(THREAD, number, record)
    again = opened(storage, anchor)
    assert states(again) == [3, 4, 5, 6, 7, 8]
    assert again.verify(THREAD) == 6


def test_a_base_that_is_ahead_of_its_thread_is_refused(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    """The base of the longer original, on a copy that was restored and ends before it."""
    ledger = opened(storage, anchor)
    fill(ledger, 8)
    kept = {number: storage.read(THREAD, number) for number in range(1, 5)}
    ledger.prune(THREAD, keep=2)
    base = base_of(storage)
    storage.remove(THREAD, 7)
    storage.remove(THREAD, 8)
    for number, record in kept.items():
        storage.put(THREAD, number, record)
    storage.put_base(THREAD, *base)
    for use in (Ledger.verify, states):
        with pytest.raises((RecordsMissing, RolledBack)):
            use(opened(storage, anchor), THREAD)


def test_a_base_does_not_pass_as_a_record(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    ledger.prune(THREAD, keep=3)
    storage.put(THREAD, 3, base_of(storage)[1])
    for use in (Ledger.verify, states, lambda ledger, thread: ledger.load(thread, 3)):
        with pytest.raises(SealError) as refusal:
            use(opened(storage, anchor), THREAD)
        if anchor is None:
            assert isinstance(refusal.value, WrongPlace)
            assert "is of the kind base" in refusal.value.what


def test_a_base_does_not_pass_as_the_newest_record(storage: Memory | Files) -> None:
    """It would be a checkpoint with nothing in it."""
    ledger = opened(storage)
    fill(ledger, 5)
    ledger.prune(THREAD, keep=1)
    storage.put(THREAD, 5, base_of(storage)[1])
    for use in (Ledger.latest, lambda ledger, thread: ledger.save(thread, {"n": 6})):
        with pytest.raises(WrongPlace, match="is of the kind base"):
            use(opened(storage), THREAD)


def test_a_record_does_not_pass_as_a_base(
    storage: Memory | Files, anchor: InMemoryAnchor | None
) -> None:
    """Else whoever can delete could cut the beginning off without a signature."""
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    storage.put_base(THREAD, 3, storage.read(THREAD, 3))
    storage.remove(THREAD, 1)
    storage.remove(THREAD, 2)
    for use in (Ledger.verify, states):
        with pytest.raises(WrongPlace, match="is of the kind state"):
            use(opened(storage, anchor), THREAD)


def test_a_tombstone_does_not_pass_as_a_base(storage: Memory | Files) -> None:
    ledger = opened(storage)
    fill(ledger, 2)
    ledger.delete(THREAD)
    storage.put_base(THREAD, 3, storage.read(THREAD, 3))
    with pytest.raises(WrongPlace, match="is of the kind deleted"):
        opened(storage).verify(THREAD)


def test_a_base_whose_key_is_revoked_does_not_count(storage: Memory | Files) -> None:
    """A thief could otherwise cut off the past, with a signature."""
    new = SigningKey.generate()
    frozen = InMemoryAnchor()
    fill(opened(storage, frozen), 3)
    thief = opened(storage)
    fill(thief, 3)
    thief.prune(THREAD, keep=1)
    for until in (frozen, None):
        keys = Keyring(KEY).rotated(new).revoking(KEY, until=until)
        with pytest.raises(KeyRevoked):
            opened(storage, InMemoryAnchor(), keys=keys).verify(THREAD)


@pytest.mark.parametrize("keep", [1, 2])
def test_a_base_of_a_revoked_key_counts_when_an_operator_seals_it_anew(
    storage: Memory | Files, keep: int
) -> None:
    """A thief could have pruned as well, so somebody must say that it was not the thief."""
    frozen = InMemoryAnchor()
    ledger = opened(storage, frozen)
    fill(ledger, 3)
    ledger.prune(THREAD, keep=keep)
    anchor = InMemoryAnchor()
    opened(storage, anchor).anchor_now(THREAD)
    keys = Keyring(KEY).rotated(SigningKey.generate()).revoking(KEY, until=frozen)
    for use in (Ledger.verify, states):
        with pytest.raises(KeyRevoked) as refusal:
            use(opened(storage, anchor, keys=keys), THREAD)
        assert refusal.value.what.startswith(f"The base of order-7 at #{4 - keep} is sealed by")
    opened(storage, anchor, keys=keys).accept_loss(THREAD)
    assert opened(storage, anchor, keys=keys).verify(THREAD) == keep
    assert len(states(opened(storage, anchor, keys=keys))) == keep
