"""SealedSaver: LangGraph's own tests of a saver, graphs as on InMemorySaver, and attacks."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    FileCheckpointStorage,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteCheckpointStorage,
)
from safepoint.errors import CheckpointError
from tests.harness.optional import need

need("langgraph.checkpoint.conformance", "needs langgraph-checkpoint-conformance")

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from safepoint.langgraph import SealedSaver
from tests.integrations.langgraph_plays import PLAYS, _ask, _line, _step

KEYS = Keyring(SigningKey.generate())
LOCAL: dict[str, Callable[[Path], Any]] = {
    "memory": lambda _: InMemoryCheckpointStorage(),
    "file": lambda folder: FileCheckpointStorage(folder / "state"),
    "sqlite": lambda folder: SQLiteCheckpointStorage(folder / "state.db"),
}


@pytest.fixture(params=[*LOCAL, "postgres"])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, stack: ExitStack
) -> Callable[[Path], Any]:
    """What opens a storage; on PostgreSQL under the logins of a writer who may also prune."""
    if request.param in LOCAL:
        return LOCAL[request.param]
    database = request.getfixturevalue("database")
    from safepoint.postgres import PostgresCheckpointStorage

    dsn = database.dsn("both", "safepoint_writer", "safepoint_operator")
    return lambda _: stack.enter_context(PostgresCheckpointStorage(dsn))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_langgraphs_own_conformance_suite_passes_with_its_extended_part(
    storage: Callable[[Path], Any], tmp_path: Path
) -> None:
    ledger = Ledger(storage(tmp_path), store="graphs", keys=KEYS, anchor=InMemoryAnchor())

    @checkpointer_test(name="SealedSaver")
    async def opened() -> Any:
        yield SealedSaver(ledger, time_travel=True)

    report = asyncio.run(validate(opened))
    failures = [each for result in report.results.values() for each in result.failures]
    assert not failures
    assert {name: result.tests_passed for name, result in report.results.items()} == {
        "put": 17,
        "put_writes": 10,
        "get_tuple": 10,
        "list": 16,
        "delete_thread": 5,
        "delete_for_runs": 7,
        "copy_thread": 8,
        "prune": 8,
    }


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_a_graph_does_what_it_does_on_in_memory_saver(play: Any, tmp_path: Path) -> None:
    """On a new saver wherever the play asks for one, as after a restart."""
    theirs = InMemorySaver()
    storage, anchor = SQLiteCheckpointStorage(tmp_path / "state.db"), InMemoryAnchor()

    def again() -> SealedSaver:
        ledger = Ledger(storage, store="graphs", keys=KEYS, anchor=anchor, anchor_every="step")
        return SealedSaver(ledger, time_travel=True)

    assert play(again) == play(lambda: theirs)


# --- whoever can write the database, and nothing else


def _edit(old: str, new: str) -> Callable[[sqlite3.Connection], None]:
    """Replace a text in the newest record of the order that has it, in the database alone."""

    def act(rows: sqlite3.Connection) -> None:
        for sequence, record in rows.execute(
            "select sequence, record from checkpoints where thread = 'order-7' order by 1 desc"
        ).fetchall():
            changed = re.sub(old.encode(), new.encode(), record, count=1)
            if changed != record:
                rows.execute(
                    "update checkpoints set record = ? where thread = 'order-7' and sequence = ?",
                    (changed, sequence),
                )
                return
        pytest.fail(f"no record holds {old}")

    return act


def _sql(*lines: str) -> Callable[[sqlite3.Connection], None]:
    def act(rows: sqlite3.Connection) -> None:
        changed = [rows.execute(line.format(LAST=LAST)).rowcount for line in lines]
        assert 0 not in changed

    return act


LAST = "(select max(sequence) from checkpoints where thread = 'order-7')"
MINE = "thread = 'order-7'"
COPY = "insert into checkpoints select tenant, 'order-7', {LAST} + 1, label, record from checkpoints"
ATTACKS: dict[str, tuple[Any, str, str]] = {
    "edited-state": (_edit('"amount":2', '"amount":9'), "SealBroken", "SealBroken"),
    "edited-metadata": (_edit('"source":"loop"', '"source":"fork"'), "SealBroken", "SealBroken"),
    "moved-parent": (_edit('"parent":"[^"]+"', '"parent":null'), "SealBroken", "SealBroken"),
    "changed-type-tag": (_edit(r"\$langgraph.Interrupt", "$dict"), "SealBroken", "SealBroken"),
    "write-of-another-task": (_edit('"task":"....', '"task":"0000'), "SealBroken", "SealBroken"),
    "write-to-another-checkpoint": (_edit('"id":"....', '"id":"0000'), "SealBroken", "SealBroken"),
    "unsealed-record": (
        _sql(f"update checkpoints set record = x'7b7d' where {MINE} and sequence = {{LAST}}"),
        *["RecordMalformed"] * 2,
    ),
    "repeated-write": (
        _sql(f"{COPY} where {MINE} and label like 'w/%' limit 1"),
        *["WrongPlace"] * 2,
    ),
    "answer-of-another-thread": (
        _sql(f"{COPY} where thread = 'order-8' and label like 'w/%' limit 1"),
        *["WrongPlace"] * 2,
    ),
    "old-on-top": (_sql(f"{COPY} where {MINE} and sequence = 1"), *["WrongPlace"] * 2),
    "swapped-threads": (
        _sql(
            f"update checkpoints set thread = 'aside' where {MINE}",
            "update checkpoints set thread = 'order-7' where thread = 'order-8'",
        ),
        *["WrongPlace"] * 2,
    ),
    "dropped-write": (
        _sql(f"delete from checkpoints where {MINE} and sequence = {{LAST}} - 1"),
        *["RecordsMissing"] * 2,
    ),
    "dropped-write-closed-up": (
        _sql(
            f"delete from checkpoints where {MINE} and sequence = {{LAST}} - 1",
            f"update checkpoints set sequence = sequence - 1 where {MINE} and sequence = {{LAST}}",
        ),
        "RolledBack",
        "WrongPlace",
    ),
    "deleted-ancestor": (
        _sql(f"delete from checkpoints where {MINE} and sequence = 1"),
        *["RecordsMissing"] * 2,
    ),
    "cut-off": (
        _sql(f"delete from checkpoints where {MINE} and sequence = {{LAST}}"),
        "RolledBack",
        "believed",
    ),
    "cut-off-to-the-first": (
        _sql(f"delete from checkpoints where {MINE} and sequence > 1"),
        "RolledBack",
        "believed",
    ),
    "deleted-thread": (_sql(f"delete from checkpoints where {MINE}"), "RolledBack", "believed"),
    "wrong-labels": (
        _sql(f"update checkpoints set label = 'c/0' where {MINE}"),
        *["harmless"] * 2,
    ),
}


class Shop:
    """Two orders on one database: one waits for an answer, and the other has it."""

    def __init__(self, folder: Path, *, anchored: bool) -> None:
        self.file = folder / "state.db"
        self.anchor = InMemoryAnchor() if anchored else None
        self.builder = _line("a", ("look", _step("look")), ("ask", _ask), "pay")
        for name in ("order-7", "order-8"):
            self.graph().invoke({"amount": 1}, _run(name), durability="sync")
        self.graph().invoke(Command(resume="yes"), _run("order-8"), durability="sync")

    def graph(self, **options: Any) -> Any:
        ledger = Ledger(
            SQLiteCheckpointStorage(self.file), store="orders", keys=KEYS, anchor=self.anchor
        )
        return self.builder.compile(SealedSaver(ledger, **options))

    def write(self, act: Callable[[sqlite3.Connection], None]) -> None:
        with closing(sqlite3.connect(self.file)) as rows, rows:
            guards = rows.execute("select name, sql from sqlite_master where type = 'trigger'")
            guarded = guards.fetchall()
            for name, _ in guarded:
                rows.execute(f"drop trigger {name}")
            act(rows)
            for _, sql in guarded:
                rows.execute(sql)

    def seen(self) -> Any:
        graph, run = self.graph(), _run("order-7")
        state = graph.get_state(run)
        past = [(each.values, each.metadata) for each in graph.get_state_history(run)]
        return state.values, state.next, state.interrupts, past


def _run(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


@pytest.mark.parametrize("anchored", [True, False], ids=["anchored", "no-anchor"])
@pytest.mark.parametrize("name", ATTACKS)
def test_whoever_writes_the_database_is_refused(name: str, anchored: bool, tmp_path: Path) -> None:
    """And what is believed without an anchor is in the table."""
    act, *expected = ATTACKS[name]
    shop = Shop(tmp_path, anchored=anchored)
    before = shop.seen()
    shop.write(act)
    try:
        after = shop.seen()
        outcome = "harmless" if after == before else "believed"
    except CheckpointError as refusal:
        outcome = type(refusal).__name__
    assert outcome == expected[not anchored]
