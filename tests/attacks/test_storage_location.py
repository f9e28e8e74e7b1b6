"""What somebody plants around a file storage, and what the storage says to it (SP04)."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safepoint.errors import InvalidId, StorageUnavailable, UnsafeLocation
from safepoint.storage import FileCheckpointStorage
from tests.attacks.helpers import refused

_TEXTS = r"""
.. ../x ../../etc/passwd a/b /etc a\b ..\x A Order-7 con nul nul. com1 lpt0 . .next -x --help _x ~
%2e%2e a:b * $(id)
"""
TRAVERSAL: list[Any] = [
    *_TEXTS.split(),
    *("", " ", "a ", "a\0", "\0", "a\n", "a\nb", "a" * 65, "a" * 300, "\ud800"),
    *("\u0430", "\uff41", "e\u0301", "\u0131"),  # Cyrillic, fullwidth, combined, dotless
    *(None, 7, True, b"a", ["a"], Path("a")),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def alarm() -> Iterator[None]:
    """Fail instead of waiting for ever."""

    def ring(*_: object) -> None:
        raise AssertionError("the call hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def storage(root: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(root)


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file of ours outside the store that no attack may touch, in a folder of its own."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    file = outside / "victim"
    file.write_text("untouched")
    file.chmod(0o600)
    yield file
    assert file.read_text() == "untouched"
    assert [path.name for path in outside.iterdir()] == ["victim"]


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Make `path` somebody else's. Return its user and this process's."""
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
    else:
        somebody = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: somebody)
    return path.stat().st_uid, os.geteuid()


def paths(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def every_method(storage: FileCheckpointStorage, thread: Any = "a") -> list[Callable[[], object]]:
    return [
        lambda: storage.append(thread, 2, b"two"),
        lambda: storage.read(thread, 1),
        lambda: storage.head(thread),
    ]


@pytest.mark.parametrize("thread", TRAVERSAL)
def test_traversal_in_a_thread_name(
    storage: FileCheckpointStorage, tmp_path: Path, thread: Any
) -> None:
    """No name outside the grammar reaches the file system, by any method."""
    before = paths(tmp_path)
    for call in every_method(storage, thread):
        said = refused(InvalidId, call)
        assert said.isascii()
        assert "\n" not in said
    assert paths(tmp_path) == before


class Spy:
    """Stands before the calls that take a path, and fails at any that leaves the store."""

    NAMES = ("open", "mkdir", "stat", "chmod", "link", "unlink", "rmdir", "symlink", "rename")

    def __init__(self, root: str) -> None:
        self.root = root
        self.calls = 0
        self.real = {name: getattr(os, name) for name in self.NAMES}

    def __enter__(self) -> Self:
        for name in self.NAMES:
            setattr(os, name, self.step(self.real[name]))
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.NAMES:
            setattr(os, name, self.real[name])

    def step(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **options: Any) -> Any:
            self.calls += 1
            below = options.get("dir_fd", options.get("src_dir_fd")) is not None
            names = [path, *(arg for arg in args if isinstance(arg, str))]
            if below:
                assert all("/" not in name and name not in ("", "..") for name in names), names
            else:
                assert names == [self.root]
            return real(path, *args, **options)

        return call


@settings(max_examples=200, deadline=None)  # a sync may take its time
@given(
    thread=st.one_of(
        st.text(max_size=70),
        st.text("./\\\0\n~-_aA0", max_size=8),
        st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True),
    )
)
def test_no_text_leads_outside_the_folder(thread: str) -> None:
    """Property: each call into the system names the folder itself or one plain name below it."""
    with tempfile.TemporaryDirectory() as sandbox:
        root = os.path.realpath(sandbox) + "/store"
        storage = FileCheckpointStorage(root)
        with Spy(root) as spy:
            try:
                storage.append(thread, 1, b"x")
            except InvalidId:
                accepted = False
                assert spy.calls == 0
            else:
                accepted = True
                assert storage.read(thread, 1) == b"x"
                assert storage.head(thread) == 1
                assert storage.threads() == [thread]
        assert [path.name for path in Path(sandbox).iterdir()] == ["store"]
        assert sorted(path.name for path in Path(root).iterdir()) == ([thread] if accepted else [])


def test_symlink_planted_as_the_folder(root: Path, victim: Path) -> None:
    root.symlink_to(victim.parent)
    for spelling in (str(root), f"{root}/", f"{root}/."):
        assert refused(UnsafeLocation, FileCheckpointStorage, spelling) == (
            f"{root} is a symbolic link. Whoever owns the link decides where it leads."
            f" See where, and name that folder instead: readlink -f {root}"
        )


def test_symlink_planted_as_a_thread(
    storage: FileCheckpointStorage, root: Path, victim: Path
) -> None:
    (root / "a").symlink_to(victim.parent)
    for call in every_method(storage):
        assert refused(UnsafeLocation, call).startswith(f"{root}/a is a symbolic link.")
    assert storage.threads() == []


def plant(path: Path, kind: str, victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put something that is no file of ours there."""
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(path, 0o600)
    elif kind == "socket":
        monkeypatch.chdir(path.parent)  # the path of a socket has 108 bytes at most
        with socket.socket(socket.AF_UNIX) as planted:
            planted.bind(path.name)
        monkeypatch.chdir("/")
    else:
        path.mkdir(mode=0o700)


@pytest.mark.parametrize("kind", ["link", "fifo", "socket", "folder"])
@pytest.mark.usefixtures("alarm")
def test_something_planted_as_a_record_or_on_its_way_in(
    storage: FileCheckpointStorage,
    root: Path,
    victim: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing follows it, hangs at it or gets bytes from it, and it does not pass unseen."""
    storage.append("a", 1, b"one")
    record, temp = root / "a/0000000002.checkpoint", root / "a/.next"
    plant(temp, kind, victim, monkeypatch)
    what = r"is (a symbolic link|not a regular file)\."
    with pytest.raises(UnsafeLocation, match=rf"{temp} {what}"):
        storage.append("a", 2, b"two")
    assert storage.head("a") == 1
    temp.rename(record)
    assert storage.head("a") == 2
    with pytest.raises(UnsafeLocation, match=rf"{record} {what}"):
        storage.read("a", 2)
    with pytest.raises(Exception, match="already has a checkpoint 2"):
        storage.append("a", 2, b"two")


def test_hard_link_to_a_record(storage: FileCheckpointStorage, root: Path, tmp_path: Path) -> None:
    """A second name is a way to change the record from outside the folder."""
    storage.append("a", 1, b"one")
    record = root / "a/0000000001.checkpoint"
    (tmp_path / "second").hardlink_to(record)
    assert refused(UnsafeLocation, lambda: storage.read("a", 1)) == (
        f"{record} has a second name (hard link)."
        f" Whoever holds it may change the record. Find it, and remove it:"
        f" find / -samefile {record}"
    )


def test_record_that_is_swapped_while_it_is_opened_or_read(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened is looked at, and after that the name is not asked again."""
    storage.append("a", 1, b"one")
    record, real = root / "a/0000000001.checkpoint", os.open

    def opened(path: Any, *args: Any, **options: Any) -> int:
        if path != record.name:
            return real(path, *args, **options)
        if record.is_symlink():
            return real("/dev/zero", os.O_RDONLY)
        fd = real(path, *args, **options)
        record.rename(root / "kept")
        record.symlink_to("/etc/passwd")
        return fd

    monkeypatch.setattr(os, "open", opened)
    assert storage.read("a", 1) == b"one"
    with pytest.raises(UnsafeLocation, match="is not a regular file"):
        storage.read("a", 1)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_folder_that_others_can_write(root: Path, mode: int) -> None:
    """Whether it was so from the beginning or is opened to them later: each call looks again."""
    root.mkdir()
    root.chmod(mode)
    do = f"chmod 700 {root}"
    what = f"{root} can be written by others (mode {mode:04o}). Run: {do}"
    assert refused(UnsafeLocation, lambda: FileCheckpointStorage(root)) == what
    subprocess.run(do.split(), check=True)
    storage = FileCheckpointStorage(root)
    storage.append("a", 1, b"one")
    root.chmod(mode)
    for call in (*every_method(storage), storage.threads):
        assert refused(UnsafeLocation, call) == what
    root.chmod(0o700)
    (root / "a").chmod(mode)
    said = refused(UnsafeLocation, lambda: storage.append("a", 2, b"two"))
    assert said.startswith(f"{root}/a can be written by others (mode {mode:04o}).")


@pytest.mark.parametrize("inner", ["a", "a/0000000001.checkpoint"])
def test_thread_or_record_of_somebody_else(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch, inner: str
) -> None:
    storage.append("a", 1, b"one")
    owner, user = give_away(root / inner, monkeypatch)
    with pytest.raises(UnsafeLocation, match=f"belongs to user {owner}, and .* user {user}"):
        storage.read("a", 1)


def test_folder_below_one_that_everybody_can_write(tmp_path: Path) -> None:
    """Without the sticky bit anybody can put another folder in its place."""
    shared = tmp_path / "shared space"
    shared.mkdir()
    shared.chmod(0o777)
    assert refused(UnsafeLocation, lambda: FileCheckpointStorage(shared / "store")) == (
        f"Every user can rename and replace what is inside '{shared}' (mode 0777)."
        f" Run: chmod o-w '{shared}'"
    )
    assert not (shared / "store").exists()
    shared.chmod(0o1777)
    FileCheckpointStorage(shared / "store")


def test_folder_that_vanishes_or_is_replaced(
    storage: FileCheckpointStorage, root: Path, tmp_path: Path
) -> None:
    """A copy, put in its place while the process runs, is not taken for the store; nor a link."""
    storage.append("a", 1, b"one")
    root.rename(tmp_path / "moved")
    calls = [*every_method(storage), lambda: storage.append("new", 1, b"two"), storage.threads]
    before = paths(tmp_path)
    for call in calls:
        said = refused(StorageUnavailable, call)
        assert said.startswith(f"{root} is gone")
        assert said.endswith(
            "Put it back from a backup, or construct the storage again to begin an empty one."
        )
    assert paths(tmp_path) == before
    FileCheckpointStorage(root).append("a", 1, b"forged")
    for call in calls:
        assert refused(UnsafeLocation, call) == (
            f"{root} is not the folder that this storage was opened on."
            " Find out who replaced it, and construct the storage again if that is right:"
            f" ls -ld {root}"
        )
    shutil.rmtree(root)
    root.symlink_to(tmp_path / "moved")
    for call in calls:
        assert "is a symbolic link" in refused(UnsafeLocation, call)


READ_ONLY = """
    import os, sys
    from safepoint.errors import StorageUnavailable
    from safepoint.storage import FileCheckpointStorage

    ground = sys.argv[1]
    if os.geteuid() == 0:
        os.chown(ground, 65534, 65534)
        os.setgroups([]), os.setgid(65534), os.setuid(65534)
    os.umask(0o777)
    path = ground + "/store"
    storage = FileCheckpointStorage(path)
    storage.append("a", 1, b"one")
    assert storage.read("a", 1) == b"one"

    def show(folder, mode, call):
        os.chmod(folder, mode)
        try:
            call()
        except StorageUnavailable as error:
            print(error)
        os.chmod(folder, 0o700)

    show(path, 0o500, lambda: storage.append("b", 1, b"x"))
    show(path + "/a", 0o500, lambda: storage.append("a", 2, b"x"))
    assert storage.head("a") == 1 and len(os.listdir(path + "/a")) == 1
    show(path + "/a", 0, lambda: storage.read("a", 1))
    show(ground, 0o500, lambda: FileCheckpointStorage(ground + "/new"))
    print(os.geteuid())
"""


def test_read_only_folder_for_a_user_without_rights() -> None:
    """For real: the child gives up root if it has it. A umask that hides all stops nothing."""
    with tempfile.TemporaryDirectory() as sandbox:
        ground = os.path.realpath(sandbox) + "/ground"
        Path(sandbox).chmod(0o711)
        Path(ground).mkdir(mode=0o700)
        command = [sys.executable, "-c", textwrap.dedent(READ_ONLY), ground]
        child = subprocess.run(command, check=False, capture_output=True, text=True, timeout=20)
    assert child.returncode == 0, child.stderr
    *lines, user = child.stdout.splitlines()
    assert int(user) != 0
    run, make = f"Run: chmod -R u+rwX {ground}/store", f"sudo install -d -m 700 -o {user}"
    assert lines == [
        f"This process may not save to {ground}/store, so nothing was saved. {run}",
        f"This process may not save to {ground}/store, so nothing was saved. {run}",
        f"This process may not read from {ground}/store. {run}",
        f"This process may not create {ground}/new. Run: {make} {ground}/new",
    ]
