"""A thread in the hands of somebody who can write the storage, on each storage.

Single records and plain threads are in the vectors; here is what a base, a tombstone, a thief's
key and a removed record do to each use of a ledger. Whatever is refused is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from safepoint import (
    CheckpointError,
    InMemoryAnchor,
    Keyring,
    Ledger,
    NotFound,
    RolledBack,
    SealBroken,
    SigningKey,
)
from safepoint.core.errors import ConfigurationError, Unavailable, Unsafe
from safepoint.core.names import Head
from safepoint.core.record import Place, seal
from tests.house import (
    KEY,
    STORE,
    THREAD,
    USES,
    Memory,
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
Tamper = Callable[[Memory, Anchored], None]


def pruned(storage: Memory, anchor: Anchored, count: int = 5, keep: int = 3) -> Ledger:
    ledger = opened(storage, anchor)
    fill(ledger, count)
    ledger.prune(THREAD, keep=keep)
    return ledger


def moved(storage: Memory, anchor: Anchored, sequence: int) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    fill(ledger, 5, OTHER)
    storage.put(THREAD, sequence, storage.read(OTHER, sequence))


def gone(storage: Memory, anchor: Anchored, sequence: int) -> None:
    fill(opened(storage, anchor), 5)
    storage.remove(THREAD, sequence)


def older_base(storage: Memory, anchor: Anchored) -> None:
    ledger = pruned(storage, anchor, 8, 6)
    older = base_of(storage)
    ledger.prune(THREAD, keep=2)
    storage.put_base(THREAD, *older)


def with_base(base: Callable[[Memory], tuple[int, bytes]]) -> Tamper:
    """Put another base in the place of the one of a pruned thread."""

    def tamper(storage: Memory, anchor: Anchored) -> None:
        ledger = pruned(storage, anchor)
        fill(ledger, 5, OTHER)
        ledger.prune(OTHER, keep=3)
        storage.put_base(THREAD, *base(storage))

    return tamper


def base_removed(storage: Memory, anchor: Anchored) -> None:
    pruned(storage, anchor)
    storage.remove_base(THREAD)


def base_ahead(storage: Memory, anchor: Anchored) -> None:
    """The base of the longer original, on a copy that was restored and ends before it."""
    ledger = opened(storage, anchor)
    fill(ledger, 8)
    kept = records(storage, 1, 2, 3, 4)
    ledger.prune(THREAD, keep=2)
    for sequence in (7, 8):
        storage.remove(THREAD, sequence)
    put_back(storage, kept)


Errors = type[CheckpointError] | tuple[type[CheckpointError], ...]
MISSING = (RolledBack, NotFound, RolledBack)


def with_each(tamper: Callable[..., None], places: range | tuple[int, ...]) -> list[Tamper]:
    return [lambda s, a, at=place: tamper(s, a, at) for place in places]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("tamper", "error", "words"),
    [
        *((each, SealBroken, None) for each in with_each(moved, (1, 3, 5))),
        *((each, RolledBack, "is gone") for each in with_each(gone, (1, 4))),
        (with_base(lambda s: base_of(s, OTHER)), SealBroken, r"at order-7 #3 .* of order-8 #3"),
        (with_base(lambda s: (4, base_of(s)[1])), SealBroken, r"at order-7 #4 .* of order-7 #3"),
        (base_removed, MISSING, None),
        (older_base, MISSING, None),
        (base_ahead, MISSING, None),
    ],
)
def test_a_tampered_thread_is_refused_and_left_as_it_is(
    storage: Memory, anchor: Anchored, tamper: Tamper, error: Errors, words: str | None
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
    for use in (
        USES["verify"],
        USES["prune"],
        USES["delete"],
        lambda ledger: ledger.copy_to(opened(target), threads=[THREAD]),
        lambda ledger: ledger.verify(THREAD, anchor=anchor is not None),
        USES["history"],
    ):
        with pytest.raises(error, match=None if use is USES["history"] else words):
            use(opened(storage, anchor))
    assert found() == before
    assert list(target.threads()) == []


def test_a_load_follows_the_links_and_everything_whole_checks_each_signature(
    storage: Memory,
) -> None:
    """No digest covers line 1, and the link proves the rest; a copy would sign anew."""
    anchor, target = InMemoryAnchor(), Memory()
    fill(opened(storage, anchor), 4)
    line_1, rest = storage.read(THREAD, 2).split(b"\n", 1)
    storage.put(THREAD, 2, line_1[:-6] + b"AAAA==\n" + rest)
    assert opened(storage, anchor).load(THREAD, 1).state == {"n": 1}
    for use in (USES["verify"], USES["history"], lambda it: it.copy_to(opened(target))):
        with pytest.raises(SealBroken, match="was changed after it was sealed"):
            use(opened(storage, anchor))
    assert list(target.threads()) == []


def test_the_key_of_each_record_that_is_handed_out_is_proven() -> None:
    """Line 1 names the key and no digest covers it, so the second read checks signatures, too."""
    storage, other = Memory(), Memory()
    ledger = opened(storage, keys=Keyring(KEY, verify=[NEW]))
    fill(ledger, 3)
    fill(opened(other), 3)
    genuine = storage.read(THREAD, 2)
    renamed = genuine.replace(KEY.id.encode(), NEW.id.encode(), 1)
    for put, refusal in ((renamed, SealBroken), (other.read(THREAD, 2), RolledBack)):
        walk = ledger._view.forward(THREAD)
        assert next(walk).key == KEY.id  # the first walk, over the whole thread, is done
        storage.put(THREAD, 2, put)
        with pytest.raises(refusal, match=r"#2 was changed after|#2 is not the record that this"):
            next(walk)
        storage.put(THREAD, 2, genuine)


# What was deleted stays deleted


def sealed_after(head: Head, key: SigningKey = KEY) -> bytes:
    """A genuine record that goes on after `head`, as a holder of the key can make it."""
    place = Place(STORE, "", THREAD, head.sequence + 1)
    return seal(b"\x81\xa1n\x63", place, key, created=datetime.now(UTC), previous=head.digest)[0]


def test_a_record_after_an_anchored_tombstone_revives_nothing(storage: Memory) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 3)
    tombstone = opened(storage, anchor).delete(THREAD)
    storage.put(THREAD, 5, sealed_after(tombstone))
    for seen in (anchor, None):
        for use in ("load", "history", "verify", *(("latest", "save") if seen else ())):
            with pytest.raises(SealBroken, match="was deleted, and others follow"):
                USES[use](opened(storage, seen))


# A base whose key was taken off the ring


# ---------------------------------------------------------------- what the anchor has seen

NOBODYS = "sha256:" + "0" * 64


def cut(storage: Memory, head: int) -> None:
    for sequence in range(storage.head(THREAD), head, -1):
        storage.remove(THREAD, sequence)


def seen(anchor: InMemoryAnchor) -> int | None:
    head = anchor.read(STORE, THREAD)
    return None if head is None else head.sequence


def test_a_thread_from_before_the_anchor_is_verified_whole_and_anchored(storage: Memory) -> None:
    """By the next save, or by a `verify` that says so; nothing vouches for its past until then."""
    anchor = InMemoryAnchor()
    fill(opened(storage), 3)
    with pytest.raises(ConfigurationError, match="has no anchor"):
        opened(storage).verify(THREAD, anchor=True)
    genuine = storage.read(THREAD, 2)
    storage.put(THREAD, 2, storage.read(THREAD, 1))
    for use in (USES["save"], lambda ledger: ledger.verify(THREAD, anchor=True)):
        with pytest.raises(SealBroken, match=r"#2 .* is the one of order-7 #1"):
            use(opened(storage, anchor))
    assert (seen(anchor), storage.head(THREAD)) == (None, 3)
    storage.put(THREAD, 2, genuine)
    assert opened(storage, anchor).verify(THREAD) == 3
    assert seen(anchor) is None  # who only verifies writes nothing
    opened(storage, anchor).verify(THREAD, anchor=True)
    assert seen(anchor) == 3
    fill(opened(storage), 1)  # as after a crash between the two writes
    fill(opened(storage, anchor), 1)
    assert seen(anchor) == 5


def test_a_fork_that_the_anchor_finds_while_it_moves_is_told_as_one() -> None:
    class Racing(InMemoryAnchor):
        def advance(self, store: str, thread: str, head: Head) -> None:
            super().advance(store, thread, Head(head.sequence, NOBODYS))
            super().advance(store, thread, head)

    with pytest.raises(RolledBack, match="order-7 #1 is saved, but not anchored"):
        opened(Memory(), Racing()).save(THREAD, {})


def test_the_anchor_is_asked_before_the_storage(storage: Memory) -> None:
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
        (SimpleNamespace(sequence=0, digest=NOBODYS), "it raised TypeError"),
        (Unavailable("The server is away."), "The server is away"),
    ],
)
def test_an_anchor_that_cannot_be_read_lets_nothing_through(answer: Any, told: str) -> None:
    storage, anchor = Memory(), Failing()
    ledger = opened(storage, anchor)
    fill(ledger, 1)
    anchor.reading = answer
    for each in (ledger, opened(storage, anchor)):
        for use in USES.values():
            with pytest.raises(Unavailable, match=told) as refusal:
                use(each)
            assert refusal.value.kind == "anchor"
    assert storage.head(THREAD) == 1


@pytest.mark.parametrize("error", [OSError(5, "away"), Unsafe("It is open.", "Close it.")])
def test_an_anchor_that_cannot_be_moved_says_that_the_checkpoint_is_saved(
    storage: Memory, error: Exception
) -> None:
    anchor = Failing()
    ledger = opened(storage, anchor)
    fill(ledger, 1)
    anchor.moving = error
    with pytest.raises(Unavailable, match=r"^order-7 #2 is saved, but not anchored\."):
        ledger.save(THREAD, {"n": 2})
    with pytest.raises(Unavailable, match=r"The anchor could not|It is open"):
        opened(storage, anchor).prune(THREAD, keep=1)  # and nothing is removed
    anchor.moving = None
    assert states(ledger) == [1, 2]
    fill(ledger, 1, first=3)
    assert seen(anchor) == 3


@pytest.mark.parametrize("left", [3, 0])
def test_a_loss_is_accepted_by_name_only(storage: Memory, left: int) -> None:
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


def test_a_loss_is_not_accepted_if_what_is_left_does_not_verify(storage: Memory) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 5)
    cut(storage, 3)
    storage.put(THREAD, 2, storage.read(THREAD, 1))
    with pytest.raises(SealBroken, match=r"#2 .* is the one of order-7 #1"):
        opened(storage, anchor).accept_loss(THREAD)
    assert seen(anchor) == 5
