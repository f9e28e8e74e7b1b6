"""What a tensor, and what it is made of, would be: names and numbers, and no elements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from safepoint.weights.dtypes import CODES

SIZES: Final[Mapping[str, int]] = dict(CODES.values()) | {
    "complex32": 4,
    "complex128": 16,
    "float4_e2m1fn_x2": 1,
}
"""Bytes per element, by PyTorch's name of the type."""

STORAGES: Final[Mapping[str, str]] = {
    "BFloat16Storage": "bfloat16",
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "ShortStorage": "int16",
}
"""The names of PyTorch's typed storages, and the type of their elements."""


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """A tensor as it would be built.

    Attributes:
        dtype: the type of its elements, as `float32`.
        shape: its size in each dimension.
        stride: how many elements lie between neighbours, in each dimension.
        offset: the element of the storage that it begins with.
        storage: the key of its storage. Tensors of one storage share memory.
        storage_bytes: the size of that storage.
        device: where it was when it was saved.
        requires_grad: whether it asks for gradients.
        parameter: whether it is an `nn.Parameter`.
    """

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: str
    storage_bytes: int
    device: str
    requires_grad: bool = False
    parameter: bool = False

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes a copy of it takes."""
        return self.elements * SIZES[self.dtype]


@dataclass(frozen=True, slots=True)
class DType:
    """A type of elements, as a value."""

    name: str


@dataclass(frozen=True, slots=True)
class Device:
    """A device, as a value."""

    name: str


@dataclass(frozen=True, slots=True)
class StorageType:
    """A type of storage. `dtype` is None for one that holds bytes and no elements."""

    dtype: str | None


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage that the file says it has."""

    dtype: str | None
    key: str
    device: str
    nbytes: int
