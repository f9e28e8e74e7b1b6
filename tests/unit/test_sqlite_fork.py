"""A fork: no connection is used, or closed, by a process that did not open it."""

from __future__ import annotations

from pathlib import Path

import pytest

from safepoint import SQLiteCheckpointStorage
from tests.unit.storage_helpers import python

# A child that opens the file anew while the parent has it open gets no lock of its own: when the
# parent closes it, the log is removed, and what the child saves after that goes nowhere.
CHILD_SAVES = """
    import os, sys
    from safepoint import SQLiteCheckpointStorage

    path, anew = sys.argv[1], sys.argv[2] == "anew"
    storage = SQLiteCheckpointStorage(path)
    storage.append("a", 1, b"one")
    storage.head("a")
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        os.close(go[1])
        mine = SQLiteCheckpointStorage(path) if anew else storage
        mine.append("a", 2, b"two")
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        mine.append("a", 3, b"three")
        sys.exit(0)
    os.read(ready[0], 1)
    assert storage.head("a") == 2
    storage.close()
    os.write(go[1], b"x")
    assert os.waitpid(pid, 0)[1] == 0
    print("done")
"""


@pytest.mark.parametrize("way", ["anew", "the same object"])
def test_what_a_child_saves_after_the_parent_closed_is_there(tmp_path: Path, way: str) -> None:
    path = tmp_path / "state/checkpoints.db"
    assert python(CHILD_SAVES, str(path), way) == "done"
    with SQLiteCheckpointStorage(path) as storage:
        assert list(storage.scan("a", 1, 3)) == [b"one", b"two", b"three"]


# The log of a process that was killed holds what it saved. A child that closes the connection of
# its parent, when it ends, takes itself for the last user of the database and removes that log.
CHILD_ENDS = """
    import os, signal, subprocess, sys, threading
    from safepoint import SQLiteCheckpointStorage

    path, way = sys.argv[1:]
    storage = SQLiteCheckpointStorage(path, wait_seconds=0.1)
    storage.append("a", 1, b"one")
    storage.head("a")
    if way == "busy":
        storage._database._reads.mutex.acquire()  # as a thread in the middle of a long read
    go = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(go[1])
        os.read(go[0], 1)
        if way == "busy":
            for act in (lambda: storage.head("a"), lambda: SQLiteCheckpointStorage(path)):
                try:
                    act()
                except Exception as error:
                    print(type(error).__name__, error, flush=True)
        del storage
        sys.exit(0)
    if way == "busy":
        storage._database._reads.mutex.release()
    storage.append("a", 2, b"two")
    storage.close()
    assert not os.path.exists(f"{path}-wal")
    killed = (
        "import os, signal, sys; from safepoint import SQLiteCheckpointStorage;"
        "storage = SQLiteCheckpointStorage(sys.argv[1]); storage.append('a', 3, b'three');"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", killed, path]).returncode == -signal.SIGKILL
    assert os.path.exists(f"{path}-wal")
    os.write(go[1], b"x")
    assert os.waitpid(pid, 0)[1] == 0
    assert os.path.exists(f"{path}-wal")
"""


@pytest.mark.parametrize("way", ["idle", "busy"])
def test_a_child_that_ends_takes_no_log_with_it(tmp_path: Path, way: str) -> None:
    """Also if the fork could not wait until the database was idle. It is not used there then."""
    path = tmp_path / "state/checkpoints.db"
    refusal = (
        f"StorageUnavailable This process was forked while {path} was in use, in a way that Python"
        " could not prepare for. SQLite cannot lock it here. Construct the storage after the fork."
    )
    assert python(CHILD_ENDS, str(path), way).splitlines() == [refusal] * 2 * (way == "busy")
    with SQLiteCheckpointStorage(path) as storage:
        assert list(storage.scan("a", 1, 3)) == [b"one", b"two", b"three"]


FORKS = """
    import os, sys, threading
    from safepoint import SQLiteCheckpointStorage

    path = sys.argv[1]
    storage = SQLiteCheckpointStorage(path, wait_seconds=30)
    done = threading.Event()
    saved = [0, 0, 0]

    def work(number):
        while not done.is_set():
            storage.append(f"t{number}", saved[number] + 1, b"%d" % saved[number])
            storage.read(f"t{number}", 1)
            saved[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for child in range(20):
        pid = os.fork()
        if not pid:
            storage.append(f"child{child}", 1, b"born")
            os._exit(0 if storage.head(f"child{child}") == 1 else 1)
        assert os.waitpid(pid, 0)[1] == 0
    done.set()
    for worker in workers:
        worker.join()
    assert [storage.head(f"t{number}") for number in range(3)] == saved
    assert len(storage.threads()) == 20 + sum(1 for each in saved if each)
    print("done")
"""


def test_a_process_forks_while_its_threads_save(tmp_path: Path) -> None:
    """Twenty children, each of which saves; nothing is lost on either side."""
    assert python(FORKS, str(tmp_path / "state/checkpoints.db")) == "done"
