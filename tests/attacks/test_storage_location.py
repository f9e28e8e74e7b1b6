"""What somebody plants around a file storage, and what the storage says to it (SP04)."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safepoint.core.errors import Conflict, InvalidId, Unavailable, Unsafe
from safepoint.stores.files import FileCheckpointStorage
from tests.house import refused

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
def storage(root: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(root)


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


def paths(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def every_method(storage: FileCheckpointStorage, thread: Any = "a") -> list[Callable[[], object]]:
    return [
        lambda: storage.append(thread, 2, b"two"),
        lambda: storage.read(thread, 1),
        lambda: storage.head(thread),
    ]


def test_traversal_in_a_thread_name(storage: FileCheckpointStorage, tmp_path: Path) -> None:
    """No name outside the grammar reaches the file system, by any method."""
    before = paths(tmp_path)
    for thread in TRAVERSAL:
        for call in every_method(storage, thread):
            said = refused(InvalidId, call)
            assert said.isascii()
            assert "\n" not in said
    assert paths(tmp_path) == before


def guarded(name: str, root: str, seen: list[str]) -> Any:
    """Stand before a call that takes paths, and fail where one leaves the store."""
    real = getattr(os, name)

    def call(path: Any, *args: Any, **options: Any) -> Any:
        seen.append(name)
        names = [path, *(arg for arg in args if isinstance(arg, str))]
        if options.get("dir_fd", options.get("src_dir_fd")) is None:
            assert names == [root]
        else:
            assert all("/" not in each and each not in ("", "..") for each in names), names
        return real(path, *args, **options)

    return call


def test_each_call_into_the_system_names_the_folder_or_one_plain_name_below_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, seen = FileCheckpointStorage(root), list[str]()
    for name in ("open", "mkdir", "stat", "chmod", "link", "unlink", "rmdir", "symlink", "rename"):
        monkeypatch.setattr(os, name, guarded(name, os.path.realpath(root), seen))
    storage.append("a", 1, b"x")
    assert (storage.read("a", 1), storage.threads()) == (b"x", ["a"])
    assert {"open", "mkdir", "link"} <= {*seen}


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
@pytest.mark.usefixtures("alarm")
def test_something_planted_as_a_record_or_on_its_way_in(
    storage: FileCheckpointStorage, root: Path, tmp_path: Path, kind: str
) -> None:
    """Nothing follows it, hangs at it or gets bytes from it, and it does not pass unseen."""
    storage.append("a", 1, b"one")
    victim, record, temp = tmp_path / "victim", root / "a/0000000002.checkpoint", root / "a/.next"
    victim.write_text("untouched")
    if kind == "link":
        temp.symlink_to(victim)
    else:
        (os.mkfifo if kind == "fifo" else os.mkdir)(temp, 0o700)
    what = r"is (a symbolic link|not a regular file)\."
    with pytest.raises(Unsafe, match=rf"{temp} {what}"):
        storage.append("a", 2, b"two")
    assert storage.head("a") == 1
    temp.rename(record)
    assert storage.head("a") == 2
    with pytest.raises(Unsafe, match=rf"{record} {what}"):
        storage.read("a", 2)
    with pytest.raises(Conflict, match="already has a checkpoint 2"):
        storage.append("a", 2, b"two")
    assert victim.read_text() == "untouched"


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
    with pytest.raises(Unsafe, match="is not a regular file"):
        storage.read("a", 1)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_folder_that_others_can_write(root: Path, mode: int) -> None:
    """Whether it was so from the beginning or is opened to them later: each call looks again."""
    root.mkdir()
    root.chmod(mode)
    what = f"{root} can be written by others (mode {mode:04o}). Run: chmod 700 {root}"
    assert refused(Unsafe, FileCheckpointStorage, root) == what
    root.chmod(0o700)
    storage = FileCheckpointStorage(root)
    storage.append("a", 1, b"one")
    root.chmod(mode)
    for call in (*every_method(storage), storage.threads):
        assert refused(Unsafe, call) == what
    root.chmod(0o700)
    (root / "a").chmod(mode)
    said = refused(Unsafe, every_method(storage)[0])
    assert said.startswith(f"{root}/a can be written by others (mode {mode:04o}).")


def test_folder_that_vanishes_or_is_replaced(
    storage: FileCheckpointStorage, root: Path, tmp_path: Path
) -> None:
    """A copy, put in its place while the process runs, is not taken for the store; nor a link."""
    storage.append("a", 1, b"one")
    root.rename(tmp_path / "moved")
    calls = [*every_method(storage), lambda: storage.append("new", 1, b"two"), storage.threads]
    before = paths(tmp_path)
    for call in calls:
        assert refused(Unavailable, call).startswith(f"{root} is gone")
    assert paths(tmp_path) == before
    FileCheckpointStorage(root).append("a", 1, b"forged")
    for call in calls:
        said = refused(Unsafe, call)
        assert said.startswith(f"{root} is not the folder that this storage was opened on.")
    shutil.rmtree(root)
    root.symlink_to(tmp_path / "moved")
    for call in calls:
        assert "is a symbolic link" in refused(Unsafe, call)
