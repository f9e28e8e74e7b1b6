"""The audit: 2,000 files of models beside picklescan and modelscan, and 10,000 sealed checkpoints.

Each tool runs as its users run it, in a process of its own; its imports are part of that.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.measure import RATIO, beside, table, without_fsync
from safepoint import FileCheckpointStorage, Keyring, Ledger, SigningKey, SQLiteAnchor

FILES = 2_000
CHECKPOINTS = 10_000
THREADS = 100
ROUNDS = 3
EACH_AIM = 3.0  # ms
AIMS = {"picklescan": 1.0, "modelscan": 0.1}
"""What the ratio of the times should be at most."""

Run = tuple[float, float]
"""How many seconds a process took, and how many MiB it had at most."""


def audits(folder: Path) -> None:
    """Measure both."""
    _of_models(folder / "models")
    _of_checkpoints(folder / "store")


def _of_models(folder: Path) -> None:
    try:
        import numpy as np
        import safetensors.torch
        import torch

        names = {tool: f"{tool} {version(tool)}" for tool in AIMS}
    except ImportError as error:
        sys.stdout.write(f"\n{error}: the audit of models is not measured.\n")
        return
    count, size = _models(folder, torch, safetensors.torch.save, np)
    contenders = {
        "ours": ["-m", "safepoint", "audit", str(folder)],
        "picklescan": ["-m", "picklescan", "-p", str(folder)],
        "modelscan": ["-m", "modelscan.cli", "-p", str(folder)],
    }
    runs = _turns(contenders)
    rows = []
    for name in ("ours", *AIMS):
        taken, most = (statistics.median(each) for each in zip(*runs[name], strict=True))
        time_to, memory_to = (
            statistics.median(
                one[n] / other[n] for one, other in zip(runs["ours"], runs[name], strict=True)
            )
            for n in (0, 1)
        )
        ratios = [beside(time_to, AIMS.get(name)), beside(memory_to)] if name in AIMS else ["", ""]
        rows.append([names.get(name, "ours"), f"{taken:.2f}", f"{most:.0f}", *ratios])
    heads = ["tool", "s", "peak MiB", "our time to it", "our peak to it"]
    table(f"Audit {count:,} files of models, {size / 2**20:.0f} MiB; {RATIO}", heads, rows)


def _of_checkpoints(folder: Path) -> None:
    """Audit a store with every check that applies to it: files, seals, links, anchor."""
    folder.mkdir(mode=0o700)
    key = SigningKey.from_file(folder / "keys/key", create=True)
    anchor = SQLiteAnchor(folder / "anchor/heads.db", create=True)
    storage = FileCheckpointStorage(folder / "state")
    ledger = Ledger(storage, store="invoices", keys=Keyring(key), anchor=anchor)
    with without_fsync():
        for n in range(CHECKPOINTS):
            ledger.save(f"order-{n % THREADS}", {"step": n, "note": "x" * 1000})
    told = folder / "safepoint.toml"
    told.write_text("[stores.invoices]\nstorage='state'\nkey=['keys/key']\nanchor='anchor'\n")
    runs = _turns({"ours": ["-m", "safepoint", "audit", "--config", str(told)]})["ours"]
    taken, most = (statistics.median(each) for each in zip(*runs, strict=True))
    rows = [[beside(taken * 1000 / CHECKPOINTS, EACH_AIM), f"{most:.0f}"]]
    title = f"Audit {CHECKPOINTS:,} checkpoints on files, every signature verified"
    table(title, ["ms a checkpoint", "peak MiB"], rows)


def _turns(contenders: dict[str, list[str]]) -> dict[str, list[Run]]:
    """Return what each process took in each round. They take turns, as in `measure.turns`."""
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    order = list(contenders.items())
    for _ in range(ROUNDS):
        random.shuffle(order)
        for name, arguments in order:
            runs[name].append(_ran(arguments))
    return runs


# Between this process and a tool: a new process begins with the peak of the one that starts it.
_STARTER = """
import os, subprocess, sys, time
start = time.perf_counter()
nowhere = subprocess.DEVNULL
child = subprocess.Popen([sys.executable, *sys.argv[1:]], stdout=nowhere, stderr=nowhere)
_, status, used = os.wait4(child.pid, 0)
print(time.perf_counter() - start, used.ru_maxrss, os.waitstatus_to_exitcode(status), flush=True)
os._exit(0)
"""


def _ran(arguments: Sequence[str]) -> Run:
    command = [sys.executable, "-c", _STARTER, *arguments]
    # Installed packages have bytecode: ours has some, too, however this process was started.
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)  # noqa: S603
    said = done.stdout
    taken, most, status = said.split()
    if status not in ("0", "1", "2"):  # of modelscan 2 is that it could not read some
        raise RuntimeError(f"{arguments[:3]} ended with {status}.")
    return float(taken), int(most) / (2**20 if sys.platform == "darwin" else 2**10)


def _models(folder: Path, torch: Any, save: Callable[[Any], bytes], np: Any) -> tuple[int, int]:
    """Write small files of the kinds that people keep: an adapter, a scaler, a vocabulary."""
    folder.mkdir(mode=0o700)
    generator, size = torch.Generator().manual_seed(7), 0

    def net(width: int) -> dict[str, Any]:
        names = (f"layers.{n}.{part}" for n in range(12) for part in ("weight", "bias"))
        return {name: torch.randn(width, 16, generator=generator) for name in names}

    def saved(value: Any, **how: Any) -> bytes:
        file = io.BytesIO()
        torch.save(value, file, **how)
        return file.getvalue()

    def scaler(n: int) -> dict[str, Any]:
        return {"mean": np.arange(n + 64.0), "classes": [f"class-{each}" for each in range(200)]}

    def arrays(n: int) -> bytes:
        file = io.BytesIO()
        np.savez(file, x=np.ones((n + 8, 16)), y=np.arange(n + 8))
        return file.getvalue()

    vocabulary = {f"token-{n}": n for n in range(2_000)}
    makes: list[tuple[int, str, Callable[[int], bytes]]] = [
        (8, "pt", lambda n: saved(net(16 + n % 64))),
        (2, "bin", lambda n: saved(net(16 + n % 64), _use_new_zipfile_serialization=False)),
        (6, "safetensors", lambda n: save(net(16 + n % 64))),
        (3, "joblib", lambda n: pickle.dumps(scaler(n % 64), 4)),
        (3, "pkl", lambda n: pickle.dumps({**vocabulary, "n": n}, 4)),
        (1, "npz", lambda n: arrays(n % 64)),
        (1, "pkl.gz", lambda n: gzip.compress(pickle.dumps(scaler(n % 64)))),
        (1, "gguf", lambda n: b"GGUF\3\0\0\0" + n.to_bytes(4, "little") * 12_500),
    ]
    kinds = [(ending, make) for times, ending, make in makes for _ in range(times)]
    for n in range(FILES):
        ending, make = kinds[n % len(kinds)]
        inside = folder / f"run-{n // 100}"
        inside.mkdir(mode=0o700, exist_ok=True)
        data = make(n)
        (inside / f"model-{n}.{ending}").write_bytes(data)
        size += len(data)
    return FILES, size
