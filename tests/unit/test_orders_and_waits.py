"""What attacks on holds and waits found: a hold holds again, and the end of a wait is its end."""

from __future__ import annotations

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
    SigningKey,
    Workflow,
)
from safepoint.answers import Answers
from safepoint.errors import ThreadHeld
from safepoint.workflow import Call, Migration
from tests.unit.desk import DANA, ERIN, Desk, State

OMAR, OLGA = SigningKey.generate("ed25519"), SigningKey.generate("ed25519")
dana, omar, olga = Approver("dana", DANA), Approver("omar", OMAR), Approver("olga", OLGA)


class Office(Desk):
    """A desk with a place for answers, and two operators."""

    def __init__(self, **wait: Any) -> None:
        super().__init__()
        self.answers = Answers(InMemoryCheckpointStorage(), InMemoryAnchor())
        self.wait, self.told_expired = wait, list[bool]()

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
            approvers=Approvers({"dana": DANA.public, "erin": ERIN.public}),
            answers=self.answers,
            operators=Approvers({"omar": OMAR.public, "olga": OLGA.public}),
        )
        return Workflow("payment", [ask, pay], **{"gate": gate, **options})


def test_who_holds_again_what_another_released_holds_it() -> None:
    desk = Office()
    first = desk.answers.hold(omar, "invoices", "order-7")
    desk.answers.release(olga, "invoices", "order-7", first.hold)
    desk.answers.hold(omar, "invoices", "order-7")
    with pytest.raises(ThreadHeld):
        desk.payment().start(desk.ledger(), "order-7")


LATER = timedelta(minutes=5)


def test_a_run_that_goes_on_without_an_answer_is_told_so_by_a_next_version_too() -> None:
    desk = Office(within=timedelta(minutes=1), then="continue")
    desk.payment().start(desk.ledger(), "order-7")
    newer = desk.payment(version="2", migrations=[Migration("", "2", lambda state: state)])
    newer.resume(desk.ledger(), "order-7", now=datetime.now(UTC) + LATER)
    assert desk.told_expired == [True]
