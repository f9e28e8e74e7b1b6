"""The adapters against what their frameworks ship: SqliteSaver, PostgresSaver, and its files.

`make bench ARGS=adapters` runs this part alone. In each round the contenders take turns, and what
counts is the median of the ratios of a round. SqliteSaver runs with synchronous=FULL, as ours does.
Agent Framework's file storage does not sync: what it saved last is gone with the power.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, repeat
from pathlib import Path
from statistics import median
from typing import Any, TypedDict

from benchmarks.engines import PEER, OnPostgres, OnSqlite, ledger_of, on_postgres, serving
from benchmarks.langgraph import Saver, Sqlite
from benchmarks.measure import RATIO, Act, beside, ratio, table, turns
from benchmarks.peers import AgentFramework, Checkpoints, plain_of
from safepoint import Ledger

STATE, ROWS, CHAT = "20 kB of documents", "20 kB of rows", "chat of 30"
STEPS = 10
RECORDS = 1_000
ROUNDS, FEW = 21, 7
THREAD = "order-7"
TEXT = "Invoice 7 is due on the first. I would pay it, unless you say that it is not ours. " * 7
WAYS = ("no anchor", "anchored")
GRAPH_AIMS = {
    **{("SQLite", state, "no anchor"): 1.3 for state in (STATE, ROWS, CHAT)},
    **{("SQLite", state, "anchored"): 1.7 for state in (STATE, ROWS, CHAT)},
    **{("PostgreSQL", state, "anchored"): 1.5 for state in (STATE, ROWS, CHAT)},
}
"""How many times as long as theirs, at most."""
FIND_AIMS = {"the newest": 1.5, "one in the middle, by its id": 5.0}
SAVE_AIM, LOAD_AIM, LIST_AIM = 1.5, 1.5, 1.0
LATEST_AIMS = {"kept open": 1 / 100, "restarted": 1 / 20}


def adapters(folder: Path) -> None:
    """Measure both adapters."""
    sys.stdout.write(f"\nAdapters: medians of {ROUNDS} rounds, or {FEW} of what looks at all.\n")
    graphs(folder)
    find(folder)
    framework(folder)


# --- LangGraph


def graphs(folder: Path) -> None:
    """Run a graph of ten steps, on SQLite and on PostgreSQL."""
    heads = ["state", "what", "ours, ms", "theirs, ms", "to theirs", "processor time, to theirs"]
    with contenders(folder) as engines:
        for engine, savers in engines.items():
            rows = []
            for state, run in GRAPHS.items():
                acts = {way: run(saver) for way, saver in savers.items()}
                taken, worked = turns(acts, ROUNDS), turns(acts, FEW, time.process_time)
                for way in WAYS:
                    aim = GRAPH_AIMS.get((engine, state, way))
                    figures = _figures(taken[way], taken[PEER], aim)
                    rows.append([state, way, *figures, beside(ratio(worked[way], worked[PEER]))])
            table(f"LangGraph on {engine}: a graph of {STEPS} steps, whole; {RATIO}", heads, rows)


@contextmanager
def contenders(folder: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """Yield the savers of each engine that there is, by the way that they save."""
    on_sqlite = {way: sealed(_on_sqlite(folder / "graphs", way), way) for way in WAYS}
    on_sqlite[PEER] = Sqlite(folder / "graphs-theirs.db").open(0).saver
    with serving() as server:
        theirs: Any = on_postgres(server, 1)[PEER].open(0)  # and logins, and a template
        savers = {}
        for number, way in enumerate(WAYS):
            name = f"adapter_{number}"
            server.database(name, template="made")
            store = OnPostgres(
                "",
                server.dsn(database=name),
                {0: server.dsn("worker_0", name)},
                server.dsn("anchor", name),
            )
            savers[way] = sealed(store, way)
        yield {"SQLite": on_sqlite, "PostgreSQL": savers | {PEER: theirs.saver}}
        theirs.close()


def _on_sqlite(folder: Path, way: str) -> OnSqlite:
    at = folder / way.replace(" ", "-")
    at.mkdir(mode=0o700, parents=True)
    return OnSqlite("", at / "store" / "checkpoints.db", at / "anchor")


def sealed_ledger(store: OnSqlite | OnPostgres, way: str) -> Ledger:
    """Return a ledger that remembers nothing yet."""
    worked = store.open(0)
    return ledger_of(worked.storage, worked.anchor if way == "anchored" else None)


def sealed(store: OnSqlite | OnPostgres, way: str) -> Any:
    """Return a saver on it."""
    from safepoint.langgraph import SealedSaver

    return SealedSaver(sealed_ledger(store, way))


def documents() -> list[dict[str, Any]]:
    """Return 20 kB as an agent has found them."""
    return [
        {"id": f"invoice-{n}", "page": n, "score": n / 8, "tags": ["due", "eur"], "text": TEXT * 4}
        for n in range(8)
    ]


def document_graph(saver: Any) -> Act:
    """Return what runs a graph that has 20 kB of documents, to which each step adds a line."""

    class Order(TypedDict):
        documents: list[dict[str, Any]]
        lines: list[str]

    def step(state: Order) -> dict[str, Any]:
        return {"lines": [*state["lines"], f"checked document {len(state['lines'])}"]}

    return _run(Order, step, {"documents": documents(), "lines": []}, saver)


def row_graph(saver: Any) -> Act:
    """Return what runs a graph whose state is 270 rows of five values, changed in each step."""

    class Order(TypedDict):
        order: dict[str, Any]

    def step(state: Order) -> Order:
        return {"order": {**state["order"], "step": state["order"]["step"] + 1}}

    return _run(Order, step, {"order": {**plain_of(30_000), "step": 0}}, saver)


def chat_graph(saver: Any) -> Act:
    """Return what runs a chat that has 30 messages in the end, with a tool call in each other."""
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
    from langgraph.graph import MessagesState

    calls = [{"name": "pay", "args": {"invoice": 7, "amount": 42.5}, "id": "call_7"}]

    def said(number: int) -> BaseMessage:
        if number % 2:
            return HumanMessage(TEXT, id=f"message-{number}")
        return AIMessage(TEXT, id=f"message-{number}", tool_calls=calls)

    def step(state: MessagesState) -> dict[str, Any]:
        return {"messages": [said(len(state["messages"]))]}

    begun = {"messages": [said(number) for number in range(30 - STEPS)]}
    return _run(MessagesState, step, begun, saver)


def _run(schema: Any, step: Any, given: Any, saver: Any) -> Act:
    from langgraph.graph import START, StateGraph

    builder = StateGraph(schema)
    names = [f"step_{number}" for number in range(STEPS)]
    for name, before in zip(names, [START, *names], strict=False):
        builder.add_node(name, step)
        builder.add_edge(before, name)
    graph = builder.compile(checkpointer=saver)
    threads = count()

    def run() -> None:
        graph.invoke(given, {"configurable": {"thread_id": f"{schema.__name__}-{next(threads)}"}})

    return run


GRAPHS = {STATE: document_graph, ROWS: row_graph, CHAT: chat_graph}


def _figures(ours: list[float], theirs: list[float], aim: float | None) -> list[str]:
    milliseconds = (f"{median(each) * 1000:.2f}" for each in (ours, theirs))
    return [*milliseconds, beside(ratio(ours, theirs), aim)]


def find(folder: Path) -> None:
    """Find a checkpoint among 1,000 by a saver that remembers nothing, on open connections."""
    from safepoint.langgraph import SealedSaver

    state = {"documents": documents()}
    peer = Sqlite(folder / "find-theirs.db").open(0)
    ids = [peer.save(THREAD, state) for _ in range(RECORDS)]
    acts: dict[str, dict[str, Act]] = {"the newest": {}, "one in the middle, by its id": {}}
    for contest, ident in zip(acts.values(), (None, ids[RECORDS // 2]), strict=True):
        contest[PEER] = partial(_got, repeat(peer.saver), ident)
    for way in WAYS:
        saver = sealed(_on_sqlite(folder / "find", way), way)
        ids = [*map(partial(Saver(saver, None).save, THREAD), repeat(state, RECORDS))]
        for contest, ident in zip(acts.values(), (None, ids[RECORDS // 2]), strict=True):
            anew = [SealedSaver(saver.ledger, time_travel=True) for _ in range(ROUNDS + 1)]
            contest[way] = partial(_got, iter(anew), ident)
    rows = [
        [what, way, *_figures(taken[way], taken[PEER], FIND_AIMS[what])]
        for what, contest in acts.items()
        for taken in [turns(contest, ROUNDS)]
        for way in contest
        if way != PEER
    ]
    title = f"LangGraph on SQLite: restarted, one of {RECORDS:,} records of {STATE}; {RATIO}"
    table(title, ["which", "what", "ours, ms", "theirs, ms", "to theirs"], rows)


def _got(savers: Iterator[Any], ident: str | None) -> Any:
    named = {"thread_id": THREAD, "checkpoint_ns": ""} | ({"checkpoint_id": ident} if ident else {})
    return next(savers).get_tuple({"configurable": named})


# --- Agent Framework


def framework(folder: Path) -> None:
    """Save, load, find and list checkpoints of a workflow."""
    from agent_framework import Message

    chat = [Message(("user", "assistant")[n % 2], [TEXT]) for n in range(30)]
    rows = []
    for state, value in {STATE: {"documents": documents()}, CHAT: {"messages": chat}}.items():
        inside = folder / f"framework-{state.replace(' ', '-')}"
        contest: dict[str, Any] = {PEER: AgentFramework(inside / "files")}
        for way in WAYS:
            contest[way] = Checkpoints(_storage(_on_sqlite(inside, way), way))
        saving: dict[str, Act] = {way: partial(each.save, value) for way, each in contest.items()}
        rows += _compared("save", state, turns(saving, ROUNDS), {"no anchor": SAVE_AIM})
        for each in contest.values():
            for _ in range(ROUNDS, RECORDS - 1):
                each.save(value)
        loading = {way: each.load for way, each in contest.items()}
        aims = dict.fromkeys(contest, LOAD_AIM)
        rows += _compared("load the newest, by its id", state, turns(loading, ROUNDS), aims)
        finding = {way: each.latest for way, each in contest.items()}
        anew = finding | {
            way: partial(_latest, iter([_again(contest[way]) for _ in range(FEW + 1)]))
            for way in contest
            if way != PEER
        }
        for kept, acts in {"kept open": finding, "restarted": anew}.items():
            what, aims = (
                f"get_latest of {RECORDS:,}, {kept}",
                dict.fromkeys(WAYS, LATEST_AIMS[kept]),
            )
            rows += _compared(what, state, turns(acts, FEW), aims)
        listing = {way: each.list for way, each in contest.items()}
        aims = dict.fromkeys(contest, LIST_AIM)
        rows += _compared(f"list {RECORDS:,}", state, turns(listing, FEW), aims)
        for each in contest.values():
            each.close()
    heads = ["state", "call", "what", "ours, ms", "theirs, ms", "to theirs"]
    table(f"Agent Framework on SQLite, theirs on files without fsync; {RATIO}", heads, rows)


def _storage(store: OnSqlite, way: str) -> Any:
    from safepoint.agent_framework import SealedCheckpointStorage

    return SealedCheckpointStorage(sealed_ledger(store, way))


def _again(store: Checkpoints) -> Checkpoints:
    """Return the same by a ledger that remembers nothing."""
    from safepoint.agent_framework import SealedCheckpointStorage

    return Checkpoints(SealedCheckpointStorage(store.storage.ledger))


def _latest(stores: Iterator[Checkpoints]) -> Any:
    return next(stores).latest()


def _compared(
    what: str, state: str, taken: dict[str, list[float]], aims: dict[str, float]
) -> list[list[str]]:
    return [[state, what, way, *_figures(taken[way], taken[PEER], aims.get(way))] for way in WAYS]
