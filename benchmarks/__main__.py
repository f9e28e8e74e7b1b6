"""`make bench`: sealed saves and verified loads against the peers, in one run.

Times on shared machines are noisy, so every figure is a ratio: the median of many rounds in which
ours and the peer take turns.
"""

from __future__ import annotations

import asyncio
import pickle
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from safepoint import Codec, FileCheckpointStorage, Keyring, Ledger, SigningKey

ROUNDS = 41


@dataclass
class Line:
    """A typical item of state: text, a number, a time."""

    item: str
    amount: int
    due: datetime


def state_of(size: int) -> dict[str, Any]:
    """Return a state whose encoding is about `size` bytes."""
    due = datetime(2026, 12, 1, tzinfo=UTC)
    return {"lines": [Line(f"item {n}", n, due) for n in range(max(1, size // 110))]}


def ratio(ours: Callable[[], object], peer: Callable[[], object]) -> tuple[float, float]:
    """Return the median time of ours in milliseconds, and its ratio to the peer's."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for measured, act in zip(times, (ours, peer), strict=True):
            start = time.perf_counter()
            act()
            measured.append(time.perf_counter() - start)
    mine, theirs = map(statistics.median, times)
    return mine * 1000, mine / theirs


def report(name: str, measured: tuple[float, float]) -> None:
    """Print one row of the table."""
    sys.stdout.write(f"| {name} | {measured[0]:.2f} | {measured[1]:.2f} |\n")


def against_pickle(folder: Path, size: int) -> None:
    """Compare with `pickle.dump` to a file: no seal, no atomic write, nothing durable."""
    ledger = _ledger(folder / f"sealed-{size}")
    state, file = state_of(size), folder / f"plain-{size}.pickle"

    report(
        f"save, {size // 1024} KiB, against pickle.dump",
        ratio(lambda: ledger.save("t", state), lambda: file.write_bytes(pickle.dumps(state))),
    )
    report(
        f"load, {size // 1024} KiB, against pickle.load",
        ratio(lambda: ledger.load("t", 1), lambda: pickle.loads(file.read_bytes())),  # noqa: S301  ours, written above
    )


def against_agent_framework(folder: Path, size: int) -> None:
    """Compare with Agent Framework's file storage, which pickles the same dataclasses."""
    try:
        from agent_framework import FileCheckpointStorage as Peer
        from agent_framework import WorkflowCheckpoint
    except ImportError:
        sys.stdout.write("(agent-framework-core is not installed: no comparison with it)\n")
        return
    release = version("agent-framework-core")
    peer = Peer(folder / f"peer-{size}", allowed_checkpoint_types=[f"{__name__}:Line"])
    ledger, state = _ledger(folder / f"ours-{size}"), state_of(size)
    loop = asyncio.new_event_loop()

    def peer_save() -> str:
        saved = WorkflowCheckpoint(workflow_name="t", graph_signature_hash="", state=state)
        return str(loop.run_until_complete(peer.save(saved)))

    first = peer_save()
    saved = ratio(lambda: ledger.save("t", state), peer_save)
    report(f"save, {size // 1024} KiB, against agent-framework-core {release}", saved)
    loaded = ratio(lambda: ledger.load("t", 1), lambda: loop.run_until_complete(peer.load(first)))
    report(f"load, {size // 1024} KiB, against agent-framework-core {release}", loaded)
    latest = ratio(
        lambda: ledger.latest("t"),
        lambda: loop.run_until_complete(peer.get_latest(workflow_name="t")),
    )
    report(f"latest of {ROUNDS}, against agent-framework-core {release}", latest)
    loop.close()


def _ledger(path: Path) -> Ledger:
    keys = Keyring(SigningKey.generate())
    return Ledger(FileCheckpointStorage(path), store="bench", keys=keys, codec=Codec([Line]))


def main() -> None:
    """Print the table."""
    try:
        release = version("safepoint")
    except PackageNotFoundError:
        release = "(not installed)"
    sys.stdout.write(
        f"safepoint {release}, Python {platform.python_version()}, {platform.system()}; "
        f"medians of {ROUNDS}\n\n| what | ours, ms | ratio |\n|---|---|---|\n"
    )
    with tempfile.TemporaryDirectory(prefix="safepoint-bench-") as folder:
        for size in (1024, 10_240, 102_400):
            against_pickle(Path(folder), size)
            against_agent_framework(Path(folder), size)


if __name__ == "__main__":
    main()
