"""Writing a safetensors file: straight from the memory of the tensors, without a second copy.

The bytes are those that the safetensors package writes. A test compares them.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from safepoint.errors import ModelUnsupported, quoted
from safepoint.weights import _packages
from safepoint.weights.dtypes import CODES, check_byte_order, name_of
from safepoint.weights.storable import check_storable

if TYPE_CHECKING:
    import torch

_CODE_OF: Final = {name: code for code, (name, _) in CODES.items()}
# Wide types first, so that each is aligned.
_ORDER: Final = {name: -number for number, (name, _) in enumerate(CODES.values())}
_PIECE: Final = 1 << 30  # one write takes less than 2 GiB
_SMALL: Final = 1 << 16
_BATCH: Final = 1 << 20


def write_into(descriptor: int, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a safetensors file to an open descriptor, from where it stands.

    Raises:
        ModelUnsupported: safetensors cannot hold a name or a tensor.
        OSError: it cannot be written.
    """
    _write(descriptor, *_laid_out(tensors))


def _laid_out(tensors: Mapping[str, torch.Tensor]) -> tuple[bytes, list[torch.Tensor]]:
    """Return the header, and the tensors in the order of their bytes."""
    check_byte_order()
    torch = _packages.torch()
    for name, tensor in tensors.items():
        _check(torch, name, tensor)
    described = [(name_of(tensor.dtype), name, tensor) for name, tensor in tensors.items()]
    described.sort(key=lambda each: (_ORDER[each[0]], each[1]))
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for dtype, name, tensor in described:
        end = position + tensor.nbytes
        table[name] = {
            "dtype": _CODE_OF[dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, [tensor for _, _, tensor in described]


def _check(torch: Any, name: str, tensor: torch.Tensor) -> None:
    check_storable(torch, tensor, name)
    # What is written is memory from a pointer on: it must be all of the tensor, and only that.
    if (
        tensor.device.type != "cpu"
        or not tensor.is_contiguous()
        or tensor.is_conj()
        or tensor.is_neg()
    ):
        raise ModelUnsupported(
            f"The tensor {quoted(name)} is not one contiguous piece of the CPU's memory.",
            "Give write_into what pack returned.",
        )


def _write(descriptor: int, header: bytes, tensors: Iterable[torch.Tensor]) -> None:
    # Small ones are collected: ten thousand calls for 256 bytes each take longer than a copy.
    gathered = bytearray(header)
    for tensor in tensors:
        if not tensor.nbytes:
            continue
        memory = memoryview((ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr()))
        if tensor.nbytes <= _SMALL:
            gathered += memory
        if tensor.nbytes > _SMALL or len(gathered) > _BATCH:
            _write_all(descriptor, memoryview(bytes(gathered)))
            gathered.clear()
        if tensor.nbytes > _SMALL:
            _write_all(descriptor, memory)
    _write_all(descriptor, memoryview(bytes(gathered)))


def _write_all(descriptor: int, memory: memoryview) -> None:
    while memory:
        written = os.write(descriptor, memory[:_PIECE])
        if not written:
            raise OSError(errno.EIO, "nothing was written")
        memory = memory[written:]
