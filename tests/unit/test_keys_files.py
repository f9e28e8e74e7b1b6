"""Key files: made once, kept private, and refused where somebody else could have changed them."""

from __future__ import annotations

import base64
import contextlib
import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import KeyRefused, SigningKey
from safepoint.keys import Algorithm, Key, VerifyingKey

SECRET = base64.b64encode(bytes(range(32)))
Load = Callable[[Path], Key]

each = pytest.mark.parametrize("algorithm", get_args(Algorithm))


def make_secret(path: Path) -> None:
    SigningKey.generate("ed25519").to_file(path)


def make_public(path: Path) -> None:
    SigningKey.generate("ed25519").public.to_file(path)


both_kinds = pytest.mark.parametrize(
    ("make", "load"),
    [
        pytest.param(make_secret, SigningKey.from_file, id="secret"),
        pytest.param(make_public, VerifyingKey.from_file, id="public"),
    ],
)


@each
def test_a_key_survives_its_file(tmp_path: Path, algorithm: Algorithm) -> None:
    key = SigningKey.generate(algorithm)
    key.to_file(tmp_path / "key")
    again = SigningKey.from_file(tmp_path / "key")
    assert again == key
    assert again.algorithm == algorithm
    assert again.sign(b"message") == key.sign(b"message")


def test_a_public_key_survives_its_file(tmp_path: Path) -> None:
    key = SigningKey.generate("ed25519")
    key.public.to_file(tmp_path / "key")
    again = VerifyingKey.from_file(tmp_path / "key")
    assert again == key.public
    assert again.verify(b"message", key.sign(b"message"))


def test_a_key_file_is_one_line_that_names_the_algorithm(tmp_path: Path) -> None:
    secret = bytes(range(32))
    SigningKey(secret).to_file(tmp_path / "hmac")
    key = SigningKey(secret, "ed25519")
    key.to_file(tmp_path / "ed25519")
    key.public.to_file(tmp_path / "public")
    assert (tmp_path / "hmac").read_bytes() == b"safepoint-key/1 hmac-sha256 %b\n" % SECRET
    assert (tmp_path / "ed25519").read_bytes() == b"safepoint-key/1 ed25519 %b\n" % SECRET
    assert (tmp_path / "public").read_bytes() == (
        b"safepoint-public-key/1 ed25519 A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=\n"
    )


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_line_may_end_as_an_editor_or_a_secret_manager_leaves_it(
    tmp_path: Path, end: bytes
) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"safepoint-key/1 ed25519 %b%b" % (SECRET, end))
    file.chmod(0o600)
    assert SigningKey.from_file(file) == SigningKey(bytes(range(32)), "ed25519")


@both_kinds
def test_a_loaded_key_knows_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], load: Load
) -> None:
    """Absolute, and without the links above it, so that it can be told where it lies."""
    (tmp_path / "real" / "keys").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    make(tmp_path / "real/keys/key")
    expected = tmp_path.resolve() / "real/keys/key"
    assert load(tmp_path / "link/keys/key").path == expected
    monkeypatch.chdir(tmp_path / "real")
    assert load(Path("keys/key")).path == expected
    assert load(Path("keys/../keys/key")).path == expected
    assert load(expected).path == expected


# --- made on the first run


@each
def test_a_missing_key_is_made_once_if_asked(tmp_path: Path, algorithm: Algorithm) -> None:
    file = tmp_path / "keys" / "signing.key"
    with pytest.raises(KeyRefused):
        SigningKey.from_file(file)
    made = SigningKey.from_file(file, create=True, algorithm=algorithm)
    assert made.algorithm == algorithm
    assert made.path == file
    assert SigningKey.from_file(file, create=True) == made
    assert SigningKey.from_file(file, create=True, algorithm=algorithm) == made
    assert SigningKey.from_file(file, algorithm=algorithm) == made
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_a_key_is_made_for_hmac_unless_asked(tmp_path: Path) -> None:
    assert SigningKey.from_file(tmp_path / "key", create=True).algorithm == "hmac-sha256"


@pytest.mark.parametrize("create", [False, True])
def test_a_key_of_another_algorithm_than_asked_is_refused(tmp_path: Path, create: bool) -> None:
    file = tmp_path / "key"
    SigningKey.generate().to_file(file)
    before = file.read_bytes()
    with pytest.raises(KeyRefused) as refusal:
        SigningKey.from_file(file, create=create, algorithm="ed25519")
    assert str(refusal.value) == (
        f"The key {file} is for hmac-sha256, and ed25519 was asked for. "
        "Name another file, or no algorithm: a key keeps the one that it was made for."
    )
    assert file.read_bytes() == before


def test_an_algorithm_that_does_not_exist_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyRefused, match="'rsa' is not an algorithm of this release"):
        SigningKey.from_file(tmp_path / "key", create=True, algorithm="rsa")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


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
    with pytest.raises(KeyRefused, match=r"The folder .* cannot be made \(File exists\)"):
        SigningKey.from_file(tmp_path / "broken/key", create=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "link"]


def test_of_many_that_start_at_once_one_makes_the_key(tmp_path: Path) -> None:
    for attempt in range(20):
        barrier = threading.Barrier(8)

        def start(file: Path, barrier: threading.Barrier = barrier) -> str:
            barrier.wait()
            return SigningKey.from_file(file, create=True).id

        with ThreadPoolExecutor(8) as pool:
            ids = set(pool.map(start, [tmp_path / f"key-{attempt}"] * 8))
        assert len(ids) == 1


# --- written


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_a_key_file_has_its_mode_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        make_secret(tmp_path / "secret")
        make_public(tmp_path / "public")
    finally:
        os.umask(before)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "public").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        pytest.param(
            make_secret,
            "If there is a key, load it with SigningKey.from_file: a new one cannot verify what"
            " the old one sealed.",
            id="secret",
        ),
        pytest.param(
            make_public,
            "If it holds an older key, give the new one a file of its own: readers need both.",
            id="public",
        ),
    ],
)
def test_a_key_file_is_never_overwritten(
    tmp_path: Path, make: Callable[[Path], None], advice: str
) -> None:
    file = tmp_path / "key"
    make(file)
    before = file.read_bytes()
    with pytest.raises(KeyRefused) as refusal:
        make(file)
    assert str(refusal.value) == f"The key file {file} cannot be made (File exists). {advice}"
    assert file.read_bytes() == before


@both_kinds
def test_a_key_is_not_written_through_a_link(
    tmp_path: Path, make: Callable[[Path], None], load: Load
) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(KeyRefused, match=r"cannot be made \(File exists\)"):
        make(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


@both_kinds
def test_a_key_that_cannot_be_written_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
    load: Load,
) -> None:
    """Neither a file that cannot be synced nor a folder that cannot."""
    sync = os.fsync
    for good in (0, 1):
        calls: list[int] = []

        def full(descriptor: int, good: int = good, calls: list[int] = calls) -> None:
            calls.append(descriptor)
            if len(calls) > good:
                raise OSError(28, "No space left on device")
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(KeyRefused, match=r"cannot be written \(No space left on device\)"):
            make(tmp_path / "key")
        assert len(calls) == good + 1
        assert list(tmp_path.iterdir()) == []


def test_a_key_that_cannot_be_written_is_not_hidden_by_what_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(os, "unlink", fail)
    with pytest.raises(KeyRefused, match=r"cannot be written \(Input/output error\)"):
        make_secret(tmp_path / "key")


@both_kinds
def test_a_folder_that_is_missing_is_named(
    tmp_path: Path, make: Callable[[Path], None], load: Load
) -> None:
    with pytest.raises(KeyRefused) as refusal:
        make(tmp_path / "none/key")
    assert str(refusal.value) == (
        f"The key file {tmp_path}/none/key cannot be made (No such file or directory). "
        "Name a file in a folder that you can write, on a file system with hard links."
    )


# --- refused


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o610, 0o601])
def test_a_secret_key_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    make_secret(file)
    file.chmod(mode)
    with pytest.raises(KeyRefused) as refusal:
        SigningKey.from_file(file)
    assert str(refusal.value) == (
        f"The key {file} can be reached by other users (mode {mode:04o}). "
        f"Run: chmod 600 {file}, and replace the key if anyone may have read it."
    )


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o620])
def test_a_public_key_that_others_can_change_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    make_public(file)
    file.chmod(mode)
    with pytest.raises(KeyRefused) as refusal:
        VerifyingKey.from_file(file)
    assert str(refusal.value) == (
        f"The key {file} can be changed by other users (mode {mode:04o}). "
        f"Run: chmod 644 {file}, and compare the key's id with the signing key's."
    )


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o444, 0o755])
def test_a_public_key_may_be_read_by_all(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    make_public(file)
    file.chmod(mode)
    assert VerifyingKey.from_file(file).path == file


@both_kinds
def test_a_key_of_another_user_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
    load: Load,
) -> None:
    file = tmp_path / "key"
    make(file)
    owner = os.geteuid()
    if owner == 0:
        os.chown(file, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(KeyRefused, match=r"belongs to another user.*Run: sudo chown"):
        load(file)


def test_a_secret_key_is_no_public_one(tmp_path: Path) -> None:
    """Said before anything about its mode, since it should not be here at all."""
    file = tmp_path / "key"
    for mode in (0o600, 0o666):
        make_secret(file)
        file.chmod(mode)
        with pytest.raises(KeyRefused) as refusal:
            VerifyingKey.from_file(file)
        assert str(refusal.value) == (
            f"The file {file} holds a secret key, and readers need the public half alone. "
            "Keep it with the writer, and give readers the file of key.public.to_file(path)."
        )
        file.unlink()


def test_a_public_key_is_no_secret_one(tmp_path: Path) -> None:
    """Said before anything about its mode: to make it private would not help."""
    file = tmp_path / "key"
    make_public(file)
    for create in (False, True):
        with pytest.raises(KeyRefused) as refusal:
            SigningKey.from_file(file, create=create)
        assert str(refusal.value) == (
            f"The file {file} holds a public key, which cannot sign. "
            "Name the file of the signing key, or verify with VerifyingKey.from_file(path)."
        )


MALFORMED = [
    b"",
    b"hunter2\n",
    b"safepoint-key/1 hmac-sha256 AAAA\n",
    b"safepoint-key/1 hmac-sha256 !!!!\n",
    b"safepoint-key/1 hmac-sha256 \n",
    b"safepoint-key/1 hmac-sha256\n",
    b"safepoint-key/1  hmac-sha256 " + SECRET + b"\n",
    b"safepoint-key/2 hmac-sha256 " + SECRET + b"\n",
    b"safepoint-key/1 none " + SECRET + b"\n",
    b"safepoint-key/1 HMAC-SHA256 " + SECRET + b"\n",
    b"safepoint-public-key/1 hmac-sha256 " + SECRET + b"\n",
    b"safepoint-public-key/2 ed25519 " + SECRET + b"\n",
    b"safepoint-key/1 hmac-sha256 " + SECRET + b" \n",
    b"safepoint-key/1 hmac-sha256 " + SECRET + b"\n\n",
    b"safepoint-key/1 hmac-sha256 " + SECRET + b"\nsafepoint-key/1 ed25519 " + SECRET,
    b"safepoint-key/1 hmac-sha256 " + SECRET + b"\n" + b" " * 5000 + b"more",
    b"\xef\xbb\xbfsafepoint-key/1 hmac-sha256 " + SECRET,
    b"\xff" * 5000,
]


@pytest.mark.parametrize("content", MALFORMED)
def test_a_file_that_holds_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    file.chmod(0o600)
    public = content.startswith(b"safepoint-public-key/1")
    load, other = SigningKey.from_file, VerifyingKey.from_file
    with pytest.raises(KeyRefused, match="does not hold a key that this release reads"):
        (other if public else load)(file)
    with pytest.raises(KeyRefused):
        (load if public else other)(file)


LINES = st.tuples(
    st.sampled_from([b"safepoint-key/1", b"safepoint-public-key/1", b"safepoint-key/11"]),
    st.sampled_from([b"hmac-sha256", b"ed25519", b"ed25519-"]),
    st.binary(min_size=30, max_size=34).map(base64.b64encode),
    st.sampled_from([b"", b"\n", b"\r\n", b"\r", b" ", b"\0"]),
).map(lambda parts: b" ".join(parts[:3]) + parts[3])


@given(st.binary(max_size=2000) | LINES)
def test_whatever_a_file_holds_it_is_that_key_or_refused(content: bytes) -> None:
    """And what it is, the file alone says."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "key")
        file.write_bytes(content)
        file.chmod(0o600)
        loaded: list[Key] = []
        for load in (SigningKey.from_file, VerifyingKey.from_file):
            with contextlib.suppress(KeyRefused):
                loaded.append(load(file))
    if loaded:
        (key,) = loaded
        magic, algorithm, encoded = content.split()
        raw = base64.b64decode(encoded)
        assert key.algorithm == algorithm.decode()
        assert (magic == b"safepoint-key/1") == isinstance(key, SigningKey)
        same = VerifyingKey(raw) if magic == b"safepoint-public-key/1" else None
        assert key == (same or SigningKey(raw, key.algorithm))


def test_a_file_of_zero_bytes_in_base64_is_no_public_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"safepoint-public-key/1 ed25519 " + base64.b64encode(bytes(32)) + b"\n")
    file.chmod(0o644)  # whatever the umask
    with pytest.raises(KeyRefused, match="Under this public key anybody can sign"):
        VerifyingKey.from_file(file)


@both_kinds
def test_what_is_not_a_file_is_refused(
    tmp_path: Path, make: Callable[[Path], None], load: Load
) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(KeyRefused, match="is not a regular file"):
        load(tmp_path / "pipe")
    with pytest.raises(KeyRefused, match="is not a regular file"):
        load(tmp_path)
    with pytest.raises(KeyRefused, match=r"cannot be opened \(No such file or directory\)"):
        load(tmp_path / "nothing")
    for odd in ("nul\0byte", "\ud800", "\ud800/key", "nul\0byte/key"):
        with pytest.raises(KeyRefused, match=r"cannot be opened \(not a path\)"):
            load(Path(odd))
        with pytest.raises(KeyRefused, match=r"cannot be made \(not a path\)"):
            make(Path(odd))


@pytest.mark.parametrize("odd", ["nul\0byte", "\ud800", "\ud800/key", "nul\0byte/key"])
def test_what_cannot_be_a_path_is_not_made(odd: str) -> None:
    with pytest.raises(KeyRefused, match=r"cannot be made \(not a path\)"):
        SigningKey.from_file(odd, create=True)


def test_a_missing_key_says_how_to_get_one(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(KeyRefused) as refusal:
        SigningKey.from_file(file)
    assert str(refusal.value) == (
        f"The key file {file} cannot be opened (No such file or directory). "
        "Check the path, or make a key with SigningKey.generate().to_file(path)."
    )
    with pytest.raises(KeyRefused) as refusal:
        VerifyingKey.from_file(file)
    assert str(refusal.value) == (
        f"The key file {file} cannot be opened (No such file or directory). "
        "Check the path, or make the file where the signing key is: key.public.to_file(path)."
    )


@both_kinds
def test_a_key_that_cannot_be_read_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
    load: Load,
) -> None:
    make(tmp_path / "key")

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "read", fail)
    with pytest.raises(KeyRefused, match=r"cannot be read \(Input/output error\)"):
        load(tmp_path / "key")


@pytest.mark.parametrize("path", [5, None, b"key", []])
def test_what_is_not_a_path_is_refused(path: str) -> None:
    key = SigningKey.generate("ed25519")
    actions = (SigningKey.from_file, VerifyingKey.from_file, key.to_file, key.public.to_file)
    for act in (*actions, lambda path: SigningKey.from_file(path, create=True)):
        with pytest.raises(KeyRefused, match=r"which is not a path\. Give a str"):
            act(path)


# --- the folder


@both_kinds
def test_a_key_that_others_could_replace_is_refused(
    tmp_path: Path, make: Callable[[Path], None], load: Load
) -> None:
    """A folder that everybody can write: they could put a key of their own in its place."""
    folder = tmp_path / "shared"
    folder.mkdir()
    make(folder / "key")
    folder.chmod(0o777)
    expected = (
        f"The key in {folder} is not safe. Every user can rename and replace what is inside "
        f"{folder} (mode 0777). Run: chmod o-w {folder}"
    )
    for act in (load, lambda path: make(path.with_name("new"))):
        with pytest.raises(KeyRefused) as refusal:
            act(folder / "key")
        assert str(refusal.value) == expected
    assert [path.name for path in folder.iterdir()] == ["key"]
    folder.chmod(0o1777)
    load(folder / "key")


@both_kinds
def test_a_key_below_a_folder_that_others_could_replace_is_refused(
    tmp_path: Path, make: Callable[[Path], None], load: Load
) -> None:
    folder = tmp_path / "shared"
    (folder / "keys").mkdir(parents=True)
    make(folder / "keys/key")
    (tmp_path / "link").symlink_to("shared")
    folder.chmod(0o777)
    for path in (folder / "keys/key", tmp_path / "link/keys/key"):
        with pytest.raises(KeyRefused, match=rf"replace what is inside {folder} \(mode 0777\)"):
            load(path)


@both_kinds
def test_a_key_by_way_of_a_folder_that_others_could_replace_is_refused(
    tmp_path: Path, make: Callable[[Path], None], load: Load
) -> None:
    """The key lies safely; the link to it does not."""
    (tmp_path / "safe/keys").mkdir(parents=True)
    make(tmp_path / "safe/keys/key")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/link").symlink_to("../safe")
    assert load(tmp_path / "shared/link/keys/key").path == tmp_path / "safe/keys/key"
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(KeyRefused, match=rf"what is inside {tmp_path}/shared \(mode 0777\)"):
        load(tmp_path / "shared/link/keys/key")


@both_kinds
def test_a_key_in_a_folder_of_somebody_else_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
    load: Load,
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    make(folder / "key")
    if os.geteuid() == 0:
        os.chown(folder, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(KeyRefused, match=r"belongs to (user 12345, who can|another user)"):
        load(folder / "key")


@both_kinds
def test_a_key_behind_a_link_of_somebody_else_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
    load: Load,
) -> None:
    (tmp_path / "real/keys").mkdir(parents=True)
    make(tmp_path / "real/keys/key")
    link = tmp_path / "link"
    link.symlink_to("real")
    if os.geteuid() == 0:
        os.lchown(link, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(KeyRefused, match=r"link belongs to user 12345|belongs to another user"):
        load(link / "keys/key")


@both_kinds
def test_a_folder_that_is_a_link_is_refused(
    tmp_path: Path, make: Callable[[Path], None], load: Load
) -> None:
    (tmp_path / "real").mkdir()
    make(tmp_path / "real/key")
    link = tmp_path / "link"
    link.symlink_to("real")
    with pytest.raises(KeyRefused) as refusal:
        load(link / "key")
    assert str(refusal.value) == (
        f"The key in {link} is not safe. {link} is a symbolic link. "
        f"Name the folder that it leads to: readlink -f {link}"
    )


@pytest.mark.parametrize(
    ("make", "load", "advice"),
    [
        pytest.param(
            make_secret,
            SigningKey.from_file,
            "Make a new key: whoever holds the other name may know this one.",
            id="secret",
        ),
        pytest.param(
            make_public,
            VerifyingKey.from_file,
            "Write it to a file of its own: key.public.to_file(path).",
            id="public",
        ),
    ],
)
def test_a_key_behind_a_link_is_refused(
    tmp_path: Path, make: Callable[[Path], None], load: Load, advice: str
) -> None:
    make(tmp_path / "key")
    (tmp_path / "soft").symlink_to("key")
    with pytest.raises(KeyRefused, match="cannot be opened"):
        load(tmp_path / "soft")
    (tmp_path / "hard").hardlink_to(tmp_path / "key")
    with pytest.raises(KeyRefused) as refusal:
        load(tmp_path / "key")
    assert str(refusal.value) == (f"The key {tmp_path}/key has a second name (hard link). {advice}")
