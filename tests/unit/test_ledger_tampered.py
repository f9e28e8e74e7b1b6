"""A thread in the hands of somebody who can write the storage, on each storage.

Single records and plain threads are in the vectors; here is what a base, a tombstone, a thief's
key and a removed record do to each use of a ledger. Whatever is refused is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from safepoint import (
    CheckpointError,
    InMemoryAnchor,
    Keyring,
    Ledger,
    NotFound,
    RolledBack,
    SealBroken,
    SealError,
    SigningKey,
)
from safepoint.errors import KeyRevoked, RecordsMissing, ThreadDeleted, UnknownKey, WrongPlace
from safepoint.names import Head
from safepoint.record import Place, seal
from tests.unit.tampered import (
    KEY,
    KEYS,
    STORE,
    THREAD,
    USES,
    Memory,
    Writable,
    base_of,
    fill,
    opened,
    put_back,
    records,
    states,
)

OTHER = "order-8"
NEW = SigningKey.generate()
Anchored = InMemoryAnchor | None


def pruned(storage: Writable, anchor: Anchored, count: int = 5, keep: int = 3) -> Ledger:
    ledger = opened(storage, anchor)
    fill(ledger, count)
    ledger.prune(THREAD, keep=keep)
    return ledger


def elsewhere(keys: Keyring = KEYS, store: str = STORE, keep: int = 3) -> tuple[int, bytes]:
    """The base of the same thread in a storage of somebody's own."""
    storage = Memory()
    ledger = Ledger(storage, store=store, keys=keys)
    fill(ledger, 5)
    ledger.prune(THREAD, keep=keep)
    return base_of(storage)


def moved(storage: Writable, anchor: Anchored, sequence: int) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    fill(ledger, 5, OTHER)
    storage.put(THREAD, sequence, storage.read(OTHER, sequence))


def gone(storage: Writable, anchor: Anchored, sequence: int) -> None:
    fill(opened(storage, anchor), 5)
    storage.remove(THREAD, sequence)


def edited_base(storage: Writable, anchor: Anchored, place: int) -> None:
    pruned(storage, anchor)
    first, record = base_of(storage)
    storage.put_base(THREAD, first, record[:place] + b"?" + record[place + 1 :])


def base_of_a_stranger(storage: Writable, anchor: Anchored) -> None:
    pruned(storage, anchor)
    storage.put_base(THREAD, *elsewhere(Keyring(NEW)))


def base_of_another_thread(storage: Writable, anchor: Anchored) -> None:
    ledger = pruned(storage, anchor)
    fill(ledger, 5, OTHER)
    ledger.prune(OTHER, keep=3)
    storage.put_base(THREAD, *base_of(storage, OTHER))


def base_of_another_store(storage: Writable, anchor: Anchored) -> None:
    pruned(storage, anchor)
    storage.put_base(THREAD, *elsewhere(store="staging"))


def base_at_another_place(storage: Writable, anchor: Anchored) -> None:
    pruned(storage, anchor)
    storage.put_base(THREAD, 4, base_of(storage)[1])


def base_of_another_history(storage: Writable, anchor: Anchored) -> None:
    pruned(storage, anchor)
    storage.put_base(THREAD, *elsewhere())


def base_removed(storage: Writable, anchor: Anchored) -> None:
    pruned(storage, anchor)
    storage.remove_base(THREAD)


def older_base(storage: Writable, anchor: Anchored) -> None:
    ledger = pruned(storage, anchor, 8, 6)
    older = base_of(storage)
    ledger.prune(THREAD, keep=2)
    storage.put_base(THREAD, *older)


def base_ahead(storage: Writable, anchor: Anchored) -> None:
    """The base of the longer original, on a copy that was restored and ends before it."""
    ledger = opened(storage, anchor)
    fill(ledger, 8)
    kept = records(storage, 1, 2, 3, 4)
    ledger.prune(THREAD, keep=2)
    for sequence in (7, 8):
        storage.remove(THREAD, sequence)
    put_back(storage, kept)


def base_as_a_record(storage: Writable, anchor: Anchored) -> None:
    pruned(storage, anchor)
    storage.put(THREAD, 3, base_of(storage)[1])


def record_as_a_base(storage: Writable, anchor: Anchored) -> None:
    """Whoever can delete could cut the beginning off without a signature."""
    fill(opened(storage, anchor), 5)
    storage.put_base(THREAD, 3, storage.read(THREAD, 3))
    for sequence in (1, 2):
        storage.remove(THREAD, sequence)


def tombstone_as_a_base(storage: Writable, anchor: Anchored) -> None:
    fill(opened(storage, anchor), 2)
    opened(storage, anchor).delete(THREAD)
    storage.put_base(THREAD, 3, storage.read(THREAD, 3))


Tamper = Callable[[Writable, Anchored], None]
Errors = type[CheckpointError] | tuple[type[CheckpointError], ...]
MISSING = (RecordsMissing, NotFound, RolledBack)


def with_each(tamper: Callable[..., None], places: range | tuple[int, ...]) -> list[Tamper]:
    return [lambda s, a, at=place: tamper(s, a, at) for place in places]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("tamper", "error", "words"),
    [
        *((each, SealError, None) for each in with_each(moved, range(1, 6))),
        *((each, RecordsMissing, "is gone") for each in with_each(gone, range(1, 5))),
        *((each, SealError, None) for each in with_each(edited_base, (0, 20, 60, 100, 200))),
        (base_of_a_stranger, UnknownKey, None),
        (base_of_another_thread, WrongPlace, r"at order-7 #3 .* is the one of order-8 #3"),
        (base_of_another_store, WrongPlace, "of store staging"),
        (base_at_another_place, WrongPlace, r"at order-7 #4 .* is the one of order-7 #3"),
        (base_of_another_history, WrongPlace, "order-7 #3 does not follow"),
        (base_removed, MISSING, None),
        (older_base, MISSING, None),
        (base_ahead, MISSING, None),
        (base_as_a_record, SealError, None),
        (record_as_a_base, WrongPlace, "is of the kind state"),
        (tombstone_as_a_base, WrongPlace, "is of the kind deleted"),
    ],
)
def test_a_tampered_thread_is_refused_and_left_as_it_is(
    storage: Writable, anchor: Anchored, tamper: Tamper, error: Errors, words: str | None
) -> None:
    """Pruning would take the evidence away, and a copy or an anchor vouch for what is left."""
    tamper(storage, anchor)

    def found() -> list[object]:
        seen: list[object] = [storage.base(THREAD), anchor and anchor.read(STORE, THREAD)]
        for sequence in range(1, 9):
            try:
                seen.append(storage.read(THREAD, sequence))
            except CheckpointError as refusal:
                seen.append(type(refusal))
        return seen

    before, target = found(), Memory()
    expected = (ThreadDeleted, WrongPlace) if tamper is tombstone_as_a_base else error
    for use in (
        USES["verify"],
        USES["prune"],
        USES["delete"],
        lambda ledger: ledger.copy_to(opened(target), threads=[THREAD]),
        lambda ledger: ledger.anchor_now(THREAD) if anchor else ledger.verify(THREAD),
        USES["history"],
    ):
        with pytest.raises(expected, match=None if use is USES["history"] else words):
            use(opened(storage, anchor))
    assert found() == before
    assert list(target.threads()) == []


def test_what_changed_since_this_process_looked_is_noticed(storage: Writable) -> None:
    """A ledger that has followed the links once follows them again before it prunes."""
    anchor = InMemoryAnchor()
    ledger = opened(storage, anchor, every=100)
    fill(ledger, 5)
    fill(ledger, 5, OTHER)
    assert ledger.verify(THREAD) == 5
    genuine = records(storage, 1, 2, 3, 4, 5)
    for sequence in genuine:
        put_back(storage, genuine)
        storage.put(THREAD, sequence, storage.read(OTHER, sequence))
        for use in (USES["verify"], lambda ledger: ledger.anchor_now(THREAD), USES["prune"]):
            with pytest.raises(SealError):
                use(ledger)
    assert (storage.head(THREAD), storage.base(THREAD)) == (5, None)


def test_an_older_base_with_its_records_says_nothing_false(
    storage: Writable, anchor: Anchored
) -> None:
    """Restored from a backup of last week, what was pruned since is genuine, and in its place."""
    ledger = pruned(storage, anchor, 8, 6)
    older, kept = base_of(storage), records(storage, 3, 4, 5, 6)
    ledger.prune(THREAD, keep=2)
    storage.put_base(THREAD, *older)
    put_back(storage, kept)
    assert states(opened(storage, anchor)) == [3, 4, 5, 6, 7, 8]
    assert opened(storage, anchor).verify(THREAD) == 6


def test_a_base_does_not_pass_as_the_newest_record(storage: Writable) -> None:
    """It would be a checkpoint with nothing in it."""
    pruned(storage, None, keep=1)
    storage.put(THREAD, 5, base_of(storage)[1])
    for use in ("latest", "save"):
        with pytest.raises(WrongPlace, match="is of the kind base"):
            USES[use](opened(storage))


def test_a_cut_end_of_a_pruned_thread_is_noticed(storage: Writable) -> None:
    anchor = InMemoryAnchor()
    pruned(storage, anchor)
    storage.remove(THREAD, 5)
    with pytest.raises(RolledBack, match="ends at #4, and the anchor has seen #5"):
        opened(storage, anchor).latest(THREAD)


def test_a_record_between_the_anchor_and_the_end_is_missed(storage: Writable) -> None:
    """That one is gone, and not unknown: `latest` needs it."""
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor, every=100), 8)
    storage.remove(THREAD, 4)
    load = lambda ledger: ledger.load(THREAD, 4)  # noqa: E731
    for use in (load, USES["latest"], USES["save"], USES["history"]):
        with pytest.raises(RecordsMissing) as refusal:
            use(opened(storage, anchor, every=100))
    assert str(refusal.value) == (
        "order-7 #4 is gone, and nothing signed says that it was pruned. Somebody removed it."
        " Restore it from a copy that verifies."
    )


def test_a_splice_in_the_middle_of_what_is_newer_than_the_anchor_is_refused(
    storage: Writable,
) -> None:
    """The break is neither at the anchored record nor at the head."""
    anchor, branch = InMemoryAnchor(), Memory()
    fill(opened(storage, anchor, every=100), 7)
    fill(opened(branch), 7)
    for sequence in (4, 5):
        storage.put(THREAD, sequence, branch.read(THREAD, sequence))
    for use in ("latest", "save"):
        with pytest.raises(WrongPlace, match="order-7 #4 does not follow the #3"):
            USES[use](opened(storage, anchor, every=100))


def test_signatures_below_the_anchor_count_where_every_one_is_asked_for(
    storage: Writable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify` follows the links from the anchor; a copy signs anew, so it looks at each."""
    anchor, target, checked = InMemoryAnchor(), Memory(), []
    fill(opened(storage, anchor), 4)
    line_1, rest = storage.read(THREAD, 2).split(b"\n", 1)
    storage.put(THREAD, 2, line_1[:-5] + b"AAAA=\n" + rest)
    genuine = SigningKey.verify

    def counted(key: SigningKey, message: bytes, signature: bytes) -> bool:
        checked.append(message)
        return genuine(key, message, signature)

    monkeypatch.setattr(SigningKey, "verify", counted)
    assert opened(storage, anchor).verify(THREAD) == 4
    assert len(checked) == 1
    with pytest.raises(SealBroken):
        opened(storage, anchor).verify(THREAD, every_signature=True)
    with pytest.raises(SealBroken):
        opened(storage, anchor).copy_to(opened(target))
    assert list(target.threads()) == []


# What was deleted stays deleted


def sealed_after(head: Head, key: SigningKey = KEY) -> bytes:
    """A genuine record that goes on after `head`, as a holder of the key can make it."""
    place = Place(STORE, THREAD, head.sequence + 1)
    return seal(b'{"n":99}', place, key, created=datetime.now(UTC), previous=head.digest)[0]


def revive(storage: Writable, kept: dict[int, bytes]) -> None:
    """Put the records of a deleted thread back, beside its tombstone."""
    storage.remove_base(THREAD)
    put_back(storage, kept)


def test_a_record_after_an_anchored_tombstone_revives_nothing(storage: Writable) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 3)
    tombstone = opened(storage, anchor).delete(THREAD)
    storage.put(THREAD, 5, sealed_after(tombstone))
    for use in ("latest", "load", "save", "history"):
        with pytest.raises(ThreadDeleted):
            USES[use](opened(storage, anchor))
    with pytest.raises(WrongPlace, match="says that the thread was deleted, and others follow"):
        opened(storage, anchor).verify(THREAD)


def test_records_that_are_back_beside_their_tombstone_are_not_handed_out(
    storage: Writable, anchor: Anchored
) -> None:
    fill(opened(storage, anchor), 3)
    kept = records(storage, 1, 2, 3)
    opened(storage, anchor).delete(THREAD)
    revive(storage, kept)
    with pytest.raises(ThreadDeleted):
        next(opened(storage, anchor).history(THREAD))
    with pytest.raises(ThreadDeleted):
        opened(storage, anchor).load(THREAD, 2)


def test_undoing_a_deletion_is_noticed(storage: Writable) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 3)
    kept = records(storage, 1, 2, 3)
    opened(storage, anchor).delete(THREAD)
    revive(storage, kept)
    storage.remove(THREAD, 4)
    with pytest.raises(RolledBack, match="ends at #3, and the anchor has seen #4"):
        opened(storage, anchor).latest(THREAD)


@pytest.mark.parametrize("over", [False, True], ids=["after it", "over it"])
def test_what_a_revoked_key_put_on_a_tombstone_revives_nothing(
    storage: Writable, *, over: bool
) -> None:
    anchor, frozen = InMemoryAnchor(), InMemoryAnchor()
    fill(opened(storage, anchor), 3)
    kept = records(storage, 1, 2, 3)
    head = anchor.read(STORE, THREAD)
    assert head is not None
    if over:
        frozen.advance(STORE, THREAD, head)
        keys = Keyring(NEW).revoking(KEY, until=frozen)
        opened(storage, anchor, keys=keys).delete(THREAD)
    else:
        head = opened(storage, anchor).delete(THREAD)
        frozen.advance(STORE, THREAD, head)
        keys = Keyring(NEW).revoking(KEY, until=frozen)
    revive(storage, kept)
    storage.put(THREAD, head.sequence + 1, sealed_after(head))
    for use in (lambda ledger: ledger.load(THREAD, 2), USES["history"]):
        with pytest.raises(SealBroken if over else ThreadDeleted):
            use(opened(storage, anchor, keys=keys))


# A base that a revoked key sealed


def revoked(storage: Writable, keep: int) -> tuple[InMemoryAnchor, Keyring]:
    """A thread of five that was pruned after the point up to which its key counts."""
    anchor, frozen = InMemoryAnchor(), InMemoryAnchor()
    fill(opened(storage, frozen), 5)
    opened(storage, anchor).anchor_now(THREAD)
    opened(storage, anchor).prune(THREAD, keep=keep)
    return anchor, Keyring(NEW).revoking(KEY, until=frozen)


@pytest.mark.parametrize("keep", [1, 3])
def test_a_base_of_a_revoked_key_counts_when_an_operator_seals_it_anew(
    storage: Writable, keep: int
) -> None:
    """A thief could have pruned as well, so somebody must say that it was not the thief."""
    anchor, keys = revoked(storage, keep)
    for use in ("verify", "history"):
        with pytest.raises(KeyRevoked, match=f"^The base of order-7 at #{6 - keep} is sealed by"):
            USES[use](opened(storage, anchor, keys=keys))
    opened(storage, anchor, keys=keys).accept_loss(THREAD)
    again = opened(storage, anchor, keys=keys)
    assert again.verify(THREAD) == len(states(again)) == keep


def test_a_base_stays_as_it_is_while_what_follows_does_not_verify(storage: Writable) -> None:
    """Or a refusal would leave a thief's base under the new key."""
    anchor, keys = revoked(storage, 3)
    genuine, before = storage.read(THREAD, 4), storage.base(THREAD)
    storage.put(THREAD, 4, b"broken")
    with pytest.raises(SealError):
        opened(storage, anchor, keys=keys).accept_loss(THREAD)
    assert storage.base(THREAD) == before
    storage.put(THREAD, 4, genuine)
    opened(storage, anchor, keys=keys).accept_loss(THREAD)
    assert opened(storage, anchor, keys=keys).verify(THREAD) == 3


def test_a_cut_off_end_is_told_before_a_base_that_does_not_count(storage: Writable) -> None:
    anchor, keys = revoked(storage, 3)
    storage.remove(THREAD, 5)
    with pytest.raises(RolledBack):
        opened(storage, anchor, keys=keys).verify(THREAD)
