"""SQLite, as far as the suite of all storages does not reach: its place, its rules, its faults."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from safepoint import Limits, SQLiteCheckpointStorage
from safepoint.core.errors import CheckpointError, LimitExceeded, Unavailable, Unsafe
from safepoint.stores import database as engine
from safepoint.stores import disk
from safepoint.stores import sqlite as module
from tests.harness.crash import killed
from tests.house import refused, rewrite
from tests.unit.interrupts import Late, interrupt_at
from tests.unit.storage_helpers import planted, python, tree

Refusal = type[CheckpointError]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/checkpoints.db"


@pytest.fixture
def storage(path: Path) -> Iterator[SQLiteCheckpointStorage]:
    with SQLiteCheckpointStorage(path) as opened_here:
        yield opened_here


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """A thread of five records that begins at 2, in the hands of whoever can run SQL."""
    with SQLiteCheckpointStorage(path) as storage:
        fill(storage, 5)
        storage.prune("a", 2, b"base")
        storage.acquire("a", "worker", 60)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def fill(storage: Any, last: int, size: int = 0) -> None:
    for sequence in range(1, last + 1):
        storage.append("a", sequence, b"record %d" % sequence + bytes(size))


def calls(storage: SQLiteCheckpointStorage, next_one: int = 2) -> dict[str, Callable[[], object]]:
    return {
        "append": lambda: storage.append("a", next_one, b"two"),
        "read": lambda: storage.read("a", 1),
        "head": lambda: storage.head("a"),
        "newest": lambda: storage.newest("a"),
        "scan": lambda: list(storage.scan("a", 1, 1)),
        "base": lambda: storage.base("a"),
        "threads": storage.threads,
        "prune": lambda: storage.prune("a", 1, b""),
        "lease": lambda: storage.lease("a"),
        "acquire": lambda: storage.acquire("a", "worker", 5),
    }


# --- the place


@pytest.mark.parametrize("umask", [0o000, 0o377])
def test_everything_that_is_made_is_private_whatever_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with SQLiteCheckpointStorage(path) as storage:
            storage.append("a", 1, b"one")
            found = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    finally:
        os.umask(before)
    assert found == {f"checkpoints.db{suffix}": 0o600 for suffix in ("", "-wal", "-shm")}
    assert tree(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("named", "what"),
    [
        ("", "is not the path of a file."),
        (":memory:", "is not the path of a file."),
        ("file:x.db?mode=memory", "is not the path of a file."),
        ("SQLite:///x.db", "is not the path of a file."),
        ("a\0b", "cannot be the path of a file."),
        ("a" * 5000, "could not open"),
    ],
)
def test_what_is_no_path_of_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: Any, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    named = str(tmp_path) if named == "" else named
    assert what in refused(Unavailable, lambda: SQLiteCheckpointStorage(named))
    assert tree(tmp_path) == ["here"]


@pytest.mark.parametrize("name", [":memory:", "a b?mode=memory&x#y%41.db", "a\udcff"])
def test_no_name_means_anything_to_sqlite(tmp_path: Path, name: str) -> None:
    with SQLiteCheckpointStorage(tmp_path / "state" / name) as storage:
        storage.append("a", 1, b"one")
    assert tree(tmp_path) == ["state", f"state/{name}"]


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["link", "fifo", "second name", "mode"])
def test_none_of_the_files_is_a_link_or_of_others(path: Path, suffix: str, kind: str) -> None:
    SQLiteCheckpointStorage(path).close()
    file, outside = Path(f"{path}{suffix}"), path.parent.parent / "outside"
    file.unlink(missing_ok=True)
    found = planted(kind, file, outside)
    before = outside.read_bytes() if outside.exists() else b""
    with pytest.raises(Unsafe, match=found):
        SQLiteCheckpointStorage(path)
    assert not before or outside.read_bytes() == before


def test_a_file_system_that_machines_share_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "network_file_system", lambda _: "nfs4")
    assert "machines share (nfs4)" in refused(Unavailable, lambda: SQLiteCheckpointStorage(path))
    assert not path.parent.exists()


def test_the_place_is_looked_at_again_at_each_call(
    storage: SQLiteCheckpointStorage, path: Path
) -> None:
    """Also a log that nobody can find any more: SQLite itself would go on, and call it saved."""
    storage.append("a", 1, b"one")
    aside = path.parent / "aside"
    path.chmod(0o666)
    for call in calls(storage).values():
        assert f"{path} can be written by others" in refused(Unsafe, call)
    path.chmod(0o600)
    for suffix in ("-wal", "-shm"):
        for replaced in (False, True):
            file = Path(f"{path}{suffix}")
            file.rename(aside)
            if replaced:
                file.touch(0o600)
            for call in calls(storage).values():
                assert f"{file} was removed or replaced" in refused(Unavailable, call)
            aside.rename(file)
    calls(storage)["append"]()
    assert storage.head("a") == 2


def test_it_works_where_the_system_is_not_posix(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(disk, "SUPPORTED", False)
    with SQLiteCheckpointStorage(path) as storage:
        fill(storage, 2)
        assert storage.head("a") == 2


# --- the rules of the database


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("UPDATE checkpoints SET record = x'00' WHERE sequence = 3", "a record never changes"),
        ("DELETE FROM checkpoints WHERE sequence = 5", "a record goes only when"),
        ("REPLACE INTO checkpoints VALUES ('', 'a', 3, x'00')", "a record follows upon"),
        ("INSERT INTO checkpoints VALUES ('', 'a', 7, x'00')", "a record follows upon"),
        ("INSERT INTO checkpoints VALUES ('', 'b', 0, x'00')", "CHECK constraint"),
        ("INSERT INTO checkpoints VALUES ('', 'b', 1, 'text')", "cannot store TEXT"),
        ("DELETE FROM threads", "a thread never goes"),
        ("INSERT INTO threads (thread, base) VALUES ('b', x'00')", "CHECK constraint"),
        ("UPDATE threads SET first = 1", "a thread never moves back"),
        ("UPDATE threads SET base = NULL", "CHECK constraint"),
    ],
)
def test_the_past_does_not_change_by_sql(
    database: sqlite3.Connection, statement: str, rule: str
) -> None:
    before = list(database.iterdump())
    with pytest.raises(sqlite3.IntegrityError, match=rule):
        database.execute(statement)
    assert list(database.iterdump()) == before


def reschema(path: Path, *statements: str) -> None:
    """Edit the schema's own table, behind SQLite's back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as attacker:
        attacker.execute("PRAGMA writable_schema = ON")
        for statement in statements:
            attacker.execute(statement)
        [(version,)] = attacker.execute("PRAGMA schema_version").fetchall()
        attacker.execute(f"PRAGMA schema_version = {version + 1}")


def drop(path: Path, rule: str, number: str = "100") -> None:
    """Drop a rule, and choose the number by which SQLite tells one schema from another."""
    with closing(sqlite3.connect(path, isolation_level=None)) as attacker:
        attacker.execute(f"DROP TRIGGER {rule}")
        attacker.execute(f"PRAGMA schema_version = {number}")


ENDLESS = (
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'x' || i AS thread,"
    " 0 AS first, NULL AS base, NULL AS lease FROM n"
)
VIEW = "INSERT INTO sqlite_schema VALUES ('view', 'threads', 'threads', 0, '{}')"
TRIGGERS = sorted(name for kind, name, *_ in engine._made(module.SCHEMA)[0] if kind == "trigger")
BAD_SQL = "UPDATE sqlite_schema SET sql = {} WHERE name = 'threads_delete'"
NO_TABLE = "DELETE FROM sqlite_schema WHERE name = 'threads' OR tbl_name = 'threads'"
ENDLESS_VIEW = VIEW.format(f"CREATE VIEW threads AS {ENDLESS}".replace("'", "''"))
COPIES = "CREATE TRIGGER z AFTER INSERT ON checkpoints BEGIN SELECT 1; END"
LONG = BAD_SQL.format("sql || '/*' || hex(zeroblob(20000000)) || '*/'")
NOT_TEXT = BAD_SQL.format("CAST(CAST(sql AS BLOB) || x'ff' AS TEXT)")
SCHEMAS: list[tuple[Any, list[str], str]] = [
    *((drop, [name], f"'{name}' is missing, new or changed.") for name in TRIGGERS),
    (drop, ["threads_delete", "-1"], "'threads_delete' is missing"),
    (rewrite, [COPIES], "'z' is missing, new or changed."),
    (reschema, [BAD_SQL.format("replace(sql, 'never goes', 'may go')")], "'threads_delete' is mi"),
    (rewrite, [f"CREATE VIEW pragma_schema_version AS {ENDLESS}"], "'pragma_schema_version' is"),
    (reschema, [NO_TABLE, ENDLESS_VIEW], "is missing, new or changed."),
    (reschema, [NOT_TEXT], "(UnicodeDecodeError)"),
    (reschema, [LONG], "(SQLITE_TOOBIG)"),
]


@pytest.mark.parametrize(("way", "statements", "what"), SCHEMAS)
def test_a_database_with_another_schema_is_refused(
    path: Path, database: sqlite3.Connection, way: Any, statements: list[str], what: str
) -> None:
    """To whoever opens it and to whoever has it open: before anything is read or written by it."""
    database.close()
    with SQLiteCheckpointStorage(path) as storage:
        storage.head("a")
        way(path, *statements)
        for name in ("append", "head"):
            with pytest.raises((Unavailable, LimitExceeded)) as caught:
                calls(storage, 6)[name]()
            if not what.startswith("(SQLITE_"):  # whoever opens it anew says it
                assert what in caught.value.what
    assert what in refused(Unavailable, lambda: SQLiteCheckpointStorage(path))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"SQLite format 2\0" * 100, "(SQLITE_NOTADB)"),
        ("CREATE TABLE theirs (value)", "does not have the schema that safepoint made: 'ch"),
    ],
)
def test_a_file_that_is_not_ours_is_left_alone(path: Path, content: Any, what: str) -> None:
    path.parent.mkdir(0o700)
    path.touch(0o600)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with closing(sqlite3.connect(path)) as other:
            other.execute(content)
    before = path.read_bytes()
    assert what in refused(Unavailable, lambda: SQLiteCheckpointStorage(path))
    assert path.read_bytes() == before


def test_each_connection_is_careful(storage: SQLiteCheckpointStorage) -> None:
    asked = {
        "journal_mode": "wal",
        "synchronous": 2,
        "trusted_schema": 0,
        "cell_size_check": 1,
        "secure_delete": 1,
        "temp_store": 2,
        "fullfsync": 1,
        "checkpoint_fullfsync": 1,
    }
    assert {name: storage.select(f"PRAGMA {name}")[0][0] for name in asked} == asked


# --- what somebody else wrote into it


def test_no_value_is_read_that_is_longer_than_ours(
    path: Path, database: sqlite3.Connection
) -> None:
    database.close()
    rewrite(
        path,
        "UPDATE checkpoints SET record = zeroblob(100000) WHERE sequence IN (3, 5)",
        "UPDATE threads SET base = zeroblob(100000), lease = zeroblob(100000)",
        "INSERT INTO checkpoints VALUES ('', hex(zeroblob(100000)), 1, x'')",
    )
    with SQLiteCheckpointStorage(path, limits=Limits(state_bytes=1000)) as storage:
        assert storage.read("a", 4) == b"record 4"
        for name, act in calls(storage, 6).items():
            if name not in ("read", "scan"):
                refused(LimitExceeded, act)
        refused(LimitExceeded, lambda: storage.read("a", 3))
        refused(LimitExceeded, lambda: list(storage.scan("a", 2, 5)))


def test_no_statement_works_for_ever(
    storage: SQLiteCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_WORK", 10_000)
    endless = f"SELECT count(*) FROM ({ENDLESS})"  # noqa: S608  a constant above
    assert "(SQLITE_INTERRUPT)" in refused(Unavailable, lambda: storage.select(endless))


# --- faults


class Failing(sqlite3.Error):
    def __init__(self, name: str) -> None:
        super().__init__("canary")
        self.sqlite_errorname = name
        self.sqlite_errorcode = getattr(sqlite3, name)


NO_ROOM, HELD = "No room is left for {} (ENOSPC), so", "Another program has held {} for 30 s."
NOT_OURS = "{} does not hold what safepoint writes"
FAILURES: dict[str, str] = {
    "SQLITE_FULL": NO_ROOM,
    "SQLITE_IOERR_WRITE": NO_ROOM,
    "SQLITE_BUSY_RECOVERY": HELD,
    "SQLITE_READONLY_DBMOVED": "This process may not save to {}",
    "SQLITE_CANTOPEN": "This process may not save to {}",
    "SQLITE_CORRUPT_INDEX": NOT_OURS,
    "SQLITE_CONSTRAINT_CHECK": NOT_OURS,
    "SQLITE_TOOBIG": "A value in {} has more than 16781312 bytes, so it was neither",
    "SQLITE_IOERR_FSYNC": "The system could not save to {} (EIO)",
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_save_that_fails_says_why_and_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever fails, at whatever statement of it; and the next one works."""
    real, fail_at = sqlite3.connect, list[str]()
    kind: Refusal = LimitExceeded if name == "SQLITE_TOOBIG" else Unavailable

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
            if fail_at and sql.startswith(fail_at[0]):
                fail_at.pop()
                raise Failing(name)
            return super().execute(sql, *given)

    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **kwargs: real(*args, factory=Connection, **kwargs)
    )
    with SQLiteCheckpointStorage(path) as storage:
        storage.append("a", 1, b"one")
        for statement in ("BEGIN", "PRAGMA schema", "SELECT coalesce", "INSERT", "COMMIT"):
            fail_at.append(statement)
            message = refused(kind, lambda: storage.append("a", 2, b"two"))
            assert message.startswith(FAILURES[name].format(path))
            assert "canary" not in message
            assert not fail_at
            assert storage.head("a") == 1
        storage.append("a", 2, b"two")


# Lets each sync of this process fail, by a filter in the kernel, which cannot be taken back.
SYNC_FAILS = """
    import ctypes, errno, os, platform, struct, sys
    from safepoint import SQLiteCheckpointStorage
    from safepoint.core.errors import Unavailable

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
        except Unavailable as error:
            said = error.what
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
    assert "(EIO), so nothing was saved." in python(SYNC_FAILS, str(path))
    with SQLiteCheckpointStorage(path) as storage:
        assert storage.head("a") == 1
        storage.append("a", 2, b"two")
        assert storage.read("a", 2) == b"two"


def save_two(folder: Path) -> None:
    """Make a database, save to it for a tenant, and prune it."""
    with SQLiteCheckpointStorage(folder / "state/checkpoints.db") as storage:
        acme = storage.tenant("acme")
        for sequence in (1, 2):
            acme.append("a", sequence, b"")
        acme.prune("a", 2, b"base")


def test_sigkill_after_each_step(tmp_path: Path) -> None:
    """Whoever comes next finds nothing or a database, with all of a record or nothing of it."""
    seen = set()
    for left in killed(save_two, tmp_path):
        with SQLiteCheckpointStorage(left.folder / "state/checkpoints.db") as opened_here:
            storage = opened_here.tenant("acme")
            head, base = storage.head("a"), storage.base("a")
            first = base[0] if base else 1
            assert len(list(storage.scan("a", first, head))) == head - first + 1 if head else True
            storage.append("a", head + 1, b"goes on")
        seen.add((head, base))
    assert seen == {(0, None), (1, None), (2, None), (2, (2, b"base"))}


# --- threads, processes, signals


def test_a_signal_whose_handler_raises_anywhere_leaves_it_free(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python runs the handler of a signal after a call and where a function begins: at each."""
    monkeypatch.setattr(engine, "_PATIENCE", 0.2)
    with SQLiteCheckpointStorage(path) as storage, SQLiteCheckpointStorage(path) as other:
        number, traced = 0, sys.gettrace()
        while True:
            head = storage.head("a")
            try:
                sys.settrace(interrupt_at(engine, number))
                storage.append("a", head + 1, b"whole")
                break
            except Late:
                pass
            finally:
                sys.settrace(traced)
            assert other.head("a") in (head, head + 1)
            for each in (other, storage):
                each.append("a", other.head("a") + 1, b"whole")
            number += 1
        assert number > 20
        assert set(other.scan("a", 1, other.head("a"))) == {b"whole"}


def test_a_closed_storage_says_so(storage: SQLiteCheckpointStorage, path: Path) -> None:
    storage.append("a", 1, b"one")
    storage.close()
    storage.close()
    assert tree(path.parent) == [path.name]
    for call in calls(storage).values():
        assert refused(Unavailable, call).startswith(f"This storage on {path} was closed.")


# A child that opens the file anew while the parent has it open gets no lock of its own: when the
# parent closes it, the log is removed, and what the child saves after that goes nowhere.
FORKED = """
    import ctypes, os, sys, threading
    from safepoint import SQLiteCheckpointStorage
    from safepoint.core.errors import Unavailable

    path = sys.argv[1]
    storage = SQLiteCheckpointStorage(path)
    storage.append("a", 1, b"one")
    ready, done = threading.Event(), threading.Event()
    def work():
        storage.head("a")
        ready.set()
        done.wait()
    worker = threading.Thread(target=work)
    worker.start()
    ready.wait()
    pid = ctypes.CDLL(None).fork()  # as uWSGI does, which says no word to Python
    if not pid:
        for act in (lambda: storage.head("a"), lambda: SQLiteCheckpointStorage(path)):
            try:
                act()
                os._exit(1)
            except Unavailable as error:
                assert error.do == "Construct it after the fork."
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    done.set()
    worker.join()
    storage.append("a", 2, b"two")
    storage.close()
    pid = os.fork()
    if not pid:
        SQLiteCheckpointStorage(path).append("a", 3, b"three")
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    print("done")
"""


def test_no_connection_is_used_by_a_process_that_did_not_open_it(path: Path) -> None:
    assert python(FORKED, str(path)) == "done"
    with SQLiteCheckpointStorage(path) as storage:
        assert storage.head("a") == 3


# --- the rest
