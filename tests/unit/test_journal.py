"""The journal: a chain of sealed records that fails closed and tells who did what, when."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    Actor,
    CheckpointError,
    FileCheckpointStorage,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InMemoryJournal,
    Keyring,
    SigningKey,
    SQLiteAnchor,
    SQLiteJournal,
)
from safepoint.core.errors import ConfigurationError, InvalidId, SealBroken, Unavailable
from safepoint.core.journal import Entry, Event, Journal
from safepoint.core.names import stamp
from tests.house import KEYS, Memory, opened

WRITER = Keyring(SigningKey(bytes(range(1, 33))))
ENTRIES = "journal/order-7"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    SQLiteAnchor(tmp_path / "anchor/heads.db", create=True)
    FileCheckpointStorage(tmp_path / "journal")
    return tmp_path


def journal_at(folder: Path, keys: Keyring = KEYS) -> Journal:
    """A journal on files, which are easy to change."""
    anchor = SQLiteAnchor(folder / "anchor/heads.db")
    return Journal(FileCheckpointStorage(folder / "journal"), keys=keys, anchor=anchor)


def event(name: str = "dana", detail: str = "pay", thread: str | None = "order-7") -> Event:
    return Event("approve", "done", Actor(name, "signature"), "invoices", thread, detail=detail)


def test_what_was_recorded_is_told_in_order_and_by_question() -> None:
    anchor, storage = InMemoryAnchor(), InMemoryCheckpointStorage()
    journal, digest = Journal(storage, keys=KEYS, name="book", anchor=anchor), f"sha256:{'a' * 64}"
    recorded = journal.record(event("dana"))
    journal.record(Event("save", "intended", Actor("w", "login"), "orders", "a", 7, digest, "x"))
    first, second = journal.show()
    assert (recorded, first.number, first.actor.name) == (first, 1, "dana")
    assert str(second) == (
        f"1 {stamp(second.at)} save intended orders/a #7 sha256:aaaaaaaaaaaa 'w' (by 'login'): 'x'"
    )
    assert list(journal.show(thread="order-7")) == [first]
    assert list(journal.show(what="save")) == [second]
    assert journal.verify() == 2
    assert anchor.threads("book") == ["a", "order-7"]
    other = InMemoryJournal()
    assert list(other.show()) == []
    other.record(second)  # an entry is an event, and has its own number there
    assert [(e.number, e.detail) for e in other.show()] == [(1, "x")]


def test_a_journal_is_begun_once_and_by_name(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="is not a journal"):
        SQLiteJournal(tmp_path / "journal/journal.db", keys=KEYS)
    with pytest.raises(Unavailable, match="cannot be the path"):
        SQLiteJournal(None, keys=KEYS)  # type: ignore[arg-type]
    assert not (tmp_path / "journal").exists()
    SQLiteJournal(tmp_path / "journal/journal.db", keys=KEYS, create=True).record(event())
    assert SQLiteJournal(tmp_path / "journal/journal.db", keys=KEYS).verify() == 1
    assert SQLiteJournal(tmp_path / "journal/journal.db", keys=KEYS, create=True).verify() == 1


@pytest.mark.parametrize(
    "name", ["mally\n", 'mally"}\n{"entry', "mally\r\x1b[1A\x1b[2K dana", "a\u2028b\x85", "m" * 256]
)
def test_a_name_stays_in_its_line(folder: Path, name: str) -> None:
    """In the file, where somebody greps, and on the screen, where somebody looks."""
    journal = journal_at(folder)
    journal.record(Event("deny", "done", Actor(name, name), "invoices", "order-7", detail=name))
    (file,) = (folder / ENTRIES).iterdir()
    assert file.read_bytes().count(b"\n") == 2
    (entry,) = journal.show()
    assert entry.actor == Actor(name, name)
    assert str(entry).isascii()
    assert str(entry).isprintable()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Actor("", "login"), ConfigurationError),
        (lambda: Actor("dana", "\ud800"), ConfigurationError),
        (lambda: Event("paid", "done", Actor("a", "b"), "s"), ConfigurationError),  # type: ignore[arg-type]
        (lambda: Event("save", "over", Actor("a", "b"), "s"), ConfigurationError),  # type: ignore[arg-type]
        (lambda: Event("save", "done", Actor("a", "b"), "s", "../t"), InvalidId),
        (lambda: Event("save", "done", Actor("a", "b"), "s", "t", 0), InvalidId),
        (lambda: Event("save", "done", Actor("a", "b"), "s", "t", 1, "x"), ConfigurationError),
    ],
)
def test_what_cannot_be_told_in_one_way_is_refused(make: Any, error: type[CheckpointError]) -> None:
    with pytest.raises(error):
        make()


def test_a_long_detail_is_cut_and_says_so() -> None:
    journal = InMemoryJournal()
    for detail in ("x" * 5000 + "\ud800", "x" * 1000, "\ud800"):
        journal.record(event(detail=detail))
    cut, whole, half = (each.detail for each in journal.show())
    assert (len(cut), cut[-21:]) == (1000, "... (5006 characters)")
    assert (whole, half) == ("x" * 1000, "\\ud800")


def test_what_is_about_a_tenant_is_in_its_scope_alone(folder: Path) -> None:
    journal, storage = journal_at(folder), InMemoryCheckpointStorage()
    ledger = opened(storage, keys=WRITER, journal=journal)
    for tenant in ("acme", "other"):
        of = ledger.tenant(tenant)
        of.save("t", {"of": tenant})
        of.log.write("rotate", "done")
        assert of.journal
        assert {e.tenant for e in of.journal.show()} == {tenant}
    counts = {f"@{tenant}/{chain}": 1 for tenant in ("acme", "other") for chain in ("journal", "t")}
    assert journal.counts() == counts
    assert [e.what for e in journal.tenant("acme").show(thread="t")] == ["save"]
    assert {e.tenant for e in journal.show()} == {"acme", "other"}
    assert list(journal.show(thread="t")) == []
    with pytest.raises(ConfigurationError, match="a tenant has no tenants"):
        journal.tenant("other").record(replace(event(), tenant="acme"))
    # With the same key, in the same place of another tenant: the seal says whose it is.
    of_acme = folder / "journal" / "@acme" / "t"
    shutil.copytree(of_acme, folder / "journal" / "@other" / "t", dirs_exist_ok=True)
    assert journal_at(folder).tenant("acme").verify() == 2
    with pytest.raises(SealBroken, match=r"tenant other is the one of t #1 of .*, tenant acme"):
        journal_at(folder).verify()
    shutil.rmtree(folder / "journal" / "@other")
    with pytest.raises(SealBroken, match="the anchor has seen"):
        journal_at(folder).verify()


def test_whatever_a_journal_of_your_own_raises_is_said_and_nothing_is_saved() -> None:
    class Odd(InMemoryJournal):
        def record(self, event: Event) -> Entry:
            raise ValueError(event.what)

    ledger = opened(Memory(), keys=WRITER, journal=Odd())
    with pytest.raises(Unavailable, match="could not be written: it raised ValueError"):
        ledger.save("t", {"a": 1})
    assert list(ledger.threads()) == []
