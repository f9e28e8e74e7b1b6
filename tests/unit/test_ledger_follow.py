"""A save after the record that this process saved last: the storage is not asked where it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    InMemoryJournal,
    Keyring,
    Ledger,
    SigningKey,
    SQLiteCheckpointStorage,
)
from safepoint.errors import Conflict, NotOwner, RolledBack, StorageUnavailable, ThreadDeleted
from safepoint.names import Head

KEYS = Keyring(SigningKey.generate())


class Watched(InMemoryCheckpointStorage):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def head(self, thread: str) -> int:
        self.asked.append("head")
        return super().head(thread)

    def follow(self, *arguments: Any, **options: Any) -> bool:
        self.asked.append("follow")
        return super().follow(*arguments, **options)

    def append(self, *arguments: Any, **options: Any) -> None:
        self.asked.append("append")
        super().append(*arguments, **options)

    def cut(self, keep: int) -> None:
        """Remove the newest records, and all traces of them."""
        for sequence in [n for n in self._records["t"] if n > keep]:
            del self._records["t"][sequence]
        self._heads["t"] = keep


@pytest.fixture
def storage() -> Watched:
    return Watched()


def ledger(storage: InMemoryCheckpointStorage, **options: Any) -> Ledger:
    return Ledger(storage, store="invoices", keys=KEYS, **options)


def test_the_first_save_asks_for_the_head_and_the_next_ones_do_not(storage: Watched) -> None:
    one = ledger(storage)
    for step in range(3):
        one.save("t", {"step": step})
    assert storage.asked == ["head", "append", "follow", "follow"]
    assert [each.state["step"] for each in one.history("t")] == [0, 1, 2]
    assert one.verify("t") == 3


def test_a_process_that_has_loaded_a_thread_follows_too(storage: Watched) -> None:
    ledger(storage).save("t", {"step": 0})
    two = ledger(storage)
    two.latest("t")
    storage.asked.clear()
    two.save("t", {"step": 1})
    assert storage.asked == ["follow"]


def test_a_save_goes_after_what_another_process_saved_meanwhile(storage: Watched) -> None:
    one, two = ledger(storage), ledger(storage)
    one.save("t", {"by": "one"})
    two.save("t", {"by": "two"})
    storage.asked.clear()
    assert one.save("t", {"by": "one"}).sequence == 3
    assert storage.asked == ["follow", "head", "append"]
    assert [each.state["by"] for each in one.history("t")] == ["one", "two", "one"]
    assert one.verify("t") == 3


def test_a_save_that_builds_on_an_old_checkpoint_is_refused_all_the_same(storage: Watched) -> None:
    one, two = ledger(storage), ledger(storage)
    first = one.save("t", {})
    two.save("t", {})
    for after in (first.sequence, 7):
        with pytest.raises(Conflict) as caught:
            one.save("t", {}, after=after)
        assert str(caught.value) == (
            f"t is at #2, and this save builds on #{after}."
            " Nothing was overwritten. Load the latest, and decide again."
        )
    assert storage.head("t") == 2


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("anchored", [False, True])
def test_what_was_cut_off_is_missed_and_nothing_is_saved_after_it(
    storage: Watched, keep: int, anchored: bool
) -> None:
    """Also if the thread is empty, where a storage takes any sequence."""
    one = ledger(storage, anchor=InMemoryAnchor() if anchored else None)
    one.save("t", {})
    one.save("t", {})
    storage.cut(keep)
    with pytest.raises(RolledBack):
        one.save("t", {})
    assert storage.head("t") == keep


def test_a_thread_that_was_deleted_meanwhile_stays_deleted(storage: Watched) -> None:
    one, two = ledger(storage), ledger(storage)
    one.save("t", {})
    two.delete("t")
    with pytest.raises(ThreadDeleted):
        one.save("t", {})


def test_an_anchor_that_has_seen_more_is_heard_first(storage: Watched) -> None:
    anchor = InMemoryAnchor()
    one = ledger(storage, anchor=anchor)
    one.save("t", {})
    anchor.advance("invoices", "t", Head(9, "sha256:" + "0" * 64))
    storage.asked.clear()
    with pytest.raises(RolledBack):
        one.save("t", {})
    assert "follow" not in storage.asked


def test_a_former_owner_is_refused(storage: Watched) -> None:
    one, two = ledger(storage), ledger(storage)
    owned = one.own("t", "worker-a", seconds=0.001)
    one.save("t", {})
    storage.release(owned.lease)
    two.own("t", "worker-b")
    with pytest.raises(NotOwner):
        one.save("t", {})
    assert storage.head("t") == 1


def test_with_a_journal_what_is_written_down_is_what_is_done(storage: Watched) -> None:
    journal = InMemoryJournal()
    one, two = ledger(storage, journal=journal), ledger(storage)
    one.save("t", {})
    two.save("t", {})
    one.save("t", {})
    assert "follow" not in storage.asked
    assert [entry.sequence for entry in journal.show(what="save")] == [1, 3]


@pytest.mark.parametrize("answer", [None, 1, "yes"])
def test_an_answer_that_is_neither_yes_nor_no_ends_the_save(answer: Any) -> None:
    """The record may be there, so it is not saved once more."""

    class Odd(Watched):
        def follow(self, *arguments: Any, **options: Any) -> bool:
            super().follow(*arguments, **options)
            return answer  # type: ignore[no-any-return]

    storage = Odd()
    one = ledger(storage)
    one.save("t", {})
    with pytest.raises(StorageUnavailable) as caught:
        one.save("t", {})
    assert str(caught.value) == (
        "The storage could not keep t: it raised TypeError. See the error it came from, and make"
        " the storage raise errors of safepoint.errors."
    )
    assert storage.head("t") == 2


def test_a_process_forgets_the_threads_that_it_used_longest_ago(storage: Watched) -> None:
    one = ledger(storage)
    for number in range(1025):
        one.save(f"t-{number}", {})
    storage.asked.clear()
    one.save("t-0", {})
    one.save("t-1024", {})
    assert storage.asked == ["head", "append", "follow"]


def test_on_sqlite_a_record_removed_under_us_is_missed(tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    path = tmp_path / "store" / "checkpoints.db"
    with SQLiteCheckpointStorage(path) as storage:
        one = Ledger(storage, store="invoices", keys=KEYS)
        for _ in range(3):
            one.save("t", {})
        with closing(sqlite3.connect(path)) as database, database:
            (rule,) = database.execute(
                "select sql from sqlite_schema where name = 'checkpoints_delete'"
            ).fetchone()
            database.execute("drop trigger checkpoints_delete")
            database.execute("delete from checkpoints where sequence = 3")
            database.execute(rule)
        with pytest.raises(Exception) as caught:
            one.save("t", {})
        assert type(caught.value).__name__ == "RecordsMissing"
