"""What others keep: each is built as they build it, and known by what it holds, with exact ids."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from safepoint import SQLiteAnchor, SQLiteCheckpointStorage
from safepoint.audit import folder
from safepoint.audit.folder import check_database
from safepoint.audit.profiles import (
    _CHECKPOINT,
    Recognised,
    kept_by_others,
    recognise_database,
)
from safepoint.stores import disk
from tests.zoo.others import (
    RESUME,
    agent,
    base,
    put,
)

if not disk.SUPPORTED:
    pytest.skip("modes and owners are POSIX", allow_module_level=True)

Build = Callable[[Path], object]
UNREAD = "an SQLite database that cannot be read"
UNKNOWN = "an SQLite database that is not known here"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of these tests are in /tmp, and whoever runs them may be anywhere."""
    monkeypatch.setattr(folder, "temp_folders", list)
    monkeypatch.chdir("/")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "kept"
    place.mkdir(mode=0o700)
    yield place
    place.chmod(0o700)


def then(*steps: Build) -> Build:
    """Build by several steps."""

    def build(path: Path) -> None:
        for step in steps:
            step(path)

    return build


def ids(found: Recognised | None) -> str:
    return "" if found is None else " ".join(sorted(each.id for each in found.findings))


def fake(file: Path) -> None:
    """The names of others, and not their columns."""
    base(file, "create table checkpoints (a); create table writes (b)")


DATABASES: dict[str, tuple[Build, str, str]] = {
    "named like others": (fake, UNKNOWN, "SP02.foreign-database"),
    "empty": (
        lambda file: base(file, "create table a (b); drop table a"),
        UNKNOWN,
        "SP02.foreign-database",
    ),
    "at work": (
        then(agent, lambda file: put(Path(f"{file}-wal"), "7\x7f\6 newer")),
        "a database of an OpenClaw agent",
        "SP02.unseen SP12.unsealed-state",
    ),
    "damaged": (
        then(agent, lambda file: file.write_bytes(file.read_bytes()[:100] + b"\xff" * 4000)),
        UNREAD,
        "SP02.unseen",
    ),
    "cut off": (then(agent, lambda file: os.truncate(file, 5000)), UNREAD, "SP02.unseen"),
}


@pytest.mark.parametrize(("build", "name", "expected"), DATABASES.values(), ids=DATABASES)
def test_a_database_is_known_by_its_columns(
    root: Path, build: Build, name: str, expected: str
) -> None:
    file = root / "any name%20#?.db"
    build(file)
    before = {each: each.read_bytes() for each in root.iterdir()}
    found = recognise_database(str(file))
    assert found is not None
    assert (found.name, ids(found)) == (name, expected)
    assert {each: each.read_bytes() for each in root.iterdir()} == before


def test_a_store_of_ours_is_none_of_others_whatever_was_done_to_it(root: Path) -> None:
    SQLiteCheckpointStorage(root / "s.db").close()
    SQLiteAnchor(root / "a.db", create=True).close()
    for file in ("s.db", "a.db"):
        assert recognise_database(str(root / file)) is None
    with closing(sqlite3.connect(root / "s.db")) as thief:
        thief.execute("pragma application_id = 7")
        thief.execute("drop trigger checkpoints_update")
        thief.commit()
    assert recognise_database(str(root / "s.db")) is None
    assert [each.id for each in check_database(str(root / "s.db"))] == ["SP13.unavailable"]
    with closing(sqlite3.connect(root / "a.db")) as thief:
        thief.execute("drop table heads")
        thief.commit()
    assert recognise_database(str(root / "a.db")) is None
    put(root / "s.txt", "SQLite format 4")
    assert recognise_database(str(root / "s.txt")) is None


FILES: dict[str, tuple[object, str | None]] = {
    "checkpoint": (dict.fromkeys(_CHECKPOINT), "Agent Framework checkpoint"),
    "a name alone": ({"meta": {}}, None),
    "a list": ([RESUME], None),
    "part of a resume": ({"pipeline": [], "resumeAtIndex": 1}, None),
    "no session": ('{"type": "session", "id": 7}', None),
    "too deep": ('{"session":' * 100_000, None),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_known_by_what_it_holds(root: Path, name: str) -> None:
    text, kind = FILES[name]
    assert kept_by_others(put(root / "x", text).read_bytes()) == kind
