"""SP20: what happened is written down, stays written down, and otherwise does not happen."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from safepoint import (
    FileAnchor,
    FileCheckpointStorage,
    FileJournal,
    JournalBroken,
    JournalError,
    JournalUnavailable,
    Keyring,
    Ledger,
    SigningKey,
    Workflow,
)
from safepoint.journal import Actor, Event

KEYS = Keyring(SigningKey.generate())
FILE = "journal.000001.jsonl"
DID: list[object] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DID.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    FileAnchor(tmp_path / "anchor", create=True)
    FileJournal(tmp_path / "journal", keys=KEYS, anchor=anchor_at(tmp_path), create=True)
    return tmp_path


def anchor_at(folder: Path) -> FileAnchor:
    return FileAnchor(folder / "anchor")


def journal_at(folder: Path) -> FileJournal:
    return FileJournal(folder / "journal", keys=KEYS, anchor=anchor_at(folder))


def ledger_at(folder: Path) -> Ledger:
    storage = FileCheckpointStorage(folder / "store")
    return Ledger(storage, store="invoices", keys=KEYS, journal=journal_at(folder))


def act(state: dict[str, object]) -> None:
    DID.append(state["amount"])


ERRAND = Workflow("errand", [act])


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: the journal cannot, and a small record could."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_stops_the_run_before_it_acts(folder: Path) -> None:
    ERRAND.begin(ledger_at(folder), "order-7", amount=42)
    while (folder / "journal" / FILE).stat().st_size < 10_000:
        journal_at(folder).record(Event("verify", "done", Actor("dana", "login"), "invoices"))
    ledger, before = ledger_at(folder), (folder / "journal" / FILE).read_bytes()
    with full_disk(len(before)):
        with pytest.raises(JournalUnavailable) as refusal:
            ERRAND.resume(ledger, "order-7")
        with pytest.raises(JournalUnavailable):
            ledger.save("order-8", {})
        with pytest.raises(JournalUnavailable):
            ledger.delete("order-7")
    assert "42" not in str(refusal.value)
    assert DID == []
    assert (folder / "journal" / FILE).read_bytes() == before
    assert ledger_at(folder).threads() == ["order-7"]
    ERRAND.resume(ledger, "order-7")
    assert DID == [42]


@pytest.mark.parametrize("how", ["gone", "a file", "a link"])
def test_a_journal_that_is_not_there_stops_the_run(folder: Path, how: str) -> None:
    ERRAND.begin(ledger_at(folder), "order-7", amount=42)
    ledger = ledger_at(folder)
    (folder / "journal").rename(folder / "elsewhere")
    if how == "a file":
        (folder / "journal").touch()
    elif how == "a link":
        (folder / "journal").symlink_to(folder / "elsewhere")
    with pytest.raises(Exception, match="journal"):
        ERRAND.resume(ledger, "order-7")
    assert DID == []


def written(folder: Path) -> list[bytes]:
    """Let three people act, and return the lines."""
    for name in ("dana", "erin", "mally"):
        journal_at(folder).record(
            Event("approve", "done", Actor(name, "signature"), "invoices", "order-7", detail="pay")
        )
    return (folder / "journal" / FILE).read_bytes().splitlines(keepends=True)


def check(folder: Path) -> None:
    """Refuse to read it, and to write after it."""
    with pytest.raises(JournalError):
        list(journal_at(folder).show(thread="order-7"))
    with pytest.raises(JournalError):
        ledger_at(folder).save("order-9", {})
    assert not (folder / "store" / "order-9").exists()


@pytest.mark.parametrize("line", [0, 1, 2])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"approve", b"resume "),
        (b"signature", b"telephone"),
        (b"order-7", b"order-8"),
        (b'"done"', b'"refused"'),
        (b"pay", b"say"),
        (b"20", b"19"),
    ],
)
def test_an_edited_line_shows(folder: Path, line: int, old: bytes, new: bytes) -> None:
    lines = written(folder)
    assert old in lines[line]
    lines[line] = lines[line].replace(old, new, 1)
    (folder / "journal" / FILE).write_bytes(b"".join(lines))
    with pytest.raises(JournalBroken):
        journal_at(folder).verify()
    check(folder)


@pytest.mark.parametrize(
    "kept",
    [[], [0], [0, 1], [1, 2], [0, 2], [2], [1, 0, 2], [0, 2, 1], [0, 0, 1, 2], [0, 1, 2, 2]],
)
def test_a_line_that_is_cut_moved_or_repeated_shows(folder: Path, kept: list[int]) -> None:
    lines = written(folder)
    (folder / "journal" / FILE).write_bytes(b"".join(lines[number] for number in kept))
    with pytest.raises(JournalBroken):
        journal_at(folder).verify()
    check(folder)


def test_a_planted_line_shows(folder: Path) -> None:
    """Also one that is perfect but for the key."""
    before = b"".join(written(folder))
    thief = Keyring(SigningKey.generate())
    copytree(folder / "journal", folder / "thiefs")
    (folder / "thiefs" / FILE).write_bytes(b"")
    theirs = FileJournal(folder / "thiefs", keys=thief)
    for _ in range(4):
        theirs.record(Event("approve", "done", Actor("dana", "signature"), "invoices", "order-7"))
    forged = (folder / "thiefs" / FILE).read_bytes().splitlines(keepends=True)[-1]
    for line in (forged, b"2026-01-31 dana approved order-7\n", b"{}\n", b"\n"):
        (folder / "journal" / FILE).write_bytes(before + line)
        with pytest.raises(JournalBroken):
            journal_at(folder).verify()
        check(folder)


def test_yesterdays_journal_shows(folder: Path) -> None:
    copytree(folder / "journal", folder / "yesterday")
    written(folder)
    rmtree(folder / "journal")
    copytree(folder / "yesterday", folder / "journal")
    with pytest.raises(JournalBroken) as refusal:
        journal_at(folder).verify()
    assert refusal.value.what == "The journal journal is empty, and the anchor has seen entry 3."
    check(folder)


@pytest.mark.parametrize(
    "name",
    [
        "mally\n",
        'mally","outcome":"done"}}\n{"entry":{"actor":{"name":"dana',
        "mally\r\x1b[1A\x1b[2K dana",
        "mally\u2028dana",
        "mally\x85dana\x0b\x0c\x1c",
    ],
    ids=["break", "quotes", "terminal", "separator", "controls"],
)
def test_a_name_stays_in_its_line(folder: Path, name: str) -> None:
    """In the file, where somebody greps, and on the screen, where somebody looks."""
    journal = journal_at(folder)
    journal.record(Event("deny", "done", Actor(name, name), "invoices", "order-7", detail=name))
    text = (folder / "journal" / FILE).read_bytes()
    assert text.count(b"\n") == 1
    assert all(0x20 <= byte < 0x7F for byte in text[:-1])
    (entry,) = journal.show()
    assert entry.actor == Actor(name, name)
    assert str(entry).isascii()
    assert str(entry).isprintable()
