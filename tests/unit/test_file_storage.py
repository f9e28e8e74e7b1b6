"""The file storage: what it keeps, where, and with which rights."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safepoint import _files as _posix
from safepoint._files import folder_refusals, record_refusals
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    EncodeError,
    InvalidId,
    LimitExceeded,
    NotFound,
    UnsafeLocation,
)
from safepoint.names import MAX_SEQUENCE, Limits
from safepoint.storage import CheckpointStorage, FileCheckpointStorage
from tests.unit.storage_helpers import descriptors, python, tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def storage(root: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(root)


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def test_it_is_a_storage(storage: FileCheckpointStorage) -> None:
    """The four methods have the types of the contract (checked by mypy) and work through it."""
    contract: CheckpointStorage = storage
    contract.append("a", 1, b"one")
    assert contract.read("a", 1) == b"one"
    assert contract.head("a") == 1
    assert list(contract.threads()) == ["a"]


def test_the_layout_is_one_file_per_checkpoint(root: Path) -> None:
    storage = FileCheckpointStorage(str(root))
    assert tree(root) == []
    storage.append("order-7", 1, b"one")
    storage.append("order-7", 2, b"two")
    assert tree(root) == [
        ".tmp",
        "order-7",
        "order-7/0000000001.checkpoint",
        "order-7/0000000002.checkpoint",
    ]
    assert (root / "order-7/0000000002.checkpoint").read_bytes() == b"two"
    assert repr(storage) == f"FileCheckpointStorage({str(root)!r})"


def test_another_process_finds_what_was_saved(storage: FileCheckpointStorage, root: Path) -> None:
    for sequence in range(1, 6):
        storage.append("a", sequence, b"%d" % sequence)
    code = """
        import sys
        from safepoint.storage import FileCheckpointStorage
        storage = FileCheckpointStorage(sys.argv[1])
        print(storage.head("a"), storage.read("a", 5), storage.threads())
    """
    assert python(code, str(root)) == "5 b'5' ['a']"


@pytest.mark.parametrize("record", [b"", b"\0\xff\n" * 1000, bytes(range(256))])
def test_bytes_come_back_exactly(storage: FileCheckpointStorage, record: bytes) -> None:
    storage.append("a", 1, record)
    assert storage.read("a", 1) == record


def test_a_bytearray_is_kept_and_anything_else_is_refused(storage: FileCheckpointStorage) -> None:
    buffer: Any = bytearray(b"state")
    storage.append("a", 1, buffer)
    assert storage.read("a", 1) == b"state"
    text: Any = "text"
    with pytest.raises(EncodeError, match=r"A record is bytes, and this is str\."):
        storage.append("a", 2, text)
    assert storage.head("a") == 1


def test_a_second_writer_is_told_and_nothing_is_overwritten(
    storage: FileCheckpointStorage, root: Path
) -> None:
    storage.append("order-7", 1, b"first")
    with pytest.raises(Conflict) as caught:
        FileCheckpointStorage(root).append("order-7", 1, b"second")
    assert str(caught.value) == (
        "Thread 'order-7' already has a checkpoint 1. "
        "Nothing was overwritten. Load the latest checkpoint and decide again from there."
    )
    assert storage.read("order-7", 1) == b"first"
    assert list((root / ".tmp").iterdir()) == []


def test_what_is_not_there_is_not_found(storage: FileCheckpointStorage, root: Path) -> None:
    storage.append("order-7", 1, b"first")
    for thread, sequence in [("order-7", 2), ("order-8", 1)]:
        with pytest.raises(NotFound) as caught:
            storage.read(thread, sequence)
        assert str(caught.value) == (
            f"Thread '{thread}' has no checkpoint {sequence}. "
            "Check the thread's name; its head is the highest sequence that it has."
        )
    assert not (root / "order-8").exists()


@pytest.mark.parametrize("sequence", [0, -1, True, 1.0, "1", None, MAX_SEQUENCE + 1])
def test_an_odd_sequence_is_refused(
    storage: FileCheckpointStorage, root: Path, sequence: Any
) -> None:
    with pytest.raises(InvalidId):
        storage.append("a", sequence, b"")
    with pytest.raises(InvalidId):
        storage.read("a", sequence)
    assert tree(root) == []


def test_a_record_over_the_limit_is_neither_written_nor_read(root: Path) -> None:
    storage = FileCheckpointStorage(root, limits=Limits(state_bytes=0))
    storage.append("a", 1, b"x" * 4096)
    assert len(storage.read("a", 1)) == 4096
    with pytest.raises(LimitExceeded) as caught:
        storage.append("a", 2, b"x" * 4097)
    assert str(caught.value) == (
        "The record has 4097 bytes or more, and the limit is 4096. "
        "Keep large data outside the state, or pass Limits(state_bytes=...) with a higher limit."
    )
    assert storage.head("a") == 1
    FileCheckpointStorage(root).append("a", 2, b"x" * 4097)
    with pytest.raises(LimitExceeded):
        storage.read("a", 2)


def test_a_file_that_grows_while_it_is_read_is_cut_off_by_the_limit(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `fstat` said is not trusted: reading stops one byte over the limit."""
    storage = FileCheckpointStorage(root, limits=Limits(state_bytes=0))
    storage.append("a", 1, b"x")
    asked: list[int] = []

    def endless(_: int, size: int) -> bytes:
        asked.append(size)
        return b"x" * min(size, 1000)

    monkeypatch.setattr(os, "read", endless)
    with pytest.raises(LimitExceeded):
        storage.read("a", 1)
    assert len(asked) == 6
    assert max(asked) <= 4097


@pytest.mark.parametrize("mask", [0, 0o022, 0o777])
def test_modes_are_private_whatever_the_umask(
    root: Path, umask: Callable[[int], int], mask: int
) -> None:
    umask(mask)
    storage = FileCheckpointStorage(root)
    storage.append("a", 1, b"one")
    assert storage.read("a", 1) == b"one"
    modes = {path: stat.S_IMODE((root / path).stat().st_mode) for path in [".", *tree(root)]}
    assert modes == {".": 0o700, ".tmp": 0o700, "a": 0o700, "a/0000000001.checkpoint": 0o600}


def test_modes_are_private_below_a_folder_that_passes_its_group_on(
    tmp_path: Path, root: Path
) -> None:
    """With setgid above, the system adds a bit that nobody asked for."""
    tmp_path.chmod(0o2700)
    FileCheckpointStorage(root).append("a", 1, b"one")
    for folder in (root, root / "a", root / ".tmp"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_relative_path_keeps_its_meaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    storage = FileCheckpointStorage("store")
    monkeypatch.chdir(tmp_path / "elsewhere")
    storage.append("a", 1, b"one")
    assert (tmp_path / "store/a/0000000001.checkpoint").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_path_is_absolute_and_cannot_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links above are resolved, so that what lies inside can be told."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    storage: Any = FileCheckpointStorage("link/store")
    assert storage.path == tmp_path / "real/store"
    with pytest.raises(AttributeError):
        storage.path = tmp_path


def test_there_is_no_default_path() -> None:
    nothing: Any = FileCheckpointStorage
    with pytest.raises(TypeError, match="storage_path"):
        nothing()


@pytest.mark.parametrize("kind", [stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO])
@pytest.mark.parametrize("uid", [0, os.geteuid(), os.geteuid() + 1])
def test_the_quick_look_at_a_file_says_what_the_long_one_says(kind: int, uid: int) -> None:
    """For each mode: what the quick one lets pass has no refusal, and the other way round."""
    for mode in range(0o10000):
        info = os.stat_result((kind | mode, 1, 1, 1, uid, 0, 0, 0, 0, 0))
        folder_fine = not list(folder_refusals("/s", info))
        record_fine = not list(record_refusals("/s", info))
        assert _posix.private(info, stat.S_IFDIR) == folder_fine
        assert _posix.private(info, stat.S_IFREG) == record_fine


def test_no_file_stays_open(storage: FileCheckpointStorage, root: Path) -> None:
    """After work of every kind, refused work included, there are as many descriptors as before."""
    before = descriptors()
    storage.append("a", 1, b"one")
    storage.read("a", 1)
    storage.head("a")
    storage.threads()
    (root / "a/0000000002.checkpoint").symlink_to("/etc/passwd")
    (root / "b").touch()
    for call in (
        lambda: storage.append("a", 1, b""),
        lambda: storage.read("a", 2),
        lambda: storage.read("a", 3),
        lambda: storage.head("b"),
        lambda: FileCheckpointStorage(root / "b"),
    ):
        with pytest.raises(CheckpointError):
            call()
    for path in (root / "a/0000000001.checkpoint", root / "a", root):
        path.chmod(0o770)
        with pytest.raises(UnsafeLocation):
            storage.read("a", 1)
        path.chmod(0o700)
    root.rename(root.parent / "moved")
    FileCheckpointStorage(root)
    with pytest.raises(UnsafeLocation):
        storage.read("a", 1)
    assert descriptors() == before


def test_threads_are_folders_with_a_first_record(
    storage: FileCheckpointStorage, root: Path
) -> None:
    """Strangers in the folder are no threads: other names, files, links, empty folders."""
    storage.append("a", 1, b"one")
    storage.append("b-2", 1, b"one")
    (root / "empty").mkdir(mode=0o700)
    (root / "UPPER").mkdir(mode=0o700)
    (root / "con").mkdir(mode=0o700)
    (root / "file").touch()
    (root / "link").symlink_to("a")
    assert sorted(storage.threads()) == ["a", "b-2"]


def test_elsewhere_it_says_so_in_one_sentence(tmp_path: Path) -> None:
    """On a system without these calls the package imports, and the storage points to another."""
    code = """
        import os, sys
        sys.platform = "win32"
        sys.modules["fcntl"] = None
        os.supports_dir_fd = set()
        for name in ("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC", "geteuid", "fchmod"):
            delattr(os, name)
        from safepoint.storage.file import FileCheckpointStorage
        from safepoint.errors import StorageUnavailable
        try:
            FileCheckpointStorage(sys.argv[1])
        except StorageUnavailable as error:
            print(error)
    """
    assert python(code, str(tmp_path / "store")) == (
        "FileCheckpointStorage needs a POSIX system. Use SQLiteCheckpointStorage here."
    )
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("limits", [None, 7, Limits])
def test_what_are_no_limits_is_refused_before_a_folder_is_made(root: Path, limits: Any) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        FileCheckpointStorage(root, limits=limits)
    assert str(refusal.value) == (
        f"FileCheckpointStorage takes limits, and was given {type(limits).__name__}. "
        "Write limits=Limits(state_bytes=...), or leave it out."
    )
    assert not root.exists()
