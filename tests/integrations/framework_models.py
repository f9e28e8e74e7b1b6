"""Loaders of model files as targets of our attacks: the calls themselves, with nothing around."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from safepoint.attacks.models import ModelTarget


class _Loader(ModelTarget):
    def __init__(self, folder: str | Path) -> None:
        from safetensors import SafetensorError

        super().__init__(folder)
        # PyTorch hands a file on by its ending, and lets the other package's errors through.
        self.refusals = (UnpicklingError, SafetensorError)  # type: ignore[misc]


class TorchUnrestricted(_Loader):
    """UNSAFE: `torch.load` with `weights_only=False`, which PyTorch documents as running code."""

    name = "torch-false"
    weights_only = False

    def save(self, name: str, state: dict[str, Any]) -> Path:
        """Save with `torch.save`."""
        import torch

        file = self.path / f"{name}.pt"
        torch.save(state, file)
        return file

    def load(self, file: Path) -> Any:
        """UNSAFE: load without restriction."""
        import torch

        return torch.load(file, weights_only=self.weights_only)

    def keep(self, name: str, trusted: Any) -> Path:
        """Save with `torch.save`."""
        return self.save(name, trusted)

    def bring_back(self, file: Path) -> Any:
        """UNSAFE: load without restriction."""
        return self.load(file)


class TorchWeightsOnly(TorchUnrestricted):
    """`torch.load` with `weights_only=True`, which brings back tensors and plain values."""

    name = "torch-true"
    weights_only = True
    keep = ModelTarget.keep


class Safetensors(_Loader):
    """`save_file` and `load_file` of safetensors."""

    name = "safetensors"

    def save(self, name: str, state: dict[str, Any]) -> Path:
        """Save."""
        from safetensors.torch import save_file

        file = self.path / f"{name}.safetensors"
        save_file(state, file)
        return file

    def load(self, file: Path) -> Any:
        """Load."""
        from safetensors.torch import load_file

        return load_file(file)
