"""What a PyTorch file would build, known before PyTorch sees a byte of it.

`torch.load(weights_only=True)` runs no code of the file, and it does all else that the file says:
it takes the memory that it asks for, and believes its sizes. A plan is made without PyTorch, with
functions that check and build nothing. What is not in the plan is not in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, BinaryIO, Final

from safepoint.errors import ConfigurationError, ModelMalformed, UnsafeModel, quoted
from safepoint.pickles.kinds import Kind
from safepoint.weights.archive import read_archive
from safepoint.weights.legacy import read_legacy
from safepoint.weights.limits import DEFAULT_MODEL_LIMITS, ModelLimits
from safepoint.weights.names import Ordered
from safepoint.weights.paths import checked_path, joined
from safepoint.weights.rebuilding import Rebuilder
from safepoint.weights.reciting import Reciter
from safepoint.weights.refusals import malformed, over_limit
from safepoint.weights.tensorplan import Device, DType, Storage, TensorPlan

_ROOT: Final = "tensor"
_LEAVES: Final = frozenset([NoneType, bool, int, float, complex, str, bytes, DType, Device])


@dataclass(frozen=True, slots=True)
class Plan:
    """What a file would build.

    Attributes:
        tensors: by the way to them: keys and indices, joined with `/`.
        wants: the names that the file uses, sorted. All of them are on the list.
        byteorder: "little" or "big".
    """

    tensors: Mapping[str, TensorPlan]
    wants: tuple[str, ...]
    byteorder: str


def read_plan(file: BinaryIO, kind: Kind, limits: ModelLimits = DEFAULT_MODEL_LIMITS) -> Plan:
    """Read what a PyTorch file would build. No tensor is read, and nothing is run.

    ```python
    import torch

    from safepoint.pickles.kinds import Kind
    from safepoint.weights.plan import read_plan

    torch.save({"layer": {"weight": torch.ones(2, 3)}}, "model.pt")
    with open("model.pt", "rb") as file:
        plan = read_plan(file, Kind.TORCH_ZIP)
    print(plan.tensors["layer/weight"].dtype, plan.tensors["layer/weight"].shape)
    #> float32 (2, 3)
    ```

    Args:
        file: the file, open for reading in binary mode, and seekable.
        kind: what `identify` said that it is: TORCH_ZIP or TORCH_LEGACY.
        limits: how large it may be, and how large what it builds.

    Raises:
        UnsafeModel: it wants a name that is not data, or a kind of tensor that PyTorch does not
            check.
        ModelMalformed: it is not as `torch.save` writes it.
        LimitExceeded: it is too large, or would build something too large.
        ConfigurationError: a file of this kind has no plan.
    """
    rebuilder = Rebuilder(limits)
    reciter = Reciter(rebuilder, limits)
    if kind is Kind.TORCH_ZIP:
        archive = read_archive(file, limits)
        value = reciter.whole(archive.pickle)
        byteorder = archive.byteorder
        _check_storages(rebuilder, archive.storages)
    elif kind is Kind.TORCH_LEGACY:
        value = read_legacy(file, reciter, limits)
        byteorder = "little"
    else:
        raise ConfigurationError(
            f"There is no plan for {kind.sentence}.",
            "Give a file that torch.save wrote, and the Kind that identify returns for it.",
        )
    tensors: dict[str, TensorPlan] = {}
    for path, tensor in _tensors(value, ""):
        if path in tensors:
            raise malformed(f"Two tensors of the file have the name {quoted(path)}.")
        if len(tensors) >= limits.tensors:
            raise over_limit(
                f"The file has more than {limits.tensors} tensors.", "tensors", "have that many"
            )
        tensors[path] = tensor
    return Plan(tensors, reciter.wants, byteorder)


def _check_storages(rebuilder: Rebuilder, members: Mapping[str, int]) -> None:
    """Compare what the pickle says of the storages with what the archive has."""
    for key, storage in rebuilder.storages.items():
        if members.get(key) != storage.nbytes:
            raise malformed(
                f"The storage {key} is {storage.nbytes} bytes in the pickle, and in the archive "
                f"{members.get(key, 'missing')}."
            )
    for key in members:
        if key not in rebuilder.storages:
            raise malformed(f"The archive has the storage {key}, which no tensor uses.")


def _tensors(value: Any, path: str) -> Iterator[tuple[str, TensorPlan]]:
    """Yield each tensor with the way to it. The depth of the value is bounded."""
    kind = type(value)
    if kind is TensorPlan:
        yield checked_path(path) or _ROOT, value
    elif kind is dict or kind is Ordered:
        if kind is Ordered and any(_tensors(value.metadata, "")):
            raise malformed("A tensor stands among the remarks on a state_dict.")
        for key, item in value.items():
            _check_key(key)
            yield from _tensors(item, joined(path, key if type(key) is str else repr(key)))
    elif kind is list or kind is tuple:
        for index, item in enumerate(value):
            yield from _tensors(item, joined(path, str(index)))
    elif kind is set:
        for item in value:
            _check_key(item)
    elif kind is Storage:
        raise UnsafeModel(
            "The file holds a storage by itself, which has no shape that could be checked.",
            "If you made it, save a tensor instead. Nothing was loaded.",
        )
    elif kind not in _LEAVES:
        raise malformed("The file holds a type of storage as a value.")


def _check_key(key: object) -> None:
    """Refuse a tensor that is a key: nothing has a name for it."""
    for part in key if type(key) is tuple else (key,):
        if type(part) is tuple:
            _check_key(part)
        elif type(part) not in _LEAVES:
            raise ModelMalformed(
                "The file has a tensor, or something else that is no plain value, in a set or as a"
                " key.",
                "Save it in a list, or under a key of its own. Nothing was loaded.",
            )
