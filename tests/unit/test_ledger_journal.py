"""What a ledger writes down, and what it does not do where that is impossible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from safepoint import (
    Actor,
    CheckpointError,
    Conflict,
    FileCheckpointStorage,
    FileJournal,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InMemoryJournal,
    Keyring,
    Ledger,
    NotFound,
    RolledBack,
    SealBroken,
    SigningKey,
)
from safepoint.errors import ConfigurationError, JournalUnavailable
from safepoint.journal import Entry, Event
from safepoint.migrate import Unsigned, migrate
from tests.unit.tampered import USES


class Book:
    """A ledger with everything in memory."""

    def __init__(self) -> None:
        self.storage = InMemoryCheckpointStorage()
        self.anchor = InMemoryAnchor()
        self.journal = InMemoryJournal()
        self.keys = Keyring(SigningKey.generate())

    def ledger(self, **options: Any) -> Ledger:
        given = {
            "store": "invoices",
            "keys": self.keys,
            "anchor": self.anchor,
            "journal": self.journal,
            "actor": Actor("worker-1", "its certificate"),
            **options,
        }
        return Ledger(self.storage, **given)

    def told(self) -> list[tuple[str, str, str | None, int | None]]:
        return [(e.what, e.outcome, e.thread, e.sequence) for e in self.journal.show()]

    def last(self) -> Entry:
        return list(self.journal.show())[-1]

    def edit(self, sequence: int, old: bytes, new: bytes) -> None:
        """Change a record behind the ledger's back."""
        records = self.storage._records["order-7"]
        assert old in records[sequence]
        records[sequence] = records[sequence].replace(old, new)


@pytest.fixture
def book() -> Book:
    return Book()


def kept(book: Book) -> bytes:
    """Return all bytes of the journal."""
    records = cast("InMemoryCheckpointStorage", book.journal._view.storage)._records
    return b"".join(records["journal"].values())


class Refuses:
    """A journal whose disk is full, or one of somebody else's that raises what it likes."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or JournalUnavailable("There is no room.", "Make some.")

    def record(self, event: Event) -> Entry:
        raise self.error


def test_a_save_is_written_down_with_its_digest_before_it_happens(book: Book) -> None:
    saved = book.ledger().save("order-7", {"secret": "canary"})
    entry = book.last()
    assert (entry.what, entry.outcome, entry.sequence) == ("save", "intended", 1)
    assert entry.digest == saved.digest
    assert (entry.actor.name, entry.actor.how) == ("worker-1", "its certificate")
    with pytest.raises(CheckpointError):
        book.ledger().save("order-7", {"password": object(), "canary": 1})
    assert b"canary" not in kept(book)


def test_without_a_journal_nothing_is_saved(book: Book) -> None:
    with pytest.raises(JournalUnavailable, match="There is no room"):
        book.ledger(journal=Refuses()).save("order-7", {})
    with pytest.raises(JournalUnavailable) as refusal:
        book.ledger(journal=Refuses(OSError(28, "full"))).save("order-7", {})
    assert str(refusal.value) == (
        "The journal could not be written: it raised OSError. Nothing is done without it. See the"
        " error it came from, and mend the journal."
    )
    assert book.storage.head("order-7") == 0


def test_a_refused_save_is_written_down(book: Book) -> None:
    ledger = book.ledger()
    ledger.save("order-7", {})
    with pytest.raises(Conflict):
        ledger.save("order-7", {}, after=0)
    assert book.last().detail == ("Conflict: order-7 is at #1, and this save builds on #0.")


@pytest.mark.parametrize("cut", [False, True], ids=["an edit", "a rollback"])
def test_each_failure_to_verify_is_written_down(book: Book, *, cut: bool) -> None:
    for amount in (41, 42):
        book.ledger().save("order-7", {"amount": amount})
    detail = "SealBroken: The state of order-7 #2 is not the one that was sealed."
    if cut:
        del book.storage._records["order-7"][2]
        book.storage._heads["order-7"] = 1
        detail = "RolledBack: order-7 ends at #1, and the anchor has seen #2."
    else:
        book.edit(2, b'{"amount":42}', b'{"amount":43}')
    for look in (
        *(USES[use] for use in ("latest", "history", "verify", "prune", "delete")),
        lambda ledger: ledger.load("order-7", 2),
        lambda ledger: ledger.load("order-7", 1, linked=True),
        lambda ledger: ledger.anchor_now("order-7"),
    ):
        before = len(book.told())
        with pytest.raises((SealBroken, RolledBack)):
            look(book.ledger())  # type: ignore[no-untyped-call]
        assert len(book.told()) == before + 1
        entry = book.last()
        assert (entry.what, entry.outcome, entry.thread) == ("verify", "refused", "order-7")
        assert entry.detail == detail


def test_a_refusal_stands_when_it_cannot_be_written_down(book: Book) -> None:
    book.ledger().save("order-7", {"amount": 42})
    book.edit(1, b'{"amount":42}', b'{"amount":43}')
    with pytest.raises(SealBroken):
        book.ledger(journal=Refuses()).latest("order-7")


def test_what_is_not_there_is_no_news(book: Book) -> None:
    with pytest.raises(NotFound):
        book.ledger().latest("order-7")
    assert book.told() == []


def test_pruning_deleting_copying_and_accepting_a_loss_are_written_down(book: Book) -> None:
    ledger = book.ledger()
    for _ in range(3):
        ledger.save("order-7", {})
    ledger.prune("order-7", keep=2)
    ledger.accept_loss("order-7")
    other = Book()
    ledger.copy_to(other.ledger(keys=book.keys))
    ledger.delete("order-7")
    assert [line[:2] for line in book.told()][3:] == [
        ("prune", "intended"),
        ("prune", "done"),
        ("accept-loss", "intended"),
        ("accept-loss", "done"),
        ("copy", "intended"),
        ("copy", "done"),
        ("delete", "intended"),
        ("delete", "done"),
    ]


@pytest.mark.parametrize(
    "act",
    [
        lambda ledger: ledger.prune("order-7", keep=1),
        lambda ledger: ledger.delete("order-7"),
        lambda ledger: ledger.accept_loss("order-7"),
        lambda ledger: ledger.rotated(Keyring(SigningKey.generate())),
        lambda ledger: ledger.own("order-7", "worker-1"),
        lambda ledger: ledger.copy_to(Book().ledger(keys=ledger.keys)),
    ],
)
def test_none_of_it_happens_without_the_journal(
    book: Book, act: Callable[[Ledger], object]
) -> None:
    for _ in range(3):
        book.ledger().save("order-7", {})
    before = dict(book.storage._records["order-7"])
    with pytest.raises(JournalUnavailable):
        act(book.ledger(journal=Refuses()))
    assert book.storage._records["order-7"] == before
    assert book.storage.base("order-7") is None
    assert book.ledger().owner("order-7") is None
    assert book.ledger().verify("order-7") == 3


def test_a_rotation_is_written_down_with_both_keys(book: Book) -> None:
    new = SigningKey.generate()
    old = book.keys.signing
    ledger = book.ledger().rotated(book.keys.rotated(new).revoking(old, until=None))
    entry = book.last()
    assert (entry.what, entry.outcome) == ("rotate", "done")
    assert entry.detail == f"from {old.id} to {new.id}, revoked: {old.id}"
    assert ledger.keys.signing == new
    assert ledger.journal is book.journal
    assert ledger.actor == Actor("worker-1", "its certificate")


def test_a_migration_of_unsigned_state_is_written_down(book: Book, tmp_path: Path) -> None:
    migrate(
        [Unsigned("order-7", {"amount": 42})],
        book.ledger(),
        report=tmp_path / "report",
        allow_unsigned_migration=True,
    )
    assert ("migrate", "intended", "order-7", None) in book.told()


def test_the_actor_is_the_user_of_the_process_unless_you_say_who(book: Book) -> None:
    book.ledger(actor=None).save("order-7", {})
    assert book.last().actor == Actor.process()
    assert book.ledger(journal=None, actor=None).actor is None


@pytest.mark.parametrize(("storage", "journal"), [("state", "state/journal"), ("a/b", "a")])
def test_a_journal_in_one_place_with_the_storage_is_refused(
    tmp_path: Path, storage: str, journal: str
) -> None:
    keys = Keyring(SigningKey.generate())
    tmp_path.chmod(0o700)
    for path in {tmp_path / "a", (tmp_path / journal).parent}:
        path.mkdir(mode=0o700, exist_ok=True)
    notes = FileJournal(tmp_path / journal, keys=keys, create=True)
    store = FileCheckpointStorage(tmp_path / storage)
    with pytest.raises(ConfigurationError) as refusal:
        Ledger(store, store="invoices", keys=keys, journal=notes)
    assert refusal.value.what.startswith("The journal ")
