"""Files of a journal that were edited, cut, removed or torn: refused, or recovered."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from safepoint import InMemoryAnchor
from safepoint.errors import (
    JournalBroken,
)
from safepoint.journal import Actor, FileJournal, _folder, _text
from tests.unit.journal_helpers import (
    CALLS,
    RESTORE,
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


@pytest.fixture
def journal(path: Path) -> FileJournal:
    """Three entries."""
    made = opened(path, create=True)
    fill(made, 3)
    return made


# Edited


def test_a_whole_line_that_was_edited_at_any_byte_is_refused(
    journal: FileJournal, path: Path, file: Path
) -> None:
    """By every call, by one who has seen the end and by one who has not; nothing is appended."""
    genuine = file.read_bytes()
    for at in range(len(genuine)):
        edited = bytearray(genuine)
        edited[at] ^= 0x10
        file.write_bytes(edited)
        for each in (journal, opened(path)):
            for call in (CALLS["record"], CALLS["verify"]):
                with pytest.raises(JournalBroken):
                    call(each)
        assert file.read_bytes() == edited
    file.write_bytes(genuine)
    assert journal.record(event()).number == 4


def test_the_refusal_says_where(journal: FileJournal, file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"sequence":2', b'"sequence":7'))
    for call in CALLS.values():
        assert refusal(JournalBroken, call, journal) == (
            f"The line after entry 1 in {file} was changed after it was written, or somebody else"
            f" wrote it. {RESTORE}"
        )


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[1:],
        lambda lines: [lines[0], lines[2]],
        lambda lines: [lines[1], lines[0], lines[2]],
        lambda lines: [*lines, lines[2]],
        lambda lines: [*lines, b"\n"],
        lambda lines: [*lines, b"hello\n"],
        lambda lines: [b"", *lines[1:]],
        lambda lines: [*lines[:2], lines[2][:-1] + b" "],
    ],
)
@each_call
def test_a_line_removed_moved_repeated_or_planted_is_refused(
    journal: FileJournal,
    file: Path,
    change: Callable[[list[bytes]], list[bytes]],
    call: Callable[[FileJournal], object],
) -> None:
    planted = b"".join(change(file.read_bytes().splitlines(keepends=True)))
    file.write_bytes(planted)
    with pytest.raises(JournalBroken):
        call(journal)
    assert file.read_bytes() == planted


def test_an_edit_between_two_records_is_noticed_by_the_one_who_has_seen_the_end(
    journal: FileJournal, file: Path
) -> None:
    """The size is the same, and the time of the change is put back as far as a user can."""
    info = file.stat()
    genuine = file.read_bytes()
    file.write_bytes(genuine.replace(b'"sequence":3', b'"sequence":7'))
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
    with pytest.raises(JournalBroken):
        journal.record(event())
    file.write_bytes(genuine)
    assert journal.record(event()).number == 4


@pytest.mark.parametrize("broken", [False, True])
def test_a_line_that_is_too_long_is_refused_and_not_loaded(
    journal: FileJournal, file: Path, broken: bool
) -> None:
    with file.open("ab") as stream:
        stream.truncate(stream.tell() + 32 * 1024 * 1024)  # a hole: zeros that take no room
        stream.seek(0, os.SEEK_END)
        stream.write(b"\n" if broken else b"")
    size = file.stat().st_size
    for call in CALLS.values():
        tracemalloc.start()
        said = refusal(JournalBroken, call, journal)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert said == f"A line in {file} has more than {_text.LINE_BYTES} bytes. {RESTORE}"
        assert peak < 2 * 1024 * 1024
    assert file.stat().st_size == size


@pytest.mark.parametrize("call", ["show", "tail", "verify"])
def test_a_file_that_is_cut_while_it_is_read_is_refused(
    journal: FileJournal, file: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real = os.pread

    def pread(fd: int, length: int, offset: int) -> bytes:
        os.truncate(file, 0)
        return real(fd, length, offset)

    monkeypatch.setattr(os, "pread", pread)
    assert refusal(JournalBroken, CALLS[call], journal) == (
        f"{file} became shorter while it was read. {RESTORE}"
    )


def test_a_file_that_goes_while_it_is_read_is_refused(
    journal: FileJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_folder.Folder, "last", lambda self, root: 2)
    assert refusal(JournalBroken, journal.verify) == (
        f"{path}/journal.000002.jsonl is gone. {RESTORE}"
    )


# Torn


def test_a_line_torn_at_any_byte_is_recovered_and_that_is_an_entry(
    tmp_path: Path, journal: FileJournal, file: Path
) -> None:
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    kept = len(whole) - len(lines[2])
    for length in range(1, len(lines[2])):
        folder = tmp_path / f"torn-{length}"
        folder.mkdir(mode=0o700)
        torn = folder / file.name
        torn.write_bytes(whole[: kept + length])
        torn.chmod(0o600)
        again = opened(folder)
        assert again.verify() == 2, "an unfinished line is no entry"
        assert [entry.number for entry in again.tail()] == [1, 2]
        assert torn.read_bytes() == whole[: kept + length], "reading mends nothing"
        entry = again.record(event(detail="next"))
        found = list(opened(folder).show())
        assert [each.number for each in found] == [1, 2, 3, 4]
        assert (found[2].what, found[2].outcome, found[2].store) == ("recover", "done", "journal")
        assert found[2].detail == f"{length} bytes of an unfinished line were dropped."
        assert found[2].actor == Actor.process()
        assert found[3] == entry


def test_a_first_line_that_is_torn_is_recovered(journal: FileJournal, path: Path) -> None:
    file = path / "journal.000001.jsonl"
    file.write_bytes(file.read_bytes()[:100])
    assert journal.verify() == 0
    assert opened(path).record(event()).number == 2
    assert [entry.what for entry in journal.show()] == ["recover", "save"]


def test_what_is_torn_may_be_longer_than_the_entry_that_says_so(path: Path, file: Path) -> None:
    journal = opened(path, create=True)
    journal.record(event())
    with file.open("ab") as stream:
        stream.write(b'{"entry":{"actor":' + b"\0" * 9000)
    entry = journal.record(event())
    assert entry.number == 3
    assert journal.tail(2)[0].detail == "9018 bytes of an unfinished line were dropped."
    assert journal.verify() == 3


def test_a_recovery_stays_in_its_file_whatever_the_size(path: Path, file: Path) -> None:
    fill(opened(path, create=True), 2)
    with file.open("ab") as stream:
        stream.write(b"{")
    journal = opened(path, max_bytes=file.stat().st_size)
    assert journal.record(event()).number == 4
    assert sorted(files(path)) == ["journal.000001.jsonl", "journal.000002.jsonl"]
    assert file.read_bytes().count(b"\n") == 3
    assert journal.verify() == 4


def test_an_entry_that_the_anchor_has_seen_was_not_torn_by_a_crash(path: Path, file: Path) -> None:
    """It was whole before the anchor moved. Somebody cut it off."""
    journal = opened(path, anchor=InMemoryAnchor(), create=True)
    fill(journal, 3)
    file.write_bytes(file.read_bytes()[:-1])
    for call in CALLS.values():
        assert refusal(JournalBroken, call, journal).startswith(
            "The journal journal ends at entry 2, and the anchor has seen entry 3. "
        )


# Rotated


def test_a_file_ends_before_it_would_be_too_large(tmp_path: Path) -> None:
    """Around each boundary by one byte, the chain and the numbers go on."""
    probe = opened(tmp_path / "probe", create=True)
    fill(probe, 4)
    (text,) = files(tmp_path / "probe").values()
    sizes = [len(line) for line in text.splitlines(keepends=True)]
    two = sizes[0] + sizes[1]
    for limit, expected in [
        (1, [1, 1, 1, 1]),
        (sizes[0], [1, 1, 1, 1]),
        (two - 1, [1, 1, 1, 1]),
        (two, [2, 1, 1]),
        (2 * sizes[1], [2, 2]),
        (sum(sizes) - 1, [3, 1]),
        (sum(sizes), [4]),
    ]:
        path = tmp_path / str(limit)
        entries = fill(opened(path, create=True, max_bytes=limit), 4)
        assert [data.count(b"\n") for data in files(path).values()] == expected, limit
        assert list(files(path)) == [
            f"journal.{number:06d}.jsonl" for number in range(1, len(expected) + 1)
        ]
        again = opened(path, max_bytes=limit)
        assert list(again.show()) == entries
        assert again.tail(3) == entries[1:]
        assert again.record(event()).number == 5
        assert opened(path).verify() == 5


@pytest.fixture
def rotated(path: Path) -> FileJournal:
    """Five entries, each in a file of its own."""
    made = opened(path, create=True, max_bytes=1, anchor=None)
    fill(made, 5)
    return made


@pytest.mark.parametrize("gone", [1, 2, 4])
@each_call
def test_a_missing_file_is_refused(
    rotated: FileJournal, path: Path, gone: int, call: Callable[[FileJournal], object]
) -> None:
    name = f"journal.{gone:06d}.jsonl"
    (path / name).unlink()
    said = f"{path}/{name} is missing, and 'journal.000005.jsonl' is there. {RESTORE}"
    assert refusal(JournalBroken, lambda: opened(path)) == said
    assert refusal(JournalBroken, lambda: opened(path, create=True)) == said
    before = files(path)
    assert refusal(JournalBroken, call, rotated) == said
    assert files(path) == before


def test_a_missing_last_file_shows_with_the_anchor_alone(rotated: FileJournal, path: Path) -> None:
    anchor = InMemoryAnchor()
    opened(path, anchor=anchor, max_bytes=1).record(event())
    (path / "journal.000006.jsonl").unlink()
    assert opened(path).verify() == 5
    for call in CALLS.values():
        said = refusal(JournalBroken, call, opened(path, anchor=anchor))
        assert said.startswith(
            "The journal journal ends at entry 5, and the anchor has seen entry 6. "
        )
    assert len(files(path)) == 5


def remove(path: Path, *numbers: int) -> None:
    for number in numbers:
        (path / f"journal.{number:06d}.jsonl").unlink()


CUT: dict[str, Callable[[Path], object]] = {
    "last file": lambda path: remove(path, 5),
    "last three files": lambda path: remove(path, 3, 4, 5),
    "last line": lambda path: os.truncate(path / "journal.000005.jsonl", 0),
    "line break": lambda path: os.truncate(path / "journal.000005.jsonl", 300),
}


@pytest.mark.parametrize("cut", CUT.values(), ids=CUT)
def test_a_writer_remembers_how_far_it_had_come(
    rotated: FileJournal, path: Path, cut: Callable[[Path], object]
) -> None:
    """While it runs, it is an anchor of its own: also at the second try."""
    cut(path)
    before = files(path)
    for _ in range(2):
        said = refusal(JournalBroken, lambda: rotated.record(event()))
        assert "and this process has seen entry 5." in said
    assert files(path) == before


def test_a_writer_remembers_what_it_wrote(rotated: FileJournal, path: Path, tmp_path: Path) -> None:
    fill(opened(tmp_path / "other", create=True, max_bytes=1), 5)
    for name in files(path):
        shutil.copy(tmp_path / "other" / name, path / name)
    said = refusal(JournalBroken, lambda: rotated.record(event()))
    assert said.startswith(
        "Entry 5 of the journal journal is not the one that this process has seen. "
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda path: shutil.copy(path / "journal.000002.jsonl", path / "journal.000004.jsonl"),
        lambda path: shutil.copy(path / "journal.000004.jsonl", path / "journal.000005.jsonl"),
        lambda path: (path / "journal.000003.jsonl").write_bytes(b""),
        lambda path: os.truncate(path / "journal.000004.jsonl", 300),
        lambda path: shutil.copy(path / "journal.000001.jsonl", path / "journal.000006.jsonl"),
    ],
)
@each_call
def test_files_that_do_not_follow_upon_each_other_are_refused(
    rotated: FileJournal,
    path: Path,
    change: Callable[[Path], object],
    call: Callable[[FileJournal], object],
) -> None:
    change(path)
    before = files(path)
    with pytest.raises(JournalBroken):
        call(opened(path))
    assert files(path) == before


def test_an_empty_middle_file_says_so(rotated: FileJournal, path: Path) -> None:
    (path / "journal.000003.jsonl").write_bytes(b"")
    assert refusal(JournalBroken, rotated.verify) == (
        f"{path}/journal.000003.jsonl is empty, and another file follows it. {RESTORE}"
    )


@pytest.mark.parametrize("torn", [b"", b"{", b'{"entry":'])
def test_a_crash_while_a_file_is_begun_is_no_alarm(
    rotated: FileJournal, path: Path, torn: bytes
) -> None:
    (path / "journal.000006.jsonl").write_bytes(torn)
    (path / "journal.000006.jsonl").chmod(0o600)
    assert rotated.verify() == 5
    assert [entry.number for entry in rotated.tail(2)] == [4, 5]
    for journal in (rotated, opened(path)):
        journal.record(event())
    assert rotated.verify() == (8 if torn else 7)


def test_other_files_in_the_folder_are_none_of_its_business(
    rotated: FileJournal, path: Path
) -> None:
    for name in ("README", "journal.000006.jsonl.gz", "journal.6.jsonl", "journal.0000006.jsonl"):
        (path / name).write_text("x")
    assert rotated.verify() == 5
    assert rotated.record(event()).number == 6
