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

    A pickle can refer to one value from many places. Nodes, text and depth are therefore counted
    as if each place had its own copy: what is small in the file and large once it is written out
    is large.

    Attributes:
        data_bytes: the pickle.
        opcodes: its instructions.
        memo: the values that it numbers, and the highest number.
        integer_bits: one integer.
        nodes: values, written out. Of those that hold others, or call, half as many may be drawn:
            an empty dict is one byte in the file and takes hundreds in the memory.
        text_bytes: text, bytes and integers, written out.
        depth: nesting.
        key_nodes: values in one key of a dict, or in one item of a set.
        number_keys: keys of one dict, or items of one set, whose hash anybody can predict:
            numbers above all. An attacker can choose them so that they get into each other's way,
            and the time goes with the square of their number. So many small dicts count little.
    """

    data_bytes: int = 64 * _MIB
    opcodes: int = 5_000_000
    memo: int = 2_000_000
    integer_bits: int = 2048
    nodes: int = 1_000_000
    text_bytes: int = 64 * _MIB
    depth: int = 64
    key_nodes: int = 64
    number_keys: int = 50_000


DEFAULT_PICKLE_LIMITS = PickleLimits()


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What is refused with `LimitExceeded` before a byte of it is loaded.

    Attributes:
        file_bytes: the file.
        entries: members of an archive.
        pickle_bytes: the pickle that describes the tensors.
        tensors: how many there may be, empty ones as well.
        elements: the elements of one tensor.
        header_bytes: the header of a safetensors file.
        memory_bytes: what the tensors of a PyTorch file may take when they are copied, beyond
            what the file has of them.
    """

    file_bytes: int = 16 * _GIB
    entries: int = 100_000
    pickle_bytes: int = 64 * _MIB
    tensors: int = 100_000
    elements: int = 2**34
    header_bytes: int = 32 * _MIB
    memory_bytes: int = 4 * _GIB


DEFAULT_MODEL_LIMITS = ModelLimits()
_WORDS: Final = {
    "depth": "levels",
    "entries": "members",
    "memo": "numbered values",
    "nodes": "values, written out",
    "number_keys": "keys that are numbers, or that share a hash, which may be an attack",
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
    words = _WORDS.get(name) or name.replace("_", " ")
    return LimitExceeded(
        f"{subject} has more than {getattr(limits, name)} {words}.",
        f"If it is meant to be that large, raise {kind}.{name}.",
        "pickle" if kind == "PickleLimits" else None,
    )
