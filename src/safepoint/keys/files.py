"""The two key files: the secret one that only its owner reads, the public one that all may read.

Each is one line that names what it is: `safepoint-key/1 hmac-sha256 <base64>`.
"""

from __future__ import annotations

import base64
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from safepoint.errors import KeyRefused, shell
from safepoint.keys.algorithms import ED25519, HMAC, Algorithm
from safepoint.keys.folders import check_folder, make_folder, real, reason
from safepoint.keys.publish import clean, names, publish
from safepoint.keys.redacted import Hidden

_TEXT = re.compile(rb"([a-z/1-]+) ([a-z0-9-]+) ([A-Za-z0-9+/]{43}=)\r?\n?")
_LONGEST: Final = 1024


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the two: what its text begins with, who may reach it, and what to do about it."""

    magic: bytes
    algorithms: tuple[Algorithm, ...]
    mode: int
    forbidden: int
    reached: str
    if_missing: str
    if_there: str
    if_reached: str
    if_linked: str
    if_other: tuple[str, str]


SECRET: Final = Kind(
    magic=b"safepoint-key/1",
    algorithms=(HMAC, ED25519),
    mode=0o600,
    forbidden=0o077,
    reached="reached",
    if_missing="Check the path, or make a key with SigningKey.generate().to_file(path).",
    if_there="If there is a key, load it with SigningKey.from_file: a new one cannot verify what"
    " the old one sealed.",
    if_reached="and replace the key if anyone may have read it.",
    if_linked="Make a new key: whoever holds the other name may know this one.",
    if_other=(
        "holds a public key, which cannot sign.",
        "Name the file of the signing key, or verify with VerifyingKey.from_file(path).",
    ),
)
PUBLIC: Final = Kind(
    magic=b"safepoint-public-key/1",
    algorithms=(ED25519,),
    mode=0o644,
    forbidden=0o022,
    reached="changed",
    if_missing="Check the path, or make the file where the signing key is:"
    " key.public.to_file(path).",
    if_there="If it holds an older key, give the new one a file of its own: readers need both.",
    if_reached="and compare the key's id with the signing key's.",
    if_linked="Write it to a file of its own: key.public.to_file(path).",
    if_other=(
        "holds a secret key, and readers need the public half alone.",
        "Keep it with the writer, and give readers the file of key.public.to_file(path).",
    ),
)


@dataclass(frozen=True, slots=True)
class KeyFile:
    """What was read, and where: the path is absolute, with no link in it."""

    algorithm: Algorithm
    content: Hidden
    path: Path


def read(path: str | os.PathLike[str], kind: Kind) -> KeyFile:
    """Read a key file that nobody else can have changed.

    Raises:
        KeyRefused: it is missing, malformed, of the other kind, or others could have changed it.
    """
    shown = shell(_text(path))
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise KeyRefused(
            f"The key file {shown} cannot be opened ({reason(error)}).", kind.if_missing
        ) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise KeyRefused(f"The key {shown} is not a regular file.", "Name a key file.")
        magic, algorithm, content = _parse(os.read(descriptor, _LONGEST))
        if magic in (SECRET.magic, PUBLIC.magic) and magic != kind.magic:
            what, do = kind.if_other
            raise KeyRefused(f"The file {shown} {what}", do)
        _check_file(status, shown, kind)
        check_folder(path)
        if status.st_nlink > 1:
            ours = names(path, status)
            # Read after the names: a writer may have removed its own meanwhile.
            if os.fstat(descriptor).st_nlink > ours:
                raise KeyRefused(f"The key {shown} has a second name (hard link).", kind.if_linked)
    except OSError as error:
        raise KeyRefused(
            f"The key file {shown} cannot be read ({error.strerror}).", "Name a key file."
        ) from None
    finally:
        os.close(descriptor)
    for known in kind.algorithms:
        if (magic, algorithm) == (kind.magic, known.encode()):
            return KeyFile(known, content, real(path))
    raise KeyRefused(
        f"The file {shown} does not hold a key that this release reads.",
        f"Restore it from a backup, or name another one. {kind.if_missing}",
    )


def write(
    path: str | os.PathLike[str],
    kind: Kind,
    algorithm: Algorithm,
    content: Hidden,
    *,
    keep_existing: bool = False,
) -> None:
    """Write a new key file, durably. What is at `path` already stays.

    Raises:
        KeyRefused: something is at `path` and `keep_existing` is not set, the file cannot be
            written, or others could replace it there.
    """
    shown = shell(_text(path))
    line = Hidden(
        kind.magic + b" " + algorithm.encode() + b" " + base64.b64encode(content.reveal()) + b"\n"
    )
    try:
        check_folder(path)
        publish(path, kind.mode, line)
    except FileExistsError as error:
        if not keep_existing:
            raise KeyRefused(
                f"The key file {shown} cannot be made ({reason(error)}).", kind.if_there
            ) from None
    except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError) as error:
        raise KeyRefused(
            f"The key file {shown} cannot be made ({reason(error)}).",
            "Name a file in a folder that you can write, on a file system with hard links.",
        ) from None
    except OSError as error:
        raise KeyRefused(
            f"The key file {shown} cannot be written ({error.strerror}).",
            "Nothing was kept. Make room or choose another folder, and try again.",
        ) from None


def create(path: str | os.PathLike[str], algorithm: Algorithm, secret: Hidden) -> None:
    """Write a new secret key, and its folder, unless something is at `path` already.

    Of several processes that start at once, one makes the key and all of them read it. One that
    dies on the way leaves no key, or a whole one.

    Raises:
        KeyRefused: the file or the folder cannot be made.
    """
    if os.path.lexists(_text(path)):
        clean(path)
    else:
        make_folder(path)
        write(path, SECRET, algorithm, secret, keep_existing=True)


def _parse(text: bytes) -> tuple[bytes, bytes, Hidden]:
    """Take the line apart. It raises nothing, since whoever reports that would see the text."""
    line = _TEXT.fullmatch(text)
    if line is None:
        return b"", b"", Hidden(b"")
    magic, algorithm, content = line.groups()
    return magic, algorithm, Hidden(base64.b64decode(content))


def _text(path: object) -> str:
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise KeyRefused(
            f"A key file was asked for at {type(path).__name__}, which is not a path.",
            "Give a str or a pathlib.Path.",
        )
    return text


def _check_file(status: os.stat_result, shown: str, kind: Kind) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise KeyRefused(
            f"The key {shown} belongs to another user, who can replace it.",
            f"Run: sudo chown {os.geteuid()} {shown}",
        )
    if status.st_mode & kind.forbidden:
        raise KeyRefused(
            f"The key {shown} can be {kind.reached} by other users"
            f" (mode {status.st_mode & 0o777:04o}).",
            f"Run: chmod {kind.mode:o} {shown}, {kind.if_reached}",
        )
