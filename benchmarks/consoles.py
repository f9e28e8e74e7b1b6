"""The console's list: 10,000 threads of which 500 wait for two people, beside LangGraph's savers.

Ours verifies what it shows: a page is 50 runs, each opened with the live anchor, with what people
said to it so far. The peer lists its checkpoints and keeps those with an interrupt, unverified:
its savers have no other way to tell who waits. The store is made in memory by real runs, and its
rows are put into the database in one go, past the triggers.
"""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.engines import serving
from benchmarks.langgraph import Postgres, Saver, Sqlite
from benchmarks.measure import beside, table
from benchmarks.stores import is_missing
from safepoint import (
    Approver,
    Approvers,
    Ask,
    Gate,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InMemoryJournal,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
    Workflow,
)
from safepoint.console.index import PER_PAGE, Index
from safepoint.core.names import ANSWERS
from safepoint.resume.answers import Answers
from safepoint.resume.workflow import Call
from safepoint.settings import Store

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

STORE = "orders"
THREADS = 10_000
EVERY = 20  # one in so many waits
PEOPLE = ("dana", "erin")
PAGE_AIM = 200  # ms of the server's time
ROUNDS = 21
FEW = 3
Row = tuple[str, int, bytes]


def consoles(folder: Path) -> None:
    """Measure both engines."""
    if is_missing():
        return
    made, peer = _Made(folder), folder / "peer.db"
    rows = [_measured("SQLite", made.in_sqlite(), Sqlite(peer).open(0), "pragma synchronous = off")]
    with serving() as server:
        server.database("peer")
        theirs = Postgres(server.dsn(database="peer")).open(0)
        rows.append(
            _measured(
                "PostgreSQL", made.in_postgres(server), theirs, "set synchronous_commit = off"
            )
        )
    heads = ["engine", "a whole pass, ms", "a quick round, ms", "a page of 50, ms"]
    heads += ["LangGraph's list of all, ms", "the page to that list"]
    title = f"The console: {THREADS:,} threads, of which {THREADS // EVERY} wait; time, and CPU"
    table(title, heads, rows)


def _measured(engine: str, store: Store, peer: Saver, quickly: str) -> list[str]:
    """Return a row: each figure is the median of wall time, and of what the processor did."""
    peer.run(quickly)
    _fill(peer)
    index = Index({STORE: store})
    passed = _medians(lambda: index.look(whole=True), 1)
    quick = _medians(lambda: index.look(whole=False), ROUNDS)
    page = _medians(lambda: _full(index.page("waiting").rows), ROUNDS)
    theirs = _medians(lambda: _full(_naive(peer)), FEW)
    if index.alarms() or sum(index.counts().values()) != THREADS // EVERY:
        raise RuntimeError(f"The index does not know what waits: {index.counts()}.")
    index.close()
    peer.close()
    shown = [f"{wall:.0f} ({cpu:.0f})" for wall, cpu in (passed, quick, page, theirs)]
    shown[2] += f" (aim {PAGE_AIM})"
    return [engine, *shown, beside(page[0] / theirs[0])]


def _medians(act: Callable[[], object], rounds: int) -> tuple[float, float]:
    taken = []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        act()
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = (statistics.median(each) * 1000 for each in zip(*taken, strict=True))
    return wall, cpu


def _full(rows: Sized) -> None:
    if len(rows) != PER_PAGE:
        raise RuntimeError(f"That is a page of {len(rows)}.")


def _fill(peer: Saver) -> None:
    """Save as many threads, of which as many were interrupted."""
    from langgraph.types import Interrupt

    asked = Interrupt(value={"action": "pay", "amount": 42, "payee": "alice"}, id="1")
    for number in range(THREADS):
        thread = f"order-{number}"
        for step in range(2):
            peer.save(thread, {"number": number, "step": step})
        if not number % EVERY:
            peer.interrupt(thread, asked)
        peer.give(thread)
    peer.run("analyze")


def _naive(peer: Saver) -> list[str]:
    """List the newest checkpoint of each thread, and take the first of those that wait."""
    newest: dict[str, Any] = {}
    for each in peer.saver.list(None):
        newest.setdefault(each.config["configurable"]["thread_id"], each)
    waiting = [
        (each.checkpoint["ts"], thread)
        for thread, each in newest.items()
        if any(channel == "__interrupt__" for _, channel, _ in each.pending_writes or ())
    ]
    return [thread for _, thread in sorted(waiting)[:PER_PAGE]]


class _Made:
    """A store with its people, made in memory, to be put anywhere."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys = {name: SigningKey.generate() for name in ("writer", *PEOPLE)}
        for name, key in self._keys.items():
            key.public.to_file(folder / f"{name}.pub")
        self._storage, self._anchor = InMemoryCheckpointStorage(), InMemoryAnchor()
        self._answers = Answers(InMemoryCheckpointStorage(), InMemoryAnchor())
        self._run()

    def _run(self) -> None:
        """Let one in twenty ask, and one in two of those have one yes."""

        def ask(state: dict[str, Any]) -> Ask:
            return Ask(
                "pay",
                {"amount": 42, "payee": "alice"},
                within=timedelta(hours=1, seconds=state["number"]),
            )

        def pay(_: dict[str, Any], call: Call) -> dict[str, Any]:
            return {"paid": call.approved.arguments["amount"]}

        def report(state: dict[str, Any]) -> dict[str, Any]:
            return {"done": state["number"]}

        people = Approvers({name: self._keys[name].public for name in PEOPLE})
        waits = Workflow("invoice", [ask, pay], gate=Gate(approvers=people))
        ends = Workflow("report", [report])
        keys, journal = Keyring(self._keys["writer"]), InMemoryJournal()
        ledger = Ledger(self._storage, store=STORE, keys=keys, anchor=self._anchor, journal=journal)
        dana = Approver("dana", self._keys["dana"])
        for number in range(THREADS):
            flow = ends if number % EVERY else waits
            run = flow.start(ledger, f"order-{number}", number=number)
            if run.question is not None and not number % (EVERY * 2):
                self._answers.put(dana, dana.approve(run.question))

    def in_sqlite(self) -> Store:
        """Put it into files of SQLite."""
        places = {"storage": "state/checkpoints.db", "anchor": "anchor/heads.db"}
        places |= {"answers": "answers/answers.db", "answers_anchor": "answers-anchor/heads.db"}
        paths = {name: self._folder / path for name, path in places.items()}
        for storage, records in (("storage", self._storage), ("answers", self._answers.storage)):
            SQLiteCheckpointStorage(paths[storage]).close()
            with closing(sqlite3.connect(paths[storage])) as connection, connection:
                fill = "insert into checkpoints (thread, sequence, record) values (?, ?, ?)"
                connection.executemany(fill, _rows(records))
        for name, store, anchor in (
            ("anchor", STORE, self._anchor),
            ("answers_anchor", ANSWERS, self._answers.anchor),
        ):
            SQLiteAnchor(paths[name], create=True).close()
            with closing(sqlite3.connect(paths[name])) as connection, connection:
                connection.execute("insert into store values (1, ?)", (store,))
                fill = "insert into heads (thread, sequence, digest, seen) values (?, ?, ?, ?)"
                connection.executemany(fill, _heads(anchor, store))
        return self._store(**{name: str(path) for name, path in paths.items()})

    def in_postgres(self, server: Server) -> Store:
        """Put it into a database."""
        import psycopg

        from safepoint.stores.postgres import create_schema

        server.database("console")
        owner, now = server.dsn(database="console"), datetime.now(UTC)
        create_schema(owner)
        with psycopg.connect(owner) as connection, connection.cursor() as cursor:
            cursor.execute("set local session_replication_role = replica")
            fills: list[tuple[str, Iterator[tuple[Any, ...]]]] = [
                (
                    "safepoint.threads (thread, login)",
                    ((thread, "worker") for thread in self._threads),
                ),
                (
                    "safepoint.records (thread, sequence, record, login, written)",
                    ((*row, "worker", now) for row in _rows(self._storage)),
                ),
                (
                    "safepoint_answers.records (thread, sequence, record, login, written)",
                    ((*row, "approver", now) for row in _rows(self._answers.storage)),
                ),
                *(
                    (
                        "safepoint_anchor.heads (thread, sequence, digest, store)",
                        ((*row[:3], store) for row in _heads(anchor, store)),
                    )
                    for store, anchor in ((STORE, self._anchor), (ANSWERS, self._answers.anchor))
                ),
            ]
            for into, rows in fills:
                with cursor.copy(f"copy {into} from stdin") as copy:
                    for row in rows:
                        copy.write_row(row)
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute("vacuum analyze")
        logins = {"reader": "safepoint_reader", "auditor": "safepoint_auditor"}
        for login, role in logins.items():
            server.login(login, role)
        return self._store(
            postgres=server.dsn("reader", "console"),
            postgres_anchor=server.dsn("auditor", "console"),
            postgres_answers=server.dsn("auditor", "console"),
        )

    @property
    def _threads(self) -> list[str]:
        return self._storage.threads()

    def _store(self, **parts: str) -> Store:
        return Store(
            store=STORE,
            key=(str(self._folder / "writer.pub"),),
            approver=tuple(f"{name}={self._folder / name}.pub" for name in PEOPLE),
            people=len(PEOPLE),
            **parts,  # type: ignore[arg-type]
        )


def _rows(storage: Any) -> Iterator[Row]:
    for thread in storage.threads():
        for sequence in range(1, storage.head(thread) + 1):
            yield thread, sequence, storage.read(thread, sequence)


def _heads(anchor: Any, store: str) -> Iterator[tuple[str, int, str]]:
    for thread in anchor.threads(store):
        head = anchor.read(store, thread)
        yield thread, head.sequence, head.digest
