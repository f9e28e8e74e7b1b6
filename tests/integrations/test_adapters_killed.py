"""SIGKILL at random instants under both adapters: nothing acknowledged is lost, and no alarm.

A process works on one order after the other, tells what was saved and what it did, and is killed.
The next one looks for all that its predecessor told, and goes on with the order. In the end each
order has the result of a run that nobody killed, and nothing was done again that was saved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from safepoint import Keyring, Ledger, SigningKey, SQLiteAnchor, SQLiteCheckpointStorage
from tests.harness.crash import Say, Told, hunted
from tests.harness.optional import need
from tests.harness.postgres import Database

need("langgraph", "needs safepoint[langgraph]")
need("agent_framework", "needs safepoint[agent-framework]")

import agent_framework as af
from agent_framework import WorkflowCheckpoint, WorkflowContext
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START
from langgraph.types import Command

from safepoint.agent_framework import SealedCheckpointStorage
from safepoint.langgraph import SealedSaver
from tests.integrations.langgraph_plays import _ask, _line, _step

KEYS: Final = Keyring(SigningKey(bytes(32)))
ORDERS: Final = 60  # of a long one


def opened(folder: Path, store: str = "", anchor: str = "") -> Ledger:
    """Open the ledger as a new process does; with the DSNs of a PostgreSQL there."""
    if store:
        from safepoint.stores.postgres import PostgresAnchor, PostgresCheckpointStorage

        places: Any = PostgresCheckpointStorage(store), PostgresAnchor(anchor)
    else:
        heads = SQLiteAnchor(folder / "anchor" / "heads.db", create=True)
        places = SQLiteCheckpointStorage(folder / "state" / "ledger.db"), heads
    return Ledger(places[0], store="orders", keys=KEYS, anchor=places[1])


def work(told: Told, orders: int, run: Callable[[str], bool]) -> None:
    """Go on with the order that was told of last, and then with those after it."""
    last = max((int(line.split()[1]) for lines in told for line in lines), default=0)
    for number in range(last, orders):
        while not run(str(number)):
            pass


# --- LangGraph


class ToldSaver(SealedSaver):
    """Tells what was saved, once `put` has returned."""

    say: Say

    def put(self, config: Any, checkpoint: Any, *others: Any) -> Any:
        saved = super().put(config, checkpoint, *others)
        thread, space = (config["configurable"][k] for k in ("thread_id", "checkpoint_ns"))
        done = () if space else checkpoint["channel_values"].get("steps", ())
        self.say(" ".join(["saved", thread, checkpoint["id"], space or "-", *done]))
        return saved


def graph(saver: Any, say: Say) -> Any:
    """A line with two nodes side by side, a subgraph, and a question to a person."""

    def doing(name: str) -> Any:
        def node(state: Any, config: RunnableConfig) -> Any:
            say(f"did {config['configurable']['thread_id']} {name}")
            return _step(name)(state) if name != "side" else {"steps": ["side"]}

        return node

    inner = _line(("in", doing("in")), ("out", doing("out"))).compile()
    builder = _line(
        *((name, doing(name)) for name in ("a", "b")), ("inner", inner), ("ask", _ask), "pay"
    )
    builder.add_node("side", doing("side"))
    builder.add_edge(START, "side")
    return builder.compile(saver)


def go_on(made: Any, order: str, durability: Any = "async") -> bool:
    """Begin an order, go on with it or answer its question; True if it has come to its end.

    What `get_state` calls the next nodes leaves out those whose writes are pending. So it is no
    sign of the end, on no saver.
    """
    run: Any = {"configurable": {"thread_id": order}}
    state = made.get_state(run)
    given: Any = None if state.created_at else {"amount": int(order)}
    answer = Command(resume="yes") if state.interrupts else given
    done = made.invoke(answer, run, durability=durability)
    return "pay" in done["steps"]


def orders_in_a_graph(
    folder: Path, say: Say, told: Told, orders: int, durability: str, *places: str
) -> None:
    saver = ToldSaver(opened(folder, *places))
    saver.say = say
    look = saver.reading()
    for line in told[-1] if told else ():
        what, order, ident, space, *_ = [*line.split(), "", ""]
        if what == "saved":
            place = {"thread_id": order, "checkpoint_ns": space.strip("-"), "checkpoint_id": ident}
            assert look.get_tuple({"configurable": place}), f"lost: {line}"
    made = graph(saver, say)
    work(told, orders, lambda order: go_on(made, order, durability))


def check_graphs(told: Told, ledger: Ledger, orders: int) -> None:
    theirs, saver = graph(InMemorySaver(), print), SealedSaver(ledger)
    ours = graph(saver, print)
    for order in map(str, range(orders)):
        while not go_on(theirs, order):
            pass
        run: Any = {"configurable": {"thread_id": order}}
        assert ours.get_state(run).values == theirs.get_state(run).values
        ledger.verify(order)
    found = {
        (each.config["configurable"]["thread_id"], each.checkpoint["id"])
        for each in saver.list(None)
    }
    assert {*saved(told)} <= found


def saved(told: Told) -> list[tuple[str, str]]:
    """Return what was acknowledged. What was done before that is not done again."""
    kept, found = set(), []
    for line in (line for lines in told for line in lines):
        what, order, name, *done = line.split()
        if what == "did":
            assert (order, name) not in kept, f"done again: {line}"
        else:
            found.append((order, name))
            kept |= {(order, each) for each in done}
    assert len(told) > 3
    assert any(told[:-1])
    print(f"{len(told) - 1} kills, {len(found)} acknowledged")
    return found


@pytest.mark.parametrize(
    ("orders", "durability", "seed"),
    [
        (6, "async", 1),
        *(
            pytest.param(ORDERS, *each, marks=pytest.mark.deep)
            for each in (("async", 2), ("sync", 3), ("exit", 4))
        ),
    ],
)
def test_a_graph_that_is_killed_at_random_loses_nothing_acknowledged(
    orders: int, durability: str, seed: int, tmp_path: Path
) -> None:
    places = ("", "")
    told = hunted(orders_in_a_graph, tmp_path, orders, durability, *places, seed=seed)
    check_graphs(told, opened(tmp_path, *places), orders)


@pytest.mark.deep
def test_a_graph_on_postgresql_that_is_killed_at_random_loses_nothing_acknowledged(
    database: Database, tmp_path: Path
) -> None:
    places = (database.worker(1), database.anchor)
    told = hunted(orders_in_a_graph, tmp_path, ORDERS, "async", *places, seed=5)
    check_graphs(told, opened(tmp_path, *places), ORDERS)


# --- Agent Framework


class ToldStorage(SealedCheckpointStorage):
    """Tells what was saved, once `save` has returned."""

    say: Say

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        saved = await super().save(checkpoint)
        done = [name for name in checkpoint.state if not name.startswith("_")]
        self.say(" ".join(["saved", checkpoint.workflow_name, saved, *done]))
        return saved


class Step(af.Executor):
    """Does something, writes that down, and hands a number on; or asks a person, with a name."""

    def __init__(self, name: str, order: str, say: Say) -> None:
        super().__init__(name)
        self.order, self.say = order, say

    @af.handler
    async def one(self, amount: int, ctx: WorkflowContext[int]) -> None:
        self.say(f"did {self.order} {self.id}")
        ctx.set_state(self.id, amount)
        await ctx.send_message(amount + 1)

    @af.handler
    async def several(self, amounts: list[int], ctx: WorkflowContext[int]) -> None:
        await ctx.request_info(sum(amounts), int, request_id="sure")

    @af.response_handler
    async def answered(self, asked: int, added: int, ctx: WorkflowContext[int]) -> None:
        await self.one(asked + added, ctx)


def flow(order: str, say: Say, storage: Any = None) -> af.Workflow:
    a, left, right, ask, pay = (
        Step(name, order, say) for name in ("a", "left", "right", "ask", "pay")
    )
    building = af.WorkflowBuilder(name=order, start_executor=a, checkpoint_storage=storage)
    building.add_fan_out_edges(a, [left, right]).add_fan_in_edges([left, right], ask)
    return building.add_edge(ask, pay).build()


async def flow_on(order: str, say: Say, storage: Any) -> bool:
    latest = await storage.get_latest(workflow_name=order)
    if latest is None:
        await flow(order, say, storage).run(int(order))
        return False
    asked = latest.pending_request_info_events
    if asked or latest.messages:
        answers = {"sure": 100} if asked else None
        run = flow(order, say, storage).run(checkpoint_id=latest.checkpoint_id, responses=answers)
        await run
        return False
    return True


def orders_in_workflows(folder: Path, say: Say, told: Told, orders: int, *places: str) -> None:
    storage = ToldStorage(opened(folder, *places))
    storage.say = say
    for line in told[-1] if told else ():
        what, order, ident, *_ = line.split()
        if what == "saved":
            asyncio.run(storage.scope(order).load(ident))  # raises if it is lost
    work(told, orders, lambda order: asyncio.run(flow_on(order, say, storage)))


def check_workflows(told: Told, ledger: Ledger, orders: int) -> None:
    async def main() -> None:
        theirs, ours = af.InMemoryCheckpointStorage(), SealedCheckpointStorage(ledger)
        found = set()
        for order in map(str, range(orders)):
            while not await flow_on(order, print, theirs):
                pass
            one, two = [await each.get_latest(workflow_name=order) for each in (theirs, ours)]
            assert one is not None
            assert two is not None
            assert two.state == one.state
            found |= {(order, each) for each in await ours.list_checkpoint_ids(workflow_name=order)}
            ledger.verify(order)
        assert {*saved(told)} <= found

    asyncio.run(main())


@pytest.mark.parametrize(
    ("orders", "seed"),
    [
        (6, 6),
        pytest.param(ORDERS, 7, marks=pytest.mark.deep),
    ],
)
def test_a_workflow_that_is_killed_at_random_loses_nothing_acknowledged(
    orders: int, seed: int, tmp_path: Path
) -> None:
    places = ("", "")
    told = hunted(orders_in_workflows, tmp_path, orders, *places, seed=seed)
    check_workflows(told, opened(tmp_path, *places), orders)
