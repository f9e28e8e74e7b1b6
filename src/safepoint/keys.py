"""Keys, and the keyring that says which of them to trust.

The algorithm is a property of the key, never of a record. A record names a key only as a hint;
whether that key counts is decided by the caller's keyring.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

from safepoint.errors import KeyRefused, UnknownKey, quoted, shell
from safepoint.location import absolute, replaceable_refusals

_FILE_MAGIC: Final = "safepoint-key/1"
_ALGORITHM: Final = "hmac-sha256"
_KEY_BYTES: Final = 32


class SigningKey:
    """A secret that seals records and verifies them (HMAC-SHA256, 256 bits).

    It is made on the first run and kept in a file that only its owner can read. Keep that file
    out of the storage folder, out of the repository, and in a backup of its own:

    ```python
    from pathlib import Path

    from safepoint import SigningKey

    key = SigningKey.from_file("keys/signing.key", create=True)
    print(oct(Path("keys/signing.key").stat().st_mode & 0o777))
    #> 0o600
    ```

    The key's bytes are never shown: `repr` has the id alone, and a key refuses to be pickled.
    """

    __slots__ = ("_secret", "id")

    algorithm: Final = _ALGORITHM

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes) or len(secret) != _KEY_BYTES:
            raise KeyRefused(
                f"A signing key is {_KEY_BYTES} random bytes; this is something else.",
                "Make one with SigningKey.generate(), never from a password or a text.",
            )
        self._secret = secret
        self.id: Final = self._mac(b"safepoint/1 key id")[:8].hex()

    @classmethod
    def generate(cls) -> SigningKey:
        """Return a new key from the operating system's random source."""
        return cls(secrets.token_bytes(_KEY_BYTES))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, create: bool = False) -> SigningKey:
        """Read a key that `to_file` wrote.

        Args:
            path: the file.
            create: make the key, and the folder it is in, if the file is missing. A new key
                verifies nothing that an older one sealed, so a lost key still shows.

        Raises:
            KeyRefused: the file is missing, malformed, not yours, or readable by others.
        """
        shown = shell(_text(path))
        if create and not os.path.lexists(path):
            _make_folder(path)
            cls.generate().to_file(path)
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a path"
            raise KeyRefused(
                f"The key file {shell(os.fspath(path))} cannot be opened ({reason}).",
                "Check the path, or make a key with SigningKey.generate().to_file(path).",
            ) from None
        try:
            _check_file(os.fstat(descriptor), shown)
            _check_folder(path)
            text = os.read(descriptor, 1024)
        except OSError as error:
            raise KeyRefused(
                f"The key file {shown} cannot be read ({error.strerror}).", "Name a key file."
            ) from None
        finally:
            os.close(descriptor)
        return cls(_parse_key(text, shown))

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file with mode 0600. An existing file is never overwritten.

        Raises:
            KeyRefused: the file exists or cannot be written.
        """
        _text(path)
        encoded = base64.b64encode(self._secret).decode()
        text = f"{_FILE_MAGIC} {_ALGORITHM} {encoded}\n".encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o600)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a path"
            raise KeyRefused(
                f"The key file {shell(os.fspath(path))} cannot be made ({reason}).",
                "If there is a key, load it with SigningKey.from_file: a new one cannot verify what"
                " the old one sealed.",
            ) from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o600)
                file.write(text)
                file.flush()
                os.fsync(descriptor)
        except OSError as error:
            Path(path).unlink(missing_ok=True)
            raise KeyRefused(
                f"The key file {shell(os.fspath(path))} cannot be written ({error.strerror}).",
                "Nothing was kept. Make room or choose another folder, and try again.",
            ) from None

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`."""
        return self._mac(message)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Tell, in constant time, whether `signature` is this key's over `message`."""
        return hmac.compare_digest(self._mac(message), signature)

    def _mac(self, message: bytes) -> bytes:
        return hmac.digest(self._secret, message, hashlib.sha256)

    def __repr__(self) -> str:
        return f"SigningKey(id={self.id!r})"

    def __reduce__(self) -> NoReturn:
        raise KeyRefused("A signing key is not pickled.", "Pass the key file's path instead.")


class Keyring:
    """The keys to trust: one that signs, and older ones that still verify.

    ```python
    from safepoint import Keyring, SigningKey

    old, new = SigningKey.generate(), SigningKey.generate()
    keys = Keyring(new, verify=[old])  # seals with `new`, still opens what `old` sealed
    ```
    """

    __slots__ = ("_keys", "signing")

    def __init__(
        self, signing: SigningKey, *, verify: SigningKey | Iterable[SigningKey] = ()
    ) -> None:
        older: list[SigningKey] = [verify] if isinstance(verify, SigningKey) else list(verify)
        keys = [*older, signing]
        for key in keys:
            if not isinstance(key, SigningKey):
                raise KeyRefused(
                    f"A keyring holds signing keys, not {type(key).__name__}.",
                    "Load one with SigningKey.from_file(path).",
                )
        self.signing: Final = signing
        self._keys: Final = {key.id: key for key in keys}

    def find(self, key_id: str) -> SigningKey:
        """Return the trusted key of that id.

        Raises:
            UnknownKey: no key of this ring has that id.
        """
        key = self._keys.get(key_id)
        if key is None:
            raise UnknownKey(
                f"It names key {quoted(key_id)}, which is not on this keyring.",
                "If that key is one of yours, add it with Keyring(..., verify=[key]); "
                "if not, treat the record as forged.",
            )
        return key

    def __repr__(self) -> str:
        return f"Keyring(signing={self.signing.id!r}, trusted={list(self._keys)!r})"


def _text(path: object) -> str:
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise KeyRefused(
            f"A key file was asked for at {type(path).__name__}, which is not a path.",
            "Give a str or a pathlib.Path.",
        )
    return text


def _check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a folder in which others could put another key in place of this one."""
    folder = absolute(Path(path).absolute().parent)
    for refusal in replaceable_refusals(folder):
        raise KeyRefused(f"The key in {shell(folder)} is not safe. {refusal.what}", refusal.do)


def _make_folder(path: str | os.PathLike[str]) -> None:
    folder = Path(path).parent
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise KeyRefused(
            f"The folder {shell(str(folder))} for the key cannot be made ({error.strerror}).",
            f"Run: mkdir -p -m 700 {shell(str(folder))}",
        ) from None


def _check_file(status: os.stat_result, shown: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyRefused(f"The key {shown} is not a regular file.", "Name a key file.")
    if status.st_nlink != 1:
        raise KeyRefused(
            f"The key {shown} has a second name (hard link).",
            "Make a new key: whoever holds the other name may know this one.",
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise KeyRefused(
            f"The key {shown} belongs to another user, who can replace it.",
            f"Run: sudo chown {os.geteuid()} {shown}",
        )
    if status.st_mode & 0o077:
        raise KeyRefused(
            f"The key {shown} can be reached by other users (mode {status.st_mode & 0o777:04o}).",
            f"Run: chmod 600 {shown}, and replace the key if anyone may have read it.",
        )


def _parse_key(text: bytes, shown: str) -> bytes:
    parts = text.split(b" ")
    if len(parts) == 3 and parts[0] == _FILE_MAGIC.encode() and parts[1] == _ALGORITHM.encode():
        try:
            secret = base64.b64decode(parts[2].strip(), validate=True)
        except binascii.Error:
            secret = b""
        if len(secret) == _KEY_BYTES:
            return secret
    raise KeyRefused(
        f"The file {shown} does not hold a key that this release reads.",
        "Make one with SigningKey.generate().to_file(path), or restore the file from a backup.",
    )
