"""What a ledger must not forget between two calls, and what it must not believe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from safepoint import (
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteCheckpointStorage,
    SQLiteJournal,
)
from safepoint.core.errors import (
    ConfigurationError,
    Conflict,
    InvalidId,
    NotFound,
    RolledBack,
    SealBroken,
    Unavailable,
)
from safepoint.core.journal import InMemoryJournal, Journal
from safepoint.core.keys import Revoked
from safepoint.core.names import Head


def test_a_thread_that_does_not_verify_is_not_anchored_by_a_second_try() -> None:
    """Nothing vouches for its past yet, so all of it is looked at, whatever was read before."""
    keys, storage = Keyring(SigningKey.generate()), InMemoryCheckpointStorage()
    for number in range(3):
        Ledger(storage, store="invoices", keys=keys).save("order-7", {"n": number})
    del storage._records["order-7"][1]
    ledger = Ledger(storage, store="invoices", keys=keys, anchor=InMemoryAnchor())
    assert ledger.latest("order-7").sequence == 3
    for _ in range(2):
        with pytest.raises(RolledBack, match="is gone, and nothing signed"):
            ledger.save("order-7", {"n": 4})
    assert ledger.anchored("order-7") is None


def test_a_record_that_this_process_knew_and_somebody_pruned_is_not_found() -> None:
    ledger = Ledger(
        InMemoryCheckpointStorage(),
        store="invoices",
        keys=Keyring(SigningKey.generate()),
        anchor=InMemoryAnchor(),
    )
    first = ledger.save("order-7", {"n": 1})
    ledger.save("order-7", {"n": 2})
    ledger.prune("order-7", keep=1)
    with pytest.raises(NotFound):
        ledger.load("order-7", Head(1, first.digest))
    with pytest.raises(InvalidId):
        ledger.prune("order-7", keep=1, since=0)


class Odd:
    """An anchor that is empty, and so is false, or that answers with something else."""

    def __init__(self, answer: object = None) -> None:
        self.answer, self.asked = answer, list[str]()

    def __len__(self) -> int:
        return 0

    def read(self, store: str, thread: str) -> Any:
        return self.answer

    def advance(self, store: str, thread: str, head: Head) -> None:
        self.asked.append(thread)

    def threads(self, store: str) -> list[str]:
        return []

    def tenant(self, name: str) -> Odd:
        self.asked.append(f"@{name}")
        return self

    def tenants(self, store: str) -> list[str]:
        return []


def test_an_anchor_that_is_empty_is_still_one() -> None:
    anchor = Odd()
    keys = Keyring(SigningKey.generate())
    whole = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys, anchor=anchor)
    whole.tenant("acme").save("order-7", {})
    assert anchor.asked == ["@acme", "order-7"]


def test_an_anchor_that_answers_with_no_head_is_unavailable() -> None:
    anchor = Odd(SimpleNamespace(sequence=0, digest="none"))
    keys = Keyring(SigningKey.generate())
    ledger = Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys, anchor=anchor)
    with pytest.raises(Unavailable, match="InvalidId"):
        ledger.save("order-7", {})


def test_a_ledger_cannot_have_the_name_of_a_journal() -> None:
    """Both would be known to one anchor under one name."""
    with pytest.raises(InvalidId, match="kept for this package"):
        Ledger(InMemoryCheckpointStorage(), store="journal", keys=Keyring(SigningKey.generate()))


def test_a_loss_is_written_down_with_both_ends_and_a_lost_base_is_said() -> None:
    stolen, new = SigningKey.generate(), SigningKey.generate()
    storage, anchor, journal = InMemoryCheckpointStorage(), InMemoryAnchor(), InMemoryJournal()
    options: dict[str, Any] = {"store": "invoices", "anchor": anchor, "journal": journal}
    ledger = Ledger(storage, keys=Keyring(stolen), **options)
    for number in range(2):
        ledger.save("order-7", {"n": number})
    ledger.prune("order-7", keep=1)
    anchor.rewind("invoices", "order-7", None)
    ledger.accept_loss("order-7")
    [entry] = [e for e in journal.show(what="accept-loss") if e.outcome == "done"]
    assert entry.detail == "from none to #2"
    storage._records["order-7"].clear()
    storage._heads.clear()
    ring = Keyring(stolen).rotated(new).revoking(stolen, until=None)
    with pytest.raises(SealBroken, match="which was revoked"):
        Ledger(storage, keys=ring, **options).accept_loss("order-7")


def test_a_revoked_key_is_not_undone_by_another_name_in_line_1() -> None:
    """The id of the key is a hint: no signature and no digest covers it."""
    stolen, new = SigningKey.generate(), SigningKey.generate()
    storage, anchor = InMemoryCheckpointStorage(), InMemoryAnchor()
    ledger = Ledger(storage, store="invoices", keys=Keyring(stolen), anchor=anchor)
    for number in (1, 2):
        ledger.save("order-7", {"n": number})
    before = InMemoryAnchor()
    before.advance("invoices", "order-7", cast("Head", anchor.read("invoices", "order-7")))
    ledger.save("order-7", {"n": "of a thief"})
    ledger = ledger.rotated(ledger.keys.rotated(new))
    ledger.save("order-7", {"n": 4})
    ledger = ledger.rotated(ledger.keys.revoking(stolen, until=before))
    with pytest.raises(SealBroken, match="which was revoked"):
        ledger.load("order-7", 3)
    records = storage._records["order-7"]
    records[3] = records[3].replace(stolen.id.encode(), new.id.encode(), 1)
    with pytest.raises(SealBroken, match="was changed after it was sealed"):
        ledger.load("order-7", 3)
    with pytest.raises(SealBroken, match="was changed after it was sealed"):
        ledger.verify("order-7")


def test_a_copy_moves_no_anchor_over_a_fork() -> None:
    key = SigningKey.generate()
    options: dict[str, Any] = {"store": "invoices", "keys": Keyring(key)}
    anchor = InMemoryAnchor()
    first = Ledger(InMemoryCheckpointStorage(), anchor=anchor, **options)
    other = Ledger(InMemoryCheckpointStorage(), anchor=InMemoryAnchor(), **options)
    for number in range(2):
        first.save("order-7", {"n": number})
        other.save("order-7", {"n": -number})
    other.save("order-7", {})
    target = Ledger(InMemoryCheckpointStorage(), anchor=anchor, **options)
    with pytest.raises(RolledBack, match="is not the record that the anchor"):
        other.copy_to(target)
    assert target.storage.threads() == []
    assert first.copy_to(target) == 2


def test_a_point_that_knows_no_tenants_is_no_point() -> None:
    class Plain:
        def read(self, store: str, thread: str) -> None:
            raise AssertionError

    stolen, new = SigningKey.generate(), SigningKey.generate()
    options: dict[str, Any] = {"store": "invoices", "anchor": InMemoryAnchor(), "tenant": "acme"}
    storage = InMemoryCheckpointStorage()
    Ledger(storage, keys=Keyring(stolen), **options).save("order-7", {})
    keys = Keyring(new, revoked=Revoked(stolen, Plain()))
    with pytest.raises(Unavailable, match="AttributeError"):
        Ledger(storage, keys=keys, **options).latest("order-7")


def test_a_loss_is_not_accepted_with_what_a_revoked_key_may_have_forged() -> None:
    """Below the point the anchor vouches for its records, and a loss sets the anchor back."""
    stolen, new = SigningKey.generate(), SigningKey.generate()
    options: dict[str, Any] = {"store": "invoices", "anchor": InMemoryAnchor()}
    storage, forged = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    ledger = Ledger(storage, keys=Keyring(stolen), **options)
    for number in range(5):
        ledger.save("order-7", {"n": number})
    before = InMemoryAnchor()
    before.advance("invoices", "order-7", cast("Head", ledger.anchored("order-7")))
    keys = Keyring(stolen).rotated(new).revoking(stolen, until=before)
    for number in range(3):
        Ledger(forged, store="invoices", keys=Keyring(stolen)).save("order-7", {"n": -number})
    with pytest.raises(SealBroken, match="#5, up to which that counts, is not in the storage"):
        Ledger(forged, keys=keys, **options).accept_loss("order-7")
    ledger = Ledger(storage, keys=keys, **options)
    ledger.save("order-7", {"n": 6})
    del storage._records["order-7"][6]
    storage._heads["order-7"] = 5
    assert Ledger(storage, keys=keys, **options).accept_loss("order-7")[1] == before.read(
        "invoices", "order-7"
    )


@pytest.mark.parametrize("use", [lambda it: it.latest("order-7"), lambda it: it.save("order-7", 2)])
def test_a_tombstone_that_this_process_wrote_is_not_cut_off_unnoticed(
    use: Callable[[Ledger], object],
) -> None:
    storage = InMemoryCheckpointStorage()
    ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
    ledger.save("order-7", 1)
    ledger.delete("order-7")
    del storage._records["order-7"][2]
    storage._heads["order-7"] = 1
    with pytest.raises(RolledBack, match="this process has seen #2"):
        use(ledger)


def test_a_thread_that_is_gone_is_not_begun_anew_by_whoever_knew_it() -> None:
    storage, anchor = InMemoryCheckpointStorage(), InMemoryAnchor()
    keys = Keyring(SigningKey.generate())
    ledger = Ledger(storage, store="invoices", keys=keys, anchor=anchor)
    for number in range(3):
        ledger.save("order-7", number)
    storage._records.clear()
    storage._heads.clear()
    with pytest.raises(RolledBack, match="order-7 is gone, and the anchor has seen #3"):
        ledger.save("order-7", 3)
    assert storage.threads() == []


def test_a_copy_of_what_was_pruned_meanwhile_is_a_conflict_and_no_alarm() -> None:
    keys = Keyring(SigningKey.generate())
    source, target = (
        Ledger(InMemoryCheckpointStorage(), store="invoices", keys=keys) for _ in range(2)
    )
    for number in range(3):
        source.save("order-7", number)
    source.copy_to(target)
    for number in range(3, 6):
        source.save("order-7", number)
    source.prune("order-7", keep=1)
    with pytest.raises(Conflict, match="Copy into a new, empty storage"):
        source.copy_to(target)


def test_what_is_deleted_is_erased_and_not_pruned() -> None:
    storage = InMemoryCheckpointStorage()
    ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
    ledger.save("order-7", 1)
    ledger.delete("order-7")
    assert ledger.prune("order-7", keep=1) == 0
    assert len(storage._records["order-7"]) == 2


def test_a_journal_is_kept_apart_from_the_storage_like_an_anchor(tmp_path: Path) -> None:
    keys, writer = Keyring(SigningKey.generate()), Keyring(SigningKey.generate())
    storage = SQLiteCheckpointStorage(tmp_path / "state/checkpoints.db")
    for journal in (
        SQLiteJournal(tmp_path / "state/journal.db", keys=keys, create=True),
        Journal(SQLiteCheckpointStorage(tmp_path / "state/other.db"), keys=keys),
    ):
        with pytest.raises(ConfigurationError, match=r"The journal .* is in one place with"):
            Ledger(storage, store="invoices", keys=writer, journal=journal)
