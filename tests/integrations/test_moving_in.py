"""From SqliteSaver, PostgresSaver and FileCheckpointStorage to sealed threads, and under attack."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import pickle
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from safepoint import Keyring, Ledger, Limits, SigningKey, SQLiteJournal, open_ledger
from safepoint.core.codec import Codec
from safepoint.core.errors import CheckpointError, ResumeRefused, Unavailable
from safepoint.core.names import thread_name
from tests.harness.optional import need
from tests.house import House

need("langgraph.checkpoint.sqlite", "needs langgraph-checkpoint-sqlite")
need("langgraph.checkpoint.postgres", "needs langgraph-checkpoint-postgres")
need("agent_framework", "needs safepoint[agent-framework]")

import ormsgpack
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel

from safepoint.agent_framework import NotCheckpointed, SealedCheckpointStorage
from safepoint.command.cli import main
from safepoint.langgraph import SealedSaver
from safepoint.moving import _BLOBS, MOVED, Moved, file_storage, move, postgres_saver, sqlite_saver
from tests.integrations import test_agent_framework_storage as workflows
from tests.integrations.langgraph_plays import (
    RUN,
    Chat,
    _ask,
    _line,
    conversation,
    crash,
    fan_out,
    functional,
    human_in_the_loop,
    spread,
    subgraph,
)

MOVED_IN = [human_in_the_loop, fan_out, subgraph, crash, conversation, functional, spread]
"""Without those that are as good on one saver as on two."""
SPLIT = [human_in_the_loop, conversation, spread]
"""Enough for the savers whose values lie in another table."""


class Crash(BaseException):
    """The process ends here."""


class Colour(Enum):
    RED = "red"


@dataclass
class Item:
    name: str
    price: Decimal


class Order(BaseModel):
    number: int
    when: datetime
    lines: tuple[str, ...]


class Point(NamedTuple):
    x: int
    y: int


TYPES = [Colour, Item, Order, Point]


def ledger(**options: Any) -> Ledger:
    return House().ledger(store="moved", **options)


@dataclass
class Old:
    """A database of LangGraph's own, and where it is."""

    saver: Any
    source: Any
    folder: Path

    def move(self, saver: SealedSaver, vouched_by: str = "dora", **options: Any) -> list[Moved]:
        read: Any = sqlite_saver if isinstance(self.source, Path) else postgres_saver
        report = self.folder / "moved.jsonl"
        return move(read(self.source, **options), saver, report=report, vouched_by=vouched_by)


def on_sqlite(folder: Path, stack: ExitStack) -> Old:
    path = folder / "graph.sqlite"
    rows = stack.enter_context(closing(sqlite3.connect(path, check_same_thread=False)))
    return Old(SqliteSaver(rows), path, folder)


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield on_sqlite(tmp_path, stack)
        else:
            address = request.getfixturevalue("database").owner
            saver = stack.enter_context(PostgresSaver.from_conn_string(address))
            saver.setup()
            yield Old(saver, address, tmp_path)


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[Old]:
    with ExitStack() as stack:
        yield on_sqlite(tmp_path, stack)


def plain(value: Any) -> Any:
    """Return a value with lists for tuples, which LangGraph's serializer does not tell apart."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [*map(plain, value)] if type(value) in (list, tuple) else value


def shown(saver: Any, thread: str) -> list[Any]:
    """Return all that a saver serves of a thread, but how it counts versions."""
    counted = ("channel_versions", "versions_seen")
    return [
        plain([e.config, {**e.checkpoint, **dict.fromkeys(counted)}, *e[2:4], e.pending_writes])
        for e in saver.list({"configurable": {"thread_id": thread}})
    ]


# --- LangGraph: what comes over


@pytest.mark.parametrize(
    ("old", "play"),
    [*(("sqlite", play) for play in MOVED_IN), *(("postgres", play) for play in SPLIT)],
    ids=lambda each: getattr(each, "__name__", each),
    indirect=["old"],
)
def test_a_graph_that_moves_in_halfway_goes_on_as_if_it_had_stayed(
    play: Callable[[Callable[[], Any]], Any], old: Old, tmp_path: Path
) -> None:
    """Each time that a play opens its saver anew may be the day of the move."""
    stayed = play(lambda: old.saver)
    old.saver.delete_thread(RUN["configurable"]["thread_id"])
    opened: list[Any] = []

    def again() -> Any:
        if not opened:
            opened.append(old.saver)
        elif len(opened) == 1:
            sealed = SealedSaver(ledger(), time_travel=True)
            thread = RUN["configurable"]["thread_id"]
            before = shown(old.saver, thread)
            assert [each.outcome for each in old.move(sealed)] == ["sealed"]
            assert shown(sealed, thread) == before
            opened.append(sealed)
        return opened[-1]

    assert plain(play(again)) == plain(stayed)
    if len(opened) == 1:  # it was never opened anew: then it moves at the end
        again()


def test_a_chat_its_types_and_several_threads_come_over(
    old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server may return the same rows in another order whenever it plans anew.
    monkeypatch.setattr("safepoint.moving._BLOBS", f"{_BLOBS} ORDER BY random()")
    held = {
        "ids": {UUID(int=7)},
        "sum": Decimal("1.50"),
        "when": [datetime(2026, 1, 31, 9, tzinfo=UTC), date(2026, 1, 31), time(9), timedelta(1)],
        "where": [Path("a/b"), ip_address("::1"), b"\x00\xff"],
        "own": [Colour.RED, Item("tea", Decimal(2)), Point(1, 2)],
        "order": Order(number=7, when=datetime(2026, 1, 31, tzinfo=UTC), lines=("a", "b")),
        "found": [Document("text", metadata={"page": 1}), Send("pay", {"n": 1}), Interrupt("?")],
        "numbers": {1: "one", -(2**40): 1.5},
    }
    said = [
        [HumanMessage(f"{n}?", id=f"h{n}"), AIMessage(f"{n}!", tool_calls=[_call(n)], id=f"a{n}")]
        for n in range(4)
    ]
    said[1].append(ToolMessage("done", tool_call_id="1", id="t1"))

    class State(Chat):
        held: Any

    from langgraph.graph import START, StateGraph

    builder: Any = StateGraph(State)
    builder.add_node("hold", lambda state: {"held": held})
    builder.add_edge(START, "hold")
    graph = builder.compile(old.saver)
    names = "one", "Two ü", "3~1"
    for thread in names:
        for messages in said:
            graph.invoke({"messages": messages}, {"configurable": {"thread_id": thread}})
    sealed = SealedSaver(ledger(), types=TYPES)
    assert {each[:2] for each in old.move(sealed)} == {(name, "sealed") for name in names}
    for thread in names:
        run: Any = {"configurable": {"thread_id": thread}}
        values = builder.compile(sealed).get_state(run).values
        assert values["messages"] == [each for messages in said for each in messages]
        assert plain(values["held"]) == plain(held)
        assert type(values["held"]["order"]) is Order
        assert len([*builder.compile(sealed).get_state_history(run)]) == 12


def _call(number: int) -> Any:
    return {"name": "look", "args": {"n": number}, "id": f"{number}", "type": "tool_call"}


def asked(old: Old, *threads: str) -> Any:
    """Leave threads with a question pending, and return their graph."""
    builder = _line("a", ("ask", _ask), "pay")
    for thread in threads:
        builder.compile(old.saver).invoke({"amount": 1}, {"configurable": {"thread_id": thread}})
    return builder


def test_all_types_that_are_not_listed_are_named_at_once(
    lite: Old, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with the option that lists it; and which threads wait for an answer."""
    values = {"answer": [Colour.RED, {"point": Point(1, 2)}, Item("tea", Decimal(2))]}
    graph = _line(("a", lambda _: values), "b").compile(lite.saver)
    with monkeypatch.context() as script:
        script.setattr(Point, "__module__", "__main__")
        graph.invoke({"amount": 1}, {"configurable": {"thread_id": "order-7"}})
    (refused,) = lite.move(SealedSaver(ledger()))
    options = " ".join(f"--type {__name__}:{name}" for name in ("Colour", "Point", "Item"))
    advice = options.replace(f"{__name__}:Point", "MODULE:Point")
    assert f"list them: {advice}. Nothing" in refused.reason
    asked(lite, "order-8")
    monkeypatch.setenv("HOME", str(lite.folder))
    main(["init", "moved"])
    command = ["move", str(lite.source), "moved", *options.split()]
    assert main(command) == 0
    assert "order-8 would be sealed as order-8" in capsys.readouterr().out
    assert main([*command, "--vouch"]) == 0
    assert "answer and take it from anyone who resumes them: order-8.\n" in capsys.readouterr().out


def test_several_tenants_come_out_of_one_database(
    lite: Old, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes its own, by name or pattern, and a name that nothing has is told."""
    for thread in ("acme-1", "acme-2", "globex-1", "[x]"):
        asked(lite, thread)
    monkeypatch.setenv("HOME", str(lite.folder))
    main(["init", "moved"])
    command = ["move", str(lite.source), "moved", "--vouch"]
    for tenant, names in (("acme", ["acme-*"]), ("globex", ["globex-1", "[x]"])):
        assert main([*command, "--tenant", tenant, *(f"--only={each}" for each in names)]) == 0
    whole = open_ledger("moved")
    found = {each: sorted(whole.tenant(each).threads()) for each in whole.tenants()}
    assert found == {"acme": ["acme-1", "acme-2"], "globex": ["globex-1", thread_name("[x]")]}
    assert whole.threads() == []
    assert len(move(sqlite_saver(lite.source), SealedSaver(ledger()), report="-", only="a*")) == 2
    capsys.readouterr()
    assert main([*command, "--only", "acme"]) == 2
    assert "nothing there has such a name" in capsys.readouterr().err


# --- interrupted, or there already


def test_an_interrupted_move_is_not_gone_on_from_and_finishes(
    lite: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = asked(lite, "order-7", "order-8")
    kept = ledger(worker="mover")
    stops_at = [2]
    save, note = Ledger.save, Ledger.note

    def until(real: Any) -> Any:
        def call(*given: Any, **options: Any) -> Any:
            stops_at[0] -= 1
            if stops_at[0] < 0:
                raise Crash
            return real(*given, **options)

        return call

    monkeypatch.setattr(Ledger, "save", until(save))
    monkeypatch.setattr(Ledger, "note", until(note))
    run: Any = {"configurable": {"thread_id": "order-7"}}
    for after in (1, 1):  # after two states; then after all states, before the note
        with pytest.raises(Crash):
            lite.move(SealedSaver(kept))
        sealed = SealedSaver(kept)
        with pytest.raises(ResumeRefused, match="was not moved in to its end"):
            builder.compile(sealed).invoke(Command(resume="yes"), run)
        assert [*sealed.reading().list(run)]
        stops_at[0] = after
    stops_at[0] = 99
    assert [each.outcome for each in lite.move(SealedSaver(kept))] == ["sealed", "sealed"]
    assert kept.owners.threads == {}
    assert builder.compile(SealedSaver(kept)).invoke(Command(resume="yes"), run)["answer"] == "yes"
    assert [each.outcome for each in lite.move(SealedSaver(kept))] == ["there already"] * 2


def test_a_thread_that_exists_is_not_added_to(lite: Old) -> None:
    builder = asked(lite, "order-7", "order-8")
    sealed = SealedSaver(ledger())
    run: Any = {"configurable": {"thread_id": "order-7"}}
    builder.compile(sealed).invoke({"amount": 5}, run)
    before = shown(sealed, "order-7")
    refused, moved = lite.move(sealed)
    assert (refused.outcome, moved.outcome) == ("refused", "sealed")
    assert "exists in store moved" in refused.reason
    assert shown(sealed, "order-7") == before
    sealed.delete_thread("order-7")  # and then it is free
    assert lite.move(sealed)[0].outcome == "sealed"
    assert builder.compile(sealed).invoke(Command(resume="yes"), run)["steps"] == [
        "a",
        "ask",
        "pay",
    ]
    lite.saver.delete_thread("order-8")
    asked(lite, "order-8")  # another run of that name
    assert "another record" in lite.move(sealed)[1].reason


def test_one_snapshot_is_read_whatever_is_written_meanwhile(
    old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = asked(old, "order-7")
    sealed = SealedSaver(ledger())
    run: Any = {"configurable": {"thread_id": "order-7"}}
    before, made = shown(old.saver, "order-7"), sealed.unsigned

    def meanwhile(*given: Any) -> Any:
        monkeypatch.undo()
        builder.compile(old.saver).invoke(Command(resume="late"), run)
        asked(old, "order-8")
        return made(*given)

    monkeypatch.setattr(sealed, "unsigned", meanwhile)
    assert [each.outcome for each in old.move(sealed)] == ["sealed"]
    assert shown(sealed, "order-7") == before


# --- attacks: with the database alone


def ext(code: int, *said: Any) -> bytes:
    return ormsgpack.packb({"x": ormsgpack.Ext(code, ormsgpack.packb(said))})


@pytest.fixture
def marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that leaves a marker when it is imported, and can be."""
    marker = tmp_path / "marker"
    (tmp_path / "modules").mkdir()
    code = f"import pathlib\npathlib.Path({str(marker)!r}).touch()\ndef run(*a, **k): return a\n"
    (tmp_path / "modules" / "moving_marker.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    yield marker
    sys.modules.pop("moving_marker", None)


def test_a_row_that_names_a_module_imports_nothing(lite: Old, marked: Path) -> None:
    """A loader that imports what a row names, as this twin of ours does, falls."""
    asked(lite, "order-7", "order-8")
    for code in (*range(7), *range(8, 12)):  # 7 is what a DeltaChannel saves, without a name
        forged = ext(code, "moving_marker", "run", [], "run")
        lite.saver.conn.execute("UPDATE writes SET value = ? WHERE thread_id = 'order-7'", [forged])
        lite.saver.conn.commit()
        sealed = SealedSaver(ledger())
        refused, other = lite.move(sealed)
        assert "It wants 'moving_marker.run', not listed" in refused.reason
        assert other.outcome == "sealed"
        assert sealed.ledger.threads() == ["order-8"]
        (lite.folder / "moved.jsonl").unlink()
    assert "moving_marker" not in sys.modules
    assert not marked.exists()

    def naive(_: int, data: bytes) -> Any:
        module, name, given, *_ = ormsgpack.unpackb(data)
        return getattr(__import__(module), name)(given)

    ormsgpack.unpackb(forged, ext_hook=naive)
    assert marked.exists()


def nested(depth: int) -> bytes:
    value = b"\xc0"
    for _ in range(depth):
        said = b"\x93" + ormsgpack.packb("builtins") + ormsgpack.packb("set") + b"\x91" + value
        value = ormsgpack.packb(ormsgpack.Ext(0, said))
    return value


def clashing() -> bytes:
    """Return a dict of 32,768 keys with one hash, which takes minutes to build."""
    numbers = [b"\xcf" + (n * (2**61 - 1)).to_bytes(8, "big") for n in range(8)]
    keys = [b"\x95" + b"".join(key) + b"\xc0" for key in itertools.product(numbers, repeat=5)]
    return b"\xdf" + len(keys).to_bytes(4, "big") + b"".join(keys)


Edit = tuple[str, list[Any], str]
LAST = "(SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = 'order-7')"
NEWEST = f"thread_id = 'order-7' AND checkpoint_id = {LAST}"
SET = f"UPDATE checkpoints SET {{}} WHERE {NEWEST}"  # noqa: S608
PUT = "UPDATE writes SET {} WHERE thread_id = 'order-7'"
MANY = (
    "INSERT INTO writes SELECT thread_id, checkpoint_ns, checkpoint_id, 't' || value, '', value,"
    " 'c', 'bytes', zeroblob(9000000) FROM checkpoints, json_each('[1, 2, 3, 4, 5, 6, 7, 8, 9]')"
)
PARENT = f"(SELECT parent_checkpoint_id FROM checkpoints WHERE {NEWEST})"  # noqa: S608


def value(data: bytes, reason: str) -> Edit:
    return PUT.format("value = ?"), [data], reason


FORGED: dict[str, Edit] = {
    "a pickle": (PUT.format("type = 'pickle'"), [], "written as 'pickle'"),
    "an old json row": (SET.format("type = 'json'"), [], "written as 'json'"),
    "text for bytes": (PUT.format("value = 'text'"), [], "only msgpack is read"),
    "a length that is a lie": value(b"\xdd\xff\xff\xff\xff", "not msgpack"),
    "a million deep": value(b"\x91" * 10**6, "nested too deep"),
    "types in types": value(nested(100), "nested too deep"),
    "much": (PUT.format("value = zeroblob(20000000)"), [], "too big"),
    "much in all": (f"{MANY} WHERE {NEWEST}", [], "more in one place"),
    "keys that clash": value(clashing(), "keys that are not text"),
    "a set that clashes": value(
        ext(0, "builtins", "set", [n * (2**61 - 1) for n in range(8)] * 9), "share a hash"
    ),
    "a number for memory": value(ext(0, "builtins", "bytes", 9**12), "a way that"),
    "a pattern": value(ext(1, "re", "compile", ["(a+)+$", 0]), "re.compile"),
    "another's method": value(
        ext(3, "pathlib", "PosixPath", "x", "unlink"), "a way that is not read"
    ),
    "a bad value": value(ext(0, "uuid", "UUID", "x"), "its type takes"),
    "a field too many": value(
        ext(5, "langchain_core.documents.base", "Document", {"page_content": "", "z": 1}, ""),
        "in a way that is not read",
    ),
    "not a number": value(b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", "not finite"),
    "another's checkpoint": (
        SET.format("checkpoint = (SELECT checkpoint FROM checkpoints WHERE thread_id = 'order-8')"),
        [],
        "of another id",
    ),
    "no checkpoint": (SET.format("checkpoint = ?"), [b"\x90"], "is not a checkpoint"),
    "metadata": (SET.format("metadata = ?"), [b'{"a": NaN}'], "not strict JSON"),
    "a lost parent": (
        f"DELETE FROM checkpoints WHERE checkpoint_id = {PARENT}",  # noqa: S608
        [],
        "which is not there",
    ),
    "an id of bytes": (SET.format("checkpoint_ns = x'00ff'"), [], "not text"),
    "a thread of bytes": (
        "UPDATE checkpoints SET thread_id = x'00ff' WHERE thread_id = 'order-7'",
        [],
        "not text",
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_row_costs_its_thread_and_one_line(case: str, lite: Old) -> None:
    asked(lite, "order-7", "order-8")
    sql, given, reason = FORGED[case]
    assert lite.saver.conn.execute(sql, given).rowcount > 0
    lite.saver.conn.commit()
    sealed = SealedSaver(ledger())
    done = lite.move(sealed)
    assert sorted(each.outcome for each in done) == ["refused", "sealed"]
    (refused,) = (each for each in done if each.outcome == "refused")
    assert reason in refused.reason
    assert "\n" not in refused.reason
    assert sealed.ledger.threads() == ["order-8"]


def test_what_is_missing_is_taken_by_name_alone(lite: Old) -> None:
    asked(lite, "order-7")
    first = "(SELECT min(checkpoint_id) FROM checkpoints)"
    lite.saver.conn.execute(f"DELETE FROM checkpoints WHERE checkpoint_id = {first}")  # noqa: S608
    lite.saver.conn.commit()
    sealed = SealedSaver(ledger())
    assert lite.move(sealed)[0].outcome == "refused"
    (moved,) = lite.move(sealed, allow_missing_past=True)
    assert (moved.outcome, moved.checkpoints) == ("sealed", 2)


SOURCES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "junk": lambda path: path.write_bytes(os.urandom(9999)),
    "another database": lambda path: _database(path, "CREATE TABLE checkpoints (a)"),
    "a view": lambda path: _database(
        path,
        "CREATE TABLE writes (a); CREATE VIEW checkpoints AS WITH RECURSIVE n(thread_id) AS"
        " (SELECT 1 UNION ALL SELECT thread_id + 1 FROM n) SELECT * FROM n",
    ),
    "a virtual table": lambda path: _database(
        path,
        "CREATE TABLE writes (task_path); CREATE VIEW v AS WITH RECURSIVE n(thread_id) AS"
        " (SELECT '' UNION ALL SELECT thread_id FROM n) SELECT 1 AS id, thread_id FROM n;"
        " CREATE VIRTUAL TABLE checkpoints USING fts4(thread_id, content='v')",
    ),
}


def _database(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as made:
        made.executescript(sql)


@pytest.mark.parametrize("case", SOURCES)
def test_what_is_no_database_of_a_saver_is_one_line(case: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    SOURCES[case](path)
    old, sealed = Old(None, path, tmp_path), SealedSaver(ledger())
    with pytest.raises(Unavailable, match="cannot be read") as refusal:
        old.move(sealed)
    assert "\n" not in f"{refusal.value.what}{refusal.value.do}"
    assert sealed.ledger.threads() == []


def test_on_postgres_too_nothing_but_its_tables_is_read(database: Any, tmp_path: Path) -> None:
    import psycopg

    sealed = SealedSaver(ledger())
    old = Old(None, database.owner, tmp_path)
    with pytest.raises(Unavailable, match="does not have the tables"):
        old.move(sealed)
    for dsn in (
        "postgresql://me:s3cr%t@127.0.0.1:1/none",
        "postgresql://me:a@s3cret@127.0.0.1:1/x",
    ):
        with pytest.raises(CheckpointError) as refusal:
            Old(None, dsn, tmp_path).move(sealed)
        assert "s3cr" not in str(refusal.value)
    with pytest.raises(Unavailable):
        Old(None, "postgresql://127.0.0.1:1/none", tmp_path).move(sealed)
    with PostgresSaver.from_conn_string(database.owner) as saver:
        saver.setup()
        asked(Old(saver, "", tmp_path), "order-7", "order-8")
    with psycopg.connect(database.owner, autocommit=True) as rows:
        rows.execute(
            "UPDATE checkpoint_writes SET blob = %s WHERE thread_id = 'order-7'",
            [ext(0, "moving_marker", "run", [])],
        )
        refused, moved = old.move(sealed)
        assert "It wants 'moving_marker.run', not listed" in refused.reason
        assert moved.outcome == "sealed"
        small = SealedSaver(ledger(codec=Codec(limits=Limits(state_bytes=400))))
        assert {each.outcome for each in old.move(small)} == {"refused"}
        rows.execute("ALTER TABLE checkpoints RENAME TO c")
        rows.execute("CREATE VIEW checkpoints AS SELECT * FROM c")
    with pytest.raises(Unavailable, match="does not have the tables"):
        old.move(SealedSaver(ledger()))


# --- Agent Framework


def moved(folder: Path, storage: SealedCheckpointStorage, **options: Any) -> list[Moved]:
    read, report = file_storage(folder / "af", **options), folder / "moved.jsonl"
    return move(read, storage, report=report, vouched_by="dora")


def storage(kept: Ledger | None = None) -> SealedCheckpointStorage:
    return SealedCheckpointStorage(kept or ledger(), types=workflows.TYPES)


@pytest.mark.parametrize("name", workflows.WORKFLOWS)
def test_a_workflow_that_moves_in_goes_on_as_if_it_had_stayed(name: str, tmp_path: Path) -> None:
    build, given, responses = workflows.WORKFLOWS[name]
    files, sealed = workflows.files(tmp_path), storage()
    workflows.run(build(files).run(given))
    called = build(None).name
    (done,) = moved(tmp_path, sealed)
    assert (done.source, done.outcome, done.reason) == (called, "sealed", "")

    async def ends(opened: Any) -> list[Any]:
        said = []
        for one in await opened.list_checkpoints(workflow_name=called):
            asked = one.pending_request_info_events
            wanted = {name: responses[name] for name in asked} or None
            run = await build(opened).run(checkpoint_id=one.checkpoint_id, responses=wanted)
            outputs = [getattr(each, "text", each) for each in run.get_outputs()]
            said.append((one.checkpoint_id, one.timestamp, one.metadata, outputs))
        return said

    async def newest(opened: Any) -> Any:
        return (await opened.get_latest(workflow_name=called)).checkpoint_id

    assert asyncio.run(newest(sealed)) == asyncio.run(newest(files))
    assert asyncio.run(ends(sealed)) == sorted(asyncio.run(ends(files)), key=lambda one: one[1])


@pytest.fixture
def paused(tmp_path: Path) -> Path:
    """A folder with two workflows that wait for an answer."""
    for build in (workflows.human, workflows.nested):
        workflows.run(build(workflows.files(tmp_path)).run(42))
    return tmp_path / "af"


def of_human(folder: Path) -> list[Path]:
    """Return the files of the workflow `human`, oldest first."""
    read = [(json.loads(file.read_text()), file) for file in folder.glob("*.json")]
    ours = [(said["timestamp"], file) for said, file in read if said["workflow_name"] == "human"]
    return [file for _, file in sorted(ours)]


def change(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def pickled(value: Any) -> dict[str, str]:
    return {"__pickled__": base64.b64encode(pickle.dumps(value)).decode(), "__type__": "x:y"}


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a payload": (
        lambda file: change(file, state={"x": pickled(Payload(file.parent.parent / "marker"))}),
        "wants posix.mkdir",
    ),
    "an unlisted type": (
        lambda file: change(file, state={"x": pickled(workflows.Unlisted(1))}),
        "Unlisted",
    ),
    "no time": (lambda file: change(file, timestamp="yesterday"), "no time"),
    "a lost past": (
        lambda file: change(file, previous_checkpoint_id="gone"),
        "which is not in the folder",
    ),
    "its own past": (
        lambda file: change(file, previous_checkpoint_id=file.stem),
        "says it is newer",
    ),
    "a field too many": (lambda file: change(file, z=1), "fields"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_forged_file_costs_its_workflow_and_one_line(
    case: str, paused: Path, tmp_path: Path
) -> None:
    forge, reason = FILES[case]
    forge(of_human(paused)[-1])
    sealed = storage()
    refused, other = moved(tmp_path, sealed)
    assert (refused.source, refused.outcome, other.outcome) == ("human", "refused", "sealed")
    assert reason in refused.reason
    assert "\n" not in refused.reason
    assert sealed.ledger.threads() == ["nested"]
    assert not (tmp_path / "marker").exists()


def in_place(file: Path) -> None:
    file.unlink()
    file.mkdir()


def linked(file: Path) -> None:
    file.symlink_to(file.rename(file.with_suffix(".x")))


ODD: dict[str, tuple[Callable[[Path], object], bool]] = {
    "cut short": (lambda file: os.truncate(file, 99), True),
    "a link": (linked, True),
    "another id": (lambda file: change(file, checkpoint_id="other"), True),
    "a folder": (in_place, True),
    "a pickle": (lambda file: file.with_suffix(".pkl").write_bytes(pickle.dumps(1)), False),
}


@pytest.mark.parametrize("case", ODD)
def test_no_older_checkpoint_becomes_the_newest_because_a_file_is_broken(
    case: str, paused: Path, tmp_path: Path
) -> None:
    spoil, stops = ODD[case]
    spoil(of_human(paused)[-1])
    sealed = storage()
    done = moved(tmp_path, sealed)
    assert {each.outcome for each in done} == ({"refused"} if stops else {"refused", "sealed"})
    assert sealed.ledger.threads() == ([] if stops else ["human", "nested"])


def test_an_interrupted_workflow_is_not_served_and_finishes(
    paused: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, note = ledger(), Ledger.note
    monkeypatch.setattr(Ledger, "note", lambda *_, **__: (_ for _ in ()).throw(Crash))
    with pytest.raises(Crash):
        moved(tmp_path, storage(kept))
    monkeypatch.setattr(Ledger, "note", note)
    for call in ("get_latest", "list_checkpoints", "list_checkpoint_ids"):
        with pytest.raises(ResumeRefused, match="was not moved in to its end"):
            asyncio.run(getattr(storage(kept), call)(workflow_name="human"))
    from agent_framework import WorkflowCheckpoint

    with pytest.raises(NotCheckpointed, match="was not moved in to its end"):
        asyncio.run(storage(kept).save(WorkflowCheckpoint("human", "graph")))
    assert {each.outcome for each in moved(tmp_path, storage(kept))} == {"sealed"}
    assert {each.outcome for each in moved(tmp_path, storage(kept))} == {"there already"}
    latest = asyncio.run(storage(kept).get_latest(workflow_name="human"))
    assert latest is not None
    assert latest.checkpoint_id == of_human(paused)[-1].stem


def test_the_vouching_is_sealed_and_written_down(lite: Old, tmp_path: Path) -> None:
    asked(lite, "order-7")
    other = Keyring(SigningKey.generate())
    journal = SQLiteJournal(tmp_path / "journal/journal.db", keys=other, create=True)
    sealed = SealedSaver(ledger(journal=journal), app="pay@1")
    assert [each.outcome for each in lite.move(sealed, vouched_by="")] == ["would be sealed"]
    assert sealed.ledger.threads() == []
    assert not (tmp_path / "moved.jsonl").exists()

    (done,) = lite.move(sealed)
    assert done[:4] == ("order-7", "sealed", "order-7", 3)
    assert done.waits
    note, newest, *_ = sealed.ledger.back("order-7")
    assert (note.kind, note.label, newest.header.app) == ("note", MOVED, "pay@1")
    said = {"vouched_by": "dora", "from": "graph.sqlite", "checkpoints": 3}
    assert note.state == {"thread": "order-7", "digest": done.digest, **said}
    assert any("vouched for by dora" in each.detail for each in journal.show())
    lines = [json.loads(line) for line in (tmp_path / "moved.jsonl").read_text().splitlines()]
    assert [each["outcome"] for each in lines] == ["begun", "sealed"]
    assert said.items() <= lines[-1].items()
    assert "amount" not in (tmp_path / "moved.jsonl").read_text()
