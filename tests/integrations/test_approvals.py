"""Approvals, deadlines and holds, alike in the three places where people ask.

A workflow of ours, a graph of LangGraph and a workflow of Agent Framework pay what people signed,
once, and nothing else. What only one of them can do is in a file of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, product, takewhile
from threading import Thread
from typing import Any, Literal, TypedDict, cast
from unittest.mock import patch

import pytest

from safepoint import (
    Approver,
    Ask,
    Codec,
    InMemoryAnchor,
    Keyring,
    Policy,
    SealBroken,
    SigningKey,
    Tool,
    ToolSet,
    Workflow,
)
from safepoint.audit import audit
from safepoint.core.errors import (
    ApprovalNeeded,
    ApprovalRefused,
    CheckpointError,
    ConfigurationError,
    NotOwner,
    ResumeRefused,
    Unavailable,
    Unsafe,
)
from safepoint.core.names import thread_name
from safepoint.resume import asking
from safepoint.resume.approval import Question, Reason
from safepoint.resume.asking import SPENT, Approved, Asking
from safepoint.resume.workflow import Call
from tests.harness.optional import need
from tests.house import DANA, ERIN, OPAL, STORE, House, Memory, known
from tests.unit.approval_helpers import EXPIRED, MALFORMED, MISMATCH, UNTRUSTED

need("langgraph", "needs langgraph")
need("agent_framework", "needs safepoint[agent-framework]")

import agent_framework as af
from agent_framework import WorkflowBuilder, WorkflowContext
from langgraph.errors import GraphDrained
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy

from safepoint.agent_framework import NotCheckpointed, SealedCheckpointStorage
from safepoint.langgraph import SealedSaver

MALLORY = Approver("mallory", SigningKey.generate())
RUN: Any = {"configurable": {"thread_id": "Order 7"}}
Durability = Literal["sync", "async"]


@dataclass
class Odd:
    """What no worker writes."""


class Order(TypedDict, total=False):
    amount: int
    paid: str


class Office(House):
    """All that outlives a process, the bank, and what ran. What differs is below."""

    anchor: Any
    journal: Any
    thread = ""
    within: timedelta | None = None
    version = "1"
    dies = False
    durability: Durability = "sync"

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.bank: dict[str, list[int]] = {}
        self.during: Callable[[str], object] = lambda _: None
        for name, value in given.items():
            setattr(self, name, value)

    @property
    def tools(self) -> ToolSet:
        return ToolSet([Tool("bank", version=self.version)])

    def pays(self, yes: Approved, key: str = "") -> str:
        """Pay, and die before that is saved, if it must be."""
        self.during("pay")
        self.bank.setdefault(yes.key or key, []).append(yes.arguments["amount"])
        if self.dies:
            raise MemoryError("after the bank, before the checkpoint")
        return f"{yes.arguments['amount']} by {'+'.join(yes.by)}"

    def goes_without(self, error: ResumeRefused) -> str:
        if self.dies:
            raise MemoryError("before the checkpoint")
        return type(error).__name__

    def step(self, name: str) -> None:
        self.ran.append(name)
        self.during(name)

    @property
    def spends(self) -> int:
        return [each.label for each in self.ledger().back(self.thread)].count(SPENT)

    def start(self, run: int = 7) -> Question:
        """Begin a run, which asks."""
        raise NotImplementedError

    def look(self, answer: Any = "") -> str:
        """Answer in a new process, and return what was paid, or the error that it went on with."""
        raise NotImplementedError

    def again(self, answer: Any) -> str:
        """Go on after a crash, as whoever runs it would."""
        return self.look(answer)

    def steps(self, *, again: bool = False) -> None:
        """Run a, b and c, with a checkpoint after each."""
        raise NotImplementedError

    def seen(self) -> object:
        """Read it."""
        return self.ledger().latest(self.thread)


class Flow(Office):
    """Our own workflow."""

    thread = "order-7"

    def payment(self) -> Workflow:
        def ask(state: Any) -> Ask:
            return Ask("pay", {"amount": 42}, within=self.within)

        def pay(state: Any, call: Call) -> Any:
            return {"paid": self.pays(call.approved, call.key)}

        moves: Any = {"1": dict} if self.version == "2" else {}
        how: Any = {"version": self.version, "tools": self.tools, "migrations": moves}
        return Workflow("payment", [ask, pay], gate=self.gate, **how)

    def start(self, run: int = 7) -> Question:
        question = self.payment().start(self.ledger(), f"order-{run}").question
        assert question is not None
        return question

    def look(self, answer: Any = "") -> str:
        texts = answer if isinstance(answer, list) else [answer] if answer else []
        run = self.payment().resume(self.ledger(), self.thread, approvals=texts)
        denied = "ResumeRefused"
        return denied if run.denied else str(run.state["paid"])

    def again(self, answer: Any) -> str:
        return self.look()

    def steps(self, *, again: bool = False) -> None:
        def a(state: Any) -> None:
            self.step("a")

        def b(state: Any) -> None:
            self.step("b")

        def c(state: Any) -> None:
            self.step("c")

        workflow = Workflow("three", [a, b, c], gate=self.gate)
        (workflow.resume if again else workflow.start)(self.ledger(), self.thread)


class Graph(Office):
    """LangGraph."""

    thread = thread_name("Order 7")
    retry: RetryPolicy | None = None

    def run(self, number: int = 7) -> Any:
        return {"configurable": {"thread_id": f"Order {number}"}}

    def saver(self, **options: Any) -> SealedSaver:
        before = ToolSet([Tool("bank", version="1")])
        options |= {"resumes": ["pay@1", before.digest], "tools": self.tools}
        return SealedSaver(self.ledger(), gate=self.gate, app=f"pay@{self.version}", **options)

    def pay(self, saver: SealedSaver) -> Order:
        try:
            return {"paid": self.pays(saver.ask("pay", {"amount": 42}, within=self.within))}
        except ResumeRefused as error:
            return {"paid": self.goes_without(error)}

    def paying(self, **options: Any) -> Any:
        saver = self.saver(**options)
        node: Any = lambda _: self.pay(saver)  # noqa: E731
        built = StateGraph(Order).add_node("pay", node, retry_policy=self.retry)
        return built.add_edge(START, "pay").compile(checkpointer=saver)

    def start(self, run: int = 7) -> Question:
        found = self.paying().invoke({"amount": 42}, self.run(run))
        return Question.from_text(found["__interrupt__"][0].value)

    def look(self, answer: Any = "") -> str:
        return str(self.paying().invoke(Command(resume=answer), self.run())["paid"])

    def three(self) -> Any:
        built, before = StateGraph(Order), START
        for name in ("a", "b", "c"):
            node: Any = partial(lambda name, _: self.step(name), name)
            built.add_node(name, node)
            built.add_edge(before, name)
            before = name
        return built.compile(checkpointer=SealedSaver(self.ledger(), gate=self.gate))

    def steps(self, *, again: bool = False) -> None:
        self.three().invoke(
            None if again else {"amount": 1}, self.run(), durability=self.durability
        )

    def seen(self) -> object:
        return self.three().get_state(self.run()).next


class AsyncGraph(Graph):
    """LangGraph, in an event loop."""

    def steps(self, *, again: bool = False) -> None:
        graph, given = self.three(), None if again else {"amount": 1}
        asyncio.run(graph.ainvoke(given, self.run(), durability=self.durability))


class Pay(af.Executor):
    def __init__(self, office: Office, storage: SealedCheckpointStorage, name: str = "pay") -> None:
        super().__init__(name)
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
            await ctx.yield_output(self.office.goes_without(error))


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

    thread = thread_name("payments 7")
    kind: type[Pay] = Pay

    def opened(self, run: int = 7) -> SealedCheckpointStorage:
        return SealedCheckpointStorage(self.ledger(), gate=self.gate).scope(f"payments {run}")

    def paying(self, run: int = 7) -> af.Workflow:
        storage = self.opened(run)
        name, pay = f"payments {run}", self.kind(self, storage)
        return WorkflowBuilder(name=name, start_executor=pay, checkpoint_storage=storage).build()

    def latest(self, run: int = 7) -> af.WorkflowCheckpoint:
        found: af.WorkflowCheckpoint
        found = _wait(self.opened(run).get_latest(workflow_name=f"payments {run}"))
        return found

    def start(self, run: int = 7) -> Question:
        _wait(self.paying(run).run(42))
        question: Question = [*self.latest(run).pending_request_info_events.values()][-1].data
        return question

    def look(self, answer: Any = "") -> str:
        at = self.latest()
        answers = dict.fromkeys(at.pending_request_info_events, answer)
        done = _wait(self.paying().run(checkpoint_id=at.checkpoint_id, responses=answers))
        return str(done.get_outputs()[0])

    def steps(self, *, again: bool = False) -> None:
        storage = self.opened()
        a, b, c = (Step(self, name) for name in ("a", "b", "c"))
        building = WorkflowBuilder(name="payments 7", start_executor=a, checkpoint_storage=storage)
        flow = building.add_edge(a, b).add_edge(b, c).build()
        _wait(flow.run(checkpoint_id=self.latest().checkpoint_id) if again else flow.run(1))

    def seen(self) -> object:
        return self.latest()


def _wait(doing: Any) -> Any:
    async def done() -> Any:
        return await doing

    return asyncio.run(done())


def _ago(**before: int) -> datetime:
    return datetime.now(UTC) - timedelta(**before)


def _at_time(place: Any = asking, **away: int) -> Any:
    """Move the clock of the worker that checks an answer, or of another place."""

    class Moved(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(**away)

    return patch.object(place, "datetime", Moved)


def _refused(error: type[CheckpointError], act: Callable[[], object]) -> None:
    """See that something is refused, whether or not the framework wraps that."""
    with pytest.raises((error, af.WorkflowCheckpointException)) as found:
        act()
    assert error in (type(found.value), type(found.value.__cause__))


ALL = pytest.mark.parametrize("kind", [Flow, Graph, Agents])
BOTH = pytest.mark.parametrize("kind", [Graph, Agents])
Kind = type[Office]
DEEP = pytest.mark.deep

# --- what is no answer

# What somebody answers who may call the run, and has no key of an approver.
FORGED: dict[str, tuple[Callable[[Office, Question], Any], str]] = {
    "a plain yes": (lambda *_: True, MALFORMED),
    "the question": (lambda _, asked: asked.text, MALFORMED),
    "signed by a stranger": (lambda _, q: MALLORY.approve(q), UNTRUSTED),
    "signed for somebody else": (lambda _, q: Approver("dana", MALLORY.key).approve(q), UNTRUSTED),
    "edited": (lambda _, q: DANA.approve(q).replace("42", "99"), UNTRUSTED),
    "of another amount": (lambda _, q: DANA.approve(replace(q, arguments={"amount": 1})), MISMATCH),
    "of another run": (lambda office, _: DANA.approve(office.start(8)), MISMATCH),
    "expired": (lambda _, q: DANA.approve(q, now=_ago(hours=2)), EXPIRED),
    "for too long": (lambda _, q: DANA.approve(q, lifetime=timedelta(days=80)), EXPIRED),
}


@ALL
@pytest.mark.parametrize("name", FORGED)
def test_an_answer_that_no_approver_gave_to_this_question_pays_nothing(
    kind: Kind, name: str
) -> None:
    """And it is not kept: the right answer still pays."""
    office, (forge, error) = kind(), FORGED[name]
    question = office.start()
    answer = forge(office, question)
    with pytest.raises(ApprovalRefused, match=error) as refused:
        office.look(answer)
    if kind is not Flow:
        assert refused.value.question == question
    assert not office.bank
    assert office.look(DANA.approve(question)) == "42 by dana"
    assert [*office.bank.values()] == [[42]]


@ALL
def test_a_thief_of_the_writers_key_cannot_say_what_people_approved(kind: Kind) -> None:
    """Nor can anybody who tells the journal of such a record."""
    office = kind()
    question = office.start()
    other, yes = replace(question, arguments={"amount": 1}), DANA.approve(question)
    ours = {"thread": "Order 7", "workflow": "payments 7", "question": question.text}
    forged: list[Any] = [
        {**ours, "statements": [DANA.approve(other)]},
        {**ours, "statements": [MALLORY.approve(question)]},
        {**ours, "statements": [DANA.approve(question, now=_ago(hours=2))]},
        {**ours, "statements": []},
        {**ours, "statements": "yes"},
        "spent",
        {"statements": [yes]},
        ours,
    ]
    for note in forged:
        office.ledger().note(office.thread, note, label=SPENT)
    with pytest.raises((ApprovalNeeded, ApprovalRefused)):
        office.look([True] if kind is not Flow else "")
    assert not office.bank
    assert office.look(yes) == "42 by dana"  # which nobody had spent


@ALL
def test_two_people_where_the_policy_wants_two(kind: Kind) -> None:
    office = kind(policy=Policy({Reason.ASKED: 2}))
    question = office.start()
    one = DANA.approve(question)
    for answer in (one, [one, one], [one, DANA.approve(question)]):
        with pytest.raises(ApprovalNeeded) as error:
            office.look(answer)
        assert error.value.question == question
    assert office.look([one, ERIN.approve(question)]) == "42 by dana+erin"
    assert not [*audit(office.ledger(), gate=office.gate, rule="SP19")]


@ALL
def test_what_cannot_be_answered_is_not_asked(kind: Kind) -> None:
    options: list[dict[str, Any]] = [{"approvers": None}, {"journal": None}, {"anchor": None}]
    for cannot in options:
        with pytest.raises(ConfigurationError):
            kind(**cannot).start()
    office = kind()
    with (
        pytest.raises(Unsafe),
        patch.object(office, "ledger", partial(office.ledger, keys=Keyring(DANA.key))),
    ):
        office.start()
    with pytest.raises(ConfigurationError, match="cannot be used"):
        kind(within=timedelta(0)).start()


# --- once


@ALL
def test_whoever_goes_on_after_a_crash_gets_the_same_arguments_and_key(kind: Kind) -> None:
    """Also long after the answer expired; whatever it is answered then was answered before."""
    office = kind(dies=True)
    question = office.start()
    yes = DANA.approve(question, lifetime=timedelta(minutes=5))
    with pytest.raises(MemoryError):
        office.look(yes)
    office.answers.put(ERIN, ERIN.deny(question))
    for late in (yes, ERIN.approve(question), ERIN.deny(question)):
        with pytest.raises(MemoryError):
            office.again(late)
    office.dies = False
    with _at_time(days=3):
        assert office.again(yes) == "42 by dana"
    assert [*office.bank.values()] == [[42] * 5]
    assert office.spends == 1
    told = [entry.what for entry in office.journal.show() if entry.what in ("pause", "approve")]
    assert told == ["pause", "approve", "approve"]  # intended, and done: once


@ALL
def test_another_version_with_other_tools_pays_with_the_same_key(kind: Kind) -> None:
    """People may be asked again, and the bank knows the payment."""
    office = kind(dies=True)
    yes = DANA.approve(office.start())
    with pytest.raises(MemoryError):
        office.look(yes)
    office.dies, office.version = False, "2"
    try:
        office.again(yes)
    except (ApprovalNeeded, ApprovalRefused) as error:
        office.look(ERIN.approve(cast("Question", error.question)))
    assert [*office.bank.values()] == [[42, 42]]


@ALL
def test_the_answer_is_spent_and_anchored_before_the_arguments_are_given(kind: Kind) -> None:
    office, seen = kind(), list[Any]()
    question = office.start()

    def look(_: str) -> None:
        newest = next(office.ledger().back(question.thread))
        head = office.anchor.read(STORE, question.thread)
        seen.append((newest.label, newest.sequence == head.sequence))

    office.during = look
    office.look(DANA.approve(question))
    assert seen == [(SPENT, True)]


def die_before_the_journal(office: Office, question: Question) -> None:
    """Let a worker write the note that spends dana's yes, and nothing after it."""
    gone = patch.object(InMemoryAnchor, "advance", side_effect=OSError("gone"))
    with gone, pytest.raises(Unavailable):
        office.look(DANA.approve(question))


@ALL
def test_a_note_that_the_anchor_never_saw_is_anchored_before_it_is_believed(kind: Kind) -> None:
    """Whoever wrote it died in between. Else it could be cut off, and a no follow a payment."""
    office = kind()
    question = office.start()
    die_before_the_journal(office, question)
    assert not office.bank
    office.again(DANA.approve(question))
    assert office.spends == 1
    assert [*office.bank.values()] == [[42]]


@ALL
def test_a_no_that_is_brought_comes_before_a_yes_that_nobody_used(kind: Kind) -> None:
    """Whoever wrote the note died before the journal had that it was used."""
    office = kind()
    question = office.start()
    die_before_the_journal(office, question)
    assert office.spends == 1
    if kind is Flow:  # and a note that nobody can read stops nothing
        office.ledger(codec=Codec([Odd])).note(question.thread, Odd(), label=SPENT)
    assert office.look(ERIN.deny(question)) == "ResumeRefused"
    assert not office.bank


@pytest.mark.parametrize("since", ["expired", "revoked"])
@ALL
def test_a_no_is_final(kind: Kind, since: str) -> None:
    office = kind(dies=True)
    question = office.start()
    with suppress(MemoryError):  # our own workflow has nothing to do then
        office.look([DANA.approve(question), ERIN.deny(question)])
    assert "deny" in [entry.what for entry in office.journal.show()]
    office.dies = False
    if since == "revoked":
        office.approvers = known(DANA, ERIN, revoked=[ERIN.key])
    with _at_time(days=3):
        assert office.again(DANA.approve(question)) == "ResumeRefused"
    assert not office.bank


@contextmanager
def _at_call(
    number: int, act: Callable[[], object], names: str, *places: object, spending: bool = False
) -> Iterator[None]:
    """Do something right before one of these calls, or of those while an answer is spent."""
    calls, counts, spend = count(), ContextVar("counts", default=not spending), Asking.spend

    def watch(*given: Any, **options: Any) -> Any:
        worker = copy_context()
        worker.run(counts.set, True)
        return worker.run(spend, *given, **options)

    def stall(call: Any, *given: Any, **options: Any) -> Any:
        if counts.get() and next(calls) == number:
            act()
        return call(*given, **options)

    with pytest.MonkeyPatch.context() as monkey:
        monkey.setattr(Asking, "spend", watch)
        for place, name in product(places, names.split()):
            monkey.setattr(place, name, partial(stall, getattr(place, name)))
        yield


def _two_workers(office: Office, first: str, number: int) -> bool:
    """Let another worker come at one change of the first, and tell whether it did."""
    question, told, came = office.start(), list[str](), list[str]()
    mine = DANA.approve if first == "approved" else DANA.deny
    theirs = ERIN.deny if first == "approved" else ERIN.approve

    def look() -> None:
        with suppress(CheckpointError):
            told.append(office.look())

    def come() -> None:
        came.append("other")
        office.answers.put(ERIN, theirs(question))
        worker = Thread(target=look)
        worker.start()
        worker.join()

    storages = office.storage, office.journal._view.storage
    with _at_call(number, come, "append", *storages), suppress(CheckpointError):
        told.append(office.look(mine(question)))
    with suppress(CheckpointError, RuntimeError):  # of a framework that is done with it
        told.append(office.again(""))
    assert len(set(told)) == 1, (number, told)
    assert bool(office.bank) == (" by " in told[0])
    return bool(came)


@pytest.mark.parametrize("first", ["approved", "denied"])
@ALL
def test_one_outcome_wins_whenever_another_worker_comes(kind: Kind, first: str) -> None:
    """Worker by worker, at each change that the first one makes: both are told the same."""
    came = [*takewhile(lambda number: _two_workers(kind(), first, number), count())]
    assert len(came) >= 3


def _stalls(office: Office, what: str, number: int) -> bool:
    """Let somebody say no, or hold the run, during one call of the storage; tell whether it was."""
    question, told = office.start(), list[str]()

    def say() -> None:
        told.extend(f"{each.what} {each.outcome}" for each in office.journal.show())
        if what == "no":
            office.answers.put(ERIN, ERIN.deny(question))
        else:
            office.answers.hold(OPAL, STORE, office.thread)

    during = _at_call(number, say, "append head newest read scan", office.storage, spending=True)
    with during, suppress(*STOPPED, CheckpointError):
        office.look(DANA.approve(question))
    assert not told or "approve done" in told or not office.bank, number
    return bool(told)


@pytest.mark.parametrize("what", ["no", "hold"])
@pytest.mark.parametrize("kind", [Flow, *(pytest.param(k, marks=DEEP) for k in (Graph, Agents))])
def test_what_comes_while_the_storage_stalls_is_seen_before_anything_is_paid(
    kind: Kind, what: str
) -> None:
    """As long as the journal does not have that the answer was used."""
    stalls = [*takewhile(lambda number: _stalls(kind(), what, number), count())]
    assert len(stalls) >= 9


@ALL
def test_a_worker_that_does_not_own_the_run_is_given_nothing(kind: Kind) -> None:
    """Not even what was spent before, by one that died."""
    office = kind(dies=True)
    yes = DANA.approve(office.start())
    with pytest.raises(MemoryError):
        office.look(yes)
    office.ledger().own(office.thread, "worker-2")
    office.dies = False
    with pytest.raises((NotOwner, ResumeRefused)):
        office.again(yes)
    assert [*office.bank.values()] == [[42]]


# --- where people put their answers


@ALL
def test_a_no_that_was_put_comes_before_a_yes_that_a_relay_brings(kind: Kind) -> None:
    office = kind()
    question = office.start()
    office.answers.put(ERIN, ERIN.deny(question))
    assert office.look(DANA.approve(question)) == "ResumeRefused"
    assert not office.bank


@ALL
def test_whoever_deletes_a_no_stops_the_run(kind: Kind) -> None:
    office = kind()
    question = office.start()
    office.answers.put(ERIN, ERIN.deny(question))
    vars(office.answers.storage).update(vars(Memory()))
    with pytest.raises(SealBroken, match="The answers do not verify"):
        office.look(DANA.approve(question))
    assert not office.bank


@ALL
def test_whoever_cuts_a_no_off_the_journal_stops_the_run(kind: Kind) -> None:
    """It counts although erin's key is revoked, because the journal had it before."""
    office = kind(dies=True)
    question = office.start()
    with suppress(MemoryError):
        office.look(ERIN.deny(question))
    office.dies, office.approvers = False, known(DANA, ERIN, revoked=[ERIN.key])
    entries = office.journal._view.storage
    records = entries._records["", office.thread]
    first = min(number for number, record in records.items() if b'"deny"' in record)
    entries._records["", office.thread] = {each: records[each] for each in range(1, first)}
    entries._heads["", office.thread] = first - 1
    office.journal._view.known.clear()  # as in another process
    _refused(SealBroken, lambda: office.look(DANA.approve(question)))
    assert not office.bank
    office.ledger().accept_loss(office.thread)  # and an operator can
    assert office.look(DANA.approve(question)) == "42 by dana"


@ALL
def test_after_the_end_of_a_wait_no_approval_counts(kind: Kind) -> None:
    office = kind(within=timedelta(hours=1))
    yes = DANA.approve(office.start(), lifetime=timedelta(hours=9))
    office.answers.put(DANA, yes)
    with _at_time(hours=2):
        if kind is Flow:  # which tells whoever brings one
            with pytest.raises(ResumeRefused, match=r"waited|ended"):
                office.look(yes)
        assert office.look("" if kind is Flow else yes) == ResumeRefused.__name__
    if kind is Flow:  # also if the clock goes back
        assert office.look() == ResumeRefused.__name__
    assert not office.bank
    told = [(each.what, each.outcome) for each in office.journal.show(what="expire")]
    assert told == [("expire", "intended"), ("expire", "done")]


# --- holds

STOPPED = (NotOwner, NotCheckpointed, GraphDrained, af.WorkflowCheckpointException)


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("kind", [Flow, Graph, AsyncGraph, Agents])
def test_a_held_run_stops_and_goes_on_where_it_was(kind: Kind, durability: Durability) -> None:
    """By LangGraph's default, checkpoints are saved while next steps run: those run, and count."""
    office, holds = kind(durability=durability), list[str]()

    def hold(name: str) -> None:
        if name == "a":
            holds.append(office.answers.hold(OPAL, STORE, office.thread, why="look").hold)

    office.during = hold
    late = isinstance(office, Graph) and durability == "async"
    with suppress(GraphDrained) if late else pytest.raises(STOPPED, match="opal has held"):
        office.steps()
    ran = list(office.ran)
    assert ran == ["a"] or (late and ran == ["a", "b", "c"][: len(ran)])
    for _ in range(2):
        with pytest.raises(STOPPED, match="opal has held"):
            office.steps(again=True)
    assert office.ran == ran
    assert office.seen() is not None  # whoever reads it, may
    office.answers.release(OPAL, STORE, office.thread, holds[0])
    office.steps(again=True)
    assert office.ran == ["a", "b", "c"]
    told = [(each.what, each.outcome) for each in office.journal.show()]
    assert ("hold", "done") in told


def test_nobody_deletes_a_checkpoint_of_a_held_workflow() -> None:
    office = Agents()
    office.start()
    ident = office.latest().checkpoint_id
    office.answers.hold(OPAL, STORE, office.thread)
    with pytest.raises(NotOwner, match="has held"):
        _wait(office.opened().delete(ident))


def test_nobody_goes_around_a_hold_by_another_operation_of_langgraph() -> None:
    """A thread that is deleted begins anew, a copy has another name, and an update is a step."""
    office = Graph()
    run = office.run()
    office.three().invoke({"amount": 1}, {**run, "metadata": {"run_id": "run"}})
    saver = SealedSaver(office.ledger(), gate=office.gate)
    before = [*saver.list(run)]
    held = office.answers.hold(OPAL, STORE, office.thread)
    around: list[Callable[[], object]] = [
        lambda: saver.delete_thread("Order 7"),
        lambda: saver.prune(["Order 7"], strategy="delete"),
        lambda: saver.prune(["Order 7"]),
        lambda: saver.delete_for_runs(["run"]),
        lambda: saver.copy_thread("Order 7", "Order 8"),
        lambda: office.three().update_state(run, {"amount": 9}),
    ]
    for way in around:
        with pytest.raises(NotOwner, match="has held"):
            way()
    assert [*saver.list(run)] == before
    assert not office.three().get_state(office.run(8)).values
    office.answers.release(OPAL, STORE, office.thread, held.hold)
    saver.delete_thread("Order 7")  # and a hold holds the id of a thread that begins anew
    office.ran.clear()
    office.answers.hold(OPAL, STORE, office.thread)
    with pytest.raises(NotOwner, match="has held"):
        office.steps()
    assert office.ran == []


def test_a_hold_by_the_id_stops_a_node_that_asks_under_its_second_name() -> None:
    """An id that is used again has another name in the store: operators hold it by the id."""

    class Late(Graph):
        def pay(self, saver: SealedSaver) -> Order:
            self.during("ask")
            return super().pay(saver)

    office = Late()
    office.start()
    office.saver().delete_thread("Order 7")
    question = office.start()
    assert question.thread != office.thread
    office.during = lambda _: office.answers.hold(OPAL, STORE, office.thread)
    with pytest.raises(NotOwner, match="opal has held"):
        office.look(DANA.approve(question))
    assert not office.bank
