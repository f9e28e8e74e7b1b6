"""SP30 in the adapters: the application says whose request it is, and not what a client sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from operator import add
from typing import Annotated, Any, TypedDict, TypeVar

import pytest

from safepoint import Approvers, Gate
from safepoint.core.errors import ApprovalRefused, CheckpointError, ConfigurationError, InvalidId
from safepoint.resume.approval import Question
from tests.harness.optional import need
from tests.house import DANA, House

need("langgraph", "needs langgraph")
need("agent_framework", "needs safepoint[agent-framework]")

import agent_framework as af
from agent_framework import (
    WorkflowBuilder,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowContext,
)
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.runtime import RunControl, Runtime
from langgraph.types import Command, Send, interrupt

from safepoint.agent_framework import NotCheckpointed, SealedCheckpointStorage
from safepoint.langgraph import SealedSaver

T = TypeVar("T")
TENANT: ContextVar[str] = ContextVar("tenant")
GATE = Gate(approvers=Approvers({"dana": DANA.key.public}))
RUN: Any = {"configurable": {"thread_id": "order-7"}}
RUNTIME = "__pregel_runtime"  # where LangGraph has what belongs to one run
FORGED = {
    **dict.fromkeys(["tenant", "tenant_id", "tenant_name", "user_id", "owner"], "acme"),
    "langgraph_auth_user": {"identity": "acme"},
}


def served(tenant: str, call: Callable[[], T]) -> T:
    """Serve a request, as an application does that authenticated it."""

    def handled() -> T:
        TENANT.set(tenant)
        return call()

    return copy_context().run(handled)


def awaited(tenant: str, call: Callable[[], Any]) -> Any:
    async def handled() -> Any:
        return await call()

    return served(tenant, lambda: asyncio.run(handled()))


# --- LangGraph


class Order(TypedDict, total=False):
    payee: str
    notes: str
    paid: str


def approve(order: Order) -> Order:
    payee = order.get("payee", "nobody")
    return {"paid": f"{interrupt(payee)} to {payee}"}


def payments(saver: Any) -> Any:
    builder: Any = StateGraph(Order)
    builder.add_node("approve", approve)
    builder.add_edge(START, "approve")
    return builder.compile(saver)


def looks(graph: Any, saver: Any, ident: str) -> list[object]:
    """Return what somebody sees who guessed a thread id, and says anything else that they like."""
    run: Any = {"configurable": {"thread_id": "order-7", "checkpoint_ns": ""} | FORGED}
    old: Any = {"configurable": run["configurable"] | {"checkpoint_id": ident}}
    return [
        *(graph.get_state(each).values for each in (run, old)),
        *(saver.get_tuple(each) for each in (run, old)),
        [*graph.get_state_history(run)],
        *([*saver.list(each)] for each in (run, old, None)),
    ]


def acts(graph: Any, saver: Any, ident: str) -> list[object]:
    """Return what the same one gets who resumes, forks, and deletes."""
    run: Any = {"configurable": {"thread_id": "order-7", "checkpoint_ns": ""} | FORGED}
    got = [graph.invoke(Command(resume=5_000_000), run).get("paid")]
    old: Any = {"configurable": run["configurable"] | {"checkpoint_id": ident}}
    forked = graph.update_state(old, {"notes": "forked"}, as_node="__start__")
    got.append(graph.get_state(forked).values.get("payee"))
    saver.delete_thread("order-7")
    return got


def begun(saver: Any) -> tuple[Any, str]:
    """Return a graph in which a payment of acme waits, and the id of its checkpoint."""
    graph = payments(saver)
    served("acme", lambda: graph.invoke({"payee": "alice"}, RUN))
    at = served("acme", lambda: graph.get_state(RUN).config["configurable"])
    return graph, at["checkpoint_id"]


def test_a_guessed_thread_id_finds_nothing_of_another_tenant() -> None:
    ledger = House().ledger()
    saver = SealedSaver(ledger, time_travel=True, tenant=TENANT.get)
    graph, ident = begun(saver)
    before = served("acme", lambda: [*saver.list(None)])
    for each in (saver, saver.reading()):
        assert not any(served("globex", partial(looks, payments(each), each, ident)))
    assert served("globex", lambda: acts(graph, saver, ident)) == [None, None]
    assert served("acme", lambda: [*saver.list(None)]) == before
    assert served("acme", lambda: graph.invoke(Command(resume=42), RUN))["paid"] == "42 to alice"
    assert (ledger.threads(), ledger.tenants()) == ([], ["acme", "globex"])


class Paid(TypedDict, total=False):
    paid: str


class Step(Paid, total=False):
    whose: str
    parts: Annotated[list[str], add]


def shop(saver: SealedSaver) -> Any:
    """Return a graph with a subgraph, tasks side by side, and sync and async nodes, that waits."""

    def part(step: Step) -> Step:
        return {"parts": [f"{step['whose']} {TENANT.get()}"]}

    async def later(step: Step) -> Step:
        await asyncio.sleep(0)
        return part(step)

    inner = StateGraph(Step, output_schema=Paid)
    inner.add_node("ask", lambda step: {"paid": f"{interrupt(step['whose'])} {TENANT.get()}"})
    inner.add_edge(START, "ask")
    builder = StateGraph(Step)
    builder.add_node("part", RunnableLambda(part, afunc=later))
    builder.add_node("inner", inner.compile())
    builder.add_conditional_edges(START, lambda step: [Send("part", step)] * 3)
    builder.add_edge("part", "inner")
    return builder.compile(saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("way", ["threads", "tasks"])
def test_requests_of_two_tenants_at_once_stay_apart(durability: Any, way: str) -> None:
    """Each hop carries the context: LangGraph's executors and tasks, and the saver's threads."""
    ledger = House().ledger()
    saver = SealedSaver(ledger, tenant=TENANT.get)
    graph, jobs = shop(saver), [(tenant, n) for n in range(4) for tenant in ("acme", "globex")]

    def run(tenant: str, number: int) -> Any:
        config: Any = {"configurable": {"thread_id": f"order-{number}"}}
        graph.invoke({"whose": tenant}, config, durability=durability)
        return graph.invoke(Command(resume=tenant), config, durability=durability)

    async def arun(tenant: str, number: int) -> Any:
        TENANT.set(tenant)
        config: Any = {"configurable": {"thread_id": f"order-{number}"}}
        await graph.ainvoke({"whose": tenant}, config, durability=durability)
        ended = await graph.ainvoke(Command(resume=tenant), config, durability=durability)
        shown = [each async for each in saver.alist(None)]
        assert {each.checkpoint["channel_values"].get("whose", tenant) for each in shown} == {
            tenant
        }
        return ended

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*(arun(*job) for job in jobs))

    if way == "threads":
        with ThreadPoolExecutor(len(jobs)) as pool:
            ended = [*pool.map(lambda job: served(job[0], lambda: run(*job)), jobs)]
    else:
        ended = asyncio.run(all_at_once())
    for (tenant, _), end in zip(jobs, ended, strict=True):
        said = f"{tenant} {tenant}"
        assert (end["whose"], end["parts"], end["paid"]) == (tenant, [said] * 3, said)
    assert (ledger.threads(), ledger.tenants()) == ([], ["acme", "globex"])
    names = {f"order-{number}" for number in range(4)}
    assert all({*ledger.tenant(each).threads()} == names for each in ledger.tenants())


async def drained(found: Any) -> list[Any]:
    return [each async for each in found]


def saver_calls(saver: SealedSaver) -> dict[str, Callable[[], Any]]:
    """Return a call of each operation of a saver."""
    config: Any = {"configurable": {"thread_id": "order-7", "checkpoint_ns": ""} | FORGED}
    put: Any = config, empty_checkpoint(), {"source": "input", "step": -1}, {}
    delta: Any = {"config": config, "channels": ["a"]}
    wrote = {"configurable": config["configurable"] | {"checkpoint_id": "1"}}, [("a", 1)], "task"
    asked = {"configurable": {"thread_id": "order-8"}}

    def asks(way: str) -> Any:
        graph = StateGraph(Order)
        if way == "ask":
            graph.add_node("pay", lambda _: saver.ask("pay", {}))
        else:
            graph.add_node("pay", RunnableLambda(print, afunc=lambda _: saver.aask("pay", {})))
        graph.add_edge(START, "pay")
        compiled: Any = graph.compile(InMemorySaver())
        called = compiled.invoke if way == "ask" else compiled.ainvoke
        return called({"payee": "alice"}, asked)

    given: dict[str, tuple[Any, ...]] = {
        "get_tuple": (config,),
        "list": (None,),
        "put": put,
        "put_writes": wrote,
        "delete_thread": ("order-7",),
        "delete_for_runs": (["1"],),
        "prune": (["order-7"],),
        "copy_thread": ("order-7", "order-8"),
        "waiting": ("order-7",),
        "unsigned": (config, put[1], {}, None, []),
    }
    calls: dict[str, Callable[[], Any]] = {
        "ask": lambda: asks("ask"),
        "aask": lambda: asyncio.run(asks("aask")),
        "ledger": lambda: saver.ledger,
        "alist": lambda: asyncio.run(drained(saver.alist(None))),
        "get_delta_channel_history": partial(saver.get_delta_channel_history, **delta),
        "aget_delta_channel_history": lambda: asyncio.run(
            saver.aget_delta_channel_history(**delta)
        ),
    }
    for name, values in given.items():
        calls[name] = partial(getattr(saver, name), *values)
        if hasattr(saver, f"a{name}") and name != "list":
            calls[f"a{name}"] = partial(
                lambda name, values: asyncio.run(getattr(saver, name)(*values)), f"a{name}", values
            )
    return calls


def nobody() -> str:
    raise KeyError("session")


UNNAMED: list[tuple[Callable[[], str], type[CheckpointError]]] = [
    (TENANT.get, ConfigurationError),
    (lambda: "", ConfigurationError),
    (nobody, ConfigurationError),
    (lambda: "../acme", InvalidId),
    (lambda: "@acme", InvalidId),
]


@pytest.mark.parametrize(("tenant", "refusal"), UNNAMED)
def test_without_a_name_every_operation_of_the_saver_is_refused(
    tenant: Callable[[], str], refusal: type[CheckpointError]
) -> None:
    ledger = House().ledger()
    saver = SealedSaver(ledger, gate=GATE, tenant=tenant)
    calls = saver_calls(saver)
    public = {name for name in vars(SealedSaver) if name[0] != "_"} | {"ledger"}
    assert {*calls} == public - {"reading", "with_allowlist", "get_next_version"}
    for call in calls.values():
        with pytest.raises(refusal):
            call()
    with pytest.raises(refusal):
        payments(saver).invoke({"payee": "alice"}, RUN)
    assert (ledger.threads(), ledger.tenants()) == ([], [])


def test_a_save_of_a_run_that_began_elsewhere_is_refused() -> None:
    """Whose run it is was not seen here, and the request that is served may be another's."""
    ledger = House().ledger()
    saver = SealedSaver(ledger, tenant=TENANT.get)
    runtime = Runtime(control=RunControl())
    run: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", RUNTIME: runtime}}
    put: Any = run, empty_checkpoint(), {"source": "input", "step": -1}, {}
    with pytest.raises(ConfigurationError, match="which tenant it began for"):
        served("globex", lambda: saver.put(*put))
    assert ledger.tenants() == []
    assert served("globex", lambda: saver.get_tuple(run)) is None  # where a run begins
    served("acme", lambda: saver.put(*put))
    assert ledger.tenants() == ["globex"]


def test_a_stream_that_is_read_on_in_another_request_begins_no_subgraph_there() -> None:
    ledger = House().ledger()
    graph = shop(SealedSaver(ledger, tenant=TENANT.get))
    stream = served("acme", lambda: graph.stream({"whose": "acme"}, RUN, stream_mode="tasks"))
    served("acme", lambda: next(stream))
    with pytest.raises(ConfigurationError, match="began for another tenant"):
        served("globex", lambda: [*stream])
    assert ledger.tenants() == ["acme"]


def test_a_yes_to_one_tenant_is_none_to_another() -> None:
    saver = SealedSaver(House().ledger(), gate=GATE, tenant=TENANT.get)
    builder = StateGraph(Order)
    builder.add_node("pay", lambda _: {"paid": str(saver.ask("pay", {"amount": 42}).arguments)})
    builder.add_edge(START, "pay")
    graph: Any = builder.compile(saver)
    asked = {
        tenant: served(tenant, lambda: graph.invoke({}, RUN))["__interrupt__"][0].value
        for tenant in ("acme", "globex")
    }
    signed = DANA.approve(Question.from_text(asked["acme"]))
    assert Question.from_text(asked["acme"]).tenant == "acme"
    with pytest.raises(ApprovalRefused):
        served("globex", lambda: graph.invoke(Command(resume=signed), RUN))
    assert served("acme", lambda: graph.invoke(Command(resume=signed), RUN))["paid"]


# --- Agent Framework


class Pay(af.Executor):
    """Waits for a person, and pays."""

    @af.handler
    async def draft(self, payee: str, ctx: WorkflowContext) -> None:
        ctx.set_state("payee", payee)
        await ctx.request_info(payee, int)

    @af.response_handler
    async def pay(self, payee: str, amount: int, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"{amount} to {payee}, for {TENANT.get()}")


def workflow(storage: Any, name: str | None = "orders") -> af.Workflow:
    pay = Pay("pay")
    return WorkflowBuilder(name=name, start_executor=pay, checkpoint_storage=storage).build()


async def begins(storage: Any, payee: str = "alice") -> str:
    """Return the id of a checkpoint that waits."""
    run = workflow(storage)
    await run.run(payee)
    return str(run.get_last_checkpoint_id())


async def resumes(storage: Any, ident: str, amount: int, name: str | None = "orders") -> list[str]:
    (asked,) = (await storage.load(ident)).pending_request_info_events
    run = await workflow(storage, name).run(checkpoint_id=ident, responses={asked: amount})
    return [*run.get_outputs()]


async def tries(storage: Any, ident: str) -> list[object]:
    """Return what somebody gets who guessed the id of a checkpoint, or of a workflow."""
    calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: storage.load(ident),
        lambda: storage.get_latest(workflow_name="orders"),
        lambda: storage.list_checkpoints(workflow_name="orders"),
        lambda: storage.list_checkpoint_ids(workflow_name="orders"),
        lambda: resumes(storage, ident, 5_000_000),
        lambda: storage.delete(ident),
    ]
    got: list[object] = []
    for call in calls:
        try:
            got.append(await call())
        except WorkflowCheckpointException:
            got.append(None)
    return got


@pytest.mark.parametrize("scope", [None, "orders"])
def test_a_guessed_id_finds_no_checkpoint_of_another_tenant(scope: str | None) -> None:
    ledger = House().ledger()
    storage = SealedCheckpointStorage(ledger, tenant=TENANT.get)
    storage = storage.scope(scope) if scope else storage
    ident = awaited("acme", lambda: begins(storage))
    assert not any(awaited("globex", lambda: tries(storage, ident)))
    own = awaited("globex", lambda: begins(storage, "mally"))
    shown = awaited("globex", lambda: storage.list_checkpoint_ids(workflow_name="orders"))
    assert (own in shown, ident in shown) == (True, False)
    point = WorkflowCheckpoint("orders", "graph", previous_checkpoint_id=ident)
    for name in ("orders", *([None] if scope is None else [])):  # or the framework names it anew
        paid = awaited("acme", partial(resumes, storage, ident, 42, name))
        assert paid == ["42 to alice, for acme"]
    with pytest.raises(NotCheckpointed, match="globex has no checkpoint that this one"):
        awaited("globex", lambda: storage.save(point))
    assert (ledger.threads(), ledger.tenants()) == ([], ["acme", "globex"])


@pytest.mark.parametrize(("tenant", "refusal"), UNNAMED)
def test_without_a_name_every_operation_of_the_storage_is_refused(
    tenant: Callable[[], str], refusal: type[CheckpointError]
) -> None:
    ledger = House().ledger()
    storage = SealedCheckpointStorage(ledger, gate=GATE, tenant=tenant).scope("orders")
    one, pay = WorkflowCheckpoint("orders", "graph"), Pay("pay")
    ctx: Any = None
    question: Any = None
    calls: dict[str, Callable[[], Any]] = {
        "load": lambda: asyncio.run(storage.load("1")),
        "list_checkpoints": lambda: asyncio.run(storage.list_checkpoints(workflow_name="orders")),
        "list_checkpoint_ids": lambda: asyncio.run(
            storage.list_checkpoint_ids(workflow_name="orders")
        ),
        "get_latest": lambda: asyncio.run(storage.get_latest(workflow_name="orders")),
        "delete": lambda: asyncio.run(storage.delete("1")),
        "ask": lambda: asyncio.run(storage.ask(pay, ctx, "pay", {})),
        "answered": lambda: asyncio.run(storage.answered(pay, question, "yes")),
        "unsigned": lambda: storage.unsigned(one),
        "ledger": lambda: storage.ledger,
    }
    public = {name for name in vars(SealedCheckpointStorage) if name[0] != "_"} | {"ledger"}
    assert {*calls} == public - {"save", "scope"}
    for call in calls.values():
        with pytest.raises(refusal):
            call()
    with pytest.raises(NotCheckpointed) as stopped:  # which the framework does not swallow
        asyncio.run(begins(storage))
    assert isinstance(stopped.value.__cause__, refusal)
    assert (ledger.threads(), ledger.tenants()) == ([], [])


def test_one_workflow_that_serves_two_tenants_stops() -> None:
    """Agent Framework keeps the state of a run for the next one of the same workflow."""
    ledger = House().ledger()
    naive, ours = af.InMemoryCheckpointStorage(), SealedCheckpointStorage(ledger, tenant=TENANT.get)
    for storage in (naive, ours):
        shared = workflow(storage)
        awaited("acme", partial(shared.run, "alice"))
        if storage is naive:
            awaited("globex", partial(shared.run, "mally"))
            last = asyncio.run(naive.get_latest(workflow_name="orders"))
            assert last is not None
            asked = last.pending_request_info_events.values()
            assert {event.data for event in asked} == {"alice", "mally"}  # in one checkpoint
        else:
            with pytest.raises(NotCheckpointed, match="globex has no checkpoint that this one"):
                awaited("globex", partial(shared.run, "mally"))
    assert ledger.tenants() == ["acme"]


def test_a_stream_that_is_dropped_in_another_request_saves_nothing_there() -> None:
    """With durability="exit" LangGraph saves when its generator is closed, wherever that is."""
    ledger = House().ledger()
    graph: Any = payments(SealedSaver(ledger, tenant=TENANT.get))
    how: Any = {"stream_mode": "tasks", "durability": "exit"}

    async def both() -> None:
        async def begin() -> Any:
            TENANT.set("acme")
            stream = graph.astream({"payee": "alice"}, RUN, **how)
            await anext(stream)
            return stream

        async def close(stream: Any) -> None:
            TENANT.set("globex")
            await stream.aclose()

        await asyncio.create_task(close(await asyncio.create_task(begin())))

    asyncio.run(both())
    assert ledger.tenants() == ["acme"]


@pytest.mark.parametrize("mode", ["checkpoints", "debug"])
def test_what_a_stream_yields_chooses_no_tenant(mode: Any) -> None:
    """An event is what a server sends to a client: it is JSON, and what comes back from it names
    a thread of whoever sends it."""
    ledger = House().ledger()
    saver = SealedSaver(ledger, tenant=TENANT.get)
    graph: Any = payments(saver)
    events = served("acme", lambda: [*graph.stream({"payee": "alice"}, RUN, stream_mode=mode)])
    payloads = [event.get("payload", event) for event in events]
    configs = [each["config"] for each in payloads if each.get("config")]
    assert configs
    before = served("acme", lambda: [*saver.list(None)])
    for config in configs:
        served("globex", partial(graph.update_state, config, {"payee": "mally"}))
    assert served("acme", lambda: [*saver.list(None)]) == before
    assert served("acme", lambda: graph.get_state(RUN).values) == {"payee": "alice"}
    assert ledger.tenants() == ["acme", "globex"]
    assert json.loads(json.dumps(configs)) == configs


def test_workflows_of_two_tenants_at_once_stay_apart() -> None:
    ledger = House().ledger()
    storage = SealedCheckpointStorage(ledger, tenant=TENANT.get)

    async def request(tenant: str, number: int) -> list[str]:
        TENANT.set(tenant)
        return await resumes(storage, await begins(storage, tenant), number)

    async def all_at_once() -> list[list[str]]:
        jobs = (request(tenant, n) for n in range(4) for tenant in ("acme", "globex"))
        return await asyncio.gather(*jobs)

    paid = [line for lines in asyncio.run(all_at_once()) for line in lines]
    each = (f"{n} to {tenant}, for {tenant}" for n in range(4) for tenant in ("acme", "globex"))
    assert paid == [*each]
    assert ledger.threads() == []
    for tenant in ("acme", "globex"):
        found = awaited(tenant, lambda: storage.list_checkpoints(workflow_name="orders"))
        assert {checkpoint.state.get("payee", tenant) for checkpoint in found} == {tenant}
