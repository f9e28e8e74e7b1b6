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
from safepoint.keys import Algorithm, Revoked, VerifyingKey

CANARY = b"\x00magpie\xffmagpie\n'magpie\"\\12345678"
ENCODED = base64.b64encode(CANARY).decode()
FORMS = {"magpie", CANARY.hex(), CANARY.hex()[2:18], ENCODED, ENCODED[:12], ENCODED[12:24]} | {
    ENCODED[24:36],
    ENCODED.replace("+", "-").replace("/", "_"),
}
assert len(CANARY) == 32

PROVOCATIONS: list[Callable[[Path, Algorithm], object]] = []


def provocation(
    function: Callable[[Path, Algorithm], object],
) -> Callable[[Path, Algorithm], object]:
    PROVOCATIONS.append(function)
    return function


def stored(
    path: Path, algorithm: Algorithm, *, magic: str = "safepoint-key/1", end: str = ""
) -> Path:
    path.write_text(f"{magic} {algorithm} {ENCODED}{end}\n")
    path.chmod(0o600)
    return path


class Broken:
    def read(self, store: str, thread: str) -> None:
        raise ValueError("broken")


@provocation
def too_long(path: Path, algorithm: Algorithm) -> object:
    return SigningKey(CANARY + b"1", algorithm)


@provocation
def a_text(path: Path, algorithm: Algorithm) -> object:
    return SigningKey(CANARY.decode("latin-1"), algorithm)  # type: ignore[arg-type]


@provocation
def no_algorithm(path: Path, algorithm: Algorithm) -> object:
    return SigningKey(CANARY, "rsa")  # type: ignore[arg-type]


@provocation
def no_public_half(path: Path, algorithm: Algorithm) -> object:
    key = SigningKey(CANARY)
    return key.public


@provocation
def pickled(path: Path, algorithm: Algorithm) -> object:
    key = SigningKey(CANARY, algorithm)
    return pickle.dumps(key)


@provocation
def copied(path: Path, algorithm: Algorithm) -> object:
    key = SigningKey(CANARY, algorithm)
    return copy.deepcopy({"key": key})


@provocation
def signs_text(path: Path, algorithm: Algorithm) -> object:
    key = SigningKey(CANARY, algorithm)
    return key.sign("text")  # type: ignore[arg-type]


@provocation
def verifies_text(path: Path, algorithm: Algorithm) -> object:
    key = SigningKey(CANARY, algorithm)
    return key.verify("text", b"")  # type: ignore[arg-type]


@provocation
def verifies_a_text_signature(path: Path, algorithm: Algorithm) -> object:
    key = SigningKey(CANARY, algorithm)
    return key.verify(b"text", "é")  # type: ignore[arg-type]


@provocation
def written_over(path: Path, algorithm: Algorithm) -> None:
    SigningKey(CANARY, algorithm).to_file(stored(path / "key", algorithm))


@provocation
def written_nowhere(path: Path, algorithm: Algorithm) -> None:
    SigningKey(CANARY, algorithm).to_file(path / "none/key")


@provocation
def written_to_a_full_disk(path: Path, algorithm: Algorithm) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        SigningKey(CANARY, algorithm).to_file(path / "key")


@provocation
def written_where_all_write(path: Path, algorithm: Algorithm) -> None:
    path.chmod(0o777)
    SigningKey(CANARY, algorithm).to_file(path / "key")


@provocation
def written_to_no_path(path: Path, algorithm: Algorithm) -> None:
    SigningKey(CANARY, algorithm).to_file(5)  # type: ignore[arg-type]


@provocation
def read_where_all_write(path: Path, algorithm: Algorithm) -> object:
    stored(path / "key", algorithm)
    path.chmod(0o777)
    return SigningKey.from_file(path / "key")


@provocation
def read_by_others(path: Path, algorithm: Algorithm) -> object:
    stored(path / "key", algorithm).chmod(0o644)
    return SigningKey.from_file(path / "key")


@provocation
def read_with_a_second_name(path: Path, algorithm: Algorithm) -> object:
    (path / "other").hardlink_to(stored(path / "key", algorithm))
    return SigningKey.from_file(path / "key")


@provocation
def read_through_a_link(path: Path, algorithm: Algorithm) -> object:
    (path / "link").symlink_to(stored(path / "key", algorithm))
    return SigningKey.from_file(path / "link")


@provocation
def read_by_another_user(path: Path, algorithm: Algorithm) -> object:
    stored(path / "key", algorithm)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 54321)
        patch.setattr(os, "fstat", lambda descriptor: with_owner((path / "key").stat(), 12345))
        return SigningKey.from_file(path / "key")


def with_owner(status: os.stat_result, owner: int) -> os.stat_result:
    return os.stat_result([*status[:4], owner, *status[5:10]])


@provocation
def read_as_another_algorithm(path: Path, algorithm: Algorithm) -> object:
    other: Algorithm = "ed25519" if algorithm == "hmac-sha256" else "hmac-sha256"
    return SigningKey.from_file(stored(path / "key", algorithm), algorithm=other)


@provocation
def read_as_a_public_key(path: Path, algorithm: Algorithm) -> object:
    return VerifyingKey.from_file(stored(path / "key", algorithm))


@provocation
def read_from_a_public_key(path: Path, algorithm: Algorithm) -> object:
    return SigningKey.from_file(
        stored(path / "key", algorithm, magic="safepoint-public-key/1"), create=True
    )


@provocation
def read_of_another_release(path: Path, algorithm: Algorithm) -> object:
    return SigningKey.from_file(stored(path / "key", algorithm, magic="safepoint-key/2"))


@provocation
def read_with_more_behind(path: Path, algorithm: Algorithm) -> object:
    return SigningKey.from_file(stored(path / "key", algorithm, end=" # mine"), create=True)


@provocation
def ring_signs_with_a_revoked_key(path: Path, algorithm: Algorithm) -> object:
    key = SigningKey(CANARY, algorithm)
    return Keyring(key, revoked=Revoked(key, None))


@provocation
def ring_with_a_key_revoked_twice(path: Path, algorithm: Algorithm) -> object:
    key = SigningKey(CANARY, algorithm)
    return Keyring(SigningKey.generate(), revoked=[Revoked(key, None), Revoked(key, None)])


@provocation
def ring_of_two_keys_with_one_id(path: Path, algorithm: Algorithm) -> object:
    key, other = SigningKey(CANARY, algorithm), SigningKey.generate()
    object.__setattr__(other, "id", key.id)
    return Keyring(key, verify=[other])


@provocation
def ring_that_does_not_know_a_key(path: Path, algorithm: Algorithm) -> object:
    key = SigningKey(CANARY, algorithm)
    return Keyring(key).find("0" * 16)


@provocation
def ring_that_only_verifies(path: Path, algorithm: Algorithm) -> object:
    key = SigningKey(CANARY, algorithm)
    return Keyring(verify=key).signing


@provocation
def ring_pickled(path: Path, algorithm: Algorithm) -> object:
    ring = Keyring(SigningKey(CANARY, algorithm))
    return pickle.dumps(ring)


@provocation
def revoked_until_nonsense(path: Path, algorithm: Algorithm) -> object:
    key = SigningKey(CANARY, algorithm)
    return Revoked(key, 5)  # type: ignore[arg-type]


@provocation
def revoked_with_a_broken_anchor(path: Path, algorithm: Algorithm) -> object:
    entry = Revoked(SigningKey(CANARY, algorithm), Broken())
    return entry.head("invoices", "order-7")


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
@pytest.mark.parametrize("provoke", PROVOCATIONS, ids=lambda function: function.__name__)
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


@pytest.mark.parametrize(
    "mistake",
    [
        Keyring,
        lambda raw: Keyring(verify=raw),
        lambda raw: Keyring(verify=[raw]),
        lambda raw: Revoked(raw, None),
    ],
)
def test_bytes_in_place_of_a_key_are_not_in_the_message(mistake: Callable[[Any], object]) -> None:
    """Here the caller's bytes stay among the variables of the call that refuses them."""
    with pytest.raises(CheckpointError) as refusal:
        mistake(CANARY)
    shown = f"{refusal.value} {refusal.value!r} {traceback.format_exception(refusal.value)}"
    assert [form for form in FORMS if form in shown] == []
    assert list(everything_shown(refusal.value)), "what was refused half-made can be shown"


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
