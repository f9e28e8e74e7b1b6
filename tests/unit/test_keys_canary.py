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
from safepoint.core.keys import Algorithm, Revoked, VerifyingKey
from tests.unit.storage_helpers import fail
from tests.vectors.material import locked_keys

CANARY = b"\x00magpie\xffmagpie\n'magpie\"\\12345678"
ENCODED = base64.b64encode(CANARY).decode()
FORMS = {"magpie", CANARY.hex(), CANARY.hex()[2:18], ENCODED, ENCODED[:12], ENCODED[12:24]} | {
    ENCODED[24:36],
    ENCODED.replace("+", "-").replace("/", "_"),
}
assert len(CANARY) == 32
NEW = SigningKey.generate()
PHRASE = "magpie magpie"


def stored(
    path: Path, algorithm: Algorithm, *, magic: str = "safepoint-key/1", end: str = ""
) -> Path:
    path.write_text(f"{magic} {algorithm} {ENCODED}{end}\n")
    path.chmod(0o600)
    return path


class Broken:
    def read(self, store: str, thread: str) -> None:
        raise ValueError("broken")


def written_until(name: str) -> Callable[[Path, Algorithm], object]:
    """Write the key to a disk that fails once the bytes are on their way."""

    def provoke(path: Path, algorithm: Algorithm) -> None:
        with pytest.MonkeyPatch.context() as patch:
            fail(patch, name, 28)
            SigningKey(CANARY, algorithm).to_file(path / "key")

    return provoke


def written_where_all_write(path: Path, algorithm: Algorithm) -> None:
    path.chmod(0o777)
    SigningKey(CANARY, algorithm).to_file(path / "key")


def read_by_another_user(path: Path, algorithm: Algorithm) -> object:
    stored(path / "key", algorithm)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 54321)
        patch.setattr(os, "fstat", lambda descriptor: with_owner((path / "key").stat(), 12345))
        return SigningKey.from_file(path / "key")


def with_owner(status: os.stat_result, owner: int) -> os.stat_result:
    return os.stat_result([*status[:4], owner, *status[5:10]])


def ring_of_two_keys_with_one_id(path: Path, algorithm: Algorithm) -> object:
    key, other = SigningKey(CANARY, algorithm), SigningKey.generate()
    object.__setattr__(other, "id", key.id)
    return Keyring(key, verify=[other])


def read(change: Callable[[Path], object], **options: Any) -> Callable[[Path, Algorithm], object]:
    """Read a key file after a change of its folder, in which it is "key"."""

    def provoke(path: Path, algorithm: Algorithm) -> object:
        end, magic = options.get("end", ""), options.get("magic", "safepoint-key/1")
        file = stored(path / "key", algorithm, magic=magic, end=end)
        change(path)
        load = VerifyingKey if options.get("public") else SigningKey
        return load.from_file(path / options.get("name", file.name))

    return provoke


def locked(path: Path, algorithm: Algorithm) -> None:
    """Open a file with a passphrase that is not its own; an HMAC key is not even locked."""
    if algorithm == "hmac-sha256":
        SigningKey(CANARY).to_file(path / "key", passphrase=PHRASE)
    file = path / "key"
    file.write_text(locked_keys()[0]["file"])
    file.chmod(0o600)
    SigningKey.from_file(file, passphrase=PHRASE)


def locked_without_memory(path: Path, algorithm: Algorithm) -> None:
    def full(**costs: object) -> None:
        raise MemoryError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cryptography.hazmat.primitives.kdf.scrypt.Scrypt", full)
        SigningKey(CANARY, "ed25519").to_file(path / "key", passphrase=PHRASE)


def held(act: Callable[[SigningKey, Path], object]) -> Callable[[Path, Algorithm], object]:
    """Do something with the key in memory."""
    return lambda path, algorithm: act(SigningKey(CANARY, algorithm), path)


OTHER: dict[Algorithm, Algorithm] = {"ed25519": "hmac-sha256", "hmac-sha256": "ed25519"}
any_: Any = lambda value: value  # noqa: E731  what mypy would refuse
PROVOCATIONS: dict[str, Callable[[Path, Algorithm], object]] = {
    "too long": lambda path, algorithm: SigningKey(CANARY + b"1", algorithm),
    "a text": lambda path, algorithm: SigningKey(any_(CANARY.decode("latin-1")), algorithm),
    "no algorithm": lambda path, algorithm: SigningKey(CANARY, any_("rsa")),
    "no public half": lambda path, algorithm: SigningKey(CANARY).public,
    "pickled": held(lambda key, path: pickle.dumps(key)),
    "copied": held(lambda key, path: copy.deepcopy({"key": key})),
    "written over": lambda path, algorithm: SigningKey(CANARY, algorithm).to_file(
        stored(path / "key", algorithm)
    ),
    "written nowhere": held(lambda key, path: key.to_file(path / "none/key")),
    "written until the write": written_until("write"),
    "written until the sync": written_until("fsync"),
    "written until the link": written_until("link"),
    "written where all write": written_where_all_write,
    "read where all write": read(lambda path: path.chmod(0o777)),
    "read by others": read(lambda path: (path / "key").chmod(0o644)),
    "read with a second name": read(lambda path: (path / "b").hardlink_to(path / "key")),
    "read through a link": read(lambda path: (path / "b").symlink_to("key"), name="b"),
    "read by another user": read_by_another_user,
    "read as another algorithm": lambda path, algorithm: SigningKey.from_file(
        stored(path / "key", algorithm), algorithm=OTHER[algorithm]
    ),
    "read as a public key": read(lambda path: None, public=True),
    "read from a public key": read(lambda path: None, magic="safepoint-public-key/1"),
    "read of another release": read(lambda path: None, magic="safepoint-key/2"),
    "read with more behind": read(lambda path: None, end=" # mine"),
    "locked with a short passphrase": lambda path, algorithm: SigningKey(CANARY, "ed25519").to_file(
        path / "key", passphrase=PHRASE[:11]
    ),
    "locked with half a letter": held(
        lambda key, path: key.to_file(path / "key", passphrase=f"{PHRASE}\ud800")
    ),
    "locked without memory": locked_without_memory,
    "unlocked with another passphrase": locked,
    "unlocked, and it is open": lambda path, algorithm: SigningKey.from_file(
        stored(path / "key", algorithm), passphrase=PHRASE
    ),
    "signs with a revoked key": held(lambda key, path: Keyring(key, revoked=Revoked(key, None))),
    "revoked twice": held(
        lambda key, path: Keyring(NEW, revoked=[Revoked(key, None), Revoked(key, None)])
    ),
    "two keys with one id": ring_of_two_keys_with_one_id,
    "does not know a key": held(lambda key, path: Keyring(key).find("0" * 16)),
    "only verifies": held(lambda key, path: Keyring(verify=key).signing),
    "ring pickled": held(lambda key, path: pickle.dumps(Keyring(key))),
    "revoked until nonsense": held(lambda key, path: Revoked(key, any_(5)).head("s", "t")),
    "a broken anchor": held(lambda key, path: Revoked(key, Broken()).head("invoices", "order-7")),
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


@pytest.mark.parametrize("algorithm", ["hmac-sha256", "ed25519"])
@pytest.mark.parametrize("provoke", PROVOCATIONS.values(), ids=PROVOCATIONS)
def test_no_refusal_shows_the_secret(
    tmp_path: Path, provoke: Callable[[Path, Algorithm], object], algorithm: Algorithm
) -> None:
    with pytest.raises(CheckpointError) as refusal:
        provoke(tmp_path, algorithm)
    shown = "\n".join(everything_shown(refusal.value))
    assert "path=" in shown, "no local variables were looked at"
    assert [form for form in FORMS if form in shown] == []


@pytest.mark.parametrize("algorithm", ["hmac-sha256", "ed25519"])
def test_no_repr_shows_the_secret(algorithm: Algorithm) -> None:
    key = SigningKey(CANARY, algorithm)
    ring = Keyring(SigningKey.generate(), verify=key, revoked=Revoked(key, None))
    shown = (
        f"{key!r} {key} {key.id} {ring!r} {ring} {ring.revoked(key.id)} {[key]} {key.__reduce__}"
    )
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
