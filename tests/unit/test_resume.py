"""Resuming as a privileged operation: what goes on by itself, what people approve, what never."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from safepoint import (
    AnchorUnavailable,
    ApprovalExpired,
    ApprovalMalformed,
    ApprovalMismatch,
    ApprovalNeeded,
    ApprovalSpent,
    ApprovalUntrusted,
    Approver,
    Approvers,
    Ask,
    Call,
    CheckpointError,
    ConfigurationError,
    Conflict,
    Gate,
    Head,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InMemoryJournal,
    InvalidId,
    JournalUnavailable,
    KeyRefused,
    Keyring,
    Ledger,
    Migration,
    MigrationFailed,
    Policy,
    Reason,
    ResumeRefused,
    Run,
    SealBroken,
    SigningKey,
    Tool,
    ToolSet,
    Workflow,
    WorkflowError,
    WorkflowMismatch,
)
from safepoint.journal import Entry, Event

State = dict[str, Any]
DANA, ERIN = SigningKey.generate("ed25519"), SigningKey.generate("ed25519")
WRITER = SigningKey.generate()
BANK = Tool("bank", version="1", permissions=["pay"])


@dataclass
class Desk:
    """A store, its people, and what was paid."""

    storage: InMemoryCheckpointStorage = field(default_factory=InMemoryCheckpointStorage)
    anchor: InMemoryAnchor = field(default_factory=InMemoryAnchor)
    journal: InMemoryJournal = field(default_factory=InMemoryJournal)
    paid: list[tuple[str, State]] = field(default_factory=list)
    fails: int = 0

    def ledger(self, key: SigningKey = WRITER, **options: Any) -> Ledger:
        """Open the store as another process would."""
        given = {"anchor": self.anchor, "journal": self.journal, **options}
        return Ledger(self.storage, store="invoices", keys=Keyring(key), **given)

    def workflow(self, *, people: int = 1, **options: Any) -> Workflow:
        """Return fetch, ask, pay."""

        def fetch(state: State) -> State:
            return {"amount": Decimal("42.00"), "payee": "alice"}

        def ask(state: State) -> Ask:
            return Ask("pay", {"amount": state["amount"], "payee": state["payee"]})

        def pay(state: State, call: Call) -> State:
            self.paid.append((call.key, call.approved.arguments))
            if self.fails:
                self.fails -= 1
                raise ConnectionError
            return {"paid": call.approved.arguments["amount"]}

        approvers = Approvers({"dana": DANA.public, "erin": ERIN.public})
        gate = Gate(Policy({Reason.ASKED: people}), approvers)
        given = {"version": "1", "tools": [BANK], "gate": gate, **options}
        return Workflow("invoice", [fetch, ask, pay], **given)

    def paused(self, thread: str = "order-7") -> Run:
        """Start a run, which pauses at #3."""
        return self.workflow().start(self.ledger(), thread=thread)

    def told(self) -> list[str]:
        """Return what the journal says, in short."""
        return [f"{e.what} {e.outcome} #{e.sequence or '-'}" for e in self.journal.show()]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def yes(question: Any, key: SigningKey = DANA, name: str = "dana") -> str:
    return Approver(name, key).approve(question)


def refused(error: type[CheckpointError], act: Callable[[], object]) -> str:
    """Return the message with which something is refused."""
    with pytest.raises(error) as refusal:
        act()
    assert type(refusal.value) is error
    return str(refusal.value)


def test_a_step_that_asks_lets_the_run_pause_and_be_captured(desk: Desk) -> None:
    run = desk.paused()
    assert (run.paused, run.next, run.head, run.denied) == (True, "pay", 3, False)
    assert desk.paid == []
    assert desk.ledger().latest("order-7").state["asked"] == {
        "action": "pay",
        "arguments": {"amount": Decimal("42.00"), "payee": "alice"},
    }
    assert "paused" in repr(run)


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


def test_a_finished_run_whose_last_step_asked_is_over(desk: Desk) -> None:
    def ask(state: State) -> Ask:
        return Ask("close", {"account": 7})

    workflow = Workflow("close", [ask], gate=desk.workflow().gate)
    question = workflow.start(desk.ledger(), thread="order-7").question
    workflow.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    wider = Workflow("close", [ask], tools=[BANK], gate=workflow.gate)
    assert wider.resume(desk.ledger(), "order-7").next is None
    assert [*wider.waiting(desk.ledger())] == []


def test_another_version_asks_again_before_it_acts_on_an_approval(desk: Desk) -> None:
    """An amount in cents that was approved for one version may be euros to the next."""
    text = yes(desk.paused().question)
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])  # and dies here
    newer = desk.workflow(version="2", migrations=[Migration("1", "2", dict)])
    refused(ApprovalNeeded, lambda: newer.resume(desk.ledger(), "order-7"))
    question = newer.question(desk.ledger(), "order-7")
    assert question is not None
    assert (question.app, question.reasons) == ("invoice@2", ("version-changed", "asked"))
    newer.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    assert len(desk.paid) == 1


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
    text = Approver("dana", DANA).approve_at_time(question, now, lifetime=timedelta(hours=1))
    late = now + timedelta(hours=1)
    refused(
        ApprovalExpired,
        lambda: desk.workflow().rehydrate_at_time(
            desk.ledger(), "order-7", approvals=[text], now=late
        ),
    )
    just = late - timedelta(microseconds=1)
    run = desk.workflow().rehydrate_at_time(desk.ledger(), "order-7", approvals=[text], now=just)
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


def test_approvals_without_approvers_are_a_mistake(desk: Desk) -> None:
    text = yes(desk.paused().question)
    lonely = desk.workflow(gate=None)
    assert refused(
        ConfigurationError, lambda: lonely.resume(desk.ledger(), "order-7", approvals=[text])
    ) == (
        "order-7 #3 was given an approval, and its workflow has no approvers. Say who may approve:"
        ' Workflow(..., gate=Gate(approvers=Approvers({"dana": key}))).'
    )
    with pytest.raises(ConfigurationError, match=r"given as str\. Give a list"):
        desk.workflow().resume(desk.ledger(), "order-7", approvals=text)


def test_the_writers_key_is_no_approvers_key(desk: Desk) -> None:
    with pytest.raises(KeyRefused, match="of the approver dana is on the keyring of the ledger"):
        desk.workflow().start(desk.ledger(DANA), thread="order-7")
    assert desk.ledger(DANA).latest("order-7").sequence == 2  # it did not pause
    with pytest.raises(KeyRefused):
        desk.workflow().resume(desk.ledger(DANA), "order-7")
    assert desk.told()[-1] == "resume refused #-"


def test_a_step_that_asks_where_nobody_could_answer_is_refused_at_once(desk: Desk) -> None:
    lonely = desk.workflow(gate=None)
    assert refused(ConfigurationError, lambda: lonely.start(desk.ledger(), thread="order-7")) == (
        "The step ask asks people, and the workflow invoice has no approvers. Write Workflow(...,"
        ' gate=Gate(approvers=Approvers({"dana": key}))).'
    )
    bare = desk.ledger(journal=None)
    assert refused(ConfigurationError, lambda: desk.workflow().start(bare, thread="order-8")) == (
        "The step ask asks people, and the ledger has no journal to write the answer down. Write"
        " Ledger(..., journal=FileJournal(path, keys=...))."
    )


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


def test_an_approval_is_for_the_next_step_alone(desk: Desk) -> None:
    steps = [*desk.workflow().steps.values(), _fee]
    workflow = Workflow("invoice", steps, gate=desk.workflow().gate)
    question = workflow.start(desk.ledger(), thread="order-7").question
    assert question is not None
    with pytest.raises(WorkflowError, match="Nobody was asked to approve the step _fee"):
        workflow.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    assert len(desk.paid) == 1
    assert "approved" not in desk.ledger().latest("order-7").state


def _fee(state: State, call: Call) -> State:
    assert not call.was_approved
    return {"fee": call.approved.arguments["amount"]}


@pytest.mark.parametrize("more", [{"tools": [BANK, Tool("mail")]}, {"tools": [Tool("bank")]}])
def test_a_changed_run_asks_again_before_it_acts_on_an_approval(desk: Desk, more: State) -> None:
    text = yes(desk.paused().question)
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])  # and dies here
    other = desk.workflow(**more)
    question = other.question(desk.ledger(), "order-7")
    assert question is not None
    assert question.reasons[-1] == "asked"
    other.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    assert [key for key, _ in desk.paid] == ["invoices/order-7/3/pay"]


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


def test_an_ended_run_is_over_for_every_version_and_tool_set(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    no = Approver("erin", ERIN).deny(question)
    desk.workflow().resume(desk.ledger(), "order-7", approvals=[no])
    lines = len(desk.journal.lines)
    for other in (desk.workflow(tools=[Tool("mail")]), desk.workflow(version="2")):
        assert other.resume(desk.ledger(), "order-7").denied
        assert other.question(desk.ledger(), "order-7") is None
    assert len(desk.journal.lines) == lines


def test_the_question_is_there_while_a_worker_owns_the_thread(desk: Desk) -> None:
    worker = desk.ledger()
    with worker.own("order-7", "worker-1"):
        run = desk.workflow().start(worker, thread="order-7")
        assert run.question == desk.workflow().question(desk.ledger(), "order-7")
        assert [*desk.workflow().waiting(desk.ledger())] == [run.question]


def test_a_question_about_what_nobody_can_approve_is_refused(desk: Desk) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    refused(ResumeRefused, lambda: desk.workflow(version="2").question(desk.ledger(), "order-7"))


@pytest.mark.parametrize("now", [datetime(2026, 1, 1), "today", None])  # noqa: DTZ001
def test_a_time_without_a_time_zone_is_refused(desk: Desk, now: Any) -> None:
    desk.paused()
    with pytest.raises(ConfigurationError):
        desk.workflow().rehydrate_at_time(desk.ledger(), "order-7", now=now)


@pytest.mark.parametrize("sequence", [True, 0, -1, "3", 1.0])
def test_a_sequence_that_is_none_is_refused(desk: Desk, sequence: Any) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    with pytest.raises(InvalidId):
        desk.workflow().resume(desk.ledger(), "order-7", sequence)


def test_resuming_at_a_time_runs_what_is_left(desk: Desk) -> None:
    question = desk.paused().question
    now = datetime.now(UTC) + timedelta(minutes=1)
    run = desk.workflow().resume_at_time(
        desk.ledger(), "order-7", approvals=[yes(question)], now=now
    )
    assert run.next is None
    assert len(desk.paid) == 1


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


def test_a_migration_cannot_change_the_checkpoint_that_it_came_from(desk: Desk) -> None:
    def change(state: State) -> State:
        state["amounts"].append(5_000_000)
        raise ConnectionError

    plain = Workflow("plain", [_last], version="1")
    plain.begin(desk.ledger(), thread="plain", amounts=[42])
    newer = Workflow("plain", [_last], version="2", migrations=[Migration("1", "2", change)])
    refused(MigrationFailed, lambda: newer.resume(desk.ledger(), "plain"))
    assert desk.ledger().latest("plain").state["state"] == {"amounts": [42]}


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


def test_more_approvals_than_people_is_a_mistake(desk: Desk) -> None:
    question = desk.paused().question
    texts = [yes(question) for _ in range(17)]
    act = partial(desk.workflow().resume, desk.ledger(), "order-7", approvals=texts)
    assert refused(ConfigurationError, act) == (
        "More than 16 approvals were given. Give one of each person whom the policy asks for."
    )


def test_a_worker_whose_clock_is_behind_cannot_tell_what_has_expired(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    past = datetime.now(UTC) - timedelta(days=30)
    old = Approver("dana", DANA).approve_at_time(question, past, lifetime=timedelta(hours=1))
    act = partial(
        desk.workflow().rehydrate_at_time, desk.ledger(), "order-7", approvals=[old], now=past
    )
    message = refused(ApprovalExpired, act)
    assert message.startswith(f"It is {past:%Y-%m-%d %H:%M} by this worker's clock, and #3 was")
    assert message.endswith(
        "So what has expired cannot be told. Set the clock that is wrong. If it is the one that"
        " wrote #3, save that state anew with Ledger.save, and ask again."
    )


def test_a_pause_that_a_clock_from_the_future_wrote_can_be_saved_anew(desk: Desk) -> None:
    question = desk.paused().question
    past = datetime.now(UTC) - timedelta(days=30)
    act = partial(desk.workflow().rehydrate_at_time, desk.ledger(), "order-7", now=past)
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


class Stuck(InMemoryAnchor):
    """An anchor that cannot be written any more."""

    stuck = False

    def advance(self, store: str, thread: str, head: Head) -> None:
        if self.stuck:
            raise OSError
        super().advance(store, thread, head)


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


def test_a_field_of_the_state_is_no_approval(desk: Desk) -> None:
    def ask(state: State) -> Ask:
        return Ask("pay", {"amount": 42}, changes={"approved": True})

    def pay(state: State, call: Call) -> State:
        return {"paid": call.was_approved and state["approved"]}

    workflow = Workflow("invoice", [ask, pay], gate=desk.workflow().gate)
    workflow.start(desk.ledger(), thread="order-7")
    refused(ApprovalNeeded, lambda: workflow.resume(desk.ledger(), "order-7"))


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


def test_a_wider_tool_set_needs_a_person(desk: Desk) -> None:
    text = yes(desk.paused().question)
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    wider = desk.workflow(tools=[Tool("bank", version="1", permissions=["pay", "all"])])
    assert "The tool bank gains the permission all." in refused(
        ApprovalNeeded, lambda: wider.resume(desk.ledger(), "order-7")
    )
    assert desk.paid == []
    question = wider.question(desk.ledger(), "order-7")
    wider.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    assert desk.ledger().latest("order-7").tools == wider.tools.digest
    assert len(desk.paid) == 1


def test_a_narrower_tool_set_is_allowed_and_said(desk: Desk) -> None:
    text = yes(desk.paused().question)
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    narrower = desk.workflow(tools=[])
    run = narrower.resume(desk.ledger(), "order-7")
    assert run.notes == ("The tool bank is gone.",)
    assert [e.detail for e in desk.journal.show(what="resume")][-1] == "The tool bank is gone."
    assert desk.ledger().latest("order-7").tools is None


def test_a_tool_that_was_left_out_for_a_while_is_new_again(desk: Desk) -> None:
    text = yes(desk.paused().question)
    more = Workflow(
        "invoice",
        [*desk.workflow().steps.values(), _last],
        version="1",
        tools=[],
        gate=desk.workflow().gate,
    )
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    more.rehydrate(desk.ledger(), "order-7").step()
    assert more.rehydrate(desk.ledger(), "order-7").next == "_last"
    back = Workflow("invoice", more.steps.values(), version="1", tools=[BANK], gate=more.gate)
    assert "The tool bank is new." in refused(
        ApprovalNeeded, lambda: back.resume(desk.ledger(), "order-7")
    )


def _last(state: State) -> None:
    pass


def test_another_version_needs_a_migration(desk: Desk) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    newer = desk.workflow(version="2")
    assert refused(ResumeRefused, lambda: newer.resume(desk.ledger(), "order-7")) == (
        "order-7 #1 cannot be resumed. The checkpoint was written by version '1', and would be"
        " resumed by version '2'. No migration leads from version '1' to version '2'. Register a"
        " migration from the version that wrote it, or resume it with that version."
    )


def test_migrations_are_chained_and_the_result_says_where_it_came_from(desk: Desk) -> None:
    def load(state: State) -> State:
        raise AssertionError("it is done")

    def check(state: State) -> State:
        return {"checked": state["total"], "currency": state["currency"]}

    before = Workflow("invoice", [desk.workflow().steps["fetch"], check], version="1")
    before.begin(desk.ledger(), thread="order-7").step()
    wrote = desk.ledger().latest("order-7")
    after = Workflow(
        "invoice",
        [load, check],
        version="3",
        migrations=[
            Migration("2", "3", lambda s: {**s, "currency": "EUR"}, steps={"get": "load"}),
            Migration("1", "2", lambda s: {"total": s["amount"]}, steps={"fetch": "get"}),
        ],
    )
    run = after.resume(desk.ledger(), "order-7")
    assert run.state["checked"] == Decimal("42.00")
    migrated = desk.ledger().load("order-7", 3)
    assert migrated.app == "invoice@3"
    assert migrated.state["resumed"] == {
        "app": "invoice@1",
        "digest": wrote.digest,
        "reasons": ["version-changed"],
        "sequence": 2,
        "statements": [],
    }
    assert "migrate done #3" in desk.told()


@pytest.mark.parametrize(
    ("change", "steps", "error", "message"),
    [
        (
            lambda s: s["nothing"],
            {},
            MigrationFailed,
            (
                "The migration from '1' to '2' raised KeyError. The checkpoint is as it was."
                " Mend the"
                " migration, and resume again."
            ),
        ),
        (
            lambda s: [s],
            {},
            MigrationFailed,
            "The migration from '1' to '2' returned list. Return the whole state, as a dict.",
        ),
        (
            dict,
            {"fetch": None},
            WorkflowMismatch,
            (
                "order-7 #3 was written by other steps than those of invoice today. Resume it"
                " with the"
                " code that wrote it, or give the workflow a new version and a migration that says"
                " which steps are done."
            ),
        ),
    ],
)
def test_a_migration_that_fails_changes_nothing(
    desk: Desk,
    change: Callable[[State], Any],
    steps: dict[str, str | None],
    error: type[CheckpointError],
    message: str,
) -> None:
    text = yes(desk.paused().question)
    migration = Migration("1", "2", change, steps=steps)
    newer = desk.workflow(version="2", migrations=[migration])
    text = yes(newer.question(desk.ledger(), "order-7"))
    assert refused(error, lambda: newer.resume(desk.ledger(), "order-7", approvals=[text])) == (
        message
    )
    assert desk.ledger().latest("order-7").sequence == 3
    assert desk.told()[-2:] == ["migrate refused #3", "resume refused #3"]


@pytest.mark.parametrize(
    ("migrations", "message"),
    [
        (
            [Migration("1", "2", dict), Migration("1", "3", dict)],
            (
                "Two migrations begin at version '1'. Keep one:"
                " which of them to take would be a guess."
            ),
        ),
        (
            [Migration("1", "2", dict)],
            (
                "The migrations from version '1' do not lead to '3'. Register one for each"
                " version on"
                " the way."
            ),
        ),
        (
            [Migration("1", "2", dict), Migration("2", "1", dict)],
            (
                "The migrations from version '1' do not lead to '3'. Register one for each"
                " version on"
                " the way."
            ),
        ),
        (
            [dict],
            'A migration was given as type. Write Migration("1", "2", change).',
        ),
        (
            "1",
            'The migrations are str. Give a list: migrations=[Migration("1", "2", change)].',
        ),
    ],
)
def test_migrations_that_lead_nowhere_are_refused_at_once(migrations: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Desk().workflow(version="3", migrations=migrations)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1", "1", dict), "A migration leads from version '1' to itself."),
        (("1 ", "2", dict), "'1 ' is not a version."),
        (("1", 2, dict), "2 is not a version."),
        (("1", "2", None), "The migration from '1' to '2' needs a function"),
    ],
)
def test_a_migration_of_the_wrong_kind_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Migration(*arguments)
    assert str(refusal.value).startswith(message)


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


class FullDisk:
    """A journal that has room for so many lines."""

    def __init__(self, room: int) -> None:
        self.kept = InMemoryJournal()
        self.room = room

    def record(self, event: Event) -> Entry:
        if len(self.kept.lines) >= self.room:
            raise JournalUnavailable("There is no room.", "Make some.")
        return self.kept.record(event)


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


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda text: text[:-10], "ApprovalUntrusted"),
        (lambda text: text.replace("alice", "mally"), "ApprovalUntrusted"),
        (lambda text: text.split("\n")[1], "ApprovalMalformed"),
        (lambda _: "approved", "ApprovalMalformed"),
        (lambda _: 7, "ApprovalMalformed"),
    ],
)
def test_each_bad_approval_is_refused_and_that_is_written_down(
    desk: Desk, spoil: Callable[[str], Any], error: str
) -> None:
    text = spoil(yes(desk.paused().question))
    with pytest.raises(CheckpointError) as refusal:
        desk.workflow().resume(desk.ledger(), "order-7", approvals=[text])
    assert type(refusal.value).__name__ == error
    last = list(desk.journal.show())[-1]
    assert (last.what, last.outcome) == ("resume", "refused")
    assert last.detail.startswith(f"{error}: ")
    assert desk.paid == []


def test_a_policy_that_never_lets_anybody_approve_is_told(desk: Desk) -> None:
    gate = Gate(Policy({Reason.OLD_CHECKPOINT: None}), desk.workflow().gate.approvers)
    desk.paused()
    assert refused(
        ResumeRefused, lambda: desk.workflow(gate=gate).resume(desk.ledger(), "order-7", 1)
    ) == (
        "order-7 #1 cannot be resumed. The run would go back from #3 to #1. The policy lets nobody"
        " approve that. Start a new thread instead."
    )


UNSIGNABLE = "What pay is asked with cannot be signed. "


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("pay now",), "'pay now' cannot name what is asked."),
        ((7,), "7 cannot name what is asked."),
        (("pay", [42]), "The arguments of pay are list."),
        (("pay", {}, [1]), "The changes of pay are list."),
        (("pay", {7: 42}), UNSIGNABLE + "7 is not the name of an argument."),
        (
            ("pay", {"to": object()}),
            (
                f"{UNSIGNABLE}arguments['to'] is of the type builtins.object, which this codec"
                " does not know."
            ),
        ),
        (
            ("pay", {"letter": "x" * 50_000}),
            UNSIGNABLE + "The arguments of a question are more than a person could read.",
        ),
    ],
)
def test_an_ask_of_the_wrong_kind_is_refused_in_the_step(
    given: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(WorkflowError) as refusal:
        Ask(*given)
    assert refusal.value.what == message


def test_what_is_asked_cannot_be_changed_afterwards() -> None:
    arguments = {"amounts": [42]}
    ask = Ask("pay", arguments)
    arguments["amounts"].append(5_000_000)
    assert ask.arguments == {"amounts": [42]}


@pytest.mark.parametrize("payload", [{"done": []}, {"state": {}}, [], {"done": [], "state": 7}])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"strange": 1},
        {"asked": {"action": "pay"}, "approved": "x"},
        {"origin": True},
        {"resumed": {"app": 7}},
        {"tools": [{"name": "bank"}]},
        {"denied": 7},
    ],
)
def test_what_is_not_a_workflows_payload_is_refused(desk: Desk, payload: Any, more: State) -> None:
    whole = {"done": [], "state": {}, **more} if more else payload
    ledger = desk.ledger()
    ledger.save("order-7", whole, app="invoice@1")
    assert refused(WorkflowMismatch, lambda: desk.workflow().resume(ledger, "order-7")) == (
        "order-7 #1 does not hold a workflow's state. Load it with Ledger.load, if you wrote it"
        " with Ledger.save."
    )


def test_a_tool_set_that_is_not_the_one_in_the_header_is_refused(desk: Desk) -> None:
    ledger = desk.ledger()
    tools = desk.workflow().tools
    payload = {"done": [], "state": {}, "tools": tools.described}
    ledger.save("order-7", payload, app="invoice@1")
    refused(WorkflowMismatch, lambda: desk.workflow().resume(ledger, "order-7"))


def test_a_step_takes_the_state_and_perhaps_a_call() -> None:
    def three(a: Any, b: Any, c: Any) -> None:
        pass

    with pytest.raises(WorkflowError) as refusal:
        Workflow("invoice", [three])
    assert str(refusal.value) == (
        "The step three takes other arguments than a step does. Define it as def step(state), or"
        " def step(state, call)."
    )
