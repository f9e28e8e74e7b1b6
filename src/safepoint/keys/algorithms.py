"""The two algorithms: HMAC-SHA256 of the standard library, Ed25519 of `cryptography`.

`cryptography` is imported when the first Ed25519 key is used, and not before.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, Literal, Protocol, get_args

from safepoint.errors import KeyRefused, quoted
from safepoint.keys.redacted import Hidden, Redacted

Algorithm = Literal["hmac-sha256", "ed25519"]
"""What a signing key can be made for."""

HMAC: Final = "hmac-sha256"
ED25519: Final = "ed25519"
KEY_BYTES: Final = 32
# No record is signed under this label: the bytes that a seal covers go on with a line break.
_IDENTITY: Final = b"safepoint/1 key id"


class Verifier(Protocol):
    """Tells a signature from a forgery."""

    algorithm: Algorithm
    identity: bytes
    """32 bytes that name the key and do not reveal it. The id is the beginning of them."""

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Tell whether `signature` is the key's over `message`."""


class Signer(Verifier, Protocol):
    """Makes signatures too."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`."""

    def secret(self) -> Hidden:
        """Return what the key's file holds."""


def check_algorithm(name: object) -> Algorithm:
    """Return `name` if it is an algorithm.

    Raises:
        KeyRefused: it is not.
    """
    for algorithm in get_args(Algorithm):
        if name == algorithm:
            found: Algorithm = algorithm
            return found
    raise KeyRefused(
        f"{quoted(name)} is not an algorithm of this release.",
        f"Write '{HMAC}', or '{ED25519}' for readers who must not write.",
    )


class HmacSha256(Redacted):
    """One secret that signs and verifies."""

    __slots__ = ("_keyed", "_secret", "identity")

    algorithm: Algorithm = HMAC

    def __init__(self, secret: Hidden) -> None:
        self._secret = secret
        # To copy it is faster than to begin anew, and hands the secret to nobody.
        self._keyed = hmac.new(secret.reveal(), digestmod=hashlib.sha256)
        self.identity = self.sign(_IDENTITY)

    def sign(self, message: bytes) -> bytes:
        """Return 32 bytes."""
        mac = self._keyed.copy()
        mac.update(message)
        return mac.digest()

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(self.sign(message), signature)

    def secret(self) -> Hidden:
        """Return the secret."""
        return self._secret


class Ed25519Public(Redacted):
    """The half that verifies.

    Raises:
        KeyRefused: under this key, anybody can sign.
    """

    __slots__ = ("_key", "identity", "raw")

    algorithm: Algorithm = ED25519

    def __init__(self, raw: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if int.from_bytes(raw, "little") & _WITHOUT_SIGN in _SMALL_ORDER:
            raise KeyRefused(
                "Under this public key anybody can sign.",
                "It was damaged or planted. Take it from the signing key again: key.public.",
            )
        self.raw = raw
        self.identity = hashlib.sha256(_IDENTITY + b" ed25519\n" + raw).digest()
        self._key = Ed25519PublicKey.from_public_bytes(raw)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Tell whether `signature` is 64 bytes, and the right ones."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


class Ed25519Private(Redacted):
    """The half that signs, and the other one with it."""

    __slots__ = ("_private", "identity", "public")

    algorithm: Algorithm = ED25519

    def __init__(self, seed: Hidden) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._private = Ed25519PrivateKey.from_private_bytes(seed.reveal())
        self.public = Ed25519Public(self._private.public_key().public_bytes_raw())
        self.identity = self.public.identity

    def sign(self, message: bytes) -> bytes:
        """Return 64 bytes."""
        return self._private.sign(message)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Tell whether `signature` is 64 bytes, and the right ones."""
        return self.public.verify(message, signature)

    def secret(self) -> Hidden:
        """Return the seed, as RFC 8032 calls it the private key."""
        return Hidden(self._private.private_bytes_raw())


# The points of small order, by their y: a file of zero bytes holds one. The last two of the seven
# are 0 and 1 again, not reduced.
_P: Final = 2**255 - 19
_WITHOUT_SIGN: Final = 2**255 - 1
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER: Final = frozenset([0, 1, _P - 1, _ORDER_8, _P - _ORDER_8, _P, _P + 1])
