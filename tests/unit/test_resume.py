"""Resuming as a privileged operation: what goes on by itself, and what people approve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from safepoint import (
    ApprovalNeeded,
    Approver,
    Approvers,
    Ask,
    CheckpointError,
    Conflict,
    Gate,
    InMemoryJournal,
    Policy,
    SealBroken,
    SigningKey,
    Tool,
    Workflow,
)
from safepoint.approval import Question, Reason
from safepoint.errors import (
    AnchorUnavailable,
    ApprovalExpired,
    ApprovalMalformed,
    ApprovalMismatch,
    ApprovalSpent,
    ApprovalUntrusted,
    ConfigurationError,
    InvalidId,
    JournalUnavailable,
    KeyRefused,
    MigrationFailed,
    ResumeRefused,
    WorkflowError,
    WorkflowMismatch,
)
from safepoint.journal import Entry, Event
from safepoint.workflow import Call, Migration
from tests.unit.desk import BANK, DANA, ERIN, Desk, FullDisk, State, Stuck, no, refused, yes

PAID = {"amount": Decimal("42.00"), "payee": "alice"}
KEY = "invoices/order-7/3/pay"
NEWER: dict[str, Any] = {"version": "2", "migrations": [Migration("1", "2", dict)]}
SHOW = "Show them this error's question, and pass what they sign: resume(..., approvals=[text])."
WRITERS = "Whoever wrote it had the writer's key. Do not use it; replace that key."


def keys(desk: Desk) -> list[str]:
    return [key for key, _ in desk.paid]


# ---------------------------------------------------------------- a pause, and a yes


def test_a_step_that_asks_lets_the_run_pause_and_be_captured(desk: Desk) -> None:
    run = desk.paused()
    assert (run.paused, run.next, run.head, run.denied) == (True, "pay", 3, False)
    assert "paused" in repr(run)
    assert desk.ledger().latest("order-7").state["asked"] == {"action": "pay", "arguments": PAID}
    assert refused(ApprovalNeeded, run.step) == (
        "order-7 waits for people at #3. Show them run.question, and pass what they sign:"
        " resume(..., approvals=[text])."
    )
    assert refused(ApprovalNeeded, desk.go_on) == (
        "order-7 #3 needs the approval of one person. The run paused at #3 for a person's answer."
        f" {SHOW}"
    )
    with pytest.raises(ApprovalNeeded) as refusal:
        desk.go_on()
    assert refusal.value.question == run.question == desk.question()
    assert desk.paid == []


def test_an_approved_run_goes_on_with_what_was_signed(desk: Desk) -> None:
    text = yes(desk.paused().question)
    run = desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    assert run.approved is not None
    assert run.approved.by == ("dana",)
    assert "42" not in repr(run.approved)
    run = run.finish()
    assert (run.next, run.approved) == (None, None)
    assert desk.paid == [(KEY, PAID)]
    assert "approved" not in desk.ledger().latest("order-7").state
    assert desk.go_on(**NEWER).next is None


def test_a_spent_approval_is_not_used_again_and_the_run_goes_on_without(desk: Desk) -> None:
    text = desk.approved()
    for sequence in (None, 3, 4):
        assert refused(ApprovalSpent, partial(desk.go_on, text, at=sequence)) == (
            "This approval of dana was used for order-7 #4. An approval counts once. If that run"
            " was interrupted, resume it without approvals."
        )
    assert desk.paid == []
    assert desk.go_on().state["paid"] == Decimal("42.00")
    assert keys(desk) == [KEY]


def test_a_step_that_runs_again_after_a_crash_has_the_same_key(desk: Desk) -> None:
    text = yes(desk.paused().question)
    desk.fails = 2
    for given in ([text], []):
        with pytest.raises(ConnectionError):
            desk.go_on(*given)
    desk.go_on(yes(desk.question(**NEWER)), **NEWER)
    assert keys(desk) == [KEY] * 3


def test_a_run_whose_thread_moved_on_does_not_act(desk: Desk) -> None:
    text = yes(desk.paused().question)
    first = desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    desk.go_on()
    assert refused(Conflict, first.step) == (
        "order-7 is at #5 by now, and this run is at #4. The step pay did not run. Rehydrate the"
        " run, and decide again."
    )
    assert len(desk.paid) == 1


@pytest.mark.parametrize("asks", [True, False])
def test_whoever_appends_first_resumes_and_the_other_is_told(desk: Desk, asks: bool) -> None:
    """Between the decision and the append that spends, another worker came first."""

    class Slow(InMemoryJournal):
        def record(self, event: Event) -> Entry:
            if (event.what, event.outcome) == ("resume", "intended"):
                desk.workflow(**more).rehydrate(desk.ledger(), "order-7", approvals=texts)
            return super().record(event)

    more: State = {} if asks else NEWER
    texts = [yes(desk.paused().question)] if asks else []
    if not asks:
        desk.workflow().begin(desk.ledger(), thread="order-7")
    slow = partial(desk.workflow(**more).resume, desk.ledger(journal=Slow()), "order-7")
    if asks:
        assert refused(ApprovalSpent, lambda: slow(approvals=texts)) == (
            "Another worker resumed order-7 first, so this approval is spent. Let that worker go"
            " on. If it died, resume without approvals."
        )
    else:
        refused(Conflict, slow)
    assert desk.paid == []
    assert desk.ledger().latest("order-7").state["resumed"]


def test_a_quorum_is_of_different_people(desk: Desk) -> None:
    question = desk.workflow(people=2).start(desk.ledger(), thread="order-7").question
    assert refused(ApprovalNeeded, lambda: desk.go_on(yes(question), yes(question), people=2)) == (
        "order-7 #3 needs the approval of 2 people. The run paused at #3 for a person's answer."
        f" 1 of them approved so far. {SHOW}"
    )
    texts = [yes(question), yes(question), yes(question, ERIN, "erin"), yes(question)]
    run = desk.workflow(people=2).rehydrate(desk.ledger(), "order-7", approvals=texts)
    assert run.approved is not None
    assert run.approved.by == ("dana", "erin")
    assert desk.ledger().latest("order-7").state["approved"] == [texts[0], texts[2]]
    told = [line.split(" #")[0] for line in desk.told()]
    assert [told.count(f"approve {outcome}") for outcome in ("intended", "done")] == [2, 2]


@pytest.mark.parametrize("why", ["revoked", "policy"])
def test_an_approval_that_lapsed_is_asked_again_under_the_same_key(desk: Desk, why: str) -> None:
    """It may have been acted upon already, so whoever is asked is told, and the bank can tell."""
    text = yes(desk.paused().question)
    desk.fails = 1
    with pytest.raises(ConnectionError):
        desk.go_on(text)
    people = {"dana": DANA.public, "erin": ERIN.public}
    gate, because = {
        "revoked": (
            Gate(approvers=Approvers(people, revoked=[DANA.public])),
            "The key with which dana approved it was revoked since.",
        ),
        "policy": (
            Gate(Policy({Reason.ASKED: 2}), Approvers(people)),
            "Fewer people approved it than the policy asks for now.",
        ),
    }[why]
    refused(ApprovalNeeded, lambda: desk.go_on(gate=gate))
    question = desk.question(gate=gate)
    assert question.details == (
        f"It was approved before, at #4, and may have been done already. {because}",
    )
    assert [*desk.workflow(gate=gate).waiting(desk.ledger())] == [question]
    texts = [yes(question, ERIN, "erin"), *([yes(question)] if why == "policy" else [])]
    desk.go_on(*texts, gate=gate)
    assert keys(desk) == [KEY] * 2


@pytest.mark.parametrize(
    "more", [NEWER, {"tools": [BANK, Tool("mail")]}, {"tools": [Tool("bank")]}]
)
def test_a_run_that_changed_asks_again_before_it_acts_on_an_approval(
    desk: Desk, more: State
) -> None:
    """An amount in cents that was approved for one version may be euros to the next."""
    desk.approved()
    refused(ApprovalNeeded, lambda: desk.go_on(**more))
    question = desk.question(**more)
    assert question.reasons[-1] == "asked"
    assert question.details[-1].startswith("It was approved before, at #4")
    desk.go_on(yes(question), **more)
    assert keys(desk) == [KEY]


def test_an_approval_of_a_wider_or_newer_run_is_none_of_this_one(desk: Desk) -> None:
    desk.paused()
    for more, said in (
        ({"tools": [BANK, Tool("mail")]}, "the tools"),
        (NEWER, "the app 'invoice@2', and the question has 'invoice@1'"),
    ):
        text = yes(desk.question(**more))
        assert said in refused(ApprovalMismatch, partial(desk.go_on, text))
    assert desk.paid == []


def test_an_approval_that_nobody_needs_is_refused(desk: Desk) -> None:
    text, gate = yes(desk.paused().question), desk.workflow().gate
    other = Workflow("other", [desk.workflow().steps["fetch"]], gate=gate)
    other.begin(desk.ledger(), thread="plain")
    assert refused(
        ApprovalMismatch, lambda: other.resume(desk.ledger(), "plain", approvals=[text])
    ) == (
        "plain #1 needs no approval, and was given one of dana. Somebody may have answered another"
        " question. Resume it without."
    )


def test_an_approval_is_for_the_next_step_alone(desk: Desk) -> None:
    def fee(state: State, call: Call) -> State:
        assert not call.was_approved
        return {"fee": call.approved.arguments["amount"]}

    steps = [*desk.workflow().steps.values(), fee]
    workflow = Workflow("invoice", steps, gate=desk.workflow().gate)
    question = workflow.start(desk.ledger(), thread="order-7").question
    with pytest.raises(WorkflowError, match="Nobody was asked to approve the step fee"):
        workflow.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    assert len(desk.paid) == 1


def test_a_step_cannot_change_what_was_signed(desk: Desk) -> None:
    seen: list[Any] = []

    def pay(state: State, call: Call) -> None:
        call.approved.arguments["payee"] = "mally"
        seen.append(call.approved.arguments["payee"])

    def ask(state: State) -> Ask:
        return Ask("pay", {"payee": "alice"}, changes={"approved": True})

    workflow = Workflow("invoice", [ask, pay], gate=desk.workflow().gate)
    question = workflow.start(desk.ledger(), thread="order-7").question
    refused(ApprovalNeeded, lambda: workflow.resume(desk.ledger(), "order-7"))
    run = workflow.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    assert (seen, run.state) == (["alice"], {"approved": True})


def test_an_approval_ends_at_its_time(desk: Desk) -> None:
    question, now, hour = desk.paused().question, datetime.now(UTC), timedelta(hours=1)
    assert question is not None
    text = Approver("dana", DANA).approve(question, now=now, lifetime=hour)
    resume = partial(desk.workflow().resume, desk.ledger(), "order-7", approvals=[text])
    refused(ApprovalExpired, lambda: resume(now=now + hour))
    long = Approver("dana", DANA).approve(question, lifetime=timedelta(hours=25))
    refused(ApprovalExpired, lambda: desk.go_on(long))
    assert resume(now=now + hour - timedelta(microseconds=1)).next is None


def test_a_worker_whose_clock_is_behind_cannot_tell_what_has_expired(desk: Desk) -> None:
    question, past = desk.paused().question, datetime.now(UTC) - timedelta(days=30)
    assert question is not None
    old = Approver("dana", DANA).approve(question, now=past)
    resume = partial(desk.workflow().resume, desk.ledger(), "order-7", now=past)
    message = refused(ApprovalExpired, lambda: resume(approvals=[old]))
    assert message.startswith(f"It is {past:%Y-%m-%d %H:%M} by this worker's clock, and #3 was")
    assert message.endswith("save that state anew with Ledger.save, and ask again.")
    desk.forge()  # which is what an operator does after a clock from the future
    desk.go_on(yes(desk.question()))
    assert len(desk.paid) == 1


# ---------------------------------------------------------------- a no


def test_a_denied_run_ends_and_stays_ended(desk: Desk) -> None:
    question = desk.paused().question
    run = desk.go_on(no(question))
    assert (run.denied, run.next, run.head) == (True, None, 4)
    assert "denied" in repr(run)
    for act, do in (
        (run.step, "Start a new thread to run it again."),
        (run.capture, "There is nothing to capture."),
    ):
        assert refused(WorkflowError, act) == f"order-7 was denied. {do}"
    lines = desk.journal.verify()
    people = Approvers({"dana": DANA.public, "erin": ERIN.public}, revoked=[ERIN.public])
    others: list[State] = [{}, NEWER, {"tools": [Tool("mail")]}, {"gate": Gate(approvers=people)}]
    for other in others:
        assert desk.go_on(**other).denied
        assert desk.workflow(**other).question(desk.ledger(), "order-7") is None
    assert desk.journal.verify() == lines
    assert "dana answered about order-7 #3" in refused(
        ApprovalSpent, partial(desk.go_on, yes(question))
    )
    assert desk.paid == []


def test_one_denial_outweighs_any_number_of_approvals(desk: Desk) -> None:
    question = desk.paused().question
    assert desk.go_on(yes(question), no(question), yes(question, ERIN, "erin")).denied
    assert desk.ledger().latest("order-7").state["resumed"]["statements"] != []
    assert desk.paid == []


def test_a_no_to_something_else_leaves_the_run_as_it_is(desk: Desk) -> None:
    desk.go_on(yes(desk.paused().question))
    before, wider = desk.ledger().latest("order-7"), {"tools": [BANK, Tool("mail")]}
    for sequence, more in ((1, {}), (3, {}), (4, wider)):
        text = no(desk.question(sequence, **more))
        assert refused(ResumeRefused, partial(desk.go_on, text, at=sequence, **more)) == (
            f"erin denied it: order-7 #{sequence} is not resumed. The run stays as it was. Ask"
            " again only if something has changed."
        )
        assert desk.told()[-2:] == [f"deny done #{sequence}", f"resume refused #{sequence}"]
    assert desk.ledger().latest("order-7") == before


def test_a_no_keeps_the_state_and_the_tools_of_the_run(desk: Desk) -> None:
    paused, wider = desk.paused(), {"tools": [BANK, Tool("mail")], **NEWER}
    assert desk.go_on(no(desk.question(**wider)), **wider).denied
    ended = desk.ledger().latest("order-7")
    assert ended.state["state"] == paused.state
    assert (ended.app, ended.tools) == ("invoice@1", desk.workflow().tools.digest)
    assert desk.told()[-2:] == ["deny done #3", "resume refused #4"]
    assert not [line for line in desk.told() if line.startswith("migrate")]


def test_whoever_goes_back_past_a_denial_is_told_of_it_and_nobody_goes_back_to_it(
    desk: Desk,
) -> None:
    desk.go_on(no(desk.paused().question))
    back = desk.question(3)
    assert "detail: erin denied it at #4." in back.described
    desk.workflow().rehydrate(desk.ledger(), "order-7", 3, approvals=[yes(back)])
    assert refused(ResumeRefused, lambda: desk.question(4)) == (
        "order-7 #4 is a denial, so nothing goes on from there. Name a checkpoint before it."
    )
    assert desk.go_on().state["paid"] == Decimal("42.00")


# ---------------------------------------------------------------- the writer's key in other hands


def genuine(question: Question, **changes: Any) -> list[str]:
    return [yes(replace(question, **changes))]


OTHER: State = {"action": "send-quote", "arguments": {"amount": 5_000_000}}
BACK: State = {"reasons": ("old-checkpoint",), "action": "", "arguments": {}}
# What a thief appends after the question, with or without what dana and erin signed some time.
THEFTS: dict[str, tuple[Callable[[Question], State], type[CheckpointError]]] = {
    "a stranger's": (
        lambda q: {"approved": [yes(q, SigningKey.generate("ed25519"))]},
        ApprovalUntrusted,
    ),
    "a denial": (lambda q: {"approved": [no(q)]}, ApprovalMismatch),
    "another thread": (lambda q: {"approved": genuine(q, thread="order-8")}, ApprovalMismatch),
    "another store": (lambda q: {"approved": genuine(q, store="other")}, ApprovalMismatch),
    "another app": (lambda q: {"approved": genuine(q, app="quote@1")}, ApprovalMismatch),
    "other tools": (
        lambda q: {"approved": genuine(q, tools="sha256:" + "0" * 64)},
        ApprovalMismatch,
    ),
    "another action": (lambda q: {"approved": genuine(q, **OTHER)}, ApprovalMismatch),
    "to go back": (lambda q: {"approved": genuine(q, **BACK)}, ApprovalMismatch),
    "another step": (lambda q: {"approved": genuine(q), "done": ["fetch"]}, ApprovalMismatch),
    "two questions": (
        lambda q: {"approved": [yes(q), yes(replace(q, **OTHER), ERIN, "erin")]},
        ApprovalMismatch,
    ),
    "no approval": (lambda _: {}, WorkflowError),
    "a denial of nobody": (lambda _: {"denied": "no"}, ApprovalMalformed),
    "a denial of another": (
        lambda q: {"denied": no(replace(q, thread="order-8"))},
        ApprovalMismatch,
    ),
    "a yes as a denial": (lambda q: {"denied": yes(q)}, ApprovalMismatch),
}


@pytest.mark.parametrize("theft", THEFTS)
def test_a_thief_of_the_writers_key_cannot_say_what_a_person_approved(
    desk: Desk, theft: str
) -> None:
    forged, error = THEFTS[theft]
    question = desk.paused().question
    assert question is not None
    desk.forge("asked", **forged(question))
    refused(error, desk.go_on)
    assert desk.paid == []


@pytest.mark.parametrize("place", ["head", "checkpoint"])
def test_an_approval_of_another_record_of_the_same_run_is_none(desk: Desk, place: str) -> None:
    question = desk.paused().question
    assert question is not None
    moved: State = {place: replace(question.head, digest="sha256:" + "0" * 64)}
    other = replace(question, **moved)
    desk.forge("asked", approved=[yes(other)])
    refused(ApprovalMismatch, desk.go_on)
    assert desk.paid == []


def test_a_thief_cannot_have_fewer_people_approve_than_the_policy_asks_for(desk: Desk) -> None:
    question = desk.workflow(people=2).start(desk.ledger(), thread="order-7").question
    desk.forge("asked", approved=[yes(question), yes(question)])
    refused(ApprovalNeeded, lambda: desk.go_on(people=2))
    assert desk.paid == []


@pytest.mark.parametrize("drop", [("resumed", "origin"), ("origin",), ()])
def test_a_thief_of_the_writers_key_cannot_use_a_spent_approval_again(
    desk: Desk, drop: tuple[str, ...]
) -> None:
    """A copy of the record that spent it follows another record than the one it is about."""
    desk.approved()
    desk.forge(*drop)
    assert refused(ApprovalMismatch, desk.go_on) == (
        f"order-7 #5 goes on from an approval of something else. {WRITERS}"
    )
    assert desk.paid == []


def test_an_approval_in_a_record_counts_for_nobody_without_approvers(desk: Desk) -> None:
    desk.approved()
    refused(ApprovalUntrusted, lambda: desk.go_on(gate=None))


def test_the_writers_key_is_no_approvers_key(desk: Desk) -> None:
    with pytest.raises(KeyRefused, match="of the approver dana is on the keyring of the ledger"):
        desk.workflow().start(desk.ledger(DANA), thread="order-7")
    assert desk.ledger(DANA).latest("order-7").sequence == 2  # it did not pause
    with pytest.raises(KeyRefused):
        desk.workflow().resume(desk.ledger(DANA), "order-7")
    assert desk.told()[-1] == "resume refused #-"


def test_an_old_checkpoint_is_verified_through_every_link(desk: Desk) -> None:
    """A thief of the key can seal an old record anew; the links from the anchored end tell."""
    desk.paused()
    other = Desk()
    other.paused()
    desk.storage._records["order-7"][2] = other.storage.read("order-7", 2)
    desk.ledger().load("order-7", 2)  # its own seal is genuine
    assert "is not the one that #3 was sealed upon" in refused(SealBroken, lambda: desk.question(2))


# ---------------------------------------------------------------- back, and elsewhere


def test_going_back_to_before_an_approval_was_acted_upon_asks_again(desk: Desk) -> None:
    desk.go_on(yes(desk.paused().question))
    assert refused(ApprovalNeeded, lambda: desk.go_on(at=2)) == (
        f"order-7 #2 needs the approval of one person. The run would go back from #5 to #2. {SHOW}"
    )
    again = desk.question(4)
    assert again.reasons == ("old-checkpoint", "asked")
    assert (again.action, again.arguments) == ("pay", PAID)
    run = desk.go_on(yes(again), at=4)
    assert keys(desk) == [KEY, "invoices/order-7/6/pay"]
    assert run.head == 7
    resumed = desk.ledger().load("order-7", 6).state["resumed"]
    assert (resumed["sequence"], resumed["reasons"]) == (4, ["old-checkpoint", "asked"])


def test_an_approval_is_void_once_the_thread_has_moved_on(desk: Desk) -> None:
    desk.paused()
    text = yes(desk.question(1))
    desk.go_on(yes(desk.question(2)), at=2)
    assert refused(ApprovalSpent, partial(desk.go_on, text, at=1)) == (
        "dana answered about order-7 #3, and it is at #5 by now. Look at what happened since, and"
        " ask again."
    )


def test_a_narrower_tool_set_is_allowed_and_said(desk: Desk) -> None:
    desk.approved()
    run = desk.go_on(tools=[])
    assert run.notes == ("The tool bank is gone.",)
    assert [e.detail for e in desk.journal.show(what="resume")][-1] == "The tool bank is gone."
    assert desk.ledger().latest("order-7").tools is None


def test_a_tool_that_was_left_out_for_a_while_is_new_again(desk: Desk) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    desk.workflow(tools=[]).rehydrate(desk.ledger(), "order-7").step()
    assert "The tool bank is new." in refused(ApprovalNeeded, desk.go_on)


def test_any_number_of_new_tools_can_be_asked_about(desk: Desk) -> None:
    desk.paused()
    scopes = [f"scope-{number:03}-{'x' * 100}" for number in range(12)]
    tools = [Tool(f"tool-{number}", permissions=scopes) for number in range(40)]
    details = desk.question(tools=tools).details
    assert len(details) == 24
    assert details[-1].startswith("And 58 more like these: sha256:")
    assert all(len(detail) < 300 for detail in details)
    assert len(desk.question(tools=tools[:12]).details) == 24
    assert desk.question(tools=tools[:11]).details[1].endswith("... (1386 characters)")


def test_migrations_are_chained_and_steps_get_their_new_names(desk: Desk) -> None:
    def load(state: State) -> State:
        raise AssertionError("it is done")

    def check(state: State) -> State:
        return {"checked": state["total"], "currency": state["currency"]}

    before = Workflow("invoice", [desk.workflow().steps["fetch"], check], version="1")
    before.begin(desk.ledger(), thread="order-7").step()
    after = Workflow(
        "invoice",
        [load, check],
        version="3",
        migrations=[
            Migration("2", "3", lambda s: {**s, "currency": "EUR"}, steps={"get": "load"}),
            Migration("1", "2", lambda s: {"total": s["amount"]}, steps={"fetch": "get"}),
        ],
    )
    assert after.resume(desk.ledger(), "order-7").state["checked"] == Decimal("42.00")
    assert desk.ledger().load("order-7", 3).app == "invoice@3"
    assert "migrate done #3" in desk.told()


def spoil(state: State) -> State:
    state["payee"] = "mally"
    raise KeyError


@pytest.mark.parametrize(
    ("change", "steps", "error", "message"),
    [
        (spoil, {}, MigrationFailed, "The migration from '1' to '2' raised KeyError."),
        (lambda s: [s], {}, MigrationFailed, "The migration from '1' to '2' returned list."),
        (dict, {"fetch": None}, WorkflowMismatch, "order-7 #3 was written by other steps than"),
    ],
)
def test_a_migration_that_fails_changes_nothing(
    desk: Desk, change: Any, steps: Any, error: Any, message: str
) -> None:
    before = desk.paused().state
    more: State = {"version": "2", "migrations": [Migration("1", "2", change, steps=steps)]}
    text = yes(desk.question(**more))
    assert refused(error, lambda: desk.go_on(text, **more)).startswith(message)
    assert desk.ledger().latest("order-7").state["state"] == before
    assert desk.told()[-2:] == ["migrate refused #3", "resume refused #3"]


def test_a_question_about_what_nobody_can_approve_is_refused(desk: Desk) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    assert refused(ResumeRefused, lambda: desk.question(version="2")).endswith(
        "Register a migration from the version that wrote it, or resume it with that version."
    )
    with desk.ledger().own("order-7", "worker-1"):
        assert refused(ResumeRefused, desk.go_on).endswith(
            "Let that worker go on with it, or own it once the lease has ended."
        )
    gate = Gate(Policy({Reason.TOOLS_ADDED: None}), desk.workflow().gate.approvers)
    assert refused(ResumeRefused, lambda: desk.go_on(gate=gate, tools=[Tool("mail")])).endswith(
        "The policy lets nobody approve that. Start a new thread instead."
    )


# ---------------------------------------------------------------- the anchor, the journal, the list


def test_what_a_step_acts_upon_is_anchored_whatever_the_interval(desk: Desk) -> None:
    """Or cutting off the record of a payment would repeat it."""

    def anchored(thread: str = "order-7") -> int:
        head = desk.anchor.read("invoices", thread)
        return 0 if head is None else head.sequence

    slow, workflow = desk.ledger(anchor_every=100), desk.workflow()
    question = workflow.start(slow, thread="order-7").question
    assert anchored() == 3
    workflow.rehydrate(desk.ledger(anchor=None), "order-7", approvals=[yes(question)])
    assert anchored() == 3  # as a crash leaves it
    run = workflow.rehydrate(slow, "order-7")
    assert anchored() == 4
    run.finish()
    assert anchored() == 5
    plain = workflow.steps["fetch"]
    Workflow("plain", [plain], anchor_before=[plain]).start(slow, thread="plain")
    assert anchored("plain") == 2


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


def test_a_capture_keeps_the_key_of_the_next_step_and_no_approval_from_it(desk: Desk) -> None:
    desk.approved()
    run = desk.workflow().rehydrate(desk.ledger(), "order-7")
    assert refused(WorkflowError, run.capture) == (
        "order-7 goes on from an approval, which is for the step pay alone. Run that step: it is"
        " captured by itself."
    )
    run.finish().capture()
    assert desk.go_on().head == 6
    seen: list[str] = []

    def act(state: State, call: Call) -> None:
        seen.append(call.key)
        raise ConnectionError

    run = Workflow("plain", [act]).begin(desk.ledger(), thread="plain")
    for _ in range(2):
        with pytest.raises(ConnectionError):
            run.step()
        run.capture()
    assert seen == ["invoices/plain/1/act"] * 2


def test_what_waits_for_people_is_listed_whoever_owns_it(desk: Desk) -> None:
    first, second = desk.paused("order-7").question, desk.paused("order-8").question
    desk.workflow().begin(desk.ledger(), thread="order-9")
    desk.ledger().save("strange", {"amount": 42})
    with desk.ledger().own("order-7", "worker-1"):
        assert list(desk.workflow().waiting(desk.ledger())) == [first, second]
        assert desk.question() == first
    desk.go_on(yes(first))
    assert list(desk.workflow().waiting(desk.ledger())) == [second]


def test_a_finished_run_whose_last_step_asked_is_over(desk: Desk) -> None:
    def ask(state: State) -> Ask:
        return Ask("close", {"account": 7})

    workflow = Workflow("close", [ask], gate=desk.workflow().gate)
    question = workflow.start(desk.ledger(), thread="order-7").question
    workflow.resume(desk.ledger(), "order-7", approvals=[yes(question)])
    wider = Workflow("close", [ask], tools=[BANK], gate=workflow.gate)
    assert wider.resume(desk.ledger(), "order-7").next is None
    assert [*wider.waiting(desk.ledger())] == []


def test_a_privileged_resume_needs_a_journal_and_an_ordinary_one_does_not(desk: Desk) -> None:
    text, bare = yes(desk.paused().question), desk.ledger(journal=None)
    assert refused(
        ConfigurationError, lambda: desk.workflow().resume(bare, "order-7", approvals=[text])
    ) == (
        "order-7 #3 can be resumed only where that is written down. The run paused at #3 for a"
        " person's answer. Write Ledger(..., journal=FileJournal(path, keys=...))."
    )
    plain = Workflow("plain", [desk.workflow().steps["fetch"]])
    plain.begin(bare, thread="plain")
    with pytest.raises(JournalUnavailable):
        plain.resume(desk.ledger(journal=FullDisk(0)), thread="plain")
    assert plain.resume(bare, thread="plain").done == ("fetch",)


def test_without_a_journal_nothing_is_resumed_wherever_it_fails(desk: Desk) -> None:
    text = yes(desk.paused().question)
    resume = desk.workflow().resume
    for room in range(7):
        given = [text] if desk.ledger().latest("order-7").sequence == 3 else []
        with pytest.raises(JournalUnavailable):
            resume(desk.ledger(journal=FullDisk(room % 4)), "order-7", approvals=given)
        if desk.ledger().latest("order-7").sequence > 3:
            break
    # The record that spends the approval was written, and then the journal failed: no step ran.
    assert room == 3
    run = desk.workflow().rehydrate(desk.ledger(journal=FullDisk(1)), "order-7")
    for _ in range(3):
        with pytest.raises(JournalUnavailable):
            run.step()
    assert desk.paid == []
    desk.go_on()
    assert len(desk.paid) == 1


def test_the_journal_tells_who_did_what(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    refused(ApprovalNeeded, desk.go_on)
    secret = replace(question, arguments={**question.arguments, "payee": "canary-7"})
    with pytest.raises(ApprovalMismatch, match="canary-7"):
        desk.go_on(yes(secret))
    desk.go_on(yes(question))
    assert desk.told() == [
        "save intended #1",
        "save intended #2",
        "pause intended #2",
        "save intended #3",
        "resume refused #3",
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
    assert "canary" not in "".join(map(str, desk.journal.show()))
    assert desk.journal.verify() == 13


# ---------------------------------------------------------------- what a caller or a step got wrong


def test_what_cannot_be_answered_is_not_asked(desk: Desk) -> None:
    text, lonely = yes(desk.paused().question), desk.workflow(gate=None)
    assert refused(ConfigurationError, lambda: desk.go_on(text, gate=None)) == (
        "order-7 #3 was given an approval, and its workflow has no approvers. Say who may approve:"
        ' Workflow(..., gate=Gate(approvers=Approvers({"dana": key}))).'
    )
    assert "Say who may approve" in refused(ApprovalNeeded, lambda: desk.go_on(gate=None))
    assert "The step ask asks people, and the workflow invoice has no approvers." in refused(
        ConfigurationError, lambda: lonely.start(desk.ledger(), thread="order-8")
    )
    bare = desk.ledger(journal=None)
    assert "The step ask asks people, and the ledger has no journal to write" in refused(
        ConfigurationError, lambda: desk.workflow().start(bare, thread="order-9")
    )
    with pytest.raises(ConfigurationError, match=r"given as str\. Give a list"):
        desk.workflow().resume(desk.ledger(), "order-7", approvals=text)
    for sequence in (True, 0, "3"):
        with pytest.raises(InvalidId):
            desk.go_on(at=sequence)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("pay now",), "'pay now' cannot name what is asked."),
        (("",), "'' cannot name what is asked."),
        (("pay", {7: 42}), "{7: 42} are not arguments with names."),
        (("pay", {"to": print}), "arguments['to'] is of the type builtins.builtin_function_or_me"),
        (("pay", {"letter": "x" * 50_000}), "The arguments of a question are more than a person"),
    ],
)
def test_what_nobody_could_sign_is_refused_in_the_step(
    desk: Desk, given: Any, message: str
) -> None:
    def ask(state: State) -> Ask:
        return Ask(*given)

    workflow = Workflow("invoice", [ask], gate=desk.workflow().gate)
    assert message in refused(WorkflowError, lambda: workflow.start(desk.ledger(), "order-7"))
    assert desk.ledger().latest("order-7").sequence == 1


RESUMED: State = {"app": "a", "digest": "d", "reasons": [], "sequence": 1, "statements": []}
NO_PAYLOADS: list[State] = [
    {"strange": 1},
    {"asked": {"action": "pay", "arguments": 7}},
    {"asked": {"action": 7, "arguments": {}}},
    {"asked": {"arguments": {}}},
    {"approved": "x"},
    {"approved": [7]},
    {"denied": 7},
    {"origin": True},
    {"resumed": {**RESUMED, "app": 7}},
    {"resumed": {**RESUMED, "digest": 7}},
    {"resumed": {**RESUMED, "reasons": [7]}},
    {"resumed": {**RESUMED, "sequence": True}},
    {"resumed": {**RESUMED, "statements": "x"}},
    {"resumed": {**RESUMED, "more": 1}},
    {"resumed": {"app": "a"}},
    {"tools": [{"name": "bank"}]},
    {"tools": [BANK.described]},  # which the header does not name
]


@pytest.mark.parametrize(
    "payload",
    [
        [],
        {"done": []},
        {"state": {}},
        {"done": [], "state": 7},
        {"done": [7], "state": {}},
        *({"done": [], "state": {}, **more} for more in NO_PAYLOADS),
    ],
)
def test_what_is_not_a_workflows_payload_is_refused(desk: Desk, payload: Any) -> None:
    desk.ledger().save("order-7", payload, app="invoice@1")
    assert refused(WorkflowMismatch, desk.go_on) == (
        "order-7 #1 does not hold a workflow's state. Load it with Ledger.load, if you wrote it"
        " with Ledger.save."
    )
