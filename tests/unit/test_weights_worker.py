"""What the isolated process does, in this one: what it writes is what it loaded, or nothing."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import json
import os
import resource
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from safepoint.errors import ModelError
from safepoint.weights import ModelLimits, _worker, convert, isolated, load_checkpoint
from safepoint.weights.isolated import Task
from safepoint.weights.writing import write_into
from tests.unit.weights_helpers import KEY, Calls, listed, refused, saved

LIMITS = ModelLimits()
STATE = {
    "bias": torch.tensor([float("nan"), -0.0]),
    "none": torch.ones(0, 3),
    "weight": torch.arange(6.0).reshape(2, 3),
}
Tensors = Mapping[str, torch.Tensor]


def one_bit(tensors: Tensors) -> Tensors:
    weight = tensors["weight"].clone()
    weight.view(torch.uint8)[-1, -1] ^= 1
    return {**tensors, "weight": weight}


def bit_of_a_nan(tensors: Tensors) -> Tensors:
    bias = tensors["bias"].clone()
    bias.view(torch.uint8)[0] ^= 1
    return {**tensors, "bias": bias}


def sign_of_zero(tensors: Tensors) -> Tensors:
    return {**tensors, "bias": tensors["bias"].abs()}


def missing(tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name != "bias"}


WRONG: dict[str, Callable[[Tensors], Tensors]] = {
    "one bit": one_bit,
    "one bit of a NaN": bit_of_a_nan,
    "the sign of a zero": sign_of_zero,
    "a type of the same width": lambda all_: {**all_, "weight": all_["weight"].view(torch.int32)},
    "a shape of as many": lambda all_: {**all_, "weight": all_["weight"].reshape(3, 2)},
    "a shape of none": lambda all_: {**all_, "none": torch.ones(3, 0)},
    "a name that is missing": missing,
    "a name too many": lambda all_: {**all_, "more": torch.ones(1)},
    "another name": lambda all_: {**missing(all_), "Bias": all_["bias"]},
}


def work(path: Path, tensors: int, rest: int) -> None:
    """Do the task of the isolated process. It closes what it gets."""
    source = os.open(path, os.O_RDONLY)
    task = Task(source, str(path), "torch-zip", True, tensors, os.dup(rest), LIMITS)
    _worker._work(json.loads(str(task)), LIMITS)


def changed(how: Callable[[Tensors], Tensors]) -> Callable[[int, Tensors], None]:
    return lambda descriptor, tensors: write_into(descriptor, how(tensors))


def not_what_was_loaded(path: Path) -> str:
    return (
        f"What was written of {path} is not what was loaded. Nothing was kept. Try again; if it"
        " stays, look for a faulty disk or memory."
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(tmp_path / "model.pt", STATE)


@pytest.mark.parametrize("how", WRONG)
def test_what_is_written_otherwise(path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """It is read back and compared, to the last bit."""
    monkeypatch.setattr(_worker, "write_into", changed(WRONG[how]))
    with tempfile.TemporaryFile() as tensors, tempfile.TemporaryFile() as rest:
        with refused(ModelError, not_what_was_loaded(path)):
            work(path, tensors.fileno(), rest.fileno())
        assert os.fstat(rest.fileno()).st_size == 0


def test_what_is_written_as_it_is(path: Path) -> None:
    """The test above changes one thing each."""
    with tempfile.TemporaryFile() as tensors, tempfile.TemporaryFile() as rest:
        work(path, tensors.fileno(), rest.fileno())
        assert os.fstat(rest.fileno()).st_size > 0


def test_nothing_is_published(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child refuses; whoever called gets that error, and there is no new file and no seal."""
    lines = (
        "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
        " from safepoint.weights import _worker as worker; from safepoint.weights import writing;"
        " worker.write_into = lambda descriptor, tensors: writing.write_into(descriptor,"
        " {**tensors, 'weight': tensors['weight'] + 1});"
        " worker.main(sys.argv[2])"
    )
    monkeypatch.setattr(isolated, "_START", lines)
    with refused(ModelError, not_what_was_loaded(path)):
        convert(path, path.with_suffix(".safetensors"), key=KEY)
    assert listed(path.parent) == ["model.pt"]


@pytest.mark.filterwarnings("ignore::safepoint.weights.UnrestrictedLoad")
def test_what_the_process_may_use(tmp_path: Path) -> None:
    """The kernel holds the limits: a trusted file hands back what it sees of them."""
    asked = {
        name: Calls(resource.getrlimit, getattr(resource, name))
        for name in ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_CORE")
    }
    path = saved(tmp_path / "model.pt", asked)
    limits = ModelLimits(cpu_seconds=77, memory_bytes=1 << 30, file_bytes=1 << 20)
    found: dict[str, Any] = load_checkpoint(path, isolated=True, safe=False, limits=limits)
    soft, hard = found["RLIMIT_CPU"]
    # Seconds that PyTorch took to import are not counted against the file.
    assert 77 < soft < 77 + 60
    assert hard == soft + 1
    assert found["RLIMIT_FSIZE"] == (2 << 20, 2 << 20)
    assert found["RLIMIT_CORE"] == (0, 0)
    soft, hard = found["RLIMIT_AS"]
    assert 1 << 30 < soft == hard < 1 << 40
