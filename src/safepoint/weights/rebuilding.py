"""The functions that a model file may call, as plans: they check, and they build no tensor.

Each stands for one name that PyTorch's own restricted reader knows. It takes the arguments that
`torch.save` writes and no others, so what PyTorch will do with the same call is known.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any, Final, TypeGuard

from safepoint.errors import UnsafeModel, quoted
from safepoint.weights.limits import ModelLimits
from safepoint.weights.refusals import malformed, over_limit
from safepoint.weights.tensorplan import SIZES, DType, Storage, StorageType, TensorPlan

_DEVICE: Final = re.compile(r"[a-z]{2,16}(:[0-9]{1,4})?")
_KEY: Final = re.compile(r"[0-9]{1,20}")
_DIMENSIONS: Final = 64
_LARGEST: Final = 2**63 - 1


class Rebuilder:
    """Plans the tensors of one file, and keeps count."""

    def __init__(self, limits: ModelLimits) -> None:
        self._limits = limits
        self.storages: dict[str, Storage] = {}
        self._views: set[tuple[Any, ...]] = set()
        self._held = 0
        self._copied = 0

    def storage(self, identifier: object, fields: int) -> Storage:
        """Plan a storage: the one thing that a model's pickle may refer to.

        Args:
            identifier: what the pickle says, with `fields` values.
            fields: 5 in an archive, 6 in a file of the old format.

        Raises:
            UnsafeModel: it refers to something else: a module with its source.
            ModelMalformed: it is not as `torch.save` writes it.
        """
        if type(identifier) is not tuple or not identifier or identifier[0] != "storage":
            raise UnsafeModel(
                "The file refers to something that is no storage of a tensor.",
                "If you made it, save the state_dict of the model, and not the model.",
            )
        if len(identifier) != fields:
            raise malformed("The file describes a storage in a way that torch.save does not.")
        _, kind, key, device, count = identifier[:5]
        if fields == 6 and identifier[5] is not None:
            raise malformed("The file describes a part of a storage, as PyTorch before 0.4 did.")
        if (
            type(kind) is not StorageType
            or not (type(key) is str and _KEY.fullmatch(key))
            or not is_device(device)
            or not _is_size(count)
        ):
            raise malformed("The file describes a storage in a way that torch.save does not.")
        found = Storage(kind.dtype, key, device, count * SIZES[kind.dtype or "uint8"])
        # PyTorch gives the first type of a storage to all its tensors.
        if key not in self.storages:
            self.storages[key] = found
            self._held += found.nbytes
        first = self.storages[key]
        if first != found and (first.nbytes or found.nbytes):
            raise malformed(f"The storage {key} is described twice, and not alike.")
        return found

    def tensor(self, storage: object, offset: object, size: object, stride: object) -> TensorPlan:
        """Plan `torch._utils._rebuild_tensor`."""
        if type(storage) is not Storage:
            raise malformed("A tensor has no storage.")
        return self._planned(storage, storage.dtype or "uint8", offset, size, stride, False)

    def tensor_v2(
        self,
        storage: object,
        offset: object,
        size: object,
        stride: object,
        requires_grad: object,
        hooks: object,
        metadata: object = None,
    ) -> TensorPlan:
        """Plan `torch._utils._rebuild_tensor_v2`."""
        if type(storage) is not Storage:
            raise malformed("A tensor has no storage.")
        dtype = storage.dtype or "uint8"
        _check_extras(dtype, requires_grad, hooks, metadata)
        return self._planned(storage, dtype, offset, size, stride, requires_grad is True)

    def tensor_v3(
        self,
        storage: object,
        offset: object,
        size: object,
        stride: object,
        requires_grad: object,
        hooks: object,
        dtype: object,
        metadata: object = None,
    ) -> TensorPlan:
        """Plan `torch._utils._rebuild_tensor_v3`, for the types that came after 2021."""
        if type(storage) is not Storage or storage.dtype is not None or type(dtype) is not DType:
            raise malformed("A tensor has no storage, or no type.")
        _check_extras(dtype.name, requires_grad, hooks, metadata)
        return self._planned(storage, dtype.name, offset, size, stride, requires_grad is True)

    def parameter(self, data: object, requires_grad: object, hooks: object) -> TensorPlan:
        """Plan `torch._utils._rebuild_parameter`."""
        if type(data) is not TensorPlan:
            raise malformed("A parameter is made of something that is no tensor.")
        _check_extras(data.dtype, requires_grad, hooks, None)
        return replace(data, requires_grad=requires_grad is True, parameter=True)

    def _planned(
        self,
        storage: Storage,
        dtype: str,
        offset: object,
        size: object,
        stride: object,
        requires_grad: bool,
    ) -> TensorPlan:
        if not (
            _is_size(offset)
            and _are_sizes(size)
            and _are_sizes(stride)
            and len(size) == len(stride) <= _DIMENSIONS
        ):
            raise malformed("A tensor has a size, a stride or an offset that no tensor has.")
        # An empty tensor too: (2**40, 0) has no elements, and sizes that overflow elsewhere.
        if math.prod(length or 1 for length in size) > self._limits.elements:
            raise over_limit(
                f"A tensor of the shape {quoted(tuple(size))} has more than "
                f"{self._limits.elements} elements.",
                "elements",
            )
        plan = TensorPlan(
            dtype,
            tuple(size),
            tuple(stride),
            offset,
            storage.key,
            storage.nbytes,
            storage.device,
            requires_grad,
        )
        last = sum((length - 1) * step for length, step in zip(size, stride, strict=True)) + 1
        end = offset + (0 if 0 in size else last)
        if end * SIZES[dtype] > storage.nbytes:
            raise malformed(
                f"A tensor of the shape {quoted(plan.shape)} reaches beyond its storage of "
                f"{storage.nbytes} bytes."
            )
        self._count(plan)
        return plan

    def _count(self, plan: TensorPlan) -> None:
        """Bound what copies of all tensors take: a stride of 0 makes many elements of one."""
        view = (plan.storage, plan.dtype, plan.offset, plan.shape, plan.stride)
        if view in self._views:
            return
        self._views.add(view)
        self._copied += plan.nbytes
        if self._copied > self._held + self._limits.memory_bytes:
            raise over_limit(
                f"The tensors take {self._copied} bytes when they are copied, and are made of "
                f"{self._held}.",
                "memory_bytes",
            )


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _LARGEST


def _are_sizes(values: object) -> TypeGuard[tuple[int, ...]]:
    return isinstance(values, tuple) and all(_is_size(value) for value in values)


def is_device(value: object) -> TypeGuard[str]:
    """Tell whether this is the name of a device, such as `cuda:0`."""
    # "meta" is the device of tensors without data.
    return type(value) is str and value != "meta" and _DEVICE.fullmatch(value) is not None


def _check_extras(dtype: str, requires_grad: object, hooks: object, metadata: object) -> None:
    """Refuse what a tensor that was saved does not have: hooks, or gradients of integers."""
    if type(requires_grad) is not bool or not isinstance(hooks, dict) or hooks:
        raise malformed("A tensor has hooks, or does not say whether it has gradients.")
    if requires_grad and not dtype.startswith(("float", "bfloat", "complex")):
        raise malformed("A tensor of integers asks for gradients.")
    if metadata is None:
        return
    # A lazy conjugate or a lazy minus, which PyTorch notes beside the elements.
    bits = {"conj": dtype.startswith("complex"), "neg": True}
    if type(metadata) is not dict or any(
        not bits.get(name) or type(value) is not bool for name, value in metadata.items()
    ):
        raise malformed("A tensor has remarks that PyTorch does not write.")
