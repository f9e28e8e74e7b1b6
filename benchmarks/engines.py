"""The contenders on each engine: a ledger with more and more around it, and LangGraph's saver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import langgraph
from benchmarks.langgraph import asked, rows_in
from safepoint import Keyring, Ledger, SigningKey, SQLiteAnchor
from safepoint.core.anchor import Anchor
from safepoint.core.journal import Journal
from safepoint.core.storage import CheckpointStorage

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

STORE = "orders"
KEY = SigningKey(bytes(range(32)))
KEYS = Keyring(KEY)
JOURNAL_KEYS = Keyring(SigningKey(bytes(range(1, 33))))
WAIT = 60.0
WAYS = {"sealed": "sealed", "anchored": "and anchored"}
JOURNALLED = "journalled"
PEER = "langgraph"


class Worked:
    """A ledger as one worker has opened it."""

    def __init__(
        self, storage: CheckpointStorage, anchor: Anchor | None, journal: Journal | None = None
    ) -> None:
        self.storage = storage
        self.anchor = anchor
        self.journal = journal
        self.ledger = ledger_of(storage, anchor, journal)

    def save(self, thread: str, state: dict[str, Any]) -> str:
        """Save, and return the digest."""
        return self.ledger.save(thread, state).digest

    def names(self, thread: str) -> list[str]:
        """Verify the thread, and return the digests of its checkpoints."""
        count = self.ledger.verify(thread)
        digests = [checkpoint.digest for checkpoint in self.ledger.history(thread)]
        return digests if len(digests) == count else []

    def close(self) -> None:
        """Close its connections."""
        for part in (self.storage, self.anchor, self.journal):
            close = getattr(part, "close", None)
            if close is not None:
                close()


def ledger_of(
    storage: CheckpointStorage, anchor: Anchor | None = None, journal: Journal | None = None
) -> Ledger:
    """Return a ledger that remembers nothing yet."""
    return Ledger(storage, store=STORE, keys=KEYS, anchor=anchor, journal=journal)


@dataclass(frozen=True)
class OnSqlite:
    """A ledger in a SQLite file, anchored in files of its own."""

    label: str
    path: Path
    anchor: Path | None = None

    def open(self, worker: int) -> Worked:  # noqa: ARG002  all workers share the file
        """Open it."""
        from safepoint.stores.sqlite import SQLiteCheckpointStorage

        file = None if self.anchor is None else self.anchor / "heads.db"
        anchor = None if file is None else SQLiteAnchor(file, create=True)
        return Worked(SQLiteCheckpointStorage(self.path), anchor)

    def count(self) -> int:
        """Return how many checkpoints there are."""
        return rows_in(self.path)


@dataclass(frozen=True)
class OnPostgres:
    """A ledger on PostgreSQL: a login for each worker, and others for the anchor and journal."""

    label: str
    owner: str
    dsns: Mapping[int, str]
    anchor: str | None = None
    journal: str | None = None

    def open(self, worker: int) -> Worked:
        """Open it."""
        from safepoint.stores.postgres import (
            PostgresAnchor,
            PostgresCheckpointStorage,
            PostgresJournal,
        )

        storage = PostgresCheckpointStorage(self.dsns[worker], wait_seconds=WAIT)
        anchor = self.anchor and PostgresAnchor(self.anchor, wait_seconds=WAIT)
        journal = self.journal and PostgresJournal(
            self.journal, keys=JOURNAL_KEYS, wait_seconds=WAIT
        )
        return Worked(storage, anchor or None, journal or None)

    def count(self) -> int:
        """Return how many checkpoints there are, each of which is in the journal, if there is one.

        Raises:
            RuntimeError: the journal knows of more or fewer.
        """
        from safepoint.stores.postgres import PostgresJournal

        count = asked(self.owner, "select count(*) from safepoint.records")
        if self.journal is not None:
            with PostgresJournal(self.journal, keys=JOURNAL_KEYS, wait_seconds=WAIT) as journal:
                told = journal.verify()
            if told != count:
                raise RuntimeError(f"The journal has {told} lines for {count} checkpoints.")
        return count


Contender = OnSqlite | OnPostgres | langgraph.Sqlite | langgraph.Postgres
"""A store to be measured: how to open it, what it is, and how much it holds."""


def on_sqlite(folder: Path) -> dict[str, Contender]:
    """Return the contenders on SQLite, each with a file of its own."""
    anchors = {"anchored": folder / "anchor"}
    contenders: dict[str, Contender] = {
        way: OnSqlite(label, folder / way / "checkpoints.db", anchors.get(way))
        for way, label in WAYS.items()
    }
    (folder / PEER).mkdir(mode=0o700)
    return {**contenders, PEER: langgraph.Sqlite(folder / PEER / "checkpoints.db")}


def on_postgres(server: Server, workers: int) -> dict[str, Contender]:
    """Return the contenders on PostgreSQL, each with a database of its own on one server."""
    from safepoint.stores.postgres import create_schema

    server.database("made")
    create_schema(server.dsn(database="made"))
    logins = [f"worker_{number}" for number in range(workers)]
    for login in logins:
        server.login(login, "safepoint_writer")
    server.login("anchor", "safepoint_anchor")
    server.login("journal", "safepoint_journal")
    server.login("langgraph")
    contenders: dict[str, Contender] = {}
    for way, label in {**WAYS, JOURNALLED: "sealed, anchored and journalled"}.items():
        server.database(way, template="made")
        contenders[way] = OnPostgres(
            label,
            server.dsn(database=way),
            {number: server.dsn(login, way) for number, login in enumerate(logins)},
            server.dsn("anchor", way) if way in ("anchored", JOURNALLED) else None,
            journal=server.dsn("journal", way) if way == JOURNALLED else None,
        )
    server.database(PEER)
    server.psql(f"alter database {PEER} owner to langgraph")
    return {**contenders, PEER: langgraph.Postgres(server.dsn("langgraph", PEER))}


@contextmanager
def serving() -> Iterator[Server]:
    """Start a PostgreSQL server, and make sure that a commit is on disk when it returns."""
    from safepoint.testing.postgres import Server

    with Server() as server:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            if server.psql(f"show {setting}") != "on":
                raise RuntimeError(f"The server runs without {setting}.")
        yield server
