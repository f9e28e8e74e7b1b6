"""What whoever holds the writer's key, or a step itself, cannot do to an approval."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from safepoint import (
    ApprovalMalformed,
    ApprovalMismatch,
    ApprovalNeeded,
    ApprovalUntrusted,
    Approver,
    Ask,
    Call,
    KeyRefused,
    SigningKey,
    Workflow,
    WorkflowError,
)
from tests.unit.desk import (
    DANA,
    ERIN,
    Desk,
    State,
    refused,
    yes,
)


@pytest.mark.parametrize("forged", ["app", "tools", "done", "action"])
def test_a_thief_of_the_writers_key_cannot_use_an_approval_for_something_else(
    desk: Desk, forged: str
) -> None:
    """Genuine, unspent, and about the very record before: and still of something else."""
    workflow = desk.workflow()
    question = desk.paused().question
    assert question is not None
    thief = desk.ledger()
    latest = thief.latest("order-7")
    payload = {key: value for key, value in latest.state.items() if key != "asked"}
    app, tools = latest.app, latest.tools
    signed = question
    if forged == "app":
        signed = replace(question, app="quote@1")
    elif forged == "tools":
        signed = replace(question, tools="sha256:" + "0" * 64)
    elif forged == "action":
        signed = replace(question, action="send-quote", arguments={"amount": 5_000_000})
    else:
        payload["done"] = ["fetch"]  # so that another step comes next
    forgery = {**payload, "approved": [yes(signed)]}
    thief.save("order-7", forgery, app=app, tools=tools)
    refused(ApprovalMismatch, lambda: workflow.resume(desk.ledger(), "order-7"))
    assert desk.paid == []


def test_the_writers_key_is_no_approvers_key(desk: Desk) -> None:
    with pytest.raises(KeyRefused, match="of the approver dana is on the keyring of the ledger"):
        desk.workflow().start(desk.ledger(DANA), thread="order-7")
    assert desk.ledger(DANA).latest("order-7").sequence == 2  # it did not pause
    with pytest.raises(KeyRefused):
        desk.workflow().resume(desk.ledger(DANA), "order-7")
    assert desk.told()[-1] == "resume refused #-"


def test_a_thief_of_the_writers_key_cannot_say_what_a_person_approved(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    thief = desk.ledger()
    saved = thief.latest("order-7").state
    del saved["asked"]
    forged = SigningKey.generate("ed25519")
    for statement, error in (
        (yes(question, forged, "dana"), ApprovalUntrusted),
        (yes(desk.paused("order-8").question), ApprovalMismatch),
        (Approver("dana", DANA).deny(question), ApprovalMismatch),
    ):
        latest = thief.latest("order-7")
        thief.save(
            "order-7",
            {**saved, "approved": [statement]},
            app="invoice@1",
            tools=latest.tools,
        )
        refused(error, lambda: desk.workflow().resume(desk.ledger(), "order-7"))
    assert desk.paid == []


@pytest.mark.parametrize("keep", [(), ("resumed",), ("resumed", "origin")])
def test_a_thief_of_the_writers_key_cannot_use_a_spent_approval_again(
    desk: Desk, keep: tuple[str, ...]
) -> None:
    """A copy of the record that spent it follows another record than the one it is about."""
    text = yes(desk.paused().question)
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    thief = desk.ledger()
    spent = thief.latest("order-7")
    copied = {k: v for k, v in spent.state.items() if k not in {"resumed", "origin"} - set(keep)}
    thief.save("order-7", copied, app=spent.app, tools=spent.tools)
    assert refused(ApprovalMismatch, lambda: desk.workflow().resume(desk.ledger(), "order-7")) == (
        "order-7 #5 goes on from an approval of something else. Whoever wrote it had the writer's"
        " key. Do not use it; replace that key."
    )
    assert desk.paid == []


def test_a_step_that_nobody_was_asked_about_gets_no_approval(desk: Desk) -> None:
    thief = desk.ledger()
    desk.paused()
    saved = thief.latest("order-7")
    del saved.state["asked"]  # the pause is left out
    thief.save("order-7", saved.state, app=saved.app, tools=saved.tools)
    with pytest.raises(WorkflowError) as refusal:
        desk.workflow().resume(desk.ledger(), "order-7")
    assert str(refusal.value) == (
        "Nobody was asked to approve the step pay. Let the step right before it return an Ask."
    )
    assert desk.paid == []


def test_a_denial_that_nobody_signed_ends_nothing(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    thief = desk.ledger()
    saved = thief.latest("order-7").state
    asked = saved.pop("asked")
    other = desk.paused("order-8").question
    assert other is not None
    for text, error in (
        ("nobody signed this", ApprovalMalformed),
        (Approver("erin", ERIN).deny(other), ApprovalMismatch),
        (yes(question), ApprovalMismatch),
    ):
        thief.save(
            "order-7",
            {**saved, "denied": text},
            app="invoice@1",
            tools=thief.latest("order-7").tools,
        )
        refused(error, lambda: desk.workflow().resume(desk.ledger(), "order-7"))
    assert asked["action"] == "pay"


def test_a_step_cannot_change_what_was_signed(desk: Desk) -> None:
    seen: list[Any] = []

    def pay(state: State, call: Call) -> None:
        call.approved.arguments["payee"] = "mally"
        seen.append(call.approved.arguments["payee"])

    def ask(state: State) -> Ask:
        return Ask("pay", {"payee": "alice"})

    workflow = Workflow("invoice", [ask, pay], gate=desk.workflow().gate)
    question = workflow.start(desk.ledger(), thread="order-7").question
    workflow.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    assert seen == ["alice"]


@pytest.mark.parametrize("which", ["fewer people", "two questions", "not asked"])
def test_what_a_thief_puts_together_from_genuine_approvals_is_refused(
    desk: Desk, which: str
) -> None:
    """Each text is genuine, and about the very record before: only together they are not enough."""
    workflow = desk.workflow(people=2)
    question = workflow.start(desk.ledger(), thread="order-7").question
    assert question is not None
    other = replace(question, arguments={"amount": 1})
    back = replace(question, reasons=("old-checkpoint",), action="", arguments={})
    texts, error = {
        "fewer people": ([yes(question)], ApprovalNeeded),
        "two questions": ([yes(question), yes(other, ERIN, "erin")], ApprovalMismatch),
        "not asked": ([yes(back), yes(back, ERIN, "erin")], ApprovalMismatch),
    }[which]
    thief = desk.ledger()
    latest = thief.latest("order-7")
    del latest.state["asked"]
    forged = {**latest.state, "approved": texts}
    thief.save("order-7", forged, app=latest.app, tools=latest.tools)
    refused(error, lambda: workflow.resume(desk.ledger(), "order-7"))
    assert desk.paid == []


def test_a_field_of_the_state_is_no_approval(desk: Desk) -> None:
    def ask(state: State) -> Ask:
        return Ask("pay", {"amount": 42}, changes={"approved": True})

    def pay(state: State, call: Call) -> State:
        return {"paid": call.was_approved and state["approved"]}

    workflow = Workflow("invoice", [ask, pay], gate=desk.workflow().gate)
    workflow.start(desk.ledger(), thread="order-7")
    refused(ApprovalNeeded, lambda: workflow.resume(desk.ledger(), "order-7"))
