"""The sealed storage under real workflows of Agent Framework, and under attack from outside."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from tests.harness.optional import need
from tests.house import Memory, ledger_in, opened

need("agent_framework", "needs safepoint[agent-framework]")

import agent_framework as af
from agent_framework import WorkflowBuilder, WorkflowCheckpoint, WorkflowContext
from pydantic import BaseModel

from safepoint.agent_framework import NotCheckpointed, SealedCheckpointStorage
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    DecodeError,
    EncodeError,
    MissingPackage,
    Unavailable,
)


class Colour(Enum):
    RED = "red"


class Line(BaseModel):
    text: str
    cents: int


@dataclass
class Question:
    payee: str
    amount: int


@dataclass
class Answer:
    yes: bool


@dataclass
class Unlisted:
    amount: int


TYPES = [Colour, Line, Question, Answer]
NAMES = [f"{cls.__module__}:{cls.__qualname__}" for cls in TYPES]


# --- workflows, each built anew as a restarted process builds it


class Keeps(af.Executor):
    """Has something of its own in each checkpoint."""

    kept: Any = 0

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"kept": self.kept}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.kept = state["kept"]


class Ask(Keeps):
    """Asks a person, and remembers how often it asked."""

    @af.handler
    async def begin(self, amount: int, ctx: WorkflowContext) -> None:
        self.kept += 1
        ctx.set_state("draft", {"colour": Colour.RED, "lines": (Line(text="tea", cents=amount),)})
        await ctx.request_info(Question("alice", amount), Answer, request_id=f"{self.id}-1")

    @af.response_handler
    async def answered(
        self, question: Question, answer: Answer, ctx: WorkflowContext[str, str]
    ) -> None:
        draft = ctx.get_state("draft")
        said = f"{self.id} {self.kept} {question.payee} {question.amount} {answer.yes} {draft}"
        await ctx.yield_output(said)


def human(storage: Any) -> af.Workflow:
    return WorkflowBuilder(
        name="human", start_executor=Ask("ask"), checkpoint_storage=storage
    ).build()


def nested(storage: Any) -> af.Workflow:
    inner = WorkflowBuilder(name="inner", start_executor=Ask("inner-ask")).build()
    sub = af.WorkflowExecutor(inner, id="sub", propagate_request=True)
    return (
        WorkflowBuilder(name="nested", start_executor=sub, checkpoint_storage=storage)
        .add_edge(sub, Echo("echo"))
        .build()
    )


class Echo(af.Executor):
    @af.handler
    async def echo(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"{self.id}: {text}")


class Spread(af.Executor):
    @af.handler
    async def spread(self, amount: int, ctx: WorkflowContext[Question]) -> None:
        await ctx.send_message(Question("alice", amount))


class Half(af.Executor):
    @af.handler
    async def half(self, question: Question, ctx: WorkflowContext[Line]) -> None:
        await ctx.send_message(Line(text=self.id, cents=question.amount // 2))


class Gather(af.Executor):
    @af.handler
    async def gather(self, lines: list[Line], ctx: WorkflowContext[None, str]) -> None:
        await ctx.yield_output(" + ".join(f"{line.text} {line.cents}" for line in lines))


def fan_out(storage: Any) -> af.Workflow:
    spread, gather = Spread("spread"), Gather("gather")
    halves = [Half("z"), Half("m"), Half("a")]
    return (
        WorkflowBuilder(name="fan-out", start_executor=spread, checkpoint_storage=storage)
        .add_fan_out_edges(spread, halves)
        .add_fan_in_edges(halves, gather)
        .build()
    )


CALL = af.Content.from_function_call("call-1", "refund", arguments={"cents": 42}, id="call-1")
APPROVED = af.Content.from_function_approval_response(True, "call-1", CALL)


@af.tool(approval_mode="always_require")
def refund(cents: int) -> str:
    return f"refunded {cents}"


class Model(af.FunctionInvocationLayer[Any], af.BaseChatClient[Any]):
    """Stands in for a model: calls the tool that it has once, and says how much it heard."""

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        heard = [content for message in messages for content in message.contents]
        results = [content.result for content in heard if content.type == "function_result"]
        said = af.Content.from_text(f"{len(heard)} heard, {messages[-1].text} {results}")

        async def updates() -> AsyncIterator[af.ChatResponseUpdate]:
            calls = options.get("tools") and not results
            yield af.ChatResponseUpdate(contents=[CALL if calls else said], role="assistant")

        answer = self._build_response_stream(updates())
        return answer if stream else answer.get_final_response()


def pair(storage: Any, *tools: Any) -> af.Workflow:
    first = af.AgentExecutor(af.Agent(Model(), name="first", tools=tools))
    building = WorkflowBuilder(name="pair", start_executor=first, checkpoint_storage=storage)
    return building.add_edge(first, af.Agent(Model(), name="second")).build()


class Review(Keeps):
    """Asks a person about each draft of an agent, which writes another one until the yes."""

    @af.handler
    async def review(self, got: af.AgentExecutorResponse, ctx: WorkflowContext) -> None:
        self.kept += 1
        draft = Question(got.agent_response.text, self.kept)
        await ctx.request_info(draft, str, request_id=f"review-{self.kept}")

    @af.response_handler
    async def reviewed(
        self, draft: Question, said: str, ctx: WorkflowContext[af.AgentExecutorRequest, str]
    ) -> None:
        if said == "yes":
            await ctx.yield_output(f"{draft} {self.kept}")
        else:
            await ctx.send_message(af.AgentExecutorRequest([af.Message("user", [said])]))


def reviewed(storage: Any) -> af.Workflow:
    review, writer = Review("review"), af.AgentExecutor(af.Agent(Model(), name="writer"))
    building = WorkflowBuilder(name="reviewed", start_executor=writer, checkpoint_storage=storage)
    return building.add_edge(review, writer).add_edge(writer, review).build()


class Takes(Keeps, Echo):
    """Takes the question of a workflow inside, and asks it itself."""

    @af.handler
    async def take(self, asks: af.SubWorkflowRequestMessage, ctx: WorkflowContext) -> None:
        self.kept = {"alice": asks}
        await ctx.request_info(asks.source_event.data, Answer, request_id="taken-1")

    @af.response_handler
    async def give(
        self, asked: Question, answer: Answer, ctx: WorkflowContext[af.SubWorkflowResponseMessage]
    ) -> None:
        await ctx.send_message(self.kept.pop(asked.payee).create_response(answer))


def taken(storage: Any) -> af.Workflow:
    inner = WorkflowBuilder(name="inner", start_executor=Ask("inner-ask")).build()
    sub, takes = af.WorkflowExecutor(inner, id="sub"), Takes("takes")
    building = WorkflowBuilder(name="taken", start_executor=sub, checkpoint_storage=storage)
    return building.add_edge(sub, takes).add_edge(takes, sub).build()


Build = Callable[[Any], af.Workflow]
WORKFLOWS: dict[str, tuple[Build, Any, dict[str, Any]]] = {
    "human": (human, 42, {"ask-1": Answer(yes=True)}),
    "nested": (nested, 42, {"inner-ask-1": Answer(yes=True)}),
    "fan-out": (fan_out, 42, {}),
    # As in the framework's samples checkpoint_with_human_in_the_loop, sub_workflow_checkpoint,
    # and handoff_with_tool_approval_checkpoint_resume.
    "reviewed": (reviewed, "tea", {"review-1": "shorter", "review-2": "yes"}),
    "taken": (taken, 42, {"taken-1": Answer(yes=True)}),
    "tool": (lambda storage: pair(storage, refund), "refund me", {"call-1": APPROVED}),
}


def sealed(folder: Path, types: Any = TYPES) -> SealedCheckpointStorage:
    """Open the store as a new process would."""
    return SealedCheckpointStorage(ledger_in(folder, "sqlite"), types=types)


def files(folder: Path) -> Any:
    return af.FileCheckpointStorage(folder / "af", allowed_checkpoint_types=NAMES)


def said_by(run: af.WorkflowRunResult) -> list[str]:
    return [*map(str, run.get_outputs()), str(run.get_final_state())]


async def story(build: Build, given: Any, responses: Any, opened: Callable[[], Any]) -> list[Any]:
    """Run to the end or the question, then resume at each checkpoint there is, in new instances."""
    name = build(None).name
    paused = await build(opened()).run(given)
    said: list[Any] = [said_by(paused)]
    storage = opened()
    held = await storage.list_checkpoints(workflow_name=name)
    held.sort(key=lambda each: each.timestamp)
    said.append([(one.iteration_count, sorted(one.pending_request_info_events)) for one in held])
    latest = await storage.get_latest(workflow_name=name)
    assert latest.checkpoint_id == held[-1].checkpoint_id
    for one in held:
        storage = opened()
        workflow, asked = build(storage), one.pending_request_info_events
        wanted = {key: responses[key] for key in asked}
        done = await workflow.run(checkpoint_id=one.checkpoint_id, responses=wanted or None)
        said.append(said_by(done))
        while events := done.get_request_info_events():
            wanted = {event.request_id: responses[event.request_id] for event in events}
            done = await workflow.run(responses=wanted)
            said.append(said_by(done))
    assert sorted(await storage.list_checkpoint_ids(workflow_name=name)) == sorted(
        one.checkpoint_id for one in await storage.list_checkpoints(workflow_name=name)
    )
    return said


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_does_the_same_with_the_sealed_storage_as_with_those_of_the_framework(
    name: str, tmp_path: Path
) -> None:
    build, given, responses = WORKFLOWS[name]
    memory = af.InMemoryCheckpointStorage()
    want = asyncio.run(story(build, given, responses, lambda: memory))
    assert any(len(said) > 1 for said in (want[0], *want[2:]))  # more than its state
    assert asyncio.run(story(build, given, responses, lambda: files(tmp_path))) == want
    assert asyncio.run(story(build, given, responses, lambda: sealed(tmp_path))) == want


def run(awaitable: Awaitable[Any]) -> Any:
    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait())


def point(workflow: str, key: str, **state: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(workflow, "graph", checkpoint_id=key, state=state)


def test_without_the_framework_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "agent_framework", None)
    monkeypatch.delitem(sys.modules, "safepoint.agent_framework")
    with pytest.raises(MissingPackage, match=r"pip install '\.\[agent-framework\]'"):
        importlib.import_module("safepoint.agent_framework")


# --- what cannot be saved


class Gone(af.InMemoryCheckpointStorage):
    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        raise OSError("no space left")


class Full(Memory):
    def append(self, *_: Any, **__: Any) -> None:
        raise Unavailable("The disk is gone.", "Mend it.")


def test_the_framework_goes_on_after_a_failed_save_and_with_us_the_run_stops() -> None:
    done = run(fan_out(Gone()).run(42))
    assert done.get_outputs() == ["z 21 + m 21 + a 21"]  # and no checkpoint of it

    unlisted = SealedCheckpointStorage(opened(Memory()))
    with pytest.raises(NotCheckpointed, match=r"types=\[Question\]") as stopped:
        run(fan_out(unlisted).run(42))
    assert type(stopped.value.__cause__) is EncodeError
    assert not isinstance(stopped.value, Exception)
    with pytest.raises(NotCheckpointed, match=r"The disk is gone\.") as stopped:
        run(fan_out(SealedCheckpointStorage(opened(Full()), types=TYPES)).run(42))
    assert isinstance(stopped.value.__cause__, CheckpointError)


def asks(data: Any, response: Any) -> WorkflowCheckpoint:
    event = af.WorkflowEvent.request_info("r", "ask", data, response)
    return WorkflowCheckpoint("payments", "graph", pending_request_info_events={"r": event})


class OwnMessage(af.Message):
    pass


REGISTERED = "Register it: types=[Unlisted]."
MESSAGE = af.Message("user", ["hi"], additional_properties={"x": Unlisted(1)})
REFUSED: dict[str, tuple[Any, str, str]] = {
    "state": (
        point("p", "1", a=[Unlisted(1)]),
        "state['state']['a'][0] is of the type",
        REGISTERED,
    ),
    "in a message": (
        point("p", "1", m=MESSAGE),
        "state['state']['m']['additional_properties']['x'] is of the type",
        REGISTERED,
    ),
    "own message": (
        point("p", "1", m=OwnMessage("user", ["hi"])),
        "OwnMessage",
        "Save plain values",
    ),
    "request": (asks(Unlisted(1), bool), "['r']['request_data'] is of the type", REGISTERED),
    "answer": (asks("pay?", Unlisted), "['r'] is a request for an answer of the type", REGISTERED),
    "either": (asks("pay?", bool | None), "['r'] is a request for an answer", "Ask for one type"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_not_come_back_is_refused_at_save_with_its_place_and_the_line_to_write(
    name: str,
) -> None:
    checkpoint, where, do = REFUSED[name]
    storage = SealedCheckpointStorage(opened(Memory()), types=TYPES)
    with pytest.raises(NotCheckpointed) as stopped:
        run(storage.save(checkpoint))
    refused = stopped.value.__cause__
    assert isinstance(refused, EncodeError)
    assert where in refused.what
    assert refused.do.startswith(do)
    assert storage.ledger.threads() == []


def test_an_answer_is_still_expected_to_be_of_the_type_that_was_asked_for(tmp_path: Path) -> None:
    """Or a list of something else would be taken, and lost."""
    for expected in (bool, list[str], dict[str, list[Answer]], tuple[int, ...], dict[str, Any]):
        run(sealed(tmp_path).save(asks("pay?", expected)))
        latest = run(sealed(tmp_path).get_latest(workflow_name="payments"))
        assert latest.pending_request_info_events["r"].response_type == expected
    plain: Any = {"a": [{"data": 1, "source_id": "a"}]}  # as an application may build it
    run(sealed(tmp_path).save(WorkflowCheckpoint("plain", "graph", messages=plain)))
    assert run(sealed(tmp_path).get_latest(workflow_name="plain")).messages == plain
    blank = WorkflowCheckpoint("payments", "graph", timestamp="")
    run(sealed(tmp_path).save(blank))
    assert run(sealed(tmp_path).load(blank.checkpoint_id)) == blank


def test_a_type_that_is_not_listed_any_more_is_not_built(tmp_path: Path) -> None:
    run(sealed(tmp_path).save(point("payments", "1", q=Question("alice", 42))))
    with pytest.raises(DecodeError, match="the tag 'Question'"):
        run(sealed(tmp_path, types=[]).get_latest(workflow_name="payments"))
    with pytest.raises(ConfigurationError, match="or is known already"):
        sealed(tmp_path, types=[Question, type("Question", (Answer,), {})])


# --- ids, deletes, scopes


def test_deleted_ones_are_gone_for_every_reader_and_an_id_can_come_back(tmp_path: Path) -> None:
    async def main() -> None:
        storage, name = sealed(tmp_path), "Payments of 2026"
        for key in ("a", "b", "Ω" * 99):
            await storage.save(point(name, key, at=key))
        assert await storage.delete("Ω" * 99)
        storage = sealed(tmp_path)
        assert not await storage.delete("Ω" * 99)
        latest = await storage.get_latest(workflow_name=name)
        assert latest is not None
        assert latest.checkpoint_id == "b"
        assert await storage.delete("a")
        assert await storage.list_checkpoint_ids(workflow_name=name) == ["b"]
        with pytest.raises(af.WorkflowCheckpointException, match="No checkpoint has the id 'a'"):
            await storage.load("a")
        await storage.save(point(name, "a", at="new"))
        await storage.save(point(name, "Ω" * 99))
        assert (await storage.load("a")).state == {"at": "new"}
        assert await storage.list_checkpoint_ids(workflow_name=name) == ["b", "a", "Ω" * 99]
        listed = await storage.list_checkpoints(workflow_name=name)
        assert [one.checkpoint_id for one in listed] == ["b", "a", "Ω" * 99]
        assert await storage.get_latest(workflow_name="payments") is None
        assert await storage.list_checkpoints(workflow_name="payments") == []

    run(main())


def test_a_scope_finds_and_saves_what_is_of_its_workflow_alone(tmp_path: Path) -> None:
    async def main() -> None:
        storage = sealed(tmp_path)
        await storage.save(point("acme", "1"))
        await storage.save(point("globex", "2"))
        assert (await storage.load("1")).workflow_name == "acme"
        globex = storage.scope("globex")
        assert (await globex.load("2")).workflow_name == "globex"
        with pytest.raises(af.WorkflowCheckpointException, match="No checkpoint has the id '1'"):
            await globex.load("1")
        assert not await globex.delete("1")
        with pytest.raises(af.WorkflowCheckpointException, match="No checkpoint has the id '1'"):
            await storage.scope("").load("1")  # which is a name like any other
        with pytest.raises(NotCheckpointed, match="belongs to the workflow 'globex'"):
            await globex.save(point("acme", "3"))
        with pytest.raises(CheckpointError):
            await globex.get_latest(workflow_name="acme")

    run(main())
