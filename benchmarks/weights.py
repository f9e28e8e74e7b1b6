"""Models: load and convert against PyTorch and safetensors alone, side by side."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

from benchmarks.measure import RATIO, Act, medians, table
from safepoint import Keyring, SigningKey
from safepoint.models import convert, load_checkpoint, save_checkpoint

ROUNDS = 15
FEW = 5


def models(folder: Path) -> None:
    """Measure a model of 100 MiB, and one of 10,000 small tensors."""
    import safetensors
    import torch

    loads: list[list[str]] = []
    conversions: list[list[str]] = []
    for name, state in _states(torch).items():
        inside = folder / str(len(loads))
        inside.mkdir(mode=0o700)
        contest = _Contest(inside, state)
        taken = medians(contest.loads(), ROUNDS)
        plain = taken.pop("plain")
        loads.append(_row(f"{name}, sealed", taken))
        loads.append(_row(f"{name}, a .pt", taken | {"ours": plain}))
        conversions.append(_row(name, medians(contest.conversions(), FEW)))
    peers = [f"to torch {torch.__version__}", f"to safetensors {safetensors.__version__}"]
    heads = ["model", "ours, ms", *peers]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    loading = f"Load a model on {cores} cores; torch with weights_only=True"
    table(f"{loading}; {RATIO}", heads, loads)
    heads = ["model", "ours, ms", "to torch.load and safetensors alone"]
    table(f"Convert: compared and sealed; {RATIO}", heads, conversions)


def _states(torch: Any) -> dict[str, dict[str, Any]]:
    generator = torch.Generator().manual_seed(7)
    return {
        "100 MiB in 25 tensors": {
            f"layers.{n}.weight": torch.randn(1024, 1024, generator=generator) for n in range(25)
        },
        "10,000 tensors of 256 B": {
            f"layers.{n}.bias": torch.randn(64, generator=generator) for n in range(10_000)
        },
    }


class _Contest:
    """One model, and what each contender does with it."""

    def __init__(self, folder: Path, state: dict[str, Any]) -> None:
        self._folder = folder
        self._state = state
        self._key = SigningKey.generate()
        self._keys = Keyring(self._key)
        self._numbers = itertools.count()
        self._sealed = self._new("safetensors")
        save_checkpoint(self._sealed, state, key=self._key)
        self._torch = self._new("pt")
        self._save_torch(self._torch)
        self._bare = self._new("safetensors")
        self._save_bare(self._bare)

    def loads(self) -> dict[str, Act]:
        """Load it."""
        import torch
        from safetensors.torch import load_file

        return {
            "ours": lambda: load_checkpoint(self._sealed, keys=self._keys),
            "plain": lambda: load_checkpoint(self._torch),
            "torch": lambda: torch.load(self._torch, weights_only=True, map_location="cpu"),
            "safetensors": lambda: load_file(self._bare),
        }

    def conversions(self) -> dict[str, Act]:
        """Convert, and remove it again."""
        import torch

        def ours() -> None:
            file = self._new("safetensors")
            convert(self._torch, file, key=self._key)
            file.unlink()
            Path(f"{file}.seal").unlink()

        def alone() -> None:
            file = self._new("safetensors")
            self._save_bare(file, torch.load(self._torch, weights_only=True, map_location="cpu"))
            file.unlink()

        return {"ours": ours, "alone": alone}

    def _new(self, ending: str) -> Path:
        return self._folder / f"model-{next(self._numbers)}.{ending}"

    def _save_torch(self, file: Path) -> None:
        import torch

        torch.save(self._state, file)
        _sync(file)

    def _save_bare(self, file: Path, state: dict[str, Any] | None = None) -> None:
        from safetensors.torch import save_file

        save_file(self._state if state is None else state, file)
        _sync(file)


def _sync(file: Path) -> None:
    for path in (file, file.parent):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _row(name: str, taken: dict[str, float]) -> list[str]:
    ours, *theirs = taken["ours"], *(each for peer, each in taken.items() if peer != "ours")
    return [name, f"{ours * 1000:.0f}", *(f"{ours / each:.2f}" for each in theirs)]
