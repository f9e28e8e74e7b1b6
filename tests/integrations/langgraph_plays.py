"""Graphs as people write them: each is played on a saver, and tells what was seen.

`again` gives the saver as a new process would open it. Ids of checkpoints are new in each play, so
what is told is values, next nodes, questions and errors.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from typing import Annotated, Any, Final, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

Again = Callable[[], Any]
RUN: Final[RunnableConfig] = {"configurable": {"thread_id": "Order #7/ü"}}


class State(TypedDict, total=False):
    steps: Annotated[list[Any], operator.add]
    amount: int
    answer: str


class Spread(TypedDict, total=False):
    """The same, with a channel that saves what is added to it, and every third time the whole."""

    steps: Annotated[
        list[Any], DeltaChannel(lambda had, wrote: sum(wrote, had), snapshot_frequency=3)
    ]
    amount: int
    answer: str


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def _step(name: str) -> Callable[[Any], Any]:
    def node(state: Any) -> Any:
        return {"steps": [name], "amount": state.get("amount", 0) + 1}

    return node


def _line(*nodes: str | tuple[str, Any], state: Any = State) -> Any:
    builder: Any = StateGraph(state)
    before = START
    for each in nodes:
        name, act = each if isinstance(each, tuple) else (each, _step(each))
        builder.add_node(name, act)
        builder.add_edge(before, name)
        before = name
    return builder


def _ask(state: Any) -> Any:
    return {"answer": interrupt({"pay": state["amount"]}), "steps": ["ask"]}


def _shown(graph: Any, config: RunnableConfig = RUN) -> Any:
    state = graph.get_state(config)
    asked = [each.value for each in state.interrupts]
    errors = [each.error for each in state.tasks]
    return state.values, state.next, asked, errors, (state.metadata or {}).get("step")


def _past(graph: Any) -> Any:
    found = [*graph.get_state_history(RUN)]
    return [
        (each.values, each.next, each.metadata["source"], each.metadata["step"]) for each in found
    ]


def human_in_the_loop(again: Again) -> Any:
    builder = _line("a", ("ask", _ask), "pay")
    graph = builder.compile(again())
    asked = graph.invoke({"amount": 1}, RUN)["__interrupt__"][0].value
    graph = builder.compile(again())
    seen = _shown(graph)
    return asked, seen, graph.invoke(Command(resume="yes"), RUN), _past(graph)


def fork(again: Again) -> Any:
    graph = _line("a", "b", "c").compile(again())
    graph.invoke({"amount": 1}, RUN)
    old = [*graph.get_state_history(RUN)][2]
    forked = graph.update_state(old.config, {"amount": 50})
    first = graph.invoke(None, forked)
    return old.values, first, _shown(graph), _past(graph)


def fan_out(again: Again) -> Any:
    builder: Any = StateGraph(State)
    builder.add_node("work", lambda each: {"steps": [("done", each["amount"])]})
    builder.add_node("end", lambda state: {"amount": len(state["steps"])})
    builder.add_conditional_edges(
        START, lambda state: [Send("work", {"amount": n}) for n in range(state["amount"])], ["work"]
    )
    builder.add_edge("work", "end")
    graph = builder.compile(again(), interrupt_before=["work"])
    graph.invoke({"amount": 4}, RUN)
    graph = builder.compile(again(), interrupt_before=["work"])
    return _shown(graph)[1], graph.invoke(None, RUN)


def subgraph(again: Again) -> Any:
    inner = _line("in", ("ask", _ask), "out").compile()
    builder = _line("a", ("inner", inner), "z")
    graph = builder.compile(again())
    graph.invoke({"amount": 1}, RUN)
    graph = builder.compile(again())
    deep = graph.get_state(RUN, subgraphs=True).tasks[0].state
    return deep.values, deep.next, graph.invoke(Command(resume="yes"), RUN), _past(graph)


def subgraph_with_a_memory_replayed(again: Again) -> Any:
    """From before it began, and from between: what it remembers is what it did then."""
    inner = _line("in", ("ask", _ask), "out").compile(checkpointer=True)
    builder = _line("a", ("inner", inner), "z")
    for amount in (1, 10):
        builder.compile(again()).invoke({"amount": amount}, RUN)
        builder.compile(again()).invoke(Command(resume=amount), RUN)
    graph, seen = builder.compile(again()), []
    for old in [each for each in graph.get_state_history(RUN) if each.next == ("inner",)]:
        seen.append(graph.invoke(None, old.config)["__interrupt__"][0].value)
        seen.append(graph.invoke(Command(resume="again"), RUN))
        forked = graph.update_state(old.config, {"amount": 77})
        graph.invoke(None, forked)
        graph = builder.compile(again())
        seen.append(graph.invoke(Command(resume="forked"), RUN))
    return seen, _past(graph)


def crash(again: Again) -> Any:
    """One of two tasks fails, once the other's write is saved. That one is not done twice."""
    done: list[str] = []
    saver = again()

    def good(state: Any) -> Any:
        done.append("good")
        return {"steps": ["good"]}

    def bad(state: Any) -> Any:
        done.append("bad")
        if done.count("bad") == 1:
            while "steps" not in [each[1] for each in saver.get_tuple(RUN).pending_writes]:
                time.sleep(0.001)
            raise ValueError("the first time")
        return {"steps": ["bad"]}

    builder: Any = StateGraph(State)
    for name, act in (("good", good), ("bad", bad)):
        builder.add_node(name, act)
        builder.add_edge(START, name)
    try:
        builder.compile(saver).invoke({"amount": 1}, RUN, durability="sync")
    except ValueError as error:
        done.append(str(error))
    graph = builder.compile(again())
    seen = _shown(graph)[3]
    return seen, graph.invoke(None, RUN), sorted(done)


def conversation(again: Again) -> Any:
    call = {"name": "look", "args": {"n": 1}, "id": "call-1", "type": "tool_call"}

    def model(state: Any) -> Any:
        last = state["messages"][-1]
        if isinstance(last, ToolMessage):
            return {"messages": [AIMessage("done", id=f"ai-{len(state['messages'])}")]}
        return {"messages": [AIMessage("", tool_calls=[call], id=f"ai-{len(state['messages'])}")]}

    def tools(state: Any) -> Any:
        text = ToolMessage("42", tool_call_id="call-1", artifact={"n": [1]}, id="tool-1")
        return {"messages": [text]}

    builder: Any = StateGraph(Chat)
    builder.add_node("model", model)
    builder.add_node("tools", tools)
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END]
    )
    builder.add_edge("tools", "model")
    builder.compile(again()).invoke({"messages": [HumanMessage("hi", id="human-1")]}, RUN)
    graph = builder.compile(again())
    seen = graph.get_state(RUN).values
    graph.update_state(RUN, {"messages": [RemoveMessage(id="human-1")]}, as_node="tools")
    return seen, builder.compile(again()).get_state(RUN).values


def functional(again: Again) -> Any:
    @task
    def double(n: int) -> int:
        return 2 * n

    def made() -> Any:
        @entrypoint(checkpointer=again())
        def flow(n: int, *, previous: Any = None) -> Any:
            return entrypoint.final(value=(previous, double(n).result()), save=n)

        return flow

    return made().invoke(3, RUN), made().invoke(4, RUN)


def spread(again: Again) -> Any:
    """A thread goes from one kind of channel to the other and back, and is forked on the way."""
    seen = list[Any]()
    for durability in ("async", "sync", "exit"):
        for state in (Spread, State, Spread):
            graph = _line("a", "b", ("ask", _ask), "c", state=state).compile(again())
            graph.invoke({"steps": [durability]}, RUN, durability=durability)
            seen.append(graph.invoke(Command(resume="yes"), RUN, durability=durability))
    graph = _line("a", "b", ("ask", _ask), "c", state=Spread).compile(again())
    seen.append(_past(graph))
    old = [*graph.get_state_history(RUN)][3]
    graph.update_state(old.config, {"steps": ["forked"]}, as_node="ask")
    return seen, graph.invoke(None, RUN), _past(graph)


PLAYS: Final = (
    *(human_in_the_loop, fork, fan_out, subgraph, subgraph_with_a_memory_replayed),
    *(crash, conversation, functional),
)
