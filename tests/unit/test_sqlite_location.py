"""Where an SQLite database may be, and who may be able to write there."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from safepoint import SQLiteCheckpointStorage
from safepoint import _files as _posix
from safepoint.errors import CheckpointError, StorageUnavailable, UnsafeLocation
from tests.unit.storage_helpers import python, tree

BESIDE = ["-wal", "-shm", "-lock"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/checkpoints.db"


def said(error: type[CheckpointError], act: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        act()
    assert type(caught.value) is error
    return str(caught.value)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o377])
def test_everything_that_is_made_is_private_whatever_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with SQLiteCheckpointStorage(path) as storage:
            storage.append("a", 1, b"one")
            assert mode(path.parent) == 0o700
            names = ["", *BESIDE]
            assert {name: mode(Path(f"{path}{name}")) for name in names} == dict.fromkeys(
                names, 0o600
            )
            assert len(tree(path.parent)) == 4
    finally:
        os.umask(before)
    assert tree(path.parent) == [path.name, f"{path.name}-lock"]


def test_only_the_folder_itself_is_made(tmp_path: Path) -> None:
    missing = tmp_path / "no/state/checkpoints.db"
    assert said(StorageUnavailable, lambda: SQLiteCheckpointStorage(missing)) == (
        f"{tmp_path}/no does not exist. Run: mkdir -p -m 700 {tmp_path}/no"
    )


@pytest.mark.parametrize("name", ["", "..", "state", "state/.."])
def test_a_folder_is_no_database(tmp_path: Path, name: str) -> None:
    (tmp_path / "state").mkdir()
    named = tmp_path / name
    assert said(StorageUnavailable, lambda: SQLiteCheckpointStorage(named)) == (
        f"{named} is a folder, and a database is one file."
        f" Name a file in it: {named}/checkpoints.db"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "path is empty. Name a file: there is no default."),
        (None, "path is NoneType, not a path. Pass a str or a pathlib.Path that names a file."),
        (b"x", "path is bytes, not a path. Pass a str or a pathlib.Path that names a file."),
        (
            "a\0b",
            (
                "'a\\x00b' cannot be the path of a file."
                " Use at most 4095 bytes, no NUL character and no lone surrogate."
            ),
        ),
    ],
)
def test_what_is_no_path_is_refused(given: Any, message: str) -> None:
    assert said(StorageUnavailable, lambda: SQLiteCheckpointStorage(given)) == message


@pytest.mark.parametrize("given", [":memory:", Path(":memory:")])
def test_a_database_in_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    """It would be a file of that name."""
    monkeypatch.chdir(tmp_path)
    assert said(StorageUnavailable, lambda: SQLiteCheckpointStorage(given)) == (
        "':memory:' is no file, and this storage keeps its records in one."
        " Use InMemoryCheckpointStorage() for a test, or name a file."
    )
    assert tree(tmp_path) == []


@pytest.mark.parametrize(
    "given", ["file:x.db", "file:///tmp/x.db?mode=memory", "FILE:x.db", "sqlite:///x.db"]
)
def test_a_uri_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    """It would be a file of that name, or a folder."""
    monkeypatch.chdir(tmp_path)
    assert said(StorageUnavailable, lambda: SQLiteCheckpointStorage(given)) == (
        f"'{given}' is a URI, and this storage takes the path of a file."
        " Name the file itself: state/checkpoints.db"
    )
    assert tree(tmp_path) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc here")
@pytest.mark.parametrize("named", ["/proc/x/x.db", "/proc/x.db"])
def test_a_path_that_never_was_is_not_called_gone(named: str) -> None:
    """There is no backup of it. Root may write in that folder, and nothing can be made in it."""
    if os.geteuid():
        pytest.skip("another user is refused by the mode of the folder")
    assert said(StorageUnavailable, lambda: SQLiteCheckpointStorage(named)) == (
        f"{named} cannot be made there (ENOENT)."
        " Name a file in a folder where this user can make files."
    )


def test_a_folder_that_vanishes_while_it_is_opened_is_not_called_gone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_posix, "create_root", lambda _: None)
    assert said(StorageUnavailable, lambda: SQLiteCheckpointStorage(path)) == (
        f"{path} cannot be made there (ENOENT)."
        " Name a file in a folder where this user can make files."
    )


@pytest.mark.parametrize(
    "name", [":memory:", "file:x", "a b?mode=memory&x#y%41.db", "\u0436.db", "a\udcff"]
)
def test_no_name_means_anything_to_sqlite(tmp_path: Path, name: str) -> None:
    """Not a database in memory, not an option, not another file."""
    with SQLiteCheckpointStorage(tmp_path / "state" / name) as storage:
        storage.append("a", 1, b"one")
    assert tree(tmp_path) == ["state", f"state/{name}", f"state/{name}-lock"]
    assert (tmp_path / "state" / name).stat().st_size > 0


def test_a_place_of_others_is_refused(tmp_path: Path) -> None:
    """With the rules, and in the words, of the file storage."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert said(UnsafeLocation, lambda: SQLiteCheckpointStorage(shared / "x.db")) == (
        f"{shared} can be written by others (mode 0777). Run: chmod 700 {shared}"
    )
    assert said(UnsafeLocation, lambda: SQLiteCheckpointStorage(shared / "inner/x.db")) == (
        f"Every user can rename and replace what is inside {shared} (mode 0777)."
        f" Run: chmod o-w {shared}"
    )
    shared.chmod(0o1777)
    assert said(UnsafeLocation, lambda: SQLiteCheckpointStorage(shared / "x.db")) == (
        f"{shared} is shared by all users. Name a folder of your own, such as {shared}/checkpoints:"
        f" mkdir -m 700 {shared}/checkpoints"
    )
    (tmp_path / "real").mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to("real")
    assert said(UnsafeLocation, lambda: SQLiteCheckpointStorage(link / "x.db")) == (
        f"{link} is a symbolic link. Whoever owns the link decides where it leads. See where, and"
        f" name that folder instead: readlink -f {link}"
    )
    assert tree(shared) == tree(tmp_path / "real") == []


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal", "-lock"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "fifo", "mode", "second name"])
def test_none_of_the_files_is_a_link_or_of_others(path: Path, suffix: str, kind: str) -> None:
    SQLiteCheckpointStorage(path).close()
    file, outside = Path(f"{path}{suffix}"), path.parent.parent / "outside"
    if not suffix:
        path.rename(outside)
    else:
        file.unlink(missing_ok=True)
        outside.write_bytes(b"")
    before = outside.read_bytes()
    found = "is not a regular file."
    if kind == "link":
        file.symlink_to(outside)
        found = "is a symbolic link."
    elif kind == "dangling link":
        file.symlink_to(path.parent.parent / "nowhere")
        found = "is a symbolic link."
    elif kind == "folder":
        file.mkdir(mode=0o700)
    elif kind == "fifo":
        os.mkfifo(file, 0o600)
    elif kind == "mode":
        file.write_bytes(before)
        file.chmod(0o620)
    else:
        outside.chmod(0o600)
        file.hardlink_to(outside)
    message = (
        f"{file} {found} This store never makes one. See who did, then remove it: ls -l {file}"
    )
    if kind == "mode":
        message = f"{file} can be written by others (mode 0620). Run: chmod 600 {file}"
    elif kind == "second name":
        message = (
            f"{file} has a second name (hard link). Whoever holds it may change the record."
            f" Find it, and remove it: find / -samefile {file}"
        )
    expected: type[CheckpointError] = UnsafeLocation
    if kind == "folder" and not suffix:
        expected = StorageUnavailable
        message = (
            f"{path} is a folder, and a database is one file."
            f" Name a file in it: {path}/checkpoints.db"
        )
    assert said(expected, lambda: SQLiteCheckpointStorage(path)) == message
    assert outside.read_bytes() == before
    assert not (path.parent.parent / "nowhere").exists()


@pytest.mark.parametrize("kind", ["nfs4", "ceph", "virtiofs", "vboxsf", "fuse.s3fs", "gfs2"])
def test_a_file_system_that_machines_share_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"1 0 0:1 / / rw - {kind} s rw\n")
    assert said(StorageUnavailable, lambda: SQLiteCheckpointStorage(path)) == (
        f"{path.parent} is on a file system that machines share ({kind}), and the processes that"
        " use an SQLite database must share memory. Name a folder on a local disk, or use"
        " PostgresCheckpointStorage, which is for many machines."
    )
    assert not path.parent.exists()


GONE = (
    "{} was removed or replaced while it was in use, so nothing more is saved. What was saved last"
    " may be gone with it. Stop every process that uses the database, and construct the storage"
    " again: the ledger's anchor tells what is missing."
)


def calls(storage: SQLiteCheckpointStorage) -> list[Callable[[], object]]:
    return [
        lambda: storage.append("a", 2, b"two"),
        lambda: storage.read("a", 1),
        lambda: storage.head("a"),
        lambda: storage.acquire("a", "worker", 5),
    ]


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_saved_to_a_log_that_nobody_can_find(
    path: Path, suffix: str, replaced: bool
) -> None:
    """SQLite itself goes on with what it has open, and says that it saved."""
    with SQLiteCheckpointStorage(path) as storage:
        storage.append("a", 1, b"one")
        storage.head("a")
        file = Path(f"{path}{suffix}")
        file.rename(path.parent / "aside")
        if replaced:
            file.touch(0o600)
        for call in calls(storage):
            assert said(StorageUnavailable, call) == GONE.format(file)


def test_a_database_that_is_gone_or_another_is_refused(path: Path) -> None:
    with SQLiteCheckpointStorage(path) as storage:
        storage.append("a", 1, b"one")
        storage.head("a")
        path.rename(path.parent / "aside")
        append, read, *_ = calls(storage)
        hint = "Put it back from a backup, or construct the storage again to begin an empty one."
        assert said(StorageUnavailable, append) == f"{path} is gone, so nothing was saved. {hint}"
        assert said(StorageUnavailable, read) == f"{path} is gone. {hint}"
        path.touch(0o600)
        for call in calls(storage):
            assert said(UnsafeLocation, call) == (
                f"{path} is not the file that this storage was opened on. Find out who replaced it,"
                f" and construct the storage again if that is right: ls -l {path}"
            )
        path.unlink()
        (path.parent / "aside").rename(path)
        storage.append("a", 2, b"two")
        assert storage.head("a") == 2


def test_the_place_is_looked_at_again_at_each_call(path: Path) -> None:
    with SQLiteCheckpointStorage(path) as storage:
        storage.append("a", 1, b"one")
        for place, wrong, right in ((path, 0o666, 0o600), (path.parent, 0o770, 0o700)):
            place.chmod(wrong)
            for call in calls(storage):
                assert said(UnsafeLocation, call) == (
                    f"{place} can be written by others (mode {wrong:04o})."
                    f" Run: chmod {right:o} {place}"
                )
            place.chmod(right)
        assert storage.head("a") == 1


def test_the_lock_is_looked_at_each_time(path: Path) -> None:
    lock = Path(f"{path}-lock")
    with SQLiteCheckpointStorage(path) as storage:
        storage.append("a", 1, b"one")
        lock.unlink()
        lock.symlink_to(path.parent.parent / "elsewhere")
        assert said(UnsafeLocation, lambda: storage.append("a", 2, b"two")) == (
            f"{lock} is a symbolic link. This store never makes one."
            f" See who did, then remove it: ls -l {lock}"
        )
        lock.unlink()
        lock.touch(0o666)
        lock.chmod(0o666)
        assert said(UnsafeLocation, lambda: storage.append("a", 2, b"two")) == (
            f"{lock} can be written by others (mode 0666). Run: chmod 600 {lock}"
        )
        lock.unlink()
        storage.append("a", 2, b"two")
        assert mode(lock) == 0o600


def test_where_the_system_is_not_posix_it_works_without_the_queue(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_posix, "SUPPORTED", False)
    with SQLiteCheckpointStorage(path, wait_seconds=0.1) as storage:
        storage.append("a", 1, b"one")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert said(StorageUnavailable, lambda: storage.append("a", 2, b"two")) == (
                f"Another program has held {path} for 0.1 s. Nothing was saved. Find it, let it"
                f" end, and try again: fuser -v {path}"
            )
        assert storage.head("a") == 1
    assert not Path(f"{path}-lock").exists()


def test_the_files_of_a_killed_process_are_taken_over(path: Path) -> None:
    """A log and a lock that are left behind are no reason to refuse."""
    python(
        """
        import os, sys
        from safepoint import SQLiteCheckpointStorage
        storage = SQLiteCheckpointStorage(sys.argv[1])
        storage.append("a", 1, b"one")
        os._exit(0)
        """,
        str(path),
    )
    assert len(tree(path.parent)) == 4
    with SQLiteCheckpointStorage(path) as storage:
        assert storage.read("a", 1) == b"one"
