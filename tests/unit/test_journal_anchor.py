"""The journal and its anchor: what is cut off shows, and a crash does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from safepoint import FileAnchor, Head, InMemoryAnchor
from safepoint.errors import (
    AnchorUnavailable,
    CheckpointError,
    JournalBroken,
    JournalUnavailable,
)
from safepoint.journal import FileJournal, _walk
from tests.unit.journal_helpers import (
    each_call,
    event,
    files,
    fill,
    opened,
    refusal,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def file(path: Path) -> Path:
    return path / "journal.000001.jsonl"


# Anchored


def test_the_anchor_has_seen_what_was_recorded(path: Path, tmp_path: Path) -> None:
    anchor = FileAnchor(tmp_path / "anchor", create=True)
    journal = opened(path, anchor=anchor, create=True, max_bytes=1000)
    for entry in fill(journal, 5):
        known = anchor.read("journal", "journal")
        assert known is not None
        assert known.sequence <= 5
        last = entry
    assert known == Head(5, last.digest_of_entry)
    assert opened(path, anchor=FileAnchor(tmp_path / "anchor")).verify() == 5


@pytest.mark.parametrize("left", [0, 1, 2])
@each_call
def test_a_cut_tail_is_seen(
    path: Path, file: Path, left: int, call: Callable[[FileJournal], object]
) -> None:
    anchor = InMemoryAnchor()
    journal = opened(path, anchor=anchor, create=True)
    fill(journal, 3)
    cut = b"".join(file.read_bytes().splitlines(True)[:left])
    file.write_bytes(cut)
    ends = f"ends at entry {left}" if left else "is empty"
    for each in (journal, opened(path, anchor=anchor)):
        assert refusal(JournalBroken, call, each) == (
            f"The journal journal {ends}, and the anchor has seen entry 3. Its newest lines were"
            " cut off, or an old copy was restored. Put the whole journal back, and find out who"
            " did that."
        )
    assert file.read_bytes() == cut


@each_call
def test_another_history_of_the_same_length_is_seen(
    path: Path, file: Path, tmp_path: Path, call: Callable[[FileJournal], object]
) -> None:
    anchor = InMemoryAnchor()
    fill(opened(path, anchor=anchor, create=True), 3)
    fill(opened(tmp_path / "other", create=True), 4)
    shutil.copy(tmp_path / "other" / file.name, file)
    said = refusal(JournalBroken, lambda: call(opened(path, anchor=anchor)))
    assert said.startswith(
        "Entry 3 of the journal journal is not the one that the anchor has seen. "
    )


def test_an_anchor_that_is_far_behind_is_compared_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_walk, "WINDOW", 1000)
    anchor = InMemoryAnchor()
    first = opened(path, anchor=anchor, create=True, max_bytes=2000).record(event())
    fill(opened(path), 20)
    assert opened(path, anchor=anchor).record(event()).number == 22
    wrong = InMemoryAnchor()
    wrong.advance("journal", "journal", Head(1, "sha256:" + "0" * 64))
    with pytest.raises(JournalBroken, match="Entry 1 of the journal"):
        opened(path, anchor=wrong).record(event())
    right = InMemoryAnchor()
    right.advance("journal", "journal", Head(1, first.digest_of_entry))
    assert opened(path, anchor=right).record(event()).number == 23


def test_a_crash_between_the_two_writes_is_no_alarm(path: Path) -> None:
    """The line is there and the anchor has not seen it. The next entry moves it."""
    anchor = InMemoryAnchor()
    fill(opened(path, anchor=anchor, create=True), 2)
    opened(path).record(event())
    journal = opened(path, anchor=anchor)
    assert journal.verify() == 3
    last = journal.record(event())
    assert anchor.read("journal", "journal") == Head(4, last.digest_of_entry)


class Failing(InMemoryAnchor):
    """Fails to be moved, and to be asked, when told so; may move all the same."""

    moves = False
    asked: CheckpointError | Exception | None = None
    error: CheckpointError | Exception | None = None

    def read(self, store: str, thread: str) -> Head | None:
        if self.asked is not None:
            raise self.asked
        return super().read(store, thread)

    def advance(self, store: str, thread: str, head: Head) -> None:
        if self.error is None or self.moves:
            super().advance(store, thread, head)
        if self.error is not None:
            raise self.error


DOWN = AnchorUnavailable("It is down.", "Wait.")


@pytest.mark.parametrize("max_bytes", [1, 10_000], ids=["new file", "same file"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (DOWN, "The journal's anchor cannot be moved. It is down. Wait."),
        (
            KeyError("x"),
            (
                "The journal's anchor cannot be moved: it raised KeyError. Nothing is done without"
                " it. See the error it came from, and mend the anchor."
            ),
        ),
    ],
    ids=["AnchorUnavailable", "KeyError"],
)
def test_what_the_anchor_did_not_see_is_taken_back(
    path: Path, max_bytes: int, error: Exception, said: str
) -> None:
    anchor = Failing()
    journal = opened(path, anchor=anchor, create=True, max_bytes=max_bytes)
    fill(journal, 2)
    before = files(path)
    anchor.error = error
    assert refusal(JournalUnavailable, lambda: journal.record(event())) == said
    assert files(path) == before
    anchor.error = None
    assert journal.record(event()).number == 3
    assert journal.verify() == 3


@pytest.mark.parametrize("moves", [True, False], ids=["it has", "it has not"])
@pytest.mark.parametrize("max_bytes", [1, 10_000], ids=["new file", "same file"])
def test_what_the_anchor_may_have_seen_stays(path: Path, max_bytes: int, moves: bool) -> None:
    """Cut off, it would look like an attack for ever."""

    class Dying(Failing):
        def advance(self, store: str, thread: str, head: Head) -> None:
            self.asked = self.error
            super().advance(store, thread, head)

    anchor = Dying()
    journal = opened(path, anchor=anchor, create=True, max_bytes=max_bytes)
    fill(journal, 2)
    anchor.error, anchor.moves = DOWN, moves
    assert "cannot be moved" in refusal(JournalUnavailable, lambda: journal.record(event()))
    anchor.error = anchor.asked = None
    assert journal.verify() == 3
    assert journal.record(event()).number == 4


def test_another_copy_that_moves_the_anchor_meanwhile_is_seen(path: Path) -> None:
    """Two copies of a journal do not share a lock. What this one wrote is taken back."""

    class Shared(InMemoryAnchor):
        def advance(self, store: str, thread: str, head: Head) -> None:
            if head.sequence == 3:
                super().advance(store, thread, Head(3, "sha256:" + "0" * 64))
            super().advance(store, thread, head)

    journal = opened(path, anchor=Shared(), create=True)
    fill(journal, 2)
    before = files(path)
    assert refusal(JournalBroken, journal.record, event()) == (
        "journal #3 is not the record that the anchor has seen there. Two copies of the store are"
        " in use, or one was rewritten. The anchor was not moved: find out which copy is the right"
        " one before you save again."
    )
    assert files(path) == before
    assert "and the anchor has seen entry 3." in refusal(JournalBroken, journal.record, event())


@each_call
def test_an_anchor_that_cannot_be_asked_lets_nothing_happen(
    path: Path, call: Callable[[FileJournal], object]
) -> None:
    anchor = Failing()
    journal = opened(path, anchor=anchor, create=True)
    fill(journal, 2)
    before = files(path)
    anchor.asked = DOWN
    assert refusal(JournalUnavailable, call, journal) == (
        "The journal's anchor cannot be read. It is down. Wait."
    )
    anchor.asked = ValueError("x")
    assert refusal(JournalUnavailable, call, journal).startswith(
        "The journal's anchor cannot be read: it raised ValueError. "
    )
    assert files(path) == before


def test_an_anchor_of_the_store_is_not_one_of_the_journal(path: Path, tmp_path: Path) -> None:
    anchor = FileAnchor(tmp_path / "anchor", create=True)
    anchor.advance("invoices", "order-7", Head(1, "sha256:" + "0" * 64))
    journal = opened(path, anchor=anchor, create=True)
    assert refusal(JournalUnavailable, lambda: journal.record(event())) == (
        f"The journal's anchor cannot be read. {tmp_path}/anchor belongs to store invoices, and"
        " was asked about store journal. Give each store an anchor of its own, in a folder of its"
        " own."
    )
