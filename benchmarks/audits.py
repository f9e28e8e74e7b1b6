"""The audit of 2,000 files of models, beside picklescan.

Each tool runs as its users run it, in a process of its own; its imports are part of that.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.measure import RATIO, beside, median_ms, ratio, table, turns

FILES = 2_000
ROUNDS = 3
AIM = 0.8
"""What the ratio of the times should be at most."""
PEER = "picklescan"


def audits(folder: Path) -> None:
    """Measure both, by the clock and by what their processes used of the processor."""
    models = folder / "models"
    size = _models(models)
    acts = {
        "ours": partial(_run, "safepoint", "audit", str(models)),
        PEER: partial(_run, PEER, "-p", str(models)),
    }
    rows = []
    for what, taken in {
        "time": turns(acts, ROUNDS),
        "processor time": turns(acts, ROUNDS, _processor_time_of_children),
    }.items():
        ours, theirs = taken["ours"], taken[PEER]
        figures = [f"{median_ms(each):.0f}" for each in (ours, theirs)]
        rows.append([what, *figures, beside(ratio(ours, theirs), AIM)])
    heads = ["what", "ours, ms", f"{PEER} {version(PEER)}, ms", "to theirs"]
    table(f"Audit {FILES:,} files of models, {size / 2**20:.0f} MiB; {RATIO}", heads, rows)


def _run(module: str, *arguments: str) -> None:
    command = [sys.executable, "-m", module, *arguments]
    # Installed packages have bytecode: ours has some, too, however this process was started.
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(command, capture_output=True, check=False, env=env)  # noqa: S603
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{module} ended with {done.returncode}.")


def _processor_time_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _models(folder: Path) -> int:
    """Write small files of the kinds that people keep: an adapter, a scaler, a vocabulary."""
    import numpy as np
    import torch
    from safetensors.torch import save

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
    return size
