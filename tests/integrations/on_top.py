"""What is built on the two frameworks, played on their own storage and on ours: the same comes out.

`test_on_top.py` runs it in a process that has the packages.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import agent_framework as af
import agent_framework_orchestrations as orchestrations  # type: ignore[import-not-found]
from deepagents import create_deep_agent  # type: ignore[import-not-found]
from langchain.agents import create_agent, middleware  # type: ignore[import-not-found]
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from safepoint import InMemoryAnchor, InMemoryCheckpointStorage, Ledger
from safepoint.agent_framework import SealedCheckpointStorage
from safepoint.langgraph import SealedSaver
from tests.house import opened
from tests.integrations.test_agent_framework_storage import Model as Client


def ledger() -> Ledger:
    return opened(InMemoryCheckpointStorage(), InMemoryAnchor())


# --- LangChain's agents, and deepagents


class Model(BaseChatModel):
    """Writes down what is to do, pays, and says that it is done."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> Model:
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        used = {each.name for each in messages if each.type == "tool"}
        todo = [{"content": "pay", "status": "pending"}]
        calls = [("write_todos", {"todos": todo}), ("write_file", FILE), ("pay", {"amount": 42})]
        left = [call for call in calls if call[0] not in used and call[0] in (self.tags or ())]
        made = [{"name": name, "args": given, "id": name} for name, given in left[:1]]
        said = AIMessage("" if made else "done", tool_calls=made, id=f"m{len(messages)}")
        return ChatResult(generations=[ChatGeneration(message=said)])


FILE = {"file_path": "/notes.txt", "content": "paid"}


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def agent(saver: Any) -> Any:
    model = Model(tags=["write_todos", "pay"])
    return create_agent(
        model,
        [pay],
        checkpointer=saver,
        middleware=[
            middleware.TodoListMiddleware(),
            middleware.SummarizationMiddleware(model, trigger=("messages", 6)),
            middleware.ModelCallLimitMiddleware(thread_limit=20),
            middleware.ToolCallLimitMiddleware(thread_limit=20),
            middleware.PIIMiddleware("email"),
            middleware.ContextEditingMiddleware(),
            middleware.ToolRetryMiddleware(),
            middleware.ModelRetryMiddleware(),
            middleware.HumanInTheLoopMiddleware({"pay": True}),
        ],
    )


def deep(saver: Any) -> Any:
    model = Model(tags=["write_file", "pay"])
    return create_deep_agent(model, [pay], interrupt_on={"pay": True}, checkpointer=saver)


def talk(make: Callable[[Any], Any], savers: Callable[[], Any]) -> Any:
    """Ask for a payment, which waits; go on in another process, so to say; and ask once more."""
    run: Any = {"configurable": {"thread_id": "t"}}
    asked = make(savers()).invoke({"messages": [("user", "pay ann@acme.example")]}, run)
    waits = [each.value for each in asked["__interrupt__"]]
    yes = {"decisions": [{"type": "approve"}]}
    make(savers()).invoke(Command(resume=yes), run)
    state = make(savers()).invoke({"messages": [("user", "thanks")]}, run)
    told = [(each.type, each.text) for each in state.pop("messages")]
    for file in state.get("files", {}).values():
        del file["created_at"], file["modified_at"]
    return waits, told, state


# --- Agent Framework's orchestrations


class Manager(orchestrations.MagenticManagerBase):  # type: ignore[misc]
    """Plans nothing, asks one agent, and is satisfied."""

    async def plan(self, _: Any) -> Any:
        return af.Message("assistant", ["plan"])

    replan = plan

    async def create_progress_ledger(self, context: Any) -> Any:
        def item(answer: Any) -> Any:
            return orchestrations.MagenticProgressLedgerItem(reason="", answer=answer)

        is_done = context.round_count > 1
        return orchestrations.MagenticProgressLedger(
            is_request_satisfied=item(is_done),
            is_in_loop=item(answer=False),
            is_progress_being_made=item(answer=True),
            next_speaker=item("ann"),
            instruction_or_question=item("go on"),
        )

    async def prepare_final_answer(self, _: Any) -> Any:
        return af.Message("assistant", ["final"])


def agents() -> list[Any]:
    return [
        af.Agent(Client(), name=name, id=name, require_per_service_call_history_persistence=True)
        for name in ("ann", "ben")  # a handoff needs the last
    ]


def turns(state: Any) -> str:
    return ("ann", "ben")[state.current_round % 2]


def handoff(kept: Any) -> Any:
    first, second = agents()
    return orchestrations.HandoffBuilder(
        name="w",
        participants=[first, second],
        checkpoint_storage=kept,
        termination_condition=lambda messages: len(messages) > 1,
    ).with_start_agent(first)


def simple(builder: Any, **more: Any) -> Callable[[Any], Any]:
    return lambda kept: builder(name="w", participants=agents(), checkpoint_storage=kept, **more)


BUILDERS: dict[str, Callable[[Any], Any]] = {
    "sequential": simple(orchestrations.SequentialBuilder),
    "concurrent": simple(orchestrations.ConcurrentBuilder),
    "group chat": simple(orchestrations.GroupChatBuilder, selection_func=turns, max_rounds=3),
    "handoff": handoff,
    "magentic": simple(orchestrations.MagenticBuilder, manager_factory=Manager),
}


async def orchestrate(build: Callable[[Any], Any], kept: Any) -> Any:
    """Run it, and run it again from each of its checkpoints."""

    async def told(**given: Any) -> list[str]:
        outputs = (await build(kept).build().run(**given)).get_outputs()
        return [getattr(each, "text", str(each)) for each in outputs]

    first = await told(message="hello")
    found = await kept.list_checkpoints(workflow_name="w")
    found.sort(key=lambda each: each.iteration_count)
    return first, [await told(checkpoint_id=each.checkpoint_id) for each in found]


def plays() -> Iterator[tuple[str, Any, Any]]:
    for make in (agent, deep):
        theirs, ours = InMemorySaver(), ledger()
        kept = talk(make, partial(SealedSaver, ours))
        yield make.__name__, talk(make, itertools.repeat(theirs).__next__), kept
    for name, build in BUILDERS.items():
        plain, sealed = af.InMemoryCheckpointStorage(), SealedCheckpointStorage(ledger())
        yield name, asyncio.run(orchestrate(build, plain)), asyncio.run(orchestrate(build, sealed))


if __name__ == "__main__":
    for name, theirs, ours in plays():
        print(name, "the same" if theirs == ours else f"differs: {theirs} {ours}")
