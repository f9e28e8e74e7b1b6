"""Several processes that write, prune and read the same thread at once."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from safepoint.storage import FileCheckpointStorage

START = """
    import json, sys
    from safepoint.errors import Conflict, NotFound
    from safepoint.storage import FileCheckpointStorage

    path, number = sys.argv[1], int(sys.argv[2])
    storage = FileCheckpointStorage(path)
    print("ready", flush=True)
    sys.stdin.readline()
"""


def together(root: Path, *codes: str) -> list[Any]:
    """Run each code in a process of its own, all at the same moment; return what they print."""
    with ExitStack() as stack:
        processes = []
        for number, code in enumerate(codes):
            process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(START + code), str(root), str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        results: list[Any] = []
        for process in reversed(processes):  # the first may wait for the others
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            results.insert(0, json.loads(out))
    return results


EACH = """
    won, lost = [], []
    for sequence in range(1, 301):
        try:
            storage.append("a", sequence, f"{number}:{sequence}".encode() * 100)
        except Conflict:
            lost.append(sequence)
        else:
            won.append(sequence)
            if storage.head("a") < sequence:
                sys.exit("the head is behind what was saved")
    print(json.dumps([won, lost]))
"""

RETRY = """
    won, lost = [], []
    while len(won) < 75:
        sequence = storage.head("a") + 1
        try:
            storage.append("a", sequence, f"{number}:{sequence}".encode() * 100)
        except Conflict:
            lost.append(sequence)
        else:
            won.append(sequence)
    print(json.dumps([won, lost]))
"""


@pytest.mark.parametrize("code", [EACH, RETRY], ids=["each tries each", "the loser tries the next"])
def test_one_of_four_processes_wins_each_of_300_sequences(tmp_path: Path, code: str) -> None:
    """Fork: each is told for each sequence whether it won, and what it won is what is there."""
    root = tmp_path / "store"
    results = together(root, *[code] * 4)
    winner: dict[int, int] = {}
    for number, (won, lost) in enumerate(results):
        assert code == RETRY or sorted(won + lost) == list(range(1, 301))
        assert not winner.keys() & set(won)
        winner |= dict.fromkeys(won, number)
    assert sorted(winner) == list(range(1, 301))
    assert any(lost for _, lost in results)
    storage = FileCheckpointStorage(root)
    assert storage.head("a") == 300
    for sequence, record in enumerate(storage.scan("a", 1, 300), start=1):
        assert record == f"{winner[sequence]}:{sequence}".encode() * 100
    assert list((root / ".tmp").iterdir()) == []


PRUNE = """
    first = [10, 20][number]
    print(sum(storage.prune(f"t{n}", first, b"base %d" % first) for n in range(60)))
"""


def test_two_prunes_at_once_end_at_the_later(tmp_path: Path) -> None:
    """Whoever is first, on each of sixty threads: 20 is where it begins, and nothing above went."""
    root = tmp_path / "store"
    storage = FileCheckpointStorage(root)
    for n in range(60):
        storage.append(f"t{n}", 1, b"1")
        for sequence in range(2, 26):
            record = root / f"t{n}/{sequence:010d}.checkpoint"
            record.write_bytes(b"%d" % sequence)
            record.chmod(0o600)
    assert sum(together(root, PRUNE, PRUNE)) == 60 * 19
    for n in range(60):
        assert storage.base(f"t{n}") == (20, b"base 20")
        assert storage.head(f"t{n}") == 25
        assert list(storage.scan(f"t{n}", 20, 25)) == [b"%d" % s for s in range(20, 26)]
        assert len(list((root / f"t{n}").iterdir())) == 7


KEEP_THREE = """
    from pathlib import Path

    sequence = 0
    while not all(Path(f"{path}.{reader}").exists() for reader in (1, 2)):
        sequence += 1
        storage.append("a", sequence, b"record %d" % sequence)
        if sequence > 3:
            storage.prune("a", sequence - 2, b"base %d" % (sequence - 2))
    print(sequence)
"""

WATCH = """
    head = first = pruned = moved = 0
    while moved < 150:
        before, head = head, storage.head("a")
        moved += head > before
        if head < before:
            sys.exit(f"the head went from {before} back to {head}")
        if number == 2:
            storage = FileCheckpointStorage(path)
        base = storage.base("a")
        if base is not None:
            before, first = first, base[0]
            if first < before or base[1] != b"base %d" % first:
                sys.exit(f"the base went from {before} to {base}")
        try:
            if head and storage.read("a", head) != b"record %d" % head:
                sys.exit(f"{head} is torn")
            if first:
                list(storage.scan("a", first, max(first, head)))
        except NotFound as error:
            pruned += 1
            if "was pruned" not in error.what:
                raise
    open(f"{path}.{number}", "w").close()
    print(pruned)
"""


def test_readers_beside_a_process_that_saves_and_prunes_see_no_alarm(tmp_path: Path) -> None:
    """No gap, no head that goes back, no torn record; at most that one was pruned meanwhile."""
    saved, *_ = together(tmp_path / "store", KEEP_THREE, WATCH, WATCH)
    assert saved >= 150
