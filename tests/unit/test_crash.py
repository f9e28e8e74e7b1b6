"""A process that is killed after each of its steps: of a save, and of a prune."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from safepoint.errors import Conflict, NotFound
from safepoint.storage import FileCheckpointStorage

RECORD = bytes(range(100))

# Counts each call into the system, and kills its own process with SIGKILL right after the n-th.
# One driver forks a child per step, so that this costs a fork and not a start of Python.
DRIVER = """
    import fcntl, json, os, signal, sys
    from safepoint.storage import FileCheckpointStorage

    NAMES = ["open", "mkdir", "fchmod", "write", "fsync", "link", "rename", "unlink", "close",
             "scandir", "stat", "read"]
    ground, before, base, first, last = sys.argv[1], *map(int, sys.argv[2:]), 0
    record = bytes(range(100))

    def prepare(path):
        if before:
            storage = FileCheckpointStorage(path)
            for sequence in range(1, before + 1):
                storage.append("a", sequence, b"old %d" % sequence)
            if base:
                storage.prune("a", base, b"old base")

    def run(path, kill_after, log):
        count = 0
        def hook(module, name):
            real = getattr(module, name)
            def step(*args, **kwargs):
                nonlocal count
                if name == "write":
                    args = (args[0], args[1][:40])
                try:
                    return real(*args, **kwargs)
                finally:
                    count += 1
                    log.append(name)
                    if count == kill_after:
                        os.kill(os.getpid(), signal.SIGKILL)
            setattr(module, name, step)
        for name in NAMES:
            hook(os, name)
        hook(fcntl, "flock")
        storage = FileCheckpointStorage(path)
        if first:
            storage.prune("a", first, record)
        else:
            storage.append("a", before + 1, record)
        return log

    outcomes = []
    while True:
        last += 1
        path = f"{ground}/{last}"
        prepare(path)
        pid = os.fork()
        if not pid:
            try:
                log = run(path, last, [])
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


def kill_after_each_step(
    ground: Path, before: int, base: int = 0, first: int = 0
) -> tuple[list[str], list[Path]]:
    """Let the driver work; return the steps, and the store that a kill after each one left.

    The last store is one in which nobody was killed.
    """
    numbers = map(str, (before, base, first))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DRIVER), str(ground), *numbers],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert outcomes[-1] == 0, done.stderr
    assert set(outcomes[:-1]) == {-signal.SIGKILL}
    steps = json.loads((ground / "log").read_text())
    assert len(steps) == len(outcomes) - 1
    assert Counter(steps)["write"] == 3
    return steps, [ground / str(number) for number in range(1, len(outcomes) + 1)]


@pytest.mark.parametrize("before", [0, 2], ids=["first record of a new store", "third record"])
def test_sigkill_after_each_step_of_a_save(tmp_path: Path, before: int) -> None:
    """The record is absent or whole, the old ones intact, left-overs cleaned, no false alarm."""
    steps, stores = kill_after_each_step(tmp_path, before)
    linked = steps.index("link") + 1
    left_temps = left_names = 0
    for killed_after, path in enumerate(stores, start=1):
        record = path / f"a/{before + 1:010d}.checkpoint"
        if killed_after >= linked:
            left_names += record.stat().st_nlink == 2
        left_temps += len(list(path.glob(".tmp/*")))
        if killed_after >= linked:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("safepoint.storage._store.clean", lambda _: None)
                assert FileCheckpointStorage(path).read("a", before + 1) == RECORD
        storage = FileCheckpointStorage(path)
        assert list(path.glob(".tmp/*")) == []
        assert storage.head("a") == before + (killed_after >= linked)
        for sequence in range(1, before + 1):
            assert storage.read("a", sequence) == b"old %d" % sequence
        if killed_after >= linked:
            assert storage.read("a", before + 1) == RECORD
            assert record.stat().st_nlink == 1
            with pytest.raises(Conflict):
                storage.append("a", before + 1, b"again")
        else:
            storage.append("a", before + 1, b"again")
            assert storage.read("a", before + 1) == b"again"
    assert left_temps >= 7
    assert left_names >= 2


@pytest.mark.parametrize(("base", "first"), [(0, 6), (3, 6), (3, 9)])
def test_sigkill_after_each_step_of_a_prune(tmp_path: Path, base: int, first: int) -> None:
    """The old base with all its records, or the new one; and whoever comes next ends the work."""
    steps, stores = kill_after_each_step(tmp_path, 9, base, first)
    renamed = steps.index("rename") + 1
    left_overs = 0
    old = (base, b"old base") if base else None
    for killed_after, path in enumerate(stores, start=1):
        storage = FileCheckpointStorage(path)
        assert list(path.glob(".tmp/*")) == []
        assert storage.base("a") == ((first, RECORD) if killed_after >= renamed else old)
        begin = first if killed_after >= renamed else max(base, 1)
        assert (storage.head("a"), storage.threads()) == (9, ["a"])
        kept = [b"old %d" % sequence for sequence in range(begin, 10)]
        assert list(storage.scan("a", begin, 9)) == kept
        files = len(list(path.glob("a/*.checkpoint")))
        left_overs += files > len(kept)
        for sequence in range(1, begin):
            with pytest.raises(NotFound, match=f"the thread begins at {begin} now"):
                storage.read("a", sequence)
        assert storage.prune("a", first, b"again") == files - (10 - first)
        assert sorted(path.name for path in path.glob("a/*")) == [
            *(f"{sequence:010d}.checkpoint" for sequence in range(first, 10)),
            "base",
        ]
        storage.append("a", 10, b"next")
        assert storage.head("a") == 10
    assert left_overs >= first - max(base, 1)
    assert os.listdir(stores[-1] / ".tmp") == []  # noqa: PTH208 - names are enough
