"""A resume that is killed at any instant: never lost, never done twice.

After each kill somebody goes on as an operator would: with the answer, and if that says that it is
spent, without.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from safepoint import ApprovalNeeded
from safepoint.core.errors import ApprovalRefused
from safepoint.core.names import Head
from safepoint.resume.workflow import Run
from tests.harness.crash import killed
from tests.unit.resume_helpers import DANA, STORE, Place

THREAD = "order-7"
PAID = {"amount": 42, "payee": "alice"}


def resume(
    path: Path, version: str = "1", sequence: int = 0, owner: str = "", again: str = ""
) -> Run:
    """Go on with the answer that lies there, and write down what is acknowledged."""
    place, answer = Place(path), path / "answer"
    approvals = [answer.read_text()] if answer.exists() and not again else []
    ledger = place.ledger()
    with (
        (path / "acknowledged").open("a", buffering=1) as said,
        ledger.own(THREAD, owner) if owner else nullcontext(),
    ):
        workflow = place.workflow(version)
        run = workflow.rehydrate(ledger, THREAD, sequence or None, approvals=approvals)
        resumed = ledger.load(THREAD, run.head)
        print(resumed.sequence, resumed.digest, file=said)
        for checkpoint in run:
            print(checkpoint.sequence, checkpoint.digest, file=said)
    return run


def resume_again(path: Path, *how: str | int) -> Run:
    """Go on after a crash, from the same place, unless the run has gone on from there."""
    version, sequence, owner = str(how[0]), int(how[1]), str(how[2])
    for at, again in ((sequence, ""), (sequence, "again"), (0, "again")):
        try:
            return resume(path, version, at, owner, again)
        except (ApprovalRefused, ApprovalNeeded) as error:
            refusal = error
    raise refusal


@pytest.fixture(autouse=True)
def _nobody_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def answered(place: Place, version: str, sequence: int) -> None:
    """Let somebody sign an answer, and leave it there."""
    question = place.workflow(version).question(place.ledger(), THREAD, sequence or None)
    assert question is not None
    (place.path / "answer").write_text(DANA.approve(question))


def prepared(tmp_path: Path, sequence: int = 0) -> Place:
    """A thread that waits for people; if somebody wants to go back, one that was paid."""
    place = Place.create(tmp_path / "prepared")
    place.workflow().start(place.ledger(), THREAD, amount=42)
    if sequence:
        answered(place, "1", 0)
        resume(place.path)
        (place.path / "acknowledged").unlink()
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
        return cls(ledger.storage.head(THREAD), anchored.sequence, len(place.bank.payments))


def check(path: Path, spent: int, kept: int) -> None:
    """Everything verifies, whatever was acted upon is anchored, and the journal has the spend."""
    place = Place(path)
    ledger = place.ledger()
    assert ledger.verify(THREAD) == kept
    assert ledger.anchor is not None
    anchored, last = ledger.anchor.read(STORE, THREAD), ledger.latest(THREAD)
    assert anchored is not None
    if last.sequence > spent and "asked" not in last.state:  # nobody acts before an answer
        assert anchored == Head(last.sequence, last.digest)
    assert anchored.sequence >= spent
    intended = [line for line in place.journal().show() if line.outcome == "intended"]
    note = ledger.load(THREAD, spent)
    assert note.kind == "note"
    assert note.digest in [line.digest for line in intended if line.what == "save"]


@pytest.mark.parametrize(
    ("how", "payments", "spent", "stride"),
    [
        pytest.param(("1", 0, ""), 1, 4, 3, id="each third step"),
        pytest.param(("1", 0, ""), 1, 4, 1, id="the end", marks=pytest.mark.deep),
        pytest.param(("1", 0, "worker-1"), 1, 4, 1, id="an owned thread", marks=pytest.mark.deep),
        pytest.param(("2", 0, ""), 1, 4, 1, id="a version later", marks=pytest.mark.deep),
        pytest.param(("1", 3, ""), 2, 6, 1, id="an old checkpoint", marks=pytest.mark.deep),
    ],
)
def test_sigkill_after_each_step_of_a_resume_with_an_approval(
    tmp_path: Path, how: tuple[str, int, str], payments: int, spent: int, stride: int
) -> None:
    """One payment per approval, of what was approved; the run ends with it; nobody asks again."""
    place = prepared(tmp_path, how[1])
    answered(place, *how[:2])
    found: Counter[str] = Counter()
    carried = {"migrations": 1} if how[0] == "2" else {}
    for each in killed(resume, tmp_path, *how, prepared=place.path, stride=stride):
        left, path = Left.at(each.folder), each.folder
        for run in (resume_again(path, *how), resume_again(path, *how)):
            assert run.state == {"amount": 42, "payee": "alice", "paid": 42, **carried}
            assert list(Place(path).bank.payments.values()) == [PAID] * payments
        check(path, spent, kept=spent + 1)
        found["not spent"] += left.head < spent
        found["spent, not anchored"] += left.head == spent > left.anchored
        found["spent, not paid"] += left.head == spent and left.payments < payments
        found["paid, not saved"] += left.head == spent and left.payments == payments
        found["saved, not anchored"] += left.head > spent >= left.anchored
    assert len(found) == len(+found) == 5, f"some instants were never hit: {found}"


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.deep)])
def test_sigkill_after_each_step_of_a_migration(tmp_path: Path, stride: int) -> None:
    """The state is carried over once, and the run goes on to the question of the new version."""
    place = Place.create(tmp_path / "prepared")
    place.workflow().begin(place.ledger(), THREAD, amount=42).step()
    found: Counter[str] = Counter()
    for each in killed(resume, tmp_path, "2", prepared=place.path, stride=stride):
        left, path = Left.at(each.folder), each.folder
        try:
            question = resume_again(path, "2", 0, "").question
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
