"""A thread in the hands of somebody who can write the storage, on each storage.

What is moved, cut or spliced is in the vectors and among the attacks; here is what a tombstone, a
thief's key and an anchor do to each use of a ledger.
"""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from safepoint import InMemoryAnchor, Keyring, NotFound, RolledBack, SealBroken, SigningKey
from safepoint.core.errors import ConfigurationError, Unavailable, Unsafe
from safepoint.core.names import Head
from safepoint.core.record import Place, seal
from tests.house import KEY, STORE, THREAD, USES, Memory, fill, opened, states

NEW = SigningKey.generate()


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


def test_a_record_after_an_anchored_tombstone_revives_nothing(storage: Memory) -> None:
    anchor = InMemoryAnchor()
    fill(opened(storage, anchor), 3)
    tombstone = opened(storage, anchor).delete(THREAD)
    place, now = Place(STORE, "", THREAD, 5), datetime.now(UTC)
    record, _ = seal(b"\x81\xa1n\x63", place, KEY, created=now, previous=tombstone.digest)
    storage.put(THREAD, 5, record)
    for seen in (anchor, None):
        for use in ("load", "history", "verify", *(("latest", "save") if seen else ())):
            with pytest.raises(SealBroken, match="was deleted, and others follow"):
                USES[use](opened(storage, seen))


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
