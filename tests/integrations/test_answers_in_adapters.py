"""Answers, deadlines and holds inside LangGraph and Agent Framework, as in our own workflow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import Any, Literal, TypedDict

import pytest

from safepoint import (
    Approver,
    Approvers,
    Gate,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InMemoryJournal,
    Keyring,
    Ledger,
    SigningKey,
)
from safepoint.core.errors import (
    AnswersBroken,
    ApprovalNeeded,
    ApprovalSpent,
    ResumeRefused,
    ThreadHeld,
    WaitEnded,
    WorkflowError,
)
from safepoint.core.names import thread_name
from safepoint.resume import asking
from safepoint.resume.answers import Answers
from safepoint.resume.approval import Question
from safepoint.resume.asking import Approved
from tests.harness.optional import need

need("langgraph", "needs langgraph")
need("agent_framework", "needs safepoint[agent-framework]")

import agent_framework as af
from agent_framework import WorkflowBuilder, WorkflowContext
from langgraph.errors import GraphDrained
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from safepoint.agent_framework import NotCheckpointed, SealedCheckpointStorage
from safepoint.langgraph import SealedSaver

PEOPLE = {name: SigningKey.generate() for name in ("dana", "erin", "omar")}
DANA, ERIN, OMAR = (Approver(name, key) for name, key in PEOPLE.items())
APPROVERS = Approvers({name: PEOPLE[name].public for name in ("dana", "erin")})
KEYS = Keyring(SigningKey.generate())
RUN: Any = {"configurable": {"thread_id": "Order 7"}}
Durability = Literal["sync", "async"]


class Order(TypedDict, total=False):
    amount: int
    paid: str


@dataclass
class Office:
    """All that outlives a process, the bank, and what ran."""

    kept: InMemoryCheckpointStorage = field(default_factory=InMemoryCheckpointStorage)
    put: InMemoryCheckpointStorage = field(default_factory=InMemoryCheckpointStorage)
    anchor: InMemoryAnchor = field(default_factory=InMemoryAnchor)
    journal: InMemoryJournal = field(default_factory=InMemoryJournal)
    bank: list[int] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    within: timedelta | None = None

    def __post_init__(self) -> None:
        self.answers = Answers(self.put, InMemoryAnchor())
        self.during: Callable[[str], object] = lambda _: None

    @property
    def gate(self) -> Gate:
        operators = Approvers({"omar": PEOPLE["omar"].public})
        return Gate(approvers=APPROVERS, answers=self.answers, operators=operators)

    def ledger(self) -> Ledger:
        return Ledger(
            self.kept, store="orders", keys=KEYS, anchor=self.anchor, journal=self.journal
        )

    def pays(self, yes: Approved) -> str:
        self.bank.append(yes.arguments["amount"])
        return f"{yes.arguments['amount']} by {'+'.join(yes.by)}"

    def step(self, name: str) -> None:
        self.ran.append(name)
        self.during(name)

    # What differs between the frameworks: `start`, `look` (for answers), and the thread's name.
    thread = ""

    def start(self) -> Question:
        raise NotImplementedError

    def look(self, answer: str = "") -> str:
        raise NotImplementedError

    def steps(self, *, again: bool = False) -> None:
        raise NotImplementedError


class Graph(Office):
    """LangGraph."""

    thread = thread_name("Order 7")
    durability: Durability = "sync"

    def paying(self) -> Any:
        saver = SealedSaver(self.ledger(), gate=self.gate)

        def pay(_: Any) -> Order:
            try:
                return {"paid": self.pays(saver.ask("pay", {"amount": 42}, within=self.within))}
            except ResumeRefused as error:
                return {"paid": type(error).__name__}

        node: Any = pay
        built = StateGraph(Order).add_node("pay", node).add_edge(START, "pay")
        return built.compile(checkpointer=saver)

    def start(self) -> Question:
        found = self.paying().invoke({"amount": 42}, RUN)
        return Question.from_text(found["__interrupt__"][0].value)

    def look(self, answer: str = "") -> str:
        return str(self.paying().invoke(Command(resume=answer), RUN)["paid"])

    def three(self) -> Any:
        built, before = StateGraph(Order), START
        for name in ("a", "b", "c"):
            node: Any = partial(lambda name, _: self.step(name), name)
            built.add_node(name, node)
            built.add_edge(before, name)
            before = name
        return built.compile(checkpointer=SealedSaver(self.ledger(), gate=self.gate))

    def steps(self, *, again: bool = False) -> None:
        self.three().invoke(None if again else {"amount": 1}, RUN, durability=self.durability)

    def seen(self) -> object:
        return self.three().get_state(RUN).next


class AsyncGraph(Graph):
    """LangGraph, in an event loop."""

    def steps(self, *, again: bool = False) -> None:
        graph, given = self.three(), None if again else {"amount": 1}
        asyncio.run(graph.ainvoke(given, RUN, durability=self.durability))


class Pay(af.Executor):
    def __init__(self, office: Agents, storage: SealedCheckpointStorage) -> None:
        super().__init__("pay")
        self.office, self.storage = office, storage

    @af.handler
    async def draft(self, amount: int, ctx: WorkflowContext) -> None:
        within = self.office.within
        await self.storage.ask(self, ctx, "pay", {"amount": amount}, within=within)

    @af.response_handler
    async def pay(self, question: Question, answer: object, ctx: WorkflowContext[str, str]) -> None:
        try:
            yes = await self.storage.answered(self, question, answer)
            await ctx.yield_output(self.office.pays(yes))
        except ResumeRefused as error:
            await ctx.yield_output(type(error).__name__)


class Step(af.Executor):
    def __init__(self, office: Agents, name: str) -> None:
        super().__init__(name)
        self.office = office

    @af.handler
    async def go(self, amount: int, ctx: WorkflowContext[int]) -> None:
        self.office.step(self.id)
        await ctx.send_message(amount)


class Agents(Office):
    """Agent Framework."""

    thread = thread_name("payments")

    def opened(self) -> SealedCheckpointStorage:
        return SealedCheckpointStorage(self.ledger(), gate=self.gate).scope("payments")

    def paying(self) -> af.Workflow:
        storage = self.opened()
        pay = Pay(self, storage)
        return WorkflowBuilder(
            name="payments", start_executor=pay, checkpoint_storage=storage
        ).build()

    def start(self) -> Question:
        _wait(self.paying().run(42))
        return self._waiting()[1]

    def look(self, answer: str = "") -> str:
        name, _ = self._waiting()
        at = _wait(self.opened().get_latest(workflow_name="payments")).checkpoint_id
        return str(
            _wait(self.paying().run(checkpoint_id=at, responses={name: answer})).get_outputs()[0]
        )

    def _waiting(self) -> tuple[str, Question]:
        latest = _wait(self.opened().get_latest(workflow_name="payments"))
        ((name, event),) = latest.pending_request_info_events.items()
        return name, event.data

    def steps(self, *, again: bool = False) -> None:
        storage = self.opened()
        a, b, c = (Step(self, name) for name in ("a", "b", "c"))
        building = WorkflowBuilder(name="payments", start_executor=a, checkpoint_storage=storage)
        flow = building.add_edge(a, b).add_edge(b, c).build()
        if again:
            ids = _wait(storage.list_checkpoint_ids(workflow_name="payments"))
            _wait(flow.run(checkpoint_id=ids[-1]))
        else:
            _wait(flow.run(1))

    def seen(self) -> object:
        return _wait(self.opened().list_checkpoint_ids(workflow_name="payments"))


def _wait(doing: Any) -> Any:
    async def done() -> Any:
        return await doing

    return asyncio.run(done())


BOTH = pytest.mark.parametrize("kind", [Graph, Agents])


@BOTH
def test_an_answer_is_found_where_people_put_it(kind: type[Office]) -> None:
    office = kind()
    question = office.start()
    with pytest.raises(ApprovalNeeded):
        office.look()
    office.answers.put(DANA, DANA.approve(question))
    assert office.look() == "42 by dana"
    assert office.bank == [42]


@BOTH
def test_a_no_that_was_put_comes_before_a_yes_that_a_relay_brings(kind: type[Office]) -> None:
    office = kind()
    question = office.start()
    office.answers.put(ERIN, ERIN.deny(question))
    assert office.look(DANA.approve(question)) == "ResumeRefused"
    assert office.bank == []


@BOTH
def test_whoever_deletes_a_no_stops_the_run(kind: type[Office]) -> None:
    office = kind()
    question = office.start()
    office.answers.put(ERIN, ERIN.deny(question))
    vars(office.put).update(vars(InMemoryCheckpointStorage()))
    with pytest.raises(AnswersBroken):
        office.look(DANA.approve(question))
    assert office.bank == []


@BOTH
def test_after_the_end_of_a_wait_no_approval_counts(kind: type[Office]) -> None:
    office = kind(within=timedelta(seconds=1))
    question = office.start()
    yes = DANA.approve(question)
    office.answers.put(DANA, yes)
    time.sleep(1.1)
    assert office.look(yes) == WaitEnded.__name__
    assert office.bank == []
    told = [(each.what, each.outcome) for each in office.journal.show(what="expire")]
    assert told == [("expire", "intended"), ("expire", "done")]


STOPPED = (ThreadHeld, NotCheckpointed, GraphDrained, af.WorkflowCheckpointException)


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("kind", [Graph, AsyncGraph, Agents])
def test_a_held_run_stops_and_goes_on_where_it_was(
    kind: type[Graph | Agents], durability: Durability
) -> None:
    """By LangGraph's default, checkpoints are saved while next steps run: those run, and count."""
    office = kind()
    if isinstance(office, Graph):
        office.durability = durability
    holds: list[str] = []

    def hold(name: str) -> None:
        if name == "a":
            holds.append(office.answers.hold(OMAR, "orders", office.thread, why="look").hold)

    office.during = hold
    late = isinstance(office, Graph) and durability == "async"
    with suppress(GraphDrained) if late else pytest.raises(STOPPED, match="omar has held"):
        office.steps()
    ran = list(office.ran)
    assert ran == ["a"] or (late and ran == ["a", "b", "c"][: len(ran)])
    for _ in range(2):
        with pytest.raises(STOPPED, match="omar has held"):
            office.steps(again=True)
    assert office.ran == ran
    assert office.seen() is not None  # whoever reads it, may
    office.answers.release(OMAR, "orders", office.thread, holds[0])
    office.steps(again=True)
    assert office.ran == ["a", "b", "c"]
    notes = [link.label for link in office.ledger().back(office.thread) if link.kind == "note"]
    assert notes.count("ordered/") >= 2
    told = [(each.what, each.outcome) for each in office.journal.show()]
    assert ("hold", "done") in told
    assert ("release", "done") in told


def test_nobody_goes_around_a_hold_by_another_operation_of_langgraph() -> None:
    """A thread that is deleted begins anew, a copy has another name, and an update is a step."""
    office = Graph()
    office.three().invoke({"amount": 1}, {**RUN, "metadata": {"run_id": "run"}})
    saver = SealedSaver(office.ledger(), gate=office.gate)
    before = [*saver.list(RUN)]
    office.answers.hold(OMAR, "orders", office.thread)
    around: list[Callable[[], object]] = [
        lambda: saver.delete_thread("Order 7"),
        lambda: saver.prune(["Order 7"], strategy="delete"),
        lambda: saver.prune(["Order 7"]),
        lambda: saver.delete_for_runs(["run"]),
        lambda: saver.copy_thread("Order 7", "Order 8"),
        lambda: office.three().update_state(RUN, {"amount": 9}),
    ]
    for way in around:
        with pytest.raises(ThreadHeld):
            way()
    assert [*saver.list(RUN)] == before
    assert not office.three().get_state({"configurable": {"thread_id": "Order 8"}}).values


@BOTH
def test_a_wait_of_no_time_is_no_wait_without_an_end(kind: type[Office]) -> None:
    with pytest.raises(WorkflowError, match="cannot be used"):
        kind(within=timedelta(0)).start()


def test_a_hold_holds_a_thread_whose_id_was_deleted_and_is_used_again() -> None:
    office = Graph()
    office.steps()
    SealedSaver(office.ledger(), gate=office.gate).delete_thread("Order 7")
    office.ran.clear()
    held = office.answers.hold(OMAR, "orders", office.thread)
    with pytest.raises(ThreadHeld):
        office.steps()
    assert office.ran == []
    office.answers.release(OMAR, "orders", office.thread, held.hold)
    office.steps()
    assert office.ran == ["a", "b", "c"]


@BOTH
def test_one_wins_between_an_approval_and_the_end_of_a_wait(
    kind: type[Office], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker notes the yes in time, and stands still; another one ends the wait meanwhile."""
    office, found = kind(within=timedelta(seconds=2)), list[str]()
    question = office.start()
    office.answers.put(DANA, DANA.approve(question))
    note = asking.note_answers

    def slow(ledger: Ledger, given: Any, outcome: Any) -> None:
        if outcome == "done":
            monkeypatch.undo()
            time.sleep(2.1)
            other = Thread(target=lambda: found.append(office.look()))
            other.start()
            other.join()
        note(ledger, given, outcome)

    monkeypatch.setattr(asking, "note_answers", slow)
    with suppress(ApprovalSpent):  # the other one went on
        found.append(office.look())
    assert set(found) == {"WaitEnded"}
    assert office.bank == []
