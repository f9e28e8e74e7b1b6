"""A ledger on an SQLite database does all that a ledger does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from safepoint import (
    Conflict,
    FileAnchor,
    FileCheckpointStorage,
    InMemoryAnchor,
    InMemoryJournal,
    Keyring,
    Ledger,
    NotFound,
    NotOwner,
    RetentionStorage,
    RolledBack,
    SigningKey,
    SQLiteCheckpointStorage,
    ThreadDeleted,
)
from tests.unit.storage_helpers import python
from tests.unit.tampered import KEY, KEYS, STORE, THREAD, fill, opened, states


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state/checkpoints.db"


@pytest.fixture
def storage(path: Path) -> Iterator[SQLiteCheckpointStorage]:
    with SQLiteCheckpointStorage(path) as it:
        yield it


@pytest.fixture(params=[False, True], ids=["no anchor", "anchored"])
def anchor(request: pytest.FixtureRequest) -> InMemoryAnchor | None:
    return InMemoryAnchor() if request.param else None


def test_save_latest_load_and_history(
    storage: SQLiteCheckpointStorage, path: Path, anchor: InMemoryAnchor | None
) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 5)
    fill(ledger, 2, "order-8")
    with SQLiteCheckpointStorage(path) as other:
        again = opened(other, anchor)
        assert again.latest(THREAD).state == {"n": 5}
        assert again.load(THREAD, 2).state == {"n": 2}
        assert states(again) == [1, 2, 3, 4, 5]
        assert again.verify(THREAD) == 5
        assert sorted(again.threads()) == ["order-7", "order-8"]
        with pytest.raises(NotFound):
            again.latest("order-9")
        with pytest.raises(Conflict):
            again.save(THREAD, {"n": 0}, after=4)
    assert ledger.save(THREAD, {"n": 6}, after=5).sequence == 6


def test_prune_and_delete(storage: SQLiteCheckpointStorage, anchor: InMemoryAnchor | None) -> None:
    ledger = opened(storage, anchor)
    fill(ledger, 9)
    assert ledger.prune(THREAD, keep=4) == 5
    assert states(ledger) == [6, 7, 8, 9]
    assert ledger.verify(THREAD) == 4
    with pytest.raises(NotFound):
        ledger.load(THREAD, 3)
    ledger.save(THREAD, {"n": 10})
    ledger.delete(THREAD)
    with pytest.raises(ThreadDeleted):
        opened(storage, anchor).latest(THREAD)
    assert storage.base(THREAD) is not None
    assert len(list(storage.scan(THREAD, 11, 11))) == 1


@pytest.mark.parametrize("way", ["from files", "to files", "to another database"])
def test_a_copy_verifies_link_for_link(tmp_path: Path, path: Path, way: str) -> None:
    """Pruned, so that the copy of a thread begins in the middle; then under a new key."""
    files = FileCheckpointStorage(tmp_path / "files")
    with (
        SQLiteCheckpointStorage(path) as storage,
        SQLiteCheckpointStorage(tmp_path / "other/copy.db") as copy,
    ):
        source: RetentionStorage = files if way == "from files" else storage
        targets: dict[str, RetentionStorage] = {"from files": storage, "to files": files}
        target = targets.get(way, copy)
        ledger = opened(source)
        fill(ledger, 7)
        fill(ledger, 2, "order-8")
        ledger.prune(THREAD, keep=3)
        new = Keyring(SigningKey.generate("ed25519"), verify=KEY)
        fresh = Ledger(target, store=STORE, keys=new)
        assert ledger.copy_to(fresh) == 5
        assert states(fresh) == [5, 6, 7]
        assert fresh.verify(THREAD) == 3
        assert fresh.save(THREAD, {"n": 8}).sequence == 8


def test_a_worker_that_owns_a_thread_fences_off_the_one_before(
    storage: SQLiteCheckpointStorage, path: Path
) -> None:
    journal = InMemoryJournal()
    old = Ledger(storage, store=STORE, keys=KEYS, journal=journal)
    with SQLiteCheckpointStorage(path) as other:
        new = opened(other)
        old.own(THREAD, "worker-1", seconds=60)
        old.save(THREAD, {"n": 1})
        with pytest.raises(NotOwner):
            new.own(THREAD, "worker-2")
        lease = storage.lease(THREAD)
        assert lease is not None
        other.acquire_at_time(THREAD, "worker-2", 60, lease.expires + timedelta(seconds=1))
        with pytest.raises(NotOwner):
            old.save(THREAD, {"n": 2})
        with new.own(THREAD, "worker-2"):
            assert new.save(THREAD, {"n": 2}).sequence == 2
        assert new.save(THREAD, {"n": 3}).sequence == 3
    assert states(opened(storage)) == [1, 2, 3]


def test_last_nights_copy_of_the_database_is_noticed(tmp_path: Path, path: Path) -> None:
    """An older copy is as genuine as the present one. The anchor knows better."""
    anchor = FileAnchor(tmp_path / "anchor", create=True)
    with SQLiteCheckpointStorage(path) as storage:
        fill(Ledger(storage, store=STORE, keys=KEYS, anchor=anchor), 3)
    night = path.read_bytes()
    with SQLiteCheckpointStorage(path) as storage:
        Ledger(storage, store=STORE, keys=KEYS, anchor=anchor).save(THREAD, {"n": 4})
    path.write_bytes(night)
    with SQLiteCheckpointStorage(path) as storage:
        ledger = Ledger(storage, store=STORE, keys=KEYS, anchor=anchor)
        with pytest.raises(RolledBack):
            ledger.latest(THREAD)


def test_8_processes_save_through_ledgers_of_their_own(tmp_path: Path, path: Path) -> None:
    """One thread, no lease: who loses decides again, and all of it is one chain."""
    SQLiteCheckpointStorage(path).close()
    code = """
        import os, sys
        from safepoint import SQLiteCheckpointStorage
        from safepoint.errors import Conflict
        from tests.unit.tampered import THREAD, opened

        children = []
        for number in range(8):
            pid = os.fork()
            if not pid:
                try:
                    ledger = opened(SQLiteCheckpointStorage(sys.argv[1], wait_seconds=60))
                    saved = 0
                    while saved < 15:
                        try:
                            ledger.save(THREAD, {"n": number})
                            saved += 1
                        except Conflict:
                            pass
                    os._exit(0)
                except BaseException as error:
                    sys.excepthook(type(error), error, error.__traceback__)
                    os._exit(99)
            children.append(pid)
        for pid in children:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        print("done")
    """
    assert python(code, str(path)) == "done"
    with SQLiteCheckpointStorage(path) as storage:
        ledger = opened(storage)
        assert ledger.verify(THREAD) == 120
        assert sorted(states(ledger)) == sorted(list(range(8)) * 15)
