"""A tensor as safetensors can hold it: dense, plain, contiguous, on the CPU, sharing nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safepoint.errors import ModelUnsupported, quoted
from safepoint.weights.dtypes import STORED, name_of
from safepoint.weights.table import name_problem

if TYPE_CHECKING:
    import torch


def check_storable(torch: Any, tensor: torch.Tensor, name: str) -> None:
    """Refuse a tensor that safetensors cannot hold, or that has a name it should not have.

    Raises:
        ModelUnsupported: the message says why, and what to save instead.
    """
    if why := _refusal(torch, tensor, name):
        what, do = why
        raise ModelUnsupported(f"The tensor {quoted(name)} {what}.", do)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the same values that can be written as it is in memory.

    Args:
        tensor: one that `check_storable` let pass.
    """
    found = tensor.detach()
    if found.device.type != "cpu":
        found = found.cpu()
    if found.is_conj() or found.is_neg():
        found = found.resolve_conj().resolve_neg()
    return found.contiguous()


def _refusal(torch: Any, tensor: torch.Tensor, name: str) -> tuple[str, str] | None:
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
        kind = type(tensor)
        return (
            f"is of the type {kind.__module__}.{kind.__qualname__}, a subclass of Tensor",
            "Save a plain tensor: tensor.as_subclass(torch.Tensor), or what it stands for.",
        )
    if tensor.is_nested:
        return "is nested", "Save the tensors inside it: tensor.unbind()."
    if tensor.layout is not torch.strided:
        return (
            f"is {tensor.layout}, and safetensors holds dense ones alone",
            "Save tensor.to_dense(), or its indices and values.",
        )
    if tensor.is_quantized:
        return "is quantized", "Save tensor.int_repr(), and its scale and zero point."
    if tensor.device.type == "meta":
        return "is on the meta device and has no values", "Load or initialise the model first."
    dtype = name_of(tensor.dtype)
    if dtype not in STORED:
        return (
            f"is of the type {dtype}, which safetensors cannot hold",
            "Convert it first, with tensor.to(dtype) or torch.view_as_real(tensor).",
        )
    if problem := name_problem(name):
        return f"has a name that {problem}", "Rename the keys on the way to it."
    try:
        tensor.data_ptr()
    except RuntimeError:  # inside torch.func, a tensor stands for several
        return "has no memory of its own", "Save it outside of torch.func.vmap and grad."
    return None


class Shared:
    """Which tensors are in the same memory.

    The same tensor in two places is stored once. Two that overlap in part are refused: after a
    load they would no longer change together.
    """

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._areas: list[tuple[str, int, int, str]] = []

    def name_of(self, tensor: torch.Tensor, name: str) -> str:
        """Return the name under which this tensor was seen first, which may be this one."""
        start = tensor.data_ptr()
        if not start or not tensor.numel():
            return self._names.setdefault(id(tensor), name)
        device = str(tensor.device)
        shape, stride = tensor.shape, tensor.stride()
        mine = device, start, tensor.dtype, shape, stride, tensor.is_conj(), tensor.is_neg()
        known = self._names.setdefault(mine, name)
        if known is name:
            last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
            end = start + (last + 1) * tensor.element_size()
            self._areas.append((device, start, end, name))
        return known

    def check(self) -> None:
        """Refuse two tensors that overlap.

        Raises:
            ModelUnsupported: they do. The message names them.
        """
        reached = ("", 0, "")
        for device, start, end, name in sorted(self._areas):
            if device == reached[0] and start < reached[1]:
                raise ModelUnsupported(
                    f"The tensors {quoted(reached[2])} and {quoted(name)} share memory, and are"
                    " not the same.",
                    "Save one of them, or a clone() of one.",
                )
            reached = device, end, name
