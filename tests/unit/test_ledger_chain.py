"""What stands on the header: tenants, notes, labels, the way back, and a cipher."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from safepoint import FileCheckpointStorage, InMemoryAnchor, Keyring, Ledger, SigningKey
from safepoint.audit import check_append_only, check_location
from safepoint.errors import ConfigurationError, RolledBack, WrongPlace
from safepoint.keys import Revoked
from tests.unit.tampered import KEY, KEYS, STORE, THREAD, Memory, opened


class Anchors(InMemoryAnchor):
    """An anchor in memory that knows tenants."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, InMemoryAnchor] = {}

    def tenant(self, name: str) -> InMemoryAnchor:
        return self.of.setdefault(name, InMemoryAnchor())


# ---------------------------------------------------------------- tenants


def test_a_tenant_sees_its_own_threads_alone(tmp_path: Path) -> None:
    """And a record that somebody moves to another tenant is refused, with the same key."""
    anchor = Anchors()
    ledger = Ledger(FileCheckpointStorage(tmp_path / "s"), store=STORE, keys=KEYS, anchor=anchor)
    acme, globex = ledger.tenant("acme"), ledger.tenant("globex")
    assert (acme.threads(), [*(tmp_path / "s").iterdir()]) == ([], [])  # to look makes nothing
    for n, each in enumerate((ledger, acme, globex), start=1):
        for _ in range(n):
            each.save(THREAD, {"of": n})
    for n, each in enumerate((ledger, acme, globex), start=1):
        assert [at.state["of"] for at in each.history(THREAD)] == [n] * n
        assert each.threads() == [THREAD]
        assert each.latest(THREAD).tenant == each.tenant_name
    assert (tmp_path / "s/@acme").stat().st_mode & 0o777 == 0o700
    assert [f for f in check_append_only(tmp_path / "s") if f.severity != "note"] == []
    (tmp_path / "s/@acme" / THREAD / "0000000001.checkpoint").chmod(0o666)
    assert any("@acme" in found.where for found in check_location(tmp_path / "s"))
    (tmp_path / "s/@acme" / THREAD / "0000000001.checkpoint").chmod(0o600)
    shutil.rmtree(tmp_path / "s/@acme")
    with pytest.raises(RolledBack):
        acme.latest(THREAD)
    shutil.copytree(tmp_path / "s/@globex", tmp_path / "s/@acme")
    with pytest.raises(WrongPlace, match="of store invoices, tenant acme is the one of order-7 #3"):
        acme.latest(THREAD)
    with pytest.raises(WrongPlace, match=r"of store invoices, tenant globex\. Somebody"):
        ledger.tenant("acme").latest(THREAD)
    with pytest.raises(ConfigurationError, match="tenant globex means nothing in store invoices"):
        globex.copy_to(Ledger(Memory(), store=STORE, keys=KEYS))


def test_a_revoked_key_counts_up_to_where_that_tenant_stood() -> None:
    storage, before, new = Memory(), Anchors(), SigningKey.generate()
    ledger = Ledger(storage, store=STORE, keys=KEYS, anchor=before)
    ledger.tenant("acme").save(THREAD, 1)
    ledger.save(THREAD, 1)
    after, keys = Anchors(), Keyring(new, revoked=Revoked(KEY, before))
    later = Ledger(storage, store=STORE, keys=keys, anchor=after)
    assert later.tenant("acme").latest(THREAD).state == 1
    assert later.tenant("acme").rotated(keys).latest(THREAD).tenant == "acme"


def test_what_knows_no_tenants_is_refused() -> None:
    ledger = opened(Memory())
    with pytest.raises(ConfigurationError, match="a tenant has no tenants"):
        ledger.tenant("acme").tenant("globex")
    with pytest.raises(ConfigurationError, match="Bare knows no tenants"):
        opened(type("Bare", (Memory,), {"tenant": None})()).tenant("acme")
    anchor: Any = type("BareAnchor", (InMemoryAnchor,), {"tenant": None})()
    with pytest.raises(ConfigurationError, match="BareAnchor knows no tenants"):
        opened(Memory(), anchor).tenant("acme")
