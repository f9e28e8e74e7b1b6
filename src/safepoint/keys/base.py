"""What every key has: an id, an algorithm, and the means to verify."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Final

from safepoint.errors import ConfigurationError
from safepoint.keys.algorithms import Algorithm, Verifier
from safepoint.keys.redacted import Redacted


class Key(Redacted):
    """A `SigningKey` or a `VerifyingKey`: either can verify.

    Attributes:
        id: 16 hex digits. Both halves of an Ed25519 key have the same.
        algorithm: `"hmac-sha256"` or `"ed25519"`.
        path: the file that it was read from or first written to, absolute, or None.
    """

    __slots__ = ("_verifier", "algorithm", "id", "path")

    def __init__(self, verifier: Verifier) -> None:
        self._verifier: Final = verifier
        self.algorithm: Final[Algorithm] = verifier.algorithm
        self.id: Final = verifier.identity[:8].hex()
        self.path: Path | None = None

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Tell whether `signature` is this key's over `message`.

        Raises:
            ConfigurationError: one of them is not `bytes`.
        """
        check_bytes("verifies", message)
        check_bytes("verifies", signature)
        return self._verifier.verify(message, signature)

    def is_same_as(self, other: Key) -> bool:
        """Tell, in constant time, whether both are one key, or the halves of one."""
        return hmac.compare_digest(self._verifier.identity, other._verifier.identity)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Key) or type(other) is not type(self):
            return NotImplemented
        return self.is_same_as(other)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        if not hasattr(self, "id"):  # refused while it was made, and now in somebody's report
            return super().__repr__()
        return f"{type(self).__name__}(id={self.id!r}, algorithm={self.algorithm!r})"


def check_bytes(does: str, value: object) -> None:
    """Refuse what is not `bytes`, before a library does in words of its own.

    Raises:
        ConfigurationError: it is something else.
    """
    if not isinstance(value, bytes):
        raise ConfigurationError(
            f"A key {does} bytes, and was given {type(value).__name__}.",
            "Encode it first: text.encode().",
        )
