"""Keys: Ed25519 alone, ids that both halves share, and nothing that leaves but by a file."""

from __future__ import annotations

import copy
import pickle
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import SigningKey
from safepoint.core import record
from safepoint.core.errors import Unsafe
from safepoint.core.keys import Hidden, Key, VerifyingKey

SEED = bytes(range(32))
KEY = SigningKey(SEED)


@given(message=st.binary(max_size=300), data=st.data())
def test_a_key_verifies_what_it_signed_and_no_changed_or_cut_signature(
    message: bytes, data: st.DataObject
) -> None:
    signature = KEY.sign(message)
    assert len(signature) == 64
    assert KEY.verify(message, signature)
    assert KEY.public.verify(message, signature)
    assert not KEY.verify(message + b"\n", signature)
    bit = data.draw(st.integers(0, len(signature) * 8 - 1))
    changed = bytearray(signature)
    changed[bit // 8] ^= 1 << bit % 8
    assert not KEY.verify(message, bytes(changed))
    assert not KEY.verify(message, signature[: bit // 8])
    assert not SigningKey(SEED[::-1]).verify(message, signature)


@pytest.mark.parametrize("secret", [b"", b"x" * 31, b"x" * 33])
def test_only_32_bytes_make_a_key(secret: bytes) -> None:
    with pytest.raises(Unsafe, match="A signing key is 32 random bytes"):
        SigningKey(secret)
    with pytest.raises(Unsafe, match="A public key is 32 bytes, but none under"):
        VerifyingKey(secret)


@pytest.mark.parametrize("y", [0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18])
def test_a_key_under_which_anybody_can_sign_is_refused(y: int) -> None:
    """With either sign of x. The vectors have them all."""
    for sign in (0, 2**255):
        with pytest.raises(Unsafe, match="under which anybody can sign"):
            VerifyingKey((y + sign).to_bytes(32, "little"))


@pytest.mark.parametrize("key", [KEY, KEY.public, Hidden(SEED)], ids=repr)
def test_a_key_leaves_the_process_by_its_file_alone(key: Key | Hidden) -> None:
    """No pickle, no copy, no `__dict__`, no `__getstate__`."""
    actions: list[Callable[[object], object]] = [pickle.dumps, copy.copy, copy.deepcopy]
    actions += [lambda key: pickle.dumps(key, 0), lambda key: key.__getstate__()]
    for action in actions:
        with pytest.raises(Unsafe, match="key is neither pickled nor copied"):
            action(key)
    assert not hasattr(key, "__dict__")
    assert repr(key) in (f"{type(key).__name__}(id='{KEY.id}')", "<Hidden>")


@given(st.binary(min_size=1, max_size=64), st.binary(max_size=200))
def test_no_login_and_no_other_signature_of_ssh_can_pass_for_one_of_ours(
    session: bytes, rest: bytes
) -> None:
    """One key may do both, and neither text can begin as the other does.

    A login signs the length of the session's id in four bytes, the id, and a request; what
    `ssh-keygen -Y sign` makes is over six letters and more. Ours begin with `safepoint/1` and their
    use, and no use goes on from another.
    """
    login = struct.pack(">I", len(session)) + session + b"\x32" + rest
    uses = record._PREFIX.values()
    for text in (login, b"SSHSIG" + rest):
        assert not any(text.startswith(use) or use.startswith(text) for use in uses)
    for use in uses:
        assert [other for other in uses if other.startswith(use)] == [use]
