"""A process that saves and prunes in a loop, killed at random instants."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

# The parent forks a child that works and tells of each thing done through a pipe, lets it do a few,
# kills it after a random part of the time that one takes, and looks at the store with fresh eyes.
# The next child goes on from there.
DRIVER = """
    import hashlib, json, os, random, signal, sys, time
    from safepoint.errors import NotFound
    from safepoint.storage import FileCheckpointStorage

    path, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dice = random.Random(seed)
    temps, found = f"{path}/.tmp", {"temps": 0, "unacknowledged": 0, "left over": 0, "pruned": 0}

    def expected(sequence):
        return hashlib.sha256(b"%d" % sequence).hexdigest().encode() * (1 + sequence % 200)

    def work(pipe):
        storage = FileCheckpointStorage(path)
        while True:
            sequence = storage.head("a") + 1
            storage.append("a", sequence, expected(sequence))
            os.write(pipe, b"s%010d" % sequence)
            if sequence % 6 == 0:
                storage.prune("a", sequence - 3, b"base %d" % (sequence - 3))
                os.write(pipe, b"p%010d" % (sequence - 3))

    def killed_child(pace):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                work(writer)
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)
            os._exit(99)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            since, count = time.monotonic(), dice.randint(0, 4)
            told = file.read(11 * count)
            if count:  # however fast this machine is just now
                pace = (time.monotonic() - since) / count
            time.sleep(dice.uniform(0, 1.5) * pace)
            os.kill(child, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code != -signal.SIGKILL:
                sys.exit(f"the child failed ({code})")
            told = (told + file.read()).decode()
        return [(told[at], int(told[at + 1 : at + 11])) for at in range(0, len(told), 11)], pace

    saved, begun, pace = 0, 0, 0.002
    for _ in range(kills):
        acknowledged, pace = killed_child(pace)
        for kind, number in acknowledged:
            saved, begun = (number, begun) if kind == "s" else (saved, number)
        found["temps"] += os.path.isdir(temps) and len(os.listdir(temps))
        storage = FileCheckpointStorage(path)
        assert not os.path.isdir(temps) or os.listdir(temps) == []
        head = storage.head("a")
        assert head in (saved, saved + 1), f"{saved} was acknowledged, and the head is {head}"
        found["unacknowledged"] += head > saved
        saved = head
        first, base = storage.base("a") or (0, b"")
        assert first in (begun, head // 6 * 6 - 3), f"{begun} was acknowledged, and {first} found"
        assert not first or base == b"base %d" % first
        found["pruned"] = begun = first
        if head:
            names = [name for name in os.listdir(f"{path}/a") if name != "base"]
            found["left over"] += len(names) > head - max(first, 1) + 1
            records = storage.scan("a", max(first, 1), head)
            for sequence, record in enumerate(records, start=max(first, 1)):
                assert record == expected(sequence), f"{sequence} is torn"
    found["head"] = storage.head("a")
    print(json.dumps(found))
"""


def test_sigkill_at_300_random_instants(tmp_path: Path) -> None:
    """What was acknowledged is there, what was not is absent or whole, and no false alarm."""
    seed = 20_240_607
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DRIVER), str(tmp_path / "store"), "300", str(seed)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["head"] >= 300
    assert found["pruned"] >= 200
    # Kills that never hit a save half-way would show nothing.
    assert found["temps"] >= 20, found
    assert found["unacknowledged"] >= 1, found
