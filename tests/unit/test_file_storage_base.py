"""The file that says where a thread begins: malformed, planted, too large, or gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from safepoint.errors import (
    LimitExceeded,
    RecordMalformed,
    RecordsMissing,
    UnsafeLocation,
)
from safepoint.names import Limits
from safepoint.storage import FileCheckpointStorage
from tests.unit.storage_helpers import (
    every_look,
    fill,
    planted,
    tree,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def storage(root: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(root)


MALFORMED = [
    b"",
    b"\n",
    b"20\n",
    b"0000000020",
    b"0000000020\r\n",
    b"0000000000\nbase",
    b"000000002x\nbase",
    b" 000000020\nbase",
    b"+000000020\nbase",
    b"00000000020\nbase",
    b"0_00000020\nbase",
    "\u0660\u0660\u0660\u0660\u0660\u0660\n".encode(),
    b"safepoint/1 0123456789abcdef\n{}",
    b"\0" * 100,
]


@pytest.mark.parametrize("content", MALFORMED, ids=repr)
def test_a_malformed_base_is_never_ignored(
    storage: FileCheckpointStorage, root: Path, content: bytes
) -> None:
    """By no method; and nothing is written or removed on its word."""
    fill(storage, root, 9)
    base = root / "a/base"
    base.write_bytes(content)
    base.chmod(0o600)
    before = tree(root)
    for call in every_look(storage):
        with pytest.raises(RecordMalformed) as refusal:
            call()
        assert str(refusal.value) == (
            f"{base} does not say at which checkpoint its thread begins."
            " It was not written by prune. Put it back from a backup; until then nothing of the"
            " thread is loaded or saved."
        )
    assert tree(root) == before
    assert storage.threads() == ["a"]


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "second name", "mode", "owner"])
def test_a_base_that_others_could_write_is_refused(
    storage: FileCheckpointStorage,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    fill(storage, root, 9)
    message = planted(kind, root / "a/base", tmp_path / "outside", monkeypatch)
    before = tree(root)
    for call in every_look(storage):
        with pytest.raises(UnsafeLocation, match=f"{root}/a/base {message}"):
            call()
    assert tree(root) == before


def test_a_base_over_the_limit_is_neither_written_nor_read(root: Path) -> None:
    storage = FileCheckpointStorage(root, limits=Limits(state_bytes=0))
    fill(storage, root, 9)
    with pytest.raises(LimitExceeded, match="has 4097 bytes or more, and the limit is 4096"):
        storage.prune("a", 5, b"x" * 4097)
    assert storage.base("a") is None
    assert storage.prune("a", 5, b"x" * 4096) == 4
    assert storage.base("a") == (5, b"x" * 4096)
    FileCheckpointStorage(root).prune("a", 6, b"x" * 4097)
    for call in every_look(storage):
        with pytest.raises(LimitExceeded, match=r"a/base has 4108 bytes or more"):
            call()


def test_a_base_that_is_removed_leaves_no_empty_thread(
    storage: FileCheckpointStorage, root: Path
) -> None:
    """Nor can the thread be begun anew: it is refused as a gap."""
    fill(storage, root, 22)
    storage.prune("a", 20, b"base")
    (root / "a/base").unlink()
    for reader in (storage, FileCheckpointStorage(root)):
        with pytest.raises(RecordsMissing, match=r"has checkpoint \d+ but not 1\."):
            reader.head("a")


def test_a_thread_of_which_the_base_alone_is_left_is_listed_and_refused(
    storage: FileCheckpointStorage, root: Path
) -> None:
    fill(storage, root, 2)
    storage.prune("a", 2, b"base")
    (root / "a/0000000002.checkpoint").unlink()
    assert storage.threads() == ["a"]
    with pytest.raises(RecordsMissing, match="was pruned to begin at checkpoint 2"):
        storage.head("a")
