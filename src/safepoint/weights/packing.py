"""A training state, taken apart: its tensors for safetensors, and the rest as JSON of this project.

A flat dict of tensors keeps its keys as names, so that every tool for safetensors reads it. Below
that, names are joined with `/`: `optimizer/state/0/exp_avg`. What comes back is equal to what went
in: types, shapes, bytes and structure, and a tensor that was in two places is one tensor again.

Not kept: the order of a dict that holds more than tensors, the `_metadata` of an OrderedDict,
gradients and their history, strides, and the device.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from safepoint.errors import (
    DecodeError,
    EncodeError,
    LimitExceeded,
    ModelMalformed,
    ModelUnsupported,
    quoted,
)
from safepoint.weights import _packages
from safepoint.weights.limits import DEFAULT_MODEL_LIMITS, ModelLimits
from safepoint.weights.outline import (
    DEPTH,
    NOT_OURS,
    STAND_INS,
    NotFinite,
    Restorer,
    TensorDict,
    TensorRef,
    codec_for,
)
from safepoint.weights.storable import Shared, check_storable, plain

if TYPE_CHECKING:
    import torch

_ROOT: Final = "tensor"


@dataclass(frozen=True, slots=True)
class Packed:
    """A state, taken apart.

    Attributes:
        tensors: by name; dense, contiguous, detached, on the CPU.
        rest: everything else, encoded.
    """

    tensors: dict[str, torch.Tensor]
    rest: bytes = field(repr=False)


def pack(state: Any, limits: ModelLimits = DEFAULT_MODEL_LIMITS) -> Packed:
    """Take a state apart.

    Raises:
        MissingPackage: torch is not installed.
        ModelUnsupported: it holds what safetensors and the codec cannot. The message names it.
        LimitExceeded: it is too large, too deep or has too many values.
    """
    packer = _Packer(_packages.torch(), limits)
    outline = packer.outline(state, "", DEPTH)
    packer.shared.check()
    try:
        rest = codec_for(limits).encode(outline)
    except EncodeError as error:
        raise ModelUnsupported(
            error.what,
            "Convert it first to dicts, lists, tuples, numbers, texts or bytes, or leave it out.",
        ) from None
    return Packed(packer.tensors, rest)


def unpack(
    tensors: Mapping[str, torch.Tensor], rest: bytes, limits: ModelLimits = DEFAULT_MODEL_LIMITS
) -> Any:
    """Put a state together again.

    Raises:
        ModelMalformed: the rest is not what `pack` gave, or belongs to other tensors.
        LimitExceeded: it is too large, too deep or has too many values.
    """
    try:
        outline = codec_for(limits).decode(rest)
    except DecodeError as error:
        raise ModelMalformed(error.what, NOT_OURS) from None
    restorer = Restorer(tensors)
    state = restorer.state(outline)
    if len(restorer.used) != len(tensors):
        spare = next(name for name in tensors if name not in restorer.used)
        raise ModelMalformed(
            f"The file holds the tensor {quoted(spare)}, which is not part of the state.", NOT_OURS
        )
    return state


class _Packer:
    def __init__(self, torch: Any, limits: ModelLimits) -> None:
        self._torch = torch
        self._limits = limits
        self._left = 10 * limits.tensors
        self._tensor_types = (torch.Tensor, torch.nn.Parameter)
        self.tensors: dict[str, torch.Tensor] = {}
        self.shared = Shared()

    def outline(self, value: Any, path: str | None, depth: int) -> Any:
        """Return the value with stand-ins for its tensors.

        Args:
            value: any part of the state.
            path: the names on the way to it, or None if a key among them is no name.
            depth: how many levels are left.
        """
        kind = type(value)
        if isinstance(value, self._torch.Tensor):
            return TensorRef(self._name_of(value, path or _ROOT if path is not None else None))
        if kind is dict or kind is OrderedDict:
            self._enter(value, depth)
            return self._dict(value, path, depth - 1)
        if kind is list or kind is tuple or kind is self._torch.Size:
            self._enter(value, depth)
            items = [
                self.outline(item, _join(path, str(index)), depth - 1)
                for index, item in enumerate(value)
            ]
            return items if kind is list else tuple(items)
        if kind is float and not math.isfinite(value):
            return NotFinite(repr(value))
        if (
            kind.__module__.partition(".")[0] in ("torch", "numpy")
            or kind in STAND_INS
            or isinstance(value, self._torch.nn.Module)
        ):
            raise _foreign(value, path)
        return value

    def _dict(self, value: dict[Any, Any], path: str | None, depth: int) -> Any:
        if (
            path is not None
            and value
            and all(type(key) is str for key in value)
            and all(type(item) in self._tensor_types for item in value.values())
        ):
            tied = {}
            for key, tensor in value.items():
                own = _join(path, key)
                name = self._name_of(tensor, own)
                if name != own:
                    tied[key] = name
            return TensorDict(path, list(value), tied)
        return {
            key: self.outline(
                item, _join(path, str(key) if type(key) in (str, int) else None), depth
            )
            for key, item in value.items()
        }

    def _enter(self, value: Any, depth: int) -> None:
        self._left -= len(value)
        if depth <= 0 or self._left < 0:
            raise LimitExceeded(
                f"The state is nested deeper than {DEPTH} levels, contains itself, or holds more"
                f" than {10 * self._limits.tensors} values.",
                "Save a flatter and smaller state.",
            )

    def _name_of(self, tensor: torch.Tensor, name: str | None) -> str:
        """Keep a tensor under that name, or return the name under which it was kept before."""
        if name is None:
            raise ModelUnsupported(
                "A tensor is in a dict under a key that is neither a text nor an integer.",
                "Use such keys only where there are no tensors below.",
            )
        check_storable(self._torch, tensor, name)
        known = self.shared.name_of(tensor, name)
        if known != name:
            return known
        if name in self.tensors:
            raise ModelUnsupported(
                f"Two tensors would have the name {quoted(name)} in the file.",
                "Rename a key: levels are joined with '/', and 1 and '1' look the same.",
            )
        if len(self.tensors) >= self._limits.tensors:
            raise LimitExceeded(
                f"The state holds more than {self._limits.tensors} tensors.",
                "If it is meant to be that large, raise ModelLimits.tensors.",
            )
        self.tensors[name] = plain(tensor)
        return name


def _join(path: str | None, step: str | None) -> str | None:
    if path is None or step is None:
        return None
    return f"{path}/{step}" if path else step


def _foreign(value: Any, path: str | None) -> ModelUnsupported:
    kind = type(value)
    if kind in STAND_INS:
        do = "Save the value itself: this type is used inside the file alone."
    elif hasattr(value, "state_dict"):
        do = "Save its state_dict() instead; the class itself stays in your code."
    elif kind.__module__ == "numpy" and hasattr(value, "item"):
        do = "Save torch.from_numpy(value) for an array, and value.item() for a single number."
    else:
        do = "Save str(value) instead, and turn it back in your code."
    where = f"{quoted(path)} in the state" if path else "A value of the state"
    return ModelUnsupported(
        f"{where} is of the type {kind.__module__}.{kind.__qualname__}, which is not saved.", do
    )
