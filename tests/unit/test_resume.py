"""Resuming as a privileged operation: what goes on by itself, and what people approve."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial

import pytest

from safepoint import (
    ApprovalExpired,
    ApprovalMismatch,
    ApprovalNeeded,
    ApprovalSpent,
    Approver,
    Approvers,
    Ask,
    Call,
    ConfigurationError,
    Conflict,
    Gate,
    JournalUnavailable,
    Migration,
    Policy,
    Reason,
    ResumeRefused,
    SealBroken,
    Tool,
    ToolSet,
    Workflow,
    WorkflowError,
)
from tests.unit.desk import (
    BANK,
    DANA,
    ERIN,
    Desk,
    FullDisk,
    State,
    fee,
    refused,
    yes,
)


def test_a_step_that_asks_lets_the_run_pause_and_be_captured(desk: Desk) -> None:
    run = desk.paused()
    assert (run.paused, run.next, run.head, run.denied) == (True, "pay", 3, False)
    assert desk.paid == []
    assert desk.ledger().latest("order-7").state["asked"] == {
        "action": "pay",
        "arguments": {"amount": Decimal("42.00"), "payee": "alice"},
    }
    assert "paused" in repr(run)


def test_the_question_is_the_same_for_the_run_the_error_and_another_process(desk: Desk) -> None:
    run = desk.paused()
    with pytest.raises(ApprovalNeeded) as refusal:
        desk.workflow().resume(desk.ledger(), "order-7")
    assert run.question == refusal.value.question
    assert run.question == desk.workflow().question(desk.ledger(), "order-7")


def test_an_approved_run_goes_on_with_what_was_signed(desk: Desk) -> None:
    question = desk.paused().question
    run = desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[yes(question)])
    assert run.approved is not None
    assert run.approved.by == ("dana",)
    assert "42" not in repr(run.approved)
    run = run.finish()
    assert (run.next, run.approved) == (None, None)
    assert desk.paid == [("invoices/order-7/3/pay", {"amount": Decimal("42.00"), "payee": "alice"})]


def test_an_approval_counts_once(desk: Desk) -> None:
    text = yes(desk.paused().question)
    workflow = desk.workflow()
    workflow.rehydrate(desk.ledger(), "order-7", approvals=[text])
    for sequence in (None, 3, 4):
        assert refused(
            ApprovalSpent,
            partial(workflow.resume, desk.ledger(), "order-7", sequence, approvals=[text]),
        ) == (
            "This approval of dana was used for order-7 #4. An approval counts once. If that run"
            " was interrupted, resume it without approvals."
        )
    assert desk.paid == []


def test_a_run_that_died_after_its_approval_was_spent_goes_on_without(desk: Desk) -> None:
    text = yes(desk.paused().question)
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])  # and dies here
    run = desk.workflow().resume(desk.ledger(), "order-7")
    assert run.state["paid"] == Decimal("42.00")
    assert len(desk.paid) == 1


def test_a_step_that_runs_again_after_a_crash_has_the_same_key(desk: Desk) -> None:
    text = yes(desk.paused().question)
    desk.fails = 2
    with pytest.raises(ConnectionError):
        desk.workflow().resume(desk.ledger(), "order-7", approvals=[text])
    with pytest.raises(ConnectionError):
        desk.workflow().resume(desk.ledger(), "order-7")
    newer = desk.workflow(version="2", migrations=[Migration("1", "2", dict)])
    again = yes(newer.question(desk.ledger(), "order-7"))
    newer.resume(desk.ledger(), "order-7", approvals=[again])
    assert [key for key, _ in desk.paid] == ["invoices/order-7/3/pay"] * 3


def test_a_run_whose_thread_moved_on_does_not_act(desk: Desk) -> None:
    text = yes(desk.paused().question)
    first = desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    desk.workflow().resume(desk.ledger(), "order-7")
    assert refused(Conflict, first.step) == (
        "order-7 is at #5 by now, and this run is at #4. The step pay did not run. Rehydrate the"
        " run, and decide again."
    )
    assert len(desk.paid) == 1


def test_a_step_does_not_act_on_an_approval_where_that_is_not_written_down(desk: Desk) -> None:
    text = yes(desk.paused().question)
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    full = FullDisk(1)
    run = desk.workflow().rehydrate(desk.ledger(journal=full), "order-7")
    for _ in range(3):
        with pytest.raises(JournalUnavailable):
            run.step()
    assert desk.paid == []


@pytest.mark.parametrize("why", ["revoked", "policy"])
def test_an_approval_that_lapsed_is_asked_again_under_the_same_key(desk: Desk, why: str) -> None:
    """It may have been acted upon already, so whoever is asked is told, and the bank can tell."""
    text = yes(desk.paused().question)
    desk.fails = 1
    with pytest.raises(ConnectionError):
        desk.workflow().resume(desk.ledger(), "order-7", approvals=[text])
    people = {"dana": DANA.public, "erin": ERIN.public}
    gates = {
        "revoked": Gate(approvers=Approvers(people, revoked=[DANA.public])),
        "policy": Gate(Policy({Reason.ASKED: 2}), Approvers(people)),
    }
    because = {
        "revoked": "The key with which dana approved it was revoked since.",
        "policy": "Fewer people approved it than the policy asks for now.",
    }
    workflow = desk.workflow(gate=gates[why])
    refused(ApprovalNeeded, lambda: workflow.resume(desk.ledger(), "order-7"))
    question = workflow.question(desk.ledger(), "order-7")
    assert question is not None
    assert question.details == (
        "It was approved before, at #4, and may have been done already. " + because[why],
    )
    assert [*workflow.waiting(desk.ledger())] == [question]
    texts = [yes(question, ERIN, "erin"), *([yes(question)] if why == "policy" else [])]
    workflow.resume(desk.ledger(), "order-7", approvals=texts)
    assert [key for key, _ in desk.paid] == ["invoices/order-7/3/pay"] * 2


def test_a_finished_run_whose_last_step_asked_is_over(desk: Desk) -> None:
    def ask(state: State) -> Ask:
        return Ask("close", {"account": 7})

    workflow = Workflow("close", [ask], gate=desk.workflow().gate)
    question = workflow.start(desk.ledger(), thread="order-7").question
    workflow.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    wider = Workflow("close", [ask], tools=[BANK], gate=workflow.gate)
    assert wider.resume(desk.ledger(), "order-7").next is None
    assert [*wider.waiting(desk.ledger())] == []


def test_a_checkpoint_that_a_crash_left_unanchored_is_anchored_before_a_step_runs(
    desk: Desk,
) -> None:
    text = yes(desk.paused().question)
    desk.workflow().rehydrate(desk.ledger(anchor=None), "order-7", approvals=[text])
    anchored = desk.anchor.read("invoices", "order-7")
    assert anchored is not None
    assert anchored.sequence == 3
    desk.workflow().rehydrate(desk.ledger(), "order-7")
    anchored = desk.anchor.read("invoices", "order-7")
    assert anchored is not None
    assert anchored.sequence == 4


def test_going_back_to_before_an_approval_was_acted_upon_asks_again(desk: Desk) -> None:
    text = yes(desk.paused().question)
    workflow = desk.workflow()
    workflow.resume(desk.ledger(), "order-7", approvals=[text])
    again = workflow.question(desk.ledger(), "order-7", 4)
    assert again is not None
    assert again.reasons == ("old-checkpoint", "asked")
    assert (again.action, again.arguments) == (
        "pay",
        {"amount": Decimal("42.00"), "payee": "alice"},
    )
    run = workflow.resume(desk.ledger(), "order-7", 4, approvals=[yes(again)])
    assert [key for key, _ in desk.paid] == ["invoices/order-7/3/pay", "invoices/order-7/6/pay"]
    assert run.head == 7


def test_a_quorum_is_of_different_people(desk: Desk) -> None:
    workflow = desk.workflow(people=2)
    question = workflow.start(desk.ledger(), thread="order-7").question
    assert question is not None
    dana, erin = yes(question), yes(question, ERIN, "erin")
    assert refused(
        ApprovalNeeded,
        lambda: workflow.resume(desk.ledger(), "order-7", approvals=[dana, yes(question)]),
    ) == (
        "order-7 #3 needs the approval of 2 people. The run paused at #3 for a person's answer."
        " 1 of them approved so far. Show them this error's question, and pass what they sign:"
        " resume(..., approvals=[text])."
    )
    run = workflow.rehydrate(desk.ledger(), "order-7", approvals=[dana, erin])
    assert run.approved is not None
    assert run.approved.by == ("dana", "erin")


def test_an_approval_for_one_thread_is_none_for_another(desk: Desk) -> None:
    text = yes(desk.paused("order-7").question)
    desk.paused("order-8")
    assert "the thread 'order-7', and the question has 'order-8'" in refused(
        ApprovalMismatch,
        lambda: desk.workflow().resume(desk.ledger(), "order-8", approvals=[text]),
    )


def test_an_approval_of_a_wider_or_newer_run_is_none_of_this_one(desk: Desk) -> None:
    desk.paused()
    wider = desk.workflow(tools=[BANK, Tool("mail")])
    text = yes(wider.question(desk.ledger(), "order-7"))
    assert "the tools" in refused(
        ApprovalMismatch,
        lambda: desk.workflow().resume(desk.ledger(), "order-7", approvals=[text]),
    )
    newer = desk.workflow(version="2", migrations=[Migration("1", "2", dict)])
    text = yes(newer.question(desk.ledger(), "order-7"))
    assert "the app 'invoice@2', and the question has 'invoice@1'" in refused(
        ApprovalMismatch,
        lambda: desk.workflow().resume(desk.ledger(), "order-7", approvals=[text]),
    )


def test_an_approval_ends_at_its_time(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    now = datetime.now(UTC)
    text = Approver("dana", DANA).approve(question, now=now, lifetime=timedelta(hours=1))
    late = now + timedelta(hours=1)
    refused(
        ApprovalExpired,
        lambda: desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text], now=late),
    )
    just = late - timedelta(microseconds=1)
    run = desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text], now=just)
    assert run.finish().state["paid"] == Decimal("42.00")


def test_an_approval_that_nobody_needs_is_refused(desk: Desk) -> None:
    question = desk.paused().question
    text = yes(question)
    workflow = desk.workflow()
    other = Workflow("other", [desk.workflow().steps["fetch"]], gate=workflow.gate)
    other.begin(desk.ledger(), thread="plain")
    assert refused(
        ApprovalMismatch, lambda: other.resume(desk.ledger(), "plain", approvals=[text])
    ) == (
        "plain #1 needs no approval, and was given one of dana. Somebody may have answered another"
        " question. Resume it without."
    )


def test_an_approval_is_for_the_next_step_alone(desk: Desk) -> None:
    steps = [*desk.workflow().steps.values(), fee]
    workflow = Workflow("invoice", steps, gate=desk.workflow().gate)
    question = workflow.start(desk.ledger(), thread="order-7").question
    assert question is not None
    with pytest.raises(WorkflowError, match="Nobody was asked to approve the step fee"):
        workflow.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    assert len(desk.paid) == 1
    assert "approved" not in desk.ledger().latest("order-7").state


def test_the_question_is_there_while_a_worker_owns_the_thread(desk: Desk) -> None:
    worker = desk.ledger()
    with worker.own("order-7", "worker-1"):
        run = desk.workflow().start(worker, thread="order-7")
        assert run.question == desk.workflow().question(desk.ledger(), "order-7")
        assert [*desk.workflow().waiting(desk.ledger())] == [run.question]


def test_a_question_about_what_nobody_can_approve_is_refused(desk: Desk) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    refused(ResumeRefused, lambda: desk.workflow(version="2").question(desk.ledger(), "order-7"))


def test_resuming_at_a_time_runs_what_is_left(desk: Desk) -> None:
    question = desk.paused().question
    now = datetime.now(UTC) + timedelta(minutes=1)
    run = desk.workflow().resume(desk.ledger(), "order-7", approvals=[yes(question)], now=now)
    assert run.next is None
    assert len(desk.paid) == 1


def test_many_copies_of_one_approval_are_one(desk: Desk) -> None:
    question = desk.paused().question
    text = yes(question)
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text] * 1000)
    assert desk.ledger().latest("order-7").state["approved"] == [text]
    assert [e.what for e in desk.journal.show()].count("approve") == 2  # intended, and done


def test_one_approval_of_each_person_is_kept(desk: Desk) -> None:
    question = desk.paused().question
    texts = [yes(question) for _ in range(3)]
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=texts)
    assert desk.ledger().latest("order-7").state["approved"] == texts[:1]


def test_a_worker_whose_clock_is_behind_cannot_tell_what_has_expired(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    past = datetime.now(UTC) - timedelta(days=30)
    old = Approver("dana", DANA).approve(question, now=past, lifetime=timedelta(hours=1))
    act = partial(desk.workflow().rehydrate, desk.ledger(), "order-7", approvals=[old], now=past)
    message = refused(ApprovalExpired, act)
    assert message.startswith(f"It is {past:%Y-%m-%d %H:%M} by this worker's clock, and #3 was")
    assert message.endswith(
        "So what has expired cannot be told. Set the clock that is wrong. If it is the one that"
        " wrote #3, save that state anew with Ledger.save, and ask again."
    )


def test_a_pause_that_a_clock_from_the_future_wrote_can_be_saved_anew(desk: Desk) -> None:
    question = desk.paused().question
    past = datetime.now(UTC) - timedelta(days=30)
    act = partial(desk.workflow().rehydrate, desk.ledger(), "order-7", now=past)
    refused(ApprovalExpired, partial(act, approvals=[yes(question)]))
    latest = desk.ledger().latest("order-7")
    desk.ledger().save("order-7", latest.state, app=latest.app, tools=latest.tools)
    again = desk.workflow().question(desk.ledger(), "order-7")
    assert again is not None
    assert again.head.sequence == 4
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[yes(again)])
    assert len(desk.paid) == 1


def test_any_number_of_new_tools_can_be_asked_about(desk: Desk) -> None:
    desk.paused()
    scopes = [f"scope-{number:03}-{'x' * 100}" for number in range(12)]
    tools = [Tool(f"tool-{number}", permissions=scopes) for number in range(40)]
    question = desk.workflow(tools=tools).question(desk.ledger(), "order-7")
    assert question is not None
    assert len(question.details) == 24
    assert question.details[-1].startswith("And ")
    assert all(len(detail) < 300 for detail in question.details)


def test_what_differs_between_two_questions_is_not_in_the_journal(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    secret = replace(question, arguments={**question.arguments, "payee": "canary-7"})
    with pytest.raises(ApprovalMismatch, match="canary-7"):
        desk.workflow().resume(desk.ledger(), "order-7", approvals=[yes(secret)])
    assert b"canary" not in b"".join(desk.journal.lines)
    assert [e.detail for e in desk.journal.show()][-1] == (
        "ApprovalMismatch: it answers another question."
    )


def test_a_capture_does_not_take_an_approval_from_its_step(desk: Desk) -> None:
    text = yes(desk.paused().question)
    run = desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    assert refused(WorkflowError, run.capture) == (
        "order-7 goes on from an approval, which is for the step pay alone. Run that step: it is"
        " captured by itself."
    )
    run.finish()
    run.capture()
    assert desk.workflow().resume(desk.ledger(), "order-7").head == 6


def test_a_capture_keeps_the_key_of_the_next_step(desk: Desk) -> None:
    keys: list[str] = []

    def act(state: State, call: Call) -> None:
        keys.append(call.key)
        raise ConnectionError

    workflow = Workflow("plain", [act])
    run = workflow.begin(desk.ledger(), thread="plain")
    for _ in range(2):
        with pytest.raises(ConnectionError):
            run.step()
        run.capture()
    assert keys == ["invoices/plain/1/act"] * 2


@pytest.mark.parametrize("irrevocable", [False, True])
def test_what_was_done_with_an_approval_is_anchored_at_once(desk: Desk, irrevocable: bool) -> None:
    """Whatever the interval, or cutting off the record of a payment would repeat it."""
    slow = desk.ledger(anchor_every=100)
    if irrevocable:
        plain = desk.workflow().steps["fetch"]
        Workflow("plain", [plain], anchor_before=[plain]).start(slow, thread="order-7")
    else:
        question = desk.workflow().start(slow, thread="order-7").question
        desk.workflow().resume(slow, "order-7", approvals=[yes(question)])
    anchored = desk.anchor.read("invoices", "order-7")
    assert anchored is not None
    assert anchored.sequence == slow.latest("order-7").sequence


def test_what_waits_for_people_is_listed(desk: Desk) -> None:
    first, second = desk.paused("order-7").question, desk.paused("order-8").question
    desk.workflow().begin(desk.ledger(), thread="order-9")
    desk.ledger().save("strange", {"amount": 42})
    assert list(desk.workflow().waiting(desk.ledger())) == [first, second]
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[yes(first)])
    assert list(desk.workflow().waiting(desk.ledger())) == [second]


def test_the_gate_of_a_workflow_cannot_be_changed_afterwards(desk: Desk) -> None:
    workflow = desk.workflow()
    for name, value in (("gate", Gate()), ("tools", ToolSet())):
        with pytest.raises(AttributeError):
            setattr(workflow, name, value)


def test_going_back_needs_a_person_and_repeats_what_came_after(desk: Desk) -> None:
    text = yes(desk.paused().question)
    workflow = desk.workflow()
    workflow.resume(desk.ledger(), "order-7", approvals=[text])
    assert refused(ApprovalNeeded, lambda: workflow.resume(desk.ledger(), "order-7", 2)) == (
        "order-7 #2 needs the approval of one person. The run would go back from #5 to #2. Show"
        " them this error's question, and pass what they sign: resume(..., approvals=[text])."
    )
    question = workflow.question(desk.ledger(), "order-7", 2)
    run = workflow.resume(desk.ledger(), "order-7", 2, approvals=[yes(question)])
    assert (run.paused, run.head) == (True, 7)
    resumed = desk.ledger().load("order-7", 6).state["resumed"]
    assert (resumed["sequence"], resumed["reasons"]) == (2, ["old-checkpoint"])


def test_an_old_checkpoint_is_verified_through_every_link(desk: Desk) -> None:
    """A thief of the key can seal an old record anew; the links from the anchored end tell."""
    workflow = desk.workflow()
    workflow.start(desk.ledger(), thread="order-7")
    other = Desk()
    workflow.start(other.ledger(), thread="order-7")
    desk.storage._records["order-7"][2] = other.storage.read("order-7", 2)
    desk.ledger().load("order-7", 2)  # its own seal is genuine
    assert "is not the one that #3 was sealed upon" in refused(
        SealBroken, lambda: workflow.question(desk.ledger(), "order-7", 2)
    )


def test_an_approval_is_void_once_the_thread_has_moved_on(desk: Desk) -> None:
    workflow = desk.workflow()
    workflow.start(desk.ledger(), thread="order-7")
    text = yes(workflow.question(desk.ledger(), "order-7", 1))
    workflow.resume(
        desk.ledger(), "order-7", 2, approvals=[yes(workflow.question(desk.ledger(), "order-7", 2))]
    )
    assert refused(
        ApprovalSpent, lambda: workflow.resume(desk.ledger(), "order-7", 1, approvals=[text])
    ) == (
        "dana answered about order-7 #3, and it is at #5 by now. Look at what happened since, and"
        " ask again."
    )


def test_a_privileged_resume_needs_a_journal_and_an_ordinary_one_does_not(desk: Desk) -> None:
    question = desk.paused().question
    bare = desk.ledger(journal=None)
    assert refused(
        ConfigurationError,
        lambda: desk.workflow().resume(bare, "order-7", approvals=[yes(question)]),
    ) == (
        "order-7 #3 can be resumed only where that is written down. The run paused at #3 for a"
        " person's answer. Write Ledger(..., journal=FileJournal(path, keys=...))."
    )
    plain = Workflow("plain", [desk.workflow().steps["fetch"]])
    plain.begin(bare, thread="plain")
    assert plain.resume(bare, thread="plain").next is None


def test_without_a_journal_nothing_is_resumed_wherever_it_fails(desk: Desk) -> None:
    question = desk.paused().question
    for room in range(4):
        full = FullDisk(room)
        with pytest.raises(JournalUnavailable):
            desk.workflow().resume(desk.ledger(journal=full), "order-7", approvals=[yes(question)])
        assert desk.paid == []
        if desk.ledger().latest("order-7").sequence > 3:
            break
    # The record that spends the approval was written, and then the journal failed: no step ran.
    assert room == 3
    desk.workflow().resume(desk.ledger(), "order-7")
    assert len(desk.paid) == 1


def test_an_ordinary_resume_needs_the_journal_that_there_is(desk: Desk) -> None:
    ran = []

    def act(state: State) -> State:
        ran.append(state)
        return {}

    plain = Workflow("plain", [act])
    plain.begin(desk.ledger(), thread="plain")
    with pytest.raises(JournalUnavailable):
        plain.resume(desk.ledger(journal=FullDisk(0)), thread="plain")
    assert ran == []


def test_the_journal_tells_who_did_what(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    refused(ApprovalNeeded, lambda: desk.workflow().resume(desk.ledger(), "order-7"))
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[yes(question)])
    assert desk.told() == [
        "save intended #1",
        "save intended #2",
        "pause intended #2",
        "save intended #3",
        "resume refused #3",
        "resume intended #3",
        "approve intended #3",
        "save intended #4",
        "approve done #3",
        "resume done #4",
        "act intended #4",
        "save intended #5",
    ]
    for approve in desk.journal.show(what="approve"):
        assert approve.actor.name == "dana"
        assert approve.actor.how == f"signature of key {DANA.id}"
    assert desk.journal.verify() == 12


def test_a_policy_that_never_lets_anybody_approve_is_told(desk: Desk) -> None:
    gate = Gate(Policy({Reason.OLD_CHECKPOINT: None}), desk.workflow().gate.approvers)
    desk.paused()
    assert refused(
        ResumeRefused, lambda: desk.workflow(gate=gate).resume(desk.ledger(), "order-7", 1)
    ) == (
        "order-7 #1 cannot be resumed. The run would go back from #3 to #1. The policy lets nobody"
        " approve that. Start a new thread instead."
    )
