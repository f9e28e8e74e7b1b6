"""The types of elements: as safetensors writes them, as PyTorch calls them, and their size."""

from __future__ import annotations

import sys
from typing import Final

from safepoint.errors import ModelUnsupported

CODES: Final[dict[str, tuple[str, int]]] = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 1),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 1),
    "I16": ("int16", 2),
    "U16": ("uint16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I32": ("int32", 4),
    "U32": ("uint32", 4),
    "F32": ("float32", 4),
    "C64": ("complex64", 8),
    "F64": ("float64", 8),
    "I64": ("int64", 8),
    "U64": ("uint64", 8),
}
"""What a safetensors file may hold: the code in the file, PyTorch's name, bytes per element.

In the order of the safetensors package, which writes the last of them first.
"""

STORED: Final = frozenset(name for name, _ in CODES.values())
"""The names of PyTorch's types that safetensors can hold."""

KNOWN: Final = STORED | {"complex32", "complex128", "float4_e2m1fn_x2"}
"""The names of the types that a tensor of a PyTorch file may have."""


def name_of(dtype: object) -> str:
    """Return PyTorch's name of a type without the module: `float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def check_byte_order() -> None:
    """Refuse a machine whose numbers are not in the order of a safetensors file.

    Raises:
        ModelUnsupported: they are not.
    """
    if sys.byteorder != "little":
        raise ModelUnsupported(
            "This machine stores the high byte of a number first, and safetensors the low one.",
            "Load and save on a little-endian machine, such as any x86-64 or ARM server.",
        )
