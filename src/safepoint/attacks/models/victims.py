"""The two built-in victims: one who does what is common, and one who does what the pages say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

from safepoint.attacks import naive
from safepoint.attacks.models.target import ModelTarget
from safepoint.attacks.outcome import Miss
from safepoint.errors import CheckpointError
from safepoint.keys import Keyring, SigningKey
from safepoint.models import load_checkpoint, save_checkpoint, seal_model
from safepoint.models.lint import check_source


class Rejected(Exception):
    """A change is not merged, or a test failed."""


class NaiveModels(ModelTarget):
    """UNSAFE: loads whatever comes, and looks at little."""

    name = "naive"
    refusals = (Rejected,)

    def save(self, name: str, state: dict[str, Any]) -> Path:
        """Save with `torch.save`."""
        return self.keep(name, state)

    def load(self, file: Path) -> Any:
        """UNSAFE: fall back to the unrestricted way."""
        return naive.load_model(file)

    def keep(self, name: str, trusted: Any) -> Path:
        """Save with `torch.save`."""
        import torch

        file = self.path / f"{name}.pt"
        torch.save(trusted, file)
        return file

    def bring_back(self, file: Path) -> Any:
        """UNSAFE: load without restriction, because the file has the right name."""
        return naive.load_model(file)

    def review(self, source: str) -> None:
        """Look for the one spelling that everybody knows."""
        if re.search(r"torch\.load\((?!.*weights_only=True)", source):
            raise Rejected

    def test(self, file: Path) -> None:
        """Run pytest, with whatever plugins are around."""
        _test(file, {})


class CarefulModels(ModelTarget):
    """Does what the pages say."""

    name = "careful"
    refusals: ClassVar[tuple[type[Exception], ...]] = (CheckpointError, Rejected)

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder)
        self._key = SigningKey.generate()

    def save(self, name: str, state: dict[str, Any]) -> Path:
        """Save sealed safetensors."""
        file = self.path / f"{name}.safetensors"
        save_checkpoint(file, state, key=self._key)
        return file

    def load(self, file: Path) -> Any:
        """Verify what is its own; load what is not without code, or not at all."""
        keys = Keyring(self._key) if Path(f"{file}.seal").exists() else None
        return load_checkpoint(file, keys=keys)

    def keep(self, name: str, trusted: Any) -> Path:
        """Save with `torch.save`, and seal."""
        import torch

        file = self.path / f"{name}.pt"
        torch.save(trusted, file)
        seal_model(file, key=self._key)
        return file

    def bring_back(self, file: Path) -> Any:
        """Load without restriction what its own seal vouches for."""
        return load_checkpoint(file, safe=False, keys=Keyring(self._key))

    def review(self, source: str) -> None:
        """Ask safepoint's own lint."""
        if check_source(source, "change.py"):
            raise Rejected

    def test(self, file: Path) -> None:
        """Run pytest without stray plugins."""
        _test(file, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


def _test(file: Path, settings: dict[str, str]) -> None:
    """Run a test file in a process of its own, with the folder of the file on the path."""
    done = subprocess.run(  # noqa: S603 -- pytest, on a file of ours
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", file.name],
        cwd=file.parent,
        env={**os.environ, "PYTHONPATH": str(file.parent), "PYTEST_ADDOPTS": "", **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if b"No module named pytest" in done.stderr:
        raise Miss
    if done.returncode == 1:
        raise Rejected
    if done.returncode:
        raise RuntimeError(done.stdout)
