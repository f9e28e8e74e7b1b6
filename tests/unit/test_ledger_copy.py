"""Copying a store under a new key: verified first, link for link, and never over another record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    Conflict,
    FileCheckpointStorage,
    InMemoryAnchor,
    Keyring,
    Ledger,
    RolledBack,
    SigningKey,
)
from safepoint.core.errors import ConfigurationError, SealBroken, ThreadDeleted, Unsafe
from safepoint.core.names import Head
from tests.house import KEY, STORE, THREAD, Memory, fill, opened, states

NEW = SigningKey.generate()
BOTH = Keyring(NEW, verify=KEY)
OTHER = "order-8"


@pytest.fixture
def target() -> Memory:
    """Where to copy."""
    return Memory()


def new(target: Any, anchor: InMemoryAnchor | None = None) -> Ledger:
    """The ledger to copy to: it signs with the new key, and trusts no other."""
    return opened(target, anchor, keys=Keyring(NEW))


def test_a_copy_has_all_that_the_original_has(
    storage: Memory, target: Memory, anchor: InMemoryAnchor | None
) -> None:
    """Under the new key alone; the anchor stays right, since no digest depends on the key."""
    source = opened(storage, anchor)
    fill(source, 3)
    for number in (4, 5):  # after a rotation
        opened(storage, anchor, keys=BOTH).save(THREAD, {"n": number})
    source = opened(storage, anchor, keys=BOTH)
    source.save(OTHER, {"n": 1}, app="app/1", tools=f"sha256:{'a' * 64}")
    before = [storage.read(THREAD, n) for n in range(1, 6)]
    anchored = anchor and anchor.read(STORE, THREAD)
    assert source.copy_to(new(target, anchor)) == 6
    copy = new(target, anchor)
    assert copy.threads() == [THREAD, OTHER]
    for thread in (THREAD, OTHER):
        assert list(copy.history(thread)) == list(source.history(thread))
        assert copy.verify(thread) == source.verify(thread)
    for sequence, record in enumerate(before, start=1):
        copied = target.read(THREAD, sequence)
        assert copied.split(b" ")[1] == NEW.id.encode()
        assert copied.split(b"\n")[1:] == record.split(b"\n")[1:]
    assert [storage.read(THREAD, n) for n in range(1, 6)] == before
    assert (anchor and anchor.read(STORE, THREAD)) == anchored
    with pytest.raises(SealBroken, match="not on this keyring"):
        opened(target).latest(THREAD)
    assert copy.save(THREAD, {"n": 6}).sequence == 6
    if anchor:
        with pytest.raises(RolledBack, match="the anchor has seen #6"):
            opened(storage, anchor, keys=BOTH).latest(THREAD)


def test_a_thread_is_pruned_deleted_or_erased_in_the_copy_as_it_was(
    storage: Memory, target: Memory, anchor: InMemoryAnchor | None
) -> None:
    source = opened(storage, anchor)
    fill(source, 6)
    source.prune(THREAD, keep=3)
    fill(source, 3, OTHER)
    source.delete(OTHER)
    source.erase(OTHER)
    fill(source, 2, "order-9")
    source.delete("order-9")
    assert source.copy_to(new(target, anchor)) == 7
    copy = new(target, anchor)
    assert list(copy.history(THREAD)) == list(source.history(THREAD))
    assert [copy.verify(each) for each in (THREAD, OTHER, "order-9")] == [3, 1, 3]
    assert copy.save(THREAD, {"n": 7}).sequence == 7
    assert copy.prune(THREAD, keep=2) == 2
    for use in (copy.latest, lambda thread: copy.save(thread, {})):
        for gone in (OTHER, "order-9"):
            with pytest.raises(ThreadDeleted):
                use(gone)


# Others


def test_either_side_that_went_on_is_followed_and_left_alone(
    storage: Memory, target: Memory
) -> None:
    """Copy while workers run, stop them, copy the rest."""
    source, anchor = opened(storage), InMemoryAnchor()
    fill(source, 3)
    fill(source, 1, OTHER)
    assert source.copy_to(new(target), threads=[]) == 0
    assert source.copy_to(new(target), threads=iter([THREAD])) == 3
    assert list(target.threads()) == [THREAD]
    last = source.save(THREAD, {"n": 4})
    assert source.copy_to(new(target, anchor), threads=[THREAD]) == 4
    assert anchor.read(STORE, THREAD) == Head(4, last.digest)  # so that no end can be cut off
    new(target).save(THREAD, {"n": 5})
    assert source.copy_to(new(target), threads=[THREAD]) == 4
    assert states(new(target)) == [1, 2, 3, 4, 5]


def own_way(source: Ledger, target: Memory) -> None:
    fill(new(target), 1, first=3)


def pruned_here(source: Ledger, target: Memory) -> None:
    own_way(source, target)
    source.prune(THREAD, keep=1)


def pruned_there(source: Ledger, target: Memory) -> None:
    new(target).prune(THREAD, keep=1)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (own_way, "order-7 #3 is another record in the storage to copy to"),
        (pruned_here, "order-7 #3 is another record in the storage to copy to"),
        (pruned_there, r"order-7 #1 .* was pruned there"),
    ],
)
def test_a_target_with_other_records_is_not_overwritten(
    storage: Memory, target: Memory, change: Any, told: str
) -> None:
    source = opened(storage)
    fill(source, 2)
    source.copy_to(new(target))
    source.save(THREAD, {"n": 3})
    change(source, target)
    before = (target.head(THREAD), target.base(THREAD), target.read(THREAD, target.head(THREAD)))
    with pytest.raises(Conflict, match=told) as refusal:
        source.copy_to(new(target))
    assert refusal.value.do == "Copy into a new, empty storage."
    head = before[0]
    assert (target.head(THREAD), target.base(THREAD), target.read(THREAD, head)) == before


def test_a_target_of_another_store_or_without_a_key_or_the_source_itself_is_refused(
    storage: Memory, target: Memory, tmp_path: Path
) -> None:
    """A copy into itself would leave every record under the old key, and look like a rotation."""
    fill(opened(storage), 2)
    for into, error in (
        (opened(storage, keys=BOTH), ConfigurationError),
        (opened(target, store="staging"), ConfigurationError),
        (opened(target, keys=Keyring(verify=NEW.public)), Unsafe),
    ):
        with pytest.raises(error):
            opened(storage).copy_to(into)
    assert list(target.threads()) == []
    files, same = (FileCheckpointStorage(tmp_path / "store") for _ in range(2))
    with pytest.raises(ConfigurationError):
        opened(files).copy_to(opened(same, keys=BOTH))


# Up to a head
