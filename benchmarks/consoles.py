"""The console's list: 10,000 threads of which 500 wait for two people.

What it shows is verified: a page is 50 runs, each opened with the live anchor, with what people
said to it so far. The store is made by real runs, without waiting for the disk where that can be.
"""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.engines import serving
from benchmarks.measure import median_ms, table, turns
from safepoint import (
    Approver,
    Approvers,
    Ask,
    Gate,
    InMemoryJournal,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
    Workflow,
)
from safepoint.console.index import PER_PAGE, Index
from safepoint.places import Store
from safepoint.resume.answers import Answers
from safepoint.resume.workflow import Call

if TYPE_CHECKING:
    from safepoint.testing.postgres import Server

STORE = "orders"
THREADS = 10_000
EVERY = 20  # one in so many waits
KEYS = {name: SigningKey.generate() for name in ("writer", "dana", "erin")}
PEOPLE = Approvers({name: KEYS[name].public for name in ("dana", "erin")})
PAGE_AIM = 200  # ms of the server's time
ROUNDS = 21


def consoles(folder: Path) -> None:
    """Measure both engines."""
    for name, key in KEYS.items():
        (place := folder / ("keys" if name == "writer" else "approvers")).mkdir(exist_ok=True)
        key.public.to_file(place / f"{name}.pub")
    rows = [_measured("SQLite", _in_sqlite(folder))]
    with serving() as server:
        rows.append(_measured("PostgreSQL", _in_postgres(folder, server)))
    heads = ["engine", "a whole pass, ms", "a quick round, ms", "a page of 50, ms"]
    title = f"The console: {THREADS:,} threads, of which {THREADS // EVERY} wait; time (processor)"
    table(title, heads, rows)


def _measured(engine: str, store: Store) -> list[str]:
    """Return a row: each figure is the median of wall time, and of what the processor did."""
    index = Index({STORE: store})

    def page() -> None:
        if len(index.page("waiting").rows) != PER_PAGE:
            raise RuntimeError("That is no page of runs that wait.")

    looks = [(lambda: index.look(whole=True), 1), (lambda: index.look(whole=False), ROUNDS)]
    shown = []
    for act, rounds in [*looks, (page, ROUNDS)]:
        walls, works = (
            turns({engine: act}, rounds, clock)[engine]
            for clock in (time.perf_counter, time.process_time)
        )
        shown.append(f"{median_ms(walls):.0f} ({median_ms(works):.0f})")
    if index.alarms() or sum(index.counts().values()) != THREADS // EVERY:
        raise RuntimeError(f"The index does not know what waits: {index.counts()}.")
    index.close()
    return [engine, *shown[:2], f"{shown[2]} (aim {PAGE_AIM})"]


def _in_sqlite(folder: Path) -> Store:
    places = {"storage": "state/checkpoints.db", "anchor": "anchor/heads.db"}
    places |= {"answers": "answers/answers.db", "answers_anchor": "answers-anchor/heads.db"}
    paths = {name: folder / path for name, path in places.items()}
    anchors = [SQLiteAnchor(paths[name], create=True) for name in ("anchor", "answers_anchor")]
    storages = [SQLiteCheckpointStorage(paths[name]) for name in ("storage", "answers")]
    _fill(storages[0], anchors[0], Answers(storages[1], anchors[1]))
    for part in (*anchors, *storages):
        part.close()
    return _store(folder, **{name: str(path) for name, path in paths.items()})


def _in_postgres(folder: Path, server: Server) -> Store:
    from safepoint.stores.postgres import (
        PostgresAnchor,
        PostgresAnswers,
        PostgresCheckpointStorage,
        create_schema,
    )

    server.database("console")
    create_schema(server.dsn(database="console"))
    server.psql("alter database console set synchronous_commit = off")
    for role in ("writer", "anchor", "approver", "reader", "auditor"):
        server.login(role, f"safepoint_{role}")
    dsns = {role: server.dsn(role, "console") for role in ("writer", "anchor", "approver")}
    with (
        PostgresCheckpointStorage(dsns["writer"]) as storage,
        PostgresAnchor(dsns["anchor"]) as anchor,
        PostgresAnswers(dsns["approver"]) as answers,
        PostgresAnchor(dsns["approver"]) as answers_anchor,
    ):
        _fill(storage, anchor, Answers(answers, answers_anchor))
    return _store(
        folder,
        storage=server.dsn("reader", "console"),
        **dict.fromkeys(("anchor", "answers", "answers_anchor"), server.dsn("auditor", "console")),
    )


def _fill(storage: Any, anchor: Any, answers: Answers) -> None:
    """Let one in twenty ask, and one in two of those have one yes."""

    def ask(state: dict[str, Any]) -> Ask:
        within = timedelta(hours=1, seconds=state["number"])
        return Ask("pay", {"amount": 42, "payee": "alice"}, within=within)

    def pay(_: dict[str, Any], call: Call) -> dict[str, Any]:
        return {"paid": call.approved.arguments["amount"]}

    def report(state: dict[str, Any]) -> dict[str, Any]:
        return {"done": state["number"]}

    waits = Workflow("invoice", [ask, pay], gate=Gate(approvers=PEOPLE))
    ends = Workflow("report", [report])
    keys, journal = Keyring(KEYS["writer"]), InMemoryJournal()
    ledger = Ledger(storage, store=STORE, keys=keys, anchor=anchor, journal=journal)
    dana = Approver("dana", KEYS["dana"])
    for number in range(THREADS):
        flow = ends if number % EVERY else waits
        run = flow.start(ledger, f"order-{number}", number=number)
        if run.question is not None and not number % (EVERY * 2):
            answers.put(dana, dana.approve(run.question))


def _store(folder: Path, **parts: Any) -> Store:
    return Store(
        store=STORE,
        key=(str(folder / "keys/writer.pub"),),
        approvers=str(folder / "approvers"),
        people=len(PEOPLE),
        **parts,
    )
