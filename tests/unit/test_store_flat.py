"""The newest of 2,000 checkpoints costs what the newest of 10 does: counted, not timed."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from safepoint import InMemoryAnchor, SQLiteCheckpointStorage
from safepoint.core.anchor import Anchor
from safepoint.stores import database as engine
from tests.harness.postgres import Database
from tests.house import opened

COUNTS = (10, 2_000)


class Counted:
    """A storage that writes down which of its methods are called."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            self.calls.append(name)
            return found(*given, **named)

        return call


def thread(count: int) -> str:
    return f"order-{count}"


def fill(storage: Any, anchor: Anchor | None) -> None:
    ledger = opened(storage, anchor)
    for count in COUNTS:
        for n in range(1, count + 1):
            ledger.save(thread(count), {"n": n})


def calls_of(storage: Any, anchor: Anchor | None, count: int, times: int) -> list[str]:
    """Load the newest with a ledger that was just opened, and return what it asked for."""
    counted: Any = Counted(storage)
    ledger = opened(counted, anchor)
    counted.calls.clear()
    for _ in range(times):
        assert ledger.latest(thread(count)).state == {"n": count}
    assert counted.calls
    return list(counted.calls)


def ways(heads: Anchor) -> Iterator[tuple[Anchor | None, int]]:
    """Yield every way to ask: sealed alone or anchored, just opened or kept open."""
    return product((None, heads), (1, 2))


def test_latest_is_flat_on_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same calls, the same statements, and as many steps of SQLite's own machine."""
    statements: list[str] = []
    steps: list[None] = []
    real: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect(*given: Any, **named: Any) -> sqlite3.Connection:
        connection = real(*given, **named)
        connection.set_trace_callback(lambda text: statements.append(re.sub(r"\d+", "n", text)))
        return connection

    def bound(connection: sqlite3.Connection, _: int) -> None:
        connection.set_progress_handler(lambda: steps.append(None), 1)

    path, heads = tmp_path / "state/checkpoints.db", InMemoryAnchor()
    with SQLiteCheckpointStorage(path) as storage:
        fill(storage, heads)
    monkeypatch.setattr(sqlite3, "connect", connect)
    monkeypatch.setattr(engine, "_bound", bound)
    for anchor, times in ways(heads):
        costs = []
        for count in COUNTS:
            with SQLiteCheckpointStorage(path) as storage:
                storage.head("warm")
                statements.clear()
                steps.clear()
                calls = calls_of(storage, anchor, count, times)
                costs.append((calls, list(statements), len(steps)))
        assert costs[0] == costs[1]
        assert costs[0][1]
        assert costs[0][2] > 0


READ = """
select t.relname, t.seq_scan, t.seq_tup_read, t.idx_scan, t.idx_tup_fetch,
    (select sum(i.idx_tup_read) from pg_stat_user_indexes i where i.relid = t.relid)
from pg_stat_user_tables t
where t.schemaname = 'safepoint' and t.relname in ('records', 'threads')
order by t.relname
"""
HERE = "select count(*) from pg_stat_activity where datname = current_database()"


def rows_read(database: Database) -> dict[str, list[int]]:
    """Return what was read of each table so far. A connection tells of it when it ends."""
    import psycopg

    with closing(psycopg.connect(database.owner, autocommit=True)) as connection:
        end = time.monotonic() + 600
        while connection.execute(HERE + " and usename like 'worker%'").fetchone() != (0,):
            assert time.monotonic() < end
            time.sleep(0.01)
        return {table: list(numbers) for table, *numbers in connection.execute(READ)}


def test_latest_is_flat_on_postgresql(database: Database) -> None:
    """The same calls, and as many rows of each table and its index: none by reading it all."""
    from safepoint.stores.postgres import PostgresCheckpointStorage

    heads = InMemoryAnchor()
    with PostgresCheckpointStorage(database.worker(1)) as storage:
        fill(storage, heads)
    database.server.psql("vacuum analyze", database=database.name)
    for anchor, times in ways(heads):
        costs = []
        for count in COUNTS:
            before = rows_read(database)
            with PostgresCheckpointStorage(database.worker(1)) as storage:
                calls = calls_of(storage, anchor, count, times)
            after = rows_read(database)
            read = {
                table: [new - old for new, old in zip(after[table], before[table], strict=True)]
                for table in after
            }
            costs.append((calls, read))
            scans, scanned, looked_up, fetched, _ = read["records"]
            assert (scans, scanned) == (0, 0)
            assert looked_up > 0
            assert fetched > 0
        assert costs[0] == costs[1]
