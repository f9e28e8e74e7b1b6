"""The keyring: which key signs, and which verify."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import Keyring, SigningKey
from safepoint.core.errors import CheckpointError, SealBroken, Unsafe
from safepoint.core.keys import Key

OLD, MID, NEW = (SigningKey(bytes([n]) * 32) for n in (1, 2, 3))
PAIR = SigningKey(bytes(32))


def ids(keys: Iterable[Key]) -> list[str]:
    return [key.id for key in keys]


RING = Keyring(PAIR, verify=MID)


@given(st.lists(st.sampled_from([OLD, MID, NEW, PAIR, PAIR.public])), st.sampled_from([OLD, PAIR]))
def test_each_key_is_on_the_ring_once_oldest_first_and_the_signing_one_is_last(
    verify: list[Key], signing: SigningKey
) -> None:
    ring = Keyring(signing, verify=verify)
    assert [*ring][-1] is signing is ring.signing is ring.find(signing.id)
    older = [key_id for key_id in dict.fromkeys(ids(verify)) if key_id != signing.id]
    assert ids(ring) == [*older, signing.id]


ONLY = "This keyring only verifies: no key on it signs. Save where the signing key is: Keyring"
Act = Callable[[], object]

REFUSED: list[tuple[Act, str]] = [
    (lambda: Keyring().signing, ONLY),
    (lambda: Keyring().find(OLD.id), f"It names key '{OLD.id}', which is not on this"),
    (lambda: Keyring(NEW, verify=RING).find("0" * 16), "which is not on this keyring"),
    (lambda: Keyring(verify=PAIR.public).signing, ONLY),
]


@pytest.mark.parametrize(("act", "message"), REFUSED)
def test_a_ring_that_would_trust_too_much_is_refused(act: Act, message: str) -> None:
    with pytest.raises(CheckpointError) as refusal:
        act()
    assert isinstance(refusal.value, (Unsafe, SealBroken))
    assert message in str(refusal.value)
