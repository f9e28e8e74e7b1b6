"""The database refuses to change the past, and is refused if somebody changed its rules."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from safepoint import InMemoryAnchor, SQLiteCheckpointStorage
from safepoint.audit import check_database
from safepoint.errors import (
    CheckpointError,
    RecordMalformed,
    SealBroken,
    StorageError,
    StorageUnavailable,
)
from safepoint.storage._sqlite import schema
from tests.unit.tampered import THREAD, fill, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/checkpoints.db"


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """A thread of five records that begins at 2, in the hands of whoever can run SQL."""
    with SQLiteCheckpointStorage(path) as storage:
        for sequence in range(1, 6):
            storage.append("a", sequence, b"record %d" % sequence)
        storage.prune("a", 2, b"base")
        storage.acquire("a", "worker", 60)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def refusal(path: Path) -> str:
    with pytest.raises(StorageUnavailable) as caught:
        SQLiteCheckpointStorage(path)
    return str(caught.value)


def dump(connection: sqlite3.Connection) -> list[object]:
    looks = ("SELECT * FROM checkpoints", "SELECT * FROM threads", "SELECT * FROM prunings")
    return [connection.execute(look).fetchall() for look in looks]


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("UPDATE checkpoints SET record = x'00' WHERE sequence = 3", "a record never changes"),
        ("UPDATE checkpoints SET sequence = 6 WHERE sequence = 5", "a record never changes"),
        ("UPDATE OR REPLACE checkpoints SET sequence = 4 WHERE sequence = 3", "a record never"),
        ("DELETE FROM checkpoints WHERE sequence = 5", "a record goes only when"),
        ("DELETE FROM checkpoints", "a record goes only when"),
        ("REPLACE INTO checkpoints VALUES ('a', 3, x'00')", "a record follows upon"),
        ("REPLACE INTO checkpoints VALUES ('a', 5, x'00')", "a record follows upon"),
        ("INSERT INTO checkpoints VALUES ('a', 7, x'00')", "a record follows upon"),
        ("INSERT INTO checkpoints VALUES ('a', 1, x'00')", "a record follows upon"),
        ("INSERT INTO checkpoints VALUES ('b', 0, x'00')", "CHECK constraint"),
        ("INSERT INTO checkpoints VALUES ('b', 1, 'text')", "cannot store TEXT"),
        ("INSERT INTO checkpoints VALUES ('b', 'one', x'00')", "cannot store TEXT"),
        ("DELETE FROM threads", "a thread never goes"),
        ("REPLACE INTO threads (thread) VALUES ('a')", "a thread begins once"),
        ("INSERT INTO threads (thread, head) VALUES ('b', 1)", "a thread begins once"),
        ("INSERT INTO threads (thread, base) VALUES ('b', x'00')", "CHECK constraint"),
        ("UPDATE threads SET thread = 'b'", "a thread never moves back"),
        ("UPDATE threads SET head = 4", "a thread never moves back"),
        ("UPDATE threads SET head = 6", "a thread never moves back"),
        ("UPDATE threads SET head = 0", "a thread never moves back"),
        ("UPDATE threads SET first = 1", "a thread never moves back"),
        ("UPDATE threads SET first = 6", "a thread never moves back"),
        ("UPDATE threads SET first = 0, base = NULL", "a thread never moves back"),
        ("UPDATE threads SET base = NULL", "CHECK constraint"),
        ("UPDATE threads SET token = 0", "a thread never moves back"),
        ("UPDATE threads SET owner = NULL", "CHECK constraint"),
        ("UPDATE prunings SET removed = 0", "a pruning never changes"),
        ("DELETE FROM prunings", "a pruning never goes"),
        ("REPLACE INTO prunings VALUES (1, 'a', 2, 0, '')", "a pruning follows"),
        ("INSERT INTO prunings VALUES (3, 'a', 2, 0, '')", "a pruning follows"),
    ],
)
def test_the_past_does_not_change_by_sql(
    database: sqlite3.Connection, statement: str, rule: str
) -> None:
    before = dump(database)
    with pytest.raises(sqlite3.IntegrityError, match=rule):
        database.execute(statement)
    assert dump(database) == before


def test_records_go_only_with_a_base_and_a_line_about_it(database: sqlite3.Connection) -> None:
    """Whoever moves the base by hand leaves the same line as `prune` does."""
    database.execute("UPDATE threads SET first = 4, base = x'00'")
    rows = database.execute("SELECT sequence FROM checkpoints").fetchall()
    assert rows == [(4,), (5,)]
    lines = database.execute("SELECT number, thread, first, removed FROM prunings").fetchall()
    assert lines == [(1, "a", 2, 1), (2, "a", 4, 2)]


NOT_OURS = (
    "{} does not have the schema that safepoint made: the {}. Somebody changed the database, and"
    " may have changed records. Put it back from a backup, and see who can write it: ls -l {}"
)
TRIGGERS = [statement.split()[2] for statement in schema._TRIGGERS]


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_database_without_one_of_its_rules_is_refused(
    database: sqlite3.Connection, path: Path, trigger: str
) -> None:
    database.execute(f"DROP TRIGGER {trigger}")
    assert refusal(path) == NOT_OURS.format(path, f"trigger '{trigger}' is gone", path)


def test_there_is_a_rule_for_each_way_to_change_a_table() -> None:
    ways = {
        f"{table}_{way}"
        for table in ("checkpoints", "threads", "prunings")
        for way in ("insert", "update", "delete")
    }
    assert ways < set(TRIGGERS)


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (
            [
                (
                    "CREATE TRIGGER evil AFTER INSERT ON checkpoints BEGIN"
                    " INSERT INTO checkpoints VALUES ('evil', 1, NEW.record); END"
                )
            ],
            "trigger 'evil' was added",
        ),
        (["CREATE VIEW checkpoint AS SELECT 1"], "view 'checkpoint' was added"),
        (["CREATE TABLE notes (n)"], "table 'notes' was added"),
        (["CREATE INDEX fast ON checkpoints (sequence)"], "index 'fast' was added"),
        (["ALTER TABLE threads ADD COLUMN note TEXT"], "table 'threads' was changed"),
        (
            [
                "DROP TRIGGER checkpoints_update",
                "CREATE TRIGGER checkpoints_update AFTER UPDATE ON checkpoints BEGIN SELECT 1; END",
            ],
            "trigger 'checkpoints_update' was changed",
        ),
        (
            [
                "DROP TRIGGER threads_delete",
                "DROP TABLE checkpoints",
                "CREATE VIEW checkpoints AS SELECT 'a' AS thread, 1 AS sequence, x'00' AS record",
            ],
            "view 'checkpoints' was added",
        ),
        ([f"CREATE TABLE {'x' * 99} (n)"], f"table '{'x' * 56}... was added"),
    ],
)
def test_a_database_with_another_schema_is_refused(
    database: sqlite3.Connection, path: Path, statements: list[str], what: str
) -> None:
    for statement in statements:
        database.execute(statement)
    assert refusal(path) == NOT_OURS.format(path, what, path)


def test_a_rule_that_rewrites_new_records_stops_a_storage_that_is_open(path: Path) -> None:
    """It is noticed before anything is written by it, and once it is gone all goes on."""
    with SQLiteCheckpointStorage(path) as storage:
        storage.append("a", 1, b"one")
        with closing(sqlite3.connect(path, isolation_level=None)) as attacker:
            attacker.execute(
                "CREATE TRIGGER evil AFTER INSERT ON checkpoints BEGIN"
                " INSERT INTO checkpoints VALUES ('stolen', 1, NEW.record); END"
            )
            for act in (
                lambda: storage.append("a", 2, b"two"),
                lambda: storage.acquire("a", "w", 5),
                lambda: storage.prune("a", 1, b""),
            ):
                with pytest.raises(StorageUnavailable) as caught:
                    act()
                assert str(caught.value) == NOT_OURS.format(path, "trigger 'evil' was added", path)
            attacker.execute("DROP TRIGGER evil")
        storage.append("a", 2, b"two")
        assert storage.threads() == ["a"]


def test_an_edit_behind_the_rules_is_found_by_the_ledger(path: Path) -> None:
    """The attacker drops the trigger, edits a record, and puts the trigger back."""
    with SQLiteCheckpointStorage(path) as storage:
        ledger = opened(storage, InMemoryAnchor())
        fill(ledger, 5)
    with closing(sqlite3.connect(path, isolation_level=None)) as attacker:
        [(rule,)] = attacker.execute(
            "SELECT sql FROM sqlite_schema WHERE name = 'checkpoints_update'"
        ).fetchall()
        attacker.execute("DROP TRIGGER checkpoints_update")
        attacker.execute(
            "UPDATE checkpoints SET record = CAST(replace(CAST(record AS TEXT), '{\"n\":3}',"
            " '{\"n\":9}') AS BLOB) WHERE sequence = 3"
        )
        attacker.execute(rule)
    with SQLiteCheckpointStorage(path) as storage:
        ledger = opened(storage)
        with pytest.raises(SealBroken):
            ledger.load(THREAD, 3)
        with pytest.raises(SealBroken):
            ledger.verify(THREAD)


def rewrite(path: Path, *statements: str) -> None:
    """Edit rows behind all rules, as whoever can write the file does."""
    with closing(sqlite3.connect(path, isolation_level=None)) as attacker:
        rules = attacker.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'")
        kept = rules.fetchall()
        attacker.execute("PRAGMA ignore_check_constraints = ON")
        for name, _ in kept:
            attacker.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            attacker.execute(statement)
        for _, rule in kept:
            attacker.execute(rule)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            ["DELETE FROM checkpoints WHERE sequence = 5"],
            (
                "Thread 'a' ends at checkpoint 5, and the last one that is there is 4. Somebody"
                " removed some, or put later ones there. Put the database back from a backup;"
                " until then nothing is loaded or saved."
            ),
        ),
        (
            ["UPDATE threads SET head = 4"],
            (
                "Thread 'a' ends at checkpoint 4, and the last one that is there is 5. Somebody"
                " removed some, or put later ones there. Put the database back from a backup;"
                " until then nothing is loaded or saved."
            ),
        ),
        (
            ["DELETE FROM checkpoints WHERE sequence = 2"],
            (
                "Thread 'a' was pruned to begin at checkpoint 2, and that one is gone. Somebody"
                " removed it, or put a later one there. Restore it from a backup, or move the"
                " later one away; until then nothing is loaded or saved."
            ),
        ),
    ],
)
def test_a_thread_whose_ends_were_cut_off_is_refused(
    database: sqlite3.Connection, path: Path, statements: list[str], message: str
) -> None:
    rewrite(path, *statements)
    with SQLiteCheckpointStorage(path) as storage:
        with pytest.raises(StorageError) as caught:
            storage.head("a")
        assert str(caught.value) == message


def test_a_hole_in_a_thread_is_not_filled(database: sqlite3.Connection, path: Path) -> None:
    rewrite(path, "DELETE FROM checkpoints WHERE sequence = 4")
    with SQLiteCheckpointStorage(path) as storage:
        with pytest.raises(StorageError) as caught:
            storage.append("a", 4, b"another", fence=1)
        assert str(caught.value) == (
            "Thread 'a' has checkpoint 5 but not 4. Somebody removed it, or put a later one there."
            " Restore it from a backup, or move the later one away; until then nothing is loaded or"
            " saved."
        )


@pytest.mark.parametrize(
    "change",
    [
        "token = -1",
        "token = 1000000000000000000",
        "head = -1, first = 0",
        "head = 10000000000",
        "first = 6",
        "owner = NULL",
        "expires = NULL",
        "expires = 'tomorrow'",
        "expires = '2026-01-31T09:30:00Z'",
        "expires = '2026-01-31T09:30:00.000000'",
        "owner = 'Not A Name'",
        "token = 0",
    ],
)
def test_a_thread_that_says_what_nobody_wrote_is_not_saved(
    database: sqlite3.Connection, path: Path, change: str
) -> None:
    rewrite(path, f"UPDATE threads SET {change}")  # noqa: S608  a constant above
    with SQLiteCheckpointStorage(path) as storage:
        acts: list[Callable[[], object]] = [
            lambda: storage.append("a", 6, b"", fence=1),
            lambda: storage.acquire("a", "worker", 5),
            lambda: storage.lease("a"),
        ]
        for act in acts:
            with pytest.raises(StorageUnavailable) as caught:
                act()
            assert str(caught.value) == (
                f"{path} does not say where thread 'a' ends or who owns it, so nothing of the"
                " thread is saved. Somebody else wrote it, or the disk failed. Put the database"
                " back from a backup."
            )


def retype(path: Path, *statements: str) -> None:
    """Put values of any type into the tables, which are STRICT before and after."""

    def schema(change: str) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as attacker:
            attacker.execute("PRAGMA writable_schema = ON")
            attacker.execute(f"UPDATE sqlite_schema SET sql = {change} WHERE type = 'table'")  # noqa: S608
            [(version,)] = attacker.execute("PRAGMA schema_version").fetchall()
            attacker.execute(f"PRAGMA schema_version = {version + 1}")

    strict, loose = ") STRICT, WITHOUT ROWID", ") WITHOUT ROWID /**/"
    schema(f"replace(replace(sql, '{strict}', '{loose}'), ') STRICT', ') /**/')")
    rewrite(path, *statements)
    schema(f"replace(replace(sql, '{loose}', '{strict}'), ') /**/', ') STRICT')")


@pytest.mark.parametrize(
    ("changes", "unread"),
    [
        (["threads SET head = 'five'"], ["head"]),
        (
            ["threads SET head = 'five'", "checkpoints SET sequence = 'five' WHERE sequence = 5"],
            ["head"],
        ),
        (["threads SET head = 5.5", "checkpoints SET sequence = 5.5 WHERE sequence = 5"], ["head"]),
        (["checkpoints SET sequence = x'05' WHERE sequence = 5"], ["head"]),
        (["threads SET head = x'05'"], ["head"]),
        (["threads SET first = 'two'"], ["head", "read", "scan"]),
        (["threads SET first = x'02'"], ["head", "read", "scan"]),
    ],
)
def test_a_number_of_another_type_is_refused(
    database: sqlite3.Connection, path: Path, changes: list[str], unread: list[str]
) -> None:
    retype(path, *(f"UPDATE {change}" for change in changes))
    with SQLiteCheckpointStorage(path) as storage:
        acts: dict[str, Callable[[], object]] = {
            "head": lambda: storage.head("a"),
            "read": lambda: storage.read("a", 3),
            "scan": lambda: list(storage.scan("a", 3, 4)),
        }
        for name in unread:
            with pytest.raises(StorageUnavailable) as caught:
                acts[name]()
            assert str(caught.value) == (
                f"{path} does not say where thread 'a' ends or who owns it, so nothing of the"
                " thread is saved. Somebody else wrote it, or the disk failed. Put the database"
                " back from a backup."
            )
    findings = check_database(path)
    assert (
        f"{path} does not say where thread 'a' ends or who owns it, so nothing of the thread is"
        " saved."
    ) in [finding.what for finding in findings]


@pytest.mark.parametrize("record", ["7", "7.5", "'text'"])
def test_a_record_of_another_type_is_malformed(
    database: sqlite3.Connection, path: Path, record: str
) -> None:
    retype(path, f"UPDATE checkpoints SET record = {record} WHERE sequence = 3")  # noqa: S608
    message = (
        "Checkpoint 3 of thread 'a' is not bytes. This storage never keeps anything else."
        " Put the database back from a backup."
    )
    with SQLiteCheckpointStorage(path) as storage:
        acts: list[Callable[[], object]] = [
            lambda: storage.read("a", 3),
            lambda: list(storage.scan("a", 2, 4)),
        ]
        for act in acts:
            with pytest.raises(RecordMalformed) as caught:
                act()
            assert str(caught.value) == message
    assert "a #3: Checkpoint 3 of thread 'a' is not bytes." in [
        finding.what for finding in check_database(path)
    ]


def test_the_audit_shows_names_and_numbers_of_another_type_in_one_line(
    database: sqlite3.Connection, path: Path
) -> None:
    retype(
        path,
        "UPDATE threads SET thread = x'61'",
        "UPDATE checkpoints SET thread = x'61', sequence = 'a' || char(10) || sequence",
        "INSERT INTO checkpoints SELECT 'b', 'x' || char(27), x'00'",
        "INSERT INTO threads (thread, head) VALUES ('b', 'y' || char(27))",
    )
    for finding in check_database(path):
        assert str(finding).isprintable()
        assert type(finding.where) is str


def test_a_database_of_another_application_is_left_alone(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE notes (n)")
    path.chmod(0o600)
    before = path.read_bytes()
    for number in (0, 1, -5):
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute(f"PRAGMA application_id = {number}")
        before = path.read_bytes()
        assert refusal(path) == (
            f"{path} is a database of another application (application_id {number}). Nothing in it"
            " was changed. Name another file: one that does not exist yet is made."
        )
        assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (
            2,
            (
                "{} was written by a newer version of safepoint (its schema is 2, and this one"
                " knows 1). Use that version: pip install --upgrade safepoint"
            ),
        ),
        (
            0,
            (
                "{} says that its schema is 0, and it is 1. Somebody changed the database. Put it"
                " back from a backup, and see who can write it: ls -l {}"
            ),
        ),
    ],
)
def test_another_version_is_refused(
    database: sqlite3.Connection, path: Path, version: int, message: str
) -> None:
    database.execute(f"PRAGMA user_version = {version}")
    assert refusal(path) == message.format(path, path)


@pytest.mark.parametrize("content", [b"{}\n", b"SQLite format 2\0" * 100, os.urandom(5000)])
def test_a_file_that_is_no_database_is_left_alone(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700)
    path.touch(0o600)
    path.write_bytes(content)
    assert refusal(path) == (
        f"{path} is not an SQLite database. Nothing in it was changed. Name another file, or put"
        f" the database back from a backup; see what is there: file {path}"
    )
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_database(path: Path) -> None:
    """It is what a process leaves that died right after it made the file."""
    path.parent.mkdir(mode=0o700)
    path.touch(0o600)
    with SQLiteCheckpointStorage(path) as storage:
        storage.append("a", 1, b"one")


def test_the_file_says_whose_it_is(database: sqlite3.Connection, path: Path) -> None:
    assert database.execute("PRAGMA application_id").fetchone() == (0x53465054,)
    assert database.execute("PRAGMA user_version").fetchone() == (1,)
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    tables = database.execute("SELECT name FROM pragma_table_list WHERE strict").fetchall()
    assert sorted(tables) == [("checkpoints",), ("prunings",), ("threads",)]
    assert (0x53465054).to_bytes(4, "big") == b"SFPT"


def test_each_connection_is_careful(path: Path) -> None:
    with SQLiteCheckpointStorage(path) as storage:
        storage.head("a")
        database = storage._database
        for slot in (database._reads, database._writes):
            assert slot.connection is not None
            asked = {
                name: slot.connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in (
                    "trusted_schema",
                    "cell_size_check",
                    "synchronous",
                    "secure_delete",
                    "temp_store",
                    "journal_mode",
                    "fullfsync",
                )
            }
            assert asked == {
                "trusted_schema": 0,
                "cell_size_check": 1,
                "synchronous": 2,
                "secure_delete": 1,
                "temp_store": 2,
                "journal_mode": "wal",
                "fullfsync": 1,
            }


def test_damage_is_one_clear_sentence(path: Path) -> None:
    with SQLiteCheckpointStorage(path) as storage:
        for sequence in range(1, 40):
            storage.append("a", sequence, bytes(900))
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xee" * (len(data) - 4096)
    path.write_bytes(data)
    seen = set()
    try:
        with SQLiteCheckpointStorage(path) as storage:
            storage.read("a", 3)
    except CheckpointError as error:
        seen.add(str(error))
    assert seen == {
        (
            f"{path} is damaged (SQLITE_CORRUPT). Stop every process that uses it, and put it back"
            f" from a backup. See what is wrong: sqlite3 -readonly {path} 'PRAGMA integrity_check'"
        )
    }
