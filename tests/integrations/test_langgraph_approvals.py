"""SealedSaver.ask: a node pays what people signed, once, and nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict
from unittest.mock import patch

import pytest

from safepoint import (
    Approver,
    Approvers,
    FileCheckpointStorage,
    Gate,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InMemoryJournal,
    Keyring,
    Ledger,
    Policy,
    SealBroken,
    SigningKey,
    SQLiteCheckpointStorage,
    SQLiteJournal,
)
from safepoint.core.errors import (
    AnchorUnavailable,
    ApprovalExpired,
    ApprovalMalformed,
    ApprovalMismatch,
    ApprovalNeeded,
    ApprovalSpent,
    ApprovalUntrusted,
    CheckpointError,
    ConfigurationError,
    KeyRefused,
    ResumeRefused,
)
from safepoint.resume import asking as asking_module
from safepoint.resume.approval import Question, Reason
from safepoint.resume.asking import SPENT, Asking, note_answers
from tests.harness.optional import need

need("langgraph", "needs langgraph")

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

from safepoint.langgraph import SealedSaver

KEYS = Keyring(SigningKey.generate())
PEOPLE = {name: SigningKey.generate() for name in ("dana", "erin", "mallory")}
DANA, ERIN, MALLORY = (Approver(name, key) for name, key in PEOPLE.items())
APPROVERS = Approvers({name: PEOPLE[name].public for name in ("dana", "erin")})
RUN: Any = {"configurable": {"thread_id": "Order 7"}}


class Order(TypedDict, total=False):
    amount: int
    left: int
    paid: str


class Died(RuntimeError):
    """A worker dies. LangGraph does not try that again by itself."""


class Sent(TypedDict, total=False):
    amount: Annotated[int, lambda _, new: new]
    paid: Annotated[str, lambda _, new: new]


@dataclass
class Office:
    """A graph that pays, its bank, and all that outlives a process."""

    storage: Any = field(default_factory=InMemoryCheckpointStorage)
    anchor: Any = field(default_factory=InMemoryAnchor)
    journal: Any = field(default_factory=InMemoryJournal)
    gate: Gate = field(default_factory=lambda: Gate(approvers=APPROVERS))
    bank: dict[str, list[int]] = field(default_factory=dict)
    crash: bool = False

    def saver(self, **options: Any) -> SealedSaver:
        ledger = Ledger(
            self.storage,
            store="orders",
            keys=KEYS,
            anchor=self.anchor,
            journal=self.journal,
        )
        return SealedSaver(ledger, gate=self.gate, **options)

    def pay(self, saver: SealedSaver, order: Order) -> Order:
        try:
            yes = saver.ask("pay", {"amount": order["amount"]})
            self.bank.setdefault(yes.key, []).append(yes.arguments["amount"])
        except ResumeRefused:
            yes = None
        if self.crash:
            raise Died("after the bank, before the checkpoint")
        if yes is None:
            return {"paid": "nothing", "left": 0}
        paid = f"{yes.arguments['amount']} by {'+'.join(yes.by)}"
        return {"paid": paid, "left": order.get("left", 1) - 1}

    def graph(self, **options: Any) -> Any:
        saver = self.saver(**options)
        builder = StateGraph(Order)
        pay = builder.add_node  # what LangGraph tries again by itself is no refusal of ours
        pay("pay", lambda order: self.pay(saver, order), retry_policy=RetryPolicy(max_attempts=2))
        builder.add_edge(START, "pay")
        builder.add_conditional_edges("pay", lambda order: "pay" if order["left"] else END)
        return builder.compile(checkpointer=saver)

    def asked(self, amount: int = 42, run: Any = RUN, **state: Any) -> Question:
        return _question(self.graph().invoke({"amount": amount, **state}, run))


def _graph(pay: Any, saver: Any, **options: Any) -> Any:
    """Return a graph of one node."""
    builder = StateGraph(Order)
    builder.add_node("pay", pay, **options)
    builder.add_edge(START, "pay")
    return builder.compile(checkpointer=saver)


def _question(result: Any, number: int = 0) -> Question:
    return Question.from_text(result["__interrupt__"][number].value)


def _resume(graph: Any, answer: Any, run: Any = RUN) -> Any:
    return graph.invoke(Command(resume=answer), run)


class Later(datetime):
    """The clock of a worker in three days."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + timedelta(days=3)


def _ago(**before: int) -> datetime:
    return datetime.now(UTC) - timedelta(**before)


def _old_answer(office: Office, question: Question) -> str:
    """Return what dana signed about the payment before this one, in a loop."""
    run: Any = {"configurable": {"thread_id": "looping"}}
    first = office.asked(run=run, left=2)
    answer = DANA.approve(first)
    again = _question(_resume(office.graph(), answer, run))
    assert again.arguments == question.arguments
    assert again != first
    with pytest.raises(ApprovalMismatch):
        _resume(office.graph(), answer, run)
    return answer


# What somebody answers who may call the graph, and has no key of an approver.
FORGED: dict[str, tuple[Callable[[Office, Question], Any], type[CheckpointError]]] = {
    "a plain yes": (lambda *_: True, ApprovalMalformed),
    "a dict": (lambda *_: {"type": "approve"}, ApprovalMalformed),
    "a list of dicts": (lambda *_: [{"type": "approve"}], ApprovalMalformed),
    "the question": (lambda _, asked: asked.text, ApprovalMalformed),
    "no text at all": (lambda *_: [], ApprovalMalformed),
    "ten thousand texts": (lambda _, q: [DANA.approve(q)] * 10_000, ApprovalMalformed),
    "signed by a stranger": (lambda _, q: MALLORY.approve(q), ApprovalUntrusted),
    "signed for somebody else": (
        lambda _, q: Approver("dana", PEOPLE["mallory"]).approve(q),
        ApprovalUntrusted,
    ),
    "edited": (lambda _, q: DANA.approve(q).replace("42", "99"), ApprovalUntrusted),
    "a no made a yes": (
        lambda _, q: DANA.deny(q).replace('"denied"', '"approved"'),
        ApprovalUntrusted,
    ),
    "of another amount": (
        lambda _, q: DANA.approve(replace(q, arguments={"amount": 1})),
        ApprovalMismatch,
    ),
    "of another run": (
        lambda office, _: DANA.approve(
            office.asked(run={"configurable": {"thread_id": "Order 8"}})
        ),
        ApprovalMismatch,
    ),
    "of an earlier turn": (_old_answer, ApprovalMismatch),
    "of another store": (lambda _, q: DANA.approve(replace(q, store="other")), ApprovalMismatch),
    "expired": (lambda _, q: DANA.approve(q, now=_ago(hours=2)), ApprovalExpired),
    "for too long": (lambda _, q: DANA.approve(q, lifetime=timedelta(days=80)), ApprovalExpired),
}


@pytest.mark.parametrize("name", FORGED)
def test_an_answer_that_no_approver_gave_to_this_question_pays_nothing(name: str) -> None:
    """And it is not kept: the right answer still pays, in this process or in another."""
    office = Office()
    question, (forge, error) = office.asked(), FORGED[name]
    answer = forge(office, question)
    office.bank.clear()
    with pytest.raises(error) as refused:
        _resume(office.graph(), answer)
    assert refused.value.question == question  # type: ignore[attr-defined]
    assert not office.bank
    assert _resume(office.graph(), DANA.approve(question))["paid"] == "42 by dana"
    assert [*office.bank.values()] == [[42]]


def test_a_node_that_runs_again_after_a_crash_gets_the_same_arguments_and_key(
    tmp_path: Path,
) -> None:
    """Whether it died after the bank or right before it, and also long after the answer expired."""
    storage = FileCheckpointStorage(tmp_path / "state")
    own = Keyring(SigningKey.generate())
    journal = SQLiteJournal(tmp_path / "journal/journal.db", keys=own, create=True)
    office = Office(storage, journal=journal, crash=True)
    question = office.asked()
    answer = DANA.approve(question, lifetime=timedelta(minutes=5))
    with pytest.raises(Died):
        _resume(office.graph(), answer)
    tries: list[Any] = [None, Command(resume=answer), Command(resume=ERIN.approve(question))]
    for again in tries:
        with pytest.raises(Died):
            office.graph().invoke(again, RUN)
    office.crash = False

    with patch.object(asking_module, "datetime", Later):
        assert office.graph().invoke(None, RUN)["paid"] == "42 by dana"
    assert [{*paid} for paid in office.bank.values()] == [{42}]
    spent = [link for link in office.saver().ledger.back(question.thread) if link.label == SPENT]
    assert len(spent) == 1
    told = [entry.what for entry in office.journal.show() if entry.what in ("pause", "approve")]
    assert told == ["pause", "approve", "approve"]


def test_what_was_handed_out_is_written_down_whoever_spent_it() -> None:
    """One worker dies between note and journal, the next pays and dies: a later no is late."""
    office = Office(crash=True)
    question = office.asked()
    answer, real = DANA.approve(question), asking_module.note_answers

    def dies(ledger: Any, accepted: Any, outcome: Any) -> None:
        if outcome == "done":
            raise OSError("dies")
        real(ledger, accepted, outcome)

    with patch.object(asking_module, "note_answers", dies), pytest.raises(OSError, match="dies"):
        _resume(office.graph(), answer)
    with pytest.raises(Died):
        _resume(office.graph(), answer)
    office.crash = False
    with patch.object(asking_module, "datetime", Later):
        later = ERIN.deny(question, now=Later.now(UTC))
        assert _resume(office.graph(), later)["paid"] == "42 by dana"


def test_the_answer_is_spent_and_anchored_before_the_arguments_are_given() -> None:
    office = Office()
    question = office.asked()
    before = office.anchor.read("orders", question.thread)
    real, seen = SealedSaver.ask, list[Any]()

    def ask(saver: SealedSaver, action: str, arguments: Any) -> Any:
        given = real(saver, action, arguments)
        head = office.anchor.read("orders", question.thread)
        newest = next(iter(saver.ledger.back(question.thread)))
        seen.append((newest.label, newest.sequence, head.sequence))
        return given

    with patch.object(SealedSaver, "ask", ask):
        _resume(office.graph(), DANA.approve(question))
    assert [(label, at == head) for label, at, head in seen] == [(SPENT, True)]
    assert before.sequence < seen[0][1]


def test_a_note_that_the_anchor_never_saw_is_anchored_before_it_is_believed() -> None:
    """Whoever wrote it died in between. Else it could be cut off, and a no follow a payment."""
    office = Office()
    question = office.asked()
    answer = DANA.approve(question)
    gone = patch.object(InMemoryAnchor, "advance", side_effect=OSError("gone"))
    with gone, pytest.raises(AnchorUnavailable):
        _resume(office.graph(), answer)
    assert not office.bank
    _resume(office.graph(), answer)
    spent = [link for link in office.saver().ledger.back(question.thread) if link.label == SPENT]
    assert len(spent) == 1
    assert office.anchor.read("orders", question.thread).sequence >= spent[0].sequence


def test_in_a_subgraph_the_run_went_on_if_the_graph_around_it_did() -> None:
    office = Office()
    saver = office.saver(time_travel=True)
    inner, outer = StateGraph(Order), StateGraph(Order)
    inner.add_node("pay", lambda order: office.pay(saver, order))
    inner.add_edge(START, "pay")
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=saver)
    answer = DANA.approve(_question(graph.invoke({"amount": 42}, RUN)))
    waits = graph.get_state(RUN).config
    graph.update_state(RUN, {"paid": "cancelled"}, as_node="inner")
    with pytest.raises(ApprovalSpent):
        _resume(graph, answer, waits)
    assert not office.bank


def test_a_task_of_the_functional_interface_can_ask() -> None:
    office = Office()
    saver = office.saver()

    @task
    def pay(amount: int) -> str:
        return saver.ask("pay", {"amount": amount}).key

    @entrypoint(checkpointer=saver)
    def flow(amounts: list[int]) -> set[str]:
        return {pay(amount).result() for amount in amounts}

    result: Any = flow.invoke([1, 1], RUN)
    for _ in range(2):
        result = _resume(flow, DANA.approve(_question(result)))
    assert len(result) == 2


def test_a_fork_a_loop_and_a_copy_cannot_spend_again() -> None:
    office = Office()
    graph = office.graph(time_travel=True)
    question = _question(graph.invoke({"amount": 42}, RUN))
    waits = graph.get_state(RUN).config
    answer = DANA.approve(question)
    office.saver().copy_thread("Order 7", "copied")
    _resume(graph, answer)
    office.bank.clear()

    with pytest.raises(ApprovalSpent):  # the very checkpoint again
        _resume(office.graph(time_travel=True), answer, waits)
    forked = graph.update_state(waits, {"amount": 42})  # a fork of it asks anew
    other = _question(graph.invoke(None, forked))
    assert other != question
    with pytest.raises(ApprovalMismatch):
        _resume(graph, answer, forked)
    copied: Any = {"configurable": {"thread_id": "copied"}}
    with pytest.raises(ApprovalMismatch):
        _resume(office.graph(), answer, copied)
    office.saver().delete_thread("Order 7")
    assert office.asked() != question
    with pytest.raises(ApprovalMismatch):
        _resume(office.graph(), answer)
    assert not office.bank


def test_a_copy_of_a_paid_thread_has_no_answer_of_its_own() -> None:
    """The copy of the spent note says what was asked in the other thread."""
    office = Office(crash=True)
    question = office.asked()
    with pytest.raises(Died):
        _resume(office.graph(), DANA.approve(question))
    office.crash, office.bank = False, {}
    office.saver().copy_thread("Order 7", "copied")
    copied: Any = {"configurable": {"thread_id": "copied"}}
    with pytest.raises(ApprovalMismatch):
        office.graph().invoke(None, copied)
    assert not office.bank


def test_each_of_several_questions_has_an_answer_of_its_own() -> None:
    """Two equal payments in a node; in a node that is sent twice; in a subgraph."""
    office = Office()
    saver = office.saver()

    def twice(order: Order) -> Order:
        keys = {saver.ask("pay", {"amount": order["amount"]}).key for _ in range(2)}
        return {"paid": str(len(keys))}

    builder = StateGraph(Sent)
    node: Any = twice
    builder.add_node("twice", node)
    builder.add_edge(START, "twice")
    inner = builder.compile()
    outer = StateGraph(Sent)
    outer.add_node("inner", inner)
    outer.add_conditional_edges(START, lambda _: [Send("inner", {"amount": 1})] * 2)
    graph = outer.compile(checkpointer=saver)
    asked, answers = set[Question](), dict[str, str]()
    result = graph.invoke({"amount": 1}, RUN)
    while waiting := result.get("__interrupt__"):
        for each in waiting:
            asked.add(Question.from_text(each.value))
            answers[each.id] = DANA.approve(Question.from_text(each.value))
        assert len(asked) < 10
        if len(waiting) == 2:  # the answers of two branches, the other way around
            swapped = dict(zip(answers, [*answers.values()][::-1], strict=True))
            with pytest.raises(ApprovalMismatch):
                graph.invoke(Command(resume=swapped), RUN)
        result = graph.invoke(Command(resume=answers), RUN)
        answers.clear()
    assert len(asked) == 4
    assert result["paid"] == "2"


def test_a_no_is_final_and_the_graph_goes_on_without() -> None:
    """Also long after it expired, without the journal, and with the key revoked since."""
    office = Office(crash=True)
    question = office.asked()
    with pytest.raises(Died):
        _resume(office.graph(), DANA.deny(question))
    assert "deny" in [entry.what for entry in office.journal.show()]
    office.crash, office.journal = False, InMemoryJournal()
    keys = {name: PEOPLE[name].public for name in ("dana", "erin")}
    office.gate = Gate(approvers=Approvers(keys, revoked=[PEOPLE["dana"]]))
    with patch.object(asking_module, "datetime", Later):
        later = ERIN.approve(question, now=Later.now(UTC))
        assert _resume(office.graph(), later)["paid"] == "nothing"
    assert not office.bank


def test_after_a_no_the_next_question_of_the_node_is_answered() -> None:
    office, said = Office(), list[str]()
    saver = office.saver()

    def pay(order: Order) -> Order:
        said.clear()
        for bill in ("rent", "wine"):
            try:
                said.append(saver.ask("pay", {"bill": bill}).arguments["bill"])
            except ResumeRefused:
                said.append("no")
        return {"paid": "+".join(said)}

    graph = _graph(pay, saver)
    asked = graph.invoke({}, RUN)
    asked = _resume(graph, DANA.deny(_question(asked)))
    assert _resume(graph, DANA.approve(_question(asked)))["paid"] == "no+wine"


def test_two_people_where_the_policy_wants_two() -> None:
    office = Office(gate=Gate(Policy({Reason.ASKED: 2}), APPROVERS))
    question = office.asked()
    one = DANA.approve(question)
    for answer in (one, [one, one], [one, DANA.approve(question)]):
        with pytest.raises(ApprovalNeeded) as error:
            _resume(office.graph(), answer)
        assert error.value.question == question
    assert _resume(office.graph(), [one, ERIN.approve(question)])["paid"] == "42 by dana+erin"


def test_of_two_workers_that_answer_at_once_the_first_decides() -> None:
    """One with a yes, one with a no: both are told the same."""
    office = Office()
    question = office.asked()
    graphs = [office.graph(), office.graph()]
    answers = [DANA.approve(question), ERIN.deny(question)]
    both, said, real = threading.Barrier(2), list[str](), Asking._append

    def spend(asking: Asking, *given: Any) -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait(20)
        real(asking, *given)

    def answer(number: int) -> None:
        try:
            said.append(_resume(graphs[number], answers[number])["paid"])
        except CheckpointError as error:
            said.append(type(error).__name__)

    workers = [threading.Thread(target=answer, args=(number,)) for number in (0, 1)]
    with patch.object(Asking, "_append", spend):
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    told = {each for each in said if each not in ("Conflict", "ApprovalSpent")}
    assert told in ({"nothing"}, {"42 by dana"}), said
    assert bool(office.bank) is (told == {"42 by dana"})


@pytest.mark.parametrize("first", ["approved", "denied", "used"])
def test_a_no_instead_of_a_yes_counts_unless_that_was_used(first: str) -> None:
    """Until the journal says that it was, nobody was given it, and a no is in time."""
    office = Office()
    question = office.asked()
    answers = [DANA.approve(question), ERIN.deny(question)]
    ledger = office.saver().ledger
    for text in answers[::-1] if first == "denied" else answers:
        note = {"thread": "Order 7", "question": question.text, "statements": [text]}
        more = {"instead": True} if text == answers[1] else {}
        ledger.note(question.thread, note | more, label=SPENT)
    if first == "used":
        note_answers(ledger, [APPROVERS.open(answers[0])], "done")
    paid = _resume(office.graph(), answers)["paid"]
    assert paid == ("42 by dana" if first == "used" else "nothing")


def test_many_async_runs_that_wait_for_their_checkpoints_do_not_keep_each_other_from_it() -> None:
    office = Office()
    saver = office.saver()

    def pay(order: Order) -> Order:
        return {"paid": saver.ask("pay", {"amount": order["amount"]}).key}

    async def apay(order: Order) -> Order:
        return {"paid": (await saver.aask("pay", {"amount": order["amount"]})).key}

    async def play(node: Any) -> Any:
        graph = _graph(node, saver)
        runs: Any = [{"configurable": {"thread_id": f"{node.__name__} {n}"}} for n in range(40)]
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(2))
        return await asyncio.gather(*(graph.ainvoke({"amount": 1}, run) for run in runs))

    for node in (pay, apay):
        assert all(map(_question, asyncio.run(play(node))))


def test_whoever_goes_around_a_node_that_asks_meets_the_one_that_acts() -> None:
    """`Command(goto=…)` and `update_state(as_node=…)` skip any node: an asking one, too."""
    office = Office()
    saver = office.saver()

    def apart(saves: Any, pay: Any) -> Any:
        builder = StateGraph(Order)
        builder.add_node("ask", lambda _: {"paid": "yes"} if interrupt("pay?") == "yes" else {})
        builder.add_node("pay", pay)
        builder.add_edge(START, "ask")
        builder.add_edge("ask", "pay")
        return builder.compile(checkpointer=saves)

    def around(graph: Any, run: Any) -> list[Any]:
        graph.invoke({"amount": 42}, run)
        jumped = graph.invoke(Command(goto="pay", update={"paid": "yes"}), run)
        run = {"configurable": {"thread_id": "Order 8"}}
        graph.invoke({"amount": 42}, run)
        graph.update_state(run, {"paid": "yes"}, as_node="ask")
        return [jumped, graph.invoke(None, run)]

    naive = apart(
        InMemorySaver(), lambda order: {"paid": "42"} if order.get("paid") == "yes" else {}
    )
    assert [each["paid"] for each in around(naive, RUN)] == ["42", "42"]
    sealed = apart(saver, lambda order: office.pay(saver, order))
    for each in around(sealed, RUN):
        assert any("amount" in waits.value for waits in each["__interrupt__"])
    assert not office.bank


def test_a_thief_of_the_writers_key_cannot_say_what_people_approved() -> None:
    office = Office()
    question = office.asked()
    ledger = office.saver().ledger
    other = replace(question, arguments={"amount": 1})
    for texts in (
        [DANA.approve(other)],
        [MALLORY.approve(question)],
        [DANA.approve(question, now=_ago(hours=2))],  # whatever time the note says
        [],
        "yes",
        None,
    ):
        note = {"thread": "Order 7", "question": question.text, "statements": texts}
        ledger.note(question.thread, note, label=SPENT)
    ledger.note(question.thread, {"thread": "Order 7"}, label=SPENT)
    with pytest.raises(ApprovalMalformed):
        _resume(office.graph(), True)
    short = DANA.approve(question)
    down = patch.object(Asking, "_append", side_effect=OSError("the storage is down"))
    with down, pytest.raises(OSError, match="down"):
        _resume(office.graph(), short)
    note = {"thread": "Order 7", "question": question.text, "statements": [short]}
    ledger.note(question.thread, note, label=SPENT)
    with patch.object(asking_module, "datetime", Later), pytest.raises(ApprovalExpired):
        _resume(office.graph(), short)  # nobody has used it when it counted
    assert not office.bank


def test_whoever_writes_the_store_cannot_damage_a_no_until_it_does_not_count(
    tmp_path: Path,
) -> None:
    office = Office(SQLiteCheckpointStorage(tmp_path / "state.db"), crash=True)
    question = office.asked()
    with pytest.raises(Died):
        _resume(office.graph(), DANA.deny(question))
    with closing(sqlite3.connect(tmp_path / "state.db")) as rows:
        guard = "select sql from sqlite_master where name = 'checkpoints_update'"
        ((trigger,),) = rows.execute(guard).fetchall()
        rows.execute("drop trigger checkpoints_update")
        changed = "cast(replace(cast(record as text), 'statements', 'statementz') as blob)"
        edited = f"update checkpoints set record = {changed} where cast(record as text) like ?"  # noqa: S608
        assert rows.execute(edited, [f'%"label":"{SPENT}"%']).rowcount == 1
        rows.execute(trigger)
        rows.commit()
    with pytest.raises(SealBroken):
        _resume(office.graph(), ERIN.approve(question))
    assert not office.bank


def test_the_question_stays_the_same_in_async_graphs_and_retries() -> None:
    office, tries = Office(), list[str]()
    saver = office.saver()

    async def pay(order: Order) -> Order:
        yes = await saver.aask("pay", {"amount": order["amount"]})
        tries.append(yes.key)
        if len(tries) < 3:
            raise TimeoutError("the bank did not answer")
        return {"paid": str(yes.arguments["amount"])}

    graph = _graph(pay, saver, retry_policy=RetryPolicy(initial_interval=0.001, max_attempts=2))

    async def play() -> Any:
        question = _question(await graph.ainvoke({"amount": 42}, RUN))
        again = _question(await graph.ainvoke(None, RUN))
        assert again == question
        result: Any = None
        given: Any
        for given in (Command(resume=DANA.approve(question)), None, None):
            try:
                result = await graph.ainvoke(given, RUN)
            except TimeoutError:
                continue
            if result.get("paid"):
                break
        return result

    assert asyncio.run(play())["paid"] == "42"
    assert len(set(tries)) == 1


def test_where_nobody_could_answer_the_node_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(InMemoryCheckpointStorage(), store="orders", keys=Keyring(PEOPLE["dana"]))
    with pytest.raises(KeyRefused):
        SealedSaver(ledger, gate=Gate(approvers=APPROVERS))
    with pytest.raises(ConfigurationError, match="knows nobody"):
        Office(gate=Gate()).asked()
    with pytest.raises(ConfigurationError, match="no journal"):
        Office(journal=None).asked()
    with pytest.raises(ConfigurationError, match="an anchor sees"):
        Office(anchor=None).asked()
    with pytest.raises(ConfigurationError, match="Call ask in a node"):
        Office().saver().ask("pay", {})
    office = Office(gate=Gate(Policy({Reason.ASKED: None}), APPROVERS))
    question = office.asked()
    assert _resume(office.graph(), DANA.approve(question))["paid"] == "nothing"
    monkeypatch.setattr("safepoint.langgraph._PATIENCE", 0.1)
    with pytest.raises(ConfigurationError, match="this very saver"):
        Office().graph().invoke({"amount": 1}, RUN, durability="exit")
    saver = Office().saver()

    async def pay(order: Order) -> Order:
        return {"paid": saver.ask("pay", {"amount": order["amount"]}).key}

    with pytest.raises(ConfigurationError, match="aask"):
        asyncio.run(_graph(pay, saver).ainvoke({"amount": 1}, RUN))
