"""A file storage whose process is killed after each step, or whose disk fails at each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from safepoint.core.errors import Conflict
from safepoint.core.storage import Lease
from safepoint.stores.files import FileCheckpointStorage
from tests.harness.crash import Left, failed, killed

NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
RECORD = bytes(range(250)) * 2  # written in pieces
HELD = Lease("a", "worker-a", 1, NOW + timedelta(seconds=60))


def opened(folder: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(folder / "store", clock=lambda: HELD.expires)


def act(folder: Path, what: str) -> None:
    storage = opened(folder)
    if what in ("first save", "save"):
        storage.append("a", storage.head("a") + 1, RECORD)
    elif what == "prune":
        storage.prune("a", 6, RECORD)
    elif what == "release":
        storage.release(HELD)
    else:  # first owner, take over
        storage.acquire("a", "worker-b", 60)


def prepared(path: Path, what: str) -> Path:
    """Make the folder in which each run begins."""
    path.mkdir(mode=0o700)
    storage = FileCheckpointStorage(path / "store", clock=lambda: NOW)
    if what in ("save", "prune"):
        for sequence in range(1, 10):
            storage.append("a", sequence, b"old %d" % sequence)
        storage.prune("a", 3, b"old base")
    elif what in ("take over", "release"):
        assert storage.acquire("a", "worker-a", 60) == HELD
    return path


def check(left: Left, what: str, *, happened: bool) -> None:
    """See that it happened or not, and that whoever comes next ends the work."""
    storage = opened(left.folder)
    if what in ("first save", "save"):
        before = 9 if what == "save" else 0
        assert storage.head("a") == before + happened
        if happened:
            assert storage.read("a", before + 1) == RECORD
            with pytest.raises(Conflict):
                storage.append("a", before + 1, b"again")
        storage.append("a", before + 1 + happened, b"next")
        if before:
            assert list(storage.scan("a", 3, 9)) == [b"old %d" % n for n in range(3, 10)]
        if happened:
            assert storage.read("a", before + 1) == RECORD
    elif what == "prune":
        first = 6 if happened else 3
        assert storage.base("a") == ((6, RECORD) if happened else (3, b"old base"))
        assert (storage.head("a"), storage.threads()) == (9, ["a"])
        assert list(storage.scan("a", first, 9)) == [b"old %d" % n for n in range(first, 10)]
        storage.prune("a", 6, b"again")
        names = sorted(path.name for path in (left.folder / "store/a").iterdir())
        assert names == [*(f"{n:010d}.checkpoint" for n in range(6, 10)), "base"]
    else:
        token = {"take over": 2}.get(what, 1)
        if what == "release":
            assert storage.lease("a") == (None if happened else HELD)
        elif happened:
            end = HELD.expires + timedelta(seconds=60)
            assert storage.lease("a") == Lease("a", "worker-b", token, end)
        else:
            assert storage.lease("a") == (None if what == "first owner" else HELD)
        held = storage.lease("a")
        after = storage.acquire("a", "worker-b" if held is None else held.owner, 60)
        # A token that nobody heard of may be given again; one that somebody did is not.
        assert after.token > (1 if what != "first owner" else 0) + (left.whole and token > 1)
    assert not list(left.folder.glob("store/*/.next"))


@pytest.mark.parametrize(
    "what", ["first save", "save", "prune", "first owner", "take over", "release"]
)
def test_a_kill_after_each_step_leaves_the_old_state_or_the_new_one(
    tmp_path: Path, what: str
) -> None:
    """Whole, with no alarm, although what was published may have two names."""
    step = "link" if "save" in what else "rename"
    start = prepared(tmp_path / "start", what)
    runs = killed(act, tmp_path, what, prepared=start)
    for left in runs:
        check(left, what, happened=step in left.steps)
    assert any(step not in left.steps for left in runs)
    assert any(step in left.steps and not left.whole for left in runs)


@pytest.mark.parametrize("what", ["save", "prune", "take over"])
def test_a_step_that_fails_leaves_the_old_state(tmp_path: Path, what: str) -> None:
    """Above all a sync. What takes the place of another has happened if its name is not synced."""
    for left in failed(act, tmp_path, what, prepared=prepared(tmp_path / "start", what)):
        assert left.whole or "(ENOSPC)" in left.error
        storage = opened(left.folder)
        begun = what == "prune" and storage.base("a") == (6, RECORD)
        begun |= what == "take over" and storage.lease("a") != HELD
        assert not begun or left.whole or left.steps.count("fsync") > 0
        check(left, what, happened=left.whole or begun)
