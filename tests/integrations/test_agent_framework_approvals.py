"""SealedCheckpointStorage.ask: an executor pays what people signed, once, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from threading import Thread
from typing import Any

import pytest

from safepoint.core.errors import ApprovalRefused, ConfigurationError
from safepoint.resume.approval import Question
from tests.harness.optional import need
from tests.house import DANA, ERIN
from tests.unit.approval_helpers import MISMATCH

need("agent_framework", "needs safepoint[agent-framework]")

import agent_framework as af
from agent_framework import WorkflowBuilder, WorkflowCheckpoint, WorkflowContext

from safepoint.agent_framework import SealedCheckpointStorage
from tests.integrations.test_approvals import Agents, Pay
from tests.integrations.test_approvals import _wait as run

NAME = "payments 7"


class Each(Pay):
    """Asks for each amount that it is sent."""

    @af.handler
    async def draft_each(self, amounts: list[int], ctx: WorkflowContext) -> None:
        for amount in amounts:
            await self.draft(amount, ctx)


class Office(Agents):
    kind = Each

    def nested(self, *, passed_on: bool = True) -> af.Workflow:
        """Ask in a workflow inside; the one around it shows the request, or takes care of it."""
        storage = self.opened()
        inner = WorkflowBuilder(name="inner", start_executor=Each(self, storage, "inner")).build()
        sub = af.WorkflowExecutor(
            inner, id="sub", allow_direct_output=True, propagate_request=passed_on
        )
        desk = Desk("desk")
        building = WorkflowBuilder(name=NAME, start_executor=sub, checkpoint_storage=storage)
        return building.add_edge(sub, desk).add_edge(desk, sub).build()

    def asked(self, *amounts: int) -> Question:
        run(self.paying().run(list(amounts) or [42]))
        return next(iter(questions(self.latest()).values()))

    def resumed(self, answer: Any, at: WorkflowCheckpoint | None = None, **to: Any) -> list[Any]:
        """Answer in a new process, from what is newest, or from some other checkpoint."""
        at = at or self.latest()
        answers = dict.fromkeys(questions(at), answer)
        workflow = to.get("workflow") or self.paying()
        done: af.WorkflowRunResult
        done = run(workflow.run(checkpoint_id=at.checkpoint_id, responses=answers))
        return done.get_outputs()


class Desk(af.Executor):
    """Takes the requests of a workflow inside, and asks on its behalf."""

    @af.handler
    async def ask(self, asks: af.SubWorkflowRequestMessage, ctx: WorkflowContext) -> None:
        await ctx.request_info(asks, object, request_id="desk")

    @af.response_handler
    async def answer(
        self,
        asks: af.SubWorkflowRequestMessage,
        answer: object,
        ctx: WorkflowContext[af.SubWorkflowResponseMessage],
    ) -> None:
        await ctx.send_message(asks.create_response(answer), target_id=asks.executor_id)


def questions(checkpoint: WorkflowCheckpoint) -> dict[str, Question]:
    return {key: asked.data for key, asked in checkpoint.pending_request_info_events.items()}


def test_an_answer_to_another_question_of_the_same_workflow_pays_nothing() -> None:
    """Of a run beside it that asks for the same, and of the same run before or after."""
    office = Office()
    other, question = office.asked(42), office.asked(42, 42)
    first, second = office.latest().pending_request_info_events
    asked = questions(office.latest())
    assert len({other, *asked.values()}) == 3
    for wrong in (other, asked[second]):
        answers, at = {first: DANA.approve(wrong)}, office.latest().checkpoint_id
        with pytest.raises(ApprovalRefused, match="by dana has "):
            run(office.paying().run(checkpoint_id=at, responses=answers))
    for key in (second, first):  # and each of them in turn, from what is newest by then
        at, yes = office.latest().checkpoint_id, DANA.approve(asked[key])
        run(office.paying().run(checkpoint_id=at, responses={key: yes}))
        if key == second:
            with pytest.raises(ApprovalRefused, match="by dana has "):
                office.resumed(yes)
    assert question == asked[first]
    assert [*office.bank.values()] == [[42], [42]]


def test_after_a_refusal_the_same_process_goes_on_from_the_checkpoint_that_asks() -> None:
    """The framework forgets a request once it was answered, whatever became of that."""
    office = Office()
    for forged in (False, True):
        workflow = office.paying()
        run(workflow.run([42]))
        at = workflow.get_last_checkpoint_id()
        office.asked(7)  # another run, which is the newest now
        ((key, question),) = questions(run(office.opened().load(at or ""))).items()
        answers = {key: DANA.approve(question)}
        if forged:
            with pytest.raises(ApprovalRefused, match="neither a text"):
                run(workflow.run(responses={key: True}))
            with pytest.raises(RuntimeError, match="No pending requests"):
                run(workflow.run(responses=answers))
            assert workflow.get_last_checkpoint_id() == at
        done = run(workflow.run(responses=answers, checkpoint_id=at if forged else None))
        assert done.get_outputs() == ["42 by dana"]


@pytest.mark.parametrize(("amounts", "paid"), [([42], [[42, 42]]), ([42, 7, 5], [[7], [42]])])
def test_two_who_answer_at_once_leave_only_what_is_unanswered(
    amounts: list[int], paid: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one server: the same question, whose payment the bank knows by its key, or one each."""
    office = Office()
    office.asked(*amounts)
    at, one = office.latest(), office.opened()
    monkeypatch.setattr(office, "opened", lambda *_: one)
    (key, question), (other, same) = ([*questions(at).items()] * 2)[:2]
    late, unanswered = office.paying(), questions(at).keys() - {key, other}

    def answer(workflow: af.Workflow, name: str, asked: Question) -> None:
        run(workflow.run(checkpoint_id=at.checkpoint_id, responses={name: DANA.approve(asked)}))

    def meanwhile(_: str) -> None:
        office.during = lambda _: None
        worker = Thread(target=answer, args=(office.paying(), other, same))
        worker.start()
        worker.join()

    office.during = meanwhile
    answer(office.paying(), key, question)
    assert key not in questions(office.latest())
    with pytest.raises(ApprovalRefused, match="continued", check=lambda e: e.kind == "used"):
        answer(late, key, question)
    for name in unanswered:
        with pytest.raises(ApprovalRefused, match="neither a text"):
            run(late.run(responses={name: True}))
    run(late.run([1]))  # which carries on what nobody has answered
    assert questions(office.latest()).keys() & {key, *unanswered} == unanswered
    assert [*office.bank.values()] == paid


def test_an_older_checkpoint_cannot_spend_again() -> None:
    """It asks as it did; or it comes from before the question, and asks another one."""
    office = Office()
    question = office.asked()
    paused, yes = office.latest(), DANA.approve(question)
    office.resumed(yes)
    office.asked(7)  # another run, beside it
    office.bank.clear()
    for answer in (yes, ERIN.approve(question)):
        with pytest.raises(ApprovalRefused, match="continued", check=lambda e: e.kind == "used"):
            office.resumed(answer, paused)
    run(office.paying().run(checkpoint_id=paused.previous_checkpoint_id))
    assert questions(office.latest()) != questions(paused)
    with pytest.raises(ApprovalRefused, match="by dana has "):
        office.resumed(yes)
    assert not office.bank


def test_a_request_that_was_cancelled_or_deleted_is_not_answered_any_more() -> None:
    office = Office()
    question = office.asked()
    paused, workflow = office.latest(), office.paying()
    at, asked = paused.checkpoint_id, [*questions(paused)]
    run(workflow.cancel_pending_requests(asked, checkpoint_id=at))
    with pytest.raises(ApprovalRefused, match="continued", check=lambda e: e.kind == "moved"):
        office.resumed(DANA.approve(question), paused)
    question = office.asked()
    paused, workflow = office.latest(), office.paying()
    run(workflow.run(checkpoint_id=paused.checkpoint_id))
    run(office.opened().delete(paused.checkpoint_id))
    for left in run(office.opened().list_checkpoints(workflow_name=NAME)):
        if questions(left):
            run(office.opened().delete(left.checkpoint_id))
    with pytest.raises(ApprovalRefused, match="No checkpoint of the workflow 'payments 7' has"):
        run(workflow.run(responses=dict.fromkeys(questions(paused), DANA.approve(question))))
    assert not office.bank


@pytest.mark.parametrize("passed_on", [True, False], ids=["shown", "taken care of"])
def test_a_workflow_inside_of_another_asks_too(passed_on: bool) -> None:
    office = Office()

    def build() -> af.Workflow:
        return office.nested(passed_on=passed_on)

    run(build().run([42]))
    paused = office.latest()
    asked: Any = next(iter(questions(paused).values()))
    question: Question = asked if passed_on else asked.source_event.data
    assert question.next == "inner"
    with pytest.raises(ApprovalRefused, match="neither a text"):
        office.resumed(True, paused, workflow=build())
    office.dies = True
    yes = DANA.approve(question)
    with pytest.raises(MemoryError):
        office.resumed(yes, paused, workflow=build())
    office.dies = False
    assert office.resumed(yes, paused, workflow=build()) == ["42 by dana"]
    with pytest.raises(ApprovalRefused, match="The run continued"):
        office.resumed(yes, paused, workflow=build())
    assert [*office.bank.values()] == [[42, 42]]


def test_a_thief_of_the_writers_key_cannot_plant_a_request() -> None:
    office = Office()
    question, refund = office.asked(), office.asked(1)
    paused, ledger = office.latest(), office.opened().ledger
    yes, other = DANA.approve(question), replace(question, arguments={"amount": 1})

    def planted(asked: Question, executor: str = "pay") -> WorkflowCheckpoint:
        """Save what the thief made of the pending request."""
        event = af.WorkflowEvent.request_info(asked.scope, executor, asked, object)
        made = replace(paused, checkpoint_id=f"{ledger.latest(question.thread).sequence}")
        made = replace(made, pending_request_info_events={asked.scope: event})
        run(office.opened().save(made))
        return made

    for changed, error in (
        (other, MISMATCH),  # dana was asked something else
        (replace(question, next="refund"), MISMATCH),  # it is for another executor
        (replace(question, thread="refunds"), MISMATCH),
        (replace(question, store="other"), MISMATCH),
    ):
        for answer in (yes, DANA.approve(changed)):
            if changed is not other or answer is yes:  # what she does sign is what is paid
                with pytest.raises(ApprovalRefused, match=error):
                    office.resumed(answer, planted(changed))
    assert not office.bank
    assert office.resumed(yes, planted(question)) == ["42 by dana"]
    for again in (planted(question), planted(refund)):
        with pytest.raises(ApprovalRefused, match=r"The run continued from|by dana has "):
            office.resumed(yes, again)
    assert [*office.bank.values()] == [[42]]


class Unasked(af.Executor):
    """Has no handler for what people answer."""

    storage: Any = None

    @af.handler
    async def draft(self, amounts: list[int], ctx: WorkflowContext) -> None:
        await self.storage.ask(self, ctx, "pay", {})


def test_what_cannot_be_answered_is_not_asked() -> None:
    office = Office()
    loose = SealedCheckpointStorage(office.opened().ledger, gate=office.gate)
    unasked = Unasked("unasked")
    unasked.storage = office.opened()
    for start, storage, what in (
        (Each(office, loose), loose, "this storage is for any workflow"),
        (unasked, office.opened(), "has no handler for what they answer"),
        (
            Each(office, Office().opened()),
            None,
            "no checkpoint of the workflow 'payments 7' is saved",
        ),
    ):
        building = WorkflowBuilder(
            name=NAME, start_executor=start, checkpoint_storage=storage
        ).build()
        with pytest.raises(ConfigurationError, match=what):
            run(building.run([42]))


def test_what_is_open_is_not_carried_on_for_ever() -> None:
    """Nor kept in memory: of a question, only its id."""
    office = Office()
    workflow, asked = office.paying(), list[str]()
    for _ in range(20):
        done = run(workflow.run([42]))
        asked.append(done.get_request_info_events()[-1].request_id)
        with pytest.raises(ApprovalRefused, match="neither a text"):
            run(workflow.run(responses={asked[-1]: True}))
    run(workflow.run([7]))
    waiting = [name for name in questions(office.latest()) if name in asked]
    assert waiting == asked[-16:]
