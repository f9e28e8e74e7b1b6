"""SP17: what one version wrote means something else to the next, until a migration says what."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    Approvers,
    Gate,
    InMemoryJournal,
    SealBroken,
    SigningKey,
    Workflow,
)
from safepoint.audit import check_versions
from safepoint.errors import ResumeRefused, WorkflowMismatch
from safepoint.workflow import Call, Migration
from tests.attacks.helpers import THREAD, Shop, refused

State = dict[str, Any]
WRITER, DANA = SigningKey.generate(), SigningKey.generate("ed25519")
GATE = Gate(approvers=Approvers({"dana": DANA.public}))


class Bank(Shop):
    """A store, and two releases that pay from it: in cents, and in euros."""

    def __init__(self, path: Path) -> None:
        self.journal = InMemoryJournal()
        super().__init__(path, WRITER, journal=self.journal)
        self.paid: list[tuple[str, object]] = []
        self.migrated: list[int] = []

    def release(self, version: str, **options: Any) -> Workflow:
        """Return a release. What `amount` means depends on it; the steps look the same."""

        def fetch(state: State) -> State:
            return {"amount": 4200 if version == "1" else Decimal(42)}

        def pay(state: State, call: Call) -> State:
            amount = state["amount"]
            self.paid.append((call.key, Decimal(amount) / 100 if version == "1" else amount))
            return {"paid": amount}

        given = {"version": version, "gate": GATE, **options}
        return Workflow("invoice", [fetch, pay], **given)

    def to_euros(self, state: State) -> State:
        self.migrated.append(state["amount"])
        return {**state, "amount": Decimal(state["amount"]) / 100}

    def second(self, **options: Any) -> Workflow:
        """Return version 2, which knows what version 1 meant."""
        return self.release("2", migrations=[Migration("1", "2", self.to_euros)], **options)

    @property
    def euros(self) -> list[object]:
        return [amount for _, amount in self.paid]


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    """Version 1 has fetched 4200 cents, and the release comes before it pays."""
    made = Bank(tmp_path)
    made.release("1").begin(made.ledger(), thread=THREAD).step()
    return made


def test_cents_read_as_euros_are_refused_without_a_migration(bank: Bank) -> None:
    newer = bank.release("2")
    for use in (newer.resume, newer.rehydrate):
        assert refused(ResumeRefused, partial(use, bank.ledger(), THREAD)) == (
            "order-7 #2 cannot be resumed. The checkpoint was written by version '1', and would be"
            " resumed by version '2'. No migration leads from version '1' to version '2'. Register"
            " a migration from the version that wrote it, or resume it with that version."
        )
    assert bank.paid == []
    assert bank.ledger().latest(THREAD).sequence == 2
    [first, _] = bank.journal.show(what="resume")
    assert (first.outcome, first.detail.split(":")[0]) == ("refused", "ResumeRefused")


def test_cents_become_euros_by_a_migration_and_the_record_says_so(bank: Bank) -> None:
    before = bank.ledger().latest(THREAD)
    bank.second().resume(bank.ledger(), THREAD)
    assert bank.euros == [Decimal(42)]
    after = bank.ledger().load(THREAD, 3)
    assert (before.app, after.app) == ("invoice@1", "invoice@2")
    assert after.state["resumed"] == {
        "app": "invoice@1",
        "digest": before.digest,
        "reasons": ["version-changed"],
        "sequence": 2,
        "statements": [],
    }
    assert bank.ledger().load(THREAD, 2).state == before.state
    intended, done = bank.journal.show(what="resume")
    assert (intended.outcome, intended.sequence) == ("intended", 2)
    assert (done.outcome, done.sequence) == ("done", 3)
    assert done.detail == "invoice@1 to invoice@2: version-changed."
    assert check_versions(bank.ledger(), "invoice@2") == []


def test_migration_that_is_interrupted_does_not_run_twice(bank: Bank) -> None:
    """Or 42 euros would become 42 cents. The payment keeps its key as well."""
    bank.second().rehydrate(bank.ledger(), THREAD)  # and dies
    bank.second().resume(bank.ledger(), THREAD)
    assert bank.migrated == [4200]
    assert bank.paid == [("invoices/order-7/2/pay", Decimal(42))]


def test_worker_of_the_old_version_does_not_go_on_with_a_migrated_run(bank: Bank) -> None:
    """In the minutes in which both are deployed."""
    bank.second().rehydrate(bank.ledger(), THREAD)
    assert "No migration leads from version '2' to version '1'." in refused(
        ResumeRefused, lambda: bank.release("1").resume(bank.ledger(), THREAD)
    )
    assert bank.paid == []


def test_relabelled_or_edited_record_does_not_reach_a_migration(bank: Bank) -> None:
    genuine = bank.file(2).read_bytes()
    for old, new in ((b"invoice@1", b"invoice@2"), (b"4200", b"9999")):
        bank.file(2).write_bytes(genuine.replace(old, new))
        refused(SealBroken, lambda: bank.second().resume(bank.ledger(), THREAD))
    assert (bank.migrated, bank.paid) == ([], [])


def test_steps_that_changed_under_one_version_are_refused(bank: Bank) -> None:
    """A release that forgot to raise its version, and did other steps."""

    def load(state: State) -> State:
        return {}

    pay = bank.release("1").steps["pay"]
    forgot = Workflow("invoice", [load, pay], version="1")
    assert refused(WorkflowMismatch, lambda: forgot.resume(bank.ledger(), THREAD)) == (
        "order-7 #2 was written by other steps than those of invoice today. Resume it with the"
        " code that wrote it, or give the workflow a new version and a migration that says which"
        " steps are done."
    )


def test_meaning_that_changed_under_one_version_goes_unnoticed(bank: Bank) -> None:
    """What the page says about the limit: the gate compares versions, not meanings."""

    def fetch(state: State) -> State:
        return {"amount": Decimal(42)}

    def pay(state: State) -> State:
        return {"euros": state["amount"]}

    forgot = Workflow("invoice", [fetch, pay], version="1")
    assert forgot.resume(bank.ledger(), THREAD).state["euros"] == 4200
