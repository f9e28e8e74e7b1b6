"""The key that verifies and cannot seal."""

from __future__ import annotations

import os
from typing import ClassVar, Final

from safepoint.errors import KeyRefused
from safepoint.keys import files
from safepoint.keys.algorithms import ED25519, KEY_BYTES, Ed25519Public
from safepoint.keys.base import Key
from safepoint.keys.redacted import Hidden


class VerifyingKey(Key):
    """The public half of an Ed25519 key. Who holds it can read and verify, and cannot forge.

    ```python
    from safepoint import Keyring, SigningKey, VerifyingKey

    writer = SigningKey.generate("ed25519")
    writer.public.to_file("reader.key")

    reader = VerifyingKey.from_file("reader.key")
    print(reader.id == writer.id, reader.verify(b"text", writer.sign(b"text")))
    #> True True
    keys = Keyring(verify=[reader])  # opens what the writer sealed, and can seal nothing
    ```

    It is no secret, and yet it decides what is genuine: take it from the writer, over a path that
    the writer of the storage cannot reach.

    Args:
        public: the 32 bytes of the public key.

    Raises:
        KeyRefused: they are something else, or a key under which anybody can sign.
    """

    __slots__ = ("_public",)

    noun: ClassVar[str] = "A verifying key"

    def __init__(self, public: bytes) -> None:
        if not isinstance(public, bytes) or len(public) != KEY_BYTES:
            raise KeyRefused(
                f"A public key is {KEY_BYTES} bytes; this is something else.",
                "Take it from a signing key: SigningKey.generate('ed25519').public.",
            )
        self._public: Final = Ed25519Public(public)
        super().__init__(self._public)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> VerifyingKey:
        """Read a public key that `to_file` wrote.

        Everybody may read the file; only you and root may write it.

        Raises:
            KeyRefused: the file is missing, malformed, not yours, writable by others, or holds
                a secret key.
        """
        found = files.read(path, files.PUBLIC)
        key = cls(found.content.reveal())
        key.path = found.path
        return key

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file with mode 0644. An existing file is never overwritten.

        Raises:
            KeyRefused: the file exists, cannot be written, or others could replace it there.
        """
        files.write(path, files.PUBLIC, ED25519, Hidden(self._public.raw))
