"""Several writers for one thread: one wins each sequence, the others are told and try again."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path

import pytest

from safepoint import (
    CheckpointStorage,
    Conflict,
    FileAnchor,
    FileCheckpointStorage,
    InMemoryAnchor,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
)

WRITERS = 4
SEQUENCES = 300

# Tries to be the one that saves each sequence, as soon as it can be saved.
WRITER = """
    import json, sys
    from pathlib import Path
    from safepoint import (
        Conflict, FileAnchor, FileCheckpointStorage, Keyring, Ledger, SigningKey
    )

    path, writer, sequences = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    ledger = Ledger(
        FileCheckpointStorage(path / "store"),
        store="invoices",
        keys=Keyring(SigningKey(bytes(range(32)))),
        anchor=FileAnchor(path / "anchor"),
        anchor_every=5,
    )
    print("ready", flush=True)
    sys.stdin.readline()
    won, refusals = [], set()
    while (head := ledger.storage.head("order-7")) < sequences:
        try:
            won.append(ledger.save("order-7", {"by": writer}, after=head).sequence)
        except Conflict as refusal:
            refusals.add(refusal.do)
    print(json.dumps([won, sorted(refusals)]))
"""


def check(ledger: Ledger, won: list[list[int]]) -> None:
    """Each sequence was won once, by the writer whose state stands there, and all verifies."""
    wins = Counter(sequence for sequences in won for sequence in sequences)
    assert wins == dict.fromkeys(range(1, ledger.storage.head("order-7") + 1), 1)
    assert len(wins) >= SEQUENCES
    for checkpoint in ledger.history("order-7"):
        assert checkpoint.sequence in won[checkpoint.state["by"]]
    assert ledger.verify("order-7") == len(wins)


def test_four_processes_race_for_300_sequences(tmp_path: Path) -> None:
    anchor = FileAnchor(tmp_path / "anchor", create=True)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path), str(n), str(SEQUENCES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(WRITERS)
    ]
    for process in writers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in writers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won: list[list[int]] = []
    refusals: set[str] = set()
    for process in writers:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        sequences, told = json.loads(out)
        won.append(sequences)
        refusals.update(told)
    assert refusals, "nobody lost, so nobody raced"
    assert all(told.startswith("Nothing was overwritten. Load the latest") for told in refusals)
    ledger = Ledger(
        FileCheckpointStorage(tmp_path / "store"),
        store="invoices",
        keys=Keyring(SigningKey(bytes(range(32)))),
        anchor=anchor,
    )
    check(ledger, won)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_four_threads_race_for_300_sequences(tmp_path: Path, kind: str) -> None:
    """They share one ledger, as the threads of one worker do."""
    storage: CheckpointStorage = (
        InMemoryCheckpointStorage() if kind == "memory" else FileCheckpointStorage(tmp_path / "s")
    )
    keys = Keyring(SigningKey.generate())
    ledger = Ledger(storage, store="invoices", keys=keys, anchor=InMemoryAnchor(), anchor_every=5)
    won: list[list[int]] = [[] for _ in range(WRITERS)]
    failures: list[BaseException] = []
    start = threading.Barrier(WRITERS)

    def write(writer: int) -> None:
        try:
            start.wait()
            while (head := storage.head("order-7")) < SEQUENCES:
                try:
                    saved = ledger.save("order-7", {"by": writer}, after=head)
                except Conflict:
                    continue
                won[writer].append(saved.sequence)
        except BaseException as error:  # noqa: BLE001  told below, in the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=write, args=[n]) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert failures == []
    check(ledger, won)
