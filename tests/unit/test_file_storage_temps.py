"""Files on their way in, and what is left of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from safepoint import _files as _posix
from safepoint.errors import (
    StorageUnavailable,
)
from safepoint.storage import FileCheckpointStorage
from tests.unit.storage_helpers import fail


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def storage(root: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(root)


def test_left_over_temps_are_cleaned_and_nothing_else(
    storage: FileCheckpointStorage, root: Path, tmp_path: Path
) -> None:
    """A living writer holds a lock; strangers and planted links are left alone."""
    storage.append("a", 1, b"one")
    temps = root / ".tmp"
    (temps / ("a" * 32)).write_bytes(b"half a rec")
    living = temps / ("b" * 32)
    stranger = temps / "notes.txt"
    stranger.touch()
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (temps / ("c" * 32)).symlink_to(victim)
    os.mkfifo(temps / ("d" * 32))
    with living.open("wb") as file:
        assert _posix.try_lock(file.fileno())
        FileCheckpointStorage(root)
        assert sorted(path.name[0] for path in temps.iterdir()) == ["b", "c", "d", "n"]
    FileCheckpointStorage(root)
    assert sorted(path.name[0] for path in temps.iterdir()) == ["c", "d", "n"]
    assert victim.read_text() == "untouched"


def test_a_left_over_that_its_umask_hid_is_cleaned(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its owner, who may not open a file of mode 0000; root could, so the open is refused."""
    storage.append("a", 1, b"one")
    hidden = root / ".tmp" / ("a" * 32)
    hidden.touch(mode=0)
    real = os.open

    def refuse(path: Any, *args: Any, **kwargs: Any) -> int:
        if path == hidden.name:
            raise PermissionError(errno.EACCES, "denied")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    FileCheckpointStorage(root)
    assert list((root / ".tmp").iterdir()) == []


def test_a_temp_that_was_taken_for_a_left_over_is_written_again(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process starts in the moment between create and lock, and cleans."""
    real, calls, cleaning = _posix.try_lock, [], False

    def try_lock(fd: int, **shared: bool) -> bool:
        nonlocal cleaning
        if not cleaning and not shared:
            calls.append(fd)
            if len(calls) <= lost:
                cleaning = True
                FileCheckpointStorage(root)
                cleaning = False
        return real(fd, **shared)

    monkeypatch.setattr(_posix, "try_lock", try_lock)
    lost = 2
    storage.append("a", 1, b"one")
    assert (len(calls), storage.read("a", 1)) == (3, b"one")
    lost = 100
    with pytest.raises(StorageUnavailable) as caught:
        storage.append("a", 2, b"two")
    assert str(caught.value) == (
        f"Something interferes with the files in {root}/.tmp, so nothing was saved. "
        "Find out what it is, and keep it away from the folder."
    )
    assert (storage.head("a"), len(calls)) == (1, 8)


def test_a_stolen_lock_does_not_hang_the_writer(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can open the temps could hold one for ever; nothing waits for it."""
    monkeypatch.setattr(_posix, "try_lock", lambda _: False)
    with pytest.raises(StorageUnavailable, match="nothing was saved"):
        storage.append("a", 1, b"one")
    assert list((root / ".tmp").iterdir()) == []


def test_a_temp_that_cannot_be_removed_is_no_alarm(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record stands, is read although it has two names, and the next start cleans."""
    with monkeypatch.context() as patch:
        fail(patch, "unlink", errno.EIO)
        storage.append("a", 1, b"one")
    record = root / "a/0000000001.checkpoint"
    assert record.stat().st_nlink == 2
    assert storage.read("a", 1) == b"one"
    FileCheckpointStorage(root)
    assert record.stat().st_nlink == 1
    assert storage.read("a", 1) == b"one"
