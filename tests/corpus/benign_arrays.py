"""Arrays and tensors. PyTorch is imported when a value is made, since that takes seconds."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final

from tests.corpus.benign_values import Value
from tests.harness.optional import Late

np = Late("numpy")
NUMPY: Final[tuple[Value, ...]] = (
    ("an array of floats", lambda: np.arange(6.0).reshape(2, 3), False),
    ("an array of ints", lambda: np.arange(6), False),
    ("an array of booleans", lambda: np.array([True, False]), False),
    ("an array in Fortran's order", lambda: np.asfortranarray(np.ones((2, 3))), False),
    ("an array of texts", lambda: np.array(["a", "bc"]), False),
    ("an array of objects", lambda: np.array([{"a": 1}, None], dtype=object), False),
    ("records", lambda: np.zeros(2, dtype=[("x", "f4"), ("y", "i8")]), False),
    ("an array of times", lambda: np.array(["2026-11-15"], dtype="datetime64[D]"), False),
    ("an empty array", lambda: np.empty((0, 3)), False),
    ("an array in a state", lambda: {"step": 3, "weights": np.ones(4, dtype="f4")}, False),
    ("scalars", lambda: [np.float64(1.5), np.int64(3), np.bool_(True)], False),
    ("dtypes", lambda: [np.dtype("f4"), np.dtype("i8")], False),
    ("a random generator", lambda: np.random.default_rng(7), False),
    ("an old random state", lambda: np.random.RandomState(7), False),
)


def _torch(make: Callable[[Any], Any]) -> Callable[[], Any]:
    def value() -> Any:
        import torch

        torch.manual_seed(7)
        return make(torch)

    return value


def _saved(make: Callable[[Any], Any], **how: bool) -> Callable[[], bytes]:
    def content() -> bytes:
        import torch

        torch.manual_seed(7)
        file = io.BytesIO()
        torch.save(make(torch), file, **how)
        return file.getvalue()

    return content


def _model(torch: Any) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def _training(torch: Any) -> Any:
    model = _model(torch)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return {
        "epoch": 3,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
    }


def _tied(torch: Any) -> Any:
    weight = torch.ones(3, 4)
    return {"embed.weight": weight, "head.weight": weight}


TORCH: Final[tuple[Value, ...]] = (
    ("a tensor, pickled", _torch(lambda torch: torch.ones(2, 3)), False),
    ("a state dict, pickled", _torch(lambda torch: _model(torch).state_dict()), False),
    ("a parameter, pickled", _torch(lambda torch: torch.nn.Parameter(torch.ones(2))), False),
    ("a module, pickled", _torch(lambda torch: torch.nn.Linear(2, 2)), False),
    ("a size, pickled", _torch(lambda torch: torch.Size([2, 3])), False),
    ("a dtype and a device, pickled", _torch(lambda t: [t.float16, t.device("cpu")]), False),
)

Saved = tuple[str, Callable[[], bytes], bool]

TORCH_FILES: Final[tuple[Saved, ...]] = (
    ("a tensor", _saved(lambda torch: torch.arange(6.0)), True),
    ("a state dict", _saved(lambda torch: _model(torch).state_dict()), True),
    ("a training checkpoint", _saved(_training), True),
    ("tied weights", _saved(_tied), True),
    ("half precision", _saved(lambda torch: {"w": torch.ones(2, dtype=torch.bfloat16)}), True),
    ("a view", _saved(lambda torch: {"v": torch.arange(12).reshape(3, 4)[:, 1:3]}), True),
    ("a parameter", _saved(lambda torch: torch.nn.Parameter(torch.ones(2, 2))), True),
    ("a scalar and an empty tensor", _saved(lambda t: [t.tensor(1), t.empty(0, 3)]), True),
    (
        "an older file",
        _saved(lambda torch: _model(torch).state_dict(), _use_new_zipfile_serialization=False),
        True,
    ),
    ("an older training checkpoint", _saved(_training, _use_new_zipfile_serialization=False), True),
    ("a whole module", _saved(_model), False),
)
