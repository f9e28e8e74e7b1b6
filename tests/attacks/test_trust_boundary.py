"""SP01: whoever can write the store decides what the workflow does next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safepoint import InMemoryCheckpointStorage, Keyring, Ledger, SealBroken, SigningKey, Workflow
from tests.attacks.helpers import THREAD, Shop, refused

PAID: list[int] = []


def fetch(state: dict[str, Any]) -> dict[str, Any]:
    return {"amount": 42}


def pay(state: dict[str, Any]) -> None:
    PAID.append(state["amount"])


INVOICE = Workflow("invoice", [fetch, pay])


@pytest.mark.parametrize(
    ("sequence", "old", "new"),
    [
        (2, '"amount":42', '"amount":5000000'),
        # Which step comes next is state, too: editing it would repeat or skip a payment.
        (3, '["fetch","pay"]', '["fetch"]'),
    ],
)
def test_edited_state_is_refused_and_pays_nobody(
    sequence: int, old: str, new: str, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, anchored=False)
    run = INVOICE.begin(shop.ledger(), thread=THREAD)
    for _ in range(sequence - 1):
        run.step()
    PAID.clear()
    shop.edit(sequence, old, new)
    refused(SealBroken, lambda: INVOICE.resume(shop.ledger(), thread=THREAD))
    assert PAID == []


def test_edited_memory_is_refused() -> None:
    """A storage in memory is a boundary as well: a library in the process can write it."""
    storage = InMemoryCheckpointStorage()
    ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
    INVOICE.begin(ledger, thread=THREAD).step()
    PAID.clear()
    edited = storage.read(THREAD, 2).replace(b'"amount":42', b'"amount":5000000')
    storage._records[THREAD][2] = edited
    refused(SealBroken, lambda: INVOICE.resume(ledger, thread=THREAD))
    assert PAID == []
