"""A record that is cut short at any instant, that fails at any step, and several at once."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from safepoint import FileAnchor, Keyring, SigningKey
from safepoint.errors import JournalUnavailable
from safepoint.journal import FileJournal
from tests.unit.journal_helpers import event, files, fill, opened

START = """
from safepoint import FileAnchor, Keyring, SigningKey
from safepoint.journal import Actor, Event, FileJournal

KEYS = Keyring(SigningKey(bytes(range(32))))

def event(n=1):
    return Event("save", "intended", Actor("ana", "login"), "invoices", "order-7", n)
"""
KEYS = Keyring(SigningKey(bytes(range(32))))


def python(code: str, *arguments: str) -> str:
    """Run code in a process of its own, with `event` and `KEYS` as above; its output comes back."""
    done = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(code), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# Counts each call into the system, and kills its own process with SIGKILL right after the n-th.
# A write is made of pieces, so that a line is cut in the middle.
EACH_STEP = """
    import fcntl, json, os, signal, sys

    NAMES = ["open", "fchmod", "pwrite", "ftruncate", "fsync", "rename", "write", "unlink"]
    ground, case, last = sys.argv[1], sys.argv[2], 0

    def journal_at(path, create=False):
        anchor = FileAnchor(path + "/anchor", create=create)
        small = 1 if case == "rotated" else 1 << 20
        return FileJournal(path + "/journal", keys=KEYS, anchor=anchor, max_bytes=small,
                           create=create)

    def run(journal, kill_after, log):
        def hook(module, name):
            real = getattr(module, name)
            def step(*args, **kwargs):
                if name == "pwrite":
                    args = (args[0], args[1][:150], *args[2:])
                try:
                    return real(*args, **kwargs)
                finally:
                    log.append(name)
                    if len(log) == kill_after:
                        os.kill(os.getpid(), signal.SIGKILL)
            setattr(module, name, step)
        for name in NAMES:
            hook(os, name)
        hook(fcntl, "flock")
        journal.record(event(9))
        return log

    outcomes = []
    while True:
        last += 1
        path = f"{ground}/{last}"
        os.mkdir(path, 0o700)
        journal = journal_at(path, create=True)
        if case != "first":
            journal.record(event(1))
            journal.record(event(2))
        if case == "torn":
            with open(path + "/journal/journal.000001.jsonl", "ab") as file:
                file.write(b"x" * 2000)
        pid = os.fork()
        if not pid:
            try:
                log = run(journal, last, [])
                with open(f"{ground}/log", "w") as file:
                    json.dump(log, file)
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)
                os._exit(99)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        outcomes.append(code)
        if code != -signal.SIGKILL:
            break
    print(json.dumps(outcomes))
"""


@pytest.mark.parametrize("case", ["first", "same file", "rotated", "torn"])
def test_sigkill_after_each_step(tmp_path: Path, case: str) -> None:
    """The entry is there or not, no alarm is raised, and the next record goes on."""
    outcomes = json.loads(python(EACH_STEP, str(tmp_path), case))
    assert outcomes[-1] == 0
    assert set(outcomes[:-1]) == {-signal.SIGKILL}
    steps = json.loads((tmp_path / "log").read_text())
    assert len(steps) == len(outcomes) - 1
    assert Counter(steps)["pwrite"] >= (6 if case == "torn" else 3)
    before = 0 if case == "first" else 2
    recovered = there = 0
    for killed_after in range(1, len(outcomes) + 1):
        path = tmp_path / str(killed_after)
        anchor = FileAnchor(path / "anchor")
        options: dict[str, Any] = {"keys": KEYS, "anchor": anchor}
        journal = FileJournal(path / "journal", **options)
        found = list(journal.show())
        saved = [entry for entry in found if entry.what == "save"]
        assert [entry.sequence for entry in saved][:before] == list(range(1, before + 1))
        assert [entry.sequence for entry in saved][before:] in ([], [9])
        known = anchor.read("journal", "journal")
        assert len(found) - (known.sequence if known else 0) in (0, 1)
        there += len(saved) > before
        next_one = FileJournal(path / "journal", **options).record(event(10))
        everything = list(journal.show())
        assert everything[-1] == next_one
        assert everything[: len(found)] == found
        added = everything[len(found) : -1]
        assert [entry.what for entry in added] in ([], ["recover"])
        recovered += len(added)
        moved = anchor.read("journal", "journal")
        assert moved is not None
        assert moved.sequence == journal.verify() == len(everything)
    assert recovered >= 2, "some of them died in the middle of a line"
    assert there >= 5, "and some after it"


RANDOM = """
    import os, random, signal, struct, sys, time

    path = sys.argv[1]
    random.seed(7)
    FileAnchor(path + "/anchor", create=True)
    FileJournal(path + "/journal", keys=KEYS, create=True)

    def opened():
        anchor = FileAnchor(path + "/anchor")
        return FileJournal(path + "/journal", keys=KEYS, anchor=anchor, max_bytes=4000)

    told_of, recoveries = 0, 0
    for number in range(60):
        ours, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                journal = opened()
                while True:
                    os.write(theirs, struct.pack(">Q", journal.record(event()).number))
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)
            os._exit(99)
        os.close(theirs)
        told = os.read(ours, 8)
        time.sleep(random.uniform(0, 0.008))
        os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code == -signal.SIGKILL, code
        told += os.read(ours, 1 << 16)
        os.close(ours)
        (acknowledged,) = struct.unpack(">Q", told[-8:])
        count = opened().verify()
        assert acknowledged <= count <= acknowledged + 2, (acknowledged, count)
        told_of = acknowledged
    print(told_of)
"""


def test_60_kills_at_random_instants(tmp_path: Path) -> None:
    """What was acknowledged is there, whole, and the chain has no gap."""
    assert int(python(RANDOM, str(tmp_path))) >= 60


RACE = """
    import os, sys

    path = sys.argv[1]
    anchor = FileAnchor(path + "/anchor", create=True)
    journal = FileJournal(path + "/journal", keys=KEYS, anchor=anchor, create=True)
    ours, theirs = os.pipe()
    children = []
    for writer in range(4):
        pid = os.fork()
        if not pid:
            try:
                os.close(theirs)
                os.read(ours, 1)
                own = FileJournal(path + "/journal", keys=KEYS, anchor=anchor, max_bytes=30_000)
                for number in range(100):
                    own.record(event(writer * 100 + number + 1))
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)
                os._exit(99)
            os._exit(0)
        children.append(pid)
    os.close(ours)
    os.close(theirs)
    seen = []
    while children:
        seen.append(journal.verify())
        seen.append(journal.tail(1)[0].number if seen[-1] else 0)
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) == 0
            children.remove(pid)
    assert seen == sorted(seen), "entries went away"
    found = list(journal.show())
    assert sorted(entry.sequence for entry in found) == list(range(1, 401))
    for writer in range(4):
        own = [e.sequence for e in found if writer * 100 < e.sequence <= writer * 100 + 100]
        assert own == sorted(own), "the entries of one writer are out of order"
    print(len(found), anchor.read("journal", "journal").sequence)
"""


def test_four_processes_write_one_chain(tmp_path: Path) -> None:
    """100 entries each, files that rotate, and a reader that looks on and sees no alarm."""
    assert python(RACE, str(tmp_path)) == "400 400"
    assert len(files(tmp_path / "journal")) > 3


FORK = """
    import os, signal, sys
    from safepoint.anchor import _folder

    journal = FileJournal(sys.argv[1], keys=KEYS, create=True)
    real, children = os.fsync, []

    def fsync(fd):
        pid = os.fork()
        if not pid:
            signal.pause()
        children.append(pid)
        real(fd)

    os.fsync = fsync
    journal.record(event())
    os.fsync = real
    _folder._PATIENCE = 0.1
    journal.record(event())
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    print(journal.verify())
"""


def test_a_child_forked_during_a_record_does_not_keep_the_lock(tmp_path: Path) -> None:
    assert python(FORK, str(tmp_path / "journal")) == "2"


# Failing steps


def fail(
    monkeypatch: pytest.MonkeyPatch, name: str, code: int, on: int = 1, *, times: int = 1
) -> list[str]:
    """Let the n-th call of a function of `os` fail, and `times` of them in a row."""
    real, seen = getattr(os, name), []

    def failing(*args: Any, **kwargs: Any) -> Any:
        seen.append(name)
        if on <= len(seen) < on + times:
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, failing)
    return seen


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


STEPS = {
    "the folder": ("open", errno.EACCES, 1),
    "the lock": ("open", errno.ENOSPC, 2),
    "the bytes": ("pwrite", errno.ENOSPC, 1),
    "the sync": ("fsync", errno.EIO, 1),
}
ROTATING = {
    "making the file": ("open", errno.ENOSPC, 6),
    "its mode": ("fchmod", errno.EPERM, 1),
    "the sync of the folder": ("fsync", errno.EIO, 2),
}
MEANS = {
    errno.ENOSPC: "There is no room left for {} (ENOSPC). Free some space, or raise the quota or"
    " the file size limit, and try again.",
    errno.EPERM: "This process may not write the journal in {0}. Run: chmod -R u+rwX {0}",
    errno.EACCES: "This process may not write the journal in {0}. Run: chmod -R u+rwX {0}",
    errno.EIO: "The system could not write the journal in {} (EIO). Look at the system's log for"
    " the cause before you try again.",
}


@pytest.mark.parametrize(
    ("max_bytes", "name", "code", "on"),
    [
        *((size, *step) for size in (1 << 20, 1) for step in STEPS.values()),
        *((1, *step) for step in ROTATING.values()),
    ],
    ids=[*STEPS, *(f"{step}, of a new file" for step in STEPS), *ROTATING],
)
def test_a_step_that_fails_leaves_the_files_as_before(
    path: Path, monkeypatch: pytest.MonkeyPatch, max_bytes: int, name: str, code: int, on: int
) -> None:
    journal = opened(path, create=True, max_bytes=max_bytes)
    fill(journal, 2)
    before = files(path)
    with monkeypatch.context() as patch:
        seen = fail(patch, name, code, on)
        with pytest.raises(JournalUnavailable) as caught:
            journal.record(event())
        assert len(seen) >= on
    assert str(caught.value) == MEANS[code].format(path)
    assert files(path) == before
    assert journal.record(event()).number == 3
    assert opened(path).verify() == 3


@pytest.mark.parametrize(
    ("name", "on"), [("pwrite", 1), ("pwrite", 2), ("ftruncate", 1), ("fsync", 1)]
)
def test_a_recovery_that_fails_leaves_what_was_torn(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, on: int
) -> None:
    fill(opened(path, create=True), 2)
    with (path / "journal.000001.jsonl").open("ab") as stream:
        stream.write(b"x" * 2000)
    before = files(path)
    journal = opened(path)
    real = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:200], at))
        fail(patch, name, errno.EIO, on)
        with pytest.raises(JournalUnavailable, match="EIO"):
            journal.record(event())
    assert files(path) == before
    assert journal.record(event()).number == 4
    assert journal.tail(2)[0].detail == "2000 bytes of an unfinished line were dropped."


def test_a_disk_that_fills_up_in_the_middle_of_a_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(path, create=True)
    fill(journal, 2)
    before = files(path)
    real = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:100], at))
        fail(patch, "pwrite", errno.ENOSPC, 3)
        with pytest.raises(JournalUnavailable, match="ENOSPC"):
            journal.record(event())
    assert files(path) == before
    assert journal.record(event()).number == 3


def test_a_write_of_nothing_is_a_failure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = opened(path, create=True)
    before = files(path)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(JournalUnavailable, match="EIO"):
        journal.record(event())
    assert files(path) == before


def test_a_disk_that_neither_confirms_nor_takes_back_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one that records finds out what is there."""
    journal = opened(path, create=True)
    fill(journal, 2)
    with monkeypatch.context() as patch:
        fail(patch, "fsync", errno.EIO)
        fail(patch, "ftruncate", errno.EIO)
        with pytest.raises(JournalUnavailable) as caught:
            journal.record(event())
    assert str(caught.value) == (
        f"A line was written to {path}/journal.000001.jsonl, and the disk neither confirmed it nor"
        " let it go. Nothing was done. Look at the system's log, and take a copy of the journal,"
        " before you go on."
    )
    assert journal.record(event()).number == 4


LIMITED = """
    import resource, sys
    from safepoint.errors import JournalUnavailable

    journal = FileJournal(sys.argv[1], keys=KEYS)
    size = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        journal.record(event())
    except JournalUnavailable as refusal:
        print(refusal)
"""


@pytest.mark.parametrize("room", [0, 1, 200])
def test_a_limit_of_the_system_on_the_size_of_a_file(path: Path, room: int) -> None:
    assert resource.RLIMIT_FSIZE
    journal = FileJournal(path, keys=KEYS, create=True)
    fill(journal, 2)
    before = files(path)
    size = sum(map(len, before.values()))
    assert python(LIMITED, str(path), str(size + room)) == (
        f"There is no room left for {path} (EFBIG). Free some space, or raise the quota or the"
        " file size limit, and try again."
    )
    assert files(path) == before
    assert journal.record(event()).number == 3


@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupt_from_the_keyboard_leaves_the_files_as_before(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    journal = opened(path, create=True, max_bytes=1)
    fill(journal, 2)
    before = files(path)
    real, seen = os.fsync, []

    def fsync(fd: int) -> None:
        seen.append(fd)
        real(fd)
        if len(seen) == number:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(KeyboardInterrupt):
            journal.record(event())
    assert files(path) == before
    assert journal.record(event()).number == 3


@pytest.mark.parametrize(("name", "on"), [("fchmod", 1), ("fchmod", 2), ("fsync", 1), ("fsync", 2)])
def test_a_journal_whose_beginning_fails_can_be_begun_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, on: int
) -> None:
    with monkeypatch.context() as patch:
        fail(patch, name, errno.EIO, on)
        with pytest.raises(JournalUnavailable, match="could not open the journal in"):
            opened(path, create=True)
    assert opened(path, create=True).record(event()).number == 1


def test_each_step_is_on_disk_before_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes, then the folder that holds the name of a new file, then the anchor."""
    anchor = FileAnchor(path.parent / "anchor", create=True)
    journal = opened(path, create=True, max_bytes=1, anchor=anchor)
    journal.record(event())
    log: list[str] = []

    def watch(name: str) -> None:
        real = getattr(os, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            folder = os.fstat(args[0]).st_mode & 0o040000 if name == "fsync" else 0
            log.append("fsync of the folder" if folder else name)
            return result

        monkeypatch.setattr(os, name, step)

    for name in ("pwrite", "fsync", "rename"):
        watch(name)
    journal.record(event())
    assert log == [
        "pwrite",
        "fsync",
        "fsync of the folder",
        "fsync",
        "rename",
        "fsync of the folder",
    ]
