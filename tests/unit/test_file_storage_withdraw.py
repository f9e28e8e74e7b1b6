"""Taking back a record that the disk did not confirm, without a hole in the thread."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from safepoint import _files as _posix
from safepoint.errors import RecordsMissing, StorageUnavailable
from safepoint.storage import FileCheckpointStorage
from tests.unit.storage_helpers import fail, folder, tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def storage(root: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(root)


UNCONFIRMED = (
    "{root}/a/0000000002.checkpoint was written, but the disk neither confirmed it nor let it go."
    " Look at the system's log, and at the head of the thread, before you save again."
)


@pytest.mark.parametrize("step", ["unlink", "lock", "base"])
def test_a_record_that_cannot_be_withdrawn_is_not_called_unsaved(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    storage.append("a", 1, b"one")
    fail(monkeypatch, "fsync", errno.EIO, 2)
    monkeypatch.setattr("safepoint.storage._lock._PATIENCE", 0.01)
    refuse = os.fsync
    with folder(root / "a") as held:

        def fsync(fd: int) -> None:
            if (root / "a/0000000002.checkpoint").exists():
                if step == "lock":
                    assert _posix.try_lock(held)
                elif step == "base":
                    (root / "a/base").touch(mode=0o600)
                else:
                    fail(monkeypatch, "unlink", errno.EIO)
            refuse(fd)

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(StorageUnavailable) as caught:
            storage.append("a", 2, b"two")
    assert str(caught.value) == UNCONFIRMED.format(root=root)
    assert storage._heads["a"] == 1


def test_a_record_on_which_another_has_built_is_not_withdrawn(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not acknowledged, but to remove it would tear a hole before one that is."""
    storage.append("a", 1, b"one")
    real, calls = os.fsync, 0

    def fsync(fd: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            FileCheckpointStorage(root).append("a", 3, b"three")
            raise OSError(errno.EIO, "failed")
        real(fd)

    removed: list[str] = []
    unlink = os.unlink

    def watched(name: str, **options: Any) -> None:
        removed.append(name)
        unlink(name, **options)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "unlink", watched)
    with pytest.raises(StorageUnavailable) as caught:
        storage.append("a", 2, b"two")
    assert str(caught.value) == UNCONFIRMED.format(root=root)
    assert "0000000002.checkpoint" not in removed, "not even for a moment"
    assert FileCheckpointStorage(root).head("a") == 3
    assert list((root / ".tmp").iterdir()) == []


def test_nobody_builds_on_a_record_while_it_is_withdrawn(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save between the question whether somebody did and the removal has to wait."""
    storage.append("a", 1, b"one")
    other = FileCheckpointStorage(root)
    real, calls = os.unlink, 0

    def unlink(name: Any, **options: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            assert name == "0000000002.checkpoint"
            monkeypatch.undo()
            monkeypatch.setattr("safepoint.storage._lock._PATIENCE", 0.01)
            assert other.head("a") == 2
            with pytest.raises(StorageUnavailable, match="Another process has held the lock"):
                other.append("a", 3, b"three")
        real(name, **options)

    fail(monkeypatch, "fsync", errno.EIO, 2)
    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(StorageUnavailable, match=r"\(EIO\), so nothing was saved"):
        storage.append("a", 2, b"two")
    assert calls == 1
    with pytest.raises(RecordsMissing, match="was there a moment ago and is gone"):
        other.append("a", 3, b"three")
    assert tree(root) == [".tmp", "a", "a/0000000001.checkpoint"]


def test_a_save_on_a_record_that_is_withdrawn_saves_nothing(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other half: whoever builds on a record sees that it went, and can decide again."""
    storage.append("a", 1, b"one")
    storage.append("a", 2, b"two")
    assert storage.head("a") == 2
    real = os.write

    def write(*args: Any) -> int:
        (root / "a/0000000002.checkpoint").unlink()
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(RecordsMissing) as caught:
            storage.append("a", 3, b"three")
    assert str(caught.value) == (
        "Checkpoint 2 of thread 'a' was there a moment ago and is gone, so nothing was saved after"
        " it. Another save failed, or somebody removed it. Load the latest checkpoint and decide"
        " again from there."
    )
    assert tree(root) == [".tmp", "a", "a/0000000001.checkpoint"]
    assert storage.head("a") == 1
    storage.append("a", 2, b"again")


def test_a_thread_that_was_pruned_to_begin_with_a_record_keeps_it(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses to confirm a record with which another process lets the thread begin."""
    storage.append("a", 1, b"one")
    real, calls = os.fsync, 0

    def fsync(fd: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            assert FileCheckpointStorage(root).prune("a", 2, b"base") == 1
            raise OSError(errno.EIO, "failed")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageUnavailable) as caught:
        storage.append("a", 2, b"two")
    assert str(caught.value) == UNCONFIRMED.format(root=root)
    assert storage.head("a") == 2


def test_an_interrupt_before_the_last_sync_withdraws_the_record(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.append("a", 1, b"one")
    before, real, calls = tree(root), os.fsync, []

    def fsync(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(KeyboardInterrupt):
        storage.append("a", 2, b"two")
    assert tree(root) == before
