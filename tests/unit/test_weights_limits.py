"""Limits of models: what they may be, and what happens where no limit is, but memory ends."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path

import pytest

from safepoint.errors import ConfigurationError
from safepoint.weights import ModelLimits
from tests.unit.killed import ROOT
from tests.unit.weights_helpers import refused


@pytest.mark.parametrize(
    ("value", "shown"),
    [("x", "'x'"), (None, "None"), (0, "0"), (-1, "-1"), (2.5, "2.5"), (True, "True")],
    ids=repr,
)
@pytest.mark.parametrize("name", [field.name for field in fields(ModelLimits)])
def test_a_limit_that_is_none(name: str, value: object, shown: str) -> None:
    """Also 0, and what Python would compare like a number: it would refuse or allow everything."""
    message = f"ModelLimits.{name} is {shown}. Write a whole number above 0."
    with refused(ConfigurationError, message):
        ModelLimits(**{name: value})  # type: ignore[arg-type]


def test_the_smallest_limit() -> None:
    assert {getattr(ModelLimits(**{f.name: 1}), f.name) for f in fields(ModelLimits)} == {1}


# PyTorch comes first, since it alone maps gigabytes.
SHORT_OF_MEMORY = """
    import os
    import resource
    import sys

    import torch

    from safepoint import SigningKey
    from safepoint.errors import CheckpointError
    from safepoint.weights import convert, load_checkpoint

    pages = int(open("/proc/self/statm").read().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + (256 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for call in (
        lambda: load_checkpoint(sys.argv[1]),
        lambda: convert(sys.argv[1], "new.safetensors", key=SigningKey.generate()),
    ):
        try:
            call()
        except CheckpointError as error:
            print(f"{type(error).__name__}: {error}", error.__suppress_context__)
"""


def test_a_copy_that_does_not_fit(tmp_path: Path) -> None:
    """Others can write the file, so it is copied. It has few bytes on disk, and says that it is
    long."""
    path = tmp_path / "model.pt"
    with path.open("wb") as file:
        file.truncate(4 << 30)
    path.chmod(0o664)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SHORT_OF_MEMORY), str(path)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    message = (
        f"LimitExceeded: {path} does not fit into the memory. Nothing was loaded. Load it where"
        " there is more, or in parts. True"
    )
    assert done.stdout.splitlines() == [message] * 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model.pt"]
