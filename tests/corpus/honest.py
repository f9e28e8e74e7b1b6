"""Checkpoints as honest training code writes them, made by PyTorch and NumPy: one in a line.

Each is a name and what is saved.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import pathlib
import random
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import nn, optim


@dataclasses.dataclass
class Config:
    """As a training script has it."""

    lr: float = 1e-3
    layers: int = 2


def _small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def _trained(make: Callable[..., Any], **how: Any) -> Any:
    model = _small()
    optimizer = make(model.parameters(), **{"lr": 0.01, **how})

    def loss() -> Any:
        optimizer.zero_grad()
        found = model(torch.ones(3, 4)).square().sum()
        found.backward()
        return found

    optimizer.step(loss)
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def _state_of(layer: str) -> Any:
    return getattr(nn, layer)(*_LAYERS[layer]).state_dict()


def _tagged(tensor: Any) -> Any:
    tensor.tag = "frozen"
    return tensor


def _random() -> Any:
    return {"torch": torch.get_rng_state(), "python": random.getstate()}


def _numbered(dtype: str) -> Any:
    return torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))


_WEIGHT: Final = torch.arange(6.0).reshape(2, 3)
_DTYPES: Final = (
    *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "complex32"),
    *("bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64"),
    *("complex128", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    "bool",
)
_OPTIMIZERS: Final = (
    *("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "SGD", "ASGD", "RMSprop"),
    *("Rprop", "LBFGS", "Adafactor"),
)
_LAYERS: Final[Mapping[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("Linear", "Embedding", "LSTM", "GRU", "RNN", "LSTMCell", "PReLU"), (2, 3)),
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d"), (2, 3, 1)),
    **dict.fromkeys(("BatchNorm2d", "LayerNorm", "RMSNorm", "InstanceNorm1d", "Transformer"), (8,)),
    "Bilinear": (2, 3, 2),
    "GroupNorm": (2, 4),
    "MultiheadAttention": (4, 2),
}

SAVED: Final[Mapping[str, Callable[[], Any]]] = {
    "a state dict": lambda: _small().state_dict(),
    "a training state": lambda: {**_trained(optim.Adam), "epoch": 7, "loss": float("inf")},
    **{f"a tensor of {name}": partial(_numbered, name) for name in _DTYPES},
    **{f"the optimizer {name}": partial(_trained, getattr(optim, name)) for name in _OPTIMIZERS},
    **{f"the state of {name}": partial(_state_of, name) for name in _LAYERS},
    "random states": _random,
    "the version of PyTorch": lambda: torch.__version__,
    "the vocabulary of GPT-2": lambda: {"tokens": {n: f"token {n}" for n in range(50_257)}},
    "a tensor with an attribute": lambda: _tagged(_WEIGHT.clone()),
    "views of one storage": lambda: [*_WEIGHT.clone(), _WEIGHT.t(), _WEIGHT[::2]],
    "an expanded tensor": lambda: torch.ones(1).expand(8),
    "empty tensors": lambda: [torch.empty(0), torch.empty(0, 3), torch.tensor(1)],
    "a conjugate and a negative": lambda: [torch.ones(2, dtype=torch.complex64).conj()],
    "a sparse tensor": _WEIGHT.to_sparse,
    "a quantized tensor": lambda: torch.quantize_per_tensor(_WEIGHT, 0.1, 3, torch.qint8),
    "a tensor of no device": lambda: torch.ones(2, 3, device="meta"),
    "a nested tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "a type of elements": lambda: {"dtype": torch.bfloat16},
    "a layout": lambda: torch.strided,
    "a type of tensor": lambda: torch.FloatTensor,
    "sets": lambda: {"done": {"a", "b"}, "frozen": frozenset({1})},
    "a defaultdict": lambda: [defaultdict(kind, {"a": 1}) for kind in (list, int, Counter)],
    "a deque": lambda: deque([1, 2], maxlen=5),
    "keys that look alike": lambda: {1: _WEIGHT, "1": _WEIGHT + 1, "a/b": 1, "a": {"b": 2}},
    "bytes": lambda: {"raw": b"\0\xff", "none": b"", "array": bytearray(b"abc")},
    "texts of any script": lambda: {"vocabulary": {"ä": 0, "\U0001f600": 1, "\ud800": 2}},
    "deep lists": lambda: _deep(70),
    "a list that holds itself": lambda: _circle(),  # noqa: PLW0108
    "a NumPy array": lambda: {"mean": np.arange(6, dtype="f4").reshape(2, 3)},
    "NumPy scalars": lambda: {"loss": np.float64(0.5), "step": np.int64(3), "ok": np.bool_(True)},
    "a NumPy array of texts": lambda: np.array(["cat", "dog"]),
    "a NumPy array of objects": lambda: np.array([{"a": 1}, None], dtype=object),
    "arguments": lambda: {**_trained(optim.SGD), "args": argparse.Namespace(lr=0.1, gpu=None)},
    "a dataclass beside tensors": lambda: {"config": Config(), "weight": _WEIGHT},
    "a path": lambda: {"path": pathlib.PurePosixPath("a/b"), "weight": _WEIGHT},
    "times": lambda: [datetime(2026, 11, 15, tzinfo=UTC), timedelta(seconds=3), pathlib.Path()],
    "a module": _small,
    "an optimizer": lambda: optim.SGD(_small().parameters(), lr=0.1),
    "a module and its optimizer": lambda: _stepped(_small()),
}
"""What is saved, by its name."""

LEGACY: Final = (
    *("a state dict", "a training state", "views of one storage", "random states"),
    *("a tensor of bfloat16", "the optimizer Adam", "a NumPy array", "a module", "sets"),
    *("a tensor of bool", "an expanded tensor", "arguments"),
)
"""Those that are saved in PyTorch's old format as well."""


def _stepped(model: nn.Module) -> Any:
    """Its state has the tensors of the model for keys."""
    optimizer = optim.Adam(model.parameters())
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    return {"model": model, "optimizer": optimizer}


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _circle() -> Any:
    value: list[Any] = [1]
    value.append(value)
    return value


def honest() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each checkpoint. Functions and classes are saved by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for old in (False, True):
            for name in LEGACY if old else SAVED:
                torch.manual_seed(7)
                file = io.BytesIO()
                torch.save(SAVED[name](), file, _use_new_zipfile_serialization=not old)
                yield f"{name}, old format" if old else name, file.getvalue()


def equal(one: Any, other: Any) -> bool:
    """Tell whether two states are the same: types, structure, and each value to the last bit."""
    if isinstance(one, torch.Tensor):
        if type(one) is not type(other) or one.layout is not other.layout:
            return False
        if one.layout is not torch.strided or one.is_quantized or one.is_meta:
            return repr(one) == repr(other)
        bits = [each.detach().resolve_conj().resolve_neg().contiguous() for each in (one, other)]
        told = [(e.dtype, e.shape, e.stride(), e.requires_grad, vars(e)) for e in (one, other)]
        return told[0] == told[1] and bytes(bits[0].flatten().view(torch.uint8)) == bytes(
            bits[1].flatten().view(torch.uint8)
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        return bool(one.dtype == other.dtype and one.tolist() == other.tolist())
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(equal, one, other))
    if hasattr(one, "__dict__"):
        return equal(vars(one), vars(other))
    return bool(one == other)
