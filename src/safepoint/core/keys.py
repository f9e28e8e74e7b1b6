"""Keys, and the keyring that says which of them to trust.

Every key is an Ed25519 key in OpenSSH's format: what `ssh-keygen -t ed25519` makes. The key id in
a record is only a hint; the caller's keyring decides whether that key is trusted.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from safepoint.core import files
from safepoint.core.errors import SealBroken, Unsafe, quoted, shell

KEY_BYTES: Final = 32
# The points of small order, by their y: a file of zero bytes holds one. The last two of the seven
# are 0 and 1 again, not reduced.
_P: Final = 2**255 - 19
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER: Final = frozenset([0, 1, _P - 1, _ORDER_8, _P - _ORDER_8, _P, _P + 1])


class Redacted:
    """Shows only its type and cannot be pickled or copied."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __getstate__(self) -> NoReturn:
        raise Unsafe("A key is neither pickled nor copied.", "Pass the path of its file.")


class Hidden(Redacted):
    """A passphrase, or the text of a key file, that no error report shows."""

    __slots__ = ("_value",)

    def __init__(self, value: str | bytes) -> None:
        self._value = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value

    def reveal(self) -> bytes:
        """Return the bytes; text is encoded as UTF-8."""
        return self._value


# --- the file of a key

SHORTEST: Final = 12  # characters of a passphrase that is set here
ROUNDS: Final = 64  # of bcrypt, that it takes to try a passphrase
_MOST_ROUNDS: Final = 1024  # half a minute: who plants a file must not choose how long we work
_LONGEST: Final = 4096  # bytes
_BLOB: Final = b"\0\0\0\x0bssh-ed25519\0\0\0\x20"  # and the 32 bytes, wherever OpenSSH writes them
_PUBLIC: Final = re.compile(rb"ssh-ed25519 ([A-Za-z0-9+/]{68})(?: [^\r\n]*)?\n?")
_SECRET: Final = re.compile(
    rb"-----BEGIN OPENSSH PRIVATE KEY-----\n([A-Za-z0-9+/\n]+=*)\n"
    rb"-----END OPENSSH PRIVATE KEY-----\n?"
)
# What that holds: how the key is encrypted, with the salt and the rounds; that there is one key;
# its public half; and the rest, which is for the library to read.
_INSIDE: Final = re.compile(
    rb"openssh-key-v1\0"
    rb"(?:\0\0\0\x04none\0\0\0\x04none\0\0\0\0"
    rb"|\0\0\0\x0aaes256-ctr\0\0\0\x06bcrypt\0\0\0\x18\0\0\0\x10.{16}(?P<rounds>.{4}))"
    rb"\0\0\0\x01\0\0\0\x33" + _BLOB + rb"(?P<public>.{32}).*",
    re.DOTALL,
)

FilePath = str | os.PathLike[str]
FileKind = Literal["public key", "key without a passphrase", "key with a passphrase"]


class KeyFile(NamedTuple):
    """The contents of a key file that can be read without a passphrase.

    Attributes:
        kind: what it holds.
        public: its public key, only a hint until the secret half is unlocked.
        text: the whole file.
    """

    kind: FileKind
    public: VerifyingKey
    text: Hidden


def read_key_file(path: FilePath, wanted: FileKind | None = None) -> KeyFile:
    """Read a key file that nobody else can have changed.

    Args:
        path: the file.
        wanted: the kind of key that the file must hold; any kind if None.

    Raises:
        Unsafe: it is missing, malformed, of another kind or type, or others could have changed
            it.
    """
    shown = shell(os.fspath(path))
    try:
        with files.open_regular(path) as file:
            info, text = os.fstat(file.fileno()), Hidden(os.read(file.fileno(), _LONGEST))
        kind, public = _parse(f"The file {shown}", text, wanted)
        if info.st_uid not in (os.geteuid(), 0):
            raise Unsafe(
                f"The key {shown} belongs to another user, who can replace it.",
                f"Run: sudo chown {os.geteuid()} {shown}",
            )
        forbidden, right = (0o022, 644) if kind == "public key" else (0o077, 600)
        if (mode := info.st_mode & 0o777) & forbidden:
            raise Unsafe(
                f"The key {shown} can be reached by other users (mode {mode:04o}).",
                f"Run: chmod {right} {shown}, and replace the key if anyone may have used it.",
            )
        _check_folder(path)
        public.path = Path(os.path.realpath(Path(path).parent), Path(path).name)
    except (OSError, ValueError) as error:
        raise Unsafe(
            f"The key file {shown} cannot be opened ({getattr(error, 'strerror', 'not a path')}).",
            "Name a file, not a link, or restore its backup. safepoint new-key or init makes one.",
        ) from None
    return KeyFile(kind, public, text)


def parse_key(text: Hidden) -> tuple[FileKind, bytes] | None:
    """Return the kind of a key file and its public key, or None if the text is not a key file.

    It raises nothing, because a traceback would show the text. The cost of a passphrase is bounded
    here, before the library is called.
    """
    data = text.reveal()
    if line := _PUBLIC.fullmatch(data):
        blob = base64.b64decode(line[1])
        return ("public key", blob[len(_BLOB) :]) if blob.startswith(_BLOB) else None
    with suppress(ValueError):
        armor = _SECRET.fullmatch(data)
        inside = armor and _INSIDE.fullmatch(base64.b64decode(armor[1]))
        if inside and inside["rounds"] is None:
            return "key without a passphrase", inside["public"]
        if inside and int.from_bytes(inside["rounds"], "big") <= _MOST_ROUNDS:
            return "key with a passphrase", inside["public"]
    return None


def _parse(what: str, text: Hidden, wanted: FileKind | None) -> tuple[FileKind, VerifyingKey]:
    parsed = parse_key(text)
    if parsed is None:
        raise Unsafe(
            f"{what} is not one Ed25519 key in OpenSSH's format, whole and with nothing around it.",
            "Restore it, or make one: ssh-keygen -t ed25519. If it has another cipher or too many"
            f" rounds, rewrite it: ssh-keygen -p -Z aes256-ctr -a {ROUNDS} -f FILE",
        )
    if wanted not in (None, parsed[0]):
        raise Unsafe(
            f"{what} holds a {parsed[0]}, but a {wanted} is needed here.",
            "Name the right file, or change this one: ssh-keygen -p -f FILE",
        )
    return parsed[0], VerifyingKey(parsed[1])


def _write(path: FilePath, text: Hidden, mode: int, *, create: bool = False) -> None:
    """Write a new key file durably and never over an existing one.

    Args:
        path: the file.
        text: its contents.
        mode: the permissions of the file.
        create: also make its folder, and accept a file that is already at `path`. If several
            processes start at once, one makes the key and all of them read it.

    Raises:
        Unsafe: something is at `path`, the file cannot be written, or others could replace it.
    """
    try:
        folder = Path(path).absolute().parent
        if create and not os.path.lexists(folder):
            _check_folder(folder)
            files.make_folder(str(folder))
            files.sync(folder.parent)
        _check_folder(path)
        # As a view, which shows nothing in the report of an error.
        files.publish(os.fspath(path), memoryview(text.reveal()), mode)
    except (OSError, ValueError) as error:
        if create and isinstance(error, FileExistsError):
            return
        reason = getattr(error, "strerror", "not a path")
        raise Unsafe(
            f"The key file {shell(os.fspath(path))} cannot be made ({reason}).",
            "Name a new file, in a folder that you can write, on a disk with room and hard links.",
        ) from None


def _check_folder(path: FilePath) -> None:
    """Refuse a folder where others could replace the key."""
    folder = str(Path(path).absolute().parent)
    for refusal in files.replaceable_refusals(folder):
        raise Unsafe(f"The key in {shell(folder)} is not safe. {refusal.what}", refusal.do)


# --- keys


class Key(Redacted):
    """A `SigningKey` or a `VerifyingKey`: either can verify.

    Attributes:
        id: 16 hex digits derived from the public key. Both halves share it and compare equal.
        path: the absolute path of the file that it was read from or first written to, or None.
    """

    __slots__ = ("_public", "_verify", "id", "path")

    def __init__(self, public: bytes) -> None:
        y = int.from_bytes(public, "little") % 2**255  # without the sign of x
        if len(public) != KEY_BYTES or y in _SMALL_ORDER:
            raise Unsafe(
                f"A public key is {KEY_BYTES} bytes, but none under which anybody can sign.",
                "Take it from the signing key again: key.public.",
            )
        self._public: Final = public
        self._verify: Final = Ed25519PublicKey.from_public_bytes(public).verify
        # No record is signed under this label: what a seal covers goes on with another word.
        identity = hashlib.sha256(b"safepoint/1 key id ed25519\n" + public)
        self.id: Final = identity.hexdigest()[:16]
        self.path: Path | None = None

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Tell whether `signature` is this key's over `message`."""
        try:
            self._verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._public == other._public

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        # It has none if it was refused while it was made, and is in somebody's report.
        return f"{type(self).__name__}(id={getattr(self, 'id', None)!r})"


class VerifyingKey(Key):
    """The public half of a key. Its holder can verify records but not forge them.

    ```python
    from safepoint import Keyring, SigningKey, VerifyingKey

    writer = SigningKey.generate()
    writer.public.to_file("reader.pub")

    reader = VerifyingKey.from_file("reader.pub")
    print(reader.id == writer.id, reader.verify(b"text", writer.sign(b"text")))
    #> True True
    keys = Keyring(verify=[reader])  # opens what the writer sealed and can seal nothing
    ```

    It is not secret, but it decides what is genuine: get it from the writer over a channel that an
    attacker with write access to the storage cannot reach.

    Args:
        public: the 32 bytes of the public key.

    Raises:
        Unsafe: they are something else, or a key under which anybody can sign.
    """

    __slots__ = ()

    @staticmethod
    def from_text(text: str) -> VerifyingKey:
        """Return the key from one line of OpenSSH: `ssh-ed25519 AAAA… name`. The name is ignored.

        Raises:
            Unsafe: it is something else, or of another type.
        """
        hidden = Hidden(text)
        del text  # somebody may have passed the secret half
        return _parse("This text", hidden, "public key")[1]

    @staticmethod
    def from_file(path: FilePath) -> VerifyingKey:
        """Read a public key that `to_file` or `ssh-keygen` wrote.

        Everyone may read the file; only you and root may write it.

        Raises:
            Unsafe: the file is missing, malformed, not yours, writable by others, or holds
                a secret key.
        """
        return read_key_file(path, "public key").public

    @property
    def text(self) -> str:
        """The key as OpenSSH writes it, on one line, with its id as the name."""
        return f"ssh-ed25519 {base64.b64encode(_BLOB + self._public).decode()} {self.id}"

    def to_file(self, path: FilePath) -> None:
        """Write the key to a new file with mode 0644. An existing file is never overwritten.

        Raises:
            Unsafe: the file exists, cannot be written, or others could replace it there.
        """
        _write(path, Hidden(f"{self.text}\n".encode()), 0o644)


class SigningKey(Key):
    """The secret half of a key. It seals records and verifies them.

    It is created on the first run, in a file that only its owner can read. Keep that file out of
    the storage folder and the repository, and back it up separately:

    ```python
    from pathlib import Path

    from safepoint import SigningKey

    key = SigningKey.from_file("keys/signing.key", create=True)
    print(oct(Path("keys/signing.key").stat().st_mode & 0o777))
    #> 0o600
    key.public.to_file("reader.pub")  # for readers who must not write
    ```

    The file has the format of `ssh-keygen -t ed25519`, and each tool reads what the other wrote. A
    person's key can have a passphrase: `to_file(path, passphrase=...)`, or
    `ssh-keygen -t ed25519 -a 64 -f FILE`. A worker's key has none, because nobody is there to type
    it.

    The key's bytes are never shown: `repr` shows only the id, and a key cannot be pickled or
    copied. Sealing needs only its `id` and `sign(bytes)`.

    Args:
        secret: 32 random bytes, the seed of Ed25519.

    Raises:
        Unsafe: the secret is not 32 bytes.
    """

    __slots__ = ("_private",)

    def __init__(self, secret: bytes) -> None:
        is_secret = isinstance(secret, bytes) and len(secret) == KEY_BYTES
        hidden = Hidden(secret)
        del secret  # a tool that reports the variables of a failed call must not find it
        if not is_secret:
            raise Unsafe(
                f"A signing key is {KEY_BYTES} random bytes; this is something else.",
                "Make one with SigningKey.generate().",
            )
        self._private: Final = Ed25519PrivateKey.from_private_bytes(hidden.reveal())
        super().__init__(self._private.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> SigningKey:
        """Return a new key from the operating system's random source."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_file(
        cls, path: FilePath, *, create: bool = False, passphrase: str | Hidden | None = None
    ) -> SigningKey:
        """Read a key that `to_file` or `ssh-keygen -t ed25519` wrote.

        Args:
            path: the file.
            create: make the key and its folder if the file is missing. A new key does not verify
                what an older one sealed, so a lost key is noticed.
            passphrase: as OpenSSH takes it. A key without one is then refused.

        Raises:
            Unsafe: the file is missing, malformed, not yours, readable by others, or holds
                a public key or one of another type; or the passphrase is missing or wrong.
        """
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key as load

        phrase = Hidden(passphrase) if isinstance(passphrase, str) else passphrase
        del passphrase
        if create and not os.path.lexists(path):
            _write(path, cls.generate()._text(phrase), 0o600, create=True)  # noqa: SLF001
        needed: FileKind = "key without a passphrase" if phrase is None else "key with a passphrase"
        file = read_key_file(path, needed)
        with suppress(Exception):  # what the library says of a damaged file would show the text
            private: Any = load(file.text.reveal(), phrase.reveal() if phrase else None)
            key = cls(private.private_bytes_raw())
            if key == file.public:
                key.path = file.public.path
                return key
        raise Unsafe(
            f"The key {shell(os.fspath(path))} cannot be read: the passphrase is wrong, or the file"
            " was changed.",
            "Type it again, or restore the file from a backup.",
        )

    def to_file(self, path: FilePath, *, passphrase: str | Hidden | None = None) -> None:
        """Write the key to a new file with mode 0600. An existing file is never overwritten.

        Args:
            path: the file.
            passphrase: encrypts the file; 12 characters or more. Anyone who copies the file has to
                guess it, at half a second per guess. Use it for the keys of people.

        Raises:
            Unsafe: the file exists, cannot be written, or others could replace it there; or
                the passphrase is short.
        """
        phrase = Hidden(passphrase) if isinstance(passphrase, str) else passphrase
        del passphrase
        _write(path, self._text(phrase), 0o600)
        self.path = self.path or Path(path).absolute()

    def _text(self, passphrase: Hidden | None) -> Hidden:
        """Return the text of the key file, encrypted if there is a passphrase."""
        from cryptography.hazmat.primitives import serialization as form

        openssh = form.PrivateFormat.OpenSSH
        locked: form.KeySerializationEncryption = form.NoEncryption()
        if passphrase is not None:
            if len(passphrase.reveal().decode(errors="replace")) < SHORTEST:
                raise Unsafe(
                    f"The passphrase has fewer than {SHORTEST} characters, and could be guessed.",
                    "Take four words or more that you picked at random.",
                )
            locked = openssh.encryption_builder().kdf_rounds(ROUNDS).build(passphrase.reveal())
        return Hidden(self._private.private_bytes(form.Encoding.PEM, openssh, locked))

    @property
    def public(self) -> VerifyingKey:
        """The half that verifies but cannot sign, for readers that must not write."""
        return VerifyingKey(self._public)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`, 64 bytes."""
        return self._private.sign(message)


class Keyring:
    """The trusted keys: one that signs, and older ones that still verify.

    ```python
    from safepoint import Keyring, SigningKey

    old, new = SigningKey.generate(), SigningKey.generate()
    keys = Keyring(new, verify=[old])  # seals with `new`, still opens what `old` sealed
    ```

    A ring never changes. To rotate, make the next one from it: `Keyring(newer, verify=keys)`. A
    stolen key is left off: nothing that it sealed counts any more. Keep what it sealed before the
    theft with `Ledger.copy_to(..., up_to=before)`.

    Args:
        signing: the key that seals. Omit it for a reader that must not write.
        verify: more keys whose records are accepted, oldest first, or another ring.
    """

    __slots__ = ("_keys", "_signing")

    def __init__(
        self,
        signing: SigningKey | None = None,
        *,
        verify: Key | Iterable[Key] = (),
    ) -> None:
        older = [verify] if isinstance(verify, Key) else verify
        self._signing: Final = signing
        self._keys: Final[dict[str, Key]] = {key.id: key for key in older if key != signing}
        if signing is not None:
            self._keys[signing.id] = signing  # the last, and the half that signs

    @property
    def signing(self) -> SigningKey:
        """The key that seals.

        Raises:
            Unsafe: this ring only verifies.
        """
        if self._signing is None:
            raise Unsafe(
                "This keyring only verifies: no key on it signs.",
                "Save where the signing key is: Keyring(key), or first of key = [...] in settings.",
            )
        return self._signing

    def find(self, key_id: str) -> Key:
        """Return the key with that id.

        Raises:
            SealBroken: no key of this ring has that id.
        """
        if key_id not in self._keys:
            raise SealBroken(
                f"It names key {quoted(key_id)}, which is not on this keyring.",
                "If it is yours and was never stolen, add it: Keyring(..., verify=[key]),"
                " or key = [...] in the settings. If not, treat the record as forged.",
            )
        return self._keys[key_id]

    def __iter__(self) -> Iterator[Key]:
        """Yield every key, oldest first and the signing key last."""
        return iter(self._keys.values())

    def __repr__(self) -> str:
        return f"Keyring(signing={self._signing}, keys={list(self._keys)})"
