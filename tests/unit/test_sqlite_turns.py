"""Turns: who writes often does not keep others out, and who does not write keeps nothing."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from safepoint import SQLiteCheckpointStorage
from safepoint import _files as _posix
from safepoint.errors import Conflict, StorageUnavailable
from safepoint.storage._sqlite import turns
from tests.unit.interrupts import Late, interrupt_at
from tests.unit.storage_helpers import descriptors

pytestmark = pytest.mark.skipif(not _posix.SUPPORTED, reason="there is no such lock elsewhere")

SAVE_ONCE = """
storage.append("other", 1, b"one")
print("ready", flush=True)
sys.stdin.read()
"""
SAVE_ON_AND_ON = """
sequence = 0
while True:
    sequence += 1
    storage.append(f"other{os.getpid()}", sequence, b"")
    if sequence == 1:
        print("ready", flush=True)
"""
STAY_IN_A_TURN = """
with storage._database.writing() as connection:
    connection.execute(
        "INSERT INTO checkpoints (thread, sequence, record) VALUES ('other', 1, x'')"
    )
    print("ready", flush=True)
    sys.stdin.read()
"""
HOLD = """
def hold():
    with storage._database._turns.turn(60):
        held.set()
        threading.Event().wait()

held = threading.Event()
"""
LEAVE_A_CHILD_IN_A_TURN = f"""{HOLD}
threading.Thread(target=hold, daemon=True).start()
held.wait()
if not os.fork():
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)
threading.Event().wait()
"""
LEAVE_A_CHILD_IN_THE_QUEUE = f"""{HOLD}
import contextlib, fcntl, time
from safepoint.errors import StorageUnavailable
from safepoint.storage._sqlite.turns import _Waiter

lock = os.open(sys.argv[1] + "-lock", os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
for _ in range(given_up):
    with contextlib.suppress(StorageUnavailable):
        storage._database._turns.turn(0.05).__enter__()
threading.Thread(target=hold, daemon=True).start()
while _Waiter.wait.__code__ not in [each.f_code for each in sys._current_frames().values()]:
    time.sleep(0.001)
child = os.fork()
os.close(lock)
if not child:
    sys.stdin.read()
    os._exit(0)
held.wait()
print("ready", flush=True)
threading.Event().wait()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/checkpoints.db"


@contextmanager
def another(path: Path, work: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process that works on the database, as soon as it is ready; kill it at the end."""
    script = (
        "import os, sys, threading; from safepoint import SQLiteCheckpointStorage;"
        f"storage = SQLiteCheckpointStorage(sys.argv[1], wait_seconds=60)\n{work}"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def is_free(path: Path) -> bool:
    lock = os.open(f"{path}-lock", os.O_RDWR)
    try:
        return _posix.try_lock(lock)
    finally:
        os.close(lock)


def test_nobody_has_a_turn_between_two_saves(path: Path) -> None:
    with SQLiteCheckpointStorage(path) as storage:
        for sequence in range(1, 6):
            storage.append("a", sequence, b"")
            assert is_free(path)
        with pytest.raises(Conflict):
            storage.append("a", 1, b"")
        assert is_free(path)


def test_a_process_that_was_stopped_after_a_save_keeps_nobody_waiting(path: Path) -> None:
    with another(path, SAVE_ONCE) as other:
        other.send_signal(signal.SIGSTOP)
        with SQLiteCheckpointStorage(path) as storage:
            storage.append("a", 1, b"one")
            assert (storage.head("a"), storage.head("other")) == (1, 1)


def test_the_turn_of_a_process_that_was_killed_is_free(path: Path) -> None:
    """What it had begun is undone."""
    with (
        SQLiteCheckpointStorage(path, wait_seconds=0.05) as hasty,
        SQLiteCheckpointStorage(path, wait_seconds=60) as storage,
        another(path, STAY_IN_A_TURN) as other,
    ):
        with pytest.raises(StorageUnavailable):
            hasty.append("a", 1, b"one")
        other.kill()
        other.wait()
        storage.append("a", 1, b"one")
        assert (storage.head("a"), storage.head("other")) == (1, 0)


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(LEAVE_A_CHILD_IN_A_TURN, id="in a turn"),
        pytest.param(f"given_up = 0\n{LEAVE_A_CHILD_IN_THE_QUEUE}", id="in the queue"),
        pytest.param(f"given_up = 1\n{LEAVE_A_CHILD_IN_THE_QUEUE}", id="in a place that was left"),
    ],
)
def test_a_child_does_not_keep_the_turn_of_a_parent_that_was_killed(path: Path, work: str) -> None:
    """Wherever the parent was when it forked: the child has none of its open files."""
    with (
        SQLiteCheckpointStorage(path, wait_seconds=0.05) as hasty,
        SQLiteCheckpointStorage(path, wait_seconds=60) as storage,
        another(path, work) as other,
    ):
        with pytest.raises(StorageUnavailable):
            hasty.append("a", 1, b"one")
        other.kill()
        other.wait()
        storage.append("a", 1, b"one")
        assert storage.head("a") == 1


def test_processes_that_save_on_and_on_keep_nobody_out(path: Path) -> None:
    with (
        SQLiteCheckpointStorage(path, wait_seconds=60) as storage,
        another(path, SAVE_ON_AND_ON) as first,
        another(path, SAVE_ON_AND_ON) as second,
    ):
        for sequence in range(1, 31):
            storage.append("a", sequence, b"")
        assert (first.poll(), second.poll()) == (None, None)
        assert storage.head("a") == 30


def test_who_never_finds_the_lock_free_gets_its_turn_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking is given up after a moment. In the queue, who comes later is behind."""
    with (
        SQLiteCheckpointStorage(path, wait_seconds=60) as storage,
        another(path, SAVE_ON_AND_ON),
    ):
        monkeypatch.setattr(_posix, "try_lock", lambda fd: False)
        for sequence in range(1, 4):
            storage.append("a", sequence, b"")
        assert storage.head("a") == 3


def test_asking_ends_when_the_time_is_over(path: Path) -> None:
    with SQLiteCheckpointStorage(path, wait_seconds=0.001) as storage:
        lock = os.open(f"{path}-lock", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StorageUnavailable) as caught:
            storage.append("a", 1, b"one")
        assert str(caught.value).startswith(
            f"Another program has held {path}-lock for 0.001 s. Nothing was saved."
        )
        os.close(lock)


def test_the_file_is_opened_once_and_closed_at_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real, opened = descriptors(), os.open, list[str]()

    def noted(name: str, *rest: int, **named: int) -> int:
        opened.append(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(os, "open", noted)
    with SQLiteCheckpointStorage(path) as storage:
        for sequence in range(1, 4):
            storage.append("a", sequence, b"")
    assert opened.count(f"{path}-lock") == 1
    assert descriptors() == before


def test_a_storage_that_is_closed_during_a_turn_closes_the_file_after_it(path: Path) -> None:
    before = descriptors()
    storage = SQLiteCheckpointStorage(path)
    ours = storage._database._turns
    taken, closed = threading.Event(), threading.Event()

    def work() -> None:
        with ours.turn(60):
            taken.set()
            closed.wait()

    thread = threading.Thread(target=work)
    thread.start()
    taken.wait()
    storage.close()
    assert not is_free(path), "the turn is not over"
    closed.set()
    thread.join()
    assert descriptors() == before
    with pytest.raises(StorageUnavailable, match="was closed"):
        storage.append("a", 1, b"one")
    assert descriptors() == before


def test_a_lock_that_was_replaced_is_left_for_the_new_one(path: Path) -> None:
    """Or those who came before and after would be in two queues."""
    lock = Path(f"{path}-lock")
    with SQLiteCheckpointStorage(path, wait_seconds=0.05) as storage:
        storage.append("a", 1, b"one")
        before = descriptors()
        lock.rename(f"{path}-old")
        lock.touch(0o600)
        held = os.open(lock, os.O_RDWR)
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StorageUnavailable):
            storage.append("a", 2, b"two")
        os.close(held)
        storage._database.seconds = 60
        storage.append("a", 2, b"two")
        assert descriptors() == before


# A file that was opened a moment ago and has no name yet is closed by Python, with this warning.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("left", [False, True], ids=["anew", "in a place that was left"])
def test_a_handler_that_raises_anywhere_in_the_queue_leaves_no_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    """Python runs the handler of a signal after a call and where a function begins: at each."""

    monkeypatch.setattr(turns, "_ASKING", 0)
    with SQLiteCheckpointStorage(path, wait_seconds=60) as other:
        other.append("a", 1, b"")
        number, traced, ended = 0, sys.gettrace(), False
        while not ended:
            queue = turns.Turns(f"{path}-lock")
            lock = os.open(f"{path}-lock", os.O_RDWR)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if left:
                with pytest.raises(StorageUnavailable):
                    queue.turn(0.01).__enter__()
            turn = queue.turn(0.01)
            try:
                sys.settrace(interrupt_at(turns, number))
                turn.__enter__()
            except Late:
                pass
            except StorageUnavailable:
                ended = True
            finally:
                sys.settrace(traced)
            os.close(lock)
            other.append("a", number + 2, b"")
            queue.close()
            number += 1
        assert number > 20
