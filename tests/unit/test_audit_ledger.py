"""A ledger, its anchor, its keys and its journal: each flaw is planted, and found by its check."""

from __future__ import annotations

import os
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
    Limits,
    SigningKey,
    SQLiteAnchor,
)
from safepoint.audit import Finding, audit
from safepoint.audit.ledger import check_journal
from safepoint.core.codec import Codec
from safepoint.core.journal import Actor, Event
from safepoint.core.names import Head, digest_of
from safepoint.core.record import Place, seal
from safepoint.stores.sqlite import SQLiteJournal
from tests.house import rewrite

OLD, NEW, STRANGER = SigningKey.generate(), SigningKey.generate(), SigningKey.generate()
OTHER = "sha256:" + "0" * 64


class Desk:
    """A store of two threads of three checkpoints, sealed and anchored; or those of a tenant."""

    def __init__(self, root: Path, tenant: str = "") -> None:
        self.root, self.tenant = root, tenant
        self.home = root / "state" / f"@{tenant}" if tenant else root / "state"
        self.keys = Keyring(OLD)
        self.anchor: Any = InMemoryAnchor()
        self.limits = Limits()
        for n in range(3):
            self.ledger().save("a", {"amount": n})
            self.ledger().save("b", {"amount": n})

    def ledger(self, *, bare: bool = False, **options: Any) -> Ledger:
        """The store, as one who has just come sees it; `bare` if they know of no anchor."""
        storage = FileCheckpointStorage(self.root / "state", limits=self.limits)
        anchor = None if bare else self.anchor
        given = {"keys": self.keys, "anchor": anchor, "tenant": self.tenant, **options}
        return Ledger(storage, store="invoices", codec=Codec(limits=self.limits), **given)

    def record(self, sequence: int, thread: str = "a") -> Path:
        return self.home / f"{thread}/{sequence:010d}.checkpoint"

    def link(self, sequence: int) -> str:
        """The digest by which the next record names this one."""
        return digest_of(self.record(sequence).read_bytes().split(b"\n")[1])

    def put(self, sequence: int, content: bytes, thread: str = "a") -> None:
        self.record(sequence, thread).write_bytes(content)
        self.record(sequence, thread).chmod(0o600)

    def sealed(self, sequence: int, previous: str | None, thread: str = "a", **more: Any) -> bytes:
        """A record that a holder of the key forged."""
        key = more.pop("key", OLD)
        place = Place("invoices", self.tenant, thread, sequence)
        now = datetime.now(UTC)
        return seal(b"\x81\xa6amount\x09", place, key, created=now, previous=previous, **more)[0]

    def edit(self, sequence: int, old: bytes = b"amount\x01", new: bytes = b"amount\x09") -> None:
        text = self.record(sequence).read_bytes()
        self.put(sequence, text.replace(old, new))

    def rotate(self, **options: Any) -> None:
        self.keys = Keyring(NEW, **options)

    def heads(self) -> Any:
        """The anchor, for what is written to it without a ledger."""
        return self.anchor.tenant(self.tenant) if self.tenant else self.anchor

    def found(self) -> list[Finding]:
        return audit(self.ledger(tenant=""))


def saved_bare(desk: Desk, count: int, thread: str = "a") -> Ledger:
    """Save with a ledger that does not know of the anchor."""
    for n in range(count):
        desk.ledger(bare=True).save(thread, n)
    return desk.ledger(bare=True)


def anchored(desk: Desk, sequence: int, digest: str = OTHER) -> None:
    desk.anchor = InMemoryAnchor()
    desk.heads().advance("invoices", "a", Head(sequence, digest))


def pruned(desk: Desk, content: bytes | None = None) -> None:
    """Put another base where a prune left one."""
    desk.ledger().prune("a", keep=2)
    base = content or desk.sealed(2, OTHER, kind="base")
    (desk.home / "a/base").write_bytes(b"0000000002\n" + base)


def rotated(desk: Desk) -> None:
    desk.rotate(verify=[OLD])
    desk.ledger().save("a", 4)


def resealed(desk: Desk) -> None:
    """Seal everything anew, and keep the old key on the ring."""
    desk.rotate(verify=[OLD])
    fresh = FileCheckpointStorage(desk.root / "fresh")
    target = Ledger(fresh, store="invoices", keys=Keyring(NEW))
    desk.ledger(tenant="").copy_to(target)
    shutil.rmtree(desk.root / "state")
    (desk.root / "fresh").rename(desk.root / "state")
    desk.anchor = InMemoryAnchor()
    for thread in "ab":
        desk.ledger().verify(thread, anchor=True)


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


def another_stores(desk: Desk) -> None:
    desk.anchor = SQLiteAnchor(desk.root / "anchor/heads.db", create=True)
    desk.anchor.advance("orders", "a", Head(1, OTHER))


def broken_head(desk: Desk) -> None:
    desk.anchor = SQLiteAnchor(desk.root / "anchor/heads.db", create=True)
    for thread in "ab":
        desk.ledger().verify(thread, anchor=True)
    with closing(sqlite3.connect(desk.root / "anchor/heads.db")) as other, other:
        other.execute("UPDATE heads SET digest = 'nonsense' WHERE thread = 'a'")


def unsigned(desk: Desk) -> None:
    """The links hold, and still nobody could load that record."""
    first, rest = desk.record(2).read_bytes().split(b"\n", 1)
    desk.put(2, first[:-20] + b"A" * 18 + b"==\n" + rest)


STORES: dict[str, tuple[str, Callable[[Desk], Any]]] = {
    "honest": ("", lambda d: (d.ledger().prune("a", keep=1), d.ledger().delete("b"))),
    "a retired key that seals nothing": ("", resealed),
    "a base that is none": ("SP02.seal-broken", lambda d: pruned(d, b"nonsense")),
    "with no signature": ("SP12.seal-broken", unsigned),
    "replaced by a holder of the key": (
        "SP14.seal-broken",
        lambda d: d.put(2, d.sealed(2, d.link(1))),
    ),
    "forged behind the end": ("SP14.seal-broken", lambda d: d.put(4, d.sealed(4, OTHER))),
    "a base that does not fit": ("SP14.seal-broken", pruned),
    "a gap that the anchor does not see": (
        "SP13.rolled-back",
        lambda d: (saved_bare(d, 3), d.record(5).rename(d.root / "kept")),
    ),
    "a gap where the anchor is": (
        "SP13.rolled-back",
        lambda d: (saved_bare(d, 3), d.record(3).rename(d.root / "kept")),
    ),
    "pruned by one who knows no anchor": (
        "SP13.rolled-back",
        lambda d: saved_bare(d, 3).prune("a", keep=1),
    ),
    "gone": ("SP15.rolled-back", lambda d: shutil.rmtree(d.home / "b")),
    "one behind": ("SP15.behind", lambda d: saved_bare(d, 1)),
    "another record was anchored": (
        "SP15.never-anchored SP15.rolled-back",
        lambda d: anchored(d, 2),
    ),
    "an anchor that was lost": ("SP15.unavailable", lost_anchor),
    "the anchor of another store": ("SP15.one-owner SP15.rolled-back", another_stores),
    "a head that is none": ("SP15.one-owner SP15.unavailable", broken_head),
    "a new key that sealed nothing yet": ("SP08.retired-in-use", lambda d: d.rotate(verify=[OLD])),
    "records that name another key": ("SP12.seal-broken SP12.seal-broken", misnamed),
    "a key that was taken off the ring": (
        "SP02.seal-broken SP02.seal-broken",
        lambda d: d.rotate(),
    ),
}


# --- the journal


class Journal:
    """A journal with three entries, and its anchor."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / "journal"
        self.keys, self.anchor = Keyring(OLD), InMemoryAnchor()
        self.fill(3, self.anchor)

    def fill(self, count: int, anchor: Any = None, **of: Any) -> None:
        with SQLiteJournal(self.file, keys=self.keys, anchor=anchor, create=True) as journal:
            for number in range(count):
                who = Actor("ana", "login")
                journal.record(Event("save", "done", who, "invoices", "order-7", number + 1, **of))

    @property
    def file(self) -> Path:
        return self.path / "journal.db"

    def edit(self) -> None:
        ben = "CAST(replace(record, 'ana', 'ben') AS BLOB)"
        rewrite(self.file, f"UPDATE checkpoints SET record = {ben} WHERE sequence = 1")  # noqa: S608

    def link(self) -> None:
        self.file.rename(self.root / "elsewhere")
        self.file.symlink_to(self.root / "elsewhere")

    def replace(self) -> None:
        self.path.rename(self.root / "aside")
        self.path.touch()

    def take_another_anchor(self) -> None:
        other = SQLiteAnchor(self.root / "anchor/heads.db", create=True)
        other.advance("other", "journal", Head(3, OTHER))
        self.anchor = other  # type: ignore[assignment]

    def found(self) -> list[Finding]:
        return check_journal(str(self.file), self.keys, self.anchor)


JOURNALS: dict[str, tuple[str, Callable[[Journal], Any]]] = {
    "a journal": ("", lambda j: None),
    "a journal ahead by two, as of a writer that died": ("", lambda j: j.fill(2)),
    "a tenant's journal": ("", lambda j: j.fill(3, j.anchor, tenant="acme")),
    "a journal ahead by three": ("SP20.behind", lambda j: j.fill(3)),
    "a journal that is missing": ("SP20.unavailable", lambda j: j.path.rename(j.root / "aside")),
    "a journal that was edited": ("SP20.seal-broken", Journal.edit),
    "a journal of another key": (
        "SP20.seal-broken",
        lambda j: setattr(j, "keys", Keyring(STRANGER)),
    ),
    "a journal with the anchor of another": ("SP20.seal-broken", Journal.take_another_anchor),
    "a journal that others write": ("SP20.writable", lambda j: j.file.chmod(0o666)),
    "a journal with a link in it": ("SP20.link", Journal.link),
    "a journal without an anchor": ("SP20.no-anchor", lambda j: setattr(j, "anchor", None)),
}


def ids(found: Iterable[Finding]) -> str:
    return " ".join(sorted(each.id for each in found))


@pytest.mark.parametrize("tenant", ["", "acme"])
@pytest.mark.parametrize("name", STORES)
def test_each_flaw_is_found_and_an_honest_store_has_no_finding(
    tmp_path: Path, name: str, tenant: str
) -> None:
    """Of a tenant's records too, by one who names none: each finding says whose thread it is."""
    desk, (expected, plant) = Desk(tmp_path, tenant), STORES[name]
    plant(desk)
    found = desk.found()
    assert ids(found) == expected
    for each in found if tenant else ():
        assert each.what.startswith("Tenant acme: ") == (each.where[:1] == "@")
        assert each.where not in ("a", "b")


@pytest.mark.parametrize("name", JOURNALS)
def test_each_flaw_of_a_journal_is_found(tmp_path: Path, name: str) -> None:
    journal, (expected, plant) = Journal(tmp_path), JOURNALS[name]
    plant(journal)
    assert ids(journal.found()) == expected


# --- what no plant on disk shows


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_tenant_that_cannot_be_listed_hides_no_other(tmp_path: Path) -> None:
    """Nor does one that the anchor cannot know, which anybody may have put there."""
    desk = Desk(tmp_path, "acme")
    desk.edit(2)
    desk.ledger(tenant="globex").save("a", 1)
    (tmp_path / "state/@globex").chmod(0o777)
    found = audit(desk.ledger(tenant=""))
    assert [(each.id, each.where) for each in found] == [
        ("SP04.writable", "@globex/"),
        ("SP12.seal-broken", "@acme/a"),
    ]
    bare: Any = type("Bare", (InMemoryAnchor,), {"tenant": None})()
    [one, two] = audit(desk.ledger(tenant="", anchor=bare))
    assert (one.id, two.where) == ("SP22.configuration-error", "@globex/")


def test_one_owner_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not said of an anchor that its owner cannot write, or of another owner."""
    state, apart = tmp_path / "state", tmp_path / "anchor"
    anchor = SQLiteAnchor(apart / "heads.db", create=True)
    ledger = Ledger(FileCheckpointStorage(state), store="s", keys=Keyring(OLD), anchor=anchor)
    ledger.save("a", 1)

    def said() -> str:
        return ids(audit(ledger))

    assert said() == "SP15.one-owner"
    apart.chmod(0o500)
    assert said() == ""
    apart.chmod(0o700)
    real = Path.stat

    def stat(path: Path, **options: Any) -> os.stat_result:
        found = list(real(path, **options))
        found[4] += path == state
        return os.stat_result(found)

    monkeypatch.setattr(Path, "stat", stat)
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
