"""The file storage: what it keeps, where, and what it refuses. The rest is in the storage suite."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint.core.errors import Conflict, RolledBack, SealBroken, Unavailable, Unsafe
from safepoint.core.names import MAX_SEQUENCE
from safepoint.core.storage import CheckpointStorage, Lease, LeasingStorage
from safepoint.stores.files import FileCheckpointStorage, ThreadFolder
from tests.unit.storage_helpers import every_look, fill, planted, python, tree

NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def storage(root: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(root, clock=lambda: NOW)


def file(root: Path, sequence: int) -> Path:
    return root / f"a/{sequence:010d}.checkpoint"


@pytest.mark.parametrize("mask", [0, 0o022, 0o777])
def test_the_layout_is_one_private_file_per_checkpoint_whatever_the_umask(
    root: Path, tmp_path: Path, mask: int
) -> None:
    """Also below a folder that passes its group on: there the system adds a bit of its own."""
    tmp_path.chmod(0o2700)
    before = os.umask(mask)
    try:
        storage: CheckpointStorage = FileCheckpointStorage(str(root))
        storage.append("a", 1, b"one")
        storage.append("a", 2, b"two")
        leasing: LeasingStorage = FileCheckpointStorage(root, clock=lambda: NOW)
        lease = leasing.acquire("a", "worker-a", 60)
    finally:
        os.umask(before)
    assert {name: stat.S_IMODE((root / name).stat().st_mode) for name in [".", *tree(root)]} == {
        ".": 0o700,
        "a": 0o700,
        "a/0000000001.checkpoint": 0o600,
        "a/0000000002.checkpoint": 0o600,
        "a/lease": 0o600,
    }
    assert file(root, 2).read_bytes() == b"two"
    text = root / "a/lease"
    assert text.read_text() == "safepoint-lease/1 1 worker-a 2026-01-31T09:31:00.000000Z\n"
    leasing.release(lease)
    assert text.read_text() == "safepoint-lease/1 1 - -\n"
    assert repr(storage) == f"FileCheckpointStorage({str(root)!r})"


def test_elsewhere_it_says_so_in_one_sentence(tmp_path: Path) -> None:
    """On a system without these calls the package imports, and the storage points to another."""
    code = """
        import os, sys
        sys.platform = "win32"
        sys.modules["fcntl"] = None
        os.supports_dir_fd = set()
        for name in ("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC", "geteuid", "fchmod"):
            delattr(os, name)
        from safepoint.stores.files import FileCheckpointStorage
        from safepoint.core.errors import Unavailable
        try:
            FileCheckpointStorage(sys.argv[1])
        except Unavailable as error:
            print(error)
    """
    says = "This needs a POSIX system: Linux or macOS. On Windows, use WSL."
    assert python(code, str(tmp_path / "store")) == says
    assert not (tmp_path / "store").exists()


# --- the head


class Numbers(ThreadFolder):
    """Numbers that stand for records. At the n-th question whether one exists, `event` happens."""

    def __init__(self, numbers: Iterable[int], begin: int = 0) -> None:
        super().__init__("/s/a", "a", -1, -1, 0)
        self.there = set(numbers)
        self.begins = begin
        self.asked = self.at = 0
        self.event: Callable[[], None] = lambda: None

    def exists(self, sequence: int) -> bool:
        self.asked += 1
        if self.asked == self.at:
            self.event()
        return sequence in self.there

    def first(self) -> int:
        return self.begins

    def numbers(self) -> Any:
        return iter(self.there)

    def cut(self, first: int) -> None:
        self.begins = first
        self.there = {number for number in self.there if number >= first}


@given(st.integers(1, 3000), st.integers(0, 5000), st.data())
def test_the_head_is_found_from_any_start_and_past_any_left_overs(
    head: int, start: int, data: st.DataObject
) -> None:
    """After a power loss any of the files that a prune removed may be back."""
    assert Numbers(range(1, head + 1)).head(start) == head
    first = data.draw(st.integers(1, head))
    left = data.draw(st.sets(st.integers(1, first)))
    assert Numbers({*left, *range(first, head + 1)}, first).head(start) == head
    thread = Numbers(range(MAX_SEQUENCE - head, MAX_SEQUENCE + 1), MAX_SEQUENCE - head)
    assert thread.head(0) == MAX_SEQUENCE


def test_a_save_or_prune_while_the_head_is_looked_for_is_no_gap() -> None:
    """At each possible moment. A head below the true one would be a rollback."""
    for at in range(1, 60):
        thread = Numbers(range(1, 10))
        thread.at, thread.event = at, partial(thread.there.update, {10, 11})
        assert thread.head(0) in (9, 10, 11)
        for start in (0, 3, 37, 100):
            for first in (2, 38, 64, 99, 100):
                thread = Numbers(range(1, 101))
                thread.at, thread.event = at, partial(thread.cut, first)
                assert thread.head(start) == 100


@pytest.mark.parametrize("removed", range(1, 40))
def test_one_missing_record_never_makes_an_older_one_the_head(removed: int) -> None:
    """Whatever the search happens to ask: the newest is found, or the gap is."""
    try:
        found = str(Numbers({*range(1, 42)} - {removed}).head(0))
    except RolledBack as refusal:
        found = refusal.what
    assert found == "41" or found.endswith(f"but not {removed}.")
    first = min(removed, 20)
    for kept in (set(), {*range(21, 30)}, {*range(1, 15)}):
        with pytest.raises(RolledBack, match=f"begin at checkpoint {first}, and that one is"):
            Numbers(kept - {first}, first).head(0)


# --- appending


def test_a_save_goes_behind_the_last_one(storage: FileCheckpointStorage, root: Path) -> None:
    """Not where one went, be it the only one: that save had failed."""
    storage.append("a", 1, b"one")
    file(root, 3).touch(0o600)
    with pytest.raises(RolledBack, match="has checkpoint 3 but not 2"):
        storage.append("a", 2, b"")
    file(root, 3).unlink()
    file(root, 1).unlink()
    with pytest.raises(Conflict, match="is at checkpoint 0, so 2 does not follow"):
        storage.append("a", 2, b"")
    assert tree(root) == ["a"]


def test_a_save_syncs_the_record_its_name_and_the_first_time_the_folder(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the folder was there before: whoever made it may have died before the sync."""
    synced: list[str] = []
    real = os.fsync
    (root / "a").mkdir(mode=0o700)
    kinds = {root.stat().st_ino: "store", (root / "a").stat().st_ino: "thread"}

    def fsync(fd: int) -> None:
        synced.append(kinds.get(os.fstat(fd).st_ino, "file"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    storage.append("a", 1, b"one")
    assert synced == ["store", "file", "thread"]
    for write, expected in (
        (lambda: storage.append("a", 2, b"two"), ["file", "thread"]),
        (lambda: storage.prune("a", 2, b"base"), ["file", "thread", "thread"]),
        (lambda: storage.acquire("a", "worker-a", 60), ["store", "file", "thread"]),
        (lambda: storage.acquire("a", "worker-a", 60), ["file", "thread"]),
    ):
        synced.clear()
        write()
        assert synced == expected


# --- pruning


MALFORMED_BASES = [b"", b"20\n", b"0000000020\r\n", b"0000000000\nbase", b"0_00000020\nbase"]


@pytest.mark.parametrize("content", MALFORMED_BASES, ids=repr)
def test_a_malformed_base_is_never_ignored(
    storage: FileCheckpointStorage, root: Path, content: bytes
) -> None:
    """By no method; and nothing is written or removed on its word."""
    fill(storage, root, 9)
    base = root / "a/base"
    base.touch(mode=0o600)
    base.write_bytes(content)
    before = tree(root)
    for call in every_look(storage):
        with pytest.raises(SealBroken, match="does not say at which checkpoint"):
            call()
    assert (tree(root), storage.threads()) == (before, ["a"])


@pytest.mark.parametrize("kind", ["link", "mode"])
@pytest.mark.parametrize("name", ["base", "lease"])
def test_a_file_that_others_could_write_is_refused_wherever_it_counts(
    storage: FileCheckpointStorage, root: Path, tmp_path: Path, name: str, kind: str
) -> None:
    fill(storage, root, 9)
    said = planted(kind, root / "a" / name, tmp_path / "outside")
    before = tree(root)
    for call in every_look(storage) if name == "base" else every_write(storage, 10):
        with pytest.raises(Unsafe, match=f"{root}/a/{name} {said}"):
            call()
    assert tree(root) == before


# --- the file of a lease


def every_write(storage: FileCheckpointStorage, sequence: int) -> list[Callable[[], object]]:
    lease = Lease("a", "worker-a", 1, NOW)
    return [
        lambda: storage.append("a", sequence, b"two"),
        lambda: storage.append("a", sequence, b"two", fence=1),
        lambda: storage.acquire("a", "worker-a", 60),
        lambda: storage.renew(lease, 60),
        lambda: storage.release(lease),
        lambda: storage.lease("a"),
    ]


UNTIL = b"2026-01-31T09:31:00.000000Z"
MALFORMED_LEASES = [
    b"",
    *(b"safepoint-lease/1 " + rest for rest in (b"1 - -\r\n", b"0 - -\n", b"1_0 - -\n")),
    *(b"safepoint-lease/1 1 %b" % who for who in (b"worker-a -\n", b"- %b\n" % UNTIL)),
    b"safepoint-lease/1 1 W %b\n" % UNTIL,
    b"safepoint-lease/1 1 a %b\n" % UNTIL.replace(b"01-31", b"02-30"),
    b"safepoint-lease/2 1 - -\n",
    b"safepoint-lease/1 1 - -\n" + bytes(4_000_000),
]


@pytest.mark.parametrize("text", MALFORMED_LEASES, ids=lambda text: repr(text[:64]))
def test_a_malformed_lease_is_refused_and_nothing_is_saved(
    storage: FileCheckpointStorage, root: Path, text: bytes
) -> None:
    storage.append("a", 1, b"one")
    lease = root / "a/lease"
    lease.touch(mode=0o600)
    lease.write_bytes(text)
    for write in every_write(storage, 2):
        with pytest.raises(Unavailable, match="does not say who owns its thread"):
            write()
    assert (tree(root), lease.read_bytes()) == (["a", str(file(root, 1))[len(str(root)) + 1 :],
                                                "a/lease"], text)  # fmt: skip
    assert (storage.head("a"), storage.read("a", 1), storage.prune("a", 1, b"")) == (1, b"one", 0)
    lease.unlink()
    storage.append("a", 2, b"two")
