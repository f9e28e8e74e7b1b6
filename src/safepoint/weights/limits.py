"""How large a model file may be, and how much the isolated process may use."""

from __future__ import annotations

from dataclasses import dataclass, fields

from safepoint.errors import ConfigurationError, quoted

_MIB = 1024 * 1024
_GIB = 1024 * _MIB


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What is refused with `LimitExceeded` before a byte of it is loaded.

    Attributes:
        file_bytes: the file.
        entries: members of an archive.
        ratio: how many bytes a byte of the archive may become. PyTorch does not compress.
        pickle_bytes: the pickle that describes the tensors.
        tensors: how many there may be, empty ones too.
        elements: the elements of one tensor.
        header_bytes: the header of a safetensors file.
        memory_bytes: what the tensors of a PyTorch file may take when they are copied, and what
            an isolated process may use beyond PyTorch itself and three times the file.
        cpu_seconds: how long the isolated process may compute.
    """

    file_bytes: int = 16 * _GIB
    entries: int = 100_000
    ratio: int = 1
    pickle_bytes: int = 64 * _MIB
    tensors: int = 100_000
    elements: int = 2**34
    header_bytes: int = 32 * _MIB
    memory_bytes: int = 4 * _GIB
    cpu_seconds: int = 120

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise ConfigurationError(
                    f"ModelLimits.{field.name} is {quoted(value)}.",
                    "Write a whole number above 0.",
                )


DEFAULT_MODEL_LIMITS = ModelLimits()
