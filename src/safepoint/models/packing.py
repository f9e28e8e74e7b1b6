"""A training state, taken apart: its tensors for safetensors, and the rest as the codec writes it.

A flat dict of tensors keeps its keys as names, so that every tool for safetensors reads it. Below
that, names are joined with `/`: `optimizer/state/0/exp_avg`. In the rest a stand-in is where a
tensor was, and where a number was that the codec refuses; the codec knows these and no other
class. What comes back is equal to what went in: types, shapes, bytes and structure, and a tensor
that was in two places is one tensor again.

Not kept: the `_metadata` of an OrderedDict, gradients and their history, strides, and the device of
a tensor. A Namespace, a Counter and a defaultdict become a dict, a deque a list, a bytearray bytes,
a path and a device, a dtype or a layout of PyTorch a text, an array of NumPy a tensor, and one of
its numbers a number of Python.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePath
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any, Final

from safepoint.core.codec import Codec, Converter
from safepoint.core.errors import DecodeError, EncodeError, LimitExceeded, ModelRefused, quoted
from safepoint.core.names import Limits
from safepoint.models.limits import DEFAULT_MODEL_LIMITS, ModelLimits, over
from safepoint.models.reader import Tensors
from safepoint.models.tensors import (
    STORED,
    dtype_name,
    free_name,
    name_problem,
    open_tensors,
    package,
    write_into,
)

if TYPE_CHECKING:
    import torch

_ROOT: Final = "tensor"
_DEPTH: Final = 64
_IN_PLACE: Final = (
    "Save plain numbers in its place: tensor.to_dense(), tensor.to(dtype),"
    " tensor.as_subclass(torch.Tensor) or torch.view_as_real(tensor)."
)
_ITS_NAME: Final = "Its name comes from the keys on the way to it: change those."
_NOT_OURS: Final = "Nothing was loaded. Load what save_checkpoint wrote, with its own files."


class TensorRef(str):
    """Stands where a tensor was: its name in the file."""

    __slots__ = ()


class NotFinite(str):
    """Stands where `nan`, `inf` or `-inf` was. The best loss so far often is one."""

    __slots__ = ()


_DICTS: Final = (dict, OrderedDict, Counter, defaultdict, Tensors)
_STAND_INS: Final = (TensorRef, NotFinite)
_PLAINER: Final[dict[type, Any]] = {
    Namespace: vars,
    SimpleNamespace: vars,
    deque: list,
    bytearray: bytes,
}
_MOST: Final = 1_000_000  # values
_NUMPY: Final = "biufcSU"  # kinds of values
_CODEC: Final = Codec(
    converters=[Converter(cls.__name__, cls, str, cls) for cls in _STAND_INS],
    limits=Limits(depth=_DEPTH + 4, items=_MOST),  # and no larger than a seal may be
)


def pack(
    state: Any, limits: ModelLimits = DEFAULT_MODEL_LIMITS
) -> tuple[dict[str, torch.Tensor], bytes]:
    """Return the tensors of a state by name, dense and on the CPU, and everything else, encoded.

    Raises:
        MissingPackage: torch is not installed.
        ModelRefused: it holds what safetensors and the codec cannot. The message names it.
        LimitExceeded: it is too large, too deep or has too many values.
    """
    packer = _Packer(package(), limits)
    outline = packer.outline(state, "", _DEPTH)
    packer.check_shared()
    try:
        rest = _CODEC.encode(outline)
    except EncodeError as error:
        raise ModelRefused(
            error.what,
            "Convert it first to dicts, lists, tuples, numbers, texts or bytes, or leave it out.",
        ) from None
    return packer.tensors, rest


def write_packed(state: Any, file: IO[bytes], limits: ModelLimits) -> tuple[bytes, int]:
    """Write the tensors of a state into an open file, and compare what is there.

    Returns:
        Everything else in it, encoded; and how many tensors there are.

    Raises:
        ModelRefused: as `pack`; or what was written is not what the state holds.
        LimitExceeded: as `pack`.
    """
    tensors, rest = pack(state, limits)
    write_into(file.fileno(), tensors)
    written = open_tensors(file, limits)
    unpack(written, rest)  # what is sealed can be loaded
    torch = package()
    for name, its in written.items():
        mine = tensors[name]
        same = (mine.dtype, mine.shape) == (its.dtype, its.shape)
        # As bytes, a NaN is equal to itself.
        raw = [each.reshape(-1).view(torch.uint8) for each in (mine, its)]
        if not (same and torch.equal(*raw)):
            raise ModelRefused(
                f"The tensor {quoted(name)} is another one once it is written.",
                "Nothing was kept. Try again; if it stays, look for a faulty disk or memory.",
            )
    return rest, len(written)


def unpack(tensors: Mapping[str, torch.Tensor], rest: bytes) -> Any:
    """Put a state together again.

    Raises:
        ModelRefused: the rest is not what `pack` gave, or belongs to other tensors.
        LimitExceeded: it is too large, too deep or has too many values.
    """
    used: set[str] = set()
    with suppress(DecodeError, LookupError, TypeError, ValueError):
        state = _restored(_CODEC.decode(rest), tensors, used)
        if len(used) == len(tensors):
            return state
    raise ModelRefused("The rest of the state, in the seal, is not of these tensors.", _NOT_OURS)


def _restored(outline: Any, tensors: Mapping[str, torch.Tensor], used: set[str]) -> Any:
    """Put tensors back in the place of their stand-ins."""
    kind = type(outline)
    if kind is dict:
        return {key: _restored(item, tensors, used) for key, item in outline.items()}
    if kind is list or kind is tuple:
        return kind([_restored(item, tensors, used) for item in outline])
    if kind is TensorRef:
        used.add(outline)
        return tensors[outline]
    return float(outline) if kind is NotFinite else outline


class _Packer:
    def __init__(self, torch: Any, limits: ModelLimits) -> None:
        self._torch = torch
        self._limits = limits
        self._left = _MOST
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[Any, str] = {}  # of tensors that were seen, by where they are
        self._areas: list[tuple[str, int, int, str]] = []
        self._times: Counter[str] = Counter()

    def outline(self, value: Any, path: str, depth: int) -> Any:
        """Return the value with stand-ins for its tensors.

        Args:
            value: any part of the state.
            path: the names on the way to it.
            depth: how many levels are left.
        """
        value = self._plainer(value)
        kind = type(value)
        if isinstance(value, self._torch.Tensor):
            return TensorRef(self._name_of(value, path or _ROOT))
        if kind in (*_DICTS, list, tuple, self._torch.Size):
            self._left -= len(value)
            if depth <= 0 or self._left < 0:
                raise LimitExceeded(
                    f"The state is nested deeper than {_DEPTH} levels, contains itself, or holds"
                    f" more than {_MOST} values.",
                    "Save a flatter and smaller state.",
                )
            if isinstance(value, dict):
                return {
                    key: self.outline(item, _join(path, key), depth - 1)
                    for key, item in value.items()
                }
            steps = (_join(path, index) for index in range(len(value)))
            items = [self.outline(*each, depth - 1) for each in zip(value, steps, strict=True)]
            return items if kind is list else tuple(items)
        if kind is float and not math.isfinite(value):
            return NotFinite(repr(value))
        if (
            kind.__module__.partition(".")[0] in ("torch", "numpy")
            or kind in _STAND_INS
            or isinstance(value, self._torch.nn.Module)
        ):
            raise _foreign(value, path)
        return value

    def _plainer(self, value: Any) -> Any:
        """Return what is kept in place of a value that is not as plain as it could be."""
        kind = type(value)
        if kind in _PLAINER:
            return _PLAINER[kind](value)
        is_word = kind in (self._torch.device, self._torch.dtype, self._torch.layout)
        if is_word or isinstance(value, PurePath):
            return str(value)
        is_numpy = kind.__module__ == "numpy" and hasattr(value, "dtype")
        if is_numpy and value.dtype.kind in _NUMPY:
            if kind.__name__ == "ndarray":
                with suppress(TypeError, ValueError):  # such as texts
                    return self._torch.tensor(value)
            elif value.shape == ():
                return value.item()
        return value

    def _name_of(self, tensor: torch.Tensor, name: str) -> str:
        """Keep a tensor under that name, or return the name under which it was kept before."""
        if why := _refusal(self._torch, tensor):
            raise ModelRefused(f"The tensor {quoted(name)} {why}.", _IN_PLACE)
        if problem := name_problem(name):
            raise ModelRefused(f"The name of the tensor {quoted(name)} {problem}.", _ITS_NAME)
        start, shape, stride = tensor.data_ptr(), tensor.shape, tensor.stride()
        signs = tensor.is_conj(), tensor.is_neg()
        place = (str(tensor.device), start, tensor.dtype, shape, stride, *signs)
        has_place = start and tensor.numel()  # an empty one can be anywhere
        if has_place and place in self._names:
            return self._names[place]
        own = free_name(name, self.tensors, self._times)
        if len(self.tensors) >= self._limits.tensors:
            raise over(self._limits, "tensors", subject="The state")
        if has_place:
            self._names[place] = own
            last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
            self._areas.append((place[0], start, start + (last + 1) * tensor.element_size(), own))
        self.tensors[own] = _plain(tensor)
        return own

    def check_shared(self) -> None:
        """Refuse two tensors that overlap: after a load they would no longer change together."""
        reached = ("", 0, "")
        for device, start, end, name in sorted(self._areas):
            if device == reached[0] and start < reached[1]:
                raise ModelRefused(
                    f"The tensors {quoted(reached[2])} and {quoted(name)} share memory but differ.",
                    "Save only one, or a clone() of the other.",
                )
            reached = device, end, name


def _join(path: str, step: Any) -> str:
    name = str(step) if type(step) in (str, int) else "key"
    return f"{path}/{name}" if path else name


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the same values that can be written as it is in memory.

    One on the CPU keeps its memory, so that no later tensor is taken for it by its place.
    """
    found = tensor.detach()
    if found.device.type != "cpu":
        found = found.cpu()
    if found.is_conj() or found.is_neg():
        found = found.resolve_conj().resolve_neg()
    if found.numel() == 1:  # of which any stride passes for contiguous
        return found.as_strided(found.shape, (1,) * found.dim())
    return found.contiguous()


def _refusal(torch: Any, tensor: torch.Tensor) -> str | None:
    """Return why safetensors cannot hold a tensor."""
    kind, dtype = type(tensor), dtype_name(tensor.dtype)
    if kind not in (torch.Tensor, torch.nn.Parameter):
        return f"is of the type {kind.__module__}.{kind.__qualname__}, a subclass of Tensor"
    if tensor.is_nested or tensor.layout is not torch.strided or tensor.is_quantized:
        return "is sparse, nested or quantized, and safetensors holds only dense ones"
    if tensor.device.type == "meta":
        return "is on the meta device and has no values"
    if dtype not in STORED:
        return f"is of the type {dtype}, which safetensors cannot hold"
    return None


def _foreign(value: Any, path: str) -> ModelRefused:
    kind = type(value)
    where = f"{quoted(path)} in the state" if path else "A value of the state"
    return ModelRefused(
        f"{where} is of the type {kind.__module__}.{kind.__qualname__}, which is not saved.",
        "Save a tensor, a number, module.state_dict() or str(value) instead.",
    )
