"""The canary: a known secret, every refusal that can be provoked with it, and where it shows.

Nowhere: not in a message, not in a `repr`, not in a traceback, and not in the local variables that
error reporters attach to one, as far as they are this package's own. What a caller keeps in a
variable of its own, the caller's frame shows.
"""

from __future__ import annotations

import base64
import copy
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safepoint import CheckpointError, Keyring, SigningKey
from safepoint.core.keys import VerifyingKey
from tests.unit.openssh import put
from tests.unit.storage_helpers import fail

CANARY = b"\x00magpie\xffmagpie\n'magpie\"\\12345678"
ENCODED = base64.b64encode(CANARY).decode()
FORMS = {"magpie", CANARY.hex(), CANARY.hex()[2:18], ENCODED, ENCODED[:12], ENCODED[12:24]} | {
    ENCODED[24:36],
    ENCODED.replace("+", "-").replace("/", "_"),
}
# As a part of a longer text, as in a key file: at each of the three ways to fall into base64.
FORMS |= {
    base64.b64encode(bytes(skip) + CANARY).decode()[first : first + 12]
    for skip in range(3)
    for first in (8, 20)
}
assert len(CANARY) == 32
NEW = SigningKey.generate()
PHRASE = "magpie magpie"


def stored(path: Path, *, end: bytes = b"") -> Path:
    """Write the key as it is written, and then something behind it."""
    SigningKey(CANARY).to_file(path)
    path.write_bytes(path.read_bytes() + end)
    return path


def written_until(name: str) -> Callable[[Path], object]:
    """Write the key to a disk that fails once the bytes are on their way."""

    def provoke(path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            fail(patch, name, 28)
            SigningKey(CANARY).to_file(path / "key")

    return provoke


def written_where_all_write(path: Path) -> None:
    path.chmod(0o777)
    SigningKey(CANARY).to_file(path / "key")


def read_by_another_user(path: Path) -> object:
    stored(path / "key")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 54321)
        patch.setattr(os, "fstat", lambda descriptor: with_owner((path / "key").stat(), 12345))
        return SigningKey.from_file(path / "key")


def with_owner(status: os.stat_result, owner: int) -> os.stat_result:
    return os.stat_result([*status[:4], owner, *status[5:10]])


def read(change: Callable[[Path], object], **options: Any) -> Callable[[Path], object]:
    """Read a key file after a change of its folder, in which it is "key"."""

    def provoke(path: Path) -> object:
        file = stored(path / "key", end=options.get("end", b""))
        change(path)
        load = VerifyingKey if options.get("public") else SigningKey
        return load.from_file(path / options.get("name", file.name))

    return provoke


def unlocked(path: Path) -> None:
    """Open a file with a passphrase that is not its own."""
    SigningKey.from_file(put(path / "key", "phrase"), passphrase=PHRASE)


def read_as_a_text(path: Path) -> object:
    """Pass the secret half where the public one belongs."""
    return VerifyingKey.from_text(stored(path / "key").read_text())


def damaged(path: Path) -> Path:
    """Write a file that the parser takes, and the library does not."""
    text = stored(path / "key").read_bytes()
    inner = base64.b64decode(text[36:-34]) + bytes(8)
    (path / "key").write_bytes(text[:36] + base64.b64encode(inner) + b"\n" + text[-34:])
    return path / "key"


def held(act: Callable[[SigningKey, Path], object]) -> Callable[[Path], object]:
    """Do something with the key in memory."""
    return lambda path: act(SigningKey(CANARY), path)


any_: Any = lambda value: value  # noqa: E731  what mypy would refuse
PROVOCATIONS: dict[str, Callable[[Path], object]] = {
    "too long": lambda path: SigningKey(CANARY + b"1"),
    "a text": lambda path: SigningKey(any_(CANARY.decode("latin-1"))),
    "copied": held(lambda key, path: copy.deepcopy({"key": key})),
    "written over": lambda path: SigningKey(CANARY).to_file(stored(path / "key")),
    "written nowhere": held(lambda key, path: key.to_file(path / "none/key")),
    "written until the sync": written_until("fsync"),
    "written until the link": written_until("link"),
    "written where all write": written_where_all_write,
    "read where all write": read(lambda path: path.chmod(0o777)),
    "read by others": read(lambda path: (path / "key").chmod(0o644)),
    "read through a link": read(lambda path: (path / "b").symlink_to("key"), name="b"),
    "read by another user": read_by_another_user,
    "read as a public key": read(lambda path: None, public=True),
    "read with more behind": read(lambda path: None, end=b"# mine"),
    "read as a text": read_as_a_text,
    "read damaged": lambda path: SigningKey.from_file(damaged(path)),
    "locked with a short passphrase": lambda path: SigningKey(CANARY).to_file(
        path / "key", passphrase=PHRASE[:11]
    ),
    "unlocked with another passphrase": unlocked,
    "unlocked, and it is open": lambda path: SigningKey.from_file(
        stored(path / "key"), passphrase=PHRASE
    ),
    "does not know a key": held(lambda key, path: Keyring(key).find("0" * 16)),
    "only verifies": held(lambda key, path: Keyring(verify=key).signing),
    "ring pickled": held(lambda key, path: pickle.dumps(Keyring(key))),
}


def everything_shown(error: BaseException) -> Iterator[str]:
    yield str(error)
    yield repr(error)
    yield repr(vars(error))
    yield from traceback.format_exception(error)
    # As error reporters do. The source lines are this file's own, which name the canary.
    report = traceback.TracebackException.from_exception(error, capture_locals=True)
    part: traceback.TracebackException | None = report
    while part is not None:
        for frame in part.stack:
            yield from (f"{name}={value}" for name, value in (frame.locals or {}).items())
        part = part.__cause__ or part.__context__


@pytest.mark.parametrize("provoke", PROVOCATIONS.values(), ids=PROVOCATIONS)
def test_no_refusal_shows_the_secret(tmp_path: Path, provoke: Callable[[Path], object]) -> None:
    with pytest.raises((CheckpointError, ValueError, AttributeError)) as refusal:
        provoke(tmp_path)
    shown = "\n".join(everything_shown(refusal.value))
    assert "path=" in shown, "no local variables were looked at"
    assert [form for form in FORMS if form in shown] == []


def test_the_canary_would_be_seen() -> None:
    """The search finds each form, and a local variable of a function that raises."""

    def careless(secret: bytes) -> None:
        raise ValueError

    for form in (CANARY, CANARY.hex(), ENCODED):
        try:
            careless(form)  # type: ignore[arg-type]
        except ValueError as error:
            shown = "\n".join(everything_shown(error))
        assert [found for found in FORMS if found in shown]
