"""Key files: made once, kept private, and refused where somebody else could have changed them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safepoint import SigningKey
from safepoint.core.errors import Unsafe
from safepoint.core.keys import VerifyingKey, read_key_file
from tests.harness.crash import killed
from tests.unit.openssh import put
from tests.unit.storage_helpers import fail

PAIR = SigningKey(bytes(range(32)))
Make = Callable[[Path], object]
Load = Callable[[Path], object]
secret: tuple[Make, Load] = (lambda path: SigningKey(bytes(range(32))).to_file(path),
                             SigningKey.from_file)  # fmt: skip
public: tuple[Make, Load] = (PAIR.public.to_file, VerifyingKey.from_file)
# As `to_file` does, without the half second that a passphrase takes.
phrase: tuple[Make, Load] = (lambda path: put(path, "phrase"), read_key_file)
each_kind = pytest.mark.parametrize(
    ("make", "load"), [secret, public, phrase], ids=["secret", "public", "passphrase"]
)
writes = pytest.mark.parametrize(("make", "load"), [secret, public], ids=["secret", "public"])


@pytest.fixture(autouse=True)
def folders_of_our_own() -> Iterator[None]:
    """What a test makes is not open to all, whatever the umask of whoever runs it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def refused(message: str, act: Callable[..., object], *arguments: Any, **options: Any) -> None:
    with pytest.raises(Unsafe) as refusal:
        act(*arguments, **options)
    assert message in str(refusal.value)


@pytest.mark.parametrize("umask", [0, 0o777])
def test_a_key_file_is_for_its_owner_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        PAIR.to_file(tmp_path / "secret")
        PAIR.public.to_file(tmp_path / "public")
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {"secret": 0o600, "public": 0o644}


def test_a_missing_key_is_made_once_if_asked(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "signing.key"
    for half in (SigningKey, VerifyingKey):
        refused("or restore its backup. safepoint new-key or init makes", half.from_file, file)
    assert list(tmp_path.iterdir()) == []
    made = SigningKey.from_file(file, create=True)
    assert made.path == file
    assert SigningKey.from_file(file, create=True) == made
    modes = [path.stat().st_mode & 0o777 for path in (file, file.parent)]
    assert modes == [0o600, 0o700]


def test_a_key_is_not_made_where_something_else_stands(tmp_path: Path) -> None:
    """Refused, and left as it was. What is there is never written over or through."""
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "broken").touch(mode=0o600)
    for name, message in {
        "link": "cannot be opened",
        "broken": "is not one Ed25519 key in OpenSSH's format, whole and with nothing around it",
        "a/b/key": "cannot be made (No such file or directory). Name a new file, in a folder",
        "broken/key": "cannot be made (Not a directory)",
    }.items():
        refused(message, SigningKey.from_file, tmp_path / name, create=True)
    for name in ("link", "broken"):
        for half in (PAIR, PAIR.public):
            refused("(File exists). Name a new file", half.to_file, tmp_path / name)
    refused("cannot be made (No such file or directory)", PAIR.to_file, tmp_path / "none/key")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "link"]


def make_key(folder: Path) -> None:
    SigningKey.from_file(folder / "keys/key", create=True)


def test_a_kill_after_each_step_leaves_no_key_or_a_whole_one(tmp_path: Path) -> None:
    """It is read although it has two names."""
    for left in killed(make_key, tmp_path):
        file = left.folder / "keys/key"
        assert file.exists() == ("link" in left.steps)
        assert all(each.stat().st_mode & 0o077 == 0 for each in file.parent.glob("*"))
        if file.exists():
            SigningKey.from_file(file)
        key = SigningKey.from_file(file, create=True)
        assert SigningKey.from_file(file) == key
        assert {path.name[:5] for path in file.parent.iterdir()} <= {"key", ".new-"}


def test_a_key_is_on_disk_when_it_is_made_and_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made it may have died before its name was synced."""
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append("folder" if os.path.samestat(os.fstat(fd), tmp_path.stat()) else "file")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    key = tmp_path / "key"
    PAIR.to_file(key)
    assert synced == ["file", "folder"]
    synced.clear()
    refused("File exists", PAIR.to_file, key)
    assert synced == ["file", "folder"]
    assert [*tmp_path.iterdir()] == [key]
    synced.clear()
    SigningKey.from_file(tmp_path / "keys/key", create=True)
    assert synced[0] == "folder"  # with the name of the new one


# --- refused


MODES = [(secret, 0o640), (secret, 0o601), (phrase, 0o604), (public, 0o664), (public, 0o646)]


@pytest.mark.parametrize(("kind", "mode"), MODES)
def test_a_key_that_others_can_reach_is_refused(
    tmp_path: Path, kind: tuple[Make, Load], mode: int
) -> None:
    (make, load), file = kind, tmp_path / "key"
    make(file)
    file.chmod(mode)
    refused(f"The key {file} can be reached by other users (mode {mode:04o}).", load, file)
    refused(f"Run: chmod {644 if kind is public else 600} {file}, and replace", load, file)
    file.chmod(0o644 if kind is public else 0o400)
    load(file)


def test_each_half_is_told_from_the_other_before_anything_else(tmp_path: Path) -> None:
    """To make a public key private would not help, and a secret one should not be here at all."""
    PAIR.to_file(tmp_path / "secret")
    PAIR.public.to_file(tmp_path / "public")
    (tmp_path / "secret").chmod(0o666)
    refused(
        "holds a key without a passphrase, but a public key",
        VerifyingKey.from_file,
        tmp_path / "secret",
    )
    for create in (False, True):
        file = tmp_path / "public"
        refused("holds a public key, but a key", SigningKey.from_file, file, create=create)


@each_kind
def test_what_is_no_file_of_ours_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make, load: Load
) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    refused("cannot be opened (not a regular file)", load, tmp_path / "pipe")
    refused("cannot be opened (Is a directory)", load, tmp_path)
    for odd in ("nul\0byte", "\ud800/key"):
        refused("cannot be opened (not a path)", load, Path(odd))
        refused("cannot be made (not a path)", PAIR.to_file, Path(odd))
        refused("cannot be made (not a path)", SigningKey.from_file, odd, create=True)
    for no_key in ("", "/"):
        refused("", load, no_key)
        refused("", SigningKey.from_file, no_key, create=True)
    make(tmp_path / "key")
    (tmp_path / "soft").symlink_to("key")
    refused("Name a file, not a link, or restore its backup.", load, tmp_path / "soft")
    fail(monkeypatch, "read", 5)
    refused("cannot be opened (Input/output error)", load, tmp_path / "key")


@writes
def test_a_key_that_others_could_replace_is_refused(tmp_path: Path, make: Make, load: Load) -> None:
    """Also on the way of a link to it. Who else could is in test_files."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (tmp_path / "link").symlink_to("shared")
    make(shared / "key")
    shared.chmod(0o777)
    for place in (shared, tmp_path / "link"):
        for act, name in ((load, "key"), (make, "new")):
            said = f"replace what is inside {shared} (mode 0777). Run: chmod o-w"
            refused(said, act, place / name)
    assert not (shared / "new").exists()
    shared.chmod(0o1777)
    load(tmp_path / "link/key")


@each_kind
def test_a_key_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make, load: Load
) -> None:
    make(tmp_path / "key")
    if os.geteuid() == 0:
        os.chown(tmp_path / "key", 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(Unsafe, match=r"belongs to (user 12345, who can|another user, who can)"):
        load(tmp_path / "key")
