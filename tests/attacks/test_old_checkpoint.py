"""SP16: a resume that goes back is asked for by name, approved by a person, and kept."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    ApprovalNeeded,
    Approver,
    Approvers,
    Ask,
    FileJournal,
    Gate,
    Keyring,
    RolledBack,
    SigningKey,
    Workflow,
)
from safepoint.audit import check_resumptions
from safepoint.errors import ApprovalSpent
from safepoint.workflow import Call
from tests.attacks.helpers import THREAD, Shop, refused

State = dict[str, Any]
WRITER, CLERK = SigningKey.generate(), Keyring(SigningKey.generate())
PEOPLE = {name: SigningKey.generate("ed25519") for name in ("dana", "erin")}
APPROVERS = Approvers({name: key.public for name, key in PEOPLE.items()})
GATE = Gate(approvers=APPROVERS)
SHOW = "Show them this error's question, and pass what they sign: resume(..., approvals=[text])."


class Office(Shop):
    """A store on disk, the processes that work on it, and what they paid."""

    def __init__(self, path: Path) -> None:
        self.journal = FileJournal(path / "journal", keys=CLERK, create=True)
        super().__init__(path, WRITER, journal=self.journal)
        self.paid: list[tuple[str, int]] = []

    def invoice(self, *, asks: bool = False, gate: Gate = GATE) -> Workflow:
        """Return fetch and pay, or fetch, ask and pay."""

        def fetch(state: State) -> State:
            return {"amount": 42}

        def ask(state: State) -> Ask:
            return Ask("pay", {"amount": state["amount"]})

        def pay(state: State, call: Call) -> State:
            asked = call.was_approved
            amount = call.approved.arguments["amount"] if asked else state["amount"]
            self.paid.append((call.key, amount))
            return {"paid": amount}

        return Workflow("invoice", [fetch, ask, pay] if asks else [fetch, pay], gate=gate)

    def answer(self, sequence: int | None, who: str, *, yes: bool = True, asks: bool = True) -> str:
        """Let somebody look at the store, and sign."""
        question = self.invoice(asks=asks).question(self.ledger(), THREAD, sequence)
        assert question is not None
        person = Approver(who, PEOPLE[who])
        return person.approve(question) if yes else person.deny(question)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


# A resume goes back, and pays again


def test_way_back_that_nobody_asked_for_is_refused_and_pays_nobody(office: Office) -> None:
    office.invoice().start(office.ledger(), thread=THREAD)
    for use in (office.invoice().resume, office.invoice().rehydrate):
        assert refused(ApprovalNeeded, partial(use, office.ledger(), THREAD, 2)) == (
            "order-7 #2 needs the approval of one person. The run would go back from #3 to #2."
            f" {SHOW}"
        )
    assert len(office.paid) == 1
    assert office.ledger().latest(THREAD).sequence == 3
    lines = [entry for entry in office.journal.show(what="resume") if entry.outcome == "refused"]
    assert [line.detail.split(".")[0] for line in lines] == [
        "ApprovalNeeded: order-7 #2 needs the approval of one person"
    ] * 2


def test_way_back_counts_once_and_is_written_down_with_who_approved_it(office: Office) -> None:
    office.invoice().start(office.ledger(), thread=THREAD)
    yes = office.answer(2, "dana", asks=False)
    office.invoice().resume(office.ledger(), THREAD, 2, approvals=[yes])
    intended, approving, approve, done = [
        entry for entry in office.journal.show(thread=THREAD) if entry.what in ("approve", "resume")
    ]
    assert approving.actor.name == approve.actor.name == "dana"
    assert (intended.outcome, intended.sequence) == ("intended", 2)
    assert (done.outcome, done.sequence) == ("done", 4)
    assert done.detail.startswith("invoice to invoice: old-checkpoint. approved by dana, nonce ")
    (finding,) = check_resumptions(office.ledger(), GATE)
    assert finding.what == "order-7 #4 went back from #3 to #2, approved by dana."
    again = partial(office.invoice().resume, office.ledger(), THREAD, 2, approvals=[yes])
    assert refused(ApprovalSpent, again).startswith("This approval of dana was used for order-7 #4")
    assert len(office.paid) == 2


# The denial is cut off, and the run goes on


@pytest.mark.parametrize("every", [1, 10])
def test_denial_that_is_cut_off_is_missed(office: Office, every: int) -> None:
    """With a yes in hand that dana gave before erin said no, and an anchor that moves rarely."""
    workflow, ledger = office.invoice(asks=True), partial(office.ledger, anchor_every=every)
    workflow.start(ledger(), thread=THREAD)
    yes, no = office.answer(None, "dana"), office.answer(None, "erin", yes=False)
    workflow.resume(ledger(), THREAD, approvals=[no])
    office.file(4).unlink()
    assert refused(RolledBack, lambda: workflow.resume(ledger(), THREAD, approvals=[yes])) == (
        "order-7 ends at #3, and the anchor has seen #4. Checkpoints were cut off, or an older copy"
        " was restored. Nothing was loaded: put back what is missing, or accept the loss by name"
        " with Ledger.accept_loss."
    )
    assert office.paid == []


def test_denial_is_not_undone_by_going_back_to_what_was_asked(office: Office) -> None:
    workflow = office.invoice(asks=True)
    workflow.start(office.ledger(), thread=THREAD)
    before, no = office.answer(None, "dana"), office.answer(None, "erin", yes=False)
    assert workflow.resume(office.ledger(), THREAD, approvals=[no]).denied
    act = partial(workflow.resume, office.ledger(), THREAD, 3)
    assert refused(ApprovalNeeded, act) == (
        "order-7 #3 needs the approval of one person. The run would go back from #4 to #3. The run"
        f" paused at #3 for a person's answer. erin denied it at #4. {SHOW}"
    )
    assert office.paid == []
    early = partial(workflow.resume, office.ledger(), THREAD, 3, approvals=[before])
    assert refused(ApprovalSpent, early).startswith("dana answered about order-7 #3, and it is at")
    yes = office.answer(3, "dana")
    workflow.resume(office.ledger(), THREAD, 3, approvals=[yes])
    (finding,) = check_resumptions(office.ledger(), GATE)
    assert finding.what == "order-7 #5 went back from #4 to #3, approved by dana."
