"""A resume that is killed at any instant: never lost, never done twice.

After each kill somebody goes on as an operator would: with the answer, and if that says that it is
spent, without.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from safepoint import ApprovalNeeded
from safepoint.errors import ApprovalSpent
from safepoint.names import Head
from safepoint.workflow import Run
from tests.unit.killed import kill_after_each_step, no_sync
from tests.unit.resume_helpers import DANA, ERIN, STORE, Place

THREAD = "order-7"
PAID = {"amount": 42, "payee": "alice"}


@dataclass(frozen=True)
class Resume:
    """A resume that somebody wants.

    Attributes:
        version: of the workflow that resumes it.
        sequence: which checkpoint to go back to, or None for the end.
        owner: under which name the worker owns the thread, or None.
    """

    version: str = "1"
    sequence: int | None = None
    owner: str | None = None

    def __call__(self, path: Path) -> Run:
        """Go on with the answer that lies there."""
        answer = path / "answer"
        return self._resume(path, self.sequence, [answer.read_text()] if answer.exists() else [])

    def again(self, path: Path) -> Run:
        """Go on after a crash."""
        try:
            return self(path)
        except ApprovalSpent:
            return self._resume(path, None, [])

    def answered(self, place: Place, verdict: str) -> None:
        """Let somebody sign an answer, and leave it there."""
        workflow = place.workflow(self.version)
        question = workflow.question(place.ledger(), THREAD, self.sequence)
        assert question is not None
        text = DANA.approve(question) if verdict == "approved" else ERIN.deny(question)
        (place.path / "answer").write_text(text)

    def _resume(self, path: Path, sequence: int | None, approvals: list[str]) -> Run:
        """Write down each checkpoint as soon as it is acknowledged."""
        place = Place(path)
        ledger, workflow = place.ledger(), place.workflow(self.version)
        with (
            (path / "acknowledged").open("a", buffering=1) as said,
            ledger.own(THREAD, self.owner) if self.owner else nullcontext(),
        ):
            run = workflow.rehydrate(ledger, THREAD, sequence, approvals=approvals)
            resumed = ledger.load(THREAD, run.head)
            print(resumed.sequence, resumed.digest, file=said)
            for checkpoint in run:
                print(checkpoint.sequence, checkpoint.digest, file=said)
        return run


PLAIN = Resume()
OWNED = Resume(owner="worker-1")
OLD = Resume(sequence=3)
LATER = Resume(version="2")


def plain(path: Path) -> None:
    PLAIN(path)


def owned(path: Path) -> None:
    OWNED(path)


def old(path: Path) -> None:
    OLD(path)


def later(path: Path) -> None:
    LATER(path)


@pytest.fixture(autouse=True)
def _nobody_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", no_sync)


def prepared(tmp_path: Path, resume: Resume, verdict: str) -> Place:
    """A thread that waits for people, and what one of them signed."""
    place = Place.create(tmp_path / "prepared")
    place.workflow().start(place.ledger(), THREAD, amount=42)
    if resume.sequence is not None:
        PLAIN.answered(place, "approved")
        PLAIN(place.path)
        (place.path / "acknowledged").unlink()
    resume.answered(place, verdict)
    return place


@dataclass(frozen=True)
class Left:
    """What a kill left, before anybody goes on."""

    head: int
    anchored: int
    payments: int

    @classmethod
    def at(cls, path: Path) -> Left:
        place, said = Place(path), path / "acknowledged"
        ledger = place.ledger()
        assert ledger.anchor is not None
        anchored = ledger.anchor.read(STORE, THREAD)
        assert anchored is not None
        for line in said.read_text().splitlines() if said.exists() else []:
            sequence, digest = line.split()
            assert ledger.load(THREAD, int(sequence)).digest == digest
        head = ledger.storage.head(THREAD)
        return cls(head, anchored.sequence, len(place.bank.payments))


def check(path: Path, spent: int, kept: int) -> None:
    """Everything verifies, whatever was acted upon is anchored, and the journal has the spend.

    Returns:
        How many torn lines of the journal were recovered.
    """
    place = Place(path)
    ledger = place.ledger()
    assert ledger.verify(THREAD, every_signature=True) == kept
    assert ledger.anchor is not None
    anchored = ledger.anchor.read(STORE, THREAD)
    last = ledger.latest(THREAD)
    assert anchored is not None
    if "asked" not in last.state:  # nobody acts upon a question before it is answered
        assert anchored == Head(last.sequence, last.digest)
    assert anchored.sequence >= spent
    lines = list(place.journal().show())
    intended = [line for line in lines if line.outcome == "intended"]
    resumed = ledger.load(THREAD, spent)
    assert resumed.digest in [line.digest for line in intended if line.what == "save"]
    source = resumed.state["resumed"]["digest"]
    assert source in [line.digest for line in intended if line.what == "resume"]


@pytest.mark.parametrize(
    ("act", "resume", "payments", "spent"),
    [
        pytest.param(plain, PLAIN, 1, 4, id="the end"),
        pytest.param(owned, OWNED, 1, 4, id="an owned thread"),
        pytest.param(later, LATER, 1, 4, id="a version later"),
        pytest.param(old, OLD, 2, 6, id="an old checkpoint"),
    ],
)
def test_sigkill_after_each_step_of_a_resume_with_an_approval(
    tmp_path: Path, act: Callable[[Path], None], resume: Resume, payments: int, spent: int
) -> None:
    """One payment per approval, of what was approved; the run ends with it; nobody asks again."""
    place = prepared(tmp_path, resume, "approved")
    _, paths = kill_after_each_step(act, place.path, tmp_path)
    found: Counter[str] = Counter()
    carried = {"migrations": 1} if resume is LATER else {}
    for path in paths:
        left = Left.at(path)
        for run in (resume.again(path), resume.again(path)):
            assert run.state == {"amount": 42, "payee": "alice", "paid": 42, **carried}
            assert list(Place(path).bank.payments.values()) == [PAID] * payments
        check(path, spent, kept=spent + 1)
        found["not spent"] += left.head < spent
        found["spent, not anchored"] += left.head == spent > left.anchored
        found["spent, not paid"] += left.head == spent and left.payments < payments
        found["paid, not saved"] += left.head == spent and left.payments == payments
        found["saved, not anchored"] += left.head > spent >= left.anchored
    assert len(found) == len(+found) == 5, f"some instants were never hit: {found}"


@pytest.mark.parametrize(
    ("act", "resume"),
    [
        pytest.param(plain, PLAIN, id="the end"),
        pytest.param(owned, OWNED, id="an owned thread"),
    ],
)
def test_sigkill_after_each_step_of_a_resume_with_a_denial(
    tmp_path: Path, act: Callable[[Path], None], resume: Resume
) -> None:
    """Whoever goes on finds it denied, and nothing is paid, not even with somebody's yes."""
    place = prepared(tmp_path, resume, "approved")
    approval = (place.path / "answer").read_text()
    resume.answered(place, "denied")
    _, paths = kill_after_each_step(act, place.path, tmp_path)
    found: Counter[str] = Counter()
    for path in paths:
        left = Left.at(path)
        for run in (resume.again(path), resume.again(path)):
            assert run.denied
        check(path, 4, kept=4)
        found["not spent"] += left.head < 4
        found["spent, not anchored"] += left.head == 4 > left.anchored
        with pytest.raises(ApprovalSpent):
            Place(path).workflow().resume(Place(path).ledger(), THREAD, approvals=[approval])
        assert Place(path).bank.payments == {}
    assert len(found) == len(+found) == 2, f"some instants were never hit: {found}"


def test_sigkill_after_each_step_of_a_resume_that_is_followed_by_a_new_version(
    tmp_path: Path,
) -> None:
    """People are asked again if it is not known what came of their yes. It is paid once."""
    place = prepared(tmp_path, PLAIN, "approved")
    _, paths = kill_after_each_step(plain, place.path, tmp_path)
    found: Counter[str] = Counter()
    for path in paths:
        left, place = Left.at(path), Place(path)
        workflow = place.workflow("2")
        question = workflow.question(place.ledger(), THREAD)
        assert (question is None) == (left.head == 5)
        approvals = [] if question is None else [DANA.approve(question)]
        run = workflow.resume(place.ledger(), THREAD, approvals=approvals)
        assert run.state == {"amount": 42, "payee": "alice", "paid": 42, "migrations": 1}
        assert place.bank.payments == {f"{STORE}/{THREAD}/3/pay": PAID}
        found["paid, not saved"] += left.head == 4 and left.payments
    assert found["paid, not saved"], "no kill fell between the payment and its checkpoint"


def test_sigkill_after_each_step_of_a_migration(tmp_path: Path) -> None:
    """The state is carried over once, and the run goes on to the question of the new version."""
    place = Place.create(tmp_path / "prepared")
    place.workflow().begin(place.ledger(), THREAD, amount=42).step()
    _, paths = kill_after_each_step(later, place.path, tmp_path)
    found: Counter[str] = Counter()
    for path in paths:
        left = Left.at(path)
        try:
            question = LATER.again(path).question
        except ApprovalNeeded as waits:
            question = waits.question
        assert question is not None
        assert (question.app, question.arguments) == ("invoice@2", PAID)
        state = Place(path).ledger().latest(THREAD).state["state"]
        assert state == {"amount": 42, "payee": "alice", "migrations": 1}
        check(path, 3, kept=4)
        found["not migrated"] += left.head < 3
        found["migrated, not anchored"] += left.head == 3 > left.anchored
        found["migrated, not asked"] += left.head == 3
    assert len(found) == len(+found) == 3, f"some instants were never hit: {found}"
