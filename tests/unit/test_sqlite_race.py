"""Several processes on one database: each place once, one owner at a time."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from safepoint import CheckpointError, SQLiteCheckpointStorage
from safepoint.storage import FileCheckpointStorage, InMemoryCheckpointStorage
from tests.unit.storage_helpers import python

# Runs `work(storage, number)` in eight processes that begin at once; prints what each returned.
DRIVER = """
    import json, os, sys
    from datetime import UTC, datetime, timedelta
    from safepoint import SQLiteCheckpointStorage
    from safepoint.errors import CheckpointError, Conflict, NotOwner

    path, workers = sys.argv[1], 8
    go, told = os.pipe(), os.pipe()

    def run(work):
        children = []
        for number in range(workers):
            pid = os.fork()
            if not pid:
                try:
                    os.close(go[1])
                    os.read(go[0], 1)
                    with SQLiteCheckpointStorage(path, wait_seconds=60) as storage:
                        found = work(storage, number)
                    with open(f"{path}.{number}", "w") as file:
                        json.dump(found, file)
                    os._exit(0)
                except BaseException as error:
                    sys.excepthook(type(error), error, error.__traceback__)
                    os._exit(99)
            children.append(pid)
        os.close(go[1])
        for pid in children:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        print(json.dumps([json.load(open(f"{path}.{number}")) for number in range(workers)]))
"""
FREE = """
    def work(storage, number):
        won = []
        while len(won) < 20:
            sequence = storage.head("t") + 1
            try:
                storage.append("t", sequence, b"%d" % number)
                won.append(sequence)
            except Conflict:
                pass
        return won
    run(work)
"""
SAME = """
    def work(storage, number):
        won = []
        for sequence in range(1, 61):
            try:
                storage.append("t", sequence, b"%d" % number)
                won.append(sequence)
            except Conflict:
                pass
        return won
    run(work)
"""
FENCED = """
    def work(storage, number):
        start = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
        log, stopped = [], 0
        for move in range(12):
            lease = storage.lease("t")
            now = start if lease is None else lease.expires
            try:
                lease = storage.acquire_at_time("t", f"worker-{number}", 60, now)
            except NotOwner:
                continue
            at, saved = storage.head("t"), 0
            try:
                while saved < 4:
                    try:
                        head = storage.head("t")
                        storage.append("t", head + 1, b"%d" % lease.token, fence=lease.token)
                        saved += 1
                    except Conflict:
                        pass
            except NotOwner:
                stopped += 1
            log.append([lease.token, at, saved])
        return [log, stopped]
    run(work)
"""
OPENING = """
    def work(storage, number):
        storage.append(f"t{number}", 1, b"one")
        return [storage.head(f"t{number}")]
    run(work)
"""


def test_8_processes_save_to_one_thread(tmp_path: Path) -> None:
    """Without leases: no place twice, none left out, and each record is of whoever was told so."""
    path = tmp_path / "state/checkpoints.db"
    SQLiteCheckpointStorage(path).close()
    won = json.loads(python(DRIVER + FREE, str(path)))
    places = {sequence: number for number, each in enumerate(won) for sequence in each}
    assert sorted(places) == list(range(1, 161))
    assert sum(map(len, won)) == 160
    with SQLiteCheckpointStorage(path) as storage:
        records = [int(record) for record in storage.scan("t", 1, 160)]
    assert records == [places[sequence] for sequence in range(1, 161)]


def test_8_processes_want_the_same_places(tmp_path: Path) -> None:
    """Each place has one winner, and the others are told."""
    path = tmp_path / "state/checkpoints.db"
    SQLiteCheckpointStorage(path).close()
    won = json.loads(python(DRIVER + SAME, str(path)))
    assert Counter(place for each in won for place in each) == Counter(range(1, 61))


def test_8_processes_take_a_thread_from_each_other(tmp_path: Path) -> None:
    """With fences: nothing of a former owner appears after the next one got its token."""
    path = tmp_path / "state/checkpoints.db"
    SQLiteCheckpointStorage(path).close()
    told = json.loads(python(DRIVER + FENCED, str(path)))
    logs = [each for log, _ in told for each in log]
    tokens = sorted(token for token, *_ in logs)
    assert tokens == list(range(1, len(tokens) + 1)), "each token once"
    with SQLiteCheckpointStorage(path) as storage:
        written = [int(record) for record in storage.scan("t", 1, storage.head("t"))]
    assert written == sorted(written), "the owners one after the other"
    for token, at, saved in logs:
        assert written.count(token) == saved, "what was acknowledged, and nothing else"
        assert all(each >= token for each in written[at:])
    assert sum(stopped for _, stopped in told) > 0, "it was a race"


def test_8_processes_make_the_database_at_once(tmp_path: Path) -> None:
    path = tmp_path / "state/checkpoints.db"
    path.parent.mkdir(mode=0o700)
    assert json.loads(python(DRIVER + OPENING, str(path))) == [[1]] * 8
    with SQLiteCheckpointStorage(path) as storage:
        assert len(storage.threads()) == 8
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_lease_is_kept_as_in_the_other_storages(tmp_path: Path) -> None:
    """Step by step the same answers, the same refusals and the same tokens."""
    start = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)

    def play(storage: Any) -> list[str]:
        told: list[str] = []

        def note(act: Callable[[], object]) -> None:
            try:
                told.append(str(act()))
            except CheckpointError as error:
                told.append(f"{type(error).__name__}: {error}")

        note(lambda: storage.lease("t"))
        first = storage.acquire_at_time("t", "a", 60, start)
        note(lambda: first)
        note(lambda: storage.acquire_at_time("t", "b", 60, start))
        note(lambda: storage.append("t", 1, b"one"))
        note(lambda: storage.append("t", 1, b"one", fence=1))
        note(lambda: storage.renew_at_time(first, 30, start + timedelta(seconds=50)))
        note(lambda: storage.acquire_at_time("t", "b", 60, start + timedelta(seconds=79)))
        second = storage.acquire_at_time("t", "b", 60, start + timedelta(seconds=80))
        note(lambda: storage.append("t", 2, b"two", fence=1))
        note(lambda: storage.renew_at_time(first, 30, start))
        note(lambda: storage.release(first))
        note(lambda: storage.append("t", 2, b"two", fence=second.token))
        note(lambda: storage.release(second))
        note(lambda: storage.release(second))
        note(lambda: storage.append("t", 3, b"three", fence=2))
        note(lambda: storage.append("t", 3, b"three"))
        note(lambda: storage.acquire_at_time("t", "b", 60, start))
        note(lambda: storage.acquire_at_time("t", "b", 60, start))
        note(lambda: storage.lease("t"))
        note(lambda: (storage.threads(), storage.head("t"), storage.head("u")))
        return told

    memory = play(InMemoryCheckpointStorage())
    with SQLiteCheckpointStorage(tmp_path / "state/checkpoints.db") as storage:
        assert play(storage) == memory
    assert play(FileCheckpointStorage(tmp_path / "files")) == memory
    assert sum("NotOwner" in each for each in memory) == 7


def test_a_thread_that_is_only_owned_is_not_listed(tmp_path: Path) -> None:
    with SQLiteCheckpointStorage(tmp_path / "state/checkpoints.db") as storage:
        lease = storage.acquire("t", "worker", 60)
        assert (storage.threads(), storage.head("t")) == ([], 0)
        storage.append("t", 5, b"begins at 5", fence=lease.token)
        assert (storage.threads(), storage.head("t")) == (["t"], 5)
