"""Keys: two algorithms, each with its own signatures, and ids that both halves share."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import SigningKey
from safepoint.core.errors import KeyRefused
from safepoint.core.keys import Algorithm, Key, VerifyingKey

SEED = bytes(range(32))
BOTH: tuple[Algorithm, ...] = get_args(Algorithm)
KEYS = {algorithm: SigningKey(SEED, algorithm) for algorithm in BOTH}
SIZES = {"hmac-sha256": 32, "ed25519": 64}

each = pytest.mark.parametrize("algorithm", BOTH)


@each
@given(message=st.binary(max_size=300), data=st.data())
def test_a_key_verifies_what_it_signed_and_no_changed_or_cut_signature(
    algorithm: Algorithm, message: bytes, data: st.DataObject
) -> None:
    key = KEYS[algorithm]
    signature = key.sign(message)
    assert len(signature) == SIZES[algorithm]
    assert key.verify(message, signature)
    assert not key.verify(message + b"\n", signature)
    bit = data.draw(st.integers(0, len(signature) * 8 - 1))
    changed = bytearray(signature)
    changed[bit // 8] ^= 1 << bit % 8
    assert not key.verify(message, bytes(changed))
    assert not key.verify(message, signature[: bit // 8])
    # No downgrade: the size that a record shows does not choose how it is verified.
    other = next(each for each in KEYS.values() if each is not key)
    assert not key.verify(message, (other.sign(message) * 2)[: SIZES[algorithm]])


@pytest.mark.parametrize("secret", [b"", b"x" * 31, b"x" * 33, "x" * 32, bytearray(32)])
def test_only_32_bytes_make_a_key(secret: bytes) -> None:
    for algorithm in BOTH:
        with pytest.raises(KeyRefused, match="A signing key is 32 random bytes"):
            SigningKey(secret, algorithm)
    with pytest.raises(KeyRefused, match="A public key is 32 bytes; this is something else"):
        VerifyingKey(secret)


@pytest.mark.parametrize("name", ["", "none", "HMAC-SHA256", "ed25519 ", None, b"ed25519"])
def test_only_the_two_algorithms_make_a_key(name: Algorithm) -> None:
    with pytest.raises(KeyRefused, match="is not an algorithm of this release"):
        SigningKey(SEED, name)


def every_key() -> list[Key]:
    return [*KEYS.values(), KEYS["ed25519"].public]


@pytest.mark.parametrize("key", every_key(), ids=repr)
def test_a_key_leaves_the_process_by_its_file_alone(key: Key) -> None:
    """No pickle, no copy, no `__dict__`, no `__getstate__`; nor does what it holds."""
    actions: list[Callable[[object], object]] = [pickle.dumps, copy.copy, copy.deepcopy]
    actions += [lambda key: pickle.dumps(key, 0), lambda key: key.__getstate__()]
    for held in (key, getattr(key, "_secret", key)):
        for action in actions:
            with pytest.raises(KeyRefused, match="key is neither pickled nor copied"):
                action(held)
        assert not hasattr(held, "__dict__")
    assert repr(getattr(key, "_secret", "<Hidden>")) in ("<Hidden>", "'<Hidden>'")


def test_cryptography_is_imported_for_ed25519_alone() -> None:
    """`import safepoint` stays fast for those who do not use it."""
    code = """
import sys, safepoint
from safepoint.core.keys import VerifyingKey
assert safepoint.SigningKey.generate().sign(b"")
assert "cryptography" not in sys.modules, "too early"
assert safepoint.SigningKey.generate().sign(b"")
assert "cryptography" in sys.modules, "never"
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_keys_are_equal_by_what_they_are() -> None:
    """One secret under two algorithms is two keys; both halves of one are the same, not equal."""
    one, pair = KEYS["hmac-sha256"], KEYS["ed25519"]
    assert SigningKey(SEED) == one
    assert len({SigningKey(SEED), one, SigningKey.generate(), pair}) == 3
    assert (one == pair, one == one.id, one.is_same_as(pair)) == (False, False, False)
    assert (pair == pair.public, pair.is_same_as(pair.public)) == (False, True)
    assert (one.algorithm, SigningKey.generate().algorithm) == ("hmac-sha256", "hmac-sha256")
    assert (SigningKey.generate().path, pair.public.path) == (None, None)


def test_readers_who_must_not_write_need_a_public_half() -> None:
    assert not hasattr(KEYS["ed25519"].public, "sign")
    with pytest.raises(KeyRefused) as refusal:
        _ = SigningKey.generate().public
    assert str(refusal.value) == (
        "An HMAC key has no public half: whoever can verify with it can also sign. "
        "Make a key for readers who must not write with SigningKey.generate()."
    )
