"""load_checkpoint(safe=True) returns tensors, or raises RuntimeError.

Copy this file into your project. It needs pytest 8.2, and makes its own
files. Where PyTorch is missing, it is skipped, with that reason. If you
have a load_checkpoint of your own, import that one instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "torch",
    reason="PyTorch is missing or broken",
    exc_type=ImportError,
)

import torch

# isort: split
from safepoint.models import load_checkpoint

VARIABLE = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
STATE = {
    "weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "bias": torch.tensor([0.5, -0.5], dtype=torch.float64),
    "steps": torch.tensor(7),
}
GENUINE_LOAD = torch.load
RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))
KEEPS_THE_PROMISE = RELEASE >= (2, 10)

either_way = pytest.mark.parametrize(
    "how",
    [{}, {"safe": True}],
    ids=["by default", "safe=True"],
)
where_it_can_load = pytest.mark.skipif(
    not KEEPS_THE_PROMISE, reason="this PyTorch refuses before that"
)


def load_of_1_12(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    **pickle_load_args: Any,
) -> Any:
    """Stand in for torch.load as it was before it had the flag."""
    for name in pickle_load_args:
        raise TypeError(f"'{name}' is an invalid keyword argument")
    # safepoint: allow SL02 it loads what the test wrote
    return GENUINE_LOAD(
        f,
        map_location=map_location,
        weights_only=False,
    )


class Payload:
    """Make a folder when it is loaded. It does nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin without what other tests or the shell have left behind."""
    monkeypatch.delenv(VARIABLE, raising=False)
    if not KEEPS_THE_PROMISE:
        yield
        return
    allowed = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    yield
    torch.serialization.clear_safe_globals()
    # safepoint: allow SL05 it puts back what was there
    torch.serialization.add_safe_globals(allowed)


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    """Write a state dict of tensors and of nothing else."""
    path = tmp_path / "model.pt"
    torch.save(STATE, path)
    return path


def assert_genuine(loaded: Any) -> None:
    assert list(loaded) == list(STATE)
    for name, tensor in STATE.items():
        assert type(loaded[name]) is torch.Tensor
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


@either_way
def test_safe_load_returns_genuine_tensors(
    artefact: Path,
    how: dict[str, Any],
) -> None:
    if KEEPS_THE_PROMISE:
        # safepoint: allow SL01 no way of either_way opens it
        assert_genuine(load_checkpoint(artefact, **how))
    else:
        with pytest.raises(RuntimeError, match="weights_only"):
            # safepoint: allow SL01 no way of either_way opens it
            load_checkpoint(artefact, **how)


def test_safe_load_raises_where_there_is_no_flag(
    artefact: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "load", load_of_1_12)
    with pytest.raises(RuntimeError, match="has no weights_only"):
        load_checkpoint(artefact, safe=True)


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("1.13.1", "CVE-2025-32434"),
        ("2.5.1+cpu", "CVE-2025-32434"),
        ("2.9.1", "CVE-2026-24747"),
        ("2.10.0rc1", "2.10.0"),
    ],
)
@where_it_can_load
def test_safe_load_raises_where_the_flag_does_not_hold(
    artefact: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    reason: str,
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(RuntimeError, match=reason):
        load_checkpoint(artefact, safe=True)


@where_it_can_load
def test_safe_load_raises_where_a_wrapper_drops_the_flag(
    artefact: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrapper(
        f: Any,
        map_location: Any = None,
        weights_only: Any = None,
    ) -> Any:
        return load_of_1_12(f, map_location)

    monkeypatch.setattr(torch, "load", wrapper)
    with pytest.raises(RuntimeError, match="not PyTorch's own"):
        load_checkpoint(artefact, safe=True)


@where_it_can_load
def test_safe_load_raises_where_a_variable_weakens_the_flag(
    artefact: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # safepoint: allow SL06 it has to be refused
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(RuntimeError, match=VARIABLE):
        load_checkpoint(artefact, safe=True)


@where_it_can_load
def test_safe_load_raises_where_a_list_weakens_the_flag(
    artefact: Path,
) -> None:
    # safepoint: allow SL05 it has to be refused
    torch.serialization.add_safe_globals([Payload])
    with pytest.raises(RuntimeError, match="Payload"):
        load_checkpoint(artefact, safe=True)


@either_way
def test_safe_load_runs_no_code(
    tmp_path: Path,
    how: dict[str, Any],
) -> None:
    """Tensors load with the flag and without; this one does not."""
    marker = tmp_path / "marker"
    torch.save({"weight": Payload(marker)}, tmp_path / "model.pt")
    reason = "mkdir" if KEEPS_THE_PROMISE else "weights_only"
    with pytest.raises(RuntimeError, match=reason):
        # safepoint: allow SL01 no way of either_way opens it
        load_checkpoint(tmp_path / "model.pt", **how)
    assert not marker.exists()


@pytest.mark.parametrize(
    "release",
    ["this", pytest.param("1.12", marks=where_it_can_load)],
)
def test_unrestricted_load_returns_the_same_and_says_so(
    artefact: Path,
    monkeypatch: pytest.MonkeyPatch,
    release: str,
) -> None:
    if release == "1.12":
        monkeypatch.setattr(torch, "load", load_of_1_12)
    with pytest.warns(UserWarning, match="without restriction"):
        # safepoint: allow SL02 it loads what the test wrote
        loaded = load_checkpoint(artefact, safe=False)
    assert_genuine(loaded)
