"""The audit of an SQLite store: its file, its rules, its rows, and its records."""

from __future__ import annotations

import os
import pickle
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from safepoint import FileAnchor, Keyring, Ledger, Limits, SigningKey, SQLiteCheckpointStorage
from safepoint._files import SUPPORTED
from safepoint.audit import check_database, check_ownership
from safepoint.audit.ownership import check_ownership_at_time
from safepoint.errors import StorageUnavailable, UnsafeLocation
from tests.unit.commands import audit as main

if not SUPPORTED:
    pytest.skip("modes and owners are POSIX", allow_module_level=True)

BACKUP = "Somebody changed the database. Put it back from a backup that verifies."


@pytest.fixture(autouse=True)
def _no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of these tests are in /tmp, which is a finding of its own."""
    monkeypatch.setattr("safepoint.audit.location.temp_folders", list)


class Deployed:
    """A store in SQLite, with its key and its anchor. Nobody has it open."""

    def __init__(self, root: Path) -> None:
        self.path, self.key, self.apart = root / "state/c.db", root / "keys/key", root / "anchor"
        self.keys = Keyring(SigningKey.from_file(self.key, create=True))
        self.anchor = FileAnchor(self.apart, create=True)
        with SQLiteCheckpointStorage(self.path) as storage:
            ledger = self.ledger(storage)
            for amount in range(4):
                ledger.save("order-7", {"amount": amount})

    def ledger(self, storage: SQLiteCheckpointStorage) -> Ledger:
        return Ledger(storage, store="invoices", keys=self.keys, anchor=self.anchor)

    @property
    def sealed(self) -> list[str]:
        return [str(self.path), "--store", "invoices", "--key", str(self.key)]

    @property
    def anchored(self) -> list[str]:
        return [*self.sealed, "--anchor", str(self.apart)]

    def edit(self, *statements: str) -> None:
        """Do as somebody who can write the file: drop each trigger, edit, put them back."""
        connection = sqlite3.connect(self.path)
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, sql in triggers:
            connection.execute(sql)
        connection.commit()
        connection.close()

    def bare(self, *statements: str) -> None:
        """Do as somebody who cares for nothing."""
        connection = sqlite3.connect(self.path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()


def edited(record: bytes) -> str:
    """The statement that puts another record in the place of the second one."""
    return f"UPDATE checkpoints SET record = x'{record.hex()}' WHERE sequence = 2"  # noqa: S608


@pytest.fixture
def deployed(tmp_path: Path) -> Deployed:
    return Deployed(tmp_path)


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(arguments: list[str]) -> tuple[int, list[str], list[str]]:
        code = main(arguments)
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err.splitlines()

    return run


def lines(deployed: Deployed, **given: Any) -> list[str]:
    return [str(finding) for finding in check_database(deployed.path, **given)]


def test_what_the_storage_made_has_no_findings(deployed: Deployed) -> None:
    assert lines(deployed) == []


def test_nothing_is_made_or_changed(deployed: Deployed, out: Any) -> None:
    """Not even the files that SQLite puts beside a database to read it."""
    folder = deployed.path.parent

    def look() -> list[tuple[str, int, int, int]]:
        found = [(each, each.lstat()) for each in sorted(folder.rglob("*"))]
        return [(p.name, s.st_mode, s.st_size, s.st_mtime_ns) for p, s in found]

    before = look()
    assert [name for name, *_ in before] == ["c.db"]
    out(deployed.anchored)
    check_database(deployed.path)
    assert look() == before
    with pytest.raises(StorageUnavailable) as caught:
        check_database(folder / "none.db")
    assert str(caught.value) == (
        f"{folder}/none.db does not exist. Name the file of your SQLiteCheckpointStorage."
    )
    with pytest.raises(StorageUnavailable):
        SQLiteCheckpointStorage(folder / "none.db", read_only=True)
    assert look() == before


def test_a_store_in_use_is_looked_at_as_it_is(deployed: Deployed, out: Any) -> None:
    """What was saved and is only in the log counts, and whoever saves is not disturbed."""
    with SQLiteCheckpointStorage(deployed.path) as storage:
        ledger = deployed.ledger(storage)
        ledger.save("order-8", {"amount": 1})
        seen = SQLiteCheckpointStorage(deployed.path, read_only=True)
        assert (sorted(seen.threads()), seen.head("order-8")) == (["order-7", "order-8"], 1)
        ledger.save("order-8", {"amount": 2})
        assert seen.head("order-8") == 2
        assert lines(deployed) == []
        assert out(deployed.anchored)[0] == 0
        ledger.save("order-8", {"amount": 3})
        seen.close()
    assert SQLiteCheckpointStorage(deployed.path, read_only=True).head("order-8") == 3


def test_a_view_sees_what_was_written_while_nobody_had_it_open(deployed: Deployed) -> None:
    seen = SQLiteCheckpointStorage(deployed.path, read_only=True)
    assert seen.head("order-7") == 4
    with SQLiteCheckpointStorage(deployed.path) as storage:
        deployed.ledger(storage).save("order-7", {"amount": 5})
    assert seen.head("order-7") == 5
    seen.close()


def test_a_view_writes_nothing(deployed: Deployed) -> None:
    seen = SQLiteCheckpointStorage(deployed.path, read_only=True)
    acts: list[Callable[[], object]] = [
        lambda: seen.append("order-7", 5, b""),
        lambda: seen.prune("order-7", 2, b""),
        lambda: seen.acquire("order-7", "worker", 1),
    ]
    for act in acts:
        with pytest.raises(StorageUnavailable, match="This process may not"):
            act()
    with pytest.raises(StorageUnavailable):
        seen.rows("DELETE FROM checkpoints")
    assert seen.token("order-7") == 0
    seen.close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize(("mode", "what"), [(0o640, "read"), (0o606, "written")])
def test_files_that_others_can_read_or_write_are_errors(
    deployed: Deployed, suffix: str, mode: int, what: str
) -> None:
    file = Path(f"{deployed.path}{suffix}")
    with SQLiteCheckpointStorage(deployed.path):  # in use, so that all of them are there
        file.chmod(mode)
        assert lines(deployed) == [
            f"SP04 error: {file} can be {what} by others (mode {mode:04o}). Run: chmod 600 {file}"
        ]
        for each in deployed.path.parent.iterdir():
            each.chmod(0o600)


def test_a_second_name_and_a_link_are_errors(deployed: Deployed, tmp_path: Path) -> None:
    (tmp_path / "second").hardlink_to(deployed.path)
    with pytest.raises(UnsafeLocation) as caught:
        SQLiteCheckpointStorage(deployed.path, read_only=True)
    assert lines(deployed) == [f"SP04 error: {caught.value}"]
    assert "has a second name (hard link)" in caught.value.what
    deployed.path.rename(tmp_path / "moved")
    deployed.path.symlink_to(tmp_path / "moved")
    assert "is a symbolic link." in lines(deployed)[0]


def test_the_folder_is_looked_at(deployed: Deployed) -> None:
    folder = deployed.path.parent
    folder.chmod(0o755)
    assert lines(deployed) == [
        f"SP01 warning: {folder} can be read by others (mode 0755). Run: chmod 700 {folder}"
    ]
    folder.chmod(0o777)
    assert lines(deployed)[0] == (
        f"SP04 error: {folder} can be written by others (mode 0777). Run: chmod 700 {folder}"
    )
    folder.chmod(0o700)
    (folder.parent / ".git").mkdir()
    assert lines(deployed) == [
        (
            f"SP01 warning: {folder} is inside the git work tree {folder.parent}, so state could be"
            " committed. Name a folder outside of it."
        )
    ]


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("DROP TRIGGER checkpoints_update", "the trigger 'checkpoints_update' is gone"),
        ("DROP TRIGGER threads_delete", "the trigger 'threads_delete' is gone"),
        ("CREATE TABLE mine (x)", "the table 'mine' was added"),
        (
            "CREATE TRIGGER mine AFTER INSERT ON checkpoints BEGIN SELECT 1; END",
            "the trigger 'mine' was added",
        ),
    ],
)
def test_a_schema_that_was_changed_is_an_error(
    deployed: Deployed, out: Any, statement: str, what: str
) -> None:
    deployed.bare(statement)
    line = (
        f"SP13 error: {deployed.path} does not have the schema that safepoint made: {what}."
        " Somebody changed the database, and may have changed records. Put it back from a backup,"
        f" and see who can write it: ls -l {deployed.path}"
    )
    assert lines(deployed) == [line]
    code, found, err = out(deployed.anchored)
    assert (code, err, found[0]) == (1, [], line)
    assert found[1] == (
        f"SP02 warning: The records in {deployed.path} were not verified. Mend the errors above,"
        " and run the audit again."
    )


def test_a_database_of_another_application_is_an_error(deployed: Deployed) -> None:
    deployed.bare("PRAGMA application_id = 7")
    assert lines(deployed) == [
        (
            f"SP13 error: {deployed.path} is a database of another application (application_id 7)."
            " Nothing in it was changed. Name another file: one that does not exist yet is made."
        )
    ]


def test_a_damaged_database_is_an_error(deployed: Deployed, out: Any) -> None:
    with deployed.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    code, found, _ = out(deployed.anchored)
    assert code == 1
    assert found[0].startswith(f"SP13 error: {deployed.path} is damaged")
    assert found[0].endswith("backup that verifies.") or "integrity_check" in found[0]


CUT = (
    "Somebody removed some, or put later ones there. Put the database back from a backup; until"
    " then nothing is loaded or saved."
)


@pytest.mark.parametrize(
    ("statements", "line"),
    [
        (
            ["DELETE FROM checkpoints WHERE sequence = 2"],
            (
                "SP13 error: Thread 'order-7' has checkpoint 4 but not 2. Somebody removed it, or"
                " put a later one there. Restore it from a backup, or move the later one away;"
                " until then nothing is loaded or saved."
            ),
        ),
        (
            ["DELETE FROM checkpoints WHERE sequence = 4"],
            (
                "SP13 error: Thread 'order-7' ends at checkpoint 4, and the last one that is"
                f" there is 3. {CUT}"
            ),
        ),
        (
            ["UPDATE threads SET first = 3, base = x'00'"],
            f"SP13 error: Thread 'order-7' begins at 3, and has 2 from before that. {BACKUP}",
        ),
        (
            [
                "UPDATE threads SET first = 3, base = x'00'",
                "DELETE FROM checkpoints WHERE sequence < 3",
            ],
            (
                "SP13 error: Thread 'order-7' begins at 3, and it is not written down that it was"
                f" pruned. {BACKUP}"
            ),
        ),
        (
            ["UPDATE checkpoints SET record = x'80049503' WHERE sequence = 2"],
            (
                "SP10 warning: order-7 #2 is not a sealed record. No ledger loads it. Find out who"
                " wrote it; if it was you, seal it, with safepoint.migrate."
            ),
        ),
        (
            [edited(pickle.dumps([1]))],
            (
                "SP03 warning: order-7 #2 is a pickle. Keep other writers out, and move the state"
                " to a format that cannot execute."
            ),
        ),
        (
            ["INSERT INTO threads (thread) VALUES ('../../etc')"],
            (
                "SP13 warning: 1 names of threads in {path} are none that this storage gives."
                " Nothing reads them. Find out who put them there."
            ),
        ),
    ],
)
def test_rows_that_somebody_edited(deployed: Deployed, statements: list[str], line: str) -> None:
    """The triggers are back in their place, so that nothing but the rows themselves tells."""
    deployed.edit(*statements)
    assert line.format(path=deployed.path) in lines(deployed)


def test_a_record_over_the_limit(deployed: Deployed) -> None:
    found = lines(deployed, limits=Limits(state_bytes=1))
    assert found == []  # a record is larger than its state, and the limits know that
    deployed.edit("UPDATE checkpoints SET record = zeroblob(70000) WHERE sequence = 2")
    limits = Limits(state_bytes=1000)
    assert lines(deployed, limits=limits) == [
        (
            "SP11 error: order-7 #2: The record has 70000 bytes or more, and the limit is"
            f" {limits.record_bytes}. Keep large data outside the state, or pass"
            " Limits(state_bytes=...) with a higher limit."
        )
    ]


def test_a_thread_that_begins_late_is_no_endless_work(tmp_path: Path) -> None:
    with SQLiteCheckpointStorage(tmp_path / "state/c.db") as storage:
        storage.append("late", 9_999_999_999, b"safepoint/1 x")
    assert check_database(tmp_path / "state/c.db") == []


def test_a_pruned_store_has_no_findings(deployed: Deployed, out: Any) -> None:
    with SQLiteCheckpointStorage(deployed.path) as storage:
        deployed.ledger(storage).prune("order-7", keep=2)
    assert lines(deployed) == []
    assert out(deployed.anchored)[0] == 0


def test_the_command_says_what_it_did_not_check(deployed: Deployed, out: Any) -> None:
    path = deployed.path
    assert out([str(path)]) == (
        0,
        [f"No findings: {path} (records not verified: give --key and --store)"],
        [],
    )
    assert out(deployed.sealed) == (
        0,
        [f"No findings: {path} (a rollback would not show: give --anchor)"],
        [],
    )


def test_with_an_anchor_it_knows_where_that_lies(deployed: Deployed, out: Any) -> None:
    code, found, err = out(deployed.anchored)
    assert (code, err) == (0, [])
    folder, anchor = deployed.path.parent, deployed.apart
    assert [line.partition(",")[0] for line in found][:1] == [
        f"SP15 note: The anchor {anchor} can be written by user {os.geteuid()}"
    ]
    assert found[1].startswith(
        f"SP15 note: The anchor {anchor} and the storage {folder} are on one device"
    )


def test_an_edit_is_found(deployed: Deployed, out: Any) -> None:
    connection = sqlite3.connect(deployed.path)
    [(record,)] = connection.execute("SELECT record FROM checkpoints WHERE sequence = 2").fetchall()
    connection.close()
    other = record.replace(b":1}", b":9}")
    assert other != record
    deployed.edit(edited(other))
    code, found, _ = out(deployed.sealed)
    assert code == 1
    assert any(
        line.startswith("SP12 error: The state of order-7 #2 is not the one that was sealed.")
        for line in found
    )


def test_a_rollback_is_found_with_the_anchor_alone(deployed: Deployed, out: Any) -> None:
    deployed.edit("DELETE FROM checkpoints WHERE sequence = 4", "UPDATE threads SET head = 3")
    assert out(deployed.sealed)[0] == 0
    code, found, _ = out(deployed.anchored)
    assert code == 1
    assert found[0].startswith("SP15 error: order-7 ends at #3, and the anchor has seen #4.")


def test_a_key_beside_the_database_is_an_error(deployed: Deployed, out: Any) -> None:
    inside = deployed.path.parent / "key"
    inside.write_bytes(deployed.key.read_bytes())
    inside.chmod(0o600)
    code, found, _ = out([str(deployed.path)])
    assert code == 1
    assert found == [
        (
            f"SP08 error: The key {inside} is inside the storage folder. Whoever reads the storage"
            " would hold the key. Move it to a folder of its own, and replace it if anyone may have"
            " read it."
        )
    ]


def test_owners_are_looked_at(deployed: Deployed, out: Any) -> None:
    with SQLiteCheckpointStorage(deployed.path) as storage:
        storage.acquire("order-7", "worker-1", 60)
    assert check_ownership(deployed.path) == []
    later = datetime.now(UTC) + timedelta(seconds=120)
    [finding] = check_ownership_at_time(deployed.path, later)
    assert (finding.rule, finding.severity, finding.where) == ("SP07", "warning", "order-7")
    assert finding.what.startswith("Worker 'worker-1' owned thread 'order-7' until ")


def test_a_file_that_is_no_database_is_said(tmp_path: Path, out: Any) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "c.db").write_bytes(b"")
    (state / "c.db").chmod(0o600)
    code, found, err = out([str(state / "c.db")])
    assert (code, err) == (1, [])
    assert found[0].startswith(f"SP04 error: {state}/c.db is not a folder.")
    (state / "c.db").write_bytes(b"SQLite format 3\0" + bytes(4096))
    code, found, err = out([str(state / "c.db")])
    assert (code, err) == (1, [])
    assert found[0].startswith(f"SP13 error: {state}/c.db is not an SQLite database.")
