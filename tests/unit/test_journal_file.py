"""The file journal: what it writes, where it may be, and how it is read."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safepoint import Keyring, SigningKey
from safepoint import _files as _posix
from safepoint.anchor import _folder as anchored
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    InvalidId,
    JournalBroken,
    JournalUnavailable,
    KeyRefused,
    UnsafeLocation,
)
from safepoint.journal import Actor, Event, FileJournal, _folder, _walk
from tests.unit.journal_helpers import (
    ANA,
    CALLS,
    KEY,
    KEYS,
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


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


# What it writes


def test_the_files_are_lines_that_a_person_can_read(path: Path, file: Path) -> None:
    journal = opened(path, create=True)
    assert files(path) == {"journal.000001.jsonl": b""}
    assert (journal.verify(), journal.tail()) == (0, [])
    entries = fill(journal, 3)
    lines = file.read_text().splitlines()
    assert [json.loads(line)["entry"]["number"] for line in lines] == [1, 2, 3]
    assert sorted(name.name for name in path.iterdir()) == [".lock", "journal.000001.jsonl"]
    assert list(opened(path).show()) == entries == opened(path).tail()
    assert opened(path).verify() == 3
    assert repr(journal) == f"FileJournal({str(path)!r}, name='journal')"
    assert journal.path == path


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777], ids=["000", "022", "777"])
def test_only_the_owner_can_touch_them_whatever_the_umask(
    path: Path, umask: Callable[[int], int], mask: int
) -> None:
    umask(mask)
    fill(opened(path, create=True, max_bytes=1), 2)
    modes = {name.name: stat.S_IMODE(name.stat().st_mode) for name in path.iterdir()}
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}
    assert len(modes) == 3


def test_an_append_by_the_only_writer_is_one_write_and_one_sync(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(path, create=True)
    journal.record(event())
    log: list[str] = []

    def watch(name: str) -> None:
        real = getattr(os, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            log.append(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, step)

    for name in ("pwrite", "write", "pread", "read", "ftruncate", "fsync", "scandir", "rename"):
        watch(name)
    journal.record(event())
    assert log == ["pwrite", "fsync"]
    log.clear()
    opened(path).record(event())
    assert "pread" in log, "a writer that has not seen the end reads it"
    log.clear()
    journal.record(event())
    assert log == ["pread", "pwrite", "fsync"], "and one that has, reads what came since"


@pytest.mark.parametrize("tick", [False, True], ids=["", "within one tick of the clock"])
def test_several_journals_of_one_process_write_one_chain(
    path: Path, monkeypatch: pytest.MonkeyPatch, tick: bool
) -> None:
    """Each has seen the end at another time; the file is rotated in between."""
    if tick:
        monkeypatch.setattr(_walk, "listed_of", lambda root: 0)
        monkeypatch.setattr("safepoint.journal.file.listed_of", lambda root: 0)
    first = opened(path, create=True, max_bytes=1500)
    others = [first, *(opened(path, max_bytes=1500) for _ in range(3))]
    numbers = [others[turn % 4].record(event()).number for turn in range(40)]
    assert numbers == list(range(1, 41))
    assert first.verify() == 40
    assert len(files(path)) > 10


def test_no_file_stays_open(journal: FileJournal) -> None:
    lowest = os.dup(0)
    os.close(lowest)
    for call in CALLS.values():
        call(journal)
    looking = journal.show()
    next(looking)
    del looking
    again = os.dup(0)
    os.close(again)
    assert again == lowest


# Where it may be


def test_a_wrong_path_is_not_begun_anew(path: Path, tmp_path: Path) -> None:
    assert refusal(JournalUnavailable, lambda: opened(path)) == (
        f"{path} does not exist, so nothing could be written down. Correct the path, or mount the"
        " volume. To begin a new journal there, pass create=True once."
    )
    path.mkdir(mode=0o700)
    assert refusal(JournalUnavailable, lambda: opened(path)) == (
        f"{path} holds no journal: 'journal.000001.jsonl' is missing. Correct the path or the"
        " name, mount the volume, or put the files back from a copy. To begin a new journal, in an"
        " empty folder, pass create=True once."
    )
    (path / "notes").touch()
    assert refusal(JournalUnavailable, lambda: opened(path, create=True)) == (
        f"{path} holds files but no journal of the name journal, so none is begun there. Name a"
        " folder that is empty or does not exist. If it did hold a journal, put its files back from"
        " a copy."
    )
    assert sorted(name.name for name in path.iterdir()) == [".lock", "notes"]


def test_create_keeps_what_is_there(journal: FileJournal, path: Path) -> None:
    before = files(path)
    assert opened(path, create=True).verify() == 3
    assert files(path) == before


def test_of_two_processes_that_begin_one_is_faster(
    journal: FileJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real, seen = files(path), _folder.Folder._numbers, []

    def late(self: _folder.Folder, root: int) -> list[int]:
        seen.append(root)
        return [] if len(seen) == 1 else real(self, root)

    monkeypatch.setattr(_folder.Folder, "_numbers", late)
    assert opened(path, create=True).verify() == 3
    assert files(path) == before


def test_another_name_is_another_journal(journal: FileJournal, path: Path) -> None:
    said = refusal(JournalUnavailable, lambda: opened(path, name="other"))
    assert "holds no journal: 'other.000001.jsonl' is missing." in said
    assert "no journal of the name other" in refusal(
        JournalUnavailable, lambda: opened(path, name="other", create=True)
    )


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (
            {"keys": KEY},
            ConfigurationError,
            (
                "A journal was given SigningKey as keys. Write"
                " keys=Keyring(SigningKey.from_file(path))."
            ),
        ),
        (
            {"max_bytes": 0},
            ConfigurationError,
            "0 is not a size for a file. Give a whole number of bytes, from 1 up.",
        ),
        (
            {"max_bytes": 1e6},
            ConfigurationError,
            "1000000.0 is not a size for a file. Give a whole number of bytes, from 1 up.",
        ),
        (
            {"name": "../x"},
            InvalidId,
            (
                "'../x' is not a journal name. Use 1 to 64 of a-z, 0-9, '-' and '_', and start with"
                " a letter or digit."
            ),
        ),
        (
            {"anchor": "elsewhere"},
            ConfigurationError,
            (
                "The anchor of a journal is str, which has no method read. Give a FileAnchor of its"
                " own, another Anchor, or None."
            ),
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_an_argument_of_the_wrong_kind(
    path: Path, options: dict[str, Any], error: type[CheckpointError], said: str
) -> None:
    assert refusal(error, lambda: opened(path, create=True, **options)) == said
    assert not path.exists()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (7, "The path of the journal is int, not a path."),
        ("", "The path of the journal is empty."),
        ("a\0b", "'a\\x00b' cannot be the path of a folder."),
        ("/nowhere/at/all/journal", "/nowhere/at/all does not exist."),
    ],
)
def test_a_path_that_is_none(bad: Any, said: str) -> None:
    assert said in refusal(JournalUnavailable, lambda: opened(bad, create=True))


def test_a_folder_that_others_can_write_is_refused(journal: FileJournal, path: Path) -> None:
    path.chmod(0o770)
    said = f"{path} can be written by others (mode 0770). Run: chmod 700 {path}"
    assert refusal(UnsafeLocation, lambda: opened(path)) == said
    for call in CALLS.values():
        assert refusal(JournalUnavailable, call, journal) == said


def test_a_link_is_refused(journal: FileJournal, path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    assert "is a symbolic link." in refusal(UnsafeLocation, lambda: opened(tmp_path / "link"))


def test_a_folder_above_that_others_can_write_is_refused(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    assert refusal(UnsafeLocation, lambda: opened(above / "journal", create=True)) == (
        f"Every user can rename and replace what is inside {above} (mode 0777)."
        f" Run: chmod o-w {above}"
    )


def test_a_folder_above_that_another_group_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an anchor, last night's copy is as genuine as the present one."""
    above = tmp_path / "above"
    above.mkdir()
    if os.geteuid() == 0:
        os.chown(above, -1, 12345)
    else:
        monkeypatch.setattr(os, "getegid", lambda: 54321)
    above.chmod(0o775)
    group = above.stat().st_gid
    assert refusal(UnsafeLocation, lambda: opened(above / "journal", create=True)) == (
        f"The journal {above}/journal could be replaced by an older copy. The group {group} can"
        f" replace what is inside {above} (mode 0775). Run: chmod g-w {above}"
    )


def _open_to_all(file: Path, other: Path) -> None:
    shutil.copy(other, file)
    file.chmod(0o666)


PLANTED: dict[str, Callable[[Path, Path], object]] = {
    "is a symbolic link.": lambda file, other: file.symlink_to(other),
    "is not a regular file.": lambda file, other: os.mkfifo(file),
    "can be written by others (mode 0666).": _open_to_all,
    "has a second name (hard link).": lambda file, other: os.link(other, file),
}


@each_call
@pytest.mark.parametrize(("what", "plant"), PLANTED.items(), ids=PLANTED)
def test_a_file_that_is_not_the_journals_own_is_refused(
    journal: FileJournal,
    file: Path,
    tmp_path: Path,
    what: str,
    plant: Callable[[Path, Path], object],
    call: Callable[[FileJournal], object],
) -> None:
    other = tmp_path / "other"
    file.rename(other)
    plant(file, other)
    before = other.read_bytes()
    said = refusal(JournalUnavailable, call, journal)
    assert said.startswith(f"{file} {what} ")
    assert other.read_bytes() == before


@each_call
def test_a_folder_that_was_replaced_is_refused(
    journal: FileJournal, path: Path, call: Callable[[FileJournal], object]
) -> None:
    shutil.copytree(path, path.parent / "copy")
    path.rename(path.parent / "old")
    (path.parent / "copy").rename(path)
    assert refusal(JournalUnavailable, call, journal) == (
        f"{path} is not the folder that this journal was opened on. Find out who replaced it, and"
        f" construct the journal again if that is right: ls -ld {path}"
    )


@each_call
def test_a_folder_that_is_gone_is_no_empty_journal(
    journal: FileJournal, path: Path, call: Callable[[FileJournal], object]
) -> None:
    path.rename(path.parent / "elsewhere")
    assert refusal(JournalUnavailable, call, journal) == (
        f"{path} is gone, and with it the journal. Mount it again or put it back from a copy: until"
        " then nothing is written down, so nothing is done."
    )


def test_another_system_is_told_what_to_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_posix, "SUPPORTED", False)
    assert refusal(JournalUnavailable, lambda: opened(path, create=True)) == (
        "FileJournal needs a POSIX system. Write a Journal of your own, for a database that you"
        " have: it is one method."
    )


def test_a_lock_that_is_held_for_too_long(
    journal: FileJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchored, "_PATIENCE", 0.05)
    before = files(path)
    with _posix.opened(str(path / ".lock"), os.O_RDWR) as fd:
        assert _posix.try_lock(fd)
        for call in CALLS.values():
            said = refusal(JournalUnavailable, call, journal)
            assert said == (
                f"Another process has held the lock of {path} for 0.05 s."
                f" Find it, let it end, and try again: fuser -v {path}/.lock"
            )
    assert files(path) == before


def test_a_frozen_copy_is_read_without_a_trace(journal: FileJournal, path: Path) -> None:
    frozen = path.parent / "frozen"
    frozen.mkdir(mode=0o700)
    for name in files(path):
        shutil.copy(path / name, frozen)
    copy = opened(frozen)
    assert (copy.verify(), len(copy.tail()), len(list(copy.show()))) == (3, 3, 3)
    assert [name.name for name in frozen.iterdir()] == ["journal.000001.jsonl"]


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_reading_needs_no_right_to_write(
    journal: FileJournal, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    real = os.open

    def closed(name: str, *args: Any, **kwargs: Any) -> int:
        if name == ".lock":
            raise OSError(code, os.strerror(code))
        return real(name, *args, **kwargs)

    monkeypatch.setattr(os, "open", closed)
    assert (journal.verify(), len(journal.tail()), len(list(journal.show()))) == (3, 3, 3)
    with pytest.raises(JournalUnavailable, match=r"read-only|may not write the journal"):
        journal.record(event())
    with monkeypatch.context() as patch:
        patch.setattr(_folder, "_CLOSED", frozenset[int]())
        with pytest.raises(JournalUnavailable, match=r"read-only|may not read the journal"):
            journal.verify()


def test_a_reader_has_no_key_that_signs(path: Path) -> None:
    pair = SigningKey.generate("ed25519")
    fill(opened(path, keys=Keyring(pair), create=True), 2)
    before = files(path)
    reader = opened(path, keys=Keyring(verify=pair.public))
    assert reader.verify() == 2
    with pytest.raises(KeyRefused, match="only verifies"):
        reader.record(event())
    with pytest.raises(ConfigurationError, match="records an Event, not dict"):
        opened(path, keys=Keyring(pair)).record({})  # type: ignore[arg-type]
    assert files(path) == before


def test_the_key_is_rotated_and_the_chain_goes_on(journal: FileJournal, path: Path) -> None:
    new = SigningKey.generate("ed25519")
    rotated = opened(path, keys=KEYS.rotated(new))
    assert rotated.record(event()).key == new.id
    assert [entry.key for entry in rotated.show()] == [KEY.id] * 3 + [new.id]
    with pytest.raises(JournalBroken, match="not on this keyring"):
        journal.record(event())


# Read


def test_reading_streams(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several MiB are verified in a fraction of that."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    journal = opened(path, create=True, max_bytes=1024 * 1024)
    long = event(detail="x" * 1000)
    for _ in range(3000):
        journal.record(long)
    assert sum(map(len, files(path).values())) > 4 * 1024 * 1024
    for read in (journal.verify, lambda: sum(1 for _ in journal.show()), journal.tail):
        tracemalloc.start()
        read()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1024 * 1024


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 29, 30, 31])
def test_a_tail_of_any_length(path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Over as many windows and files as it takes."""
    monkeypatch.setattr(_walk, "WINDOW", 100)
    monkeypatch.setattr("safepoint.journal.file.WINDOW", 100)
    entries = fill(opened(path, create=True, max_bytes=1500), 30)
    assert opened(path).tail(count) == entries[-count:]


def test_what_is_shown_is_what_was_there_when_the_first_was_asked_for(
    journal: FileJournal,
) -> None:
    shown = journal.show()
    journal.record(event())
    first = next(shown)
    journal.record(event())
    assert [first.number, *(entry.number for entry in shown)] == [1, 2, 3, 4]


def test_who_changed_what_when(path: Path) -> None:
    journal = opened(path, create=True, max_bytes=1000)
    ben = Actor("ben", "login")
    for thread in ("order-7", "order-8", "order-7"):
        journal.record(Event("resume", "done", ben, "invoices", thread))
    journal.record(Event("rotate", "done", ANA, "other"))
    assert [entry.number for entry in journal.show(thread="order-7")] == [1, 3]
    assert [entry.number for entry in journal.show(store="other")] == [4]
    assert [entry.actor for entry in journal.show(what="rotate")] == [ANA]
    assert "is not a thread name" in refusal(InvalidId, lambda: journal.show(thread="/"))


def test_progress_is_told_in_bytes(path: Path) -> None:
    journal = opened(path, create=True, max_bytes=1000)
    fill(journal, 5)
    told: list[tuple[int, int]] = []
    journal.verify(lambda done, total: told.append((done, total)))
    size = sum(map(len, files(path).values()))
    assert told[-1] == (size, size)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert {total for _, total in told} == {size}
