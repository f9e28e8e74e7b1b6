"""SP14: a past that was changed does not link up, whatever it is changed into."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from shutil import copytree

import pytest

from safepoint import CheckpointError, InMemoryAnchor, Ledger, SealBroken
from safepoint.errors import WrongPlace
from safepoint.names import digest_of
from safepoint.record import Place, seal
from tests.attacks.helpers import THREAD, Shop, refused


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A store with order-7 at #5, and another history of it, from #3 on, in a folder `other`."""
    shop = Shop(tmp_path, anchored=False)
    shop.fill({"answer": answer} for answer in ("start", "ask"))
    other = Shop(tmp_path / "other", shop.key, anchored=False)
    copytree(tmp_path / "state", tmp_path / "other" / "state")
    shop.fill([{"answer": "no"}] * 3)
    other.fill([{"answer": "yes"}] * 3)
    return shop


def splice(shop: Shop, sequence: int) -> None:
    """Put a record of the other history in. Both are genuine, and of this place."""
    other = shop.path / "other/state" / THREAD / shop.file(sequence).name
    shop.file(sequence).write_bytes(other.read_bytes())


def test_edit_and_rehash_is_refused(shop: Shop) -> None:
    """Every digest is made right again, up to the head, and no signature can be."""
    header, state = shop.file(3).read_bytes().split(b"\n")[1:3]
    edited = state.replace(b"no", b"yes")
    previous = header.replace(digest_of(state + b"\n").encode(), digest_of(edited + b"\n").encode())
    changed = {header: previous, state: edited}
    for sequence in (3, 4, 5):
        content = shop.file(sequence).read_bytes()
        line_2 = content.split(b"\n")[1]
        for old, new in changed.items():
            content = content.replace(old, new)
        shop.file(sequence).write_bytes(content)
        new_line = content.split(b"\n")[1]
        assert new_line != line_2
        changed = {digest_of(line_2).encode(): digest_of(new_line).encode()}
    said = refused(SealBroken, lambda: shop.ledger().verify(THREAD))
    assert said.startswith("order-7 #3 was changed after it was sealed, or was never sealed.")
    refused(SealBroken, lambda: shop.ledger().latest(THREAD))


@pytest.mark.parametrize("spliced", [3, 4])
def test_splice_of_two_histories_is_refused(shop: Shop, spliced: int) -> None:
    splice(shop, spliced)
    for use in (
        lambda: shop.ledger().verify(THREAD),
        lambda: list(shop.ledger().history(THREAD)),
        lambda: shop.ledger().prune(THREAD, keep=1),
        lambda: shop.ledger().delete(THREAD),
    ):
        assert refused(WrongPlace, use) == (
            "order-7 #4 does not follow the #3 that is stored. One of the two was replaced. Restore"
            " both from a copy that verifies."
        )


def test_history_ends_at_the_broken_link(shop: Shop) -> None:
    """What it handed out before is not vouched for by anything later: go to the end, then act."""
    splice(shop, 3)
    history = shop.ledger().history(THREAD)
    assert [c.state["answer"] for c in islice(history, 3)] == ["start", "ask", "yes"]
    refused(WrongPlace, lambda: next(history))


def test_splice_below_an_anchored_head_is_refused(shop: Shop) -> None:
    """The links are followed back from the head; a genuine signature does not help."""
    anchor = InMemoryAnchor()
    shop.ledger(anchor=anchor).anchor_now(THREAD)
    splice(shop, 3)
    said = refused(SealBroken, lambda: shop.ledger(anchor=anchor).verify(THREAD))
    assert said.startswith("order-7 #3 is not the one that #4 was sealed upon.")


@pytest.mark.parametrize("order", [[1, 2, 4, 3, 5], [1, 2, None, 4, 5], [1, 2, 4, 5]])
def test_reordered_or_missing_middle_is_refused(shop: Shop, order: list[int | None]) -> None:
    genuine = [shop.file(sequence).read_bytes() for sequence in range(1, 6)]
    for sequence in range(1, 6):
        shop.file(sequence).unlink()
    for sequence, put in enumerate(order, 1):
        if put is not None:
            shop.file(sequence).write_bytes(genuine[put - 1])
            shop.file(sequence).chmod(0o600)
    for anchor in (None, InMemoryAnchor()):
        ledger = shop.ledger(anchor=anchor)
        for use in (Ledger.verify, Ledger.history):
            with pytest.raises(CheckpointError, match=r"order-7.*3"):
                tuple(use(ledger, THREAD))  # type: ignore[arg-type]


def test_middle_rewritten_with_a_stolen_key_is_refused(shop: Shop) -> None:
    """A thief who signs a new #3, linked to #2, cannot make #4 name it."""
    second, third = (shop.ledger().load(THREAD, number) for number in (2, 3))
    place, state = Place("invoices", THREAD, 3), b'{"answer":"yes"}'
    forged = seal(state, place, shop.key, created=third.created, previous=second.digest)
    shop.file(3).write_bytes(forged[0])
    assert shop.ledger().load(THREAD, 3).state == {"answer": "yes"}
    said = refused(WrongPlace, lambda: shop.ledger().verify(THREAD))
    assert said.startswith("order-7 #4 does not follow the #3 that is stored.")
