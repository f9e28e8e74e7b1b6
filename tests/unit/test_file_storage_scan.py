"""Reading many records with few calls, and with the same refusals."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from safepoint.errors import (
    LimitExceeded,
    StorageUnavailable,
    UnsafeLocation,
)
from safepoint.names import Limits
from safepoint.storage import FileCheckpointStorage
from tests.unit.storage_helpers import (
    fail,
    fill,
    planted,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def storage(root: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(root)


def test_a_scan_asks_the_system_four_times_for_a_record(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(storage, root, 9)
    calls: list[str] = []

    def count(name: str) -> None:
        real = getattr(os, name)

        def step(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return real(*args, **options)

        monkeypatch.setattr(os, name, step)

    for name in ("open", "fstat", "stat", "read", "close", "scandir", "listdir"):
        count(name)
    records = storage.scan("a", 1, 9)
    next(records)
    calls.clear()
    for _ in range(7):
        next(records)
    assert calls == ["open", "fstat", "read", "close"] * 7


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "second name", "mode", "owner"])
def test_a_scan_refuses_what_a_read_refuses(
    storage: FileCheckpointStorage,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    fill(storage, root, 3)
    record = root / "a/0000000002.checkpoint"
    record.unlink()
    message = planted(kind, record, tmp_path / "outside", monkeypatch)
    records = storage.scan("a", 1, 3)
    assert next(records) == b"record 1"
    with pytest.raises(UnsafeLocation, match=message) as scanned:
        next(records)
    with pytest.raises(UnsafeLocation) as read:
        storage.read("a", 2)
    assert str(scanned.value) == str(read.value)


def test_a_scan_stops_at_a_record_over_the_limit(root: Path) -> None:
    FileCheckpointStorage(root).append("a", 1, b"x" * 4097)
    storage = FileCheckpointStorage(root, limits=Limits(state_bytes=0))
    with pytest.raises(LimitExceeded, match="has 4097 bytes or more, and the limit is 4096"):
        next(storage.scan("a", 1, 1))


def test_a_disk_that_fails_under_a_scan_is_said_in_our_words(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(storage, root, 3)
    records = storage.scan("a", 1, 3)
    next(records)
    fail(monkeypatch, "read", errno.EIO)
    with pytest.raises(StorageUnavailable, match=r"could not read from .* \(EIO\)"):
        next(records)
