"""LangGraph's own savers as stores to be measured against, at the durability that ours have.

`Saver` drives any checkpointer, ours too. A save is `put`, with a checkpoint as the loop of
LangGraph makes it for a graph of one node: the state is the value of one channel, whose version
changes with each step. What the loop writes beside it for each task, with `put_writes`, is left
out.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

CHANNELS = ("order", "branch:to:step")
BUSY_SECONDS = 60.0
PRAGMAS = {"journal_mode": "wal", "synchronous": 2}


class Saver:
    """A saver, and what a run of LangGraph keeps in mind of each thread."""

    def __init__(self, saver: Any, connection: Any) -> None:
        self.saver = saver
        self._connection = connection
        self._runs: dict[str, dict[str, Any]] = {}

    def save(self, thread: str, state: dict[str, Any]) -> str:
        """Put the next checkpoint, and return its id."""
        from langgraph.checkpoint.base.id import uuid6

        if (run := self._runs.get(thread)) is None:
            run = self._runs[thread] = _begun(thread, self.saver.get_next_version(None, None))
        versions, seen = run["versions"], run["versions"]["branch:to:step"]
        following = self.saver.get_next_version(seen, None)
        new = dict.fromkeys(CHANNELS, following)
        run["versions"] = {**versions, **new}
        checkpoint = {
            "v": 4,
            "ts": datetime.now(UTC).isoformat(),
            "id": str(uuid6(clock_seq=run["step"])),
            "channel_values": {"order": state, "branch:to:step": None},
            "channel_versions": run["versions"],
            "versions_seen": {
                "__input__": {},
                "__start__": {"__start__": versions["__start__"]},
                "step": {"branch:to:step": seen},
            },
            "updated_channels": sorted(CHANNELS),
        }
        metadata = {"source": "loop", "step": run["step"], "parents": {}}
        run["config"] = self.saver.put(run["config"], checkpoint, metadata, new)
        run["step"] += 1
        return str(checkpoint["id"])

    def names(self, thread: str) -> list[str]:
        """Return the ids of its checkpoints, oldest first."""
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        return [each.checkpoint["id"] for each in self.saver.list(config)][::-1]

    def latest(self, thread: str) -> Any:
        """Return the newest state."""
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        return self.saver.get_tuple(config).checkpoint["channel_values"]["order"]

    def run(self, statement: str) -> None:
        """Say something to the engine, such as "analyze": count, to plan your queries well."""
        self._connection.execute(statement)

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()


def _begun(thread: str, first: object) -> dict[str, Any]:
    return {
        "step": 0,
        "versions": {"__start__": first, **dict.fromkeys(CHANNELS, first)},
        "config": {"configurable": {"thread_id": thread, "checkpoint_ns": ""}},
    }


@dataclass(frozen=True)
class Sqlite:
    """SqliteSaver on a file in WAL mode, which it sets itself, and with synchronous=FULL."""

    path: Path

    @property
    def label(self) -> str:
        """What it is, with its version."""
        return f"SqliteSaver {version('langgraph-checkpoint-sqlite')}"

    def open(self, worker: int) -> Saver:  # noqa: ARG002  all workers share the file
        """Open it. Its default of 5 seconds to wait for a lock is too short for 8 workers."""
        from langgraph.checkpoint.sqlite import SqliteSaver

        connection = sqlite3.connect(self.path, check_same_thread=False, timeout=BUSY_SECONDS)
        connection.execute("pragma synchronous = full")
        saver = SqliteSaver(connection)
        saver.setup()
        found = [connection.execute(f"pragma {name}").fetchone()[0] for name in PRAGMAS]
        if found != list(PRAGMAS.values()):
            raise RuntimeError(f"SqliteSaver runs with {found}, not as durable as ours.")
        return Saver(saver, connection)

    def count(self) -> int:
        """Return how many checkpoints there are."""
        return rows_in(self.path)


@dataclass(frozen=True)
class Postgres:
    """PostgresSaver on a connection as `from_conn_string` opens it."""

    dsn: str

    @property
    def label(self) -> str:
        """What it is, with its version."""
        return f"PostgresSaver {version('langgraph-checkpoint-postgres')}"

    def open(self, worker: int) -> Saver:  # noqa: ARG002  all workers share the login
        """Open it."""
        import psycopg
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row

        connection = psycopg.Connection.connect(
            self.dsn, autocommit=True, prepare_threshold=0, row_factory=dict_row
        )
        saver = PostgresSaver(connection)
        saver.setup()
        return Saver(saver, connection)

    def count(self) -> int:
        """Return how many checkpoints there are."""
        return asked(self.dsn, "select count(*) from checkpoints")


def rows_in(path: Path) -> int:
    """Return how many checkpoints a file of SQLite has."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("select count(*) from checkpoints").fetchone()[0])


def asked(dsn: str, statement: Any) -> int:
    """Return the one number that PostgreSQL answers."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        row = connection.execute(statement).fetchone()
    return int(row[0]) if row else 0
