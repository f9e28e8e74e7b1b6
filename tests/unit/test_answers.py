"""Answers, holds and waits: what is put is found, what is missing stops a run, a wait ends."""

from __future__ import annotations

import time
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
    Ask,
    FileCheckpointStorage,
    Gate,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Policy,
    SigningKey,
    Tool,
    Workflow,
)
from safepoint.audit import audit
from safepoint.core.errors import (
    ApprovalNeeded,
    CheckpointError,
    ConfigurationError,
    EncodeError,
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
from safepoint.resume.asking import SPENT
from safepoint.resume.gate import May
from safepoint.resume.workflow import Call, Run
from tests.house import refused
from tests.unit.approval_helpers import MALFORMED, UNTRUSTED
from tests.unit.desk import DANA, ERIN, Desk, State, Stuck

OMAR, OLGA = SigningKey.generate(), SigningKey.generate()
dana, erin = Approver("dana", DANA), Approver("erin", ERIN)
omar, olga = Approver("omar", OMAR), Approver("olga", OLGA)
PEOPLE = Approvers({"dana": DANA.public, "erin": ERIN.public})
OPERATORS = Approvers({"omar": OMAR.public, "olga": OLGA.public})
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
Chain = dict[int, bytes]


class Counting(InMemoryCheckpointStorage):
    """A storage that counts what is read, and can be down."""

    newest: Any = None
    scan: Any = None
    reads = 0
    down = False

    def head(self, thread: str) -> int:
        if self.down:
            raise OSError
        return super().head(thread)

    def holds(self, chains: dict[str, dict[int, bytes]]) -> None:
        """Hold this, as if the adversary had put it there, and nothing else."""
        self._records = {("", chain): dict(records) for chain, records in chains.items() if records}
        self._heads = {place: max(records) for place, records in self._records.items()}

    def read(self, thread: str, sequence: int) -> bytes:
        self.reads += 1
        return super().read(thread, sequence)


class Office(Desk):
    """A desk with a place for answers, and an operator."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.kept, self.heads = Counting(), Stuck()
        self.answers = Answers(self.kept, self.heads)
        self.gate = Gate(approvers=PEOPLE, answers=self.answers, operators=OPERATORS)
        self.amount: Any = 42
        self.wait: dict[str, Any] = options

    def payment(self, **options: Any) -> Workflow:
        """Return ask, pay."""

        def ask(state: State) -> Ask:
            return Ask("pay", {} if self.amount is ... else {"amount": self.amount}, **self.wait)

        def pay(state: State, call: Call) -> State:
            if call.was_approved:
                self.paid.append((call.key, call.approved.arguments))
            if self.fails:
                self.fails -= 1
                raise ConnectionError
            return {"paid": True}

        return Workflow("payment", [ask, pay], **{"gate": self.gate, **options})

    def asked(self, thread: str = "order-7") -> Question:
        """Start a run, and return what it asks."""
        question = self.payment().start(self.ledger(), thread).question
        assert question is not None
        return question

    def resumed(self, *texts: str, now: datetime | None = None, **options: Any) -> Run:
        """Resume as another process would."""
        return self.payment(**options).resume(self.ledger(), "order-7", approvals=texts, now=now)

    def hold(self, by: Approver = omar, thread: str = "order-7", **options: Any) -> Order:
        return self.answers.hold(by, "invoices", thread, **options)

    def release(self, order: Order, by: Approver = omar, thread: str = "order-7") -> Order:
        return self.answers.release(by, "invoices", thread, order.hold)

    @property
    def chains(self) -> dict[str, dict[int, bytes]]:
        """A copy of the place of the answers, in the order in which the chains were begun."""
        return {chain: dict(records) for (_, chain), records in self.kept._records.items()}

    @property
    def chain(self) -> dict[int, bytes]:
        """A copy of the one chain that is there."""
        [records] = self.chains.values()
        return records


# --- Answers


def test_nobody_puts_what_is_not_an_answer_of_theirs_or_too_much_of_it() -> None:
    desk = Office()
    question = desk.asked()
    text = dana.approve(question)
    bad: list[tuple[str, str]] = [
        (MALFORMED, "yes"),
        (MALFORMED, text + " " * 70_000),
        (UNTRUSTED, erin.deny(question)),
        (UNTRUSTED, text.replace('"amount":42', '"amount":43')),
    ]
    for error, each in bad:
        refused(error, lambda each=each: desk.answers.put(dana, each))
    refused(InvalidId, lambda: desk.answers.put(dana, text, why="x" * 1001))
    assert desk.kept.threads() == []
    for _ in range(MOST - 1):
        desk.answers.put(dana, dana.approve(question))
    refused(LimitExceeded, lambda: desk.answers.put(dana, dana.approve(question)))
    desk.answers.put(dana, dana.deny(question))  # which has a place of its own
    refused(LimitExceeded, lambda: desk.answers.put(dana, dana.deny(question)))
    assert len(desk.answers.about(question, PEOPLE)) == MOST


def test_an_answer_counts_for_its_own_question_alone() -> None:
    desk = Office()
    question = desk.asked()
    changes: list[State] = [{"store": "refunds"}, {"tenant": "acme"}, {"thread": "order-8"}]
    for change in [*changes, {"arguments": {"amount": 43}}]:
        other = replace(question, **change)
        desk.answers.put(erin, erin.deny(other))
        assert len(desk.answers.about(other, PEOPLE)) == 1
    desk.answers.put(dana, dana.approve(replace(question, app="payment@2")))
    assert desk.answers.about(question, PEOPLE) == []
    refused(ApprovalNeeded, desk.resumed)
    desk.answers.put(dana, dana.approve(question))
    desk.resumed()
    assert len(desk.paid) == 1


def test_a_no_that_was_put_holds_for_whichever_version_looks() -> None:
    """A deploy comes between erin's no and the worker that finds it."""
    desk = Office(within=DAY)
    desk.answers.put(erin, erin.deny(desk.asked()))
    newer: State = {"version": "2", "migrations": {"": dict}}
    assert desk.resumed(tools=[Tool("bank")], **newer).denied
    assert desk.resumed().denied
    assert desk.paid == []


def test_a_worker_reads_its_own_answers_and_none_of_ten_thousand_others() -> None:
    desk = Office()
    question = desk.asked()
    desk.answers.put(dana, dana.approve(question))
    [(_, record)] = desk.chain.items()
    for number in range(10_000):
        desk.kept.append(f"{number:064x}", 1, record)
        desk.heads.advance(ANSWERS, f"{number:064x}", Head(1, "sha256:" + "a" * 64))
    desk.kept.reads = 0
    desk.answers.about(question, PEOPLE)
    alone = desk.kept.reads
    assert 1 <= alone <= 2
    desk.resumed()
    assert desk.kept.reads <= 8 * alone  # a resume looks a few times
    assert len(desk.paid) == 1


def said(who: Approver, question: Question) -> Chain:
    desk = Office()
    desk.answers.put(who, who.approve(question))
    desk.answers.put(who, who.approve(question))
    return desk.chain


TAMPERED: dict[str, Callable[[Question, Chain], Chain]] = {
    "gone": lambda _, __: {},
    "cut": lambda _, chain: {1: chain[1]},
    "edited": lambda _, chain: {**chain, 2: chain[2].replace(b"denied", b"maybe!")},
    "repeated": lambda _, chain: {**chain, 2: chain[1]},
    "garbled": lambda _, chain: {**chain, 2: b"\xff\n"},
    "of another question": lambda asked, _: said(erin, replace(asked, thread="order-8")),
    "of another person": lambda asked, _: said(dana, asked),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_whatever_does_not_verify_lets_nothing_go_on(what: str) -> None:
    """And nothing is lost: put back, the no counts."""
    desk = Office()
    question = desk.asked()
    desk.answers.put(erin, erin.approve(question))
    desk.answers.put(erin, erin.deny(question))
    [chain], kept = desk.chains, desk.chains
    desk.kept.holds({chain: TAMPERED[what](question, desk.chain)})
    before = desk.ledger().latest("order-7")
    refused(SealBroken, lambda: desk.resumed(dana.approve(question)))
    refused(SealBroken, lambda: desk.answers.verify(PEOPLE, OPERATORS))
    assert desk.ledger().latest("order-7") == before
    desk.kept.holds(kept)
    assert desk.answers.verify(PEOPLE, OPERATORS) == 2
    for verify in (partial(desk.answers.verify, OPERATORS), desk.answers.verify):
        assert "list it as revoked" in refused(SealBroken, verify)
    assert desk.resumed(dana.approve(question)).denied
    assert desk.paid == []


NONSENSE: dict[str, Callable[[Question], Any]] = {
    "a number": lambda _: {"answer": 7},
    "another field": lambda _: {"other": ""},
    "a list": lambda _: [],
    "no answer": lambda _: {"answer": "yes"},
    "a no to something else": lambda q: {"answer": erin.deny(replace(q, thread="order-8"))},
    "a no of somebody else": lambda q: {"answer": dana.deny(q)},
}


@pytest.mark.parametrize("what", NONSENSE)
def test_nobody_stops_a_run_by_what_is_no_answer(what: str) -> None:
    """An approver who turned writes into their own chain, past this release."""
    desk = Office()
    question = desk.asked()
    desk.answers.put(erin, erin.approve(question))
    [chain] = desk.chains
    desk.answers._append(erin, "", chain, NONSENSE[what](question), MOST)
    desk.resumed(dana.approve(question))
    assert len(desk.paid) == 1
    said = [isinstance(each, CheckpointError) for each in desk.answers.every(PEOPLE, OPERATORS)]
    assert said == [False] + [True] * (what not in ("another field", "a list"))


@pytest.mark.parametrize("first", ["yes", "no"])
def test_nobody_stops_a_run_by_how_much_they_write_nor_takes_their_no_back(first: str) -> None:
    """An approver who turned, or a thief of their key, writes more records than are put."""
    desk = Office()
    question = desk.asked()
    desk.answers.put(erin, erin.deny(question) if first == "no" else erin.approve(question))
    [chain] = desk.chains
    for _ in range(MOST + 1):
        text = erin.approve(question)
        desk.answers._append(erin, "", chain, {"answer": text}, MOST * 2)
    last = {"answer": erin.deny(question)}
    desk.answers._append(erin, "", chain, last, MOST * 2)  # which came too late
    assert len(desk.answers.about(question, PEOPLE)) == MOST
    run = desk.resumed(dana.approve(question))
    assert run.denied == (first == "no")
    assert len(desk.paid) == (first == "yes")
    assert desk.answers.verify(PEOPLE, OPERATORS) == MOST + 3


def test_nobody_makes_a_worker_read_for_ever() -> None:
    """A chain that is far longer than what people put is not read."""
    desk = Office()
    question = desk.asked()
    desk.answers.put(erin, erin.approve(question))
    [chain] = desk.chains
    desk.kept.holds({chain: dict.fromkeys(range(1, ORDERS + 2), desk.chain[1])})
    desk.kept.reads = 0
    assert "than anybody puts" in refused(SealBroken, lambda: desk.resumed(dana.approve(question)))
    assert desk.kept.reads == 0


def test_who_writes_into_the_chain_of_another_is_found() -> None:
    desk = Office()
    question = desk.asked()
    chain = _chain("answer", DANA, question.subject)
    desk.answers._append(erin, "", chain, {"answer": erin.deny(question)}, MOST)
    refused(SealBroken, lambda: desk.resumed(dana.approve(question)))
    refused(SealBroken, lambda: desk.answers.verify(PEOPLE, OPERATORS))


def test_what_a_revoked_key_put_does_not_count_and_stops_nothing() -> None:
    """One step ends what an approver who turned can do: list their key as revoked."""
    desk = Office()
    question = desk.asked()
    desk.answers.put(erin, erin.deny(question))
    [chain] = desk.chains
    desk.kept._records["", chain][1] = b"x"  # and whatever was done to the chain
    people = Approvers({"dana": DANA.public, "erin": ERIN.public}, revoked=[ERIN.public])
    gate = Gate(approvers=people, answers=desk.answers, operators=OPERATORS)
    refused(SealBroken, lambda: desk.resumed(dana.approve(question)))
    refused(UNTRUSTED, lambda: desk.resumed(erin.approve(question), gate=gate))
    desk.resumed(dana.approve(question), gate=gate)
    assert len(desk.paid) == 1
    desk.answers.put(dana, dana.approve(question))
    assert desk.answers.verify(people, OPERATORS) == 1  # it ends green
    assert [str(each) for each in desk.answers.every(people, OPERATORS)] == ["The approval by dana"]


def test_an_operator_who_turned_stops_nothing_once_their_key_is_revoked() -> None:
    desk = Office()
    question = desk.asked()
    desk.hold()
    [chain] = desk.chains
    operators = Approvers({"omar": OMAR.public}, revoked=[OMAR.public])
    gate = Gate(approvers=PEOPLE, answers=desk.answers, operators=operators)
    refused(NotOwner, lambda: desk.resumed(dana.approve(question), gate=gate))  # it still counts
    desk.kept._records["", chain][1] = b"x"
    refused(SealBroken, lambda: desk.resumed(dana.approve(question)))
    desk.resumed(dana.approve(question), gate=gate)
    assert (len(desk.paid), desk.answers.verify(PEOPLE, operators)) == (1, 0)


def test_nobody_keeps_a_key_beside_what_it_vouches_for(tmp_path: Any) -> None:
    """Whoever writes the storage could put another in its place."""
    place = tmp_path / "answers"
    storage = FileCheckpointStorage(place)
    (place / "erin.pub").write_text(str(ERIN.public.text))
    key = VerifyingKey.from_file(place / "erin.pub")
    answers = Answers(storage, InMemoryAnchor())
    desk = Office()
    refused(Unsafe, lambda: answers.about(desk.asked(), Approvers({"erin": key})))


def test_a_place_that_does_not_answer_lets_nothing_go_on() -> None:
    desk = Office()
    question = desk.asked()
    desk.kept.down = True
    refused(Unavailable, lambda: desk.answers.put(erin, erin.deny(question)))
    refused(Unavailable, lambda: desk.resumed(dana.approve(question)))
    desk.kept.down = False
    desk.resumed(dana.approve(question))
    assert len(desk.paid) == 1


def test_more_people_than_a_note_is_read_with_stop_nothing() -> None:
    people = [Approver(f"p{number}", SigningKey.generate()) for number in range(17)]
    desk = Office()
    listed = Approvers({each.name: each.key.public for each in people})
    desk.gate = Gate(approvers=listed, answers=desk.answers)
    question = desk.asked()
    for each in people:
        desk.answers.put(each, each.approve(question))
    desk.resumed()
    assert len(desk.paid) == 1


# --- Holds


def test_a_hold_ends_with_its_own_release_by_a_key_that_counts() -> None:
    desk = Office()
    question = desk.asked()
    desk.answers.put(dana, dana.approve(question))
    first, second = desk.hold(), desk.hold(olga)
    other = desk.hold(thread="order-8")
    desk.release(other)
    desk.release(first)
    assert "olga has held" in refused(NotOwner, desk.resumed)
    desk.release(second, Approver("mally", SigningKey.generate()))
    desk.release(second, erin)
    refused(NotOwner, desk.resumed)
    desk.release(second, omar)
    gone = Approvers({"omar": OMAR.public, "olga": OLGA.public}, revoked=[OMAR.public])
    gate = Gate(approvers=PEOPLE, answers=desk.answers, operators=gone)
    refused(NotOwner, lambda: desk.resumed(gate=gate))
    desk.resumed()
    assert len(desk.paid) == 1
    third = desk.hold()  # a release counts once: what it ended has ended, and this is another
    assert third.hold not in (first.hold, second.hold)


def test_a_hold_is_about_its_thread_store_and_tenant_alone() -> None:
    desk = Office()
    question = desk.asked()
    desk.answers.put(dana, dana.approve(question))
    desk.hold(thread="order-8")
    desk.hold(tenant="acme")
    desk.answers.hold(omar, "refunds", "order-7")
    desk.hold(erin)  # who is no operator
    other = {"order": "hold", "store": "invoices", "tenant": "", "thread": "order-8"}
    desk.answers._append(omar, "", _chain("order", OMAR, "invoices/order-7"), other, MOST)
    desk.resumed()
    assert len(desk.paid) == 1
    refused(InvalidId, lambda: desk.hold(why="x" * 1001))
    refused(InvalidId, lambda: desk.hold(thread="../x"))
    refused(InvalidId, lambda: desk.answers.release(omar, "invoices", "order-7", "first"))


def test_who_may_hold_and_where_is_said_in_the_gate() -> None:
    refused(ConfigurationError, lambda: Gate(operators=OPERATORS))
    answers = Answers(InMemoryCheckpointStorage(), InMemoryAnchor())
    refused(Unsafe, lambda: Gate(approvers=PEOPLE, answers=answers, operators=PEOPLE))
    desk = Office()
    resume, texts = desk.payment().resume, [dana.approve(desk.asked())]
    refused(Unsafe, lambda: resume(desk.ledger(OMAR), "order-7", approvals=texts))


# --- Waits


def test_a_resume_ends_a_wait_that_is_over_and_a_list_does_not() -> None:
    desk = Office(within=DAY)
    desk.asked("order-7")
    desk.asked("order-8")
    desk.hold(thread="order-8")
    now, workflow, ledger = datetime.now(UTC), desk.payment(), desk.ledger()
    refused(ApprovalNeeded, lambda: workflow.resume(ledger, "order-7", now=now))
    before = next(ledger.back("order-7")).digest
    assert all(each.is_over(now + DAY * 2) for each in workflow.waiting(ledger))
    assert next(ledger.back("order-7")).digest == before
    assert workflow.resume(ledger, "order-7", now=now + DAY * 2).expired
    assert workflow.resume(ledger, "order-7").expired
    refused(NotOwner, lambda: workflow.resume(ledger, "order-8", now=now + DAY * 2))
    assert [each.thread for each in workflow.waiting(ledger)] == ["order-8"]


def test_who_is_asked_again_in_time_answers_in_the_same_wait() -> None:
    """The yes of a key that was revoked since does not count, and nobody acted upon it."""
    desk = Office(within=HOUR)
    first = desk.asked()
    desk.payment().rehydrate(desk.ledger(), "order-7", approvals=[dana.approve(first)])
    people = Approvers({"dana": DANA.public, "erin": ERIN.public}, revoked=[DANA])
    desk.gate = Gate(approvers=people, answers=desk.answers, operators=OPERATORS)
    question = desk.payment().question(desk.ledger(), "order-7")
    assert question is not None
    assert question.until == first.until
    desk.resumed(erin.approve(question))
    assert len(desk.paid) == 1


@pytest.mark.parametrize("what", ["storage", "anchor", "journal"])
def test_an_outage_does_not_look_like_nobody_waits(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Office()
    desk.ledger().save("strange", {"amount": 42})
    question = desk.asked()
    desk.ledger().note("order-7", {"question": "forged"}, label=SPENT)
    assert [*desk.payment().waiting(desk.ledger())] == [question]
    down = {"storage": desk.storage, "anchor": desk.anchor, "journal": desk.journal._view.storage}
    monkeypatch.setattr(down[what], "read", lambda *_: 1 / 0)
    refused(Unavailable, lambda: [*desk.payment().waiting(desk.ledger())])


def test_nobody_waits_with_what_no_question_could_hold() -> None:
    """The thread would be saved, and could not be opened any more."""
    refused(ConfigurationError, Office(within=timedelta.max).asked)


def test_the_audit_finds_who_waits_for_ever_and_no_fault_in_an_honest_end() -> None:
    desk = Office()
    desk.asked("endless")
    desk.wait = {"within": timedelta(seconds=1)}
    for thread in ("ended", "over"):
        desk.asked(thread)
    time.sleep(1.1)
    desk.payment().resume(desk.ledger(), "ended")
    desk.wait = {"within": DAY}
    desk.asked("held")
    desk.hold(thread="held")
    found = {(each.where, each.id) for each in audit(desk.ledger(), gate=desk.gate, rule="SP31")}
    assert found == {
        ("endless", "SP31.no-end"),
        ("over", "SP31.over"),
        ("held", "SP31.held"),
    }
    desk.kept.holds({})
    assert ("held", "SP31.seal-broken") in {
        (each.where, each.id) for each in audit(desk.ledger(), gate=desk.gate, rule="SP31")
    }


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
        (1_000, [dana], None),
        (Decimal("1000.00"), [dana], None),
        (Decimal("1000.01"), [dana], ApprovalNeeded),
        (1_001, [dana], ApprovalNeeded),
        (50_000, [dana, erin], None),
        (50_000, [dana, dana_2], ApprovalNeeded),
        (50_001, [dana, erin], ResumeRefused),
        (-1, [dana, erin], ResumeRefused),
        (Decimal("-0.01"), [dana, erin], ResumeRefused),
        (True, [dana, erin], ResumeRefused),
        (42.0, [dana, erin], ResumeRefused),
        ("42", [dana, erin], ResumeRefused),
        (None, [dana, erin], ResumeRefused),
        (..., [dana, erin], ResumeRefused),
    ],
)
def test_who_may_approve_what_amount(
    amount: Any, who: list[Approver], error: type[CheckpointError] | None
) -> None:
    desk = Office()
    desk.gate, desk.amount = MAY, amount
    question = desk.asked()
    texts = [each.approve(question) for each in who]
    if error is not None:
        refused(error, lambda: desk.resumed(*texts))
        assert desk.paid == []
        assert desk.resumed(erin.deny(question)).denied  # a no of anybody counts
    else:
        desk.resumed(*texts)
        assert [arguments["amount"] for _, arguments in desk.paid] == [amount]


@pytest.mark.parametrize("amount", [Decimal("NaN"), Decimal("Infinity"), float("nan")])
def test_what_is_no_number_cannot_be_asked(amount: Any) -> None:
    desk = Office()
    desk.amount = amount
    refused(EncodeError, desk.asked)


def test_the_reasons_and_the_amount_take_the_most_people_of_both() -> None:
    desk = Office()
    desk.gate = Gate(Policy({Reason.ASKED: 2}, may={"pay": [May()]}), PEOPLE)
    question = desk.asked()
    refused(ApprovalNeeded, lambda: desk.resumed(dana.approve(question)))
    desk.resumed(dana.approve(question), erin.approve(question))
    assert len(desk.paid) == 1


def test_limits_that_say_nothing_are_refused() -> None:
    people = Approvers({"dana": DANA.public})
    for number in (0, 17):
        refused(ConfigurationError, lambda number=number: May(people=number))
    refused(ConfigurationError, lambda: Gate(Policy(may={"pay": [May(people=2)]}), people))
    for up_to in (-1, 1.5, True, Decimal("NaN")):
        refused(ConfigurationError, lambda up_to=up_to: May(up_to))
    desk = Office()
    desk.gate = Gate(Policy({Reason.ASKED: 1}, may={"refund": [May()]}), people)
    question = desk.asked()
    refused(ResumeRefused, lambda: desk.resumed(dana.approve(question)))
