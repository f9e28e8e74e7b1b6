"""Stores for teams: many workers on PostgreSQL and on SQLite, against LangGraph's own savers.

`make bench ARGS=stores` runs this part alone. On each engine 8 processes save 20,000 checkpoints in
2,000 threads, in five rounds. In a round the contenders take turns: each saves 4,000 checkpoints in
400 new threads, ten in each. Then every checkpoint is looked for: what was acknowledged must be
there, nothing else may be, and every thread of ours must verify, signature by signature.

What is compared is throughput, of one round with the same round of the other; the median of the
five counts.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.engines import JOURNALLED, PEER, Contender, on_postgres, on_sqlite, serving
from benchmarks.load import Saved, Share, Workers, missing_of, save_all
from benchmarks.measure import beside, table
from benchmarks.newest import newest

WRITES = """
What a save writes, in one transaction that is on disk when it returns:

- PostgreSQL, ours: the record. A first save asks where the thread ends, and adds a row for it.
  Theirs: the checkpoint and the state as a row each, with two more indexes, in one round trip.
- SQLite (WAL, synchronous=FULL), ours: the record. Theirs: the checkpoint. It holds the state.
- Anchored: the head as well, a transaction of its own in PostgreSQL under a login of its own; in
  another SQLite file beside SQLite.
- Journalled: besides the head, a signed line in the journal's chain of that thread, in a
  transaction of its own under a login of its own, before the record.
"""


AIMS = {
    ("PostgreSQL", "sealed"): 1.0,
    ("PostgreSQL", "anchored"): 0.6,
    ("PostgreSQL", JOURNALLED): 0.45,
    ("SQLite", "sealed"): 0.7,
    ("SQLite", "anchored"): 0.45,
}
"""Of the other's throughput, at least."""
CHECKED = ("none lost, all verified", "none lost; there is nothing to verify")


@dataclass(frozen=True)
class Scale:
    """How much each contender saves on each engine."""

    workers: int = 8
    threads: int = 2_000
    checkpoints: int = 10
    rounds: int = 5

    def __str__(self) -> str:
        return f"{self.workers} workers, {self.threads:,} threads, {self.total:,} checkpoints"

    @property
    def total(self) -> int:
        """How many checkpoints in all."""
        return self.threads * self.checkpoints

    def shares(self, number: int) -> list[Share]:
        """What each worker saves in a round."""
        each = range(self.threads // (self.workers * self.rounds))
        return [
            Share(tuple(f"order-{number}-{worker}-{n}" for n in each), self.checkpoints)
            for worker in range(self.workers)
        ]


@dataclass
class Taken:
    """What one contender took, and what it acknowledged to each worker."""

    seconds: list[float] = field(default_factory=list)
    saves: list[float] = field(default_factory=list)
    names: dict[int, dict[str, list[str]]] = field(default_factory=dict)

    def add(self, seconds: float, told: list[Saved]) -> None:
        """Add a round."""
        self.seconds.append(seconds)
        for worker, saved in enumerate(told):
            self.saves += saved.taken
            self.names.setdefault(worker, {}).update(saved.names)


def stores(folder: Path) -> None:
    """Measure both engines, and the newest of many on both."""
    with serving() as server:
        scale = Scale()
        load("PostgreSQL", on_postgres(server, scale.workers), scale)
        load("SQLite", on_sqlite(folder), scale)
        sys.stdout.write(WRITES)
        newest(folder, server)


def million(folder: Path) -> None:
    """Measure the newest of ten checkpoints and of a million, on both engines."""
    with serving() as server:
        on_postgres(server, 1)
        newest(folder, server, (10, 1_000_000))


def load(engine: str, contenders: Mapping[str, Contender], scale: Scale) -> dict[str, Taken]:
    """Save as many workers, check that nothing was lost, and print the table of an engine.

    Raises:
        RuntimeError: a worker failed, a checkpoint is lost, or a thread does not verify.
    """
    for contender in contenders.values():
        contender.open(0).close()  # its tables are made once, before all come at once
    with Workers(scale.workers, contenders) as workers:
        taken = _saved(workers, list(contenders), scale)
        for name, contender in contenders.items():
            _check(workers, name, contender, taken[name], scale)
    heads = ["what", "saves/s", "times theirs", "p50, ms", "p99, ms"]
    rows = [
        [*_row(contenders[name], one, taken[PEER], AIMS.get((engine, name))), CHECKED[name == PEER]]
        for name, one in taken.items()
    ]
    title = f"{engine}: {scale}; saves/s, and times theirs: above 1, ours is faster"
    table(title, [*heads, "checked"], rows)
    return taken


def _saved(workers: Workers, names: list[str], scale: Scale) -> dict[str, Taken]:
    taken = {name: Taken() for name in names}
    # Once for free: connections, imports, and the statements that a server prepares.
    for name in names:
        first = scale.shares(scale.rounds)
        told = workers.each(name, save_all, [Share(one.threads[:1], 10) for one in first])
        for worker, saved in enumerate(told):
            taken[name].names.setdefault(worker, {}).update(saved.names)
    for number in range(scale.rounds):
        random.shuffle(names)
        for name in names:
            start = time.perf_counter()
            told = workers.each(name, save_all, scale.shares(number))
            taken[name].add(time.perf_counter() - start, told)
    return taken


def _check(workers: Workers, name: str, contender: Contender, taken: Taken, scale: Scale) -> None:
    """Look for each checkpoint, by another worker than the one that saved it.

    Raises:
        RuntimeError: something is lost, or there is more than was acknowledged.
    """
    others = [taken.names[(worker + 1) % scale.workers] for worker in range(scale.workers)]
    wrong = [thread for one in workers.each(name, missing_of, others, anew=True) for thread in one]
    acknowledged = sum(len(saved) for threads in others for saved in threads.values())
    count = contender.count()
    if wrong or count != acknowledged or len(taken.saves) != scale.total:
        raise RuntimeError(
            f"{contender.label}: {acknowledged} checkpoints were acknowledged, {count} are there,"
            f" and {len(wrong)} threads are not as they were saved: {wrong[:5]}"
        )


def _row(contender: Contender, taken: Taken, peer: Taken, aim: float | None) -> list[str]:
    # All save as much in a round, and so its throughput goes by its time.
    ratios = [theirs / ours for ours, theirs in zip(taken.seconds, peer.seconds, strict=True)]
    saves = sorted(taken.saves)
    return [
        contender.label,
        f"{len(taken.saves) / sum(taken.seconds):,.0f}",
        beside(statistics.median(ratios), aim),
        f"{statistics.median(saves) * 1000:.2f}",
        f"{saves[len(saves) * 99 // 100] * 1000:.2f}",
    ]
