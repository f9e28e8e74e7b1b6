"""The crash driver itself: it kills after each step, sees each, and tells what was left."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.harness.crash import failed, killed


def publish(folder: Path, text: str) -> None:
    """Write a file beside its place, sync it, and give it its name."""
    fd = os.open(folder / "next", os.O_WRONLY | os.O_CREAT, 0o600)
    data = text.encode()
    while data:
        data = data[os.write(fd, data) :]
    os.fsync(fd)
    os.close(fd)
    os.rename(folder / "next", folder / "it")  # noqa: PTH104 - what `os` does is the subject


def transact(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "db")) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("CREATE TABLE a (b)")
        for _ in range(2):
            connection.execute("SELECT * FROM a").fetchall()
        with connection:
            connection.execute("INSERT INTO a VALUES (1)")
            connection.execute("INSERT INTO a VALUES (2)")
        connection.execute("SELECT * FROM a").fetchall()


def helper(folder: Path) -> None:
    (folder / "log").open("a").write("x")


def wrong(_: Path) -> None:
    raise LookupError("no step, and a mistake")


def test_a_run_is_killed_after_each_step(tmp_path: Path) -> None:
    """A long write is torn, too; the old file or the new one is there, and nothing in between."""
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    (prepared / "it").write_text("old")
    runs = killed(publish, tmp_path, "x" * 500, prepared=prepared)
    steps = ["open", "write", "write", "write", "rename"]
    assert [list(run.steps) for run in runs] == [*(steps[:n] for n in range(1, 6)), steps]
    assert [run.whole for run in runs] == [False] * 5 + [True]
    left = [(run.folder / "next").read_text() for run in runs[:4]]
    assert [len(text) for text in left] == [0, 200, 400, 500]
    assert [(run.folder / "it").read_text()[:3] for run in runs] == ["old"] * 4 + ["xxx"] * 2


def test_each_step_fails_once(tmp_path: Path) -> None:
    runs = failed(publish, tmp_path, "new", code=errno.EIO)
    assert [run.steps[-1] for run in runs] == ["open", "write", "fsync", "rename", "rename"]
    assert {run.error for run in runs[:-1]} == {"OSError: [Errno 5] Input/output error"}
    assert [run.whole for run in runs] == [False] * 4 + [True]
    assert [(run.folder / "it").exists() for run in runs] == [False] * 4 + [True]


def test_a_statement_of_sqlite_that_changes_something_is_a_step(tmp_path: Path) -> None:
    """A kill before the commit leaves none of the two rows. What only reads is none."""
    seen = []
    for run in killed(transact, tmp_path):
        with closing(sqlite3.connect(run.folder / "db")) as connection:
            seen.append(connection.execute("SELECT count(*) FROM a").fetchone()[0])
        assert set(run.steps) == {"sql"}
    # After the table, after each row, after the commit, and not killed.
    assert seen == [0, 0, 0, 2, 2]


def test_work_that_the_driver_cannot_see_is_a_failure(tmp_path: Path) -> None:
    """A crash test that never crashed anything would be green for nothing."""
    with pytest.raises(AssertionError, match="no step that this driver sees"):
        killed(helper, tmp_path)
    with pytest.raises(AssertionError, match="no step, and a mistake"):
        killed(wrong, tmp_path)
