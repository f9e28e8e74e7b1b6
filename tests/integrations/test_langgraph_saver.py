"""SealedSaver: LangGraph's own tests of a saver, graphs as on InMemorySaver, and attacks."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import threading
import time
from collections import deque, namedtuple
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import Context
from dataclasses import dataclass, make_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from ipaddress import ip_address
from typing import Any, NamedTuple
from unittest.mock import Mock
from uuid import uuid4

import pytest

from safepoint import (
    ApprovalNeeded,
    Conflict,
    Gate,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    NotFound,
    NotOwner,
    Policy,
    RolledBack,
    Tool,
    ToolSet,
)
from safepoint.core.errors import ConfigurationError, EncodeError, ResumeRefused, SealBroken
from tests.harness.optional import need
from tests.harness.postgres import Database
from tests.house import DANA, STORE, Counting, House, Memory, opened

need("langgraph.checkpoint.conformance", "needs langgraph-checkpoint-conformance")

from langchain_core.agents import AgentAction, AgentActionMessageLog, AgentFinish, AgentStep
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables.utils import AddableDict
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.runtime import RunControl
from langgraph.types import Command, Interrupt, Overwrite, Send, interrupt
from pydantic import BaseModel

from safepoint.langgraph import SealedSaver, _Label, _name
from tests.integrations.langgraph_plays import PLAYS, Spread, _ask, _line, _step, spread


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def _conformance(**options: Any) -> tuple[dict[str, int], list[str]]:
    """Return how many of LangGraph's tests pass, and what the others say."""
    ledger = opened(InMemoryCheckpointStorage(), InMemoryAnchor())

    @checkpointer_test(name="SealedSaver")
    async def made() -> Any:
        yield SealedSaver(ledger, **options)

    results = asyncio.run(validate(made)).results
    failures = [each for result in results.values() for each in result.failures]
    return {name: result.tests_passed for name, result in results.items()}, failures


def test_langgraphs_own_conformance_suite_passes_but_three_that_go_back_in_time() -> None:
    passed, failures = _conformance(time_travel=True)
    assert (sum(passed.values()), len(passed), failures) == (81, 8, [])
    passed, failures = _conformance()
    assert (sum(passed.values()), len(failures)) == (78, 3)
    assert all("is not the newest of its namespace" in each for each in failures)


@pytest.mark.parametrize("play", [*PLAYS, spread], ids=lambda play: play.__name__)
def test_a_graph_does_what_it_does_on_in_memory_saver(play: Any) -> None:
    """On a new saver wherever the play asks for one, as after a restart."""
    theirs = InMemorySaver()
    house = House()
    assert play(lambda: SealedSaver(house.ledger(), time_travel=True)) == play(lambda: theirs)


@pytest.mark.filterwarnings("ignore:.*DeltaChannel.*")
def test_what_a_delta_channel_is_spread_over_is_pruned_together_or_missed() -> None:
    """LangGraph would make up a shorter value, without an error."""
    saver, steps = _saver(time_travel=True), list[str]()
    graph = _line("a", "b", "c", state=Spread).compile(saver)
    for number in ("1", "2"):
        steps = graph.invoke({"steps": [number]}, _run("t"))["steps"]
    before = len([*saver.list(_run("t"))])
    saver.prune(["t"])
    assert graph.get_state(_run("t")).values["steps"] == steps == [*"1abc2abc"]
    assert 1 < len([*saver.list(_run("t"))]) < before
    _, *others = [each.config for each in saver.list(_run("t"))]
    saver._hide("t", [_Label.of("", each["configurable"]["checkpoint_id"]) for each in others])
    with pytest.raises(NotFound, match="were hidden or pruned"):
        graph.get_state(_run("t"))


def test_to_look_whether_an_answer_is_there_writes_nothing() -> None:
    """Also behind a subgraph, and if it is `Command(resume="")` that looks."""
    house = House()
    saver = SealedSaver(house.ledger(), gate=house.gate)

    def pay(_: Any) -> Any:
        return {"answer": saver.ask("pay", {"amount": 42}).by[0]}

    graph = _line("a", ("inner", _line(("pay", pay)).compile())).compile(saver)
    assert saver.waiting("t") == []
    graph.invoke({"amount": 1}, _run("t"))
    wrote = [*house.journal.show()], next(saver.ledger.back("t")).digest
    ((question, there),) = saver.waiting("t")
    assert not there
    strict = Gate(Policy(may={}), house.gate.approvers, answers=house.answers)  # nobody may
    assert SealedSaver(house.ledger(), gate=strict).waiting("t") == [(question, False)]
    for _ in range(2):
        with pytest.raises(ApprovalNeeded) as needed:
            graph.invoke(Command(resume=""), _run("t"))
        assert needed.value.question == question
    house.answers.put(DANA, DANA.approve(question))
    assert asyncio.run(saver.awaiting("t")) == [(question, True)]
    assert ([*house.journal.show()], next(saver.ledger.back("t")).digest) == wrote
    assert graph.invoke(Command(resume=""), _run("t"))["answer"] == "dana"
    assert saver.waiting("t") == []


# --- deleted ids


class Shop(House):
    """Two orders in one store: one waits for an answer, and the other has it."""

    def __init__(self) -> None:
        super().__init__()
        self.builder = _line("a", ("look", _step("look")), ("ask", _ask), "pay")
        for name in ("order-7", "order-8"):
            self.graph().invoke({"amount": 1}, _run(name), durability="sync")
        self.graph().invoke(Command(resume="yes"), _run("order-8"), durability="sync")

    def graph(self, **options: Any) -> Any:
        return self.builder.compile(SealedSaver(self.ledger(), **options))


def _run(thread: str | None) -> Any:
    return {"configurable": {"thread_id": thread}}


def test_a_deleted_id_is_used_again_and_holds_nothing_of_before() -> None:
    shop = Shop()
    for amount in (10, 20):
        graph = shop.graph()
        graph.checkpointer.delete_thread("order-7")
        graph.checkpointer.delete_thread("order-7")  # once more is once
        graph.invoke({"amount": amount}, _run("order-7"))
        assert shop.graph().get_state(_run("order-7")).values["steps"] == ["a", "look"]
    assert shop.ledger().verify("order-7") == 1  # the tombstone
    names = [_name(text, number) for text in ("a", "a~1", "a~1~0") for number in (0, 1)]
    assert len({*names}) == len(names)


def test_an_interrupted_delete_is_finished_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()
    saver = shop.graph().checkpointer
    monkeypatch.setattr(saver.ledger, "erase", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        saver.delete_thread("order-7")
    shop.graph().checkpointer.delete_thread("order-7")
    assert shop.ledger().verify("order-7") == 1  # the tombstone


def test_what_was_hidden_stays_hidden() -> None:
    house = House()
    saver = SealedSaver(house.ledger())
    _put(saver, "secret", _put(saver, "kept"), run_id="r")
    saver.delete_for_runs(["r"])
    found = SealedSaver(house.ledger()).get_tuple(_run("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"value": "kept"}
    house.storage.remove("t", 3)
    with pytest.raises(RolledBack, match="the anchor has seen"):
        SealedSaver(house.ledger()).get_tuple(_run("t"))


# --- who may go on


TOOLS = ToolSet([Tool("bank")])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"app": "orders@1", "tools": TOOLS}, ""),
        ({"app": "orders@2", "tools": TOOLS}, "is of the app 'orders@1', and this is 'orders@2'"),
        ({"app": "orders@2", "tools": TOOLS, "resumes": ["orders@1"]}, ""),
        ({"app": "orders@1", "tools": ToolSet()}, "was written with other tools."),
        ({"app": "orders@1"}, "was written with other tools."),
        ({"app": "orders@1", "resumes": [TOOLS.digest]}, ""),
    ],
)
def test_a_graph_of_another_app_or_with_other_tools_does_not_go_on(
    options: dict[str, Any], said: str
) -> None:
    """No task runs. To look at it goes on."""
    shop, run = Shop(), _run("order-9")
    shop.graph(app="orders@1", tools=TOOLS).invoke({"amount": 1}, run)
    graph = shop.graph(**options)
    if not said:
        assert graph.invoke(Command(resume="yes"), run)["answer"] == "yes"
        return
    calls: list[Callable[[], Any]] = [
        lambda: graph.invoke(Command(resume="yes"), run),
        lambda: graph.invoke({"amount": 2}, run),
        lambda: graph.update_state(run, {"amount": 5}),
        lambda: graph.get_state(run),
    ]
    for call in calls:
        with pytest.raises(ResumeRefused, match=re.escape(said)):
            call()
    reader = shop.builder.compile(graph.checkpointer.reading())
    assert reader.get_state(run).values["amount"] == 3
    assert len([*reader.get_state_history(run)]) == 4


def test_what_a_subgraph_remembers_of_another_app_is_not_served_to_a_replay() -> None:
    """LangGraph finds it by `list`, and `reading()` shows it."""
    shop, run = Shop(), _run("order-9")
    shop.builder = _line("a", ("inner", _line("in").compile(checkpointer=True)))
    shop.graph(app="orders@1").invoke({"amount": 1}, run)
    shop.graph(app="orders@2", resumes=["orders@1"]).invoke({"amount": 1}, run)
    graph = shop.graph(app="orders@2", time_travel=True)
    old = next(each for each in graph.get_state_history(run) if each.next == ("inner",))
    with pytest.raises(ResumeRefused, match=r"is of the app 'orders@1'"):
        graph.invoke(None, old.config)
    inner: Any = {"configurable": {"thread_id": "order-9", "checkpoint_ns": "inner"}}
    assert [*graph.checkpointer.reading().list(inner, before=old.config, limit=1)]


def test_the_past_is_gone_on_from_by_name_alone() -> None:
    """Which call gets which: history is served, an old id is not, and a reader never writes."""
    shop, run = Shop(), _run("order-8")
    graph = shop.graph()
    newest, *_, old, _ = graph.get_state_history(run)
    assert graph.get_state(newest.config).values == newest.values
    for call in (graph.get_state, lambda config: graph.invoke(None, config)):
        with pytest.raises(ResumeRefused, match="not the newest"):
            call(old.config)
    with pytest.raises(ResumeRefused, match="not the newest"):
        graph.update_state(old.config, {"amount": 5})
    saver = graph.checkpointer.reading()
    reader = shop.builder.compile(saver)
    assert reader.get_state(old.config).values == old.values
    writes: list[Callable[[], Any]] = [
        lambda: reader.update_state(old.config, {"amount": 5}),
        lambda: reader.invoke({"amount": 1}, run),
        lambda: saver.put_writes(old.config, [("amount", 1)], "task"),
        lambda: saver.delete_thread("order-8"),
        lambda: saver.delete_for_runs(["run"]),
        lambda: saver.copy_thread("order-8", "order-9"),
        lambda: saver.prune(["order-8"]),
    ]
    for write in writes:
        with pytest.raises(ConfigurationError, match="for reading"):
            write()
    assert len([*graph.get_state_history(run)]) == len([*reader.get_state_history(run)])
    back = shop.graph(time_travel=True)
    assert back.invoke(None, old.config)["__interrupt__"]


# --- values


class Colour(Enum):
    RED = 1


@dataclass
class Invoice:
    number: int


class Payee(BaseModel):
    name: str


class Point(NamedTuple):
    x: int


@dataclass
class Marker:
    pass


class Own(HumanMessage):
    mood: str = ""


KEPT: dict[str, Any] = {
    "a tuple in a list": [(1, (2,)), {"k": {3}}],
    "types of yours": [
        Colour.RED,
        Invoice(7),
        Payee(name="alice"),
        Point(1),
        Own(content="hi", mood="ok"),
    ],
    "what the codec knows": [b"x", Decimal("1.5"), datetime(2026, 1, 1, tzinfo=UTC), timedelta(1)],
    "an address": [ip_address("192.0.2.1"), ip_address("::1")],
    "a deque": deque([1, (2,)], maxlen=3),
    "messages": [
        SystemMessage("s"),
        HumanMessage([{"type": "text", "text": "x"}], name="n", id="1", more="extra"),
        AIMessage("a", tool_calls=[{"name": "t", "args": {"n": (1,)}, "id": "c"}]),
        AIMessage("u", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
        AIMessageChunk(content="part"),
        ToolMessage("t", tool_call_id="c", artifact=Invoice(7), status="error"),
        ChatMessage(content="c", role="r"),
        RemoveMessage(id="1"),
    ],
    "a message's text": [HumanMessage("said").text, AddableDict(said=HumanMessage("said").text)],
    "an agent's steps": [
        AgentAction("pay", {"n": (1,)}, "log"),
        AgentActionMessageLog(tool="t", tool_input="x", log="", message_log=[AIMessage("a")]),
        AgentStep(action=AgentAction("t", "x", ""), observation=Decimal(7)),
        AgentFinish({"output": (1,)}, "log"),
    ],
    "a document": Document("text", metadata={"n": (1,)}, id="d"),
    "langgraph": [
        Send("node", {"n": (1,)}),
        Send("node", 1, timeout=3),
        Interrupt((1,), id="i"),
        Command(update={"n": (1,)}, goto=[Send("n", 1)], graph=Command.PARENT),
        Overwrite([1]),
    ],
}


def _saver(**options: Any) -> SealedSaver:
    return SealedSaver(opened(Memory()), **options)


def _put(saver: SealedSaver, value: Any, parent: Any = None, **metadata: Any) -> Any:
    checkpoint: Any = {**empty_checkpoint(), "channel_values": {"value": value}}
    config: Any = parent or {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    about: Any = {"source": "loop", **metadata}
    return saver.put(config, checkpoint, about, {})


@pytest.mark.parametrize("durability", ["async", "sync", "exit"])
@pytest.mark.parametrize("given", [{"answer": Marker()}, Command(update={"answer": Marker()})])
def test_an_input_that_cannot_be_kept_is_refused_before_a_task_runs(
    given: Any, durability: Any
) -> None:
    """LangGraph saves it while it runs the first tasks, or after them."""
    saver, ran = _saver(), list[str]()
    graph = _line(("work", lambda _: ran.append("work"))).compile(saver)
    for _ in range(2):
        with pytest.raises(EncodeError, match=r"answer'.* is of the type .*Marker"):
            graph.invoke(given, _run("t"), durability=durability)
        with pytest.raises(EncodeError, match="Marker"):
            asyncio.run(graph.ainvoke(given, _run("t"), durability=durability))
    assert ran == []
    assert saver.ledger.threads() == []
    graph.invoke({"answer": "yes"}, _run("t"))
    assert ran == ["work"]


def test_what_a_node_returned_and_cannot_be_kept_is_named_by_its_channel() -> None:
    """Whether LangGraph first saves the node's write, or the checkpoint after it."""
    saver = _saver()
    graph = _line(("work", lambda _: {"answer": [{"a": Marker()}]}), "more").compile(saver)
    config: Any = _run("t")
    for durability in ("async", "sync"):
        with pytest.raises(EncodeError, match=r"\['answer'\]\[0\]\['a'\] is of the type"):
            graph.invoke({"answer": "yes"}, config, durability=durability)


def test_a_path_is_no_ledger_and_a_run_without_a_thread_is_nobodys() -> None:
    with pytest.raises(ConfigurationError, match="open_ledger"):
        SealedSaver("state.db")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="thread_id is None"):
        _line("work").compile(_saver()).invoke({"amount": 1}, _run(None))


@pytest.mark.parametrize("name", KEPT)
def test_a_value_comes_back_equal_and_of_its_types(name: str) -> None:
    """As part of a checkpoint, and as a write."""
    saver, value = _saver(types=[Colour, Invoice, Payee, Point, Own]), KEPT[name]
    config = _put(saver, value)
    saver.put_writes(config, [("value", value)], "task")
    found = saver.get_tuple(config)
    assert found is not None
    assert found.pending_writes is not None
    for again in (found.checkpoint["channel_values"]["value"], found.pending_writes[0][2]):
        assert again == value
        assert _kinds(again) == _kinds(value)


def _kinds(value: Any) -> Any:
    inner = value.values() if isinstance(value, dict) else value
    many = isinstance(value, (list, tuple, dict, set, deque))
    return type(value), [_kinds(each) for each in inner] if many else []


def test_two_classes_of_one_name_are_refused() -> None:
    """Or one would come back as the other."""
    others: list[Any] = [
        make_dataclass("Invoice", [("number", int)]),
        namedtuple("Invoice", ["number"]),  # noqa: PYI024
        type("Invoice", (Own,), {}),
    ]
    for other in others:
        for types in ([Invoice, other], [other, Invoice], [other, make_dataclass("Invoice", [])]):
            with pytest.raises(ConfigurationError, match=r"Invoice.* or is known already"):
                _saver(types=types)
    saver = _saver(types={"billing.Invoice": Invoice, "warehouse.Invoice": others[0]})
    _put(saver, [Invoice(7), others[0](7)])
    found = saver.get_tuple(_run("t"))
    assert found is not None
    assert _kinds(found.checkpoint["channel_values"]["value"])[1][1][0] is others[0]


# --- workers, and restarts


def test_of_two_workers_that_go_on_from_one_checkpoint_one_gets_a_conflict() -> None:
    """Writes of both are kept, and so is a fork."""
    house = House()
    one, two = (SealedSaver(house.ledger(), time_travel=True) for _ in range(2))
    first = _put(one, 0)
    with pytest.raises(Conflict, match="Another run"):
        _put(two, 0)  # which had seen no thread
    assert two.get_tuple(_run("t"))
    second = _put(one, 1, first)
    two.put_writes(first, [("value", "late")], "task-2")
    one.put_writes(second, [("value", "mine")], "task-1")
    two.put_writes(second, [("value", "ours")], "task-2")
    with pytest.raises(Conflict):
        _put(two, 2, first)
    _put(two, 3, first, source="fork")
    with pytest.raises(Conflict):
        _put(one, 4, second)
    for saver in (one, two, SealedSaver(one.ledger, time_travel=True)):
        for config, wrote in ((first, ["late"]), (second, ["mine", "ours"]), (_run("t"), [])):
            found = saver.get_tuple(config)
            assert found is not None
            assert [each[2] for each in found.pending_writes or ()] == wrote


@pytest.mark.parametrize("durability", ["async", "sync", "exit"])
@pytest.mark.parametrize("begun", [False, True])
def test_of_runs_at_once_in_several_processes_one_completes(durability: Any, begun: bool) -> None:
    """A double click that reaches several workers: the others end, and leave nothing."""
    ledger, builder, count = opened(Memory()), _line("first", "second"), 8
    if begun:
        builder.compile(SealedSaver(ledger)).invoke({"steps": ["before"]}, _run("t"))
    together = threading.Barrier(count)

    class Slow(SealedSaver):
        def get_tuple(self, config: Any) -> Any:
            found = super().get_tuple(config)
            together.wait(600)
            return found

    def request(number: int) -> str:
        graph = builder.compile(Slow(ledger))
        try:
            graph.invoke({"steps": [f"request {number}"]}, _run("t"), durability=durability)
        except Conflict as error:
            return "refused" if error.kind == "busy" else str(error)
        return f"request {number}"

    with ThreadPoolExecutor(count) as pool:
        ended = [*pool.map(request, range(count))]
    assert ended.count("refused") == count - 1
    (served,) = {*ended} - {"refused"}
    graph = builder.compile(SealedSaver(ledger))
    state = graph.get_state(_run("t"))
    before = ["before", "first", "second"] if begun else []
    assert state.values["steps"] == [*before, served, "first", "second"]
    assert not state.next
    assert graph.invoke({"steps": []}, _run("t"))["steps"][-2:] == ["first", "second"]


class Traffic:
    """Requests for one thread. Its node goes on when the test says so, and ends as it is asked."""

    def __init__(self, mode: str, saver: SealedSaver) -> None:
        self.mode, self.ran = mode, list[str]()
        self.inside, self.go_on = threading.Event(), threading.Event()

        def work(state: Any) -> Any:
            asked = state["steps"][-2]
            self.ran.append(asked)
            self.inside.set()
            assert self.go_on.wait(600)
            if asked == "fails":
                raise ValueError(asked)
            return {"steps": [interrupt("sure?") if asked == "asks" else "done"]}

        async def aside(state: Any) -> Any:
            return await asyncio.to_thread(work, state)

        node = work if mode == "sync" else aside
        self.graph = _line("begin", ("work", node)).compile(saver)

    async def ask(self, name: str) -> Any:
        """Invoke the graph, and return its steps, or why it was refused."""
        given: Any = {"steps": [name]}, _run("t")
        try:
            if self.mode == "sync":
                return (await asyncio.to_thread(self.graph.invoke, *given))["steps"]
            return (await self.graph.ainvoke(*given))["steps"]
        except Conflict as error:
            return error.kind
        except ValueError as error:
            return str(error)

    async def begin(self, name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(self.ask(name))
        assert await asyncio.to_thread(self.inside.wait, 600)
        return task


MODES = pytest.mark.parametrize("mode", ["sync", "async"])


@MODES
@pytest.mark.parametrize("busy", ["refuse", "wait"])
def test_a_second_request_is_refused_before_a_task_or_waits_in_line(mode: str, busy: Any) -> None:
    """A chat whose user writes twice waits; a double click must not pay twice."""

    async def play() -> None:
        traffic = Traffic(mode, _saver(busy=busy))
        first = await traffic.begin("1")
        rest = [asyncio.create_task(traffic.ask(str(n))) for n in range(2, 9)]
        ended = await asyncio.gather(*rest) if busy == "refuse" else await asyncio.sleep(0.1, [])
        assert ended == ["busy"] * len(ended)
        assert traffic.ran == ["1"]
        traffic.go_on.set()
        ended = await asyncio.gather(first, *rest)
        served = traffic.ran if busy == "wait" else ["1"]
        assert sorted(served) == [*map(str, range(1, len(served) + 1))]
        steps = [each for name in served for each in (name, "begin", "done")]
        assert max(each for each in ended if each != "busy") == steps
        assert await traffic.ask("last") == [*steps, "last", "begin", "done"]

    asyncio.run(asyncio.wait_for(play(), 600))


@MODES
@pytest.mark.parametrize("end", ["fails", "asks", "cancelled", "closed", "cancelled in line"])
def test_however_a_run_ends_the_next_one_begins(mode: str, end: str) -> None:
    """A client that disconnects is a task that is cancelled, or a stream that is closed."""

    async def play() -> None:
        traffic = Traffic(mode, _saver(busy="wait" if "line" in end else "refuse"))
        if end == "closed":
            given: Any = {"steps": [end]}, _run("t")
            stream: Any = traffic.graph.stream if mode == "sync" else traffic.graph.astream
            stream = stream(*given, stream_mode="values")
            next(stream) if mode == "sync" else await anext(stream)
            assert await asyncio.create_task(traffic.ask("2"), context=Context()) == "busy"
            traffic.go_on.set()
            stream.close() if mode == "sync" else await stream.aclose()
        else:
            first = await traffic.begin(end)
            if end == "cancelled in line":
                second = asyncio.create_task(traffic.ask("2"))
                await asyncio.sleep(0.1)
                first, second = second, first
            if "cancelled" in end and mode == "async":
                first.cancel()
            traffic.go_on.set()
            await asyncio.wait([first])
        traffic.go_on.set()
        assert (await traffic.ask("next"))[-3:] == ["next", "begin", "done"]

    asyncio.run(asyncio.wait_for(play(), 600))


class Failing(BaseCallbackHandler):
    """An application's own callback, which comes before the saver's."""

    raise_error = True

    def on_chain_end(self, *_: Any, **__: Any) -> None:
        raise ValueError("callback")

    on_chain_error = on_chain_end


@pytest.mark.filterwarnings("ignore")
def test_a_run_whose_end_nobody_tells_ends_when_it_is_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its event loop was closed with the run in it, or a callback raised at its end."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's keeps the run
    saver = _saver()

    async def wait(_: Any) -> Any:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(3600)

    waits = _line(("wait", wait)).compile(saver)
    quick = _line("quick").compile(saver)

    def leave() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(waits.ainvoke({"amount": 1}, _run("t"), durability="exit"))
        loop.run_forever()
        assert not task.done()
        loop.close()

    def fail() -> None:
        with pytest.raises(ValueError, match="callback"):
            quick.invoke({"amount": 1}, {**_run("t"), "callbacks": [Failing()]})

    for end in (leave, fail):
        Context().run(end)
        gc.collect()
        assert Context().run(quick.invoke, {"amount": 1}, _run("t"))["amount"] == 2


def test_a_stream_that_is_left_in_the_middle_does_not_lock_out_who_left_it() -> None:
    """Nobody can wait for themselves. What was left saves nothing more."""
    graph = _line("one", "two", "three").compile(_saver(busy="wait"))
    left = graph.stream({"steps": ["left"]}, _run("t"), stream_mode="values")
    next(left)
    steps = graph.invoke({"steps": ["next"]}, _run("t"))["steps"]
    assert steps[-4:] == ["next", "one", "two", "three"]
    with pytest.raises(Conflict, match="Another run of the thread 't' ") as refusal:
        list(left)
    assert refusal.value.kind == "busy"  # it was overtaken, or saves from where the other began
    assert graph.get_state(_run("t")).values["steps"] == steps


@pytest.mark.parametrize("shared", ["run_id", "control"])
def test_two_runs_with_one_id_or_one_control_are_two_runs_and_lock_nobody_out(shared: str) -> None:
    """A client may choose the id. LangGraph wants a fresh control for each run, unchecked."""
    config: Any = {**_run("t"), **({"run_id": uuid4()} if shared == "run_id" else {})}
    more: Any = {"control": RunControl()} if shared == "control" else {}

    def retry(state: Any) -> Any:
        if state["steps"] == ["first"]:
            with pytest.raises(Conflict) as refusal, ThreadPoolExecutor(1) as pool:
                pool.submit(graph.invoke, {"steps": ["retry"]}, config, **more).result()
            assert refusal.value.kind == "busy"
        return {"steps": ["done"]}

    graph = _line(("retry", retry)).compile(_saver())
    graph.invoke({"steps": ["first"]}, config, **more)
    steps = graph.invoke({"steps": ["next"]}, _run("t"))["steps"]
    assert steps == ["first", "done", "next", "done"]


def test_on_postgresql_a_worker_has_a_thread_while_its_run_goes_on_or_until_it_is_gone(
    database: Database, stack: ExitStack
) -> None:
    """LangGraph runs a task before it saves. So another worker's graph is refused before that."""
    from safepoint.stores.postgres import PostgresAnchor, PostgresCheckpointStorage

    anchor, paid = stack.enter_context(PostgresAnchor(database.anchor)), list[int]()
    run, during = _run("order-7"), list[Callable[[], None]]()

    def worker(number: int, seconds: float = 600) -> Any:
        def pay(state: Any) -> Any:
            paid.append(number)
            while during:
                during.pop()()
            return {"steps": ["pay"]}

        storage = stack.enter_context(PostgresCheckpointStorage(database.worker(number)))
        options: Any = {"anchor": anchor, "worker": f"worker-{number}", "seconds": seconds}
        ledger = opened(storage, **options)
        return _line(("ask", _ask), ("pay", pay)).compile(SealedSaver(ledger))

    one, two, three = worker(1), worker(2, seconds=1), worker(3)

    def refused() -> None:
        given: Any
        for given in (Command(resume="no"), {"amount": 2}, None):
            with pytest.raises(NotOwner, match=r"owned by worker-1 .* until .* Wait until then"):
                two.invoke(given, run)
        assert two.get_state(run).next == ("pay",)

    def taken_over() -> None:
        """Two says no more, and its lease ends."""
        while True:
            try:
                three.invoke({"amount": 3}, run)
                break
            except NotOwner:
                time.sleep(0.1)

    one.invoke({"amount": 1}, run)
    during.append(refused)
    one.invoke(Command(resume="yes"), run, durability="sync")
    two.invoke({"amount": 1}, run)
    during.append(taken_over)
    with pytest.raises(NotOwner, match="If another worker has it, stop"):
        two.invoke(Command(resume="yes"), run, durability="sync")
    assert paid == [1, 2]
    assert two.invoke(Command(resume="yes"), run)["answer"] == "yes"


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_who_has_an_answer_can_ask_another_worker_at_once(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of a run, however slowly it is let go, is free before its answer goes out."""
    storage, anchor = InMemoryCheckpointStorage(), InMemoryAnchor()
    one, two = (SealedSaver(opened(storage, anchor=anchor, worker=name)) for name in ("one", "two"))
    release = one.ledger.owners.release

    def slowly(name: str) -> None:
        time.sleep(0.3)
        release(name)

    monkeypatch.setattr(one.ledger.owners, "release", slowly)
    for saver in (one, two, one):
        graph = _line("step").compile(saver)
        if mode == "sync":
            graph.invoke({"steps": []}, _run("t"))
        else:
            asyncio.run(graph.ainvoke({"steps": []}, _run("t")))
        assert saver.ledger.owners.threads == {}


@pytest.mark.parametrize("durability", ["async", "sync", "exit"])
def test_a_save_that_is_refused_in_a_subgraph_that_asks_is_told(durability: Any) -> None:
    """LangGraph 1.2.20 drops it, and would ask the person as if all were saved."""
    inner = _line(("look", lambda _: {"answer": Marker()}), ("ask", _ask)).compile()
    graph = _line(("inner", inner)).compile(_saver())
    for _ in range(2):  # and a new call is no longer told of the last one's
        with pytest.raises(EncodeError, match="Marker"):
            graph.invoke({"amount": 1}, _run("t"), durability=durability)
    assert not graph.get_state(_run("t")).interrupts


def test_what_others_did_to_a_thread_is_seen_before_a_write_waits() -> None:
    """Also what this saver did, by a copy or a delete; and an id may be of any type."""
    one = _saver()
    two = SealedSaver(one.ledger)
    assert two.get_tuple(_run("t")) is None
    config: Any = _put(one, 1)
    for number in (1, 2):
        two.put_writes(config, [("value", number)], f"task-{number}")
        found = one.get_tuple(_run("t"))
        assert found is not None
        assert found.pending_writes == [(f"task-{number}", "value", number)]
        config = _put(one, 2, config)
    one.copy_thread("t", "copy")
    copied = {"configurable": {**config["configurable"], "thread_id": "copy"}}
    _put(one, 3, copied)
    one.delete_thread("copy")
    _put(one, 4, {"configurable": {"thread_id": "copy", "checkpoint_ns": None}})
    assert [each.checkpoint["channel_values"] for each in one.list(_run("copy"))] == [{"value": 4}]
    assert one.get_tuple({"configurable": {"thread_id": "t", "checkpoint_id": 7}}) is None


def test_what_another_adapter_wrote_is_neither_served_nor_followed() -> None:
    saver = _saver()
    for value in ({"thread": "other"}, {"amount": 1}, "state"):
        saver.ledger.save("t", value, label="c/1")
        for act in (partial(saver.get_tuple, _run("t")), partial(_put, saver, 1)):
            with pytest.raises(SealBroken, match="not belong to the LangGraph thread 't'"):
                act()


def test_a_prune_erases_no_newest_while_another_worker_saves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, space = _saver(), {"configurable": {"thread_id": "t", "checkpoint_ns": "inner"}}
    two = SealedSaver(one.ledger)
    _put(one, "old")
    _put(one, "newest", one.get_tuple(_run("t")).config)  # type: ignore[union-attr]
    inner = _put(one, 1, space)
    prune = one.ledger.prune

    def slow(name: str, **options: Any) -> int:
        second = _put(two, 2, inner)
        _put(two, 3, second)
        return prune(name, **options)

    monkeypatch.setattr(one.ledger, "prune", slow)
    one.prune(["t"])
    shown = [*SealedSaver(one.ledger).list(_run("t"))]
    values = [each.checkpoint["channel_values"]["value"] for each in shown]
    assert values == [3, 2, 1, "newest"]


def test_a_question_and_what_follows_it_are_anchored_at_once_and_other_writes_later() -> None:
    ledger = House().ledger()
    saver, seen = SealedSaver(ledger), list[int]()
    config = _put(saver, 0)
    for channel in ("value", "__interrupt__", "value", "__resume__", "__error__"):
        saver.put_writes(config, [(channel, 1)], f"task-{len(seen)}")
        head = ledger.anchored("t")
        seen.append(head.sequence if head else 0)
    assert seen == [1, 3, 4, 5, 6]


@pytest.mark.parametrize("early", [True, False])
def test_that_a_step_asks_is_known_after_a_restart_from_its_records(early: bool) -> None:
    """Whoever goes on in mid-step, in another process, still anchors what follows the question."""
    house = House()

    def again() -> SealedSaver:
        return SealedSaver(house.ledger())

    saver = again()
    first = _put(saver, 0)
    checkpoint: Any = {**empty_checkpoint(), "id": "f" * 36}
    config: Any = {"configurable": {**first["configurable"], "checkpoint_id": "f" * 36}}
    if early:  # sealed in the record of its checkpoint
        saver.put_writes(config, [("__interrupt__", 1)], "task-1")
    saver.put(first, checkpoint, {"source": "loop"}, {})
    if not early:
        again().put_writes(config, [("value", 1)], "task-0")
        saver.put_writes(config, [("__interrupt__", 1)], "task-1")
    for number in (2, 3):
        saver = again()
        saver.put_writes(config, [("value", number)], f"task-{number}")
        newest = next(iter(saver.ledger.back("t")))
        head = house.anchor.read(STORE, "t")
        assert head is not None
        assert head.sequence == newest.sequence


def test_a_restarted_saver_does_not_walk_a_long_thread() -> None:
    """An old id takes a walk to it, once, since only the links say that nothing hid it."""
    storage, configs = Counting(), list[Any]()
    ledger = opened(storage, InMemoryAnchor())
    saver = SealedSaver(ledger)
    for number in range(100):
        configs.append(_put(saver, number, configs[-1] if configs else None))
        saver.put_writes(configs[-1], [("value", number)], "task")

    again = SealedSaver(opened(storage, ledger.anchor)).reading()

    def reads(config: Any) -> tuple[int, Any]:
        storage.reads = 0
        found = again.get_tuple(config)
        assert found is not None
        wrote = [each[2] for each in found.pending_writes or ()]
        return storage.reads, (found.checkpoint["channel_values"]["value"], wrote)

    few, value = reads(_run("t"))
    assert (few < 5, value) == (True, (99, [99]))
    many, value = reads(configs[50])
    assert (many > 90, value) == (True, (50, [50]))
    few, value = reads(configs[60])
    assert (few < 8, value) == (True, (60, [60]))
    saver.put_writes(configs[50], [("value", "late")], "task-2")
    few, value = reads(configs[50])
    assert (few < 12, value) == (True, (50, [50, "late"]))


def test_of_two_saves_of_an_id_the_newer_one_is_served() -> None:
    """Nor does a second save of an id lose the writes of the first, as on InMemorySaver."""
    shop = Shop()
    saver = shop.graph(time_travel=True).checkpointer
    first = _put(saver, "first")
    saver.put_writes(first, [("value", "wrote")], "task")
    checkpoint: Any = {**empty_checkpoint(), "channel_values": {"value": "second"}}
    checkpoint["id"] = first["configurable"]["checkpoint_id"]
    saver.put(first, checkpoint, {"source": "update"}, {})
    _put(saver, "newest", first)
    found = shop.graph(time_travel=True).checkpointer.get_tuple(first)
    assert found.checkpoint["channel_values"] == {"value": "second"}
    assert found.pending_writes == [("task", "value", "wrote")]


def test_a_request_that_is_cancelled_before_it_is_in_line_does_not_join_it() -> None:
    """Its thread goes on when the run is over already."""
    inside, go_on, joined = threading.Event(), threading.Event(), threading.Event()

    class Slow(SealedSaver):
        def _join(self, config: Any) -> Any:
            inside.set()
            go_on.wait(600)
            turn = super()._join(config)
            joined.set()
            return turn

    graph = _line("a").compile(Slow(opened(Memory())))

    async def play() -> None:
        task = asyncio.create_task(graph.ainvoke({"amount": 1}, _run("t")))
        await asyncio.to_thread(inside.wait, 600)
        task.cancel()
        await asyncio.wait([task])
        go_on.set()
        await asyncio.to_thread(joined.wait, 600)
        assert (await graph.ainvoke({"amount": 1}, _run("t")))["amount"] == 2

    asyncio.run(play())


def test_a_node_may_catch_what_another_graph_is_refused_for_and_try_again() -> None:
    saver = _saver()
    inner = _line(("look", lambda state: {"answer": Marker() if not state["amount"] else "yes"}))
    other = inner.compile(saver)

    def call(_: Any) -> Any:
        with pytest.raises(EncodeError, match="Marker"):
            other.invoke({"amount": 0}, _run("other"))
        return {"answer": other.invoke({"amount": 1}, _run("other"))["answer"]}

    graph = _line(("call", call), "end").compile(saver)
    assert graph.invoke({"amount": 1}, _run("t"))["answer"] == "yes"


def test_a_run_reads_its_thread_once_however_many_steps_it_has() -> None:
    def reads(steps: int) -> int:
        saver = SealedSaver(opened(storage := Counting(), InMemoryAnchor()))
        _line(*map(str, range(steps))).compile(saver).invoke({"amount": 1}, _run("t"))
        return storage.reads

    assert reads(10) == reads(1)
