"""A ledger, its anchor, its keys and its journal: each flaw is planted, and found by its check."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    FileCheckpointStorage,
    InMemoryAnchor,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
)
from safepoint.audit import Finding, audit
from safepoint.audit.ledger import check_journal
from safepoint.core.journal import Actor, Event
from safepoint.core.names import Head, digest_of
from safepoint.core.record import Place, seal
from safepoint.stores.sqlite import SQLiteJournal

OLD, NEW = SigningKey.generate(), SigningKey.generate()
OTHER = "sha256:" + "0" * 64


class Desk:
    """A store of two threads of three checkpoints, sealed and anchored; or those of a tenant."""

    def __init__(self, root: Path, tenant: str = "") -> None:
        self.root, self.tenant = root, tenant
        self.home = root / "state" / f"@{tenant}" if tenant else root / "state"
        self.keys = Keyring(OLD)
        self.anchor: Any = InMemoryAnchor()
        for n in range(3):
            self.ledger().save("a", {"amount": n})
            self.ledger().save("b", {"amount": n})

    def ledger(self, *, bare: bool = False, **options: Any) -> Ledger:
        """The store, as one who has just come sees it; `bare` if they know of no anchor."""
        anchor = None if bare else self.anchor
        given = {"keys": self.keys, "anchor": anchor, "tenant": self.tenant, **options}
        return Ledger(FileCheckpointStorage(self.root / "state"), store="invoices", **given)

    def record(self, sequence: int, thread: str = "a") -> Path:
        return self.home / f"{thread}/{sequence:010d}.checkpoint"

    def put(self, sequence: int, content: bytes, thread: str = "a") -> None:
        self.record(sequence, thread).write_bytes(content)
        self.record(sequence, thread).chmod(0o600)

    def forge(self) -> None:
        """Replace a record, as a holder of the key can: it names the right one before it."""
        previous = digest_of(self.record(1).read_bytes().split(b"\n")[1])
        place, now = Place("invoices", self.tenant, "a", 2), datetime.now(UTC)
        self.put(2, seal(b"\x81\xa6amount\x09", place, OLD, created=now, previous=previous)[0])

    def edit(self) -> None:
        self.put(2, self.record(2).read_bytes().replace(b"amount\x01", b"amount\x09"))

    def rotate(self, **options: Any) -> None:
        self.keys = Keyring(NEW, **options)

    def found(self) -> list[Finding]:
        return audit(self.ledger(tenant=""))


def saved_bare(desk: Desk, count: int, thread: str = "a") -> Ledger:
    """Save with a ledger that does not know of the anchor."""
    for n in range(count):
        desk.ledger(bare=True).save(thread, n)
    return desk.ledger(bare=True)


def another_record(desk: Desk) -> None:
    desk.anchor = InMemoryAnchor()
    desk.anchor.tenant(desk.tenant).advance("invoices", "a", Head(2, OTHER))


def pruned(desk: Desk) -> None:
    """Put something else where a prune left a base."""
    desk.ledger().prune("a", keep=2)
    (desk.home / "a/base").write_bytes(b"0000000002\nnonsense")


def rotated(desk: Desk) -> None:
    desk.rotate(verify=[OLD])
    desk.ledger().save("a", 4)


def misnamed(desk: Desk) -> None:
    """Whoever can write the storage would talk you into taking a key off that you need."""
    rotated(desk)
    for thread in "ab":
        for n in (1, 2, 3):
            rest = desk.record(n, thread).read_bytes().split(b"\n", 1)[1]
            named = b"safepoint/1 " + NEW.id.encode() + b" " + b"A" * 86 + b"==\n"
            desk.put(n, named + rest, thread)


def lost_anchor(desk: Desk) -> None:
    desk.anchor = SQLiteAnchor(desk.root / "anchor/heads.db", create=True)
    desk.ledger().verify("a", anchor=True)
    (desk.root / "anchor/heads.db").unlink()


def broken_head(desk: Desk) -> None:
    desk.anchor = SQLiteAnchor(desk.root / "anchor/heads.db", create=True)
    for thread in "ab":
        desk.ledger().verify(thread, anchor=True)
    with closing(sqlite3.connect(desk.root / "anchor/heads.db")) as other, other:
        other.execute("UPDATE heads SET digest = 'nonsense' WHERE thread = 'a'")


STORES: dict[str, tuple[str, Callable[[Desk], Any]]] = {
    "honest": ("", lambda d: (d.ledger().prune("a", keep=1), d.ledger().delete("b"))),
    "a base that is none": ("SP02.seal-broken", pruned),
    "replaced by a holder of the key": ("SP14.seal-broken", Desk.forge),
    "pruned by one who knows no anchor": (
        "SP13.rolled-back",
        lambda d: saved_bare(d, 3).prune("a", keep=1),
    ),
    "gone": ("SP15.rolled-back", lambda d: shutil.rmtree(d.home / "b")),
    "one behind": ("SP15.behind", lambda d: saved_bare(d, 1)),
    "another record was anchored": ("SP15.never-anchored SP15.rolled-back", another_record),
    "an anchor that was lost": ("SP15.unavailable", lost_anchor),
    "a head that is none": ("SP15.one-owner SP15.unavailable", broken_head),
    "a new key that sealed nothing yet": ("SP08.retired-in-use", lambda d: d.rotate(verify=[OLD])),
    "records that name another key": ("SP12.seal-broken SP12.seal-broken", misnamed),
    "a key that was taken off the ring": ("SP02.seal-broken SP02.seal-broken", Desk.rotate),
}


def fill(root: Path, count: int, anchor: Any, **of: Any) -> list[Finding]:
    """Fill a journal, and look at it."""
    file = str(root / "journal/journal.db")
    with SQLiteJournal(file, keys=Keyring(OLD), anchor=anchor, create=True) as journal:
        for number in range(count):
            who = Actor("ana", "login")
            journal.record(Event("save", "done", who, "invoices", "order-7", number + 1, **of))
    return checked(file, anchor)


def checked(file: str, anchor: Any) -> list[Finding]:
    """Look at a journal."""
    of: Any = {"keys": Keyring(OLD), "anchor": anchor, "read_only": True}
    return check_journal(file, file, lambda: SQLiteJournal(file, **of), anchor)


def ids(found: Iterable[Finding]) -> str:
    return " ".join(sorted(each.id for each in found))


@pytest.mark.parametrize("name", STORES)
def test_each_flaw_is_found_and_an_honest_store_has_no_finding(tmp_path: Path, name: str) -> None:
    """Of a tenant's records, by one who names none: each finding says whose thread it is."""
    desk, (expected, plant) = Desk(tmp_path, "acme"), STORES[name]
    plant(desk)
    found = desk.found()
    assert ids(found) == expected
    for each in found:
        assert each.what.startswith("Tenant acme: ") == (each.where[:1] == "@")
        assert each.where not in ("a", "b")


def test_an_anchor_that_did_not_come_along_with_its_journal_is_found(tmp_path: Path) -> None:
    """A writer that died leaves it two behind at most. A tenant's is compared with its own."""
    anchor = InMemoryAnchor()
    assert fill(tmp_path, 3, anchor) == fill(tmp_path, 3, anchor, tenant="acme") == []
    assert ids(fill(tmp_path, 2, None)) == "SP20.no-anchor"
    file = str(tmp_path / "journal/journal.db")
    assert checked(file, anchor) == []
    fill(tmp_path, 1, None)
    assert ids(checked(file, anchor)) == "SP20.behind"
    assert ids(checked(f"{tmp_path}/none", anchor)) == "SP20.unavailable"


# --- what no plant on disk shows


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_tenant_that_cannot_be_listed_hides_no_other(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "acme")
    desk.edit()
    desk.ledger(tenant="globex").save("a", 1)
    (tmp_path / "state/@globex").chmod(0o777)
    found = audit(desk.ledger(tenant=""))
    assert [(each.id, each.where) for each in found] == [
        ("SP04.writable", "@globex/"),
        ("SP12.seal-broken", "@acme/a"),
    ]


def test_one_owner_is_a_note(tmp_path: Path) -> None:
    """And is not said of an anchor that its owner cannot write."""
    state, apart = tmp_path / "state", tmp_path / "anchor"
    anchor = SQLiteAnchor(apart / "heads.db", create=True)
    ledger = Ledger(FileCheckpointStorage(state), store="s", keys=Keyring(OLD), anchor=anchor)
    ledger.save("a", 1)

    def said() -> str:
        return ids(audit(ledger))

    assert said() == "SP15.one-owner"
    apart.chmod(0o500)
    assert said() == ""


def test_a_writer_that_saves_meanwhile_is_no_finding(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several writers at once, each may have saved and not anchored yet; they get a moment."""
    saved_bare(desk, 3)
    saved_bare(desk, 1, "c")
    waited: list[float] = []

    def meanwhile(seconds: float) -> None:
        waited.append(seconds)
        for thread in "ac":
            desk.ledger().verify(thread, anchor=True)

    monkeypatch.setattr("safepoint.audit.ledger.time.sleep", meanwhile)
    assert audit(desk.ledger()) == []
    assert audit(desk.ledger()) == []
    assert waited == [0.2]
