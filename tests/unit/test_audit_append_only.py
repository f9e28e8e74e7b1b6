"""check_append_only: gaps, strange names, and records that changed after they were written."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from safepoint import FileCheckpointStorage, Keyring, Ledger, SigningKey
from safepoint.audit import check_append_only
from safepoint.audit.threads import Thread
from safepoint.errors import RecordMalformed, RecordsMissing, StorageUnavailable
from safepoint.storage.base import gap


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(
        FileCheckpointStorage(tmp_path / "state"),
        store="invoices",
        keys=Keyring(SigningKey.generate()),
    )
    for n in range(1, 7):
        made.save("a", n)
    made.save("b", 1)
    return made


@pytest.fixture
def root(ledger: Ledger, tmp_path: Path) -> Path:
    return tmp_path / "state"


def record(root: Path, sequence: int, thread: str = "a") -> Path:
    return root / f"{thread}/{sequence:010d}.checkpoint"


def lines(path: Path) -> list[str]:
    return [str(finding) for finding in check_append_only(path)]


def test_a_store_that_a_ledger_wrote_has_no_finding(root: Path, ledger: Ledger) -> None:
    """Pruned and deleted threads too."""
    assert lines(root) == []
    ledger.prune("a", keep=2)
    ledger.delete("b")
    assert lines(root) == []


def test_an_empty_folder_has_no_finding(tmp_path: Path) -> None:
    assert lines(tmp_path) == []


REMOVED = gap("a", 1, 2).do


@pytest.mark.parametrize(
    ("gone", "missing"),
    [
        ((3,), "3"),
        ((1,), "1"),
        ((1, 2, 5), "1 to 2, 5"),
        ((2, 3, 4, 5), "2 to 5"),
    ],
)
def test_a_gap_is_an_error(root: Path, gone: tuple[int, ...], missing: str) -> None:
    for sequence in gone:
        record(root, sequence).unlink()
    assert lines(root) == [f"SP13 error: Thread 'a' has checkpoint 6 but not {missing}. {REMOVED}"]


def test_a_gap_is_told_in_the_words_of_the_storage(root: Path) -> None:
    record(root, 5).unlink()
    with pytest.raises(RecordsMissing) as caught:
        FileCheckpointStorage(root).head("a")
    assert lines(root) == [f"SP13 error: {caught.value}"]


def test_a_gap_of_millions_costs_nothing_and_many_are_not_all_named(root: Path) -> None:
    record(root, 6).rename(record(root, 9_999_999_999))
    assert lines(root)[0].startswith(
        "SP13 error: Thread 'a' has checkpoint 9999999999 but not 6 to 9999999998."
    )
    for sequence in range(10, 30, 2):
        record(root, sequence).write_bytes(b"x")
        record(root, sequence).chmod(0o600)
    assert " but not 6 to 9, 11, 13, 15, 17 and more. " in lines(root)[0]


def test_a_gap_behind_a_base_is_an_error(root: Path, ledger: Ledger) -> None:
    ledger.prune("a", keep=3)
    record(root, 5).unlink()
    assert lines(root) == [f"SP13 error: Thread 'a' has checkpoint 6 but not 5. {REMOVED}"]
    record(root, 4).unlink()
    assert lines(root) == [f"SP13 error: Thread 'a' has checkpoint 6 but not 4 to 5. {REMOVED}"]


def test_a_thread_without_the_record_that_it_begins_with_is_an_error(
    root: Path, ledger: Ledger
) -> None:
    ledger.prune("a", keep=1)
    record(root, 6).unlink()
    with pytest.raises(RecordsMissing) as caught:
        FileCheckpointStorage(root).head("a")
    assert lines(root) == [f"SP13 error: {caught.value}"]


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b"0000000000\nsafepoint/1"])
def test_a_base_that_says_nothing_is_an_error(root: Path, content: bytes) -> None:
    (root / "a/base").write_bytes(content)
    (root / "a/base").chmod(0o600)
    with pytest.raises(RecordMalformed) as caught:
        FileCheckpointStorage(root).head("a")
    assert lines(root) == [f"SP13 error: {caught.value}"]


def test_a_base_that_is_a_link_is_an_error(root: Path) -> None:
    (root / "a/base").symlink_to("0000000001.checkpoint")
    (line,) = lines(root)
    assert line.startswith(f"SP13 error: {root}/a/base does not say at which checkpoint")


def test_records_below_the_base_are_a_warning(root: Path, ledger: Ledger) -> None:
    kept = record(root, 1).read_bytes()
    ledger.prune("a", keep=2)
    record(root, 1).write_bytes(kept)
    record(root, 1).chmod(0o600)
    assert lines(root) == []  # a prune of this moment may still be at it
    os.utime(root / "a/base", (0, 0))
    assert lines(root) == [
        (
            "SP13 warning: Thread 'a' begins at 5, and 1 record below that is left. A prune was"
            " interrupted, or somebody put it back. Nothing reads it; the next Ledger.prune"
            " removes it."
        )
    ]
    ledger.prune("a", keep=2)
    assert lines(root) == []


def test_names_outside_the_layout_are_warnings(root: Path) -> None:
    strange = [
        root / "NOTES",
        root / "notes.txt",
        root / "file",
        root / "a/0000000007.checkpoint.bak",
        root / "a/0000000000.checkpoint",
        root / "a/7.checkpoint",
        root / "a/folder",
    ]
    for path in strange:
        path.mkdir() if path.name in ("folder", "NOTES") else path.touch()
    assert sorted(lines(root)) == sorted(
        f"SP13 warning: {path} is no file of this storage. Nothing reads it. Find out who put it"
        " there, and move it away."
        for path in strange
    )


def test_an_old_file_on_its_way_in_is_a_note_and_a_young_one_is_not(root: Path) -> None:
    temp = root / "a/.next"
    temp.touch()
    assert lines(root) == []
    os.utime(temp, (time.time() - 1000, time.time() - 1000))
    assert lines(root) == [
        (
            f"SP13 note: {temp} was left by a save that did not end. It was never acknowledged."
            " The next save to its thread removes it."
        )
    ]
    FileCheckpointStorage(root).append("a", 7, b"seven")
    assert not temp.exists()


def test_a_record_that_was_written_after_the_next_is_a_warning(root: Path) -> None:
    time.sleep(0.02)
    for sequence in (2, 4):
        record(root, sequence).write_bytes(record(root, sequence).read_bytes())
    assert lines(root) == [
        (
            "SP13 warning: Thread 'a' has records that were written after the next one: #2, #4."
            " A restore does that, and so does an edit. Verify the store with its key, and ask who"
            " restored it."
        )
    ]


def test_of_many_late_records_five_are_named(root: Path, ledger: Ledger) -> None:
    for n in range(7, 10):
        ledger.save("a", n)
    now = time.time()
    for sequence in range(1, 10):
        os.utime(record(root, sequence), (now - sequence, now - sequence))
    assert " after the next one: #1, #2, #3, #4, #5 and 3 more. " in lines(root)[0]


def test_a_record_whose_file_changed_otherwise_is_a_note(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its ctime tells, which a chmod moves too."""
    info = record(root, 3).lstat()
    record(root, 3).write_bytes(b"edited")
    os.utime(record(root, 3), ns=(info.st_mtime_ns, info.st_mtime_ns))
    monkeypatch.setattr("safepoint.audit.append_only._SLACK_NS", 0)
    assert lines(root) == [
        (
            "SP13 note: Thread 'a' has records whose files were changed in some way after the next"
            " one was published: #3. A chmod, a restore or a crash does that, and so does an edit"
            " that hides its time. Verify the store with its key."
        )
    ]


def test_two_records_that_were_published_at_once_are_no_finding(root: Path) -> None:
    """The first writer may remove its temporary name after the second has published."""
    record(root, 3).chmod(0o400)
    record(root, 3).chmod(0o600)
    assert lines(root) == []


def test_records_that_others_can_change_are_errors(root: Path, tmp_path: Path) -> None:
    record(root, 1).chmod(0o622)
    (tmp_path / "second").hardlink_to(record(root, 2))
    assert lines(root) == [
        (
            f"SP13 error: {record(root, 1)} can be written by others (mode 0622). Run: chmod 600"
            f" {record(root, 1)}"
        ),
        (
            f"SP13 error: {record(root, 2)} has a second name (hard link). Whoever holds it may"
            f" change the record. Find it, and remove it: find / -samefile {record(root, 2)}"
        ),
    ]


def test_a_publish_that_a_crash_cut_short_is_no_error(root: Path) -> None:
    (root / "a/.next").hardlink_to(record(root, 6))
    assert lines(root) == []


def test_a_folder_of_something_else_is_one_note(tmp_path: Path) -> None:
    for n in range(30):
        (tmp_path / f"{n}.json").touch()
    (tmp_path / "sub").mkdir()
    assert lines(tmp_path) == [
        (
            f"SP13 note: {tmp_path} holds no record of a FileCheckpointStorage, so nothing here"
            " tells whether it is append-only. Find out whether its writer can replace what it"
            " wrote, and keep a copy where it cannot."
        )
    ]


def test_a_save_during_the_listing_is_no_gap(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing may have the second of two new records, and not the first."""
    real, calls = os.listdir, []

    def listdir(path: Any) -> list[str]:
        calls.append(path)
        hidden = "0000000005.checkpoint" if len(calls) == 1 else ""
        return [name for name in real(path) if name != hidden]

    monkeypatch.setattr(os, "listdir", listdir)
    assert Thread(str(root), "a").missing == []
    assert len(calls) == 2


def test_a_prune_during_the_listing_is_no_gap(
    root: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base is read after the listing, in which the records may be gone already."""
    real = os.listdir
    seen: list[list[str]] = []

    def listdir(path: Any) -> list[str]:
        if not seen:
            ledger.prune("a", keep=2)
        seen.append(real(path))
        return seen[-1]

    monkeypatch.setattr(os, "listdir", listdir)
    thread = Thread(str(root), "a")
    assert (thread.first, thread.missing, thread.below) == (5, [], [])

    def pruned_after(path: Any) -> list[str]:
        names = real(path)
        ledger.prune("a", keep=1)
        return names

    monkeypatch.setattr(os, "listdir", pruned_after)
    thread = Thread(str(root), "a")
    assert (thread.first, thread.missing, thread.below) == (6, [], [])


def unseen(path: Path) -> str:
    return (
        f"SP13 warning: {path} could not be looked at as a whole (Permission denied). Look at it"
        " yourself, as a user who can read it."
    )


def close(monkeypatch: pytest.MonkeyPatch, name: str, *closed: Path) -> None:
    """Let a function of `os` fail for some paths, as it would for a user who is not root."""
    real = getattr(os, name)

    def refuse(path: Any = ".", *rest: Any) -> Any:
        if Path(path) in closed:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *rest)

    monkeypatch.setattr(os, name, refuse)


def test_one_closed_folder_hides_nothing_of_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes first in the listing, as an attacker would name it."""
    (root / "0").mkdir(mode=0o700)
    (root / "stray").touch()
    record(root, 3).unlink()
    record(root, 4).chmod(0o666)
    before = lines(root)
    close(monkeypatch, "listdir", root / "0")
    assert sorted(lines(root)) == sorted([*before, unseen(root / "0")])
    assert [line.split(":")[0] for line in before] == ["SP13 error", "SP13 error", "SP13 warning"]


def test_a_folder_that_cannot_be_listed_at_all_is_one_warning(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(monkeypatch, "scandir", root)
    assert lines(root) == [unseen(root)]


def test_a_closed_folder_beside_files_of_something_else_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    close(monkeypatch, "listdir", tmp_path / "sub")
    assert [line.split(":")[0] for line in lines(tmp_path)] == ["SP13 warning", "SP13 note"]


def test_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="is not a folder"):
        check_append_only(tmp_path / "nothing")
