"""Where a defence stops helping, as the pages say. If one of these fails, something got better."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest

from safepoint import NotOwner, SQLiteAnchor, Workflow
from tests.attacks.helpers import THREAD, Shop
from tests.house import refused


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_an_anchor_that_is_restored_with_the_storage_notices_nothing(
    shop: Shop, tmp_path: Path
) -> None:
    """SP15: keep it where nobody restores both at once."""
    shop.fill([{}])
    for name in ("state", "anchor"):
        copytree(tmp_path / name, tmp_path / f"{name}-copy")
    shop.fill([{}])
    for name in ("state", "anchor"):
        rmtree(tmp_path / name)
        copytree(tmp_path / f"{name}-copy", tmp_path / name)
    assert (
        shop.ledger(anchor=SQLiteAnchor(tmp_path / "anchor/heads.db")).latest(THREAD).sequence == 1
    )


def test_a_lease_does_not_stop_whoever_can_write_the_store(shop: Shop) -> None:
    """SP07: it keeps honest workers apart. Without it the owner is refused as well, and stops."""
    owner = shop.ledger()
    owner.own(THREAD, "worker-1")
    owner.save(THREAD, {"step": 1})
    shop.file(1).with_name("lease").unlink()
    shop.fill([{"step": "of a script"}])
    refused(NotOwner, lambda: owner.save(THREAD, {"step": 2}))


def test_meaning_that_changed_under_one_version_goes_unnoticed(shop: Shop) -> None:
    """SP17: the gate compares versions, not meanings."""

    def release(amount: object) -> Workflow:
        def fetch(state: dict[str, Any]) -> dict[str, Any]:
            return {"amount": amount}

        def pay(state: dict[str, Any]) -> dict[str, Any]:
            return {"paid": state["amount"]}

        return Workflow("invoice", [fetch, pay], version="1")

    release(4200).begin(shop.ledger(), thread=THREAD).step()
    euros = release(Decimal(42))
    assert euros.resume(shop.ledger(), THREAD).state["paid"] == 4200
