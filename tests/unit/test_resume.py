"""Workflows, and resuming as a privileged operation: what goes on by itself, what people approve.

The state machine holds the order of things, the crash driver each instant, the ladder the attacks
on a store; here is what each of them cannot reach: what a caller gives, and what a thief writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from safepoint import (
    ApprovalNeeded,
    Approver,
    Approvers,
    Ask,
    Codec,
    Conflict,
    Gate,
    InMemoryJournal,
    Policy,
    SigningKey,
    Tool,
    Workflow,
)
from safepoint.core.errors import (
    ApprovalRefused,
    ConfigurationError,
    InvalidId,
    LimitExceeded,
    ResumeRefused,
    Unavailable,
)
from safepoint.core.journal import Entry, Event
from safepoint.core.record import Place, seal
from safepoint.resume.approval import Question, Reason
from safepoint.resume.asking import SPENT
from safepoint.resume.workflow import Call
from tests.house import refused
from tests.unit.approval_helpers import EXPIRED, MISMATCH, USED
from tests.unit.desk import (
    BANK,
    DANA,
    ERIN,
    PAID,
    PEOPLE,
    WRITER,
    Desk,
    FullDisk,
    State,
    no,
    revoking,
    yes,
)

KEY = "invoices/order-7/3/pay"
TICK = timedelta(microseconds=1)
NEWER: dict[str, Any] = {"version": "2", "migrations": {"1": dict}}
WIDER: dict[str, Any] = {"tools": [BANK, Tool("mail")]}


def keys(desk: Desk) -> list[str]:
    return [key for key, _ in desk.paid]


def fetch(state: State) -> State:
    return {"amount": 42}


def fail(state: State) -> State:
    state["items"].append("spoilt")
    raise ConnectionError


# ---------------------------------------------------------------- a workflow


def test_a_checkpoint_is_captured_before_the_first_step_and_after_each(desk: Desk) -> None:
    seen: list[Any] = []

    def told(state: State, call: Call) -> None:
        seen.append((call.thread, call.step, call.sequence, call.key, call.was_approved))

    def untold(state: State, note: str = "no call") -> None:
        seen.append(note)

    workflow = Workflow("w", [fetch, told, untold])
    run = workflow.begin(desk.ledger(), thread="t", order=7)
    again = workflow.rehydrate(desk.ledger(), thread="t")
    assert [each.sequence for each in run] == [2, 3, 4]
    done = [each.state["done"] for each in desk.ledger().history("t")]
    assert done == [[], ["fetch"], ["fetch", "told"], ["fetch", "told", "untold"]]
    assert seen == [("t", "told", 2, "invoices/t/2/told", False), "no call"]
    with pytest.raises(Conflict):  # of two that go on from one checkpoint, one wins
        again.step()
    assert workflow.resume(desk.ledger(), thread="t").state == {"order": 7, "amount": 42}
    assert "has run every step" in refused(ResumeRefused, run.step)
    assert "t has started already" in refused(
        Conflict, lambda: workflow.start(desk.ledger(), thread="t")
    )
    other = Workflow("other", [fetch])
    assert "not written by the workflow other but by 'w'" in refused(
        ResumeRefused, lambda: other.resume(desk.ledger(), "t")
    )


def test_a_step_that_raises_or_cannot_be_kept_changes_nothing(desk: Desk) -> None:
    def unsavable(state: State) -> State:
        return {"handle": object()}

    for thread, step, error in (("a", fail, ConnectionError), ("b", unsavable, TypeError)):
        run = Workflow("w", [step]).begin(desk.ledger(), thread=thread, items=[])
        with pytest.raises(error):
            run.step()
        assert (run.state, run.done, run.next) == ({"items": []}, (), step.__name__)
        assert desk.ledger().latest(thread).sequence == 1


def test_a_step_changes_the_state_in_place_or_returns_what_changes(desk: Desk) -> None:
    """Both are kept if it succeeds, also if it asks."""

    def change(state: State) -> Ask:
        state["items"].append(1)
        del state["order"]
        return Ask("pay")

    def collect(state: State) -> State:
        state["items"].append(2)
        return {"amount": len(state["items"])}

    workflow = Workflow("w", [change, collect], gate=desk.workflow().gate)
    run = workflow.start(desk.ledger(), thread="order-7", items=[], order=7)
    assert run.state == {"items": [1]}
    run = workflow.resume(desk.ledger(), "order-7", approvals=[yes(run.question)])
    assert run.state == {"items": [1, 2], "amount": 2}


def test_nothing_handed_out_is_the_state_of_the_run(desk: Desk) -> None:
    """Neither a checkpoint, nor what was given to start, nor what a step returned."""
    shared: list[int] = []

    @dataclass(eq=False)
    class Handle:  # which differs from any copy of it, and is no change in place
        number: int

    def keep(state: State) -> State:
        return {"shared": shared}

    def pay(state: State) -> State:
        return {"paid": state["given"]["amount"]}

    given, ledger = {"amount": 1}, desk.ledger(codec=Codec([Handle]))
    run = Workflow("w", [keep, pay]).begin(ledger, thread="t", given=given, handle=Handle(7))
    for checkpoint in run:
        checkpoint.state["state"]["given"]["amount"] = "redacted"
        given["amount"] = 5_000_000
        shared.append(1)
    assert (run.state["given"], run.state["shared"], run.state["paid"]) == ({"amount": 1}, [], 1)


async def later(state: State) -> State:
    return {}


def odd(state: State) -> Any:
    return [("a", 1)]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"steps": []}, ConfigurationError),
        ({"steps": [fetch, fetch]}, ConfigurationError),
        ({"steps": [lambda state: state]}, ConfigurationError),
        ({"steps": [later]}, ConfigurationError),
        ({"steps": [odd]}, ConfigurationError),
        ({"name": "Not A Name"}, InvalidId),
        ({"version": "1 "}, InvalidId),
        ({"version": "x" * 128}, InvalidId),
    ],
)
def test_what_is_no_workflow_is_refused(desk: Desk, options: State, error: Any) -> None:
    given = {"name": "w", "steps": [fetch], "version": "3", **options}
    refused(error, lambda: Workflow(**given).start(desk.ledger(), thread="t"))


# ---------------------------------------------------------------- a pause, and a yes


def test_an_approved_run_goes_on_with_what_was_signed_and_once(desk: Desk) -> None:
    run = desk.paused()
    assert (run.paused, run.next, run.head, run.denied) == (True, "pay", 3, False)
    assert "paused" in repr(run)
    refused(ApprovalNeeded, run.step)
    with pytest.raises(ApprovalNeeded, match="needs the approval of one person") as refusal:
        desk.go_on()
    assert refusal.value.question == run.question == desk.question()
    text = yes(run.question)
    run = desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[text])
    assert run.approved is not None
    assert run.approved.by == ("dana",)
    assert "42" not in f"{run.approved!r} {Ask('pay', PAID)!r}"
    for sequence in (None, 3):
        assert "already answered: approved by dana. An approval counts once" in refused(
            USED, partial(desk.go_on, text, at=sequence)
        )
    desk.fails = 1
    with pytest.raises(ConnectionError):
        run.step()
    other = desk.workflow().rehydrate(desk.ledger(), "order-7")
    assert run.finish().approved is None
    refused(Conflict, other.step)  # its thread has moved on, so it does not act
    assert desk.paid == [(KEY, PAID)] * 2
    with pytest.raises(ApprovalRefused, match=USED, check=lambda e: e.kind == "used"):
        desk.go_on(text)
    assert desk.go_on(**NEWER).next is None


def test_two_tenants_with_a_thread_of_one_name_pay_under_keys_of_their_own(desk: Desk) -> None:
    for name in ("acme", "globex"):
        ledger = desk.ledger().tenant(name)
        text = yes(desk.workflow().start(ledger, thread="order-7").question)
        desk.workflow().resume(ledger, "order-7", approvals=[text])
    assert keys(desk) == ["invoices/@acme/order-7/3/pay", "invoices/@globex/order-7/3/pay"]
    acme = desk.ledger().tenant("acme")
    refused(MISMATCH, lambda: desk.workflow().resume(acme, "order-7", approvals=[text]))


LAPSES: dict[str, State] = {
    "was revoked since": {"gate": Gate(approvers=revoking(DANA))},
    "Fewer people": {"gate": Gate(Policy({Reason.ASKED: 2}), PEOPLE)},
    "another version": NEWER,
    "a tool more": WIDER,
    "another tool": {"tools": [Tool("bank")]},
}


@pytest.mark.parametrize("why", LAPSES)
def test_an_approval_that_lapsed_is_asked_again_under_the_same_key(desk: Desk, why: str) -> None:
    """It may have been acted upon already, and the bank can tell."""
    text, more = yes(desk.paused().question), LAPSES[why]
    desk.fails = 1
    with pytest.raises(ConnectionError):
        desk.go_on(text)
    refused(ApprovalNeeded, lambda: desk.go_on(**more))
    question = desk.question(**more)
    assert question.reasons[-1] == "asked"
    assert [*desk.workflow(**more).waiting(desk.ledger())] == [question]
    count = 2 if why.startswith("Fewer") else 1
    texts = [yes(question, ERIN, "erin"), yes(question)][:count]
    desk.workflow(**more).rehydrate(desk.ledger(), "order-7", approvals=texts)  # and dies
    desk.go_on(**more)
    assert keys(desk) == [KEY] * 2


def test_who_goes_back_from_a_denial_is_told_of_it(desk: Desk) -> None:
    desk.go_on(no(desk.paused().question))
    question = desk.question(2)
    assert question.details[-1] == "erin denied it at #3."
    hidden = yes(replace(question, details=question.details[:-1]))
    refused(MISMATCH, lambda: desk.go_on(hidden, at=2))
    run = desk.go_on(yes(question), at=2)
    assert run.question is not None
    assert desk.go_on(yes(run.question)).state["paid"] == PAID["amount"]


def test_an_approval_is_for_the_next_step_alone_and_no_step_changes_it(desk: Desk) -> None:
    seen: list[Any] = []

    def ask(state: State) -> Ask:
        return Ask("pay", {"payee": "alice"})

    def pay(state: State, call: Call) -> None:
        call.approved.arguments["payee"] = "mally"
        seen.append(call.approved.arguments["payee"])

    def fee(state: State, call: Call) -> State:
        assert not call.was_approved
        return {"fee": call.approved.arguments["amount"]}

    workflow = Workflow("invoice", [ask, pay, fee], gate=desk.workflow().gate)
    run = workflow.start(desk.ledger(), thread="order-7")
    refused(ApprovalNeeded, lambda: workflow.resume(desk.ledger(), "order-7"))
    with pytest.raises(ConfigurationError, match="Nobody was asked to approve the step fee"):
        workflow.resume(desk.ledger(), "order-7", approvals=[yes(run.question)])
    assert seen == ["alice"]


# ---------------------------------------------------------------- a no


def test_a_no_to_something_else_leaves_the_run_as_it_is(desk: Desk) -> None:
    desk.go_on(yes(desk.paused().question))
    before = desk.ledger().latest("order-7")
    for sequence, more in ((1, {}), (3, {}), (2, WIDER)):
        text = no(desk.question(sequence, **more))
        what = "pay" if sequence == 3 else "to continue"
        assert f"erin denied it: {what} at order-7 #{sequence}. That is final" in refused(
            ResumeRefused, partial(desk.go_on, text, at=sequence, **more)
        )
        assert desk.told()[-4] == f"deny intended #{sequence}"
        assert desk.told()[-1] == f"resume refused #{sequence}"
        refused(ResumeRefused, partial(desk.go_on, at=sequence, **more))
    assert desk.ledger().latest("order-7") == before
    assert desk.go_on().next is None


# ---------------------------------------------------------------- the writer's key in other hands


def note(desk: Desk, question: Question, *texts: str) -> None:
    """Note what a thief of the writer's key would, after the last record."""
    value = {"question": question.text, "statements": list(texts)}
    desk.ledger().note("order-7", value, label=SPENT)


@pytest.mark.parametrize("expired", [True, False])
def test_a_note_that_nobody_used_counts_only_if_it_would_now(desk: Desk, expired: bool) -> None:
    """A thief spends an expired approval, or ends a wait early. A denial counts at any time."""
    desk.within = None if expired else HOUR
    question, now = desk.paused().question, datetime.now(UTC)
    assert question is not None
    old = Approver("dana", DANA).approve(question, now=now - 2 * HOUR)
    put(desk, question, *([old] if expired else []), created=now - 2 * HOUR)
    refused(ApprovalNeeded, desk.go_on)
    put(desk, question, no(question), created=now)
    revoked = Gate(approvers=revoking(ERIN))
    refused(ApprovalNeeded, lambda: desk.go_on(gate=revoked))  # no worker has found it so far
    assert desk.go_on().denied
    assert desk.go_on(gate=revoked).denied
    assert desk.paid == []


@pytest.mark.parametrize("answer", [yes, no])
def test_who_removes_a_key_that_answered_is_told_to_revoke_it(desk: Desk, answer: Any) -> None:
    """If it were skipped, a denial would be gone, and the question open again."""
    question = desk.paused().question
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[answer(question)])
    olga = SigningKey.generate()
    gate = Gate(approvers=Approvers({"olga": olga.public}))
    with pytest.raises(ApprovalRefused, match="as revoked if its owner"):
        desk.go_on(yes(question, olga, "olga"), gate=gate)
    assert desk.paid == []


class Clock(InMemoryJournal):
    """A journal that is told something at a time that the test says."""

    def __init__(self, now: datetime | None = None) -> None:
        super().__init__()
        self.now = now or datetime.now(UTC)
        self.times: dict[tuple[str, int], datetime] = {}

    def record(self, event: Event) -> Entry:
        entry = super().record(event)
        self.times[entry.chain, entry.number] = self.now
        return entry

    def back(self, thread: str) -> Iterator[Entry]:
        for entry in super().back(thread):
            yield replace(entry, at=self.times[entry.chain, entry.number])


def put(desk: Desk, question: Question, *texts: str, created: datetime) -> None:
    """Seal a note that spends these texts, at a time of one's own, and let no anchor see it."""
    value = {"question": question.text, "statements": list(texts)}
    append(desk, value, created, kind="note", label=SPENT)


def append(desk: Desk, value: Any, created: datetime, **fields: Any) -> None:
    end = next(desk.ledger().back("order-7"))
    place = Place("invoices", "", "order-7", end.sequence + 1)
    options = {"created": created, "previous": end.digest, **fields}
    record, _ = seal(Codec().encode(value), place, WRITER, **options)
    desk.storage.append("order-7", place.sequence, record)


HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.mark.parametrize("used", [MINUTE, HOUR - TICK, HOUR])
def test_an_approval_counts_if_the_journal_has_in_time_that_it_is_used(
    desk: Desk, used: timedelta
) -> None:
    """It is for an hour. A worker, or a thief, can write any time into the note."""
    start = datetime.now(UTC)
    desk.journal = clock = Clock(start)
    question = desk.paused().question
    assert question is not None
    dana, workflow = Approver("dana", DANA), desk.workflow()
    text = dana.approve(question, now=start)
    clock.now = start + used
    spend = partial(workflow.rehydrate, desk.ledger(), "order-7", approvals=[text], now=start)
    if used == HOUR:
        assert "order-7 #3 continues too late" in refused(EXPIRED, spend)
    else:
        spend()
    clock.now = start + 30 * HOUR  # whoever comes after a crash goes on with what was spent
    resume = partial(workflow.resume, desk.ledger(), "order-7", now=clock.now)
    if used == HOUR:
        refused(ApprovalNeeded, resume)
        assert desk.paid == []
        resume(approvals=[dana.approve(question, now=clock.now)])
    resume()
    assert keys(desk) == [KEY]


def test_every_detail_is_shown_or_nobody_is_asked(desk: Desk) -> None:
    """A thief who says that many tools had other versions would hide behind them what is new."""
    desk.paused()
    words = [f"permission-{number:03}" for number in range(100)]
    wide: State = {"tools": [Tool("bank", version="1", permissions=["pay", *words])]}
    assert f"detail: The tool bank gains the permissions {', '.join(words)}." in (
        desk.question(**wide).described
    )
    many: list[Tool] = [BANK, *(Tool(f"tool-{number:03}") for number in range(300))]
    details = desk.question(tools=many).details
    assert details[:-1] == tuple(f"The tool {tool.name} is new." for tool in many[1:])
    assert details[-1] == "The run paused at #3 for a person's answer."
    many += [Tool(f"more-{number}") for number in range(3000)]
    assert "change fewer at a time" in refused(LimitExceeded, lambda: desk.question(tools=many))


def test_a_thief_who_leaves_out_the_question_passes_the_gate_and_gets_no_arguments(
    desk: Desk,
) -> None:
    """A step that reads the state would do what the thief wrote: the page on approvals says so."""
    last = desk.paused().at
    state = {name: each for name, each in last.state.items() if name != "asked"}
    desk.ledger().save("order-7", state, app=last.app, tools=last.tools)
    assert desk.workflow().question(desk.ledger(), "order-7") is None
    with pytest.raises(ConfigurationError, match="Nobody was asked to approve the step pay"):
        desk.go_on()
    assert desk.paid == []


def test_steps_that_changed_under_one_version_are_refused(desk: Desk) -> None:
    Workflow("w", [fetch, fail]).begin(desk.ledger(), thread="t", items=[]).step()
    other = Workflow("w", [fail, fetch])
    assert "was written when w had other steps" in refused(
        ResumeRefused, lambda: other.resume(desk.ledger(), "t")
    )


def test_a_version_without_a_migration_is_refused_and_nobody_is_asked(desk: Desk) -> None:
    desk.paused()
    for act in (desk.question, desk.go_on):
        assert "No migration leads" in refused(ResumeRefused, partial(act, version="3"))


# ---------------------------------------------------------------- back, and elsewhere


def test_going_back_to_before_an_approval_was_acted_upon_asks_again(desk: Desk) -> None:
    desk.go_on(yes(desk.paused().question))
    refused(ApprovalNeeded, lambda: desk.go_on(at=2))
    void, again = yes(desk.question(1)), desk.question(3)
    assert again.reasons == ("old-checkpoint", "asked")
    assert (again.action, again.arguments) == ("pay", PAID)
    assert desk.go_on(yes(again), at=3).head == 7
    assert keys(desk) == [KEY, "invoices/order-7/5-from-3/pay"]
    with pytest.raises(ApprovalRefused, match=USED, check=lambda e: e.kind == "moved"):
        desk.go_on(void, at=1)
    for sequence in (True, 0, "3"):
        with pytest.raises(InvalidId):
            desk.go_on(at=sequence)  # type: ignore[arg-type]


def test_each_payment_that_people_approved_has_a_key_of_its_own(desk: Desk) -> None:
    """From one end, the run goes back to two checkpoints: a bank must not drop the second."""
    desk.go_on(yes(desk.paused().question))
    desk.go_on(yes(desk.question(2)), at=2)
    desk.go_on(yes(desk.question()))
    for sequence in (3, 3, 7):
        desk.fails = 1
        texts = [yes(desk.question(sequence))] if len(desk.paid) != 3 else []
        with pytest.raises(ConnectionError):
            desk.go_on(*texts, at=sequence)
    heads = ["3", "7", "9-from-3", "9-from-3", "9-from-7"]
    assert [key.split("/")[2] for key in keys(desk)] == heads


def test_a_narrower_tool_set_is_allowed(desk: Desk) -> None:
    desk.workflow().begin(desk.ledger(), thread="order-7")
    run = desk.workflow(tools=[]).rehydrate(desk.ledger(), "order-7")
    run.step()
    assert desk.ledger().latest("order-7").tools is None
    assert "The tool bank is new." in refused(ApprovalNeeded, desk.go_on)  # once it was left out


# ---------------------------------------------------------------- the anchor and the journal


def test_without_a_journal_nothing_is_resumed_wherever_it_fails(desk: Desk) -> None:
    text = yes(desk.paused().question)
    for room in range(3):
        full = desk.ledger(journal=FullDisk(room, desk.journal))
        with pytest.raises(Unavailable) as failed:
            desk.workflow().resume(full, "order-7", approvals=[text])
        assert next(desk.ledger().back("order-7")).sequence == 3 + (room == 2)
    # The note that spends the approval was written, and then the journal failed: no step ran.
    assert failed.value.what.startswith("It is done (approve), but the journal could not be")
    with pytest.raises(Unavailable, match="but the journal could not be written"):
        desk.workflow().resume(desk.ledger(journal=FullDisk(1, desk.journal)), "order-7")
    full = desk.ledger(journal=FullDisk(1, desk.journal))
    run = desk.workflow().rehydrate(full, "order-7")
    for _ in range(3):
        with pytest.raises(Unavailable):
            run.step()
    assert desk.paid == []
    desk.go_on()
    assert len(desk.paid) == 1


def test_the_journal_tells_who_did_what(desk: Desk) -> None:
    question = desk.paused().question
    assert question is not None
    refused(ApprovalNeeded, desk.go_on)
    secret = replace(question, arguments={**question.arguments, "payee": "canary-7"})
    with pytest.raises(ApprovalRefused, match="canary-7"):
        desk.go_on(yes(secret))
    desk.go_on(yes(question))
    assert desk.told() == [
        "save intended #1",
        "save intended #2",
        "pause intended #2",
        "save intended #3",
        "resume refused #3",
        "resume refused #3",
        "approve intended #3",
        "save intended #4",
        "approve done #4",
        "resume done #3",
        "act intended #3",
        "save intended #5",
    ]
    for approve in desk.journal.show(what="approve"):
        assert (approve.actor.name, approve.actor.how) == ("dana", f"signature of key {DANA.id}")
    assert "canary" not in "".join(map(str, desk.journal.show()))
    assert desk.journal.verify() == 12


# ---------------------------------------------------------------- what a step or a record got wrong


ASKED: State = {"action": "pay", "arguments": {}, "next": "pay", "within": 0}
NO_PAYLOADS: list[State] = [
    {"strange": 1},
    {"asked": {**ASKED, "arguments": 7}},
    {"asked": {**ASKED, "action": ""}},
    {"asked": {**ASKED, "within": -1}},
    {"asked": {**ASKED, "next": 7}},
    {"approved": ["x"]},
    {"tools": [{"name": "bank"}]},
    {"tools": [BANK.described]},  # which the header does not name
]


@pytest.mark.parametrize(
    "payload",
    [
        {"done": []},
        {"done": [], "state": 7},
        {"done": [7], "state": {}},
        *({"done": [], "state": {}, **more} for more in NO_PAYLOADS),
    ],
)
def test_what_is_not_a_workflows_payload_is_refused(desk: Desk, payload: Any) -> None:
    desk.ledger().save("order-7", payload, app="invoice@1")
    assert "does not hold a workflow's state" in refused(ResumeRefused, desk.go_on)
