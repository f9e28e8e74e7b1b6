"""Keys: made, kept, loaded, and never shown."""

from __future__ import annotations

import copy
import os
import pickle
import traceback
from pathlib import Path

import pytest

from safepoint import KeyRefused, Keyring, SigningKey, UnknownKey

CANARY = b"canary-canary-canary-canary-1234"


def test_a_key_survives_its_file(tmp_path: Path) -> None:
    key = SigningKey.generate()
    key.to_file(tmp_path / "key")
    again = SigningKey.from_file(tmp_path / "key")
    assert again.id == key.id
    assert again.verify(b"message", key.sign(b"message"))


def test_a_missing_key_is_made_once_if_asked(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "signing.key"
    with pytest.raises(KeyRefused):
        SigningKey.from_file(file)
    made = SigningKey.from_file(file, create=True)
    assert SigningKey.from_file(file, create=True).id == made.id
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_a_key_is_not_made_where_something_else_stands(tmp_path: Path) -> None:
    """A dangling link, a broken key, a missing grandparent: refused, and left as they were."""
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(KeyRefused, match="cannot be opened"):
        SigningKey.from_file(tmp_path / "link", create=True)
    (tmp_path / "broken").touch(mode=0o600)
    with pytest.raises(KeyRefused, match="does not hold a key"):
        SigningKey.from_file(tmp_path / "broken", create=True)
    with pytest.raises(KeyRefused, match=r"cannot be made .* Run: mkdir -p -m 700 "):
        SigningKey.from_file(tmp_path / "a/b/key", create=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "link"]


def test_generated_keys_differ() -> None:
    assert SigningKey.generate().id != SigningKey.generate().id


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_a_key_file_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        SigningKey.generate().to_file(tmp_path / "key")
    finally:
        os.umask(before)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_a_key_file_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "key"
    SigningKey.generate().to_file(file)
    before = file.read_bytes()
    with pytest.raises(KeyRefused) as refusal:
        SigningKey.generate().to_file(file)
    assert str(refusal.value) == (
        f"The key file {file} cannot be made (File exists). "
        "If there is a key, load it with SigningKey.from_file: a new one cannot verify what"
        " the old one sealed."
    )
    assert file.read_bytes() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644])
def test_a_key_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    SigningKey.generate().to_file(file)
    file.chmod(mode)
    with pytest.raises(KeyRefused) as refusal:
        SigningKey.from_file(file)
    assert str(refusal.value) == (
        f"The key {file} can be reached by other users (mode {mode:04o}). "
        f"Run: chmod 600 {file}, and replace the key if anyone may have read it."
    )


def test_a_key_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    SigningKey.generate().to_file(file)
    owner = os.geteuid()
    if owner == 0:
        os.chown(file, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(KeyRefused, match=r"belongs to another user.*Run: sudo chown"):
        SigningKey.from_file(file)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hunter2\n",
        b"safepoint-key/1 hmac-sha256 AAAA\n",
        b"safepoint-key/1 hmac-sha256 !!!!\n",
        b"safepoint-key/2 hmac-sha256 " + b"A" * 43 + b"=\n",
        b"safepoint-key/1 none " + b"A" * 43 + b"=\n",
        b"\xff" * 5000,
    ],
)
def test_a_file_that_holds_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(KeyRefused, match="does not hold a key that this release reads"):
        SigningKey.from_file(file)


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(KeyRefused, match="is not a regular file"):
        SigningKey.from_file(tmp_path / "pipe")
    with pytest.raises(KeyRefused, match="is not a regular file"):
        SigningKey.from_file(tmp_path)
    with pytest.raises(KeyRefused, match=r"cannot be opened \(No such file or directory\)"):
        SigningKey.from_file(tmp_path / "nothing")
    for odd in ("nul\0byte", "\ud800"):
        with pytest.raises(KeyRefused, match=r"cannot be opened \(not a path\)"):
            SigningKey.from_file(odd)
        with pytest.raises(KeyRefused, match=r"cannot be made \(not a path\)"):
            SigningKey.generate().to_file(odd)


@pytest.mark.parametrize("secret", [b"", b"short", b"x" * 33, "x" * 32, bytearray(32)])
def test_only_32_bytes_make_a_key(secret: bytes) -> None:
    with pytest.raises(KeyRefused, match="A signing key is 32 random bytes"):
        SigningKey(secret)


def test_a_key_is_never_shown() -> None:
    """Neither repr nor str nor a traceback carries the secret, and pickle is refused."""
    key = SigningKey(CANARY)
    ring = Keyring(key)
    shown = f"{key!r} {key} {ring!r} {ring}"
    try:
        pickle.dumps(key)
    except KeyRefused:
        shown += traceback.format_exc()
    assert "KeyRefused: A signing key is not pickled." in shown
    assert "canary" not in shown
    assert "canary" not in key.id
    with pytest.raises(KeyRefused):
        copy.deepcopy(key)


def test_an_older_key_still_verifies_and_a_stranger_does_not() -> None:
    old, new, stranger = (SigningKey.generate() for _ in range(3))
    ring = Keyring(new, verify=[old])
    assert ring.signing is new
    assert ring.find(old.id) is old
    assert ring.find(new.id) is new
    with pytest.raises(UnknownKey):
        ring.find(stranger.id)


def test_a_keyring_holds_keys_only() -> None:
    with pytest.raises(KeyRefused, match="A keyring holds signing keys, not bytes"):
        Keyring(b"x" * 32)  # type: ignore[arg-type]


def test_a_key_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeyRefused, match=r"cannot be written \(No space left on device\)"):
        SigningKey.generate().to_file(tmp_path / "key")
    assert not (tmp_path / "key").exists()


def test_a_key_that_others_could_replace_is_refused(tmp_path: Path) -> None:
    """A folder that everybody can write: they could put a key of their own in its place."""
    folder = tmp_path / "shared"
    folder.mkdir()
    SigningKey.generate().to_file(folder / "key")
    folder.chmod(0o777)
    with pytest.raises(KeyRefused) as refusal:
        SigningKey.from_file(folder / "key")
    assert str(refusal.value) == (
        f"The key in {folder} is not safe. Every user can rename and replace what is inside "
        f"{folder} (mode 0777). Run: chmod o-w {folder}"
    )
    folder.chmod(0o1777)
    SigningKey.from_file(folder / "key")


def test_a_key_in_a_folder_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    SigningKey.generate().to_file(folder / "key")
    if os.geteuid() == 0:
        os.chown(folder, 12345, -1)
    else:
        (folder / "key").chmod(0o600)
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(KeyRefused, match=r"belongs to (user 12345, who can|another user)"):
        SigningKey.from_file(folder / "key")


def test_a_key_behind_a_link_is_refused(tmp_path: Path) -> None:
    SigningKey.generate().to_file(tmp_path / "key")
    (tmp_path / "soft").symlink_to("key")
    with pytest.raises(KeyRefused, match="cannot be opened"):
        SigningKey.from_file(tmp_path / "soft")
    (tmp_path / "hard").hardlink_to(tmp_path / "key")
    with pytest.raises(KeyRefused, match=r"has a second name \(hard link\)"):
        SigningKey.from_file(tmp_path / "key")


@pytest.mark.parametrize("path", [5, None, b"key", []])
def test_what_is_not_a_path_is_refused(path: str) -> None:
    for act in (SigningKey.from_file, SigningKey.generate().to_file):
        with pytest.raises(KeyRefused, match=r"which is not a path\. Give a str"):
            act(path)


def test_one_older_key_need_not_be_in_a_list() -> None:
    old, new = SigningKey.generate(), SigningKey.generate()
    assert Keyring(new, verify=old).find(old.id) is old
