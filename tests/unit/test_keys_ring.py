"""The keyring: which key signs, which verify, and how far a revoked one counts."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import Keyring, SigningKey
from safepoint.core.errors import (
    CheckpointError,
    RolledBack,
    SealBroken,
    Unavailable,
    Unsafe,
)
from safepoint.core.keys import Key, Revoked, VerifyingKey
from safepoint.core.names import Head

OLD, MID, NEW = (SigningKey(bytes([n]) * 32) for n in (1, 2, 3))
PAIR = SigningKey(bytes(32))
HEAD = Head(7, f"sha256:{'a' * 64}")


class Frozen:
    """The heads as they stood."""

    def __init__(self, answer: Any = HEAD) -> None:
        self.answer = answer

    def read(self, store: str, thread: str) -> Head | None:
        assert (store, thread) == ("invoices", "order-7")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


def unseen(**fields: Any) -> Head:
    """Make a head that skipped its own checks, as one that was unpickled does."""
    head = object.__new__(Head)
    for name, value in fields.items():
        object.__setattr__(head, name, value)
    return head


def ids(keys: Iterable[Key]) -> list[str]:
    return [key.id for key in keys]


GONE = Revoked(OLD, Frozen())
RING = Keyring(PAIR, verify=MID, revoked=GONE)


@given(st.lists(st.sampled_from([OLD, MID, NEW, PAIR, PAIR.public])), st.sampled_from([OLD, PAIR]))
def test_each_key_is_on_the_ring_once_oldest_first_and_the_signing_one_is_last(
    verify: list[Key], signing: SigningKey
) -> None:
    ring = Keyring(signing, verify=verify)
    assert [*ring][-1] is signing is ring.signing is ring.find(signing.id)
    older = [key_id for key_id in dict.fromkeys(ids(verify)) if key_id != signing.id]
    assert ids(ring) == [*older, signing.id]


def test_one_key_or_several_and_revoked_ones_in_their_order() -> None:
    for verify in (OLD, [OLD], {OLD}, iter([OLD])):
        assert ids(Keyring(NEW, verify=verify)) == [OLD.id, NEW.id]
    for gone in (Revoked(OLD, None), [Revoked(OLD, None)]):
        assert ids(Keyring(NEW, verify=[MID], revoked=gone)) == [MID.id, OLD.id, NEW.id]
        assert ids(Keyring(NEW, verify=[OLD, MID], revoked=gone)) == [OLD.id, MID.id, NEW.id]
    assert isinstance(Keyring(verify=PAIR.public).find(PAIR.id), VerifyingKey)
    assert Keyring(revoked=GONE).find(OLD.id) is OLD


def test_a_revoked_key_is_found_and_shown_for_what_it_is() -> None:
    """By either half, also if it is in `verify`. The audit asks what it verified."""
    ring = Keyring(NEW, verify=[PAIR], revoked=Revoked(PAIR.public, None))
    assert (ring.revoked(PAIR.id) is not None, ring.revoked(NEW.id)) == (True, None)
    assert ring.find(PAIR.id) == PAIR
    assert ring.revoked("0" * 16) is None
    assert GONE.head("invoices", "order-7") == HEAD
    for until in (None, Frozen(None)):
        assert Revoked(OLD, until).head("invoices", "order-7") is None
    with pytest.raises(SealBroken, match="which is not on this keyring"):
        ring.find("0" * 16)


def test_the_next_ring_keeps_what_this_one_says() -> None:
    after = Keyring(NEW, verify=RING)
    assert (ids(after), after.signing) == ([*ids(RING), NEW.id], NEW)
    assert (after.revoked(OLD.id), RING.signing) == (GONE, PAIR)
    assert Keyring(PAIR, verify=Keyring(verify=PAIR.public)).signing is PAIR
    until = Frozen()
    ring = Keyring(NEW, verify=after, revoked=Revoked(MID, until))
    entry = ring.revoked(MID.id)
    assert entry is not None
    assert (entry.until, entry.key, ids(ring)) == (until, MID, ids(after))
    assert (ring.revoked(OLD.id), after.revoked(MID.id)) == (GONE, None)
    assert ids(Keyring(NEW, revoked=Revoked(OLD, None))) == [OLD.id, NEW.id]
    for again in (Keyring(NEW, verify=RING), Keyring(NEW, verify=RING, revoked=[GONE])):
        assert (ids(again), again.revoked(OLD.id)) == ([*ids(RING), NEW.id], GONE)


TWICE = f"Key {OLD.id} is revoked twice, so how far"
NO_SIGN = f"Key {OLD.id} is revoked, so it cannot sign."
ONLY = "This keyring only verifies: no key on it signs. Save where the signing key is, with"
Act = Callable[[], object]

REFUSED: list[tuple[Act, str]] = [
    (lambda: Keyring().signing, ONLY),
    (lambda: Keyring().find(OLD.id), f"It names key '{OLD.id}', which is not on this"),
    (lambda: Keyring(OLD, revoked=GONE), NO_SIGN),
    (lambda: Keyring(PAIR, revoked=Revoked(PAIR.public, None)), "so it cannot sign"),
    (lambda: Keyring(NEW, revoked=[GONE, Revoked(OLD, None)]), TWICE),
    (lambda: Keyring(OLD, verify=RING), NO_SIGN),
    (lambda: Keyring(NEW, verify=RING, revoked=Revoked(OLD, None)), TWICE),
    (lambda: Keyring(verify=PAIR.public).signing, ONLY),
]


@pytest.mark.parametrize(("act", "message"), REFUSED)
def test_a_ring_that_would_trust_too_much_is_refused(act: Act, message: str) -> None:
    with pytest.raises(CheckpointError) as refusal:
        act()
    assert isinstance(refusal.value, (Unsafe, SealBroken))
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "answer",
    [
        ValueError("x"),
        RolledBack("It ends too early.", ""),
        (9, "sha256:0"),
        unseen(sequence="9", digest=None),
        unseen(sequence=9, digest="x"),
        unseen(sequence=0),
    ],
    ids=type,
)
def test_an_answer_that_is_none_lets_nothing_count(answer: Any) -> None:
    with pytest.raises((RolledBack, Unavailable)):
        Revoked(OLD, Frozen(answer)).head("invoices", "order-7")


def test_a_ring_shows_ids_and_does_not_leave_the_process() -> None:
    ring = Keyring(NEW, verify=[MID], revoked=GONE)
    assert repr(ring) == (f"Keyring(signing={NEW}, keys={ids(ring)}, revoked=['{OLD.id}'])")
    reader = Keyring(verify=PAIR.public)
    assert repr(reader) == f"Keyring(signing=None, keys=['{PAIR.id}'], revoked=[])"
    assert repr(Revoked(OLD, None)) == f"Revoked(key={OLD}, until=None)"
    for holder in (ring, reader, GONE):
        for action in (pickle.dumps, copy.deepcopy):
            with pytest.raises(Unsafe, match="neither pickled nor copied"):
                action(holder)
        assert not hasattr(holder, "__dict__")
