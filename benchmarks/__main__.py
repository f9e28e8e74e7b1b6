"""`make bench`: sealed saves and verified loads against the peers, in one run.

`make bench ARGS=stores` measures one part, or several: files, models, stores, adapters, audit,
console. A part that takes long runs only if you name it: million, the newest of as many
checkpoints.

Times on shared machines are noisy, so what counts are the ratios: contenders take turns, and the
median of many rounds is compared. The title of a table says what a ratio means there.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cryptography

from benchmarks.adapters import adapters
from benchmarks.audits import audits
from benchmarks.consoles import consoles
from benchmarks.measure import RATIO, beside, medians, table
from benchmarks.peers import (
    AgentFramework,
    Line,
    Message,
    SyncedPickle,
    chat_of,
    plain_of,
    state_of,
)
from benchmarks.stores import million, stores
from benchmarks.weights import models
from safepoint import Codec, FileCheckpointStorage, Keyring, Ledger, SigningKey, SQLiteAnchor

SIZES = {"1 KB": 1_000, "10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000}
STATES = {
    **{name: state_of(size) for name, size in SIZES.items()},
    "plain, 100 KB": plain_of(100_000),
    "plain, 1 MB": plain_of(1_000_000),
    "chat of 30": chat_of(30),
}
SAVE_AIMS = {
    ("plain, 1 MB", "anchored", SyncedPickle.name): 1.8,
    ("1 MB", "anchored", SyncedPickle.name): 2.3,
}
"""What the ratio of a state, a way to save and a peer should be at most."""
LOAD_AIMS = {
    ("10 KB", "anchored", AgentFramework.name): 0.45,
    ("1 MB", "anchored", AgentFramework.name): 0.25,
}
PEERS = (SyncedPickle, AgentFramework)
ROUNDS = 41
FEW = 11
THREAD = "order-7"


class Store:
    """A ledger on files, as an application would open it."""

    def __init__(self, folder: Path, *, anchored: bool) -> None:
        folder.mkdir(mode=0o700)
        heads = folder / "anchor" / "heads.db"  # as open_ledger does
        self.ledger = Ledger(
            FileCheckpointStorage(folder / "store"),
            store="invoices",
            keys=Keyring(SigningKey.generate()),
            codec=Codec([Line, Message]),
            anchor=SQLiteAnchor(heads, create=True) if anchored else None,
        )

    def save(self, state: Any) -> None:
        """Save one more, on disk when it returns."""
        self.ledger.save(THREAD, state)

    def load(self) -> Any:
        """Load the newest, verified."""
        return self.ledger.latest(THREAD).state


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of: {', '.join(PARTS)}")
    chosen = parser.parse_args().parts or [part for part in PARTS if part != "million"]
    if unknown := {*chosen} - {*PARTS}:
        parser.error(f"there is no part {min(unknown)!r}. There are: {', '.join(PARTS)}")
    sys.stdout.write(
        f"cryptography {cryptography.__version__}, Python"
        f" {platform.python_version()}, {platform.system()}; medians of {ROUNDS} rounds, or {FEW}"
        " where one takes long.\n"
    )
    with tempfile.TemporaryDirectory(prefix="safepoint-bench-") as folder:
        for part in chosen:
            inside = Path(folder, part)
            inside.mkdir(mode=0o700)
            PARTS[part](inside)


def by_size(folder: Path) -> None:
    """Save and load dataclasses and datetimes at four sizes, plain data at two, and a chat."""
    saves, loads = [], []
    for name, state in STATES.items():
        inside = folder / name
        inside.mkdir()
        contenders: dict[str, Any] = {
            "sealed": Store(inside / "sealed", anchored=False),
            "anchored": Store(inside / "anchored", anchored=True),
            **{peer.name: peer(inside / peer.name) for peer in PEERS},
        }
        rounds = FEW if "MB" in name else ROUNDS
        saved = medians(
            {key: partial(value.save, state) for key, value in contenders.items()}, rounds
        )
        loaded = medians({key: value.load for key, value in contenders.items()}, rounds)
        saves += _rows(name, saved, SAVE_AIMS)
        loads += _rows(name, loaded, LOAD_AIMS)
    heads = ["state", "what", "ours, ms", "to sealed", *(f"to {peer.name}" for peer in PEERS)]
    table(f"Save: sealed, synced to disk; {RATIO}", heads, saves)
    table(f"Load the newest: verified, then decoded; {RATIO}", heads, loads)


def _rows(
    size: str, taken: dict[str, float], aims: dict[tuple[str, str, str], float]
) -> list[list[str]]:
    peers = ["sealed", *(peer.name for peer in PEERS)]
    names = {"sealed": "sealed", "anchored": "and anchored"}
    return [
        [
            size,
            name,
            f"{taken[key] * 1000:.2f}",
            *(beside(taken[key] / taken[peer], aims.get((size, key, peer))) for peer in peers),
        ]
        for key, name in names.items()
    ]


PARTS: dict[str, Callable[[Path], None]] = {
    "files": by_size,
    "models": models,
    "stores": stores,
    "adapters": adapters,
    "audit": audits,
    "console": consoles,
    "million": million,
}


if __name__ == "__main__":
    main()
