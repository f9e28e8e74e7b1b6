"""Keys, and the keyring that says which of them to trust.

The algorithm is a property of the key, never of a record. A record names a key only as a hint;
whether that key counts is decided by the caller's keyring.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, get_args

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
from safepoint.stores import disk

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

Algorithm = Literal["hmac-sha256", "ed25519"]
"""What a signing key can be made for."""

HMAC: Final = "hmac-sha256"
ED25519: Final = "ed25519"
KEY_BYTES: Final = 32
# No record is signed under this label: the bytes that a seal covers go on with a line break.
_IDENTITY: Final = b"safepoint/1 key id"
# The points of small order, by their y: a file of zero bytes holds one. The last two of the seven
# are 0 and 1 again, not reduced.
_P: Final = 2**255 - 19
_WITHOUT_SIGN: Final = 2**255 - 1
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER: Final = frozenset([0, 1, _P - 1, _ORDER_8, _P - _ORDER_8, _P, _P + 1])

_Sign = Callable[[bytes], bytes]
_Verify = Callable[[bytes, bytes], bool]


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
    """Bytes on their way between a key and its file."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """Return the bytes."""
        return self._value


class Key(Redacted):
    """A `SigningKey` or a `VerifyingKey`: either can verify.

    Attributes:
        id: 16 hex digits. Both halves of an Ed25519 key have the same.
        algorithm: `"hmac-sha256"` or `"ed25519"`.
        path: the file that it was read from or first written to, absolute, or None.
    """

    __slots__ = ("_identity", "_verify", "algorithm", "id", "path")

    def __init__(self, algorithm: Algorithm, identity: bytes, verify: _Verify) -> None:
        self._identity, self._verify = identity, verify
        self.algorithm: Final[Algorithm] = algorithm
        self.id: Final = identity[:8].hex()
        self.path: Path | None = None

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Tell whether `signature` is this key's over `message`."""
        return self._verify(message, signature)

    def is_same_as(self, other: Key) -> bool:
        """Tell, in constant time, whether both are one key, or the halves of one."""
        return hmac.compare_digest(self._identity, other._identity)

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


def _hmac(secret: Hidden) -> tuple[bytes, _Sign, _Verify]:
    """Return the identity of an HMAC key, and what signs and verifies with it."""
    # To copy it is faster than to begin anew, and hands the secret to nobody.
    keyed = hmac.new(secret.reveal(), digestmod=hashlib.sha256)

    def sign(message: bytes) -> bytes:
        mac = keyed.copy()
        mac.update(message)
        return mac.digest()

    def verify(message: bytes, signature: bytes) -> bool:
        return hmac.compare_digest(sign(message), signature)

    return sign(_IDENTITY), sign, verify


def _ed25519(public: bytes) -> tuple[bytes, _Verify]:
    """Return the identity of an Ed25519 key, and what verifies with it.

    Raises:
        KeyRefused: under this key, anybody can sign.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if int.from_bytes(public, "little") & _WITHOUT_SIGN in _SMALL_ORDER:
        raise KeyRefused(
            "Under this public key anybody can sign.",
            "It was damaged or planted. Take it from the signing key again: key.public.",
        )
    key = Ed25519PublicKey.from_public_bytes(public)

    def verify(message: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    return hashlib.sha256(_IDENTITY + b" ed25519\n" + public).digest(), verify


# --- the file of a key

_TEXT = re.compile(rb"([a-z/1-]+) ([a-z0-9-]+) ([A-Za-z0-9+/]{43}=)\r?\n?")
_LOCKED = re.compile(
    rb"safepoint-locked-key/1 ([a-z0-9-]+) [A-Za-z0-9+/]{43}= [A-Za-z0-9+/]{22}=="
    rb" [A-Za-z0-9+/]{64}\r?\n?"
)
_LONGEST: Final = 1024
_TEMP: Final = ".safepoint-key"
"""The name of a key on its way in. What a crash left under it, the next writer removes."""


class Kind(NamedTuple):
    """One of the three: how its text begins, and who may reach it."""

    magic: bytes
    mode: int
    forbidden: int
    reached: str


SECRET: Final = Kind(b"safepoint-key/1", 0o600, 0o077, "reached")
PUBLIC: Final = Kind(b"safepoint-public-key/1", 0o644, 0o022, "changed")
LOCKED: Final = Kind(b"safepoint-locked-key/1", 0o600, 0o077, "reached")
_MAKE: Final = (
    "Check the path, or make the file: SigningKey.generate().to_file(path), and for readers"
    " key.public.to_file(path)."
)


def _read(path: str | os.PathLike[str], *wanted: Kind) -> tuple[Kind, Algorithm, Hidden, Path]:
    """Read a key file that nobody else can have changed. Its path comes back without a link.

    Raises:
        KeyRefused: it is missing, malformed, of another kind, or others could have changed it.
    """
    shown = _shown(path)
    try:
        opened = disk.opened(os.fspath(path), disk.READ)
        with opened as fd:
            if not stat.S_ISREG(opened.info.st_mode):
                raise KeyRefused(f"The key {shown} is not a regular file.", "Name a key file.")
            magic, algorithm, content = _parse(os.read(fd, _LONGEST))
            kind = next((each for each in (SECRET, PUBLIC, LOCKED) if each.magic == magic), None)
            if kind is None:
                raise _no_key(shown)  # whose mode is nobody's business here
            if kind not in wanted:
                raise _other_kind(shown, kind, wanted[0])
            _check_file(opened.info, shown, kind)
            _check_folder(path)
            temp = Path(path).with_name(_TEMP)
            for _ in disk.hard_link_refusals(shown, lambda: os.fstat(fd), temp.lstat):
                raise KeyRefused(
                    f"The key {shown} has a second name (hard link).",
                    "Make a new key: whoever holds the other name may know or change this one.",
                )
    except (OSError, ValueError) as error:
        raise KeyRefused(
            f"The key file {shown} cannot be opened ({_reason(error)}).", _MAKE
        ) from None
    for known in get_args(Algorithm) if kind is SECRET else (ED25519,):
        if (magic, algorithm) == (kind.magic, known.encode()):
            return kind, known, content, Path(os.path.realpath(Path(path).parent), Path(path).name)
    raise _no_key(shown)


def _other_kind(shown: str, kind: Kind, wanted: Kind) -> KeyRefused:
    if PUBLIC in (kind, wanted):
        holds, needed = ("public", "secret") if kind is PUBLIC else ("secret", "public")
        return KeyRefused(
            f"The file {shown} holds a {holds} key, and the {needed} half is needed here.",
            "Keep the secret half, which signs, with the writer, and give readers the file"
            " of key.public.to_file(path).",
        )
    if kind is LOCKED:
        return KeyRefused(
            f"The key {shown} is locked, and no passphrase was given.",
            "Locked keys are for people: approve, deny, hold and release ask for it on a terminal,"
            " and code writes SigningKey.from_file(path, passphrase=...).",
        )
    return KeyRefused(
        f"The key {shown} is not locked with a passphrase.",
        f"Lock it: safepoint keys lock {shown} NEW",
    )


def _no_key(shown: str) -> KeyRefused:
    return KeyRefused(
        f"The file {shown} does not hold a key that this release reads.",
        "Restore it from a backup, or name another file: a new key would verify nothing that the"
        " old one sealed.",
    )


def _shown(path: str | os.PathLike[str]) -> str:
    """Write the path of a key for a message.

    Raises:
        KeyRefused: no file can have it.
    """
    with suppress(TypeError):
        if Path(path).name:
            return shell(os.fspath(path))
    raise KeyRefused(f"{quoted(path)} is not the path of a file.", "Name a key file.")


def _parse(text: bytes) -> tuple[bytes, bytes, Hidden]:
    """Take the line apart. It raises nothing, since whoever reports that would see the text."""
    line = _TEXT.fullmatch(text)
    if line is None:
        locked = _LOCKED.fullmatch(text)
        return (LOCKED.magic, locked[1], Hidden(text)) if locked else (b"", b"", Hidden(b""))
    magic, algorithm, content = line.groups()
    return magic, algorithm, Hidden(base64.b64decode(content))


def _write(
    path: str | os.PathLike[str],
    kind: Kind,
    line: Hidden,
    *,
    create: bool = False,
) -> None:
    """Write a new key file, durably. What is at `path` already stays.

    Args:
        path: the file.
        kind: which of the three.
        line: all of its text.
        create: make its folder too, and be content with what is at `path`. Of several processes
            that start at once, one makes the key and all of them read it.

    Raises:
        KeyRefused: something is at `path`, the file cannot be written, or others could replace it.
    """
    shown, folder = _shown(path), str(Path(path).parent)
    if create and os.path.lexists(path) and not os.path.lexists(Path(path).with_name(_TEMP)):
        return
    problem: OSError | ValueError | StorageError
    try:
        if create:
            disk.make_folder(folder)
        _check_folder(path)
        with disk.opened(folder, disk.FOLDER) as fd, ExitStack() as held:
            # Whoever can list the folder can hold it, and NFS may have no locks: two writers may
            # meet then, so each takes a name that nobody else has.
            temp = f"{_TEMP}-{secrets.token_hex(16)}"
            with suppress(StorageError):
                held.enter_context(disk.locked(fd, folder))
                temp = _TEMP
            disk.put(os.fspath(path), fd, line.reveal(), mode=kind.mode, temp=temp)
    except (OSError, ValueError, StorageError) as error:
        # Raised below, where nothing leads to the bytes that were on their way.
        problem = error.with_traceback(None)
    else:
        return
    del line
    if isinstance(problem, StorageError):
        raise KeyRefused(problem.what, problem.do)
    do = "Name a file in a folder that you can write, with room, on a file system with hard links."
    if isinstance(problem, FileExistsError):
        if create:
            return
        do = "If it holds a key, load it, or give the new one another file: readers need both."
    raise KeyRefused(f"The key file {shown} cannot be made ({_reason(problem)}).", do)


def _line(kind: Kind, algorithm: Algorithm, content: Hidden) -> Hidden:
    text = base64.b64encode(content.reveal())
    return Hidden(b"%b %b %b\n" % (kind.magic, algorithm.encode(), text))


def _reason(error: OSError | ValueError) -> str | None:
    return error.strerror if isinstance(error, OSError) else "not a path"


def _check_file(info: os.stat_result, shown: str, kind: Kind) -> None:
    if info.st_uid not in (os.geteuid(), 0):
        raise KeyRefused(
            f"The key {shown} belongs to another user, who can replace it.",
            f"Run: sudo chown {os.geteuid()} {shown}",
        )
    if info.st_mode & kind.forbidden:
        raise KeyRefused(
            f"The key {shown} can be {kind.reached} by other users"
            f" (mode {info.st_mode & 0o777:04o}).",
            f"Run: chmod {kind.mode:o} {shown}, and replace the key if anyone may have"
            f" {'changed' if kind is PUBLIC else 'read'} it.",
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
    for refusal in disk.replaceable_refusals(str(folder)):
        raise KeyRefused(f"The key in {shown} is not safe. {refusal.what}", refusal.do)


# --- a key that is locked with a passphrase

SHORTEST: Final = 12
"""A passphrase has as many characters, or more."""
_SALT_BYTES: Final = 16
# What scrypt costs is a constant of the format: a file that chose it could be made to choose less.
_COSTS: Final = {"n": 2**17, "r": 8, "p": 1}
# Each file has a salt of its own, so each key of this cipher encrypts once.
_NONCE: Final = bytes(12)


def locked_id(path: str | os.PathLike[str]) -> str | None:
    """Return the id of the key that a file says it has locked inside, or None if it is not locked.

    It is a hint, to ask for the right passphrase. What the file says counts once it is unlocked.

    Raises:
        KeyRefused: the file is missing, malformed, not yours, or others can reach it.
    """
    kind, _, content, _ = _read(path, LOCKED, SECRET, PUBLIC)
    if kind is not LOCKED:
        return None
    _, public, _, _ = _parts(content)
    return VerifyingKey(public).id


def lock(key: SigningKey, passphrase: Hidden, salt: bytes) -> Hidden:
    """Return the text of a locked key.

    Args:
        key: the key.
        passphrase: what unlocks it, in UTF-8.
        salt: 16 random bytes, new for each file.

    Raises:
        KeyRefused: the key is no Ed25519 key, or the passphrase is short.
    """
    phrase = _composed(passphrase)
    if len(phrase.reveal().decode()) < SHORTEST:
        raise KeyRefused(
            f"The passphrase has fewer than {SHORTEST} characters: whoever copies the file could"
            " guess it.",
            "Nothing was written. Take four words or more that you picked at random.",
        )
    public = base64.b64encode(key.public._public)  # noqa: SLF001
    before = b"%b %b %b %b " % (LOCKED.magic, ED25519.encode(), public, base64.b64encode(salt))
    box = _cipher(phrase, salt).encrypt(_NONCE, key._secret.reveal(), before)  # noqa: SLF001
    return Hidden(b"%b%b\n" % (before, base64.b64encode(box)))


def _unlock(line: Hidden, passphrase: Hidden) -> Hidden | None:
    """Return the seed, or None: the passphrase or the file is wrong, and nobody can tell which."""
    from cryptography.exceptions import InvalidTag

    before, public, salt, box = _parts(line)
    cipher = _cipher(_composed(passphrase), salt)
    try:
        seed = Hidden(cipher.decrypt(_NONCE, box, before))
    except InvalidTag:
        return None
    half = SigningKey(seed.reveal(), ED25519)._public  # noqa: SLF001
    return seed if half == public else None


def _parts(line: Hidden) -> tuple[bytes, bytes, bytes, bytes]:
    """Return what stands before the box, the public key, the salt, and the box."""
    text = line.reveal().rstrip()
    public, salt, box = map(base64.b64decode, text.split(b" ")[2:])
    return text[: text.rindex(b" ") + 1], public, salt, box


def _cipher(passphrase: Hidden, salt: bytes) -> ChaCha20Poly1305:
    """Return what locks and unlocks one file.

    Raises:
        KeyRefused: this machine cannot.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    try:
        scrypt = Scrypt(salt=salt, length=KEY_BYTES, **_COSTS)
        return ChaCha20Poly1305(scrypt.derive(passphrase.reveal()))
    except (MemoryError, UnsupportedAlgorithm):
        raise KeyRefused(
            "A key can be neither locked nor unlocked here: that takes 128 MiB of memory, and an"
            " OpenSSL with scrypt and ChaCha20-Poly1305.",
            "Make room, or do it on another machine.",
        ) from None


def _hidden(passphrase: str | Hidden | None) -> Hidden | None:
    """Hide it. This raises nothing, since whoever reports that would see it."""
    if isinstance(passphrase, str):
        return Hidden(passphrase.encode("utf-8", "surrogatepass"))
    return passphrase


def _composed(passphrase: Hidden) -> Hidden:
    """Return the same passphrase however a keyboard sends its accents.

    Raises:
        KeyRefused: it is no text.
    """
    with suppress(UnicodeDecodeError):
        return Hidden(unicodedata.normalize("NFC", passphrase.reveal().decode()).encode())
    raise KeyRefused(
        "The passphrase is not text in UTF-8.", "Set the terminal to UTF-8, or type other letters."
    )


# --- keys


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

    def __init__(self, public: bytes) -> None:
        if not isinstance(public, bytes) or len(public) != KEY_BYTES:
            raise KeyRefused(
                f"A public key is {KEY_BYTES} bytes; this is something else.",
                "Take it from a signing key: SigningKey.generate('ed25519').public.",
            )
        self._public: Final = public
        super().__init__(ED25519, *_ed25519(public))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> VerifyingKey:
        """Read a public key that `to_file` wrote.

        Everybody may read the file; only you and root may write it.

        Raises:
            KeyRefused: the file is missing, malformed, not yours, writable by others, or holds
                a secret key.
        """
        _, _, content, found = _read(path, PUBLIC)
        key = cls(content.reveal())
        key.path = found
        return key

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file with mode 0644. An existing file is never overwritten.

        Raises:
            KeyRefused: the file exists, cannot be written, or others could replace it there.
        """
        _write(path, PUBLIC, _line(PUBLIC, ED25519, Hidden(self._public)))


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

    The key of a person can be locked with a passphrase: `to_file(path, passphrase=...)`, or
    `safepoint keys new FILE --locked`. A worker's cannot be, since nobody is there to type it.

    The key's bytes are never shown: `repr` has the id alone, and a key is neither pickled nor
    copied.

    Args:
        secret: 32 random bytes: the HMAC key, or the seed of Ed25519.
        algorithm: what the key is for. It never signs or verifies by another one.

    Raises:
        KeyRefused: the secret is not 32 bytes, or there is no such algorithm.
    """

    __slots__ = ("_public", "_secret", "_sign")

    def __init__(self, secret: bytes, algorithm: Algorithm = HMAC) -> None:
        hidden = Hidden(secret)
        is_secret = isinstance(secret, bytes) and len(secret) == KEY_BYTES
        del secret  # a tool that reports the variables of a failed call must not find it
        if not is_secret:
            raise KeyRefused(
                f"A signing key is {KEY_BYTES} random bytes; this is something else.",
                "Make one with SigningKey.generate(), never from a password or a text.",
            )
        if algorithm not in get_args(Algorithm):
            raise KeyRefused(
                f"{quoted(algorithm)} is not an algorithm of this release.",
                f"Write '{HMAC}', or '{ED25519}' for readers who must not write.",
            )
        self._secret, self._public = hidden, b""
        if algorithm != ED25519:
            identity, self._sign, verify = _hmac(hidden)
        else:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

            private = Ed25519PrivateKey.from_private_bytes(hidden.reveal())
            self._sign, self._public = private.sign, private.public_key().public_bytes_raw()
            identity, verify = _ed25519(self._public)
        super().__init__(algorithm, identity, verify)

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
        passphrase: str | Hidden | None = None,
    ) -> SigningKey:
        """Read a key that `to_file` wrote.

        Args:
            path: the file.
            create: make the key, and the folder it is in, if the file is missing. A new key
                verifies nothing that an older one sealed, so a lost key still shows.
            algorithm: make it for this one (HMAC-SHA256 if you name none), and refuse a file that
                holds another.
            passphrase: what the key is locked with. A key that is not locked is refused then. It
                takes about half a second and 128 MiB of memory.

        Raises:
            KeyRefused: the file is missing, malformed, not yours, readable by others, or holds
                a public key or one of another algorithm; it is locked, and the passphrase is
                missing or wrong.
        """
        phrase = _hidden(passphrase)
        del passphrase
        if create:
            cls.generate(algorithm or HMAC)._put(path, phrase, create=True)  # noqa: SLF001
        _, made_for, content, found = _read(path, SECRET if phrase is None else LOCKED)
        if algorithm not in (None, made_for):
            raise KeyRefused(
                f"The key {shell(str(found))} is for {made_for}, and {algorithm} was asked for.",
                "Name another file, or no algorithm: a key keeps the one that it was made for.",
            )
        secret = content if phrase is None else _unlock(content, phrase)
        if secret is None:
            raise KeyRefused(
                f"The key {shell(str(found))} stays locked: the passphrase is wrong, or the file"
                " was changed.",
                "Type it again, or restore the file from a backup.",
            )
        key = cls(secret.reveal(), made_for)
        key.path = found
        return key

    def to_file(
        self, path: str | os.PathLike[str], *, passphrase: str | Hidden | None = None
    ) -> None:
        """Write the key to a new file with mode 0600. An existing file is never overwritten.

        Args:
            path: the file.
            passphrase: lock the key with it, 12 characters or more: whoever copies the file has
                to guess it, at 128 MiB of memory a guess. For the Ed25519 keys of people.

        Raises:
            KeyRefused: the file exists, cannot be written, or others could replace it there; the
                passphrase is short, or the key has no public half.
        """
        phrase = _hidden(passphrase)
        del passphrase
        self._put(path, phrase)
        self.path = self.path or Path(path).absolute()

    def _put(
        self, path: str | os.PathLike[str], phrase: Hidden | None, *, create: bool = False
    ) -> None:
        if phrase is None:
            _write(path, SECRET, _line(SECRET, self.algorithm, self._secret), create=create)
        else:
            salt = secrets.token_bytes(_SALT_BYTES)
            _write(path, LOCKED, lock(self, phrase, salt), create=create)

    @property
    def public(self) -> VerifyingKey:
        """The half that verifies and cannot sign, for readers who must not write.

        Raises:
            KeyRefused: this is an HMAC key, which has none.
        """
        if not self._public:
            raise KeyRefused(
                "An HMAC key has no public half: whoever can verify with it can also sign.",
                "Make a key for readers who must not write with SigningKey.generate('ed25519').",
            )
        return VerifyingKey(self._public)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`: 32 bytes of HMAC-SHA256, or 64 of Ed25519."""
        return self._sign(message)


class RevokedKey(Key):
    """A revoked key as its ring shows it: to look at, and not to trust on another ring."""

    __slots__ = ()

    def __init__(self, key: Key) -> None:
        super().__init__(key.algorithm, key._identity, key._verify)  # noqa: SLF001  the same key
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
    keys = keys.rotated(SigningKey.generate("ed25519"))
    print([key.algorithm for key in keys])
    #> ['hmac-sha256', 'ed25519']
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
            if not self._keys.setdefault(key.id, key).is_same_as(key):
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
