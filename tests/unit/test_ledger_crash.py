"""A save with its anchor, killed at any instant: what was acknowledged is there, and no alarm."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from safepoint import FileAnchor, FileCheckpointStorage, Head, Keyring, Ledger, SigningKey

KEY = bytes(range(32))

# Forks a child per step; the child kills itself right after its n-th call into the system. The
# last one gets to the end and says which calls there were.
STEPS = """
    import fcntl, json, os, signal, sys
    from pathlib import Path
    from safepoint import FileAnchor, FileCheckpointStorage, Keyring, Ledger, SigningKey

    NAMES = ["open", "mkdir", "fchmod", "write", "fsync", "link", "unlink", "rename", "close"]
    ground, before = Path(sys.argv[1]), int(sys.argv[2])
    say = os.write

    def opened(path):
        return Ledger(
            FileCheckpointStorage(path / "store"),
            store="invoices",
            keys=Keyring(SigningKey(bytes(range(32)))),
            anchor=FileAnchor(path / "anchor", create=True),
        )

    def killed_after(path, last):
        log = []
        def hook(module, name):
            real = getattr(module, name)
            def step(*args, **kwargs):
                try:
                    return real(*args, **kwargs)
                finally:
                    log.append(name)
                    if len(log) == last:
                        os.kill(os.getpid(), signal.SIGKILL)
            setattr(module, name, step)
        for name in NAMES:
            hook(os, name)
        hook(fcntl, "flock")
        opened(path).save("order-7", {"n": before + 1})
        return log

    last = 0
    while True:
        last += 1
        path = ground / str(last)
        path.mkdir(mode=0o700)
        for n in range(1, before + 1):
            opened(path).save("order-7", {"n": n})
        pid = os.fork()
        if not pid:
            log = killed_after(path, last)
            say(1, json.dumps(log).encode())
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code != -signal.SIGKILL:
            sys.exit(code)
"""

# Saves until it is killed, and writes down each number once its save has returned.
SAVES = """
    import os, sys
    from pathlib import Path
    from safepoint import FileAnchor, FileCheckpointStorage, Keyring, Ledger, SigningKey

    path = Path(sys.argv[1])
    ledger = Ledger(
        FileCheckpointStorage(path / "store"),
        store="invoices",
        keys=Keyring(SigningKey(bytes(range(32)))),
        anchor=FileAnchor(path / "anchor", create=True),
        anchor_every=int(sys.argv[2]),
    )
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            while True:
                os.write(1, b"%d\\n" % ledger.save("order-7", {"text": "x" * 3000}).sequence)
        os.write(2, b"%d\\n" % pid)
        os.waitpid(pid, 0)
        os.write(1, b"dead\\n")
"""


def open_ledger(path: Path, every: int = 1) -> Ledger:
    return Ledger(
        FileCheckpointStorage(path / "store"),
        store="invoices",
        keys=Keyring(SigningKey(KEY)),
        anchor=FileAnchor(path / "anchor", create=True),
        anchor_every=every,
    )


@pytest.mark.parametrize("before", [0, 2], ids=["first save of a new store", "third save"])
def test_sigkill_after_each_step_of_an_anchored_save(tmp_path: Path, before: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(STEPS), str(tmp_path), str(before)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)
    linked, renamed = steps.index("link") + 1, len(steps) - steps[::-1].index("rename")
    assert linked < renamed < len(steps)
    ahead = 0
    for killed_after in range(1, len(steps) + 1):
        path = tmp_path / str(killed_after)
        saved = before + (killed_after >= linked)
        anchored = open_ledger(path).anchor.read("invoices", "order-7")  # type: ignore[union-attr]
        ahead += (anchored.sequence if anchored else 0) < saved
        ledger = open_ledger(path)
        assert ledger.verify("order-7") == saved
        if saved:
            assert ledger.latest("order-7").state == {"n": saved}
        following = ledger.save("order-7", {"n": saved + 1})
        assert following.sequence == saved + 1
        assert open_ledger(path).verify("order-7") == saved + 1
        assert open_ledger(path).anchor.read("invoices", "order-7") == Head(  # type: ignore[union-attr]
            following.sequence, following.digest
        )
    assert ahead, "no kill fell between the two writes, so this proves nothing"


@pytest.mark.parametrize("every", [1, 7])
def test_sigkill_at_150_random_instants(tmp_path: Path, every: int) -> None:
    """Twice 150, with an anchor after each save and after each seventh."""
    driver = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SAVES), str(tmp_path), str(every)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    assert driver.stderr is not None
    chance = random.Random(7)  # noqa: S311  instants, not secrets
    acknowledged = unacknowledged = 0
    with driver:
        for _ in range(150):
            driver.stdin.write("go\n")
            driver.stdin.flush()
            pid = int(driver.stderr.readline())
            time.sleep(chance.uniform(0, 0.02))
            os.kill(pid, signal.SIGKILL)
            told = list(iter(driver.stdout.readline, "dead\n"))
            acknowledged = int(told[-1]) if told else acknowledged
            ledger = open_ledger(tmp_path, every)
            head = ledger.storage.head("order-7")
            assert acknowledged <= head <= acknowledged + 1
            unacknowledged += head > acknowledged
            acknowledged = head
            if head:
                assert ledger.latest("order-7").sequence == head
        driver.stdin.close()
    assert unacknowledged, "no kill fell between a write and its return"
    assert open_ledger(tmp_path, every).verify("order-7") == acknowledged > 20
