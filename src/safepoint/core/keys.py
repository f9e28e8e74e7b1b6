"""Keys, and the keyring that says which of them to trust.

Every key is an Ed25519 key in OpenSSH's format: what `ssh-keygen -t ed25519` makes. A record names
a key only as a hint; whether that key counts is decided by the caller's keyring.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, NoReturn, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from safepoint.core import files
from safepoint.core.errors import (
    AnchorUnavailable,
    CheckpointError,
    InvalidId,
    KeyRefused,
    StorageError,
    UnknownKey,
    quoted,
    shell,
)
from safepoint.core.names import Head, Heads

KEY_BYTES: Final = 32
# The points of small order, by their y: a file of zero bytes holds one. The last two of the seven
# are 0 and 1 again, not reduced.
_P: Final = 2**255 - 19
_WITHOUT_SIGN: Final = 2**255 - 1
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER: Final = frozenset([0, 1, _P - 1, _ORDER_8, _P - _ORDER_8, _P, _P + 1])


class Redacted:
    """Shows its type alone, and is neither pickled nor copied."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> NoReturn:
        raise KeyRefused(
            "A key is neither pickled nor copied.", "Pass the key file's path instead."
        )

    def __getstate__(self) -> NoReturn:
        self.__reduce__()


class Hidden(Redacted):
    """Bytes that no report of an error shows: a passphrase, or the text of a key file."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """Return the bytes."""
        return self._value


# --- the file of a key

SHORTEST: Final = 12
"""A passphrase that is set here has as many characters, or more."""
ROUNDS: Final = 64
"""How many rounds of bcrypt it takes to try a passphrase."""
_MOST_ROUNDS: Final = 1024  # half a minute: who plants a file must not choose how long we work
_LONGEST: Final = 4096
_TEMP: Final = ".safepoint-key"
"""The name of a key on its way in. What a crash left under it, the next writer removes."""
_TYPE: Final = b"ssh-ed25519"
_BLOB: Final = b"\0\0\0\x0bssh-ed25519\0\0\0 "  # and the 32 bytes, wherever OpenSSH writes them
_MAGIC: Final = b"openssh-key-v1\0"
_PUBLIC: Final = re.compile(rb"([a-z0-9@.-]+) ([A-Za-z0-9+/]+=*)(?: [^\r\n]*)?\n?")
_SECRET: Final = re.compile(
    rb"-----BEGIN OPENSSH PRIVATE KEY-----\n([A-Za-z0-9+/\n]+=*)\n"
    rb"-----END OPENSSH PRIVATE KEY-----\n?"
)

Kind = Literal["public", "secret", "passphrase"]
"""What a key file holds: the public half, the secret one, or that one under a passphrase."""


class KeyFile(NamedTuple):
    """What a key file says without a passphrase.

    Attributes:
        kind: what it holds.
        public: the 32 bytes of its public key, a hint until the secret half is unlocked.
        text: all of it.
        path: where it is, absolute and without a link.
    """

    kind: Kind
    public: bytes
    text: Hidden
    path: Path


def read_key_file(path: str | os.PathLike[str], *wanted: Kind) -> KeyFile:
    """Read a key file that nobody else can have changed.

    Args:
        path: the file.
        wanted: what it may hold; anything, if you name nothing.

    Raises:
        KeyRefused: it is missing, malformed, of another kind or type, or others could have changed
            it.
    """
    shown = shell(os.fspath(path))
    try:
        opened = files.opened(os.fspath(path), files.READ)
        with opened as fd:
            if not stat.S_ISREG(opened.info.st_mode):
                raise KeyRefused(f"The key {shown} is not a regular file.", "Name a key file.")
            text = Hidden(os.read(fd, _LONGEST + 1))
            parsed = parse_key(f"The file {shown}", text)
            if isinstance(parsed, KeyRefused):
                raise parsed  # whatever its mode: it is no key of ours
            kind, public = parsed
            if wanted and kind not in wanted:
                raise _other_kind(f"The file {shown}", kind, wanted[0])
            _check_file(opened.info, shown, kind)
            _check_folder(path)
            temp = Path(path).parent / _TEMP
            for _ in files.hard_link_refusals(shown, lambda: os.fstat(fd), temp.lstat):
                raise KeyRefused(
                    f"The key {shown} has a second name (hard link).",
                    "Make a new key: whoever holds the other name may know or change this one.",
                )
    except (OSError, ValueError) as error:
        raise KeyRefused(
            f"The key file {shown} cannot be opened ({_reason(error)}).",
            "Check the path, or make one with safepoint keys new or ssh-keygen -t ed25519.",
        ) from None
    found = Path(os.path.realpath(Path(path).parent), Path(path).name)
    return KeyFile(kind, public, text, found)


def parse_key(what: str, text: Hidden) -> tuple[Kind, bytes] | KeyRefused:
    """Return what a key file holds and the public key; or the refusal, since to raise shows it.

    What costs time is bounded here, before the library is asked.
    """
    data, kind, blob, cipher, rounds = text.reveal(), "public", b"", b"none", 0
    if line := _PUBLIC.fullmatch(data):
        blob = _decoded(line[2])
        blob = blob if _string(blob)[0] == line[1] else b""
    elif armor := _SECRET.fullmatch(data):
        inner = _decoded(armor[1].replace(b"\n", b""))
        cipher, rest = _string(inner.removeprefix(_MAGIC))
        _, rest = _string(rest)
        options, rest = _string(rest)
        is_one = inner.startswith(_MAGIC) and int.from_bytes(rest[:4], "big") == 1
        blob = _string(rest[4:])[0] if is_one else b""
        kind = "secret" if cipher == b"none" else "passphrase"
        rounds = int.from_bytes(_string(options)[1], "big")
    if cipher not in (b"none", b"aes256-ctr") or rounds > _MOST_ROUNDS:
        return KeyRefused(
            f"{what} holds a key that is not encrypted with aes256-ctr and at most"
            f" {_MOST_ROUNDS:,} rounds of bcrypt.",
            f"If it is yours, write it anew: ssh-keygen -p -Z aes256-ctr -a {ROUNDS} -f FILE",
        )
    found = _string(blob)[0]
    if len(blob) == len(_BLOB) + KEY_BYTES and blob.startswith(_BLOB) and len(data) <= _LONGEST:
        return cast("Kind", kind), blob[len(_BLOB) :]
    if found and found != _TYPE:
        return KeyRefused(
            f"{what} holds a key of the type {quoted(found.decode('latin-1'))}, and Ed25519 keys"
            " alone are taken.",
            "Make one: ssh-keygen -t ed25519, or safepoint keys new FILE",
        )
    return KeyRefused(
        f"{what} is not one key in OpenSSH's format, whole and with nothing around it"
        + ("." if b"\r" not in data else ": its lines end as on Windows."),
        "Restore it from a backup, or name another file: a new key would verify nothing that the"
        " old one sealed.",
    )


def _decoded(text: bytes) -> bytes:
    with suppress(ValueError):
        return binascii.a2b_base64(text, strict_mode=True)
    return b""


def _string(data: bytes) -> tuple[bytes, bytes]:
    """Return the first string of SSH's encoding, and what is behind it; both short if it is."""
    end = 4 + int.from_bytes(data[:4], "big")
    return data[4:end], data[end:]


_HOLDS: Final[dict[Kind, tuple[str, str]]] = {
    "public": ("a public key", "Name the file of key.public.to_file(path)."),
    "secret": ("a key without a passphrase", "Write from_file(path, passphrase=...) for a person."),
    "passphrase": ("a key with a passphrase", f"Give it one: ssh-keygen -p -a {ROUNDS} -f FILE"),
}


def _other_kind(what: str, kind: Kind, wanted: Kind) -> KeyRefused:
    (holds, _), (needed, do) = _HOLDS[kind], _HOLDS[wanted]
    if kind == "public":
        needed, do = "a secret key", "Name the file of the key that signs."
    return KeyRefused(f"{what} holds {holds}, and {needed} is needed here.", do)


def _write(path: str | os.PathLike[str], text: Hidden, mode: int, *, create: bool = False) -> None:
    """Write a new key file, durably. What is at `path` already stays.

    Args:
        path: the file.
        text: all that it holds.
        mode: who may read it.
        create: make its folder too, and be content with what is at `path`. Of several processes
            that start at once, one makes the key and all of them read it.

    Raises:
        KeyRefused: something is at `path`, the file cannot be written, or others could replace it.
    """
    shown, folder = shell(os.fspath(path)), str(Path(path).parent)
    problem: OSError | ValueError | StorageError
    try:
        if create:
            files.make_folder(folder)
        _check_folder(path)
        with files.opened(folder, files.FOLDER) as fd, files.locked(fd, folder):
            files.put(os.fspath(path), fd, text.reveal(), mode=mode, temp=_TEMP)
    except (OSError, ValueError, StorageError) as error:
        # Raised below, where nothing leads to the bytes that were on their way.
        problem = error.with_traceback(None)
    else:
        return
    if isinstance(problem, StorageError):
        raise KeyRefused(problem.what, problem.do)
    do = "Name a file in a folder that you can write, with room, on a file system with hard links."
    if isinstance(problem, FileExistsError):
        if create:
            return
        do = "If it holds a key, load it, or give the new one another file: readers need both."
    raise KeyRefused(f"The key file {shown} cannot be made ({_reason(problem)}).", do)


def _reason(error: OSError | ValueError) -> str | None:
    return error.strerror if isinstance(error, OSError) else "not a path"


def _check_file(info: os.stat_result, shown: str, kind: Kind) -> None:
    if info.st_uid not in (os.geteuid(), 0):
        raise KeyRefused(
            f"The key {shown} belongs to another user, who can replace it.",
            f"Run: sudo chown {os.geteuid()} {shown}",
        )
    forbidden, mode, done = (0o022, 644, "changed") if kind == "public" else (0o077, 600, "reached")
    if info.st_mode & forbidden:
        raise KeyRefused(
            f"The key {shown} can be {done} by other users (mode {info.st_mode & 0o777:04o}).",
            f"Run: chmod {mode} {shown}, and replace the key if anyone may have read or changed"
            " it.",
        )


def _check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a folder in which others could put another key in place of this one."""
    folder = Path(path).absolute().parent
    shown = shell(str(folder))
    if folder.is_symlink():
        raise KeyRefused(
            f"The key in {shown} is not safe. {shown} is a symbolic link.",
            f"Name the folder that it leads to: readlink -f {shown}",
        )
    for refusal in files.replaceable_refusals(str(folder)):
        raise KeyRefused(f"The key in {shown} is not safe. {refusal.what}", refusal.do)


def _hidden(passphrase: str | Hidden | None) -> Hidden | None:
    """Hide it. This raises nothing, since whoever reports that would see it."""
    if isinstance(passphrase, str):
        return Hidden(passphrase.encode("utf-8", "surrogatepass"))
    return passphrase


def _spelled(private: Ed25519PrivateKey, passphrase: Hidden | None) -> Hidden:
    """Return the text of a key file, under a passphrase if there is one."""
    from cryptography.hazmat.primitives import serialization as form

    openssh = form.PrivateFormat.OpenSSH
    locked: form.KeySerializationEncryption = form.NoEncryption()
    if passphrase is not None:
        locked = openssh.encryption_builder().kdf_rounds(ROUNDS).build(passphrase.reveal())
    return Hidden(private.private_bytes(form.Encoding.PEM, openssh, locked))


def _unlocked(file: KeyFile, passphrase: Hidden | None) -> Ed25519PrivateKey | None:
    """Return the key; or None, since to raise it here would show the text and the passphrase."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        phrase = Hidden(b"") if passphrase is None else passphrase
        key = load_ssh_private_key(file.text.reveal(), phrase.reveal() or None)
    except Exception:  # noqa: BLE001  whatever the library says of a damaged file
        return None
    if not isinstance(key, Ed25519PrivateKey):
        return None
    return key if key.public_key().public_bytes_raw() == file.public else None


# --- keys


class Key(Redacted):
    """A `SigningKey` or a `VerifyingKey`: either can verify.

    Attributes:
        id: 16 hex digits, made from the public key. Both halves have the same, and are equal.
        path: the file that it was read from or first written to, absolute, or None.
    """

    __slots__ = ("_public", "_verify", "id", "path")

    def __init__(self, public: bytes) -> None:
        if int.from_bytes(public, "little") & _WITHOUT_SIGN in _SMALL_ORDER:
            raise KeyRefused(
                "Under this public key anybody can sign.",
                "It was damaged or planted. Take it from the signing key again: key.public.",
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
        if not hasattr(self, "id"):  # refused while it was made, and now in somebody's report
            return super().__repr__()
        return f"{type(self).__name__}(id={self.id!r})"


class VerifyingKey(Key):
    """The public half of a key. Who holds it can read and verify, and cannot forge.

    ```python
    from safepoint import Keyring, SigningKey, VerifyingKey

    writer = SigningKey.generate()
    writer.public.to_file("reader.pub")

    reader = VerifyingKey.from_file("reader.pub")
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

    __slots__ = ()

    def __init__(self, public: bytes) -> None:
        if not isinstance(public, bytes) or len(public) != KEY_BYTES:
            raise KeyRefused(
                f"A public key is {KEY_BYTES} bytes; this is something else.",
                "Take it from a signing key: SigningKey.from_file(path).public.",
            )
        super().__init__(public)

    @classmethod
    def from_text(cls, text: str) -> VerifyingKey:
        """Return the key of one line of OpenSSH: `ssh-ed25519 AAAA… name`. The name says nothing.

        Raises:
            KeyRefused: it is something else, or of another type.
        """
        parsed = parse_key("This text", Hidden(text.encode("utf-8", "surrogatepass")))
        if isinstance(parsed, KeyRefused):
            raise parsed
        if parsed[0] != "public":
            raise _other_kind("This text", parsed[0], "public")
        return cls(parsed[1])

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> VerifyingKey:
        """Read a public key that `to_file` or `ssh-keygen` wrote.

        Everybody may read the file; only you and root may write it.

        Raises:
            KeyRefused: the file is missing, malformed, not yours, writable by others, or holds
                a secret key.
        """
        file = read_key_file(path, "public")
        key = cls(file.public)
        key.path = file.path
        return key

    @property
    def text(self) -> str:
        """The key as OpenSSH writes it, on one line, with its id as the name."""
        blob = base64.b64encode(_BLOB + self._public).decode()
        return f"{_TYPE.decode()} {blob} {self.id}"

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file with mode 0644. An existing file is never overwritten.

        Raises:
            KeyRefused: the file exists, cannot be written, or others could replace it there.
        """
        _write(path, Hidden(f"{self.text}\n".encode()), 0o644)


class SigningKey(Key):
    """The secret half of a key, which seals records, and verifies them.

    It is made on the first run and kept in a file that only its owner can read. Keep that file
    out of the storage folder, out of the repository, and in a backup of its own:

    ```python
    from pathlib import Path

    from safepoint import SigningKey

    key = SigningKey.from_file("keys/signing.key", create=True)
    print(oct(Path("keys/signing.key").stat().st_mode & 0o777))
    #> 0o600
    key.public.to_file("reader.pub")  # for readers who must not write
    ```

    The file is what `ssh-keygen -t ed25519` makes, and either reads what the other wrote. The key
    of a person can have a passphrase: `to_file(path, passphrase=...)`, or
    `safepoint keys new FILE --passphrase`. A worker's has none, since nobody is there to type it.

    The key's bytes are never shown: `repr` has the id alone, and a key is neither pickled nor
    copied. Whoever seals needs `id` and `sign(bytes)` of it, and nothing else.

    Args:
        secret: 32 random bytes, the seed of Ed25519.

    Raises:
        KeyRefused: the secret is not 32 bytes.
    """

    __slots__ = ("_private", "_sign")

    def __init__(self, secret: bytes) -> None:
        hidden = Hidden(secret)
        is_secret = isinstance(secret, bytes) and len(secret) == KEY_BYTES
        del secret  # a tool that reports the variables of a failed call must not find it
        if not is_secret:
            raise KeyRefused(
                f"A signing key is {KEY_BYTES} random bytes; this is something else.",
                "Make one with SigningKey.generate(), never from a password or a text.",
            )
        self._private: Final = Ed25519PrivateKey.from_private_bytes(hidden.reveal())
        self._sign: Final = self._private.sign
        super().__init__(self._private.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> SigningKey:
        """Return a new key from the operating system's random source."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = False,
        passphrase: str | Hidden | None = None,
    ) -> SigningKey:
        """Read a key that `to_file` or `ssh-keygen -t ed25519` wrote.

        Args:
            path: the file.
            create: make the key, and the folder it is in, if the file is missing. A new key
                verifies nothing that an older one sealed, so a lost key still shows.
            passphrase: that of the key, as OpenSSH takes it. A key that has none is refused then.

        Raises:
            KeyRefused: the file is missing, malformed, not yours, readable by others, or holds
                a public key or one of another type; or the passphrase is missing or wrong.
        """
        phrase = _hidden(passphrase)
        del passphrase
        shown = shell(os.fspath(path))
        # A file on its way in is left by a crash alone, and goes with the next write.
        names = Path(path), Path(path).parent / _TEMP
        if create and [os.path.lexists(name) for name in names] != [True, False]:
            cls.generate()._put(path, phrase, create=True)  # noqa: SLF001
        file = read_key_file(path, "secret" if phrase is None else "passphrase")
        private = _unlocked(file, phrase)
        if private is None:
            raise KeyRefused(
                f"The key {shown} cannot be read: "
                + (
                    "the file is damaged."
                    if phrase is None
                    else "the passphrase is wrong, or the file was changed."
                ),
                "Type it again, or restore the file from a backup.",
            )
        key = cls(private.private_bytes_raw())
        key.path = file.path
        return key

    def to_file(
        self, path: str | os.PathLike[str], *, passphrase: str | Hidden | None = None
    ) -> None:
        """Write the key to a new file with mode 0600. An existing file is never overwritten.

        Args:
            path: the file.
            passphrase: encrypt the file under it, 12 characters or more: whoever copies the file
                has to guess it, at half a second a guess. For the keys of people.

        Raises:
            KeyRefused: the file exists, cannot be written, or others could replace it there; or
                the passphrase is short.
        """
        phrase = _hidden(passphrase)
        del passphrase
        self._put(path, phrase)
        self.path = self.path or Path(path).absolute()

    def _put(
        self, path: str | os.PathLike[str], phrase: Hidden | None, *, create: bool = False
    ) -> None:
        if phrase is not None and len(phrase.reveal().decode(errors="replace")) < SHORTEST:
            raise KeyRefused(
                f"The passphrase has fewer than {SHORTEST} characters: whoever copies the file"
                " could guess it.",
                "Nothing was written. Take four words or more that you picked at random.",
            )
        _write(path, _spelled(self._private, phrase), 0o600, create=create)

    @property
    def public(self) -> VerifyingKey:
        """The half that verifies and cannot sign, for readers who must not write."""
        return VerifyingKey(self._public)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`, 64 bytes."""
        return self._sign(message)


class RevokedKey(Key):
    """A revoked key as its ring shows it: to look at, and not to trust on another ring."""

    __slots__ = ()

    def __init__(self, key: Key) -> None:
        super().__init__(key._public)  # noqa: SLF001  the same key
        self.path = key.path


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Revoked:
    """A key that somebody else may hold by now. What it sealed counts up to a point alone.

    A thief can sign anything, with any date. So the point is not a time: it is where each thread
    stood, as an anchor saw it before the theft. What is below the point is vouched for by the
    ledger's own anchor; where that knows less of a thread than the point does, keep what you trust
    with `Ledger.copy_to(..., up_to=before)`, which follows every link from the point.

    ```python
    from safepoint import Keyring, SigningKey
    from safepoint.core.keys import Revoked

    stolen, new = SigningKey.generate(), SigningKey.generate()
    keys = Keyring(new, revoked=Revoked(stolen, until=None))  # nothing that it sealed counts
    print(keys.revoked(stolen.id) is not None, keys.revoked(new.id))
    #> True None
    ```

    Attributes:
        key: the key.
        until: where each thread stood: a copy of the anchor from before the theft, such as
            `SQLiteAnchor("before/heads.db", read_only=True)`, that nobody moves any more. Never the
            anchor that a ledger still moves: the point would move with it, over whatever the thief
            sealed.
            None if nothing that the key sealed counts.

    """

    key: Key
    until: Heads | None

    def head(self, store: str, thread: str, tenant: str = "") -> Head | None:
        """Return the last checkpoint of the thread up to which the key counts, or None.

        Raises:
            AnchorUnavailable: `until` failed.
            CheckpointError: whatever error of this package `until` raised.
        """
        if self.until is None:
            return None
        try:
            until: Any = self.until
            head = (until.tenant(tenant) if tenant else until).read(store, thread)
            # One that was unpickled, or copied by hand, was never looked at.
            return None if head is None else Head(head.sequence, head.digest)
        except Exception as error:
            if isinstance(error, CheckpointError) and not isinstance(error, InvalidId):
                raise
            raise AnchorUnavailable(
                f"How far revoked key {self.key.id} counts cannot be read: {type(error).__name__}.",
                "Nothing is loaded without it. See the error that it came from, and let `until`"
                " return a safepoint.core.names.Head or None.",
            ) from error

    def __repr__(self) -> str:
        until = None if self.until is None else type(self.until).__name__
        return f"Revoked({self.key.id!r}, until={until})"


class Keyring:
    """The keys to trust: one that signs, older ones that still verify, and revoked ones.

    ```python
    from safepoint import Keyring, SigningKey

    old, new = SigningKey.generate(), SigningKey.generate()
    keys = Keyring(new, verify=[old])  # seals with `new`, still opens what `old` sealed
    ```

    A ring never changes. To rotate, make the next one from it:

    ```python
    from safepoint import Keyring, SigningKey

    keys = Keyring(SigningKey.generate())
    keys = keys.rotated(SigningKey.generate())
    print(len(list(keys)))
    #> 2
    ```

    Args:
        signing: the key that seals. Leave it out for a reader that must not write.
        verify: keys whose records are opened too, oldest first.
        revoked: keys whose records are opened up to a point alone. One that is also in `verify`
            is revoked.

    Raises:
        KeyRefused: there is no key at all, the signing key is revoked, a key is revoked twice, a
            key of `verify` was taken off a ring on which it is revoked, or two keys have one id.
    """

    __slots__ = ("_keys", "_revoked", "_signing")

    def __init__(
        self,
        signing: SigningKey | None = None,
        *,
        verify: Key | Iterable[Key] = (),
        revoked: Revoked | Iterable[Revoked] = (),
    ) -> None:
        older = [verify] if isinstance(verify, Key) else list(verify)
        gone = [revoked] if isinstance(revoked, Revoked) else list(revoked)
        self._signing: Final = signing
        self._revoked: Final[dict[str, Revoked]] = {}
        self._keys: Final[dict[str, Key]] = {}
        for entry in gone:
            if self._revoked.setdefault(entry.key.id, entry) is not entry:
                raise KeyRefused(
                    f"Key {entry.key.id} is revoked twice, so how far it counts is not clear.",
                    "Keep the entry that lets less count.",
                )
        listed = {key.id for key in older}
        first = [entry.key for entry in gone if entry.key.id not in listed]
        last = [] if signing is None else [signing]
        for key in [*first, *older, *last, *(entry.key for entry in gone)]:
            # Taken off another ring as it is, it would count again.
            if isinstance(key, RevokedKey) and key.id not in self._revoked:
                raise KeyRefused(
                    f"Key {key.id} is revoked on the keyring that it was taken from.",
                    "Keep that with keyring.rotated(key), or revoke it here too:"
                    " revoked=[old_keyring.revoked(key.id)].",
                )
            if self._keys.setdefault(key.id, key) != key:
                raise KeyRefused(
                    f"Two different keys have the id {key.id}.",
                    "Replace one of them with a new key.",
                )
        for key in last:
            if key.id in self._revoked:
                raise KeyRefused(
                    f"Key {key.id} is revoked, so it cannot sign.",
                    "Sign with a new one first: keyring.rotated(SigningKey.generate()).",
                )
            del self._keys[key.id]  # to stand last, and as the half that signs
            self._keys[key.id] = key
        if not self._keys:
            raise KeyRefused(
                "A keyring without a key trusts nothing.",
                "Write Keyring(SigningKey.from_file(path, create=True)).",
            )

    @property
    def signing(self) -> SigningKey:
        """The key that seals.

        Raises:
            KeyRefused: this ring only verifies.
        """
        if self._signing is None:
            raise KeyRefused(
                "This keyring only verifies: no key on it signs.",
                "Save where the signing key is, with Keyring(SigningKey.from_file(path)).",
            )
        return self._signing

    def find(self, key_id: str) -> Key:
        """Return the key of that id. Ask `revoked` too: a revoked key is found as well.

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

    def revoked(self, key_id: str) -> Revoked | None:
        """Return how far the key of that id counts, or None if it is not revoked."""
        return self._revoked.get(key_id)

    def rotated(self, signing: SigningKey) -> Keyring:
        """Return a ring that signs with a new key and verifies with all that are on this one.

        Raises:
            KeyRefused: it is revoked.
        """
        return Keyring(signing, verify=self._keys.values(), revoked=self._revoked.values())

    def revoking(self, key: Key | str, *, until: Heads | None) -> Keyring:
        """Return a ring on which a key counts up to a point alone. Rotate first, if it signs.

        ```python
        from safepoint import Keyring, SigningKey

        stolen = SigningKey.generate()
        keys = Keyring(stolen).rotated(SigningKey.generate()).revoking(stolen, until=None)
        ```

        Args:
            key: the key, or the id of one that is on this ring.
            until: where each thread stood when the key was still yours alone, as `Revoked` takes
                it. None if nothing that it sealed counts.

        Raises:
            KeyRefused: the key signs on this ring, or is revoked already.
            UnknownKey: no key of this ring has that id.
        """
        gone = Revoked(self.find(key) if isinstance(key, str) else key, until)
        revoked = [*self._revoked.values(), gone]
        return Keyring(self._signing, verify=self._keys.values(), revoked=revoked)

    def __iter__(self) -> Iterator[Key]:
        """Yield every key, oldest to newest, the signing key last.

        A revoked one is a `RevokedKey`, which another ring takes only if it is revoked there too.
        """
        for key in self._keys.values():
            yield RevokedKey(key) if key.id in self._revoked else key

    def __repr__(self) -> str:
        if not hasattr(self, "_keys"):  # refused while it was made, and now in somebody's report
            return "<Keyring>"
        signing = None if self._signing is None else self._signing.id
        trusted = [key_id for key_id in self._keys if key_id not in self._revoked]
        return f"Keyring(signing={signing!r}, trusted={trusted}, revoked={list(self._revoked)})"
