"""SP19: a forged, swapped, replayed, reused or expired approval pays nobody."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    ApprovalError,
    ApprovalExpired,
    ApprovalMalformed,
    ApprovalMismatch,
    ApprovalNeeded,
    ApprovalSpent,
    ApprovalUntrusted,
    Approver,
    Approvers,
    Gate,
    InMemoryCheckpointStorage,
    KeyRefused,
    Keyring,
    Ledger,
    RolledBack,
    SealBroken,
    SigningKey,
    Workflow,
)
from safepoint.approval import Question
from safepoint.attacks.naive import NaiveLedger
from tests.unit.resume_helpers import DANA, ERIN, Place

NOW = datetime.now(UTC)
REQUEST = {"amount": 42, "payee": "alice"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.create(tmp_path / "place")


@pytest.fixture
def naive(tmp_path: Path) -> NaiveLedger:
    ledger = NaiveLedger(tmp_path / "naive")
    ledger.ask("order-7", REQUEST)
    return ledger


def paused(place: Place, thread: str = "order-7", amount: int = 42) -> Question:
    """Run up to the question."""
    question = place.workflow().start(place.ledger(), thread, amount=amount).question
    assert question is not None
    return question


def resume(place: Place, *approvals: str, thread: str = "order-7", now: datetime = NOW) -> None:
    """Go on as another process does."""
    run = place.workflow().rehydrate(place.ledger(), thread, approvals=approvals, now=now)
    run.finish()


def edit(folder: Path, file: str, old: bytes, new: bytes) -> None:
    """Do what everybody can who can write the folder."""
    before = (folder / file).read_bytes()
    assert old in before
    (folder / file).write_bytes(before.replace(old, new))


def test_a_yes_that_nobody_gave_pays_on_the_naive_twin(naive: NaiveLedger) -> None:
    assert naive.resume("order-7") is None
    edit(naive.path, "order-7.1.json", b'"approved": false', b'"approved": true')
    assert naive.resume("order-7") == REQUEST


def forged(question: Question) -> list[str]:
    """Every yes that can be made without dana's key."""
    genuine = DANA.approve(question, now=NOW)
    line, body = genuine.split("\n", 1)
    label, key, signature = line.split(" ")
    stranger = Approver("dana", SigningKey.generate("ed25519"))
    denial = ERIN.deny(question, now=NOW)
    return [
        "",
        "approved",
        body,
        f"{label} {key}\n{body}",
        f"{label} {key} {'A' * 86}==\n{body}",
        f"{label} {key} {stranger.approve(question, now=NOW).split(' ')[2]}",
        stranger.approve(question, now=NOW),
        Approver("mally", SigningKey.generate("ed25519")).approve(question, now=NOW),
        genuine.replace("dana", "erin"),
        denial.replace("denied", "approved"),
        f"{label} {key} {signature}\n{denial.split(chr(10), 1)[1]}",
    ]


def test_a_forged_approval_pays_nobody(place: Place) -> None:
    question = paused(place)
    for text in forged(question):
        with pytest.raises((ApprovalMalformed, ApprovalUntrusted)):
            resume(place, text)
    with pytest.raises(ApprovalNeeded):
        resume(place)
    assert place.bank.payments == {}


def test_an_edited_approval_pays_nobody(place: Place) -> None:
    genuine = DANA.approve(paused(place), now=NOW)
    for index in range(0, len(genuine), 13):  # the decoder is fuzzed elsewhere, byte by byte
        other = "x" if genuine[index] != "x" else "y"
        with pytest.raises(ApprovalError):
            resume(place, genuine[:index] + other + genuine[index + 1 :])
    assert place.bank.payments == {}
    resume(place, genuine)
    assert list(place.bank.payments.values()) == [REQUEST]


def test_a_yes_to_42_pays_a_fortune_on_the_naive_twin(naive: NaiveLedger) -> None:
    naive.approve("order-7", "dana")
    edit(naive.path, "order-7.2.json", b'"amount": 42', b'"amount": 5000000')
    assert naive.resume("order-7") == {"amount": 5_000_000, "payee": "alice"}


def test_a_yes_to_42_pays_no_fortune(place: Place) -> None:
    """Whether the person was shown something else, or the store was changed afterwards."""
    question = paused(place, amount=5_000_000)
    shown = replace(question, arguments=REQUEST)
    with pytest.raises(ApprovalMismatch) as refusal:
        resume(place, DANA.approve(shown, now=NOW))
    assert str(refusal.value) == (
        "The approval by dana has the argument 'amount': 42, and the question has 5000000. It does"
        " not count here. Ask dana this question."
    )
    little = paused(place, "order-8")
    record = "order-8/0000000003.checkpoint"
    edit(place.path / "store", record, b'"amount":42', b'"amount":43')
    with pytest.raises(SealBroken):
        resume(place, DANA.approve(little, now=NOW), thread="order-8")
    assert place.bank.payments == {}


def test_one_yes_serves_two_customers_on_the_naive_twin(naive: NaiveLedger) -> None:
    naive.approve("order-7", "dana")
    naive.ask("order-8", REQUEST)
    (naive.path / "order-8.1.json").write_bytes((naive.path / "order-7.2.json").read_bytes())
    assert naive.resume("order-8") == naive.resume("order-7") == REQUEST


def test_an_approval_of_another_order_pays_nobody(place: Place) -> None:
    yes = DANA.approve(paused(place, "order-7"), now=NOW)
    paused(place, "order-8")
    with pytest.raises(ApprovalMismatch) as refusal:
        resume(place, yes, thread="order-8")
    assert str(refusal.value) == (
        "The approval by dana has the thread 'order-7', and the question has 'order-8'. It does"
        " not count here. Ask dana this question."
    )
    assert place.bank.payments == {}


def test_a_yes_stays_in_the_state_of_the_naive_twin(naive: NaiveLedger) -> None:
    naive.approve("order-7", "dana")
    assert naive.resume("order-7") == REQUEST
    naive.ask("order-7", {"amount": 5_000_000, "payee": "mally"})
    assert naive.resume("order-7") == {"amount": 5_000_000, "payee": "mally"}


def test_an_approval_pays_once(place: Place) -> None:
    yes = DANA.approve(paused(place), now=NOW)
    resume(place, yes)
    with pytest.raises(ApprovalSpent) as refusal:
        resume(place, yes)
    assert str(refusal.value) == (
        "This approval of dana was used for order-7 #4. An approval counts once. If that run was"
        " interrupted, resume it without approvals."
    )
    assert list(place.bank.payments.values()) == [REQUEST]


@pytest.mark.parametrize(
    ("issued", "lifetime", "why"),
    [
        (NOW - timedelta(days=365), timedelta(hours=1), "expired at"),
        (NOW - timedelta(hours=1), timedelta(hours=1), "expired at"),
        (NOW + timedelta(hours=2), timedelta(hours=1), "and it is only"),
        (NOW, timedelta(days=365), "is valid for 365 days, 0:00:00, and the policy allows 1 day"),
    ],
    ids=["of-last-year", "just-over", "of-the-future", "for-ever"],
)
def test_an_approval_of_another_time_pays_nobody(
    place: Place, issued: datetime, lifetime: timedelta, why: str
) -> None:
    yes = DANA.approve(paused(place), now=issued, lifetime=lifetime)
    with pytest.raises(ApprovalExpired) as refusal:
        resume(place, yes)
    assert why in refusal.value.what
    assert place.bank.payments == {}


def test_the_writer_cannot_answer_itself(place: Place) -> None:
    """Its key seals every record, and signs nothing that counts as dana's."""
    writer = SigningKey.generate("ed25519")
    ledger = Ledger(
        InMemoryCheckpointStorage(), store="own", keys=Keyring(writer), journal=place.journal()
    )
    workflow = place.workflow()
    question = workflow.start(ledger, "order-7", amount=42).question
    assert question is not None
    with pytest.raises(ApprovalUntrusted) as refusal:
        workflow.resume(ledger, "order-7", approvals=[Approver("dana", writer).approve(question)])
    assert str(refusal.value) == (
        f"The approval names key {writer.id}, which is no approver's. If that person may approve,"
        " add their public key to Approvers; if not, treat it as forged."
    )
    assert place.bank.payments == {}


def test_the_writer_cannot_be_made_an_approver(place: Place) -> None:
    writer = SigningKey.generate("ed25519")
    ledger = Ledger(
        InMemoryCheckpointStorage(), store="own", keys=Keyring(writer), journal=place.journal()
    )
    gate = Gate(approvers=Approvers({"dana": writer.public}))
    workflow = Workflow("errand", [idle], gate=gate)
    workflow.begin(ledger, "order-7")
    with pytest.raises(KeyRefused) as refusal:
        workflow.resume(ledger, "order-7")
    assert str(refusal.value) == (
        f"Key {writer.id} of the approver dana is on the keyring of the ledger, so a writer could"
        " approve its own work. Give the approver a key of their own:"
        " SigningKey.generate('ed25519')."
    )


def idle(state: dict[str, Any]) -> None:
    """Do nothing, as a step."""


def test_a_denial_can_be_cut_off_the_naive_twin(naive: NaiveLedger) -> None:
    naive.approve("order-7", "dana")
    naive.deny("order-7", "erin")
    assert naive.resume("order-7") is None
    (naive.path / "order-7.3.json").unlink()
    assert naive.resume("order-7") == REQUEST


def test_a_denial_cannot_be_cut_off(place: Place) -> None:
    question = paused(place)
    yes = DANA.approve(question, now=NOW)
    resume(place, ERIN.deny(question, now=NOW))
    with pytest.raises(ApprovalSpent):
        resume(place, yes)
    (place.path / "store" / "order-7" / "0000000004.checkpoint").unlink()
    with pytest.raises(RolledBack) as refusal:
        resume(place, yes)
    assert refusal.value.what == "order-7 ends at #3, and the anchor has seen #4."
    assert place.bank.payments == {}


def test_the_journal_tells_of_each_try(place: Place) -> None:
    question = paused(place)
    for text in forged(question):
        with pytest.raises(ApprovalError):
            resume(place, text)
    told = list(place.journal().show(thread="order-7", what="resume"))
    assert [entry.outcome for entry in told] == ["refused"] * len(forged(question))
    assert all(entry.detail.startswith("Approval") for entry in told)
