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
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import cryptography

from benchmarks.adapters import adapters
from benchmarks.audits import audits
from benchmarks.consoles import consoles
from benchmarks.measure import RATIO, beside, medians, table, without_fsync
from benchmarks.peers import (
    AgentFramework,
    Line,
    Message,
    PlainPickle,
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
COUNTS = (10, 100, 1_000, 10_000, 100_000)
PEER_COUNTS = (10, 100, 1_000)
LINKS = 10_000
LINK_AIM = 15  # µs
SAVE_AIMS = {
    ("plain, 1 MB", "anchored", SyncedPickle.name): 1.8,
    ("1 MB", "anchored", SyncedPickle.name): 2.3,
}
"""What the ratio of a state, a way to save and a peer should be at most."""
LOAD_AIMS = {
    ("10 KB", "anchored", AgentFramework.name): 0.45,
    ("1 MB", "anchored", AgentFramework.name): 0.25,
}
ROUNDS = 41
FEW = 11
THREAD = "order-7"


class Store:
    """A ledger on files, as an application would open it."""

    def __init__(self, folder: Path, *, anchored: bool) -> None:
        self._folder = folder
        self._anchored = anchored
        self._keys = Keyring(SigningKey.generate())
        folder.mkdir(mode=0o700)
        self.ledger = self.opened()

    def opened(self) -> Ledger:
        """Open it anew, as another process would: nothing is remembered."""
        heads = self._folder / "anchor" / "heads.db"  # as open_ledger does
        return Ledger(
            FileCheckpointStorage(self._folder / "store"),
            store="invoices",
            keys=self._keys,
            codec=Codec([Line, Message]),
            anchor=SQLiteAnchor(heads, create=True) if self._anchored else None,
        )

    def fill(self, count: int, state: Any) -> None:
        """Save until there are `count` checkpoints, without waiting for the disk."""
        with without_fsync():
            for _ in range(self.ledger.storage.head(THREAD), count):
                self.ledger.save(THREAD, state)

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
    unknown = [part for part in chosen if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}. There are: {', '.join(PARTS)}")
    try:
        release = version("safepoint")
    except PackageNotFoundError:
        release = "(not installed)"
    sys.stdout.write(
        f"safepoint {release}, cryptography {cryptography.__version__}, Python"
        f" {platform.python_version()}, {platform.system()}; medians of {ROUNDS} rounds, or {FEW}"
        " where one takes long.\n"
    )
    with tempfile.TemporaryDirectory(prefix="safepoint-bench-") as folder:
        measures = [measure for part in PARTS if part in chosen for measure in PARTS[part]]
        for number, measure in enumerate(measures):
            inside = Path(folder, str(number))
            inside.mkdir(mode=0o700)
            measure(inside)


def by_size(folder: Path) -> None:
    """Save and load dataclasses and datetimes at four sizes, plain data at two, and a chat."""
    saves, loads = [], []
    heads: list[str] = []
    for name, state in STATES.items():
        inside = folder / name
        inside.mkdir()
        sealed = Store(inside / "sealed", anchored=False)
        anchored = Store(inside / "anchored", anchored=True)
        peers = peers_in(inside)
        contenders = {"sealed": sealed, "anchored": anchored, **peers}
        rounds = FEW if "MB" in name else ROUNDS
        saved = medians({key: _saving(value, state) for key, value in contenders.items()}, rounds)
        loaded = medians({key: value.load for key, value in contenders.items()}, rounds)
        heads = [f"to {peer.name}" for peer in peers.values()]
        saves += _rows(name, saved, list(peers), SAVE_AIMS)
        others = [peer for peer in peers if peer != SyncedPickle.name]
        loads += _rows(name, loaded, others, LOAD_AIMS)
    ours = ["state", "what", "ours, ms", "to sealed"]
    table(f"Save: sealed, synced to disk; {RATIO}", [*ours, *heads], saves)
    heads.remove(f"to {SyncedPickle.name}")  # it loads as the plain one does
    table(f"Load the newest: verified, then decoded; {RATIO}", [*ours, *heads], loads)


def peers_in(folder: Path) -> dict[str, Any]:
    """Return the peers that are installed."""
    peers: dict[str, Any] = {
        peer.name: peer(folder / peer.name) for peer in (PlainPickle, SyncedPickle)
    }
    try:
        framework = AgentFramework(folder / AgentFramework.name)
    except ImportError:
        sys.stdout.write("\nagent-framework-core is not installed: no comparison with it.\n")
        return peers
    framework.name = f"{framework.name} {framework.release}"
    return {**peers, AgentFramework.name: framework}


def _saving(store: Any, state: Any) -> Callable[[], object]:
    return lambda: store.save(state)


def _rows(
    size: str,
    taken: dict[str, float],
    peers: Sequence[str],
    aims: dict[tuple[str, str, str], float],
) -> list[list[str]]:
    names = {"sealed": "sealed", "anchored": "and anchored"}
    return [
        [
            size,
            name,
            f"{taken[key] * 1000:.2f}",
            *(
                beside(taken[key] / taken[peer], aims.get((size, key, peer)))
                for peer in ("sealed", *peers)
            ),
        ]
        for key, name in names.items()
    ]


def by_count(folder: Path) -> None:
    """Find the newest of more and more checkpoints: in a ledger just opened, and in an open one."""
    state, rows = state_of(1_000), []
    stores = {count: Store(folder / str(count), anchored=True) for count in COUNTS}
    for count, store in stores.items():
        store.fill(count, state)
    anew = medians(
        {str(count): _newest(store, anew=True) for count, store in stores.items()}, ROUNDS
    )
    kept = medians({str(count): _newest(store) for count, store in stores.items()}, ROUNDS)
    for count in COUNTS:
        name, peer = str(count), "not run"
        if count in PEER_COUNTS:
            peer = _latest_of_peer(folder / f"peer-{count}", count, state, stores[count])
        ours = [
            f"{taken[name] * 1e6:.0f} ({taken[name] / taken['10']:.2f})" for taken in (anew, kept)
        ]
        rows.append([f"{count:,}", *ours, peer])
    heads = [
        "checkpoints",
        "just opened, µs (to 10)",
        "kept open, µs (to 10)",
        "agent-framework-core, to ours kept open",
    ]
    table("Find and load the newest: anchored", heads, rows)


def _newest(store: Store, *, anew: bool = False) -> Callable[[], object]:
    if anew:
        return lambda: store.opened().latest(THREAD)
    ledger = store.opened()
    return lambda: ledger.latest(THREAD)


def _latest_of_peer(folder: Path, count: int, state: Any, store: Store) -> str:
    try:
        peer = AgentFramework(folder)
    except ImportError:
        return "not installed"
    for _ in range(count):
        peer.save(state)
    rounds = ROUNDS if count < 1_000 else FEW
    taken = medians({"ours": _newest(store), "peer": peer.latest}, rounds)
    peer.close()
    return f"{taken['peer'] / taken['ours']:.0f} times as long"


def links(folder: Path) -> None:
    """Verify a chain of 10,000 from its first checkpoint to its last."""
    state, rows = {"amount": 42}, []
    store = Store(folder / "links", anchored=True)
    store.fill(LINKS, state)
    for how, every in {"one signature, then links": False, "every signature": True}.items():
        verify = partial(store.opened().verify, THREAD, every_signature=every)
        taken = medians({"ours": verify}, FEW)["ours"]
        rows.append([how, beside(taken * 1e6 / LINKS, None if every else LINK_AIM)])
    table(f"Verify {LINKS:,} links on files", ["how", "µs a link"], rows)


PARTS: dict[str, tuple[Callable[[Path], None], ...]] = {
    "files": (by_size, by_count, links),
    "models": (models,),
    "stores": (stores,),
    "adapters": (adapters,),
    "audit": (audits,),
    "console": (consoles,),
    "million": (million,),
}


if __name__ == "__main__":
    main()
