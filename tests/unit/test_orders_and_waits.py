"""What attacks on holds and waits found: a hold holds again, and the end of a wait is its end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from safepoint import (
    Approver,
    Approvers,
    Ask,
    Gate,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Ledger,
    SigningKey,
    Workflow,
)
from safepoint.core.errors import (
    ConfigurationError,
    NotOwner,
    ResumeRefused,
    Unavailable,
)
from safepoint.resume.answers import Answers
from safepoint.resume.approval import Question
from safepoint.resume.asking import SPENT
from safepoint.resume.workflow import Call, Migration
from tests.unit.desk import DANA, ERIN, Desk, State

OMAR, OLGA = SigningKey.generate(), SigningKey.generate()
dana, erin = Approver("dana", DANA), Approver("erin", ERIN)
omar, olga = Approver("omar", OMAR), Approver("olga", OLGA)


class Office(Desk):
    """A desk with a place for answers, and two operators."""

    def __init__(self, **wait: Any) -> None:
        super().__init__()
        self.answers = Answers(InMemoryCheckpointStorage(), InMemoryAnchor())
        self.wait, self.told_expired, self.revoked = wait, list[bool](), list[SigningKey]()

    def payment(self, **options: Any) -> Workflow:
        """Return ask, pay."""

        def ask(state: State) -> Ask:
            return Ask("pay", {"amount": 42}, **self.wait)

        def pay(state: State, call: Call) -> State:
            self.told_expired.append(call.expired)
            if not call.expired:
                self.paid.append((call.key, call.approved.arguments))
            return {}

        gate = Gate(
            approvers=Approvers({"dana": DANA.public, "erin": ERIN.public}, revoked=self.revoked),
            answers=self.answers,
            operators=Approvers({"omar": OMAR.public, "olga": OLGA.public}),
        )
        return Workflow("payment", [ask, pay], **{"gate": gate, **options})


def test_who_holds_again_what_another_released_holds_it() -> None:
    desk = Office()
    first = desk.answers.hold(omar, "invoices", "order-7")
    desk.answers.release(olga, "invoices", "order-7", first.hold)
    desk.answers.hold(omar, "invoices", "order-7")
    with pytest.raises(NotOwner, match="has held"):
        desk.payment().start(desk.ledger(), "order-7")


LATER = timedelta(minutes=5)


def test_a_run_that_goes_on_without_an_answer_is_told_so_by_a_next_version_too() -> None:
    desk = Office(within=timedelta(minutes=1), then="continue")
    desk.payment().start(desk.ledger(), "order-7")
    newer = desk.payment(version="2", migrations=[Migration("", "2", lambda state: state)])
    newer.resume(desk.ledger(), "order-7", now=datetime.now(UTC) + LATER)
    assert desk.told_expired == [True]


def test_who_is_asked_again_in_time_answers_in_the_same_wait() -> None:
    """The yes of a key that was revoked since does not count, and nobody acted upon it."""
    desk = Office(within=timedelta(hours=1))
    run = desk.payment().start(desk.ledger(), "order-7")
    assert run.question is not None
    yes = dana.approve(run.question)
    desk.payment().rehydrate(desk.ledger(), "order-7", approvals=[yes])
    desk.revoked = [DANA]
    question = desk.payment().question(desk.ledger(), "order-7")
    assert question is not None
    assert question.until == run.question.until
    desk.payment().resume(desk.ledger(), "order-7", approvals=[erin.approve(question)])
    assert len(desk.paid) == 1


@pytest.mark.parametrize("what", ["approves", "ends it too", "owns"])
def test_whoever_ends_waits_leaves_a_run_alone_that_another_owns(what: str) -> None:
    """Another worker spends a yes just before the end, or ends the wait, and is about to go on."""
    desk = Office(within=timedelta(minutes=1), then="continue")
    flow, late = desk.payment(), datetime.now(UTC) + LATER
    run = flow.start(desk.ledger(), "order-7")
    assert run.question is not None
    yes = dana.approve(run.question)

    class Slow(Workflow):
        def waiting(self, ledger: Ledger) -> Iterator[Question]:
            for question in super().waiting(ledger):
                if what == "approves":
                    flow.rehydrate(desk.ledger(), "order-7", approvals=[yes])
                elif what == "owns":
                    desk.ledger().own("order-7", "worker-2")
                else:
                    flow.rehydrate(desk.ledger(), "order-7", now=late)
                yield question

    slow = Slow("payment", flow.steps.values(), gate=flow.gate)
    assert slow.end_waits(desk.ledger(), now=late) == []
    assert (desk.paid, desk.told_expired) == ([], [])


@pytest.mark.parametrize("what", ["storage", "anchor", "journal"])
def test_an_outage_does_not_look_like_nobody_waits(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Office()
    desk.ledger().save("strange", {"amount": 42})
    run = desk.payment().start(desk.ledger(), "order-7")
    desk.ledger().note("order-7", {"question": "forged"}, label=SPENT)
    assert [*desk.payment().waiting(desk.ledger())] == [run.question]
    down = {"storage": desk.storage, "anchor": desk.anchor, "journal": desk.journal._view.storage}
    monkeypatch.setattr(down[what], "read", lambda *_: 1 / 0)
    with pytest.raises((Unavailable, Unavailable, Unavailable)):
        [*desk.payment().waiting(desk.ledger())]


def test_nobody_waits_with_what_no_question_could_hold() -> None:
    """The thread would be saved, and could not be opened any more."""
    desk = Office(within=timedelta.max)
    with pytest.raises(ConfigurationError, match="cannot be used"):
        desk.payment().start(desk.ledger(), "order-7")


def test_workers_on_one_note_have_one_key_and_a_lease_lets_one_of_them_act() -> None:
    desk = Office()
    run = desk.payment().start(desk.ledger(), "order-7")
    yes = dana.approve(run.question)  # type: ignore[arg-type]
    first = desk.payment().rehydrate(desk.ledger(), "order-7", approvals=[yes])
    assert first.approved == desk.payment().rehydrate(desk.ledger(), "order-7").approved
    with desk.ledger().own("order-7", "worker-2"):
        with pytest.raises(NotOwner):
            first.step()
        with pytest.raises(ResumeRefused, match="owns the thread"):
            desk.payment().resume(desk.ledger(), "order-7")
    assert desk.paid == []


def test_a_note_does_not_use_an_approval_after_the_end_of_the_wait() -> None:
    desk, now = Office(within=timedelta(hours=1)), datetime.now(UTC)
    question: Any = desk.payment().start(desk.ledger(), "order-7").question
    texts = [dana.approve(question, lifetime=timedelta(hours=5))]
    value = {"question": question.text, "statements": texts}
    desk.ledger().note("order-7", value, label=SPENT)
    run = desk.payment().resume(desk.ledger(), "order-7", now=now + timedelta(hours=2))
    assert (run.denied, run.expired, desk.paid) == (True, True, [])
