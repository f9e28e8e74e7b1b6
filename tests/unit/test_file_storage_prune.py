"""What `prune` does to the files of a thread, at each step and beside other processes."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint import _files as _posix
from safepoint.errors import (
    CheckpointError,
    Conflict,
    NotFound,
    StorageError,
    StorageFull,
    StorageUnavailable,
)
from safepoint.storage import FileCheckpointStorage
from tests.unit.storage_helpers import (
    descriptors,
    every_look,
    fail,
    fill,
    folder,
    plant,
    python,
    tree,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def storage(root: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(root)


def test_the_base_is_one_private_file_beside_the_records(
    storage: FileCheckpointStorage, root: Path
) -> None:
    fill(storage, root, 22)
    storage.prune("a", 20, b"line\nrecord")
    assert tree(root) == [".tmp", "a", *(f"a/{n:010d}.checkpoint" for n in (20, 21, 22)), "a/base"]
    base = root / "a/base"
    assert base.read_bytes() == b"0000000020\nline\nrecord"
    assert stat.S_IMODE(base.stat().st_mode) == 0o600
    assert base.stat().st_nlink == 1


def test_what_is_pruned_is_pruned_for_each_process(
    storage: FileCheckpointStorage, root: Path
) -> None:
    """One that has looked before, and one that starts now."""
    fill(storage, root, 9)
    other = FileCheckpointStorage(root)
    assert other.head("a") == 9
    storage.prune("a", 7, b"base")
    for reader in (other, FileCheckpointStorage(root)):
        assert (reader.head("a"), reader.base("a")) == (9, (7, b"base"))
        with pytest.raises(NotFound, match="was pruned; the thread begins at 7 now"):
            reader.read("a", 6)
    other.append("a", 10, b"ten")
    assert storage.head("a") == 10


@pytest.mark.parametrize("seed", range(8))
def test_left_overs_are_seen_by_nobody_and_go_with_the_next_prune(
    storage: FileCheckpointStorage, root: Path, seed: int
) -> None:
    """After a power loss any subset of what was removed may be back."""
    fill(storage, root, 40)
    storage.prune("a", 30, b"base")
    back = random.Random(seed).sample(range(1, 30), 3 * seed + 1)  # noqa: S311 - not a secret
    for sequence in back:
        plant(root, sequence)
    for reader in (storage, FileCheckpointStorage(root)):
        assert (reader.head("a"), reader.threads()) == (40, ["a"])
        for sequence in back:
            with pytest.raises(NotFound, match=f"{sequence} of thread 'a' was pruned"):
                reader.read("a", sequence)
            with pytest.raises(NotFound, match=f"{sequence} of thread 'a' was pruned"):
                list(reader.scan("a", sequence, 40))
            with pytest.raises(Conflict, match="begins at 30 by now"):
                reader.append("a", sequence, b"late")
    assert storage.prune("a", 5, b"ignored") == len(back)
    assert storage.base("a") == (30, b"base")
    assert len(tree(root)) == 2 + 11 + 1
    assert list(storage.scan("a", 30, 40)) == [b"record %d" % n for n in range(30, 41)]


def test_the_base_is_on_disk_before_a_record_goes(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Synced, renamed, and the folder synced; then the removals, and the folder once more."""
    fill(storage, root, 4)
    steps: list[str] = []

    def watch(name: str) -> None:
        real = getattr(os, name)

        def step(*args: Any, **options: Any) -> Any:
            known = {(root / "a").stat().st_ino: "folder"}
            what = known.get(os.fstat(args[0]).st_ino, "file") if name == "fsync" else args[-1]
            done = real(*args, **options)
            steps.append(f"{name} {what}")
            return done

        monkeypatch.setattr(os, name, step)

    for name in ("fsync", "rename", "unlink"):
        watch(name)
    storage.prune("a", 3, b"base")
    steps = [step for step in steps if len(step) < 30 or not step.startswith("unlink")]
    assert steps[:3] == ["fsync file", "rename base", "fsync folder"]
    assert sorted(steps[3:-1]) == [f"unlink {n:010d}.checkpoint" for n in (1, 2)]
    assert steps[-1] == "fsync folder"


def test_a_base_is_written_again_before_left_overs_go(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote it may have died before the disk had it. Without left-overs nothing is done."""
    fill(storage, root, 4)
    storage.prune("a", 3, b"base")
    before = (root / "a/base").stat().st_ino
    with monkeypatch.context() as patch:
        seen = fail(patch, "fsync", errno.EIO)
        assert storage.prune("a", 3, b"base") == 0
        assert not seen
        plant(root, 2)
        with pytest.raises(StorageUnavailable):
            storage.prune("a", 3, b"base")
        assert (root / "a/0000000002.checkpoint").exists()
    assert storage.prune("a", 3, b"base") == 1
    assert storage.base("a") == (3, b"base")
    assert (root / "a/base").stat().st_ino != before


def test_a_base_that_takes_the_place_of_another_is_on_disk_or_not_there(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one or the new one, whole; and none before a record that is gone."""
    fill(storage, root, 4)
    storage.prune("a", 3, b"base")
    with monkeypatch.context() as patch:
        fail(patch, "fsync", errno.EIO)
        with pytest.raises(StorageUnavailable):
            storage.prune("a", 3, b"other")
    assert storage.base("a") == (3, b"base")
    assert storage.prune("a", 3, b"other") == 0
    assert FileCheckpointStorage(root).base("a") == (3, b"other")
    (root / "a/0000000003.checkpoint").unlink()
    with pytest.raises(NotFound):
        storage.prune("a", 3, b"third")
    assert storage.base("a") == (3, b"other")


STEPS = ["open", "stat", "fstat", "fchmod", "write", "fsync", "rename", "unlink", "scandir"]


@pytest.mark.parametrize("name", STEPS)
def test_a_prune_that_fails_at_any_step_loses_nothing_and_can_be_tried_again(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each call of each kind fails once: the old base with all records, or the new one."""
    failures = 0
    for on in range(1, 30):
        thread = f"t{on}"
        fill(storage, root, 9, thread)
        storage.prune(thread, 3, b"old")
        done = False
        with monkeypatch.context() as patch:
            fail(patch, name, errno.EIO, on, once=True)
            try:
                storage.prune(thread, 6, b"new")
                done = True
            except StorageUnavailable as error:
                failures += 1
                assert error.what == f"The system could not prune {root} (EIO)."  # noqa: PT017
        for reader in (storage, FileCheckpointStorage(root)):
            base = reader.base(thread)
            assert base in [(3, b"old"), (6, b"new")]
            assert base is not None
            assert reader.head(thread) == 9
            kept = [b"record %d" % number for number in range(base[0], 10)]
            assert list(reader.scan(thread, base[0], 9)) == kept
            assert base[0] == 6 or not done
        storage.prune(thread, 6, b"new")
        assert len(list((root / thread).iterdir())) == 5
        assert list((root / ".tmp").iterdir()) == []
        if done and on > failures + 1:  # a failure that was passed over, and then none
            break
    assert failures >= 1


def test_a_full_disk_stops_a_prune_before_anything_goes(
    storage: FileCheckpointStorage, root: Path
) -> None:
    """RLIMIT_FSIZE makes the kernel write 20,000 of 50,000 bytes of the base, then refuse."""
    fill(storage, root, 9)
    before = tree(root)
    code = """
        import resource, sys
        from safepoint.errors import StorageFull
        from safepoint.storage import FileCheckpointStorage
        storage = FileCheckpointStorage(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            storage.prune("a", 5, b"x" * 50_000)
        except StorageFull as error:
            print(storage.head("a"), error.what)
    """
    assert python(code, str(root)) == f"9 There is no room left for {root} (EFBIG)."
    assert tree(root) == before
    assert issubclass(StorageFull, StorageError)


def test_nobody_waits_for_ever_for_the_lock(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safepoint.storage._lock._PATIENCE", 0.02)
    fill(storage, root, 9)
    before = tree(root)
    with folder(root / "a") as held:
        assert _posix.try_lock(held)
        with pytest.raises(StorageUnavailable) as refusal:
            storage.prune("a", 5, b"base")
        assert str(refusal.value) == (
            f"Another process has held the lock on {root}/a for 0.02 s."
            f" Find it, let it end, and try again: fuser -v {root}/a"
        )
        assert tree(root) == before
        with pytest.raises(StorageUnavailable) as refusal:
            storage.append("a", 10, b"ten")
        assert str(refusal.value) == (
            f"Another process has held the lock on {root}/a for 0.02 s."
            f" Find it, let it end, and try again: fuser -v {root}/a"
        )
        assert tree(root) == before
        assert (storage.head("a"), storage.read("a", 1)) == (9, b"record 1"), "a read needs none"
    storage.append("a", 10, b"ten")
    assert storage.prune("a", 5, b"base") == 4


def test_saves_share_the_lock(storage: FileCheckpointStorage, root: Path) -> None:
    """Several at once do not wait for each other; the link decides between them."""
    fill(storage, root, 9)
    with folder(root / "a") as held:
        assert _posix.try_lock(held, shared=True)
        storage.append("a", 10, b"ten")
    assert storage.head("a") == 10


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_refused(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    fill(storage, root, 9)
    before = tree(root)

    def refuse(fd: int, patience: float, *, shared: bool = False) -> bool:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(_posix, "wait_for_lock", refuse)
    for change in (
        lambda: storage.append("a", 10, b"ten"),
        lambda: storage.prune("a", 5, b"base"),
        lambda: storage.acquire("a", "worker-a", 60),
    ):
        with pytest.raises(StorageUnavailable) as refusal:
            change()
        assert str(refusal.value) == (
            f"The file system of {root}/a cannot lock a folder."
            " Name a folder on a local file system such as ext4, XFS or APFS."
        )
    assert tree(root) == before


def test_a_lock_that_fails_for_another_reason_is_no_question_of_the_file_system(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, patience: float, *, shared: bool = False) -> bool:
        raise OSError(errno.EIO, "failed")

    monkeypatch.setattr(_posix, "wait_for_lock", refuse)
    with pytest.raises(StorageUnavailable) as refusal:
        storage.append("a", 1, b"one")
    assert str(refusal.value) == (
        f"The system could not save to {root} (EIO), so nothing was saved."
        " Look at the system's log for the cause before you try again."
    )


def test_a_forked_child_does_not_keep_the_lock(storage: FileCheckpointStorage, root: Path) -> None:
    """It holds what its parent had open, for as long as it lives."""
    fill(storage, root, 9)
    code = """
        import os, signal, sys
        from safepoint.storage import FileCheckpointStorage, _lock
        _lock._PATIENCE = 5.0
        storage, children = FileCheckpointStorage(sys.argv[1]), []
        real = os.rename
        def rename(*args, **options):
            child = os.fork()
            if not child:
                signal.pause()
            children.append(child)
            real(*args, **options)
        os.rename = rename
        try:
            print(storage.prune("a", 5, b"base"), storage.prune("a", 7, b"base"))
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
    """
    assert python(code, str(root)) == "4 2"


def test_a_save_that_is_overtaken_by_a_prune_is_told(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is taken, and pruned, and free again, all while it writes: it must not count."""
    storage.append("a", 1, b"one")
    other = FileCheckpointStorage(root)
    real = os.write

    def write(*args: Any) -> int:
        monkeypatch.undo()
        other.append("a", 2, b"theirs")
        other.append("a", 3, b"three")
        other.prune("a", 3, b"base")
        return real(*args)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(Conflict, match="had a checkpoint 2, and begins at 3 by now"):
        storage.append("a", 2, b"ours")
    assert tree(root) == [".tmp", "a", "a/0000000003.checkpoint", "a/base"]
    assert storage.head("a") == 3


def test_a_pruned_thread_can_be_copied(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first record goes to a new thread, then its base; the name of the folder is synced."""
    synced: list[int] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    storage.append("a", 20, b"twenty")
    assert synced[0] == root.stat().st_ino
    assert storage.read("a", 20) == b"twenty"
    assert storage.prune("a", 20, b"base") == 0
    synced.clear()
    storage.append("a", 21, b"next")
    assert root.stat().st_ino not in synced
    assert (storage.head("a"), storage.base("a")) == (21, (20, b"base"))


def test_a_temp_that_was_taken_for_a_left_over_is_written_again(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(storage, root, 9)
    real, lost = os.rename, 2

    def rename(source: Any, *args: Any, **options: Any) -> None:
        nonlocal lost
        if lost:
            lost -= 1
            (root / ".tmp" / source).unlink()
        real(source, *args, **options)

    monkeypatch.setattr(os, "rename", rename)
    assert storage.prune("a", 5, b"base") == 4
    lost = 100
    with pytest.raises(StorageUnavailable) as refusal:
        storage.prune("a", 6, b"base")
    assert refusal.value.what == (
        f"Something interferes with the files in {root}/.tmp, so nothing was pruned."
    )
    assert storage.base("a") == (5, b"base")


def test_no_file_stays_open(storage: FileCheckpointStorage, root: Path) -> None:
    """After work of every kind, refused work and a scan that nobody finished included."""
    fill(storage, root, 9)
    before = descriptors()
    storage.prune("a", 3, b"base")
    storage.base("a")
    list(storage.scan("a", 3, 9))
    records = storage.scan("a", 3, 9)
    next(records)
    assert descriptors() == before + 2
    del records
    refused: list[Callable[[], object]] = [
        lambda: storage.prune("a", 20, b""),
        lambda: storage.prune("b", 1, b""),
        lambda: list(storage.scan("a", 1, 9)),
        lambda: list(storage.scan("a", 9, 11)),
        lambda: list(storage.scan("b", 1, 1)),
    ]
    for call in refused:
        with pytest.raises(CheckpointError):
            call()
    (root / "a/base").write_bytes(b"")
    for call in every_look(storage):
        with pytest.raises(CheckpointError):
            call()
    assert descriptors() == before
