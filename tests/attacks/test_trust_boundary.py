"""SP01: whoever can write the store decides what the workflow does next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    SealBroken,
    SealError,
    SigningKey,
    Workflow,
)
from safepoint.attacks.naive import NaiveLedger

PAID: list[int] = []


def fetch(state: dict[str, Any]) -> dict[str, Any]:
    return {"amount": 42}


def pay(state: dict[str, Any]) -> None:
    PAID.append(state["amount"])


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


INVOICE = Workflow("invoice", [fetch, pay])


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_edited_amount_is_paid_by_the_naive_twin(tmp_path: Path) -> None:
    ledger: Any = NaiveLedger(tmp_path)
    INVOICE.begin(ledger, thread="order-7").step()
    replace(tmp_path / "order-7.2.json", '"amount": 42', '"amount": 5000000')
    INVOICE.resume(ledger, thread="order-7")
    assert PAID == [5_000_000]


def test_edited_amount_is_refused(tmp_path: Path) -> None:
    storage = FileCheckpointStorage(tmp_path / "state")
    ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
    INVOICE.begin(ledger, thread="order-7").step()
    file = tmp_path / "state/order-7/0000000002.checkpoint"
    replace(file, '"amount":42', '"amount":5000000')
    with pytest.raises(SealBroken):
        INVOICE.resume(ledger, thread="order-7")
    assert PAID == []


def test_edited_position_is_refused(tmp_path: Path) -> None:
    """Which step comes next is state, too: editing it would repeat or skip a payment."""
    storage = FileCheckpointStorage(tmp_path / "state")
    ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
    INVOICE.start(ledger, thread="order-7")
    PAID.clear()
    file = tmp_path / "state/order-7/0000000003.checkpoint"
    replace(file, '["fetch","pay"]', '["fetch"]')
    with pytest.raises(SealBroken):
        INVOICE.resume(ledger, thread="order-7")
    assert PAID == []


def test_edited_memory_is_refused() -> None:
    """A storage in memory is a boundary as well: a library in the process can write it."""
    storage = InMemoryCheckpointStorage()
    ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
    INVOICE.begin(ledger, thread="order-7").step()
    record = storage.read("order-7", 2).replace(b'"amount":42', b'"amount":5000000')
    storage._records["order-7"][2] = record
    with pytest.raises(SealError):
        INVOICE.resume(ledger, thread="order-7")
    assert PAID == []
