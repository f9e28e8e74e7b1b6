"""Keys: two algorithms, each with its own signatures, and ids that both halves share."""

from __future__ import annotations

import copy
import hashlib
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
SMALL_ORDER = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]

each = pytest.mark.parametrize("algorithm", BOTH)


def hmac_by_hand(secret: bytes, message: bytes) -> bytes:
    """RFC 2104, with a key shorter than a block."""
    block = secret.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block) + message)
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in block) + inner.digest()).digest()


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=300))
def test_hmac_is_the_one_of_rfc_2104(secret: bytes, message: bytes) -> None:
    key = SigningKey(secret)
    assert key.sign(message) == hmac_by_hand(secret, message)
    assert key.id == hmac_by_hand(secret, b"safepoint/1 key id")[:8].hex()


# https://www.rfc-editor.org/rfc/rfc8032#section-7.1
@pytest.mark.parametrize(
    ("seed", "public", "message", "signature"),
    [
        pytest.param(
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
            id="TEST 3",
        ),
    ],
)
def test_ed25519_is_the_one_of_rfc_8032(
    seed: str, public: str, message: str, signature: str
) -> None:
    key = SigningKey(bytes.fromhex(seed), "ed25519")
    text, expected = bytes.fromhex(message), bytes.fromhex(signature)
    assert key.sign(text) == expected
    assert key.verify(text, expected)
    assert key.public == VerifyingKey(bytes.fromhex(public))
    assert VerifyingKey(bytes.fromhex(public)).verify(text, expected)


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


@each
@given(signature=st.binary(max_size=130))
def test_any_bytes_but_the_right_ones_are_refused_and_raise_nothing(
    algorithm: Algorithm, signature: bytes
) -> None:
    key = KEYS[algorithm]
    assert key.verify(b"message", signature) is False
    assert key.verify(b"message", key.sign(b"message") + signature) is (signature == b"")


def test_neither_algorithm_accepts_the_signature_of_the_other() -> None:
    """No downgrade: the size that a record shows does not choose how it is verified."""
    for key, other in (
        (KEYS["hmac-sha256"], KEYS["ed25519"]),
        (KEYS["ed25519"], KEYS["hmac-sha256"]),
    ):
        assert not key.verify(b"message", other.sign(b"message"))
        assert not key.verify(b"message", (other.sign(b"message") * 2)[: SIZES[key.algorithm]])


def test_a_public_key_is_no_hmac_secret() -> None:
    """The classic confusion: a MAC under the public key, which everybody knows."""
    key = KEYS["ed25519"]
    public = bytes.fromhex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8")
    assert not key.public.verify(b"message", hmac_by_hand(public, b"message"))


def test_a_signature_has_one_form() -> None:
    """Ed25519's S is smaller than the group's order, so S + L is refused."""
    key = KEYS["ed25519"]
    signature = key.sign(b"message")
    order = 2**252 + 27742317777372353535851937790883648493
    number = int.from_bytes(signature[32:], "little") + order
    assert not key.verify(b"message", signature[:32] + number.to_bytes(32, "little"))


@pytest.mark.parametrize("sign_bit", [0, 0x80])
@pytest.mark.parametrize("point", SMALL_ORDER)
def test_a_key_under_which_anybody_can_sign_is_refused(point: str, sign_bit: int) -> None:
    """A file of zero bytes, say: `cryptography` accepts it, and signatures that need no secret."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    raw = bytearray.fromhex(point)
    raw[31] |= sign_bit
    weak = Ed25519PublicKey.from_public_bytes(bytes(raw))

    def forged(number: int, commitment: str) -> bool:
        try:
            weak.verify(bytes.fromhex(commitment) + bytes(32), b"message %d" % number)
        except InvalidSignature:
            return False
        return True

    assert any(forged(number, point) for number in range(50) for point in SMALL_ORDER)
    with pytest.raises(KeyRefused) as refusal:
        VerifyingKey(bytes(raw))
    assert str(refusal.value) == (
        "Under this public key anybody can sign. "
        "It was damaged or planted. Take it from the signing key again: key.public."
    )


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


def test_ids_are_written_down_so_that_a_change_of_the_format_shows() -> None:
    one, pair = KEYS["hmac-sha256"], KEYS["ed25519"]
    public = bytes.fromhex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8")
    assert one.id == "3078057d51d5c15e"
    signature = "e2cd913a4dd3e02181af2c6d45e278f64026ab167b3df31b98035d7a81dfbf3b"
    assert one.sign(b"safepoint/1\n{}").hex() == signature
    assert pair.id == pair.public.id == VerifyingKey(public).id == "4215afd8fd6c66ff"
    assert repr(pair) == "SigningKey(id='4215afd8fd6c66ff', algorithm='ed25519')"
    assert repr(pair.public) == "VerifyingKey(id='4215afd8fd6c66ff', algorithm='ed25519')"


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
