"""The newest of ten checkpoints, of 100,000, of a million: what `latest` costs as a thread grows.

Such threads are filled in one go, as no application could: past the triggers, by the superuser of
PostgreSQL, and in one transaction of SQLite. Each record is sealed and linked all the same, and
`latest` verifies what it loads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import langgraph
from benchmarks.engines import KEY, STORE, OnPostgres, OnSqlite, Worked, ledger_of
from benchmarks.load import state_of
from benchmarks.measure import Act, beside, medians, table
from safepoint import Codec, Ledger
from safepoint.core.names import Head
from safepoint.core.record import Place, seal

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

COUNTS = (10, 100, 1_000, 10_000, 100_000)
PEER_COUNTS = (10, 100, 1_000)
AIMS = {"SQLite": 2.5}
"""How many times as long as the other's, at most."""
ROUNDS = 201
FILL = "insert into checkpoints (thread, sequence, record) values (?, ?, ?)"
Fill = Callable[[str, Iterator[bytes]], None]


def newest(folder: Path, server: Server, counts: tuple[int, ...] = COUNTS) -> None:
    """Measure both engines."""
    server.database("newest", template="made")
    server.database("newest_peer")
    owner = server.dsn(database="newest")
    anchor = server.dsn("anchor", "newest")
    on_postgres = OnPostgres("", owner, {0: server.dsn("worker_0", "newest")}, anchor)
    peer = langgraph.Postgres(server.dsn(database="newest_peer"))
    _measure("PostgreSQL", on_postgres.open(0), _fill_postgres(owner), peer.open(0), counts)

    on_sqlite = OnSqlite("", folder / "newest" / "checkpoints.db", folder / "newest-anchor")
    peer_file = langgraph.Sqlite(folder / "newest-peer.db")
    opened = on_sqlite.open(0)
    _measure("SQLite", opened, _fill_sqlite(on_sqlite.path), peer_file.open(0), counts)


def _measure(
    engine: str, ours: Worked, fill: Fill, peer: langgraph.Saver, counts: tuple[int, ...]
) -> None:
    peer_counts = [count for count in counts if count in PEER_COUNTS]
    for count in counts:
        fill(_thread(count), _records(ours, _thread(count), count))
    for count in peer_counts:
        for step in range(count):
            peer.save(_thread(count), state_of(_thread(count), step))
    peer.run("analyze")
    acts: dict[str, Act] = {}
    for count in counts:
        acts[f"sealed {count}"] = partial(_latest, ledger_of(ours.storage), _thread(count))
        acts[f"anchored {count}"] = partial(_latest, ours.ledger, _thread(count))
    for count in peer_counts:
        acts[f"peer {count}"] = partial(peer.latest, _thread(count))
    taken = medians(acts, ROUNDS)
    kinds = {"sealed": "sealed", "anchored": "anchored", "peer": "LangGraph"}
    rows = [
        [
            f"{count:,}",
            *(_shown(taken, kind, count) for kind in kinds),
            beside(taken[f"sealed {count}"] / taken[f"peer {count}"], AIMS.get(engine))
            if count in peer_counts
            else "not run",
        ]
        for count in counts
    ]
    heads = ["checkpoints", *(f"{name}, µs (to 10)" for name in kinds.values())]
    heads += ["sealed, to LangGraph"]
    table(f"{engine}: load the newest, verified, on open connections", heads, rows)
    ours.close()
    peer.close()


def _latest(ledger: Ledger, thread: str) -> object:
    return ledger.latest(thread).state


def _thread(count: int) -> str:
    return f"order-{count}"


def _shown(taken: dict[str, float], kind: str, count: int) -> str:
    each = taken.get(f"{kind} {count}")
    return "not run" if each is None else f"{each * 1e6:.0f} ({each / taken[f'{kind} 10']:.2f})"


def _records(ours: Worked, thread: str, count: int) -> Iterator[bytes]:
    """Seal a chain of `count` records, and anchor the last."""
    now, previous = datetime.now(UTC), None
    payload = Codec().encode(state_of(thread, 1))
    for sequence in range(1, count + 1):
        place = Place(STORE, "", thread, sequence)
        record, opened = seal(payload, place, KEY, created=now, previous=previous)
        previous = opened.digest
        yield record
    if ours.anchor is not None and previous is not None:
        ours.anchor.advance(STORE, thread, Head(count, previous))


def _fill_sqlite(path: Path) -> Fill:
    def fill(thread: str, records: Iterator[bytes]) -> None:
        rows = ((thread, sequence, record) for sequence, record in enumerate(records, start=1))
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executemany(FILL, rows)

    return fill


def _fill_postgres(owner: str) -> Fill:
    import psycopg

    columns = "thread, sequence, record, login, written"

    def fill(thread: str, records: Iterator[bytes]) -> None:
        with psycopg.connect(owner) as connection, connection.cursor() as cursor:
            cursor.execute("set local session_replication_role = replica")
            cursor.execute(
                "insert into safepoint.threads (thread, login) values (%s, 'worker_0')", (thread,)
            )
            now: Any = datetime.now(UTC)
            with cursor.copy(f"copy safepoint.records ({columns}) from stdin binary") as copy:
                copy.set_types(["text", "int8", "bytea", "name", "timestamptz"])
                for sequence, record in enumerate(records, start=1):
                    copy.write_row((thread, sequence, record, "worker_0", now))
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute("vacuum analyze safepoint.records")

    return fill
