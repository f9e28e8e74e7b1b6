"""What a ledger must not forget between two calls, and what it must not believe."""

from __future__ import annotations

import pytest

from safepoint import InMemoryAnchor, Keyring, SigningKey
from safepoint.core.errors import InvalidId, NotFound, RolledBack, SealBroken
from safepoint.core.names import Head
from tests.house import STORE, THREAD, House, Memory, fill, opened

NEW = SigningKey.generate()


def test_a_thread_that_does_not_verify_is_not_anchored_by_a_second_try(house: House) -> None:
    """Nothing vouches for its past yet, so all of it is looked at, whatever was read before."""
    fill(opened(house.storage), 3)
    house.storage.remove(THREAD, 1)
    ledger = house.ledger()
    assert ledger.latest(THREAD).sequence == 3
    for _ in range(2):
        with pytest.raises(RolledBack, match="is gone, but no seal"):
            ledger.save(THREAD, {"n": 4})
    assert ledger.anchored(THREAD) is None


def test_an_anchor_that_is_empty_is_still_one() -> None:
    class Empty(InMemoryAnchor):
        __len__ = int  # so it is false

    anchor = Empty()
    opened(Memory(), anchor).tenant("acme").save(THREAD, {})
    assert anchor.tenants(STORE) == ["acme"]


def test_a_record_that_this_process_knew_and_somebody_pruned_is_not_found(house: House) -> None:
    ledger = house.ledger()
    first = ledger.save(THREAD, {"n": 1})
    ledger.save(THREAD, {"n": 2})
    ledger.prune(THREAD, keep=1)
    with pytest.raises(NotFound):
        ledger.load(THREAD, Head(1, first.digest))
    with pytest.raises(InvalidId):
        ledger.prune(THREAD, keep=1, since=0)


def test_a_loss_is_written_down_with_both_ends_and_a_lost_base_is_said(house: House) -> None:
    ledger = house.ledger()
    fill(ledger, 2)
    ledger.prune(THREAD, keep=1)
    house.anchor.rewind(STORE, THREAD, None)
    ledger.accept_loss(THREAD)
    assert (house.last().what, house.last().detail) == ("accept-loss", "from none to #2")
    house.storage.remove(THREAD, 2)
    with pytest.raises(SealBroken, match="which is not on this keyring"):
        house.ledger(keys=Keyring(NEW)).accept_loss(THREAD)


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize(("cut", "base"), [((1, 2, 3), 4), ((), 9)])
def test_a_thread_that_ends_before_a_planted_base_is_not_saved_onto(
    house: House, cut: tuple[int, ...], base: int, *, anchored: bool
) -> None:
    """Not even by the process that knows its end; nor is it tried a thousand times."""
    anchor = house.anchor if anchored else None
    ledger = house.ledger(anchor=anchor)
    fill(ledger, 3)
    house.storage.remove(THREAD, *cut)
    house.storage.put_base(THREAD, base, b"x")
    head, before = house.storage.head(THREAD), house.journal.verify()
    for each in (house.ledger(anchor=anchor), ledger):
        with pytest.raises((RolledBack, SealBroken)):
            each.save(THREAD, {"n": 4})
    assert (house.storage.head(THREAD), house.journal.verify() - before < 9) == (head, True)
