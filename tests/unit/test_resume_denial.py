"""A no: what it ends, what it leaves alone, and who is told of it."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import pytest

from safepoint import (
    AnchorUnavailable,
    ApprovalNeeded,
    ApprovalSpent,
    Approver,
    Approvers,
    Gate,
    Migration,
    ResumeRefused,
    Tool,
    Workflow,
    WorkflowError,
)
from tests.unit.desk import (
    BANK,
    DANA,
    ERIN,
    Desk,
    State,
    Stuck,
    refused,
    yes,
)


def test_a_paused_run_takes_no_step_and_is_not_resumed_without_an_answer(desk: Desk) -> None:
    run = desk.paused()
    assert refused(ApprovalNeeded, run.step) == (
        "order-7 waits for people at #3. Show them run.question, and pass what they sign:"
        " resume(..., approvals=[text])."
    )
    assert refused(ApprovalNeeded, lambda: desk.workflow().resume(desk.ledger(), "order-7")) == (
        "order-7 #3 needs the approval of one person. The run paused at #3 for a person's answer."
        " Show them this error's question, and pass what they sign: resume(..., approvals=[text])."
    )
    assert desk.paid == []


def test_a_denied_run_ends_and_stays_ended(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    no = Approver("erin", ERIN).deny(question)
    run = desk.workflow().resume(desk.ledger(), "order-7", approvals=[no])
    assert (run.denied, run.next, run.head) == (True, None, 4)
    assert refused(WorkflowError, run.step) == (
        "order-7 was denied. Start a new thread to run it again."
    )
    assert desk.workflow().resume(desk.ledger(), "order-7").denied
    newer = desk.workflow(version="2", migrations=[Migration("1", "2", dict)])
    assert newer.resume(desk.ledger(), "order-7").denied
    assert "dana answered about order-7 #3" in refused(
        ApprovalSpent,
        lambda: desk.workflow().resume(desk.ledger(), "order-7", approvals=[yes(question)]),
    )
    assert desk.paid == []


def test_one_denial_outweighs_any_number_of_approvals(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    answers = [yes(question), Approver("erin", ERIN).deny(question)]
    assert desk.workflow().resume(desk.ledger(), "order-7", approvals=answers).denied
    assert desk.paid == []


def test_a_denied_run_stays_denied_when_the_deniers_key_is_revoked(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    no = Approver("erin", ERIN).deny(question)
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[no])
    people = Approvers({"dana": DANA.public, "erin": ERIN.public}, revoked=[ERIN.public])
    assert desk.workflow(gate=Gate(approvers=people)).resume(desk.ledger(), "order-7").denied


def test_a_denied_run_is_not_captured(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    no = Approver("erin", ERIN).deny(question)
    run = desk.workflow().resume(desk.ledger(), "order-7", approvals=[no])
    assert refused(WorkflowError, run.capture) == (
        "order-7 was denied. There is nothing to capture."
    )


def test_a_finished_run_carries_no_approval_on(desk: Desk) -> None:
    text = yes(desk.paused().question)
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[text])
    assert "approved" not in desk.ledger().latest("order-7").state
    newer = desk.workflow(version="2", migrations=[Migration("1", "2", dict)])
    assert newer.resume(desk.ledger(), "order-7").next is None


def test_whoever_goes_back_past_a_denial_is_told_of_it(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    no = Approver("erin", ERIN).deny(question)
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[no])
    back = desk.workflow().question(desk.ledger(), "order-7", 3)
    assert back is not None
    assert "detail: erin denied it at #4." in back.described


def test_a_no_to_something_else_leaves_the_run_as_it_is(desk: Desk) -> None:
    text = yes(desk.paused().question)
    workflow = desk.workflow()
    workflow.resume(desk.ledger(), "order-7", approvals=[text])
    before = desk.ledger().latest("order-7")
    wider = desk.workflow(tools=[BANK, Tool("mail")])
    for resumed, sequence in ((workflow, 1), (workflow, 3), (wider, 4)):
        question = resumed.question(desk.ledger(), "order-7", sequence)
        assert question is not None
        no = Approver("erin", ERIN).deny(question)
        shown = f"order-7 #{sequence}"
        act = partial(resumed.resume, desk.ledger(), "order-7", sequence, approvals=[no])
        assert refused(ResumeRefused, act) == (
            f"erin denied it: {shown} is not resumed. The run stays as it was. Ask again only if"
            " something has changed."
        )
        assert desk.told()[-2].startswith("deny done")
    assert desk.ledger().latest("order-7") == before


def test_a_no_to_wider_tools_of_a_run_that_goes_on_leaves_it_alone(desk: Desk) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7").step()
    wider = desk.workflow(tools=[BANK, Tool("mail")])
    question = wider.question(desk.ledger(), "order-7")
    assert question is not None
    no = Approver("erin", ERIN).deny(question)
    refused(ResumeRefused, partial(wider.resume, desk.ledger(), "order-7", approvals=[no]))
    assert desk.workflow().resume(desk.ledger(), "order-7").paused


def test_a_no_keeps_the_state_and_the_tools_of_the_run(desk: Desk) -> None:
    paused = desk.paused()
    wider = desk.workflow(tools=[BANK, Tool("mail")])
    question = wider.question(desk.ledger(), "order-7")
    assert question is not None
    run = wider.resume(desk.ledger(), "order-7", approvals=[Approver("erin", ERIN).deny(question)])
    assert run.denied
    ended = desk.ledger().latest("order-7")
    assert ended.state["state"] == paused.state
    assert (ended.app, ended.tools) == ("invoice@1", desk.workflow().tools.digest)
    assert desk.told()[-2:] == ["deny done #3", "resume refused #4"]
    assert not [line for line in desk.told() if line.startswith("migrate")]


def test_nobody_goes_back_to_a_denial(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    no = Approver("erin", ERIN).deny(question)
    workflow = desk.workflow()
    workflow.resume(desk.ledger(), "order-7", approvals=[no])
    back = workflow.question(desk.ledger(), "order-7", 3)
    workflow.rehydrate(desk.ledger(), "order-7", 3, approvals=[yes(back)])
    assert refused(ResumeRefused, lambda: workflow.question(desk.ledger(), "order-7", 4)) == (
        "order-7 #4 is a denial, so nothing goes on from there. Name a checkpoint before it."
    )
    assert workflow.resume(desk.ledger(), "order-7").state["paid"] == Decimal("42.00")


def test_a_run_that_does_not_know_whether_it_was_captured_takes_no_step(desk: Desk) -> None:
    desk.anchor = anchor = Stuck()
    ran: list[str] = []

    def act(state: State) -> None:
        ran.append("act")

    run = Workflow("plain", [act]).begin(desk.ledger(), thread="plain")
    anchor.stuck = True
    with pytest.raises(AnchorUnavailable, match="is saved, but not anchored"):
        run.step()
    assert refused(WorkflowError, run.step) == (
        "plain may or may not be captured after #1. Resume it: what is saved tells how far it came."
    )
    anchor.stuck = False
    assert Workflow("plain", [act]).resume(desk.ledger(), "plain").next is None
    assert ran == ["act"]
