from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint.errors import (
    CheckpointError,
    Conflict,
    EncodeError,
    InvalidId,
    LimitExceeded,
    NotFound,
    RecordsMissing,
    StorageFull,
    StorageUnavailable,
)
from safepoint.ids import MAX_SEQUENCE
from safepoint.limits import Limits
from safepoint.storage import CheckpointStorage, FileCheckpointStorage, _posix
from safepoint.storage._head import highest
from safepoint.storage.file import _find_head


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


def python(code: str, *arguments: str) -> str:
    """Run code in a process of its own; its last line of output comes back."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


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
    assert len(asked) == 5
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


def test_there_is_no_default_path() -> None:
    nothing: Any = FileCheckpointStorage
    with pytest.raises(TypeError, match="storage_path"):
        nothing()


def descriptors() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


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


@given(st.integers(0, 3000), st.integers(0, 5000))
def test_the_head_is_found_from_any_start(head: int, start: int) -> None:
    assert highest(lambda number: 1 <= number <= head, start) == head


def test_the_head_is_found_up_to_the_last_sequence() -> None:
    for head in (MAX_SEQUENCE - 1, MAX_SEQUENCE):
        assert highest(lambda number: number <= head) == head  # noqa: B023 - used at once


def count_stats(
    monkeypatch: pytest.MonkeyPatch, storage: FileCheckpointStorage, records: int
) -> tuple[int, int]:
    """Let the thread seem to have that many records; count the names asked, cold and warm."""
    real, asked = os.stat, []

    def fake(path: Any, **options: Any) -> os.stat_result:
        if not str(path).endswith(".checkpoint"):
            return real(path, **options)
        asked.append(path)
        if int(str(path).removesuffix(".checkpoint")) > records:
            raise FileNotFoundError
        return real(".")

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", fake)
        assert storage.head("a") == records
        cold = len(asked)
        assert storage.head("a") == records
    return cold, len(asked) - cold


def test_finding_the_head_does_not_grow_with_the_thread(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten or a hundred thousand records: three names once known, a few at first, no listing."""

    def never(*_: Any) -> None:
        raise AssertionError("the head was found by listing or reading")

    monkeypatch.setattr(os, "scandir", never)
    monkeypatch.setattr(os, "listdir", never)
    monkeypatch.setattr(os, "read", never)
    (root / "a").mkdir(parents=True, mode=0o700)
    root.chmod(0o700)
    few = count_stats(monkeypatch, FileCheckpointStorage(root), 10)
    many = count_stats(monkeypatch, FileCheckpointStorage(root), 100_000)
    assert few[1] == many[1] == 3
    assert few[0] <= 8 + 33
    assert many[0] <= 34 + 33


@pytest.mark.parametrize("removed", [[1], [3], [2, 3], [1, 2, 3, 4], [7], [4, 5, 6, 7]])
def test_a_record_removed_from_the_middle_is_noticed(
    storage: FileCheckpointStorage, root: Path, removed: list[int]
) -> None:
    """Neither an older head nor a save into the gap: both would lose what came after it."""
    for sequence in range(1, 10):
        storage.append("a", sequence, b"")
    for sequence in removed:
        (root / f"a/{sequence:010d}.checkpoint").unlink()
    with pytest.raises(RecordsMissing) as refusal:
        FileCheckpointStorage(root).head("a")
    assert re.fullmatch(
        rf"Thread 'a' has checkpoint \d but not {removed[0]}\. Somebody removed it\. "
        r"Put it back from a backup; until then nothing is loaded or saved\.",
        str(refusal.value),
    )


@pytest.mark.parametrize("removed", range(1, 40))
def test_one_missing_record_never_makes_an_older_one_the_head(
    storage: FileCheckpointStorage, root: Path, removed: int
) -> None:
    """Whatever the search happens to ask: the newest is found, or the gap is."""
    (root / "a").mkdir(mode=0o700)
    for sequence in range(1, 42):
        (root / f"a/{sequence:010d}.checkpoint").touch(mode=0o600)
    (root / f"a/{removed:010d}.checkpoint").unlink()
    try:
        found = str(storage.head("a"))
    except RecordsMissing as refusal:
        found = refusal.what
    assert found == "41" or found.endswith(f"but not {removed}.")


def test_records_saved_while_the_head_is_looked_for_are_no_gap() -> None:
    """Two appear between the question for one and the question for the next."""
    there = {1, 2}

    def exists(number: int) -> bool:
        found = number in there
        if number == 3 and not found:
            there.update({3, 4})
        return found

    assert _find_head("a", exists, 0) == 4


def test_a_head_that_moved_back_is_seen(storage: FileCheckpointStorage, root: Path) -> None:
    """What is remembered is only where to begin: the ledger must see a store that was cut."""
    for sequence in range(1, 8):
        storage.append("a", sequence, b"")
    assert storage.head("a") == 7
    for sequence in (5, 6, 7):
        (root / f"a/{sequence:010d}.checkpoint").unlink()
    assert storage.head("a") == 4
    (root / "a").rename(root / "b")
    assert (storage.head("a"), storage.head("b")) == (0, 4)


def test_what_is_remembered_is_bounded(
    storage: FileCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safepoint.storage.file._REMEMBERED", 3)
    for number in range(10):
        storage.head(f"t{number}")
    assert len(storage._heads) <= 3


def fail(monkeypatch: pytest.MonkeyPatch, name: str, code: int, on: int = 1) -> list[int]:
    """Let the n-th call of os.<name> fail from now on; return the list of calls seen."""
    real: Callable[..., Any] = getattr(os, name)
    seen: list[int] = []

    def step(*args: Any, **kwargs: Any) -> Any:
        seen.append(len(seen))
        if len(seen) >= on:
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, step)
    return seen


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


def test_a_record_that_cannot_be_withdrawn_is_not_called_unsaved(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.append("a", 1, b"one")
    fail(monkeypatch, "fsync", errno.EIO, 2)
    fail(monkeypatch, "unlink", errno.EIO, 2)
    with pytest.raises(StorageUnavailable) as caught:
        storage.append("a", 2, b"two")
    assert str(caught.value) == (
        f"{root}/a/0000000002.checkpoint was written, but the disk neither confirmed it nor let"
        " it go. Look at the system's log, and at the head of the thread, before you save again."
    )


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
        fail(patch, name, code, 4 if name == "open" else 1)
        with pytest.raises(StorageUnavailable, match=message):
            storage.append("a", 2, b"two")
    assert tree(root) == before
    assert storage.head("a") == 1


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

    def try_lock(fd: int) -> bool:
        nonlocal cleaning
        if not cleaning:
            calls.append(fd)
            if len(calls) <= lost:
                cleaning = True
                FileCheckpointStorage(root)
                cleaning = False
        return real(fd)

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


def test_a_save_into_a_gap_is_refused(storage: FileCheckpointStorage, root: Path) -> None:
    """It would be acknowledged, and then an older record would be the head."""
    for sequence in (1, 2, 3):
        storage.append("a", sequence, b"")
    (root / "a/0000000002.checkpoint").unlink()
    with pytest.raises(RecordsMissing, match=r"has checkpoint 3 but not 2\."):
        storage.append("a", 2, b"")
    with pytest.raises(Conflict):
        storage.append("a", 1, b"")


def test_a_thread_whose_first_record_is_gone_is_still_listed(
    storage: FileCheckpointStorage, root: Path
) -> None:
    storage.append("a", 1, b"")
    storage.append("a", 2, b"")
    (root / "a/0000000001.checkpoint").unlink()
    assert storage.threads() == ["a"]
    with pytest.raises(RecordsMissing):
        FileCheckpointStorage(root).head("a")


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
        "FileCheckpointStorage needs a POSIX system. Use the SQLite storage here once it is out,"
        " and InMemoryCheckpointStorage until then."
    )
    assert not (tmp_path / "store").exists()
