"""Keys: two algorithms, each with its own signatures, and ids that both halves share."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import SigningKey
from safepoint.errors import KeyRefused
from safepoint.keys import Algorithm, Key, VerifyingKey

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


def test_neither_algorithm_accepts_the_signature_of_the_other() -> None:
    """No downgrade: the size that a record shows does not choose how it is verified."""
    for key, other in (
        (KEYS["hmac-sha256"], KEYS["ed25519"]),
        (KEYS["ed25519"], KEYS["hmac-sha256"]),
    ):
        assert not key.verify(b"message", other.sign(b"message"))
        assert not key.verify(b"message", (other.sign(b"message") * 2)[: SIZES[key.algorithm]])


@pytest.mark.parametrize(
    "secret", [b"", b"short", b"x" * 31, b"x" * 33, "x" * 32, bytearray(32), 5]
)
def test_only_32_bytes_make_a_key(secret: bytes) -> None:
    for algorithm in BOTH:
        with pytest.raises(KeyRefused, match="A signing key is 32 random bytes"):
            SigningKey(secret, algorithm)
    with pytest.raises(KeyRefused, match="A public key is 32 bytes; this is something else"):
        VerifyingKey(secret)


@pytest.mark.parametrize(
    "name", ["", "none", "rsa", "HMAC-SHA256", "ed25519 ", None, 5, [], b"ed25519"]
)
def test_only_the_two_algorithms_make_a_key(name: Algorithm) -> None:
    message = r"is not an algorithm of this release\. Write 'hmac-sha256', or 'ed25519' for"
    with pytest.raises(KeyRefused, match=message):
        SigningKey.generate(name)
    with pytest.raises(KeyRefused, match=message):
        SigningKey(SEED, name)


def every_key() -> list[Key]:
    return [*KEYS.values(), KEYS["ed25519"].public]


@pytest.mark.parametrize("key", every_key(), ids=repr)
def test_a_key_leaves_the_process_by_its_file_alone(key: Key) -> None:
    """No pickle, no copy, no `__dict__`, no `__getstate__`, no JSON."""
    actions: list[Callable[[Key], object]] = [pickle.dumps, copy.copy, copy.deepcopy]
    actions += [lambda key: pickle.dumps(key, 0), lambda key: key.__getstate__()]
    for action in actions:
        with pytest.raises(KeyRefused, match=r"key is neither pickled nor copied\. Pass the key f"):
            action(key)
    assert not hasattr(key, "__dict__")
    with pytest.raises(TypeError):
        json.dumps(key)


@pytest.mark.parametrize("key", every_key(), ids=repr)
def test_what_a_key_holds_does_not_leave_the_process_either(key: Key) -> None:
    inner = [
        getattr(key, name) for kind in type(key).__mro__ for name in vars(kind).get("__slots__", ())
    ]
    ours = [part for part in inner if type(part).__module__.startswith("safepoint.")]
    assert ours
    for part in ours:
        assert repr(part) == f"<{type(part).__name__}>"
        assert not hasattr(part, "__dict__")
        with pytest.raises(KeyRefused, match="A secret is neither pickled nor copied"):
            pickle.dumps(part)


def test_cryptography_is_imported_for_ed25519_alone() -> None:
    """`import safepoint` stays fast for those who do not use it."""
    code = """
import sys, safepoint
from safepoint.keys import VerifyingKey
assert safepoint.SigningKey.generate().sign(b"")
assert "cryptography" not in sys.modules, "too early"
assert safepoint.SigningKey.generate("ed25519").sign(b"")
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
    assert (SigningKey.generate("ed25519").path, pair.public.path) == (None, None)


def test_readers_who_must_not_write_need_a_public_half() -> None:
    assert not hasattr(KEYS["ed25519"].public, "sign")
    with pytest.raises(KeyRefused) as refusal:
        _ = SigningKey.generate().public
    assert str(refusal.value) == (
        "An HMAC key has no public half: whoever can verify with it can also sign. "
        "Make a key for readers who must not write with SigningKey.generate('ed25519')."
    )
