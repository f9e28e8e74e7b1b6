"""What stands on the header: tenants, notes, labels, and a cipher."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    Codec,
    Conflict,
    FileCheckpointStorage,
    InMemoryAnchor,
    Ledger,
    NotFound,
    RolledBack,
    SealBroken,
)
from safepoint.audit import audit
from safepoint.core.errors import (
    ConfigurationError,
    DecodeError,
    EncodeError,
    LimitExceeded,
    ThreadDeleted,
)
from tests.house import STORE, THREAD, Memory, Toy, opened, put_back, records

# ---------------------------------------------------------------- tenants


def test_a_tenant_sees_its_own_threads_alone(tmp_path: Path) -> None:
    """And a record that somebody moves to another tenant is refused, with the same key."""
    anchor = InMemoryAnchor()
    ledger = opened(FileCheckpointStorage(tmp_path / "s"), anchor)
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
    shutil.rmtree(tmp_path / "s/@acme")
    with pytest.raises(RolledBack, match="the anchor has seen"):
        acme.latest(THREAD)
    shutil.copytree(tmp_path / "s/@globex", tmp_path / "s/@acme")
    for each in (acme, ledger.tenant("acme")):
        with pytest.raises(SealBroken, match=r"tenant acme is the one of .*, tenant globex\. If"):
            each.latest(THREAD)
    with pytest.raises(ConfigurationError, match="Cannot copy from store invoices, tenant globex"):
        globex.copy_to(opened(Memory()))


def test_what_knows_no_tenants_is_refused() -> None:
    ledger = opened(Memory())
    with pytest.raises(ConfigurationError, match="a tenant has no tenants"):
        ledger.tenant("acme").tenant("globex")
    with pytest.raises(ConfigurationError, match="Bare is not a TenantStorage"):
        opened(type("Bare", (Memory,), {"tenant": None})()).tenant("acme")
    anchor: Any = type("BareAnchor", (InMemoryAnchor,), {"tenant": None})()
    with pytest.raises(ConfigurationError, match="BareAnchor is not a TenantStorage"):
        opened(Memory(), anchor).tenant("acme")


# ---------------------------------------------------------------- notes


def noted(storage: Memory, anchor: InMemoryAnchor | None = None) -> Ledger:
    """A thread of a state, three notes, a state, and two notes more."""
    ledger = opened(storage, anchor)
    for n in range(1, 8):
        keep = ledger.save if n in (1, 5) else ledger.note
        keep(THREAD, {"n": n}, label=f"l-{n % 4}")
    return ledger


def test_a_note_is_no_new_state(storage: Memory) -> None:
    for anchor in (None, InMemoryAnchor()):
        storage = type(storage)()
        for ledger in (noted(storage, anchor), opened(storage, anchor)):
            assert (ledger.latest(THREAD).sequence, ledger.verify(THREAD)) == (5, 7)
            assert [each.sequence for each in ledger.history(THREAD)] == [1, 5]
            kinds = "".join(each.kind[0] for each in ledger.back(THREAD))
            assert kinds == "nnsnnns"
            assert ledger.load(THREAD, 7).kind == "note"
            for wrong in (0, 1, 4, 6, 7):
                with pytest.raises(Conflict, match="order-7 is at #5"):
                    ledger.save(THREAD, {}, after=wrong)
        assert ledger.note(THREAD, {"n": 8}, after=5).kind == "note"
        assert ledger.save(THREAD, {"n": 9}, after=5).sequence == 9
        assert opened(storage, anchor).note(THREAD, {"n": 10}, after=9).sequence == 10
        assert ledger.prune(THREAD, keep=2) == 4  # two states, and what is noted of them
        assert [each.sequence for each in ledger.back(THREAD)] == [10, 9, 8, 7, 6, 5]
        target = Memory()
        assert ledger.copy_to(opened(target)) == 6
        assert [each.label for each in opened(target).back(THREAD)][-2:] == ["l-2", "l-1"]
        with pytest.raises(NotFound, match="has no state yet"):
            ledger.note("order-8", {})
        ledger.delete(THREAD)
        for use in (ledger.note, ledger.save):
            with pytest.raises(ThreadDeleted):
                use(THREAD, {})


def test_what_rides_along_can_be_cut_off_until_the_next_state_and_nothing_else_can() -> None:
    """A pending write is the exception: all that is saved or noted else is anchored at once."""
    storage, anchor = Memory(), InMemoryAnchor()
    ledger = opened(storage, anchor)

    def seen() -> int:
        head = anchor.read(STORE, THREAD)
        return head.sequence if head else 0

    found = []
    for n in range(1, 7):
        if n in (1, 5):
            ledger.save(THREAD, {})
        else:
            ledger.note(THREAD, {}, rides_along=n != 3)
        found.append(seen())
    assert found == [1, 1, 3, 3, 5, 5]
    assert [each.id for each in audit(ledger, rule="SP15")] == []
    kept = records(storage, 5, 6)
    storage.remove(THREAD, 6)
    assert opened(storage, anchor).latest(THREAD).sequence == 5
    storage.remove(THREAD, 5)
    with pytest.raises(RolledBack, match="the anchor has seen"):
        opened(storage, anchor).latest(THREAD)
    put_back(storage, kept)
    assert (ledger.delete(THREAD).sequence, seen()) == (7, 7)


class Counted(Codec):
    decoded = 0

    def decode(self, data: bytes) -> Any:
        type(self).decoded += 1
        return super().decode(data)


# ---------------------------------------------------------------- a cipher


def test_a_record_never_chooses_plaintext(storage: Memory) -> None:
    def reader(cipher: Toy | None) -> Ledger:
        return opened(storage, cipher=cipher, codec=Counted())

    plain, closed = reader(None), reader(Toy())
    assert closed.save(THREAD, {"n": 1}).state == {"n": 1}
    closed.note(THREAD, "a note")
    assert b"\x81\xa1n\x01" not in storage.read(THREAD, 1)
    later = reader(Toy("f" * 16))  # another key by now, and it knows the older one
    later.save(THREAD, {"n": 2})
    assert [each.state for each in later.back(THREAD)] == [{"n": 2}, "a note", {"n": 1}]
    Counted.decoded = 0
    with pytest.raises(
        DecodeError, match="is encrypted under key ffffffffffffffff, and this ledger has"
    ):
        plain.latest(THREAD)
    plain.save(THREAD, {"n": 3})
    with pytest.raises(DecodeError, match="#4 is not encrypted, and this ledger has a cipher"):
        later.latest(THREAD)
    assert Counted.decoded == 0
    plain.prune(THREAD, keep=1)
    assert later.delete(THREAD).sequence == 5  # which has no state to encrypt


def test_what_a_cipher_does_wrong_is_told_in_one_error() -> None:
    storage = Memory()
    toy: Any = Toy()
    ledger = opened(storage, cipher=toy, codec=Codec())
    ledger.save(THREAD, 1)
    for opens, what in ((lambda *_: 1 / 0, "ZeroDivisionError"), (lambda *_: "1", "TypeError")):
        toy.open = opens
        with pytest.raises(DecodeError, match=f"could not decrypt the state: it raised {what}"):
            ledger.latest(THREAD)
    wrong = {("key 1", b""): EncodeError, (toy.id, "text"): EncodeError}
    for closed, error in {**wrong, (toy.id, bytes(2**25)): LimitExceeded}.items():
        toy.close = lambda *_, closed=closed: closed
        with pytest.raises(error):
            ledger.save(THREAD, 2)
    assert ledger.prune(THREAD, keep=1) == 0  # which decodes nothing
