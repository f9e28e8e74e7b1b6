"""Both adapters go on from wherever a killed process left a store: no alarm, and nothing twice.

A ledger appends one record after the other, and then moves the anchor: the crash driver holds that
each is whole. So whoever is killed leaves the first records of a run, anchored or not yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from tests.harness.optional import need
from tests.house import House, Memory

need("langgraph", "needs safepoint[langgraph]")
need("agent_framework", "needs safepoint[agent-framework]")

import agent_framework as af
from agent_framework import WorkflowContext
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START
from langgraph.types import Command

from safepoint.agent_framework import SealedCheckpointStorage
from safepoint.langgraph import SealedSaver
from tests.integrations.langgraph_plays import RUN, _ask, _line, _step


class Watched(House):
    """A store that writes down each record, and what the anchor had seen by then."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[tuple[str, int, bytes], dict[Any, Any]]] = []
        keep = self.storage.append

        def append(thread: str, sequence: int, record: bytes, **options: Any) -> None:
            keep(thread, sequence, record, **options)
            self.written.append(((thread, sequence, record), dict(self.anchor._heads)))

        self.storage.append = append  # type: ignore[method-assign]

    def left(self) -> Iterator[House]:
        """Yield what a process leaves that is killed before or after it moves the anchor."""
        anchored = [heads for _, heads in self.written]
        after = [*anchored[1:], dict(self.anchor._heads)]
        for count in range(1, len(self.written) + 1):
            for heads in (anchored[count - 1], after[count - 1]):
                house = House()
                house.storage = Memory()
                for record, _ in self.written[:count]:
                    house.storage.put(*record)
                house.anchor._heads.update(heads)
                yield house


# --- LangGraph


def graph(saver: Any, did: list[str]) -> Any:
    """A line with two nodes side by side, a subgraph, and a question to a person."""

    def doing(name: str) -> Any:
        def node(state: Any) -> Any:
            did.append(name)
            return _step(name)(state) if name != "side" else {"steps": ["side"]}

        return name, node

    inner = _line(doing("in"), doing("out")).compile()
    builder = _line(doing("a"), doing("b"), ("inner", inner), ("ask", _ask), doing("pay"))
    builder.add_node(*doing("side"))
    builder.add_edge(START, "side")
    return builder.compile(saver)


def ended(made: Any) -> Any:
    """Begin, go on or answer, until it has paid, and return the state.

    What `get_state` calls the next nodes leaves out those whose writes are pending. So it is no
    sign of the end, on no saver.
    """
    while "pay" not in made.get_state(RUN).values.get("steps", ()):
        state = made.get_state(RUN)
        given: Any = None if state.created_at else {"amount": 1}
        made.invoke(Command(resume="yes") if state.interrupts else given, RUN, durability="sync")
    return made.get_state(RUN).values


def test_a_graph_goes_on_from_each_record() -> None:
    wanted, watched = ended(graph(InMemorySaver(), [])), Watched()
    assert ended(graph(SealedSaver(watched.ledger()), [])) == wanted
    assert len(watched.written) > 12
    for house in watched.left():
        did: list[str] = []
        again = graph(SealedSaver(house.ledger()), did)
        saved = again.get_state(RUN).values.get("steps", ())
        assert ended(again) == wanted
        assert not {*did} & {*saved}


# --- Agent Framework


class Step(af.Executor):
    """Does something, writes that down, and hands a number on; or asks a person, with a name."""

    def __init__(self, name: str, did: list[str]) -> None:
        super().__init__(name)
        self.did = did

    @af.handler
    async def one(self, amount: int, ctx: WorkflowContext[int]) -> None:
        self.did.append(self.id)
        ctx.set_state(self.id, amount)
        await ctx.send_message(amount + 1)

    @af.handler
    async def several(self, amounts: list[int], ctx: WorkflowContext[int]) -> None:
        await ctx.request_info(sum(amounts), int, request_id="sure")

    @af.response_handler
    async def answered(self, asked: int, added: int, ctx: WorkflowContext[int]) -> None:
        await self.one(asked + added, ctx)


def flow(storage: Any, did: list[str]) -> af.Workflow:
    a, left, right, ask, pay = (Step(name, did) for name in ("a", "left", "right", "ask", "pay"))
    building = af.WorkflowBuilder(name="order", start_executor=a, checkpoint_storage=storage)
    building.add_fan_out_edges(a, [left, right]).add_fan_in_edges([left, right], ask)
    return building.add_edge(ask, pay).build()


async def paid(storage: Any, did: list[str]) -> dict[str, Any]:
    """Begin or go on, until nothing is left to do, and return the state."""
    latest = await storage.get_latest(workflow_name="order")
    while latest is None or latest.pending_request_info_events or latest.messages:
        if latest is None:
            await flow(storage, did).run(1)
        else:
            answers = {"sure": 100} if latest.pending_request_info_events else None
            ident = latest.checkpoint_id
            await flow(storage, did).run(checkpoint_id=ident, responses=answers)
        latest = await storage.get_latest(workflow_name="order")
    return {name: value for name, value in latest.state.items() if not name.startswith("_")}


def test_a_workflow_goes_on_from_each_record() -> None:
    watched = Watched()
    wanted = asyncio.run(paid(af.InMemoryCheckpointStorage(), []))
    assert asyncio.run(paid(SealedCheckpointStorage(watched.ledger()), [])) == wanted
    assert len(watched.written) > 4
    for house in watched.left():
        did: list[str] = []
        storage = SealedCheckpointStorage(house.ledger())
        saved = asyncio.run(storage.get_latest(workflow_name="order"))
        assert asyncio.run(paid(storage, did)) == wanted
        assert saved is not None
        assert not {*did} & saved.state.keys()
