"""Many workers on one store: nothing is lost, nothing forks, and everything verifies."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.engines import OnSqlite, Worked
from benchmarks.load import Share, Workers, missing_of, save_all
from safepoint import Conflict

WORKERS = 8
THREADS = 6
CHECKPOINTS = 5
RACED = 40


def in_two_threads(store: Worked, share: Share) -> dict[str, list[str]]:
    """Save a share in two threads of one process, which share the ledger and its connections."""
    halves = [Share(share.threads[n::2], share.checkpoints) for n in range(2)]
    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(lambda half: save_all(store, half), halves))
    return {**told[0].names, **told[1].names}


def race(store: Worked, thread: str) -> list[int]:
    """Try to be the one that saves each sequence, and return those that were won."""
    won = []
    while (head := store.ledger.storage.head(thread)) < RACED:
        try:
            won.append(store.ledger.save(thread, {"order": thread}, after=head).sequence)
        except Conflict:
            continue
    return won


def test_8_processes_lose_nothing_on_sqlite(tmp_path: Path) -> None:
    """Save from 8 processes, each with threads of its own; then all want one thread."""
    opener = OnSqlite("", tmp_path / "store" / "checkpoints.db", tmp_path / "anchor")
    opener.open(0).close()
    shares = [
        Share(tuple(f"order-{worker}-{n}" for n in range(THREADS)), CHECKPOINTS)
        for worker in range(WORKERS)
    ]
    with Workers(WORKERS, {"store": opener}) as workers:
        names = workers.each("store", in_two_threads, shares)
        others = [*names[1:], names[0]]
        assert workers.each("store", missing_of, others, anew=True) == [[]] * WORKERS
        assert opener.count() == WORKERS * THREADS * CHECKPOINTS

        won = workers.each("store", race, ["raced"] * WORKERS)
    wins = Counter(sequence for sequences in won for sequence in sequences)
    assert wins == Counter(range(1, max(wins) + 1)), "each sequence was acknowledged once"
    assert max(wins) >= RACED
    store = opener.open(0)
    assert store.ledger.verify("raced") == len(wins)
    store.close()
    assert opener.count() == WORKERS * THREADS * CHECKPOINTS + len(wins)
