"""SIGKILL, and a log that ends anywhere: what was acknowledged is there, and nothing is half."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from safepoint import SQLiteCheckpointStorage
from tests.unit.killed import kill_after_each_step
from tests.unit.storage_helpers import tree
from tests.unit.tampered import THREAD, opened

# Saves through a ledger, and says the number of each checkpoint once it is saved.
WORKER = """
    import os, sys
    from safepoint import SQLiteCheckpointStorage
    from tests.unit.tampered import THREAD, opened

    ledger = opened(SQLiteCheckpointStorage(sys.argv[1]))
    while True:
        saved = ledger.save(THREAD, {"n": 0, "filler": "x" * (os.getpid() % 7) * 900})
        os.write(1, b"%d\\n" % saved.sequence)
"""


def kill_while_it_saves(path: Path, after: int) -> int:
    """Kill a worker right after it said so many times that it saved; return what it said last."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WORKER), str(path)], stdout=subprocess.PIPE
    ) as worker:
        assert worker.stdout is not None
        lines = [worker.stdout.readline() for _ in range(after)]
        worker.kill()
        lines += worker.stdout.read().splitlines(keepends=True)
        assert worker.wait() == -signal.SIGKILL
    return int([line for line in lines if line.endswith(b"\n")][-1])


def test_sigkill_while_it_saves(tmp_path: Path) -> None:
    """Ten workers, one after the other, on one database: to open it needs nothing."""
    path = tmp_path / "state/checkpoints.db"
    for after in (1, 2, 3, 7, 11, 18, 25, 31, 44, 58):
        told = kill_while_it_saves(path, after)
        with SQLiteCheckpointStorage(path) as storage:
            head = storage.head(THREAD)
            assert told <= head <= told + 1, "at most the one that it could not tell any more"
            assert opened(storage).verify(THREAD) == head
        assert tree(path.parent) == [path.name, f"{path.name}-lock"]


def test_a_log_that_ends_anywhere(tmp_path: Path) -> None:
    """Of what is left there is all up to some record, which verifies, and nothing of the next."""
    path = tmp_path / "state/checkpoints.db"
    told = kill_while_it_saves(path, 12)
    log = Path(f"{path}-wal").read_bytes()
    # A frame is a page and 24 bytes; the log begins with 32.
    edges = {32 + frame * 4120 + near for frame in range(10) for near in (-1, 0, 1, 24, 25)}
    chosen = {*edges, 0, 1, *range(0, len(log), len(log) // 41), len(log)}
    heads = []
    for number, size in enumerate(sorted(size for size in chosen if 0 <= size <= len(log))):
        copy = tmp_path / f"copy-{number}"
        copy.mkdir(mode=0o700)
        shutil.copy(path, copy)
        torn = copy / f"{path.name}-wal"
        torn.touch(0o600)
        torn.write_bytes(log[:size])
        with SQLiteCheckpointStorage(copy / path.name) as storage:
            ledger = opened(storage)
            head = storage.head(THREAD)
            if head:
                assert ledger.verify(THREAD) == head
            assert ledger.save(THREAD, {"n": "goes on"}).sequence == head + 1
        heads.append(head)
    assert heads == sorted(heads), "a longer log never has less"
    assert heads[0] < 3
    assert len(set(heads)) > 5
    assert told <= heads[-1] <= told + 1


@pytest.mark.parametrize("byte", [0.1, 0.5, 0.9])
def test_a_log_with_a_wrong_byte_ends_there(tmp_path: Path, byte: float) -> None:
    path = tmp_path / "state/checkpoints.db"
    told = kill_while_it_saves(path, 12)
    file = Path(f"{path}-wal")
    log = bytearray(file.read_bytes())
    log[int(len(log) * byte)] ^= 0x40
    file.write_bytes(log)
    with SQLiteCheckpointStorage(path) as storage:
        head = storage.head(THREAD)
        assert head <= told
        if head:
            assert opened(storage).verify(THREAD) == head


def first_save(folder: Path) -> None:
    """Make a database and save to it."""
    with SQLiteCheckpointStorage(folder / "state/checkpoints.db") as storage:
        storage.append("a", 1, b"one")


def test_sigkill_after_each_step_that_makes_a_database(tmp_path: Path) -> None:
    """Whoever comes next finds a folder, an empty file or a database, and goes on from there."""
    prepared, ground = tmp_path / "prepared", tmp_path / "ground"
    prepared.mkdir(mode=0o700)
    ground.mkdir(mode=0o700)
    steps, copies = kill_after_each_step(first_save, prepared, ground)
    assert steps[:4] == ["mkdir", "fchmod", "open", "fchmod"]
    for copy in copies:
        with SQLiteCheckpointStorage(copy / "state/checkpoints.db") as storage:
            if not storage.head("a"):
                storage.append("a", 1, b"one")
            assert storage.read("a", 1) == b"one"
    assert SQLiteCheckpointStorage(copies[-1] / "state/checkpoints.db").head("a") == 1
