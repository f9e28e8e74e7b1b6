"""A database of others with random bytes in it is one line for whoever reads it, and never more."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from safepoint.audit.profiles import recognise_database
from safepoint.core.errors import CheckpointError
from tests.harness.optional import need
from tests.house import Memory, opened
from tests.unit.commands import said

need("langgraph", "needs langgraph")

from safepoint.langgraph import SealedSaver
from safepoint.moving import move, sqlite_saver

KEY = "thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL"
TABLES = f"""
PRAGMA page_size = 512;
CREATE TABLE checkpoints ({KEY}, parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB,
 metadata BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE writes ({KEY}, task_id TEXT NOT NULL, idx INTEGER NOT NULL, channel TEXT NOT NULL,
 type TEXT, value BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
INSERT INTO checkpoints VALUES ('t', '', '1', NULL, 'msgpack', x'80', x'7b7d');
INSERT INTO writes VALUES ('t', '', '1', 'a', 0, 'c', 'msgpack', x'c0');
"""  # noqa: S608


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small database of `SqliteSaver`, of which the schema is a good part."""
    path = tmp_path_factory.mktemp("whole") / "graph.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(TABLES)
    return path.read_bytes()


def damaged(whole: bytes, seed: int) -> bytes:
    """Change one to three bytes, each second time of the schema."""
    chance, data = random.Random(seed), bytearray(whole)  # noqa: S311
    schema = whole.index(b"CREATE TABLE"), whole.rindex(b"idx))")
    for _ in range(chance.randint(1, 3)):
        data[chance.randrange(*(schema if seed % 2 else (16, len(data))))] = chance.randrange(256)
    return bytes(data)


def by_move(path: Path) -> None:
    ledger = opened(Memory())
    try:
        done = move(sqlite_saver(path), SealedSaver(ledger), report=path.with_suffix(".moved"))
        reasons = [each.reason for each in done]
    except CheckpointError as error:
        reasons = [str(error)]
    assert all(reasons)
    assert "\n" not in "".join(reasons)


def by_command(path: Path) -> None:
    status, _, err = said("move", path, "invoices")
    assert (status in (0, 1, 2), err.count("\n") <= 2, "defect" in err) == (True, True, False), err


def by_audit(path: Path) -> None:
    found = recognise_database(str(path))
    assert "\n" not in "".join(each.what for each in (found.findings if found else ()))


READERS: dict[Callable[[Path], None], int] = {by_move: 160, by_command: 30, by_audit: 160}


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_random_bytes_in_a_database_never_escape(
    read: Callable[[Path], None], whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    assert said("init", "invoices", folder=tmp_path)[0] == 0
    for seed in range(READERS[read]):
        path = tmp_path / f"{seed}.db"
        path.write_bytes(data := damaged(whole, seed))
        try:
            read(path)
        except Exception as error:  # which says of which damage it is
            raise AssertionError(f"seed {seed}: {type(error).__name__}") from error
        assert path.read_bytes() == data
        assert [*tmp_path.glob("*.db-*")] == []
        path.unlink()
