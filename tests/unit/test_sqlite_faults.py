"""What fails under an SQLite database: room, the disk, another program. One clear line each."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from safepoint import SQLiteCheckpointStorage
from safepoint.errors import CheckpointError, StorageError, StorageFull, StorageUnavailable
from safepoint.storage._sqlite import faults, turns
from safepoint.storage._sqlite.database import Database
from tests.unit.interrupts import Late, interrupt_at
from tests.unit.storage_helpers import descriptors, python


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/checkpoints.db"


def said(error: type[CheckpointError], act: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        act()
    assert type(caught.value) is error
    return str(caught.value)


def held(path: object, seconds: str) -> str:
    return (
        f"Another program has held {path} for {seconds} s. Nothing was saved."
        f" Find it, let it end, and try again: fuser -v {path}"
    )


def test_a_program_that_holds_the_database_is_named(path: Path) -> None:
    """Reading goes on meanwhile, and so does writing once it is done."""
    with SQLiteCheckpointStorage(path, wait_seconds=0.05) as storage:
        storage.append("a", 1, b"one")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for act in (
                lambda: storage.append("a", 2, b"two"),
                lambda: storage.prune("a", 1, b""),
                lambda: storage.acquire("a", "w", 5),
            ):
                assert said(StorageUnavailable, act) == held(path, "0.05")
            assert (storage.head("a"), storage.read("a", 1)) == (1, b"one")
        storage.append("a", 2, b"two")


def test_the_queue_is_left_in_time(path: Path) -> None:
    """Whoever waits too long is told whom to look for. The next one gets the turn that is free."""
    with SQLiteCheckpointStorage(path, wait_seconds=0.05) as storage:
        storage.append("a", 1, b"one")
        storage.head("a")
        before, threads = descriptors(), threading.active_count()
        lock = os.open(f"{path}-lock", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(5):
            assert said(StorageUnavailable, lambda: storage.append("a", 2, b"two")) == held(
                f"{path}-lock", "0.05"
            )
            assert storage.read("a", 1) == b"one"
        assert descriptors() == before + 1, "one place in the queue, however often it is left"
        os.close(lock)
        storage._database.seconds = 60
        storage.append("a", 2, b"two")
        storage.append("a", 3, b"three")
        assert storage.head("a") == 3
        assert (descriptors(), threading.active_count()) == (before, threads)


def test_who_waits_gets_the_turn_as_soon_as_it_is_free(path: Path) -> None:
    with SQLiteCheckpointStorage(path, wait_seconds=60) as storage:
        lock = os.open(f"{path}-lock", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        threading.Timer(0.1, os.close, [lock]).start()
        storage.append("a", 1, b"one")
        assert storage.head("a") == 1


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_no_file_can_be_locked_sqlite_keeps_order_by_itself(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def flock(*_: object) -> None:
        raise OSError(code, "")

    monkeypatch.setattr(fcntl, "flock", flock)
    with SQLiteCheckpointStorage(path) as storage:
        storage.append("a", 1, b"one")
        before = descriptors()
        storage.append("a", 2, b"two")
        assert descriptors() == before


# Appends until there is no room, says what happened, makes room, and goes on.
FILL = """
    import json, os, resource, sys
    from pathlib import Path
    from safepoint import SQLiteCheckpointStorage
    from safepoint.errors import StorageError, StorageFull

    path, way = Path(sys.argv[1]), sys.argv[2]
    storage = SQLiteCheckpointStorage(path)
    storage.append("a", 1, bytes(5000))
    ballast = path.parent / "ballast"
    if way == "size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    else:
        ballast.write_bytes(bytes(3_000_000))
    acknowledged, said = 1, []
    while len(said) < 5:
        try:
            storage.append("a", acknowledged + 1, bytes([acknowledged % 256]) * 5000)
            acknowledged += 1
        except StorageFull as error:
            said.append(str(error))
            assert storage.head("a") == acknowledged
    for sequence, record in enumerate(storage.scan("a", 2, acknowledged), start=1):
        assert record == bytes([sequence % 256]) * 5000
    if way == "size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    else:
        ballast.unlink()
    storage.append("a", acknowledged + 1, b"there is room")
    storage.close()
    storage = SQLiteCheckpointStorage(path)
    assert storage.head("a") == acknowledged + 1
    assert len(list(storage.scan("a", 1, acknowledged + 1))) == acknowledged + 1
    print(json.dumps([acknowledged, sorted(set(said)), sorted(os.listdir(path.parent))]))
"""


# The same through a ledger, whose anchor is on the same disk or on one that has room.
FILL_LEDGER = """
    import json, os, resource, sys
    from contextlib import suppress
    from pathlib import Path
    from safepoint import AnchorUnavailable, FileAnchor, Ledger, SQLiteCheckpointStorage
    from safepoint.errors import StorageFull
    from tests.unit.tampered import KEYS, STORE, THREAD

    path, way, anchor = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    ballast = (anchor if way == "anchor" else path).parent / "ballast"
    def opened():
        storage = SQLiteCheckpointStorage(path)
        return Ledger(storage, store=STORE, keys=KEYS, anchor=FileAnchor(anchor, create=True))

    ledger = opened()
    kept = [ledger.save(THREAD, {"n": "x" * 5000}).digest]
    if way == "size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    elif way == "store":
        ballast.write_bytes(bytes(3_000_000))
    else:
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    said = []
    while len(said) < 5:
        before = ledger.storage.head(THREAD)
        try:
            kept.append(ledger.save(THREAD, {"n": "x" * 5000}).digest)
        except StorageFull as error:
            said.append(str(error))
            assert ledger.storage.head(THREAD) == before
        except AnchorUnavailable as error:
            assert "is saved, but not anchored" in str(error)
            said.append("not anchored")
            kept.append(ledger.load(THREAD, before + 1).digest)
    for one in (ledger, opened()):
        assert one.verify(THREAD, every_signature=True) == len(kept)
        assert [each.digest for each in one.history(THREAD)] == kept
        assert one.latest(THREAD).digest == kept[-1]
    if way == "size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    else:
        ballast.unlink()
    kept.append(ledger.save(THREAD, {"n": "there is room"}).digest)
    ledger.storage.close()
    ledger = opened()
    assert [each.digest for each in ledger.history(THREAD)] == kept
    assert ledger.verify(THREAD, every_signature=True) == len(kept)
    head = ledger.anchor.read(STORE, THREAD)
    assert (head.sequence, head.digest) == (len(kept), kept[-1])
    print(json.dumps([len(kept), sorted(set(said)), sorted(os.listdir(path.parent))]))
"""


def small_disk() -> list[str] | None:
    """Return how to run a command as one that may mount, if that is possible here."""
    if shutil.which("unshare") is None:
        return None
    command = ["unshare", "--user", "--map-root-user", "--mount"]
    probe = [*command, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"]
    done = subprocess.run(probe, capture_output=True, check=False)
    return command if done.returncode == 0 else None


def check_full(said: str, path: Path, codes: list[str]) -> None:
    acknowledged, messages, files = json.loads(said)
    assert acknowledged > 5
    assert set(messages) <= {
        f"There is no room left for {path} ({code}), so nothing was saved. Free some space, or"
        " raise the quota or the file size limit, and try again."
        for code in codes
    }
    assert messages
    assert files == [path.name, f"{path.name}-lock", f"{path.name}-shm", f"{path.name}-wal"]


def on_small_disks(tmp_path: Path, code: str, *arguments: str) -> str:
    """Run a script where `disk` has 4 MB and `little` 64 KB, and return what it says."""
    command = small_disk()
    if command is None:
        pytest.skip("nobody may mount a small file system here")
    script = tmp_path / "fill.py"
    script.write_text("if True:" + code)
    mounts = ""
    for name, size in (("disk", "4m"), ("little", "64k")):
        (tmp_path / name).mkdir(mode=0o700)
        mounts += f'mount -t tmpfs -o size={size},mode=700 tmpfs "{tmp_path / name}" && '
    done = subprocess.run(
        [*command, "sh", "-c", f'{mounts} exec "$0" "$@"', sys.executable, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """What was acknowledged is there, nothing else is, and it goes on when there is room."""
    path = tmp_path / "disk/state/checkpoints.db"
    check_full(on_small_disks(tmp_path, FILL, str(path), "disk"), path, ["SQLITE_FULL", "ENOSPC"])


def test_a_file_that_may_not_grow(path: Path) -> None:
    """SQLite calls it an error of the disk. It is asked again what kind of error it is."""
    check_full(python(FILL, str(path), "size"), path, ["EFBIG"])


@pytest.mark.parametrize("anchor", ["disk", "elsewhere"])
def test_a_ledger_on_a_disk_that_is_full(tmp_path: Path, anchor: str) -> None:
    """What was acknowledged verifies and is all there is; the anchor misses nothing."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    path = tmp_path / "disk/state/checkpoints.db"
    given = [str(path), "store", str(tmp_path / anchor / "anchor")]
    codes = ["SQLITE_FULL", "ENOSPC"]
    check_full(on_small_disks(tmp_path, FILL_LEDGER, *given), path, codes)


def test_a_ledger_on_a_file_that_may_not_grow(tmp_path: Path, path: Path) -> None:
    said = python(FILL_LEDGER, str(path), "size", str(tmp_path / "anchor"))
    check_full(said, path, ["EFBIG"])


def test_a_ledger_whose_anchor_is_on_a_disk_that_is_full(tmp_path: Path) -> None:
    """Each save says that it is saved and not anchored, and the anchor catches up at the next."""
    given = [str(tmp_path / "disk/state/checkpoints.db"), "anchor", str(tmp_path / "little/anchor")]
    saved, said, _ = json.loads(on_small_disks(tmp_path, FILL_LEDGER, *given))
    assert (saved, said) == (7, ["not anchored"])


# Lets each sync of this process fail, by a filter in the kernel, which cannot be taken back.
SYNC_FAILS = """
    import ctypes, errno, os, platform, signal, struct, sys
    from safepoint import SQLiteCheckpointStorage
    from safepoint.errors import StorageUnavailable

    fsync, fdatasync = {"x86_64": (74, 75), "aarch64": (82, 83)}[platform.machine()]
    def op(code, jt, jf, k):
        return struct.pack("HBBI", code, jt, jf, k)
    program = (op(0x20, 0, 0, 0) + op(0x15, 1, 0, fsync) + op(0x15, 0, 1, fdatasync)
               + op(0x06, 0, 0, 0x00050000 | errno.EIO) + op(0x06, 0, 0, 0x7FFF0000))
    buffer = ctypes.create_string_buffer(program, len(program))
    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    storage = SQLiteCheckpointStorage(sys.argv[1])
    storage.append("a", 1, b"one")
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    filters = Filter(5, ctypes.cast(buffer, ctypes.c_void_p).value)
    assert libc.prctl(22, 2, ctypes.byref(filters), 0, 0) == 0
    for _ in range(3):
        try:
            storage.append("a", 2, b"never confirmed" * 1000)
        except StorageUnavailable as error:
            said = str(error)
        assert storage.head("a") == 1
    print(said, flush=True)
    os._exit(0)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"),
    reason="the filter is written for Linux on two processors",
)
def test_a_record_whose_sync_failed_never_comes_back(path: Path) -> None:
    """It is whole in the log, and whoever opens that after a crash must not take it for saved."""
    assert python(SYNC_FAILS, str(path)) == (
        f"The system could not save to {path} (SQLITE_IOERR_FSYNC), so nothing was saved."
        " Look at the system's log for the cause before you try again."
    )
    with SQLiteCheckpointStorage(path) as storage:
        assert storage.head("a") == 1
        storage.append("a", 2, b"two")
        assert storage.read("a", 2) == b"two"


class Failing(sqlite3.Error):
    def __init__(self, name: str) -> None:
        super().__init__("canary")
        self.sqlite_errorname = name
        self.sqlite_errorcode = getattr(sqlite3, name)


WRITABLE = (
    "It must be able to write the file, its folder and the files beside it."
    " Run: chmod u+rw /s/x.db && chmod u+rwx /s"
)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        (
            "SQLITE_FULL",
            StorageFull,
            (
                "There is no room left for /s/x.db (SQLITE_FULL), so nothing was saved."
                " Free some space, or raise the quota or the file size limit, and try again."
            ),
        ),
        ("SQLITE_BUSY", StorageUnavailable, held("/s/x.db", "5")),
        ("SQLITE_BUSY_RECOVERY", StorageUnavailable, held("/s/x.db", "5")),
        ("SQLITE_LOCKED", StorageUnavailable, held("/s/x.db", "5")),
        (
            "SQLITE_READONLY",
            StorageUnavailable,
            (
                f"This process may not save to /s/x.db (SQLITE_READONLY), so nothing was saved."
                f" {WRITABLE}"
            ),
        ),
        (
            "SQLITE_CANTOPEN",
            StorageUnavailable,
            (
                f"This process may not save to /s/x.db (SQLITE_CANTOPEN), so nothing was saved."
                f" {WRITABLE}"
            ),
        ),
        (
            "SQLITE_CORRUPT_INDEX",
            StorageUnavailable,
            (
                "/s/x.db is damaged (SQLITE_CORRUPT_INDEX), so nothing was saved. Stop every"
                " process that uses it, and put it back from a backup. See what is wrong:"
                " sqlite3 -readonly /s/x.db 'PRAGMA integrity_check'"
            ),
        ),
        (
            "SQLITE_CONSTRAINT_TRIGGER",
            StorageUnavailable,
            (
                "The rules in /s/x.db do not allow that (SQLITE_CONSTRAINT_TRIGGER), so nothing was"
                " saved. Somebody changed its rows by hand. Put it back from a backup, and see who"
                " can write it: ls -l /s/x.db"
            ),
        ),
        (
            "SQLITE_SCHEMA",
            StorageUnavailable,
            (
                "The schema of /s/x.db was changed while it was open (SQLITE_SCHEMA), so nothing"
                " was saved. Construct the storage again: it says what was changed."
            ),
        ),
        (
            "SQLITE_IOERR_READ",
            StorageUnavailable,
            (
                "The system could not save to /s/x.db (SQLITE_IOERR_READ), so nothing was saved."
                " Look at the system's log for the cause before you try again."
            ),
        ),
        (
            "SQLITE_PROTOCOL",
            StorageUnavailable,
            (
                "The system could not save to /s/x.db (SQLITE_PROTOCOL), so nothing was saved."
                " Look at the system's log for the cause before you try again."
            ),
        ),
    ],
)
def test_what_sqlite_reports_is_said_in_our_words(
    name: str, kind: type[StorageError], message: str
) -> None:
    with pytest.raises(StorageError) as caught, faults.Faults("save to", "/s/x.db", 5.0):
        raise Failing(name)
    assert type(caught.value) is kind
    assert str(caught.value) == message


def test_an_error_that_has_no_code_is_one_of_ours_too() -> None:
    with pytest.raises(StorageUnavailable) as caught, faults.Faults("read from", "/s", 5.0):
        raise sqlite3.ProgrammingError("canary")
    assert str(caught.value) == (
        "The system could not read from /s (ProgrammingError)."
        " Look at the system's log for the cause before you try again."
    )


def test_a_commit_that_fails_leaves_nothing_and_the_next_one_works(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fails, at whatever statement of a save."""
    real = sqlite3.connect
    fail_at: list[str] = []

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
            if fail_at and sql.startswith(fail_at[0]):
                fail_at.pop()
                raise Failing("SQLITE_IOERR_WRITE")
            return super().execute(sql, *given)

    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **kwargs: real(*args, factory=Connection, **kwargs)
    )
    with SQLiteCheckpointStorage(path) as storage:
        storage.append("a", 1, b"one")
        for statement in ("BEGIN", "PRAGMA schema", "SELECT head", "INSERT", "COMMIT"):
            fail_at.append(statement)
            assert said(StorageUnavailable, lambda: storage.append("a", 2, b"two")) == (
                f"The system could not save to {path} (SQLITE_IOERR_WRITE), so nothing was saved."
                " Look at the system's log for the cause before you try again."
            )
            assert fail_at == []
            assert storage.head("a") == 1
        storage.append("a", 2, b"two")
        fail_at.append("SELECT t.first")
        said(StorageUnavailable, lambda: storage.read("a", 2))
        assert storage.read("a", 2) == b"two"


def test_a_read_only_file_system_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def read_only(name: str, flags: int, *rest: int, **named: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, "")
        return real(name, flags, *rest, **named)

    with SQLiteCheckpointStorage(path) as storage:
        Path(f"{path}-lock").unlink()
        monkeypatch.setattr(os, "open", read_only)
        message = (
            "{} is on a read-only file system{}. Mount it for writing, or name another folder."
        )
        assert said(StorageUnavailable, lambda: storage.append("a", 1, b"one")) == message.format(
            path, ", so nothing was saved"
        )
        other = path.parent.parent / "other.db"
        (path.parent.parent).chmod(0o700)
        assert said(StorageUnavailable, lambda: SQLiteCheckpointStorage(other)) == message.format(
            other, ""
        )


# A file that was opened a moment ago and has no name yet is closed by Python, with this warning.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_a_handler_that_raises_anywhere_in_a_turn_leaves_it_free(path: Path) -> None:
    """Python runs the handler of a signal after a call and where a function begins: at each."""

    with (
        SQLiteCheckpointStorage(path, wait_seconds=0.2) as storage,
        SQLiteCheckpointStorage(path, wait_seconds=0.2) as other,
    ):
        number, traced = 0, sys.gettrace()
        while True:
            head = storage.head("a")
            try:
                sys.settrace(interrupt_at(turns, number))
                storage.append("a", head + 1, b"")
                break
            except Late:
                pass
            finally:
                sys.settrace(traced)
            for each in (other, storage):
                each.append("a", storage.head("a") + 1, b"")
            number += 1
        assert number > 20


def test_an_interrupted_commit_leaves_no_transaction(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does an interrupted roll-back, for the one who saves next."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with (
        SQLiteCheckpointStorage(path, wait_seconds=0.2) as storage,
        SQLiteCheckpointStorage(path, wait_seconds=0.2) as other,
    ):
        with monkeypatch.context() as patched:
            patched.setattr(Database, "_commit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                storage.append("a", 1, b"one")
        other.append("a", 1, b"another")
        with monkeypatch.context() as patched:
            patched.setattr(Database, "_commit", interrupted)
            patched.setattr(Database, "_roll_back", interrupted)
            with pytest.raises(KeyboardInterrupt):
                storage.append("a", 2, b"two")
        storage.append("a", 2, b"two again")
        assert list(other.scan("a", 1, 2)) == [b"another", b"two again"]


def test_an_interrupted_wait_gives_the_turn_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while it waits, a moment before the turn comes or right after."""
    with SQLiteCheckpointStorage(path, wait_seconds=5) as storage:
        real = turns._Waiter.wait
        for after in (False, True):
            lock = os.open(f"{path}-lock", os.O_RDWR)
            fcntl.flock(lock, fcntl.LOCK_EX)

            def interrupted(
                waiter: turns._Waiter, seconds: float, after: bool = after, lock: int = lock
            ) -> bool:
                if after:
                    os.close(lock)
                    real(waiter, seconds)
                raise KeyboardInterrupt

            monkeypatch.setattr(turns._Waiter, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                storage.append("a", 1, b"one")
            monkeypatch.setattr(turns._Waiter, "wait", real)
            if not after:
                os.close(lock)
        storage.append("a", 1, b"one")
        assert storage.head("a") == 1
