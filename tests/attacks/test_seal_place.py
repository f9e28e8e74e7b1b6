"""SP12: a record counts where it was sealed for, as what it was sealed as, by who may seal."""

from __future__ import annotations

from pathlib import Path

import pytest

from safepoint import Keyring
from safepoint import SigningKey as Key
from safepoint.errors import KeyRefused, SealBroken, WrongPlace
from tests.attacks.helpers import THREAD, Shop, refused


@pytest.fixture(params=["hmac-sha256", "ed25519"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    shop = Shop(tmp_path, Key.generate(request.param), anchored=False)
    shop.fill([{"amount": 1}, {"amount": 42}])
    return shop


def test_genuine_record_of_another_place_is_refused(shop: Shop, tmp_path: Path) -> None:
    """Of another thread, of another store, or of an earlier step."""
    shop.fill([{"amount": 1}, {"amount": 5_000_000}], "order-8")
    staging = Shop(tmp_path / "staging", shop.key, store="staging")
    staging.fill([{"amount": 1}, {"amount": 5_000_000}])
    for other, place in (
        (shop.file(2, "order-8"), "order-8 #2 of store invoices"),
        (staging.file(2), "order-7 #2 of store staging"),
        (shop.file(1), "order-7 #1 of store invoices"),
    ):
        shop.file(2).write_bytes(other.read_bytes())
        said = refused(WrongPlace, lambda: shop.ledger().latest(THREAD))
        assert f"The record at order-7 #2 of store invoices is the one of {place}. " in said


def test_base_put_in_place_of_a_checkpoint_is_refused(shop: Shop) -> None:
    """What prune leaves is sealed for the same place, and is not a state."""
    shop.ledger().prune(THREAD, keep=1)
    base = shop.file(2).with_name("base").read_bytes()
    shop.file(2).write_bytes(base[base.index(b"safepoint/1 ") :])
    assert refused(WrongPlace, lambda: shop.ledger().latest(THREAD)).startswith(
        "The record at order-7 #2 is of the kind base, which does not belong there. "
    )


def test_edit_of_what_is_sealed_is_refused(shop: Shop) -> None:
    genuine = shop.file(2).read_bytes()
    for old, new in ((b":42", b":43"), (b"order-7", b"order-8"), (b"invoices", b"payments")):
        shop.file(2).write_bytes(genuine.replace(old, new, 1))
        refused(SealBroken, lambda: shop.ledger().latest(THREAD))


def test_reader_with_the_public_half_cannot_seal(tmp_path: Path) -> None:
    shop = Shop(tmp_path, Key.generate("ed25519"))
    shop.fill([{"amount": 42}])
    reader = shop.ledger(keys=Keyring(verify=shop.key.public))
    assert reader.latest(THREAD).state == {"amount": 42}
    said = refused(KeyRefused, lambda: reader.save(THREAD, {"amount": 5_000_000}))
    assert said.startswith("This keyring only verifies: no key on it signs.")
    assert reader.storage.head(THREAD) == 1
