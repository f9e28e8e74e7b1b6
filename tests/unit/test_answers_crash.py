"""An answer, the end of a wait, a spend: killed at any instant, and done again.

Whoever was cut short does the same again. Then it is there, it counts once, and nothing that a kill
left behind looks like an attack. A hold and a release are put as an answer is.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from safepoint import (
    Approvers,
    Ask,
    FileCheckpointStorage,
    Gate,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
    SQLiteJournal,
    Workflow,
)
from safepoint.core.anchor import Anchor
from safepoint.core.storage import CheckpointStorage
from safepoint.resume.answers import Answers
from safepoint.resume.approval import Question
from safepoint.resume.workflow import Call, Run
from tests.harness.crash import killed
from tests.unit.resume_helpers import APPROVERS, DANA, ERIN, JOURNAL, STORE, WRITER, Bank, State

THREAD = "order-7"
OPERATORS = Approvers({"omar": SigningKey(bytes(range(7, 39))).public})
PAID = [{"amount": 42}]
LATER = timedelta(days=2)


class Desk:
    """All that a process opens in a folder: the checkpoints, the answers, and the bank."""

    def __init__(self, path: Path, kind: str, *, create: bool = False) -> None:
        self.path, self.kind, self.create = path, kind, create
        self.bank = Bank(path / "bank")
        self.answers = Answers(self.storage("answers"), self.anchor("seen"))
        journal = SQLiteJournal(path / "journal/journal.db", keys=Keyring(JOURNAL), create=create)
        self.ledger = Ledger(
            self.storage("store"),
            store=STORE,
            keys=Keyring(WRITER),
            anchor=self.anchor("anchor"),
            journal=journal,
        )

    @property
    def workflow(self) -> Workflow:
        """Made anew: kept, it would keep the desk, and so its databases open."""
        gate = Gate(approvers=APPROVERS, answers=self.answers, operators=OPERATORS)
        return Workflow("invoice", [self.ask, self.pay], gate=gate)

    def storage(self, name: str) -> CheckpointStorage:
        if self.kind == "file":
            return FileCheckpointStorage(self.path / name)
        return SQLiteCheckpointStorage(self.path / name / "store.db")

    def anchor(self, name: str) -> Anchor:
        return SQLiteAnchor(self.path / name / "heads.db", create=self.create)

    def ask(self, state: State) -> Ask:
        return Ask("pay", {"amount": 42}, within=timedelta(days=1))

    def pay(self, state: State, call: Call) -> State:
        self.bank.pay(call.key, call.approved.arguments)
        return {"paid": True}

    @property
    def question(self) -> Question:
        question = self.workflow.question(self.ledger, THREAD)
        assert question is not None
        return question

    @property
    def texts(self) -> list[str]:
        return [each.verdict for each in self.answers.about(self.question, APPROVERS)]

    def check(self, states: int) -> None:
        """Everything verifies, and the journal is whole."""
        assert len(list(self.ledger.history(THREAD))) == states
        self.ledger.verify(THREAD)
        assert self.ledger.journal is not None
        self.ledger.journal.verify()


def put(path: Path, kind: str) -> None:
    Desk(path, kind).answers.put(DANA, (path / "answer").read_text())


def resume(path: Path, kind: str, days: int = 0) -> Run:
    desk = Desk(path, kind)
    return desk.workflow.resume(desk.ledger, THREAD, now=datetime.now(UTC) + timedelta(days=days))


@pytest.fixture(autouse=True)
def _nobody_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(params=["file", pytest.param("sqlite", marks=pytest.mark.deep)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def prepared(tmp_path: Path, kind: str) -> Desk:
    """A thread that waits for people."""
    path = tmp_path / "prepared"
    path.mkdir(mode=0o700)
    desk = Desk(path, kind, create=True)
    desk.workflow.start(desk.ledger, THREAD)
    return desk


def each_kill(
    act: Callable[..., object], desk: Desk, *more: int
) -> list[tuple[Desk, Callable[[], object]]]:
    """What each kill left, with what does it again."""
    runs = killed(act, desk.path.parent, desk.kind, *more, prepared=desk.path)

    def again(path: Path) -> Callable[[], object]:
        return lambda: act(path, desk.kind, *more)

    return [(Desk(each.folder, desk.kind), again(each.folder)) for each in runs]


def test_sigkill_after_each_step_of_an_answer(tmp_path: Path, kind: str) -> None:
    """It is there once, and the run goes on with it."""
    desk, found = prepared(tmp_path, kind), Counter[int]()
    (desk.path / "answer").write_text(DANA.approve(desk.question))
    for left, again in each_kill(put, desk):
        found[len(left.texts)] += 1
        again()
        assert left.texts == ["approved"]
        assert resume(left.path, kind).state["paid"]
        assert list(left.bank.payments.values()) == PAID
    assert set(found) == {0, 1}


def test_sigkill_after_each_step_of_the_end_of_a_wait(tmp_path: Path, kind: str) -> None:
    """It ends once, and nothing is paid, although somebody had approved it."""
    desk = prepared(tmp_path, kind)
    desk.answers.put(DANA, DANA.approve(desk.question))
    for left, again in each_kill(resume, desk, LATER.days):
        again()
        run = resume(left.path, kind, LATER.days)
        assert (run.denied, run.expired, left.bank.payments) == (True, True, {})
        left.check(states=2)


@pytest.mark.parametrize("verdict", ["approved", pytest.param("denied", marks=pytest.mark.deep)])
def test_sigkill_after_each_step_of_a_spend_that_reads_the_place(
    tmp_path: Path, kind: str, verdict: str
) -> None:
    """Paid once, or denied once; a no that comes after the kill counts unless a yes was spent."""
    desk, found = prepared(tmp_path, kind), Counter[str]()
    question = desk.question
    make = DANA.approve if verdict == "approved" else DANA.deny
    desk.answers.put(DANA, make(question))
    for left, again in each_kill(resume, desk):
        assert left.ledger.journal is not None
        entries = left.ledger.journal.back(THREAD)
        is_spent = any(e.outcome == "done" and e.what in ("approve", "deny") for e in entries)
        late = sum(found.values()) % 2 == 0
        if late:
            left.answers.put(ERIN, ERIN.deny(question))
        again()
        run = resume(left.path, kind)
        is_paid = verdict == "approved" and (is_spent or not late)
        assert (run.denied, list(left.bank.payments.values())) == (
            (False, PAID) if is_paid else (True, [])
        )
        found[f"{is_spent=}"] += 1
        left.check(states=len(list(left.ledger.history(THREAD))))
    assert len(found) == 2
