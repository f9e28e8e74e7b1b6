"""The keyring: which key signs, which verify, and how far a revoked one counts."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import KeyRefused, Keyring, SigningKey, UnknownKey
from safepoint.errors import AnchorUnavailable, RolledBack
from safepoint.keys import Key, Revoked, VerifyingKey
from safepoint.names import Head

OLD, MID, NEW = (SigningKey(bytes([n]) * 32) for n in (1, 2, 3))
PAIR = SigningKey(bytes(32), "ed25519")
HEAD = Head(7, f"sha256:{'a' * 64}")


class Frozen:
    """The heads as they stood, and a note of what was asked."""

    def __init__(self, answer: Head | Exception | None = HEAD) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    def read(self, store: str, thread: str) -> Head | None:
        self.asked.append((store, thread))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def ids(keys: Iterable[Key]) -> list[str]:
    return [key.id for key in keys]


def test_an_older_key_still_verifies_and_a_stranger_does_not() -> None:
    ring = Keyring(NEW, verify=[OLD])
    assert ring.signing is NEW
    assert ring.find(OLD.id) is OLD
    assert ring.find(NEW.id) is NEW
    with pytest.raises(UnknownKey) as refusal:
        ring.find(MID.id)
    assert str(refusal.value) == (
        f"It names key '{MID.id}', which is not on this keyring. If that key is one of yours, add"
        " it with Keyring(..., verify=[key]); if not, treat the record as forged."
    )


@pytest.mark.parametrize("verify", [OLD, [OLD], (OLD,), {OLD}, iter([OLD])])
def test_one_key_or_several_in_any_collection(verify: Key | Iterable[Key]) -> None:
    assert ids(Keyring(NEW, verify=verify)) == [OLD.id, NEW.id]


@pytest.mark.parametrize("listed", [lambda entry: entry, lambda entry: [entry]])
def test_one_revoked_key_or_several(listed: Any) -> None:
    ring = Keyring(NEW, revoked=listed(Revoked(OLD, None)))
    assert ids(ring) == [OLD.id, NEW.id]


def test_a_ring_is_in_order_from_the_oldest_to_the_one_that_signs() -> None:
    assert ids(Keyring(NEW, verify=[OLD, MID])) == [OLD.id, MID.id, NEW.id]
    assert ids(Keyring(NEW, verify=[NEW, MID, OLD, MID])) == [MID.id, OLD.id, NEW.id]
    assert ids(Keyring(NEW, verify=[MID], revoked=Revoked(OLD, None))) == [OLD.id, MID.id, NEW.id]
    ring = Keyring(NEW, verify=[OLD, MID], revoked=Revoked(MID, None))
    assert ids(ring) == ids(ring.all) == [OLD.id, MID.id, NEW.id]


@given(st.lists(st.sampled_from([OLD, MID, NEW, PAIR, PAIR.public])), st.sampled_from([OLD, PAIR]))
def test_each_key_is_on_the_ring_once_and_the_signing_one_is_last(
    verify: list[Key], signing: SigningKey
) -> None:
    ring = Keyring(signing, verify=verify)
    assert ring.all[-1] is signing is ring.signing
    assert sorted(ids(ring)) == sorted({signing.id, *ids(verify)})
    older = [key_id for key_id in dict.fromkeys(ids(verify)) if key_id != signing.id]
    assert ids(ring)[:-1] == older


def test_a_ring_without_a_signing_key_verifies_and_refuses_to_sign() -> None:
    ring = Keyring(verify=PAIR.public)
    assert ring.find(PAIR.id).verify(b"message", PAIR.sign(b"message"))
    with pytest.raises(KeyRefused) as refusal:
        _ = ring.signing
    assert str(refusal.value) == (
        "This keyring only verifies: no key on it signs. "
        "Save where the signing key is, with Keyring(SigningKey.from_file(path))."
    )


def test_a_signing_key_in_verify_does_not_sign() -> None:
    with pytest.raises(KeyRefused, match="only verifies"):
        _ = Keyring(verify=[OLD]).signing


def test_both_halves_of_a_key_are_one_key() -> None:
    ring = Keyring(PAIR, verify=[PAIR.public, OLD])
    assert ids(ring) == [OLD.id, PAIR.id]
    assert ring.find(PAIR.id) is PAIR


# --- revoked


def test_a_revoked_key_is_found_and_says_so() -> None:
    entry = Revoked(OLD, Frozen())
    ring = Keyring(NEW, revoked=entry)
    assert ring.find(OLD.id) is OLD
    assert ring.revoked(OLD.id) is entry
    assert ring.revoked(NEW.id) is None
    assert ring.revoked("0" * 16) is None


def test_a_key_that_verifies_and_is_revoked_is_revoked() -> None:
    ring = Keyring(NEW, verify=[OLD], revoked=[Revoked(OLD, None)])
    assert ring.revoked(OLD.id) is not None
    assert ids(ring) == [OLD.id, NEW.id]


def test_a_public_half_revokes_the_key() -> None:
    ring = Keyring(NEW, verify=[PAIR], revoked=[Revoked(PAIR.public, None)])
    assert ring.revoked(PAIR.id) is not None


def test_a_ring_of_revoked_keys_alone_still_reads_the_past() -> None:
    assert Keyring(revoked=Revoked(OLD, Frozen())).find(OLD.id) is OLD


def test_a_revoked_key_counts_up_to_the_head_that_was_seen() -> None:
    until = Frozen()
    assert Revoked(OLD, until).head("invoices", "order-7") == HEAD
    assert until.asked == [("invoices", "order-7")]
    assert Revoked(OLD, Frozen(None)).head("invoices", "order-7") is None
    assert Revoked(OLD, None).head("invoices", "order-7") is None


def test_the_error_of_the_anchor_is_not_hidden() -> None:
    failure = RolledBack("It ends too early.", "Restore it.")
    with pytest.raises(RolledBack) as refusal:
        Revoked(OLD, Frozen(failure)).head("invoices", "order-7")
    assert refusal.value is failure


def test_an_anchor_that_fails_otherwise_lets_nothing_count() -> None:
    failure = ValueError("of the anchor")
    with pytest.raises(AnchorUnavailable) as refusal:
        Revoked(OLD, Frozen(failure)).head("invoices", "order-7")
    assert str(refusal.value) == (
        f"How far revoked key {OLD.id} counts cannot be read: ValueError. "
        "Nothing is loaded without it. See the error that it came from."
    )
    assert refusal.value.__cause__ is failure


@pytest.mark.parametrize(
    "until", [7, "now", HEAD, object(), type("NotCallable", (), {"read": 1})()]
)
def test_until_is_something_that_can_be_read(until: Any) -> None:
    with pytest.raises(KeyRefused) as refusal:
        Revoked(OLD, until)
    assert str(refusal.value) == (
        f"Key {OLD.id} is revoked until {type(until).__name__}, which has no method read. "
        'Give a copy of the anchor from before the theft, FileAnchor("anchor-before"), or None'
        " to let nothing count."
    )


@pytest.mark.parametrize("key", [None, OLD.id, b"x" * 32, Keyring(OLD)])
def test_only_a_key_is_revoked(key: Any) -> None:
    with pytest.raises(KeyRefused, match=f"A key is revoked, and {type(key).__name__} is none"):
        Revoked(key, None)


# --- refused


def test_a_ring_without_a_key_is_refused() -> None:
    empty: list[dict[str, Any]] = [{}, {"verify": [], "revoked": []}]
    for arguments in empty:
        with pytest.raises(KeyRefused) as refusal:
            Keyring(None, **arguments)
        assert str(refusal.value) == (
            "A keyring without a key trusts nothing. "
            "Write Keyring(SigningKey.from_file(path, create=True))."
        )


@pytest.mark.parametrize("revoked", [OLD, PAIR])
def test_a_revoked_key_does_not_sign(revoked: SigningKey) -> None:
    entries = [
        Revoked(revoked, None),
        *([Revoked(revoked.public, None)] if revoked is PAIR else []),
    ]
    for entry in entries:
        with pytest.raises(KeyRefused) as refusal:
            Keyring(revoked, revoked=entry)
        assert str(refusal.value) == (
            f"Key {revoked.id} is revoked, so it cannot sign. "
            "Sign with a new one first: keyring.rotated(SigningKey.generate())."
        )


def test_a_key_is_revoked_once() -> None:
    """Which of two points counts would be a guess."""
    with pytest.raises(KeyRefused) as refusal:
        Keyring(NEW, revoked=[Revoked(OLD, None), Revoked(OLD, Frozen())])
    assert str(refusal.value) == (
        f"Key {OLD.id} is revoked twice, so how far it counts is not clear. "
        "Keep the entry that lets less count."
    )


def twin(key: SigningKey) -> SigningKey:
    """Make another key of the same id, as one in 2**64 would be."""
    other = SigningKey.generate()
    object.__setattr__(other, "id", key.id)
    return other


@pytest.mark.parametrize(
    "arguments",
    [
        (OLD, {"verify": [twin(OLD)]}),
        (NEW, {"verify": [OLD, twin(OLD)]}),
        (NEW, {"verify": [OLD], "revoked": Revoked(twin(OLD), None)}),
    ],
)
def test_two_keys_of_one_id_are_refused(arguments: tuple[SigningKey, dict[str, Any]]) -> None:
    signing, others = arguments
    with pytest.raises(KeyRefused) as refusal:
        Keyring(signing, **others)
    assert str(refusal.value) == (
        f"Two different keys have the id {OLD.id}. Replace one of them with a new key."
    )


@pytest.mark.parametrize("signing", [b"x" * 32, "key", [OLD], Keyring(OLD), PAIR.public, False])
def test_only_a_signing_key_signs(signing: Any) -> None:
    with pytest.raises(KeyRefused) as refusal:
        Keyring(signing)
    assert str(refusal.value) == (
        f"A keyring signs with a signing key, not {type(signing).__name__}. "
        "Write Keyring(SigningKey.from_file(path)), or Keyring(verify=[key]) for a reader."
    )


@pytest.mark.parametrize(
    ("verify", "named"),
    [
        (5, "int"),
        (None, "NoneType"),
        ("key", "str"),
        (b"x", "int"),
        ([OLD, OLD.id], "str"),
        ([Revoked(OLD, None)], "Revoked"),
        (Revoked(OLD, None), "Revoked"),
        ([[OLD]], "list"),
    ],
)
def test_only_keys_verify(verify: Any, named: str) -> None:
    with pytest.raises(KeyRefused, match=f"given {named} among its keys. Write verify=\\[key\\]"):
        Keyring(NEW, verify=verify)


@pytest.mark.parametrize("revoked", [5, None, OLD, [OLD], "key", Keyring(OLD)])
def test_only_revoked_entries_are_revoked(revoked: Any) -> None:
    with pytest.raises(KeyRefused) as refusal:
        Keyring(NEW, revoked=revoked)
    assert refusal.value.what.endswith("among its keys.")
    assert refusal.value.do == 'Write revoked=[Revoked(key, until=FileAnchor("anchor-before"))].'


def test_a_whole_ring_is_not_trusted_by_its_keys() -> None:
    """Its revoked keys would count again."""
    ring = Keyring(MID, revoked=Revoked(OLD, None))
    with pytest.raises(KeyRefused) as refusal:
        Keyring(NEW, verify=ring)
    assert str(refusal.value) == (
        "A keyring was given Keyring among its keys. "
        "Write verify=[key], or keyring.rotated(key) to keep a whole ring."
    )


def test_the_keys_of_a_ring_do_not_count_again_on_another() -> None:
    """Whichever way they are taken off it, unless they are revoked there too."""
    entry = Revoked(OLD, Frozen())
    ring = Keyring(PAIR, verify=MID, revoked=entry)
    for taken in (ring.all, list(ring), [*ring, NEW], iter(ring), ring.all[0]):
        with pytest.raises(KeyRefused) as refusal:
            Keyring(NEW, verify=taken)
        assert str(refusal.value) == (
            f"Key {OLD.id} is revoked on the keyring that it was taken from. Keep that with"
            " keyring.rotated(key), or revoke it here too:"
            " revoked=[old_keyring.revoked(key.id)]."
        )
    again = Keyring(NEW, verify=ring.all, revoked=[entry])
    assert ids(again) == [OLD.id, MID.id, PAIR.id, NEW.id]
    assert again.revoked(OLD.id) is entry
    assert Keyring(NEW, revoked=Revoked(ring.all[0], None)).revoked(OLD.id) is not None
    with pytest.raises(KeyRefused, match="signs with a signing key, not RevokedKey"):
        Keyring(ring.all[0])  # type: ignore[arg-type]


def test_a_revoked_key_is_shown_for_what_it_is() -> None:
    """With the same id, path and algorithm, and able to verify, as the audit asks for them."""
    ring = Keyring(NEW, revoked=Revoked(PAIR, None))
    shown = ring.all[0]
    assert repr(shown) == f"RevokedKey(id='{PAIR.id}', algorithm='ed25519')"
    assert (shown.id, shown.algorithm, shown.path) == (PAIR.id, PAIR.algorithm, PAIR.path)
    assert shown.is_same_as(PAIR)
    assert shown.verify(b"message", PAIR.sign(b"message"))
    assert not hasattr(shown, "sign")
    assert ring.find(PAIR.id) is PAIR


@pytest.mark.parametrize("odd", [[], {}, None, 7, b"x"])
def test_what_is_no_id_is_on_no_ring(odd: Any) -> None:
    ring = Keyring(NEW, revoked=Revoked(OLD, None))
    with pytest.raises(UnknownKey, match="which is not on this keyring"):
        ring.find(odd)
    assert ring.revoked(odd) is None


# --- the next ring


def test_rotation_signs_with_the_new_key_and_keeps_all_others() -> None:
    entry = Revoked(PAIR, None)
    before = Keyring(MID, verify=[OLD], revoked=entry)
    after = before.rotated(NEW)
    assert after.signing is NEW
    assert ids(after) == [*ids(before), NEW.id]
    assert after.revoked(PAIR.id) is entry
    assert before.signing is MID
    assert ids(before) == [PAIR.id, OLD.id, MID.id]


def test_rotation_of_a_ring_that_only_verifies_makes_it_sign() -> None:
    assert Keyring(verify=PAIR.public).rotated(PAIR).signing is PAIR


def test_rotation_back_to_a_revoked_key_is_refused() -> None:
    with pytest.raises(KeyRefused, match=f"Key {OLD.id} is revoked, so it cannot sign"):
        Keyring(NEW, revoked=Revoked(OLD, None)).rotated(OLD)


@pytest.mark.parametrize("key", [PAIR.public, b"x", "key"])
def test_rotation_to_what_cannot_sign_is_refused(key: Any) -> None:
    with pytest.raises(KeyRefused, match="signs with a signing key, not"):
        Keyring(NEW).rotated(key)


def test_rotation_to_nothing_is_refused() -> None:
    with pytest.raises(KeyRefused, match="signs with a signing key, not NoneType"):
        Keyring(NEW).rotated(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [MID, MID.id])
def test_revoking_takes_a_key_or_its_id_and_keeps_the_order(key: Key | str) -> None:
    until, first = Frozen(), Revoked(OLD, None)
    before = Keyring(NEW, verify=[OLD, MID], revoked=first)
    after = before.revoking(key, until=until)
    assert ids(after) == ids(before) == [OLD.id, MID.id, NEW.id]
    assert after.signing is NEW
    assert after.revoked(OLD.id) is first
    entry = after.revoked(MID.id)
    assert entry is not None
    assert entry.until is until
    assert entry.key is MID
    assert before.revoked(MID.id) is None


def test_a_key_that_was_never_on_the_ring_can_be_revoked() -> None:
    after = Keyring(NEW).revoking(OLD, until=None)
    assert ids(after) == [OLD.id, NEW.id]
    assert after.revoked(OLD.id) is not None


def test_rotate_then_revoke() -> None:
    ring = Keyring(OLD).rotated(NEW).revoking(OLD, until=Frozen())
    assert ring.signing is NEW
    entry = ring.revoked(OLD.id)
    assert entry is not None
    assert entry.head("invoices", "order-7") == HEAD


def test_the_key_that_signs_is_not_revoked_before_another_signs() -> None:
    with pytest.raises(KeyRefused, match=r"cannot sign\. Sign with a new one first: keyring\.rota"):
        Keyring(OLD).revoking(OLD, until=None)


def test_revoking_again_is_refused() -> None:
    with pytest.raises(KeyRefused, match="is revoked twice"):
        Keyring(NEW, revoked=Revoked(OLD, None)).revoking(OLD, until=Frozen())


def test_revoking_an_id_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownKey, match=f"'{OLD.id}', which is not on this keyring"):
        Keyring(NEW).revoking(OLD.id, until=None)


def test_revoking_what_is_no_key_is_refused() -> None:
    with pytest.raises(KeyRefused, match="A key is revoked, and bytes is none"):
        Keyring(NEW).revoking(b"x", until=None)  # type: ignore[arg-type]


# --- shown


def test_repr_shows_ids_and_which_are_revoked() -> None:
    ring = Keyring(NEW, verify=[MID], revoked=Revoked(OLD, Frozen()))
    assert repr(ring) == (
        f"Keyring(signing='{NEW.id}', trusted=['{MID.id}', '{NEW.id}'], revoked=['{OLD.id}'])"
    )
    reader = Keyring(verify=PAIR.public)
    assert repr(reader) == f"Keyring(signing=None, trusted=['{PAIR.id}'], revoked=[])"
    assert repr(Revoked(OLD, Frozen())) == f"Revoked('{OLD.id}', until=Frozen)"
    assert repr(Revoked(OLD, None)) == f"Revoked('{OLD.id}', until=None)"


@pytest.mark.parametrize("holder", [Keyring(NEW), Revoked(OLD, None), Keyring(verify=PAIR.public)])
def test_a_ring_does_not_leave_the_process(holder: object) -> None:
    for action in (pickle.dumps, copy.deepcopy):
        with pytest.raises(KeyRefused, match="neither pickled nor copied"):
            action(holder)
    assert not hasattr(holder, "__dict__")


def test_the_key_of_a_reader_is_what_find_returns() -> None:
    assert isinstance(Keyring(verify=PAIR.public).find(PAIR.id), VerifyingKey)


def test_an_answer_about_a_revoked_key_that_is_no_head_is_refused() -> None:
    class Careless:
        def read(self, store: str, thread: str) -> Head | None:
            return (9, "sha256:0")  # type: ignore[return-value]

    with pytest.raises(AnchorUnavailable, match="was answered with tuple"):
        Revoked(SigningKey.generate(), until=Careless()).head("invoices", "order-7")


@pytest.mark.parametrize(
    "fields", [{"sequence": "9", "digest": None}, {"sequence": 9, "digest": "x"}, {"sequence": 0}]
)
def test_a_head_that_was_never_looked_at_is_refused(fields: dict[str, Any]) -> None:
    """One that was unpickled skips its own checks."""
    head = object.__new__(Head)
    for name, value in fields.items():
        object.__setattr__(head, name, value)
    with pytest.raises(AnchorUnavailable, match="was answered with a Head that is none"):
        Revoked(OLD, until=Frozen(head)).head("invoices", "order-7")


@pytest.mark.parametrize("wrong", [lambda: Revoked("key", None), lambda: Revoked(OLD, "anchor")])  # type: ignore[arg-type]
def test_the_hints_name_a_copy_and_not_the_anchor_in_use(wrong: Any) -> None:
    """With the one in use, the point would move with each save."""
    with pytest.raises(KeyRefused) as refusal:
        wrong()
    assert 'FileAnchor("anchor-before")' in refusal.value.do
    assert "until=anchor" not in str(refusal.value)
