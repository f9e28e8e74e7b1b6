"""A save that is cut short at any instant, and several writers at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from safepoint.errors import Conflict
from safepoint.storage import FileCheckpointStorage

RECORD = bytes(range(100))

# Counts each call into the system, and kills its own process with SIGKILL right after the n-th.
# One driver forks a child per step, so that this costs a fork and not a start of Python.
DRIVER = """
    import fcntl, json, os, signal, sys
    from safepoint.storage import FileCheckpointStorage

    NAMES = ["open", "mkdir", "fchmod", "write", "fsync", "link", "unlink", "close", "scandir"]
    ground, before, last = sys.argv[1], int(sys.argv[2]), 0
    record = bytes(range(100))

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
        storage.append("a", before + 1, record)
        return log

    outcomes = []
    while True:
        last += 1
        path = f"{ground}/{last}"
        if before:
            storage = FileCheckpointStorage(path)
            for sequence in range(1, before + 1):
                storage.append("a", sequence, b"old %d" % sequence)
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


@pytest.mark.parametrize("before", [0, 2], ids=["first record of a new store", "third record"])
def test_sigkill_after_each_step(tmp_path: Path, before: int) -> None:
    """The record is absent or whole, the old ones intact, left-overs cleaned, no false alarm."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DRIVER), str(tmp_path), str(before)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert outcomes[-1] == 0, done.stderr
    assert set(outcomes[:-1]) == {-signal.SIGKILL}
    steps = json.loads((tmp_path / "log").read_text())
    assert len(steps) == len(outcomes) - 1
    assert Counter(steps)["write"] == 3
    linked = steps.index("link") + 1
    left_temps = left_names = 0
    for killed_after, path in ((n, tmp_path / str(n)) for n in range(1, len(outcomes) + 1)):
        record = path / f"a/{before + 1:010d}.checkpoint"
        if killed_after >= linked:
            left_names += record.stat().st_nlink == 2
        left_temps += len(list(path.glob(".tmp/*")))
        if killed_after >= linked:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("safepoint.storage.file.clean", lambda _: None)
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
    assert left_names == 1


WRITER = """
    import json, sys
    from safepoint.errors import Conflict
    from safepoint.storage import FileCheckpointStorage

    path, writer = sys.argv[1:]
    print("ready", flush=True)
    sys.stdin.readline()
    storage = FileCheckpointStorage(path)
    won, lost = [], []
    for sequence in range(1, 51):
        try:
            storage.append("a", sequence, f"{writer}:{sequence}".encode() * 100)
        except Conflict:
            lost.append(sequence)
        else:
            won.append(sequence)
            if storage.head("a") < sequence:
                sys.exit("the head is behind what was saved")
    print(json.dumps([won, lost]))
"""


def test_one_of_several_processes_wins_each_sequence(tmp_path: Path) -> None:
    """Fork: four processes save the same fifty sequences, each told for each if it won."""
    root = tmp_path / "store"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(root), str(writer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for writer in range(4)
    ]
    for process in writers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in writers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    winner: dict[int, int] = {}
    for number, process in enumerate(writers):
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        won, lost = json.loads(out)
        assert sorted(won + lost) == list(range(1, 51))
        assert not winner.keys() & set(won)
        winner |= dict.fromkeys(won, number)
    assert sorted(winner) == list(range(1, 51))
    storage = FileCheckpointStorage(root)
    assert storage.head("a") == 50
    for sequence, number in winner.items():
        assert storage.read("a", sequence) == f"{number}:{sequence}".encode() * 100
    assert list((root / ".tmp").iterdir()) == []
