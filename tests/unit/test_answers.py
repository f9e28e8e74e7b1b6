"""Answers, holds and waits: what is put is found, what is missing stops a run, a wait ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from safepoint import (
    Approver,
    Approvers,
    FileCheckpointStorage,
    Gate,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Policy,
    SigningKey,
    Tool,
)
from safepoint.core.errors import (
    ApprovalNeeded,
    CheckpointError,
    ConfigurationError,
    InvalidId,
    LimitExceeded,
    NotOwner,
    ResumeRefused,
    SealBroken,
    Unavailable,
    Unsafe,
)
from safepoint.core.keys import VerifyingKey
from safepoint.core.names import ANSWERS, Head
from safepoint.resume.answers import MOST, ORDERS, Answers, Order, _chain
from safepoint.resume.approval import Question, Reason
from safepoint.resume.asking import check_askable
from safepoint.resume.gate import May
from tests.house import refused
from tests.unit.approval_helpers import MALFORMED, UNTRUSTED
from tests.unit.desk import DANA, ERIN, OLGA, OMAR, OPERATORS, PEOPLE, WRITER, Desk, State, revoking

dana, erin = Approver("dana", DANA), Approver("erin", ERIN)
omar, olga = Approver("omar", OMAR), Approver("olga", OLGA)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
Chain = dict[int, bytes]


def hold(desk: Desk, by: Approver = omar, thread: str = "order-7", **options: Any) -> Order:
    return desk.answers.hold(by, "invoices", thread, **options)


def release(desk: Desk, order: Order, by: Approver = omar, thread: str = "order-7") -> Order:
    return desk.answers.release(by, "invoices", thread, order.hold)


def chain_of(desk: Desk) -> Chain:
    """A copy of the one chain that is there."""
    [records] = desk.shelf.chains.values()
    return records


# --- Answers


def test_nobody_puts_what_is_not_an_answer_of_theirs_or_too_much_of_it() -> None:
    desk = Desk()
    question = desk.starts()
    text = dana.approve(question)
    bad: list[tuple[str, str]] = [
        (MALFORMED, "yes"),
        (MALFORMED, text + " " * 70_000),
        (UNTRUSTED, erin.deny(question)),
        (UNTRUSTED, text.replace("alice", "mally")),
    ]
    for error, each in bad:
        refused(error, lambda each=each: desk.answers.put(dana, each))
    refused(InvalidId, lambda: desk.answers.put(dana, text, why="x" * 1001))
    assert desk.shelf.threads() == []
    for _ in range(MOST - 1):
        desk.answers.put(dana, dana.approve(question))
    refused(LimitExceeded, lambda: desk.answers.put(dana, dana.approve(question)))
    desk.answers.put(dana, dana.deny(question))  # which has a place of its own
    refused(LimitExceeded, lambda: desk.answers.put(dana, dana.deny(question)))
    assert len(desk.answers.about(question, PEOPLE)) == MOST


def test_an_answer_counts_for_its_own_question_alone() -> None:
    desk = Desk()
    question = desk.starts()
    changes: list[State] = [{"store": "refunds"}, {"tenant": "acme"}, {"thread": "order-8"}]
    for change in [*changes, {"arguments": {"amount": 43}}]:
        other = replace(question, **change)
        desk.answers.put(erin, erin.deny(other))
        assert len(desk.answers.about(other, PEOPLE)) == 1
    desk.answers.put(dana, dana.approve(replace(question, app="invoice@2")))
    assert desk.answers.about(question, PEOPLE) == []
    refused(ApprovalNeeded, desk.go_on)
    desk.answers.put(dana, dana.approve(question))
    desk.go_on()
    assert len(desk.paid) == 1


def test_a_no_that_was_put_holds_for_whichever_version_looks() -> None:
    """A deploy comes between erin's no and the worker that finds it."""
    desk = Desk(within=DAY)
    desk.answers.put(erin, erin.deny(desk.starts()))
    newer: State = {"version": "2", "migrations": {"1": dict}}
    assert desk.go_on(tools=[Tool("bank")], **newer).denied
    assert desk.go_on().denied
    assert desk.paid == []


def test_a_worker_reads_its_own_answers_and_none_of_ten_thousand_others() -> None:
    desk = Desk()
    question = desk.starts()
    desk.answers.put(dana, dana.approve(question))
    [(_, record)] = chain_of(desk).items()
    for number in range(10_000):
        desk.shelf.append(f"{number:064x}", 1, record)
        desk.heads.advance(ANSWERS, f"{number:064x}", Head(1, "sha256:" + "a" * 64))
    desk.shelf.reads = 0
    desk.answers.about(question, PEOPLE)
    alone = desk.shelf.reads
    assert 1 <= alone <= 2
    desk.go_on()
    assert desk.shelf.reads <= 8 * alone  # a resume looks a few times
    assert len(desk.paid) == 1


def said(who: Approver, question: Question) -> Chain:
    desk = Desk()
    desk.answers.put(who, who.approve(question))
    desk.answers.put(who, who.approve(question))
    return chain_of(desk)


TAMPERED: dict[str, Callable[[Question, Chain], Chain]] = {
    "gone": lambda _, __: {},
    "cut": lambda _, chain: {1: chain[1]},
    "edited": lambda _, chain: {**chain, 2: chain[2].replace(b"denied", b"maybe!")},
    "of another question": lambda asked, _: said(erin, replace(asked, thread="order-8")),
    "of another person": lambda asked, _: said(dana, asked),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_whatever_does_not_verify_lets_nothing_go_on(what: str) -> None:
    """And nothing is lost: put back, the no counts."""
    desk = Desk()
    question = desk.starts()
    desk.answers.put(erin, erin.approve(question))
    desk.answers.put(erin, erin.deny(question))
    [chain], kept = desk.shelf.chains, desk.shelf.chains
    desk.shelf.chains = {chain: TAMPERED[what](question, chain_of(desk))}
    before = desk.ledger().latest("order-7")
    refused(SealBroken, lambda: desk.go_on(dana.approve(question)))
    refused(SealBroken, lambda: desk.answers.verify(PEOPLE, OPERATORS))
    assert desk.ledger().latest("order-7") == before
    desk.shelf.chains = kept
    assert desk.answers.verify(PEOPLE, OPERATORS) == 2
    for verify in (partial(desk.answers.verify, OPERATORS), desk.answers.verify):
        assert "list it as revoked" in refused(SealBroken, verify)
    assert desk.go_on(dana.approve(question)).denied
    assert desk.paid == []


NONSENSE: dict[str, Callable[[Question], Any]] = {
    "a number": lambda _: {"answer": 7},
    "a list": lambda _: [],
    "no answer": lambda _: {"answer": "yes"},
    "a no to something else": lambda q: {"answer": erin.deny(replace(q, thread="order-8"))},
    "a no of somebody else": lambda q: {"answer": dana.deny(q)},
}


@pytest.mark.parametrize("what", NONSENSE)
def test_nobody_stops_a_run_by_what_is_no_answer(what: str) -> None:
    """An approver who turned writes into their own chain, past this release."""
    desk = Desk()
    question = desk.starts()
    desk.answers.put(erin, erin.approve(question))
    [chain] = desk.shelf.chains
    desk.answers._append(erin, "", chain, NONSENSE[what](question), MOST)
    desk.go_on(dana.approve(question))
    assert len(desk.paid) == 1
    said = [isinstance(each, CheckpointError) for each in desk.answers.every(PEOPLE, OPERATORS)]
    assert said == [False] + [True] * (what != "a list")


@pytest.mark.parametrize("first", ["yes", "no"])
def test_nobody_stops_a_run_by_how_much_they_write_nor_takes_their_no_back(first: str) -> None:
    """An approver who turned, or a thief of their key, writes more records than are put."""
    desk = Desk()
    question = desk.starts()
    desk.answers.put(erin, erin.deny(question) if first == "no" else erin.approve(question))
    [chain] = desk.shelf.chains
    for _ in range(MOST + 1):
        text = erin.approve(question)
        desk.answers._append(erin, "", chain, {"answer": text}, MOST * 2)
    last = {"answer": erin.deny(question)}
    desk.answers._append(erin, "", chain, last, MOST * 2)  # which came too late
    assert len(desk.answers.about(question, PEOPLE)) == MOST
    run = desk.go_on(dana.approve(question))
    assert run.denied == (first == "no")
    assert len(desk.paid) == (first == "yes")
    assert desk.answers.verify(PEOPLE, OPERATORS) == MOST + 3


def test_nobody_makes_a_worker_read_for_ever() -> None:
    """A chain that is far longer than what people put is not read."""
    desk = Desk()
    question = desk.starts()
    desk.answers.put(erin, erin.approve(question))
    [chain] = desk.shelf.chains
    desk.shelf.chains = {chain: dict.fromkeys(range(1, ORDERS + 2), chain_of(desk)[1])}
    desk.shelf.reads = 0
    assert "too many for one" in refused(SealBroken, lambda: desk.go_on(dana.approve(question)))
    assert desk.shelf.reads == 0


def test_who_writes_into_the_chain_of_another_is_found() -> None:
    desk = Desk()
    question = desk.starts()
    chain = _chain("answer", DANA, question.subject)
    desk.answers._append(erin, "", chain, {"answer": erin.deny(question)}, MOST)
    refused(SealBroken, lambda: desk.go_on(dana.approve(question)))
    refused(SealBroken, lambda: desk.answers.verify(PEOPLE, OPERATORS))


def test_what_a_revoked_key_put_does_not_count_and_stops_nothing() -> None:
    """One step ends what an approver who turned can do: list their key as revoked."""
    desk = Desk()
    question = desk.starts()
    desk.answers.put(erin, erin.deny(question))
    [chain] = desk.shelf.chains
    desk.shelf._records["", chain][1] = b"x"  # and whatever was done to the chain
    people = revoking(ERIN)
    gate = Gate(approvers=people, answers=desk.answers, operators=OPERATORS)
    refused(SealBroken, lambda: desk.go_on(dana.approve(question)))
    refused(UNTRUSTED, lambda: desk.go_on(erin.approve(question), gate=gate))
    desk.go_on(dana.approve(question), gate=gate)
    assert len(desk.paid) == 1
    desk.answers.put(dana, dana.approve(question))
    assert desk.answers.verify(people, OPERATORS) == 1  # it ends green
    assert [str(each) for each in desk.answers.every(people, OPERATORS)] == ["The approval by dana"]


def test_nobody_keeps_a_key_beside_what_it_vouches_for(tmp_path: Any) -> None:
    """Whoever writes the storage could put another in its place."""
    place = tmp_path / "answers"
    storage = FileCheckpointStorage(place)
    (place / "erin.pub").write_text(str(ERIN.public.text))
    key = VerifyingKey.from_file(place / "erin.pub")
    answers = Answers(storage, InMemoryAnchor())
    desk = Desk()
    refused(Unsafe, lambda: answers.about(desk.starts(), Approvers({"erin": key})))


# --- Holds


def test_a_hold_ends_with_its_own_release_by_a_key_that_counts() -> None:
    desk = Desk()
    question = desk.starts()
    desk.answers.put(dana, dana.approve(question))
    first, second = hold(desk), hold(desk, olga)
    other = hold(desk, thread="order-8")
    release(desk, other)
    release(desk, first)
    assert "olga has held" in refused(NotOwner, desk.go_on)
    release(desk, second, Approver("mally", SigningKey.generate()))
    release(desk, second, erin)
    refused(NotOwner, desk.go_on)
    release(desk, second, omar)
    gone = Approvers({"omar": OMAR.public, "olga": OLGA.public}, revoked=[OMAR.public])
    gate = Gate(approvers=PEOPLE, answers=desk.answers, operators=gone)
    refused(NotOwner, lambda: desk.go_on(gate=gate))
    desk.go_on()
    assert len(desk.paid) == 1
    third = hold(desk)  # a release counts once: what it ended has ended, and this is another
    assert third.hold not in (first.hold, second.hold)


def test_a_hold_is_about_its_thread_store_and_tenant_alone() -> None:
    desk = Desk()
    question = desk.starts()
    desk.answers.put(dana, dana.approve(question))
    hold(desk, thread="order-8")
    hold(desk, tenant="acme")
    desk.answers.hold(omar, "refunds", "order-7")
    hold(desk, erin)  # who is no operator
    other = {"order": "hold", "store": "invoices", "tenant": "", "thread": "order-8"}
    desk.answers._append(omar, "", _chain("order", OMAR, "invoices/order-7"), other, MOST)
    desk.go_on()
    assert len(desk.paid) == 1
    refused(InvalidId, lambda: hold(desk, why="x" * 1001))
    refused(InvalidId, lambda: hold(desk, thread="../x"))
    refused(InvalidId, lambda: desk.answers.release(omar, "invoices", "order-7", "first"))


def test_who_may_hold_and_where_is_said_in_the_gate() -> None:
    refused(ConfigurationError, lambda: Gate(operators=OPERATORS))
    answers = Answers(InMemoryCheckpointStorage(), InMemoryAnchor())
    refused(Unsafe, lambda: Gate(approvers=PEOPLE, answers=answers, operators=PEOPLE))
    desk = Desk()
    resume, texts = desk.workflow().resume, [dana.approve(desk.starts())]
    refused(Unsafe, lambda: resume(desk.ledger(OMAR), "order-7", approvals=texts))


# --- Waits


def test_a_resume_ends_a_wait_that_is_over_and_a_list_does_not() -> None:
    desk = Desk(within=DAY)
    desk.starts("order-7")
    desk.starts("order-8")
    hold(desk, thread="order-8")
    now, workflow, ledger = datetime.now(UTC), desk.workflow(), desk.ledger()
    refused(ApprovalNeeded, lambda: workflow.resume(ledger, "order-7", now=now))
    before = next(ledger.back("order-7")).digest
    assert all(each.is_over(now + DAY * 2) for each in workflow.waiting(ledger))
    assert next(ledger.back("order-7")).digest == before
    assert workflow.resume(ledger, "order-7", now=now + DAY * 2).expired
    assert workflow.resume(ledger, "order-7").expired
    refused(NotOwner, lambda: workflow.resume(ledger, "order-8", now=now + DAY * 2))
    assert [each.thread for each in workflow.waiting(ledger)] == ["order-8"]


# --- Amounts

DANA_2 = SigningKey.generate()
dana_2 = Approver("dana", DANA_2)
MAY = Gate(
    Policy(may={"pay": [May(up_to=1_000), May(Decimal("50000.00"), people=2)]}),
    Approvers({"dana": [DANA.public, DANA_2.public], "erin": ERIN.public}),
)


@pytest.mark.parametrize(
    ("amount", "who", "error"),
    [
        (0, [dana], None),
        (Decimal("1000.00"), [dana], None),
        (Decimal("1000.01"), [dana], ApprovalNeeded),
        (50_000, [dana, erin], None),
        (50_000, [dana, dana_2], ApprovalNeeded),
        (50_001, [dana, erin], ResumeRefused),
        (-1, [dana, erin], ResumeRefused),
        (True, [dana, erin], ResumeRefused),
        (42.0, [dana, erin], ResumeRefused),
        ("42", [dana, erin], ResumeRefused),
        (..., [dana, erin], ResumeRefused),
    ],
)
def test_who_may_approve_what_amount(
    amount: Any, who: list[Approver], error: type[CheckpointError] | None
) -> None:
    desk = Desk()
    desk.gate, desk.asked_for = MAY, {} if amount is ... else {"amount": amount}
    question = desk.starts()
    texts = [each.approve(question) for each in who]
    if error is not None:
        refused(error, lambda: desk.go_on(*texts))
        assert desk.paid == []
        assert desk.go_on(erin.deny(question)).denied  # a no of anybody counts
    else:
        desk.go_on(*texts)
        assert [arguments["amount"] for _, arguments in desk.paid] == [amount]


def test_the_reasons_and_the_amount_take_the_most_people_of_both() -> None:
    desk = Desk()
    desk.gate = Gate(Policy({Reason.ASKED: 2}, may={"pay": [May()]}), PEOPLE)
    question = desk.starts()
    refused(ApprovalNeeded, lambda: desk.go_on(dana.approve(question)))
    desk.go_on(dana.approve(question), erin.approve(question))
    assert len(desk.paid) == 1


def test_limits_that_say_nothing_are_refused() -> None:
    people = Approvers({"dana": DANA.public})
    for number in (0, 17):
        refused(ConfigurationError, lambda number=number: May(people=number))
    refused(ConfigurationError, lambda: Gate(Policy(may={"pay": [May(people=2)]}), people))
    for up_to in (-1, 1.5, True, Decimal("NaN")):
        refused(ConfigurationError, lambda up_to=up_to: May(up_to))
    desk = Desk()
    desk.gate = Gate(Policy({Reason.ASKED: 1}, may={"refund": [May()]}), people)
    question = desk.starts()
    refused(ResumeRefused, lambda: desk.go_on(dana.approve(question)))


def test_an_operator_who_turned_stops_nothing_once_their_key_is_revoked() -> None:
    desk = Desk()
    question = desk.starts()
    hold(desk)
    [chain] = desk.shelf.chains
    operators = Approvers({"omar": OMAR.public}, revoked=[OMAR.public])
    gate = Gate(approvers=PEOPLE, answers=desk.answers, operators=operators)
    refused(NotOwner, lambda: desk.go_on(dana.approve(question), gate=gate))  # it still counts
    desk.shelf._records["", chain][1] = b"x"
    refused(SealBroken, lambda: desk.go_on(dana.approve(question)))
    desk.go_on(dana.approve(question), gate=gate)
    assert (len(desk.paid), desk.answers.verify(PEOPLE, operators)) == (1, 0)


def test_a_place_that_does_not_answer_lets_nothing_go_on() -> None:
    desk = Desk()
    question = desk.starts()
    desk.shelf.down = True
    refused(Unavailable, lambda: desk.answers.put(erin, erin.deny(question)))
    refused(Unavailable, lambda: desk.go_on(dana.approve(question)))
    desk.shelf.down = False
    desk.go_on(dana.approve(question))
    assert len(desk.paid) == 1


def test_who_is_asked_again_in_time_answers_in_the_same_wait() -> None:
    """The yes of a key that was revoked since does not count, and nobody acted upon it."""
    desk = Desk(within=HOUR)
    first = desk.starts()
    desk.workflow().rehydrate(desk.ledger(), "order-7", approvals=[dana.approve(first)])
    people = revoking(DANA)
    desk.gate = Gate(approvers=people, answers=desk.answers, operators=OPERATORS)
    question = desk.workflow().question(desk.ledger(), "order-7")
    assert question is not None
    assert question.until == first.until
    desk.go_on(erin.approve(question))
    assert len(desk.paid) == 1


@pytest.mark.parametrize("role", ["approvers", "operators"])
def test_whoever_writes_the_store_answers_nothing_in_it(role: str) -> None:
    """With the writer's key as a person's, no way in begins, continues or asks."""
    desk = Desk()
    desk.paused()
    people: Any = {"approvers": PEOPLE, "operators": OPERATORS}
    people[role] = Approvers({"wanda": WRITER.public, "xavier": SigningKey.generate().public})
    desk.gate = Gate(answers=desk.answers, **people)
    refused(Unsafe, lambda: desk.paused("order-8"))
    refused(Unsafe, desk.go_on)
    refused(Unsafe, lambda: check_askable(desk.gate, desk.ledger(), "A saver"))
