"""The key that seals."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import ClassVar, Final

from safepoint.errors import KeyRefused, shell
from safepoint.keys import files
from safepoint.keys.algorithms import (
    ED25519,
    HMAC,
    KEY_BYTES,
    Algorithm,
    Ed25519Private,
    HmacSha256,
    Signer,
    check_algorithm,
)
from safepoint.keys.base import Key, check_bytes
from safepoint.keys.redacted import Hidden
from safepoint.keys.verifying import VerifyingKey


class SigningKey(Key):
    """A secret that seals records and verifies them.

    It is made on the first run and kept in a file that only its owner can read. Keep that file
    out of the storage folder, out of the repository, and in a backup of its own:

    ```python
    from pathlib import Path

    from safepoint import SigningKey

    key = SigningKey.from_file("keys/signing.key", create=True)
    print(key.algorithm, oct(Path("keys/signing.key").stat().st_mode & 0o777))
    #> hmac-sha256 0o600
    ```

    An HMAC-SHA256 key is fast, and whoever verifies with it can also sign. An Ed25519 key has a
    public half for readers who must not write:

    ```python
    from safepoint import SigningKey

    key = SigningKey.generate("ed25519")
    key.public.to_file("reader.key")
    ```

    The key's bytes are never shown: `repr` has the id alone, and a key is neither pickled nor
    copied.

    Args:
        secret: 32 random bytes: the HMAC key, or the seed of Ed25519.
        algorithm: what the key is for. It never signs or verifies by another one.

    Raises:
        KeyRefused: the secret is not 32 bytes, or there is no such algorithm.
    """

    __slots__ = ("_signer",)

    noun: ClassVar[str] = "A signing key"

    def __init__(self, secret: bytes, algorithm: Algorithm = HMAC) -> None:
        hidden = Hidden(secret)
        is_secret = isinstance(secret, bytes) and len(secret) == KEY_BYTES
        del secret  # a tool that reports the variables of a failed call must not find it
        if not is_secret:
            raise KeyRefused(
                f"A signing key is {KEY_BYTES} random bytes; this is something else.",
                "Make one with SigningKey.generate(), never from a password or a text.",
            )
        make = Ed25519Private if check_algorithm(algorithm) == ED25519 else HmacSha256
        self._signer: Final[Signer] = make(hidden)
        super().__init__(self._signer)

    @classmethod
    def generate(cls, algorithm: Algorithm = HMAC) -> SigningKey:
        """Return a new key from the operating system's random source.

        Raises:
            KeyRefused: there is no such algorithm.
        """
        return cls(secrets.token_bytes(KEY_BYTES), algorithm)

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = False,
        algorithm: Algorithm | None = None,
    ) -> SigningKey:
        """Read a key that `to_file` wrote.

        Args:
            path: the file.
            create: make the key, and the folder it is in, if the file is missing. A new key
                verifies nothing that an older one sealed, so a lost key still shows.
            algorithm: make it for this one (HMAC-SHA256 if you name none), and refuse a file that
                holds another.

        Raises:
            KeyRefused: the file is missing, malformed, not yours, readable by others, or holds
                a public key or one of another algorithm.
        """
        wanted = None if algorithm is None else check_algorithm(algorithm)
        if create:
            files.create(path, wanted or HMAC, Hidden(secrets.token_bytes(KEY_BYTES)))
        found = files.read(path, files.SECRET)
        if wanted not in (None, found.algorithm):
            raise KeyRefused(
                f"The key {shell(str(found.path))} is for {found.algorithm}, and {wanted} was"
                " asked for.",
                "Name another file, or no algorithm: a key keeps the one that it was made for.",
            )
        key = cls(found.content.reveal(), found.algorithm)
        key.path = found.path
        return key

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file with mode 0600. An existing file is never overwritten.

        Raises:
            KeyRefused: the file exists, cannot be written, or others could replace it there.
        """
        files.write(path, files.SECRET, self.algorithm, self._signer.secret())
        self.path = self.path or Path(path).absolute()

    @property
    def public(self) -> VerifyingKey:
        """The half that verifies and cannot sign, for readers who must not write.

        Raises:
            KeyRefused: this is an HMAC key, which has none.
        """
        if not isinstance(self._signer, Ed25519Private):
            raise KeyRefused(
                "An HMAC key has no public half: whoever can verify with it can also sign.",
                "Make a key for readers who must not write with SigningKey.generate('ed25519').",
            )
        return VerifyingKey(self._signer.public.raw)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`: 32 bytes of HMAC-SHA256, or 64 of Ed25519.

        Raises:
            ConfigurationError: the message is not `bytes`.
        """
        check_bytes("signs", message)
        return self._signer.sign(message)
