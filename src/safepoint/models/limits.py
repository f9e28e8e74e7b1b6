"""How large a pickle or a model file may be, in each of the ways in which one can be large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from safepoint.core.errors import LimitExceeded, ModelRefused

_MIB: Final = 1024 * 1024
_GIB: Final = 1024 * _MIB


@dataclass(frozen=True, slots=True)
class PickleLimits:
    """What is refused with `LimitExceeded` while a pickle is read.

    A pickle can refer to one value from many places. Values, text and depth are therefore counted
    as if each place had its own copy: what is small in the file and large once it is written out
    is large.

    Attributes:
        data_bytes: the pickle; and its text, bytes and integers, written out.
        nodes: values, written out. Of those that hold others, or call, half as many may be drawn:
            an empty dict is one byte in the file and takes hundreds in the memory. There may be
            five times as many instructions, and twice as many values that are numbered.
        depth: nesting.
    """

    data_bytes: int = 64 * _MIB
    nodes: int = 1_000_000
    depth: int = 64

    @property
    def opcodes(self) -> int:
        """How many instructions it may have."""
        return 5 * self.nodes

    @property
    def memo(self) -> int:
        """How many values it may number, and the highest number."""
        return 2 * self.nodes


DEFAULT_PICKLE_LIMITS = PickleLimits()


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What is refused with `LimitExceeded` before a byte of it is loaded.

    Attributes:
        file_bytes: the file.
        header_bytes: what describes the tensors: the header of a safetensors file, or the pickle
            of a PyTorch file.
        tensors: how many there may be, empty ones as well; and members of an archive.
        elements: the elements of one tensor.
        memory_bytes: what the tensors of a PyTorch file may take when they are copied, beyond
            what the file has of them.
    """

    file_bytes: int = 16 * _GIB
    header_bytes: int = 64 * _MIB
    tensors: int = 100_000
    elements: int = 2**34
    memory_bytes: int = 4 * _GIB


DEFAULT_MODEL_LIMITS = ModelLimits()
_WORDS: Final = {
    "data_bytes": ("data_bytes", "bytes of data"),
    "depth": ("depth", "levels"),
    "memo": ("nodes", "numbered values"),
    "nodes": ("nodes", "values, written out"),
    "opcodes": ("nodes", "instructions"),
}


def malformed(what: str) -> ModelRefused:
    """Return the error for a file that `torch.save` does not write like this."""
    return ModelRefused(
        what, "Get the file again, or write it again with torch.save. Nothing was loaded."
    )


def over(limits: PickleLimits | ModelLimits, name: str, subject: str = "") -> LimitExceeded:
    """Return the error for what is over the limit of that name."""
    kind = type(limits).__name__
    subject = subject or ("The pickle" if kind == "PickleLimits" else "The file")
    option, words = _WORDS.get(name) or (name, name.replace("_", " "))
    return LimitExceeded(
        f"{subject} has more than {getattr(limits, name)} {words}.",
        f"If it is meant to be that large, raise {kind}.{option}.",
        "pickle" if kind == "PickleLimits" else None,
    )
