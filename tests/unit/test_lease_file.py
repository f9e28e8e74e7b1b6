"""The file of a lease: what is written, what is refused, and what a crash or a bad disk leaves."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import stat
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import _files as _posix
from safepoint.errors import NotOwner, StorageFull, StorageUnavailable, UnsafeLocation
from safepoint.storage import FileCheckpointStorage
from safepoint.storage._lease import read_lease, write_lease
from safepoint.storage.base import MAX_TOKEN, Lease, Ownership
from tests.unit.storage_helpers import descriptors, fail, folder, planted, python, tree

NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def storage(root: Path) -> FileCheckpointStorage:
    return FileCheckpointStorage(root)


def test_a_person_can_read_who_owns_a_thread(storage: FileCheckpointStorage, root: Path) -> None:
    lease = storage.acquire_at_time("a", "worker-a", 60, NOW)
    file = root / "a/lease"
    assert file.read_text() == "safepoint-lease/1 1 worker-a 2026-01-31T09:31:00.000000Z\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    storage.release(lease)
    assert file.read_text() == "safepoint-lease/1 1 - -\n"
    assert tree(root) == [".tmp", "a", "a/lease"]


def test_another_process_sees_the_owner_and_the_token(
    storage: FileCheckpointStorage, root: Path
) -> None:
    lease = storage.acquire_at_time("a", "worker-a", 60, NOW)
    storage.append("a", 1, b"one", fence=lease.token)
    code = """
        import sys
        from safepoint.errors import NotOwner
        from safepoint.storage import FileCheckpointStorage
        storage = FileCheckpointStorage(sys.argv[1])
        lease = storage.lease("a")
        try:
            storage.append("a", 2, b"two")
        except NotOwner as refusal:
            print(refusal)
        storage.append("a", 2, b"two", fence=lease.token)
        print(lease)
    """
    assert python(code, str(root)) == (
        "Thread 'a' is owned by worker 'worker-a', and this save carries no token. Nothing was"
        " saved. Acquire the thread before you write to it.\n"
        "worker-a owns a with token 1 until 2026-01-31T09:31:00.000000Z"
    )
    assert storage.head("a") == 2


def test_a_refused_save_leaves_nothing_behind(storage: FileCheckpointStorage, root: Path) -> None:
    storage.acquire_at_time("a", "worker-a", 60, NOW)
    before, open_before = tree(root), descriptors()
    for fence in (None, 2):
        with pytest.raises(NotOwner):
            storage.append("a", 1, b"one", fence=fence)
    with pytest.raises(NotOwner):
        storage.acquire_at_time("a", "worker-b", 60, NOW)
    assert tree(root) == before
    assert descriptors() == open_before


def test_what_is_refused_makes_no_folder(storage: FileCheckpointStorage, root: Path) -> None:
    stranger = Lease("a", "worker-a", 1, NOW)
    for call in (storage.release, lambda lease: storage.renew(lease, 60)):
        with pytest.raises(NotOwner):
            call(stranger)
    assert storage.lease("a") is None
    assert tree(root) == []


def test_a_save_that_waits_is_judged_by_who_owns_the_thread_when_it_appears(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack on a check that comes too early: the thread changes hands during the write."""
    lease = storage.acquire_at_time("a", "worker-a", 60, NOW)
    other = FileCheckpointStorage(root)
    real = os.write

    def write(*args: Any) -> int:
        monkeypatch.undo()
        other.acquire_at_time("a", "worker-b", 60, at(60))
        return real(*args)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(NotOwner, match="with token 2, and this save carries token 1"):
        storage.append("a", 1, b"old", fence=lease.token)
    assert tree(root) == [".tmp", "a", "a/lease"]


def test_no_thread_changes_hands_between_the_look_at_the_token_and_the_link(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = storage.acquire_at_time("a", "worker-a", 60, NOW)
    other = FileCheckpointStorage(root)
    monkeypatch.setattr("safepoint.storage._lock._PATIENCE", 0.01)
    real, waited = os.link, []

    def link(*args: Any, **options: Any) -> None:
        with pytest.raises(StorageUnavailable, match="Another process has held the lock") as held:
            other.acquire_at_time("a", "worker-b", 60, at(60))
        waited.append(held)
        real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        storage.append("a", 1, b"one", fence=lease.token)
    assert len(waited) == 1
    assert other.acquire_at_time("a", "worker-b", 60, at(60)).token == 2


def test_no_save_comes_between_the_look_at_the_owner_and_the_new_one(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = storage.acquire_at_time("a", "worker-a", 60, NOW)
    other = FileCheckpointStorage(root)
    monkeypatch.setattr("safepoint.storage._lock._PATIENCE", 0.01)
    real, waited = os.rename, []

    def rename(*args: Any, **options: Any) -> None:
        with pytest.raises(StorageUnavailable, match="Another process has held the lock") as held:
            storage.append("a", 1, b"one", fence=lease.token)
        waited.append(held)
        real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        other.acquire_at_time("a", "worker-b", 60, at(60))
    assert len(waited) == 1
    assert tree(root) == [".tmp", "a", "a/lease"]


MALFORMED = {
    "empty": b"",
    "no line": b"\n",
    "cut short": b"safepoint-lease/1 1 worker-a 2026-01-31T09:31",
    "no end of line": b"safepoint-lease/1 1 - -",
    "two lines": b"safepoint-lease/1 1 - -\nsafepoint-lease/1 2 - -\n",
    "another end of line": b"safepoint-lease/1 1 - -\r\n",
    "two spaces": b"safepoint-lease/1  1 - -\n",
    "something behind it": b"safepoint-lease/1 1 - - -\n",
    "something before it": b" safepoint-lease/1 1 - -\n",
    "no token": b"safepoint-lease/1 - - -\n",
    "token 0": b"safepoint-lease/1 0 - -\n",
    "a token with a zero": b"safepoint-lease/1 01 - -\n",
    "a token with a sign": b"safepoint-lease/1 +1 - -\n",
    "a token with a line": b"safepoint-lease/1 1_0 - -\n",
    "a token in other digits": "safepoint-lease/1 \u0661 - -\n".encode(),
    "a token of 19 digits": b"safepoint-lease/1 1000000000000000000 - -\n",
    "an owner and no end": b"safepoint-lease/1 1 worker-a -\n",
    "an end and no owner": b"safepoint-lease/1 1 - 2026-01-31T09:31:00.000000Z\n",
    "an owner in capitals": b"safepoint-lease/1 1 Worker 2026-01-31T09:31:00.000000Z\n",
    "an owner that is a device": b"safepoint-lease/1 1 con 2026-01-31T09:31:00.000000Z\n",
    "an owner of 65": b"safepoint-lease/1 1 %b 2026-01-31T09:31:00.000000Z\n" % (b"a" * 65),
    "no such day": b"safepoint-lease/1 1 worker-a 2026-02-30T09:31:00.000000Z\n",
    "hour 24": b"safepoint-lease/1 1 worker-a 2026-01-31T24:00:00.000000Z\n",
    "second 60": b"safepoint-lease/1 1 worker-a 2026-01-31T09:31:60.000000Z\n",
    "year 0": b"safepoint-lease/1 1 worker-a 0000-01-31T09:31:00.000000Z\n",
    "another time zone": b"safepoint-lease/1 1 worker-a 2026-01-31T09:31:00.000000+00:00\n",
    "no fraction": b"safepoint-lease/1 1 worker-a 2026-01-31T09:31:00Z\n",
    "another format": b"safepoint-anchor/1 1 - -\n",
    "zeros": bytes(64),
    "a record": b"safepoint/1 0123456789abcdef AAAA\n",
    "300 bytes": b"safepoint-lease/1 1 - -\n" + b"x" * 300,
    "a lease and 4 MB": b"safepoint-lease/1 1 - -\n" + bytes(4_000_000),
}


def every_write(storage: FileCheckpointStorage) -> list[Callable[[], object]]:
    lease = Lease("a", "worker-a", 1, NOW)
    return [
        lambda: storage.append("a", 2, b"two"),
        lambda: storage.append("a", 2, b"two", fence=1),
        lambda: storage.acquire("a", "worker-a", 60),
        lambda: storage.renew(lease, 60),
        lambda: storage.release(lease),
        lambda: storage.lease("a"),
    ]


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_is_refused_and_nothing_is_saved(
    storage: FileCheckpointStorage, root: Path, text: bytes
) -> None:
    storage.append("a", 1, b"one")
    file = root / "a/lease"
    file.touch(mode=0o600)
    file.write_bytes(text)
    before = tree(root)
    for write in every_write(storage):
        with pytest.raises(StorageUnavailable) as caught:
            write()
        assert str(caught.value) == (
            f"{file} does not say who owns its thread, so nothing of the thread is saved."
            " Somebody else wrote it, or the disk failed. Stop every worker of the thread, then"
            f" remove the file: rm {file}"
        )
    assert (tree(root), file.read_bytes()) == (before, text)
    assert (storage.head("a"), storage.read("a", 1), storage.threads()) == (1, b"one", ["a"])
    assert storage.prune("a", 1, b"base") == 0
    file.unlink()
    storage.append("a", 2, b"two")


@pytest.mark.parametrize("version", [b"0", b"2", b"11"])
def test_a_file_of_another_version_is_refused(
    storage: FileCheckpointStorage, root: Path, version: bytes
) -> None:
    storage.append("a", 1, b"one")
    file = root / "a/lease"
    file.touch(mode=0o600)
    file.write_bytes(b"safepoint-lease/%b 1 worker-a whenever\n" % version)
    for write in every_write(storage):
        with pytest.raises(StorageUnavailable) as caught:
            write()
        assert str(caught.value) == (
            f"{file} was written by another version of safepoint. This one reads safepoint-lease/1."
            " Use the version that wrote it; until then nothing of the thread is saved."
        )
    assert storage.head("a") == 1


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "second name", "mode", "owner"])
def test_a_file_that_others_could_write_is_refused(
    storage: FileCheckpointStorage,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    storage.append("a", 1, b"one")
    said = planted(kind, root / "a/lease", tmp_path / "outside", monkeypatch)
    for write in every_write(storage):
        with pytest.raises(UnsafeLocation, match=said):
            write()
    assert storage.head("a") == 1


owners = st.from_regex(r"w[a-z0-9_-]{0,63}", fullmatch=True)
moments = st.datetimes(timezones=st.just(UTC))
tokens = st.integers(1, MAX_TOKEN)


@given(owners, tokens, moments)
def test_what_is_written_is_read(owner: str, token: int, expires: datetime) -> None:
    held = Ownership("a", token, Lease("a", owner, token, expires))
    assert read_lease("there", "a", write_lease(held)) == held
    free = Ownership("a", token)
    assert read_lease("there", "a", write_lease(free)) == free


@given(owners, tokens, moments, st.data())
def test_what_is_read_is_what_would_be_written(
    owner: str, token: int, expires: datetime, data: st.DataObject
) -> None:
    """One byte changed, added or removed: another lease, spelled as it would be, or none."""
    text = bytearray(write_lease(Ownership("a", token, Lease("a", owner, token, expires))))
    place = data.draw(st.integers(0, len(text) - 1))
    text[place : place + data.draw(st.integers(0, 1))] = data.draw(st.binary(max_size=1))
    try:
        found = read_lease("there", "a", bytes(text))
    except StorageUnavailable:
        return
    assert write_lease(found) == text


# Counts each call into the system, and kills its own process with SIGKILL right after the n-th.
# One driver forks a child per step, so that this costs a fork and not a start of Python.
DRIVER = """
    import fcntl, json, os, signal, sys
    from datetime import UTC, datetime, timedelta
    from safepoint.storage import FileCheckpointStorage

    NAMES = ["open", "mkdir", "fchmod", "write", "fsync", "link", "rename", "unlink", "close",
             "scandir", "stat", "read"]
    NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    LATER = NOW + timedelta(seconds=60)
    ground, action, last = sys.argv[1], sys.argv[2], 0

    def prepare(path):
        storage = FileCheckpointStorage(path)
        if action == "first":
            return None
        lease = storage.acquire_at_time("a", "worker-a", 60, NOW)
        storage.append("a", 1, b"one", fence=lease.token)
        return lease

    def act(storage, lease):
        if action in ("first", "take over"):
            storage.acquire_at_time("a", "worker-b", 60, LATER)
        elif action == "renew":
            storage.renew_at_time(lease, 60, LATER)
        elif action == "release":
            storage.release(lease)
        else:
            storage.append("a", 2, bytes(100), fence=lease.token)

    def run(path, kill_after, log, lease):
        def hook(module, name):
            real = getattr(module, name)
            def step(*args, **kwargs):
                if name == "write":
                    args = (args[0], args[1][:20])
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
        act(FileCheckpointStorage(path), lease)
        return log

    outcomes = []
    while True:
        last += 1
        path = f"{ground}/{last}"
        lease = prepare(path)
        pid = os.fork()
        if not pid:
            try:
                log = run(path, last, [], lease)
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


def kill_after_each_step(ground: Path, action: str) -> tuple[list[str], list[Path]]:
    """Let the driver work; return the steps, and the store that a kill after each one left."""
    outcomes = json.loads(python(DRIVER, str(ground), action))
    assert outcomes[-1] == 0
    assert set(outcomes[:-1]) == {-signal.SIGKILL}
    steps = json.loads((ground / "log").read_text())
    assert len(steps) == len(outcomes) - 1
    assert Counter(steps)["write"] >= 2
    return steps, [ground / str(number) for number in range(1, len(outcomes) + 1)]


@pytest.mark.parametrize("action", ["first", "take over", "renew", "release"])
def test_sigkill_after_each_step_of_a_change(tmp_path: Path, action: str) -> None:
    """The old line or the new one, whole; no lock stays; and the next token is a new one."""
    steps, stores = kill_after_each_step(tmp_path, action)
    renamed = steps.index("rename") + 1
    old = None if action == "first" else Lease("a", "worker-a", 1, at(60))
    new = {
        "first": Lease("a", "worker-b", 1, at(120)),
        "take over": Lease("a", "worker-b", 2, at(120)),
        "renew": Lease("a", "worker-a", 1, at(120)),
        "release": None,
    }[action]
    left = 0
    for killed_after, path in enumerate(stores, start=1):
        left += len(list(path.glob(".tmp/*")))
        storage = FileCheckpointStorage(path)
        assert list(path.glob(".tmp/*")) == []
        done = killed_after >= renamed
        assert storage.lease("a") == (new if done else old)
        assert storage.threads() == ([] if action == "first" else ["a"])
        highest = {"first": int(done), "take over": 1 + done}.get(action, 1)
        again = storage.acquire_at_time("a", "worker-c", 60, at(180))
        assert again.token == highest + 1
        head = storage.head("a")
        for token in range(1, again.token):
            with pytest.raises(NotOwner):
                storage.append("a", head + 1, b"old", fence=token)
        storage.append("a", head + 1, b"new", fence=again.token)
        assert len(list((path / "a").iterdir())) == head + 2
    assert left >= 5


def test_sigkill_after_each_step_of_a_save_under_a_lease(tmp_path: Path) -> None:
    """The record is absent or whole, and whoever comes next gets the thread and can save."""
    steps, stores = kill_after_each_step(tmp_path, "save")
    linked = steps.index("link") + 1
    assert steps[linked - 2 : linked + 1].count("flock") == 1, "let go right after the link"
    for killed_after, path in enumerate(stores, start=1):
        storage = FileCheckpointStorage(path)
        head = 1 + (killed_after >= linked)
        assert storage.head("a") == head
        lease = storage.acquire_at_time("a", "worker-b", 60, at(60))
        assert lease.token == 2
        storage.append("a", head + 1, b"next", fence=2)


STEPS = {
    "making the file": ("open", errno.ENOSPC, 5),
    "its bytes": ("write", errno.ENOSPC, 1),
    "its sync": ("fsync", errno.EIO, 1),
    "its name": ("rename", errno.EIO, 1),
}


@pytest.mark.parametrize(("name", "code", "on"), STEPS.values(), ids=STEPS)
def test_a_step_that_fails_leaves_the_old_owner(
    storage: FileCheckpointStorage,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    code: int,
    on: int,
) -> None:
    lease = storage.acquire_at_time("a", "worker-a", 60, NOW)
    before = tree(root), (root / "a/lease").read_bytes()
    for act in (
        lambda: storage.acquire_at_time("a", "worker-b", 60, at(60)),
        lambda: storage.renew_at_time(lease, 60, at(60)),
        lambda: storage.release(lease),
    ):
        with monkeypatch.context() as patch:
            seen = fail(patch, name, code, on)
            with pytest.raises((StorageFull, StorageUnavailable)) as caught:
                act()
            assert len(seen) >= on
        assert str(caught.value).endswith(
            "try again." if code == errno.ENOSPC else "before you try again."
        )
        assert (tree(root), (root / "a/lease").read_bytes()) == before
        assert storage.lease("a") == lease
    storage.append("a", 1, b"one", fence=lease.token)


def test_a_token_that_the_disk_did_not_confirm_goes_to_nobody(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be on disk or not. The former owner is fenced off, and the next token is another."""
    lease = storage.acquire_at_time("a", "worker-a", 60, NOW)
    with monkeypatch.context() as patch:
        fail(patch, "fsync", errno.EIO, 2)
        with pytest.raises(StorageUnavailable, match=r"\(EIO\)"):
            storage.acquire_at_time("a", "worker-b", 60, at(60))
    with pytest.raises(NotOwner):
        storage.append("a", 1, b"old", fence=lease.token)
    again = storage.acquire_at_time("a", "worker-b", 60, at(60))
    assert again.token == 3
    assert tree(root) == [".tmp", "a", "a/lease"]


def test_what_is_synced_and_when(storage: FileCheckpointStorage, root: Path) -> None:
    """The name of the folder before its first token, the bytes before their name, then that."""
    log: list[str] = []
    with pytest.MonkeyPatch.context() as patch:

        def watch(name: str) -> None:
            real = getattr(os, name)

            def step(*args: Any, **options: Any) -> Any:
                shown = name
                if name == "fsync":
                    inode = os.fstat(args[0]).st_ino
                    shown = {
                        root.stat().st_ino: "fsync of the store",
                        (root / "a").stat().st_ino: "fsync of the thread",
                    }.get(inode, "fsync of the file")
                result = real(*args, **options)
                log.append(shown)
                return result

            patch.setattr(os, name, step)

        for name in ("write", "fsync", "rename"):
            watch(name)
        once = ["write", "fsync of the file", "rename", "fsync of the thread"]
        lease = storage.acquire_at_time("a", "worker-a", 60, NOW)
        assert log == ["fsync of the store", *once]
        for act in (
            lambda: storage.acquire_at_time("a", "worker-a", 60, NOW),
            lambda: storage.renew_at_time(Lease("a", "worker-a", 2, NOW), 60, NOW),
            lambda: storage.release(Lease("a", "worker-a", 2, NOW)),
        ):
            log.clear()
            act()
            assert log == once
        log.clear()
        assert storage.lease("a") is None
        assert log == []
    assert lease.token == 1


def test_a_temp_that_was_taken_for_a_left_over_is_written_again(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the token that was never seen is the next one still."""
    real, lost = os.rename, 2

    def rename(source: Any, *args: Any, **options: Any) -> None:
        nonlocal lost
        if lost:
            lost -= 1
            (root / ".tmp" / source).unlink()
        real(source, *args, **options)

    monkeypatch.setattr(os, "rename", rename)
    assert storage.acquire_at_time("a", "worker-a", 60, NOW).token == 1
    lost = 100
    with pytest.raises(StorageUnavailable, match="Something interferes with the files in"):
        storage.acquire_at_time("a", "worker-a", 60, NOW)
    lost = 0
    assert storage.acquire_at_time("a", "worker-a", 60, NOW).token == 2


def test_nobody_waits_for_ever_to_own_a_thread(
    storage: FileCheckpointStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safepoint.storage._lock._PATIENCE", 0.02)
    lease = storage.acquire_at_time("a", "worker-a", 60, NOW)
    with folder(root / "a") as held:
        assert _posix.try_lock(held)
        for act in (
            lambda: storage.acquire_at_time("a", "worker-a", 60, NOW),
            lambda: storage.renew_at_time(lease, 60, NOW),
            lambda: storage.release(lease),
            lambda: storage.append("a", 1, b"one", fence=lease.token),
        ):
            with pytest.raises(StorageUnavailable) as caught:
                act()
            assert str(caught.value) == (
                f"Another process has held the lock on {root}/a for 0.02 s."
                f" Find it, let it end, and try again: fuser -v {root}/a"
            )
        assert storage.lease("a") == lease, "a look needs no lock"
    storage.append("a", 1, b"one", fence=lease.token)


def test_an_unleased_save_costs_one_failed_open_and_two_calls_for_the_lock(
    storage: FileCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.append("a", 1, b"one")
    log: list[str] = []

    def watch(module: Any, name: str) -> None:
        real = getattr(module, name)

        def step(*args: Any, **options: Any) -> Any:
            log.append(f"{name} {args[0]}" if name == "open" else name)
            return real(*args, **options)

        monkeypatch.setattr(module, name, step)

    watch(os, "open")
    watch(fcntl, "flock")
    storage.append("a", 2, b"two")
    assert log.count("open lease") == 1
    assert log.count("flock") == 1 + 2, "one for the file on its way in"


def test_whoever_can_write_the_folder_can_edit_the_file(
    storage: FileCheckpointStorage, root: Path
) -> None:
    """Said in public, and shown: a lease is for workers that are honest, and only slow."""
    slow = storage.acquire_at_time("a", "worker-a", 60, NOW)
    storage.acquire_at_time("a", "worker-b", 60, at(60))
    (root / "a/lease").write_bytes(b"safepoint-lease/1 1 worker-a 2026-01-31T09:31:00.000000Z\n")
    storage.append("a", 1, b"one", fence=slow.token)
    assert storage.head("a") == 1
