"""SQLiteCheckpointStorage does what the other storages do, in their words."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from safepoint import Limits, SQLiteCheckpointStorage
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    EncodeError,
    InvalidId,
    LimitExceeded,
    NotFound,
    RecordMalformed,
    RecordsMissing,
    StorageUnavailable,
)
from safepoint.storage import InMemoryCheckpointStorage
from safepoint.storage._sqlite import database, scanning, statements

AGAIN = "Nothing was overwritten. Load the latest checkpoint and decide again from there."


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/checkpoints.db"


@pytest.fixture
def storage(path: Path) -> Iterator[SQLiteCheckpointStorage]:
    with SQLiteCheckpointStorage(path) as opened:
        yield opened


def said(error: type[CheckpointError], act: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        act()
    assert type(caught.value) is error
    return str(caught.value)


def fill(storage: Any, last: int, thread: str = "a", first: int = 1) -> None:
    for sequence in range(first, last + 1):
        storage.append(thread, sequence, b"record %d" % sequence)


def test_what_was_appended_is_read_back_by_whoever_opens_it_next(path: Path) -> None:
    with SQLiteCheckpointStorage(path) as storage:
        fill(storage, 3)
        buffer: Any = bytearray(b"begins at 7")
        storage.append("b", 7, buffer)
        buffer[:] = b"used again."
        assert storage.head("a") == 3
    with SQLiteCheckpointStorage(str(path)) as storage:
        assert list(storage.scan("a", 1, 3)) == [b"record 1", b"record 2", b"record 3"]
        assert list(storage.scan("a", 3, 2)) == [b"record 3", b"record 2"]
        assert storage.read("b", 7) == b"begins at 7"
        assert sorted(storage.threads()) == ["a", "b"]
        assert (storage.head("b"), storage.head("c")) == (7, 0)
        assert storage.base("a") is None


def test_it_says_where_it_is(storage: SQLiteCheckpointStorage, path: Path) -> None:
    assert storage.path == path
    assert repr(storage) == f"SQLiteCheckpointStorage('{path}')"


def test_each_refusal_has_the_words_of_the_storage_in_memory(
    storage: SQLiteCheckpointStorage,
) -> None:
    """For what both refuse, and with the same type."""
    memory = InMemoryCheckpointStorage()
    acts: list[Callable[[Any], object]] = [
        lambda s: s.append("a", 9, b"again"),
        lambda s: s.append("a", 3, b"below the base"),
        lambda s: s.append("a", 10, b"", fence=7),
        lambda s: s.append("a", 10, b"", fence=0),
        lambda s: s.append("a", 10, "text"),
        lambda s: s.append("A", 10, b""),
        lambda s: s.append("a", True, b""),
        lambda s: s.read("a", 3),
        lambda s: s.read("a", 10),
        lambda s: s.read("b", 1),
        lambda s: s.read("b", 0),
        lambda s: s.head("../a"),
        lambda s: s.base("-"),
        lambda s: s.prune("a", 10, b"base"),
        lambda s: s.prune("b", 1, b"base"),
        lambda s: s.prune("a", 9, "base"),
        lambda s: list(s.scan("a", 9, 1)),
        lambda s: list(s.scan("a", 9, 11)),
        lambda s: s.scan("a", 0, 1),
        lambda s: s.lease("a/b"),
        lambda s: s.acquire("a", "worker", 0),
        lambda s: s.release("lease"),
    ]
    for each in (storage, memory):
        fill(each, 9)
        assert each.prune("a", 5, b"base") == 4
        assert each.prune("a", 4, b"an older one") == 0
        assert each.base("a") == (5, b"base")
    for act in acts:
        with pytest.raises(CheckpointError) as theirs:
            act(memory)
        assert said(type(theirs.value), partial(act, storage)) == str(theirs.value)


def test_a_record_that_does_not_follow_is_refused(storage: SQLiteCheckpointStorage) -> None:
    """An empty thread may begin anywhere, as a copy of a pruned one does."""
    fill(storage, 6, first=5)
    assert said(RecordsMissing, lambda: storage.append("a", 8, b"")) == (
        "Thread 'a' is at checkpoint 6, so 8 does not follow."
        " Nothing was saved. Load the latest checkpoint and decide again from there."
    )
    assert said(Conflict, lambda: storage.append("a", 6, b"")) == (
        f"Thread 'a' already has a checkpoint 6. {AGAIN}"
    )
    fill(storage, 7, first=7)
    assert storage.head("a") == 7


def test_prune_forgets_and_writes_it_down(storage: SQLiteCheckpointStorage, path: Path) -> None:
    fill(storage, 9)
    assert storage.prune("a", 4, b"base 4") == 3
    assert storage.prune("a", 4, b"sealed anew") == 0
    assert storage.prune("a", 4, b"sealed anew") == 0
    assert storage.prune("a", 2, b"too late") == 0
    assert storage.base("a") == (4, b"sealed anew")
    assert storage.prune("a", 9, b"base 9") == 5
    assert said(Conflict, lambda: storage.append("a", 8, b"")) == (
        f"Thread 'a' had a checkpoint 8, and begins at 9 by now. {AGAIN}"
    )
    with closing(sqlite3.connect(path)) as other:
        rows = other.execute("SELECT number, thread, first, removed FROM prunings").fetchall()
        [(when,)] = other.execute("SELECT pruned FROM prunings WHERE number = 1").fetchall()
    assert rows == [(1, "a", 4, 3), (2, "a", 4, 0), (3, "a", 9, 5)]
    assert len(when) == len("2026-01-31T09:30:00.000Z")


def test_what_was_pruned_is_nowhere_in_the_files(path: Path) -> None:
    canary = b"canary" * 700
    with SQLiteCheckpointStorage(path) as storage:
        for sequence in range(1, 5):
            storage.append("a", sequence, b"%d" % sequence + canary)
        storage.prune("a", 4, b"base")
        assert canaries(path) == [0, 0, 0, 1], "while it is open"
    assert canaries(path) == [0, 0, 0, 1]


def canaries(path: Path) -> list[int]:
    left = b"".join(file.read_bytes() for file in path.parent.iterdir())
    return [left.count(b"%dcanary" % number) for number in (1, 2, 3, 4)]


def test_a_reader_keeps_what_was_pruned_in_the_log_until_the_next_time(path: Path) -> None:
    """It is pruned all the same, and nobody waits long for the reader."""
    with SQLiteCheckpointStorage(path, wait_seconds=30) as storage:
        for sequence in range(1, 5):
            storage.append("a", sequence, b"%dcanary" % sequence)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM threads").fetchall()
            assert storage.prune("a", 4, b"base") == 3
            assert said(NotFound, lambda: storage.read("a", 3)).startswith("Checkpoint 3 ")
            assert all(canaries(path))
            reader.execute("COMMIT")
        writes = storage._database._writes.connection
        assert writes is not None
        assert writes.execute("PRAGMA busy_timeout").fetchone() == (30_000,)
        assert storage.prune("a", 4, b"base") == 0
        assert canaries(path) == [0, 0, 0, 1]


def test_a_log_that_cannot_be_emptied_is_no_failure(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(database, "empty_log", fails)
    with SQLiteCheckpointStorage(path) as storage:
        fill(storage, 3)
        assert storage.prune("a", 3, b"base") == 2
        fill(storage, 4, first=4)
        assert (storage.head("a"), storage.base("a")) == (4, (3, b"base"))


def test_a_record_over_the_limit_is_neither_kept_nor_read(path: Path) -> None:
    small = Limits(state_bytes=1000)
    message = (
        "The record has {} bytes or more, and the limit is 5096. Keep large data outside the state,"
        " or pass Limits(state_bytes=...) with a higher limit."
    )
    with SQLiteCheckpointStorage(path) as large, SQLiteCheckpointStorage(path, limits=small) as it:
        it.append("a", 1, bytes(5096))
        large.append("a", 2, bytes(5097))
        assert it.read("a", 1) == bytes(5096)
        for act in (
            lambda: it.append("a", 3, bytes(5097)),
            lambda: it.prune("a", 1, bytes(5097)),
            lambda: it.read("a", 2),
            lambda: list(it.scan("a", 1, 2)),
        ):
            assert said(LimitExceeded, act) == message.format(5097)
        large.prune("a", 2, bytes(5098))
        assert said(LimitExceeded, lambda: it.base("a")) == message.format(5098)


@pytest.mark.parametrize("seconds", [0, -1, True, "5", None, float("nan"), 86_401])
def test_seconds_that_nobody_can_wait_are_refused(path: Path, seconds: Any) -> None:
    assert said(
        ConfigurationError, lambda: SQLiteCheckpointStorage(path, wait_seconds=seconds)
    ) == (
        f"wait_seconds is {seconds!r}, and must be a number above 0 and up to 86400."
        " Write wait_seconds=5.0, or leave it out."
    )
    assert not path.parent.exists()


def test_limits_are_limits(path: Path) -> None:
    wrong: Any = 5
    assert said(ConfigurationError, lambda: SQLiteCheckpointStorage(path, limits=wrong)) == (
        "SQLiteCheckpointStorage takes limits, and was given int."
        " Write limits=Limits(state_bytes=...), or leave it out."
    )


def test_a_scan_holds_nothing_between_two_records(
    storage: SQLiteCheckpointStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stops half-way keeps nobody from emptying the log. It reads on in small chunks."""
    monkeypatch.setattr(scanning, "_RECORDS", 4)
    fill(storage, 10)
    scan = storage.scan("a", 1, 10)
    assert next(scan) == b"record 1"
    storage.append("a", 11, b"meanwhile")
    with closing(sqlite3.connect(path)) as other:
        busy, in_log, moved = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert (busy, in_log, moved) == (0, 0, 0)
    assert list(scan) == [b"record %d" % number for number in range(2, 11)]
    down = [b"record %d" % number for number in range(10, 0, -1)]
    assert list(storage.scan("a", 10, 1)) == down


def test_a_scan_reads_a_megabyte_at_a_time(
    storage: SQLiteCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sequence in range(1, 6):
        storage.append("a", sequence, bytes([sequence]) * 600_000)
    sizes: list[int] = []
    real = scanning._chunk

    def chunk(*given: Any) -> Any:
        rows = real(*given)
        sizes.append(len(rows))
        return rows

    monkeypatch.setattr(scanning, "_chunk", chunk)
    assert [record[0] for record in storage.scan("a", 1, 5)] == [1, 2, 3, 4, 5]
    assert sizes == [2, 2, 1]


def test_a_scan_over_what_is_pruned_meanwhile_says_so(
    storage: SQLiteCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "_RECORDS", 2)
    fill(storage, 9)
    scan = storage.scan("a", 1, 9)
    assert next(scan) == b"record 1"
    storage.prune("a", 8, b"base")
    assert next(scan) == b"record 2"
    assert said(NotFound, lambda: next(scan)) == (
        "Checkpoint 3 of thread 'a' was pruned; the thread begins at 8 now."
        " Ask for 8 or a later one, or look for 3 in a backup."
    )


def test_no_statement_goes_through_a_table(storage: SQLiteCheckpointStorage, path: Path) -> None:
    """Each looks a place up, so that it costs the same with ten records and with a million."""
    fill(storage, 3)
    storage.prune("a", 2, b"base")
    given = ["a", 1, 1, 1, 1]
    names = [name for name in vars(statements) if name.isupper() and name != "THREADS"]
    assert len(names) == 12
    with closing(sqlite3.connect(path)) as other:
        for name in names:
            statement: str = getattr(statements, name)
            numbered = [number for number in range(1, 6) if f"?{number}" in statement]
            count = max(numbered, default=statement.count("?"))
            plan = other.execute(f"EXPLAIN QUERY PLAN {statement}", given[:count]).fetchall()
            steps = [step for *_, step in plan]
            assert not [step for step in steps if "SCAN" in step or "TEMP" in step], (name, steps)


def test_a_closed_storage_says_so(storage: SQLiteCheckpointStorage, path: Path) -> None:
    storage.append("a", 1, b"one")
    storage.close()
    storage.close()
    message = f"This storage on {path} was closed. Construct it again to go on."
    for act in (
        lambda: storage.append("a", 2, b""),
        lambda: storage.read("a", 1),
        lambda: storage.acquire("a", "w", 5),
    ):
        assert said(StorageUnavailable, act) == message
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, f"{path.name}-lock"]


def test_threads_of_one_process_share_it(storage: SQLiteCheckpointStorage) -> None:
    """Each record once, and each loser is told."""
    won: list[tuple[int, int]] = []

    def work(number: int) -> None:
        for sequence in range(1, 26):
            with suppress(Conflict):
                storage.append("a", sequence, b"%d" % number)
                won.append((sequence, number))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(sequence for sequence, _ in won) == list(range(1, 26))
    assert [int(record) for record in storage.scan("a", 1, 25)] == [n for _, n in sorted(won)]


def test_a_name_that_is_none_is_not_listed(storage: SQLiteCheckpointStorage, path: Path) -> None:
    """Whoever can write the database can put any name into it, also one that is no text."""
    storage.append("a", 1, b"one")
    with closing(sqlite3.connect(path)) as other:
        for name in ("../../etc", "A", ""):
            other.execute("INSERT INTO checkpoints VALUES (?, 1, x'00')", [name])
        other.execute("INSERT INTO checkpoints VALUES (CAST(x'ff61' AS TEXT), 1, x'00')")
        other.commit()
    assert storage.threads() == ["a"]


def test_a_record_that_is_not_bytes_is_malformed(path: Path) -> None:
    """STRICT keeps others out. Whoever edits the file itself is not bound by it."""
    SQLiteCheckpointStorage(path).append("a", 1, b"CANARY-RECORD")
    with closing(sqlite3.connect(path)) as other:
        other.executescript("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE")
    data = path.read_bytes()
    # The types of its values are in front of a row: this one is of a blob, or a text, of thirteen.
    blob, text = (bytes([12 + 2 * 13 + odd]) for odd in (0, 1))
    head = data.rindex(blob, 0, data.index(b"CANARY-RECORD"))
    path.write_bytes(data[:head] + text + data[head + 1 :])
    with SQLiteCheckpointStorage(path) as storage:
        message = (
            "Checkpoint 1 of thread 'a' is not bytes. This storage never keeps anything else."
            " Put the database back from a backup."
        )
        assert said(RecordMalformed, lambda: storage.read("a", 1)) == message
        assert said(RecordMalformed, lambda: list(storage.scan("a", 1, 1))) == message


def test_bad_arguments_leave_nothing(storage: SQLiteCheckpointStorage) -> None:
    wrong: Any = "text"
    for kind, act in (
        (EncodeError, lambda: storage.append("a", 1, wrong)),
        (InvalidId, lambda: storage.append("a", 0, b"")),
        (ConfigurationError, lambda: storage.append("a", 1, b"", fence=True)),
    ):
        said(kind, act)
    assert (storage.threads(), storage.head("a")) == ([], 0)
