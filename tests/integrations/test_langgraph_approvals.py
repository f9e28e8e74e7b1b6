"""SealedSaver.ask: a node pays what people signed, once, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

import pytest

from safepoint import Policy
from safepoint.audit import audit
from safepoint.core.errors import ApprovalRefused, ConfigurationError, ResumeRefused
from safepoint.resume.approval import Question, Reason
from tests.harness.optional import need
from tests.house import DANA

need("langgraph", "needs langgraph")

from langchain_core.messages import AIMessage
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send, interrupt

from safepoint.langgraph import SealedSaver
from safepoint.shared.questions import open_questions
from tests.integrations.test_approvals import RUN, Graph, Order


class Sent(TypedDict, total=False):
    amount: Annotated[int, lambda _, new: new]
    paid: Annotated[str, lambda _, new: new]


class Office(Graph):
    retry = RetryPolicy(initial_interval=0.001, max_attempts=2)  # which tries no refusal again


def _graph(pay: Any, saver: Any, **options: Any) -> Any:
    """Return a graph of one node."""
    builder = StateGraph(Order).add_node("pay", pay, **options)
    return builder.add_edge(START, "pay").compile(saver)


def _question(result: Any, number: int = 0) -> Question:
    return Question.from_text(result["__interrupt__"][number].value)


def _resume(graph: Any, answer: Any, run: Any = RUN) -> Any:
    return graph.invoke(Command(resume=answer), run)


def test_in_a_subgraph_the_run_went_on_if_the_graph_around_it_did() -> None:
    office = Office()
    saver = office.saver(time_travel=True)
    inner, outer = StateGraph(Order), StateGraph(Order)
    inner.add_node("pay", lambda _: office.pay(saver)).add_edge(START, "pay")
    graph = outer.add_node("inner", inner.compile()).add_edge(START, "inner").compile(saver)
    answer = DANA.approve(_question(graph.invoke({"amount": 42}, RUN)))
    waits = graph.get_state(RUN).config
    graph.update_state(RUN, {"paid": "cancelled"}, as_node="inner")
    with pytest.raises(ApprovalRefused, match="continued from", check=lambda e: e.kind == "moved"):
        _resume(graph, answer, waits)
    assert not office.bank


def test_what_a_subgraph_asks_waits_when_the_graph_around_it_is_saved_later() -> None:
    """LangGraph saves them side by side, so under load the subgraph's checkpoint comes first."""
    office, first = Office(), threading.Event()

    class Late(SealedSaver):
        def put(self, config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
            inside, step = config["configurable"]["checkpoint_ns"], metadata["step"]
            if not inside and step >= 0:
                assert first.wait(600)
            saved = super().put(config, checkpoint, metadata, versions)
            if inside and step == 0:
                first.set()
            return saved

    saver = Late(office.ledger(), gate=office.gate)
    inner, outer = StateGraph(Order), StateGraph(Order)
    inner.add_node("pay", lambda _: office.pay(saver)).add_edge(START, "pay")
    outer.add_node("read", lambda _: {"amount": 42}).add_node("inner", inner.compile())
    graph = outer.add_edge(START, "read").add_edge("read", "inner").compile(saver)
    asked = _question(graph.invoke({"amount": 42}, RUN))
    assert open_questions(office.ledger(), office.thread, office.gate) == [asked]
    assert _resume(graph, DANA.approve(asked))["paid"] == "42 by dana"


@pytest.mark.parametrize("first", ["", True, None])
def test_a_thread_that_waited_at_a_plain_interrupt_asks_whatever_it_is_resumed_with(
    first: Any,
) -> None:
    office = Office()
    graph = _graph(lambda _: {"paid": interrupt("Pay?")}, office.saver())
    graph.invoke({"amount": 42}, RUN)
    graph = office.paying()
    asked = _question(graph.invoke(None if first is None else Command(resume=first), RUN))
    assert office.saver().waiting("Order 7") == [(asked, False)]
    assert _resume(graph, DANA.approve(asked))["paid"] == "42 by dana"


def test_a_fork_a_loop_and_a_copy_cannot_spend_again() -> None:
    office = Office()
    graph = office.paying(time_travel=True)
    question = _question(graph.invoke({"amount": 42}, RUN))
    waits = graph.get_state(RUN).config
    answer = DANA.approve(question)
    office.saver().copy_thread("Order 7", "copied")
    _resume(graph, answer)
    office.bank.clear()

    with pytest.raises(ApprovalRefused, match="continued from", check=lambda e: e.kind == "used"):
        _resume(office.paying(time_travel=True), answer, waits)  # the very checkpoint again
    forked = graph.update_state(waits, {"amount": 42})  # a fork of it asks anew
    other = _question(graph.invoke(None, forked))
    assert other != question
    with pytest.raises(ApprovalRefused, match="by dana has "):
        _resume(graph, answer, forked)
    copied: Any = {"configurable": {"thread_id": "copied"}}
    with pytest.raises(ApprovalRefused, match="by dana has "):
        _resume(office.paying(), answer, copied)
    office.saver().delete_thread("Order 7")
    assert office.start() != question
    with pytest.raises(ApprovalRefused, match="by dana has "):
        _resume(office.paying(), answer)
    assert not office.bank


def test_a_copy_of_a_paid_thread_has_no_answer_of_its_own() -> None:
    """Nor has it the spent note, which says what was asked in the other thread."""
    office = Office(dies=True)
    question = office.start()
    with pytest.raises(MemoryError):
        _resume(office.paying(), DANA.approve(question))
    office.dies, office.bank = False, {}
    office.saver().copy_thread("Order 7", "copied")
    copied: Any = {"configurable": {"thread_id": "copied"}}
    with pytest.raises(ApprovalRefused, match="by dana has "):
        office.paying().invoke(None, copied)
    assert not office.bank
    assert not audit(office.ledger(), gate=office.gate, rule="SP19")


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
            with pytest.raises(ApprovalRefused, match="by dana has "):
                graph.invoke(Command(resume=swapped), RUN)
        result = graph.invoke(Command(resume=answers), RUN)
        answers.clear()
    assert len(asked) == 4
    assert result["paid"] == "2"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_of_a_tool_node_can_ask(is_async: bool) -> None:
    office = Office()
    saver = office.saver()

    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {saver.ask('pay', {'amount': amount}).arguments['amount']}"

    async def apay(amount: int) -> str:
        """Pay."""
        return f"paid {(await saver.aask('pay', {'amount': amount})).arguments['amount']}"

    builder = StateGraph(MessagesState).add_node("tools", ToolNode([apay if is_async else pay]))
    graph: Any = builder.add_edge(START, "tools").compile(saver)
    call = {"name": "apay" if is_async else "pay", "args": {"amount": 42}, "id": "1"}

    def run(given: Any) -> Any:
        return asyncio.run(graph.ainvoke(given, RUN)) if is_async else graph.invoke(given, RUN)

    asked = _question(run({"messages": [AIMessage("", tool_calls=[call])]}))
    result = run(Command(resume=DANA.approve(asked)))
    assert result["messages"][-1].content == "paid 42"


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
        builder = StateGraph(Order).add_node("pay", pay).add_edge(START, "ask")
        builder.add_node("ask", lambda _: {"paid": "yes"} if interrupt("pay?") == "yes" else {})
        return builder.add_edge("ask", "pay").compile(saves)

    def around(graph: Any, run: Any) -> list[Any]:
        graph.invoke({"amount": 42}, run)
        jumped = graph.invoke(Command(goto="pay", update={"paid": "yes"}), run)
        run = {"configurable": {"thread_id": "Order 8"}}
        graph.invoke({"amount": 42}, run)
        graph.update_state(run, {"paid": "yes"}, as_node="ask")
        return [jumped, graph.invoke(None, run)]

    sealed = apart(saver, lambda _: office.pay(saver))
    for each in around(sealed, RUN):
        assert any("amount" in waits.value for waits in each["__interrupt__"])
    assert not office.bank


def test_where_nobody_could_answer_the_node_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="Call ask in a node"):
        Office().saver().ask("pay", {})
    office = Office(policy=Policy({Reason.ASKED: None}))
    question = office.start()
    assert _resume(office.paying(), DANA.approve(question))["paid"] == "ResumeRefused"
    monkeypatch.setattr("safepoint.langgraph._PATIENCE", 0.1)
    with pytest.raises(ConfigurationError, match="this very saver"):
        Office().paying().invoke({"amount": 1}, RUN, durability="exit")
    saver = Office().saver()

    async def pay(order: Order) -> Order:
        return {"paid": saver.ask("pay", {"amount": order["amount"]}).key}

    with pytest.raises(ConfigurationError, match="aask"):
        asyncio.run(_graph(pay, saver).ainvoke({"amount": 1}, RUN))


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


def test_an_answer_of_an_earlier_turn_of_a_loop_is_none_of_this_one() -> None:
    office = Office()
    saver = office.saver()
    built = StateGraph(Order).add_node("pay", lambda _: office.pay(saver)).add_edge(START, "pay")
    graph = built.add_conditional_edges("pay", lambda _: "pay").compile(saver)
    first = _question(graph.invoke({"amount": 42}, RUN))
    again = _question(_resume(graph, DANA.approve(first)))
    assert (again == first, again.arguments) == (False, first.arguments)
    with pytest.raises(ApprovalRefused):
        _resume(graph, DANA.approve(first))
    assert [*office.bank.values()] == [[42]]


def test_a_task_of_the_functional_interface_can_ask() -> None:
    saver = Office().saver()

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
