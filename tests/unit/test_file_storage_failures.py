"""A system that fails under the file storage: a clean refusal, and the old head intact."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from safepoint.errors import StorageFull, StorageUnavailable
from safepoint.storage import FileCheckpointStorage
from tests.unit.storage_helpers import fail, python, tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def storage(root: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(root)


def test_short_writes_are_continued(
    storage: FileCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    storage.append("a", 1, bytes(range(100)))
    assert storage.read("a", 1) == bytes(range(100))


def test_a_write_that_takes_nothing_does_not_loop_for_ever(
    storage: FileCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", lambda *_: 0)
    with pytest.raises(StorageUnavailable, match=r"\(EIO\), so nothing was saved"):
        storage.append("a", 1, b"x")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_leaves_nothing_and_loses_nothing(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The disk fills up half-way through the record."""
    storage.append("a", 1, b"one")
    before, real = tree(root), os.write
    calls: list[int] = []

    def write(fd: int, data: bytes) -> int:
        calls.append(fd)
        if len(calls) == 1:
            return real(fd, data[:3])
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(StorageFull) as caught:
        storage.append("a", 2, b"longer")
    assert str(caught.value) == (
        f"There is no room left for {root} ({errno.errorcode[code]}), so nothing was saved. "
        "Free some space, or raise the quota or the file size limit, and try again."
    )
    assert tree(root) == before
    assert (storage.head("a"), storage.read("a", 1)) == (1, b"one")
    monkeypatch.undo()
    storage.append("a", 2, b"longer")


def test_a_real_file_size_limit_leaves_nothing(storage: FileCheckpointStorage, root: Path) -> None:
    """RLIMIT_FSIZE makes the kernel write 20,000 of 50,000 bytes, then refuse."""
    storage.append("a", 1, b"one")
    before = tree(root)
    code = """
        import resource, sys
        from safepoint.errors import StorageFull
        from safepoint.storage import FileCheckpointStorage
        storage = FileCheckpointStorage(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            storage.append("a", 2, b"x" * 50_000)
        except StorageFull as error:
            print(storage.head("a"), error.what)
    """
    assert python(code, str(root)) == (
        f"1 There is no room left for {root} (EFBIG), so nothing was saved."
    )
    assert tree(root) == before


FSYNCS = {"of the file": 1, "of the thread's folder": 2}


@pytest.mark.parametrize("on", FSYNCS.values(), ids=FSYNCS)
def test_a_failed_sync_publishes_nothing_and_is_not_tried_again(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch, on: int
) -> None:
    """The PostgreSQL lesson: after a failed fsync the data may be gone, and the next succeeds."""
    storage.append("a", 1, b"one")
    before = tree(root)
    seen = fail(monkeypatch, "fsync", errno.EIO, on)
    with pytest.raises(StorageUnavailable) as caught:
        storage.append("a", 2, b"two")
    assert str(caught.value) == (
        f"The system could not save to {root} (EIO), so nothing was saved. "
        "Look at the system's log for the cause before you try again."
    )
    assert len(seen) == on
    assert tree(root) == before
    assert storage.head("a") == FileCheckpointStorage(root).head("a") == 1


def test_the_first_record_of_a_thread_syncs_the_name_of_its_folder(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed sync of the root stops the first record, even if the folder was there before."""
    (root / "a").mkdir(mode=0o700)
    synced: list[int] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        real(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        storage.append("a", 1, b"one")
        record = (root / "a/0000000001.checkpoint").stat().st_ino
        assert synced == [root.stat().st_ino, record, (root / "a").stat().st_ino]
        synced.clear()
        storage.append("a", 2, b"two")
        record = (root / "a/0000000002.checkpoint").stat().st_ino
        assert synced == [record, (root / "a").stat().st_ino]
    fail(monkeypatch, "fsync", errno.EIO)
    with pytest.raises(StorageUnavailable):
        storage.append("b", 1, b"one")
    assert (storage.head("b"), storage.threads()) == (0, ["a"])


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("open", errno.EROFS, "is on a read-only file system, so nothing was saved."),
        ("open", errno.EMFILE, r"\(EMFILE\), so nothing was saved\."),
        ("link", errno.EACCES, "This process may not save to .*, so nothing was saved."),
        ("link", errno.EPERM, "has no hard links, so nothing was saved. Name a folder on a local"),
        ("link", errno.EOPNOTSUPP, "has no hard links, so nothing was saved."),
        ("link", errno.EIO, r"\(EIO\), so nothing was saved\."),
        ("fchmod", errno.EPERM, "This process may not save to .*, so nothing was saved."),
    ],
)
def test_no_raw_error_of_the_system_comes_out_of_a_save(
    storage: FileCheckpointStorage,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    code: int,
    message: str,
) -> None:
    storage.append("a", 1, b"one")
    before = tree(root)
    with monkeypatch.context() as patch:
        fail(patch, name, code)
        with pytest.raises(StorageUnavailable, match=message):
            storage.append("a", 2, b"two")
    assert tree(root) == before
    assert storage.head("a") == 1


@pytest.mark.parametrize("name", ["open", "stat", "fstat", "fchmod", "write", "fsync", "link"])
def test_a_save_that_fails_at_any_step_leaves_the_old_head(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each call of each kind fails once: all is as before, or the record is saved."""
    storage.append("a", 1, b"one")
    before, failed = tree(root), 0
    for on in range(1, 30):
        with monkeypatch.context() as patch:
            seen = fail(patch, name, errno.EIO, on, once=True)
            try:
                storage.append("a", 2, b"two")
            except StorageUnavailable as error:
                failed += 1
                assert error.what.endswith("(EIO), so nothing was saved.")  # noqa: PT017
        if failed < on:
            break
        assert tree(root) == before
        assert (storage.head("a"), storage.read("a", 1)) == (1, b"one")
    assert failed
    assert len(seen) == on - 1
    assert FileCheckpointStorage(root).head("a") == 2
    assert storage.read("a", 2) == b"two"


@pytest.mark.parametrize("name", ["open", "fstat", "stat", "scandir", "read"])
def test_no_raw_error_of_the_system_comes_out_of_a_look(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    storage.append("a", 1, b"one")
    raised = []
    for call in (
        lambda: storage.read("a", 1),
        lambda: storage.head("a"),
        storage.threads,
        lambda: FileCheckpointStorage(root),
    ):
        with monkeypatch.context() as patch:
            seen = fail(patch, name, errno.EIO)
            try:
                call()
            except StorageUnavailable as error:
                raised.append(error.what)
            else:
                assert not seen
    assert raised
    assert all("(EIO)" in what or "(Input/output error)" in what for what in raised)


def test_a_sync_of_the_parent_that_fails_takes_the_new_folder_back(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fail(patch, "fsync", errno.EIO)
        with pytest.raises(StorageUnavailable, match=r"could not open .* \(EIO\)\."):
            FileCheckpointStorage(root)
    assert not root.exists()
    FileCheckpointStorage(root)
    fail(monkeypatch, "fsync", errno.EIO)
    FileCheckpointStorage(root)
