"""The names that a model file may use, and why it may not use others that PyTorch allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from safepoint.errors import UnsafeModel
from safepoint.pickles.machine import Collect, Constant, Functions
from safepoint.pickles.opcodes import named
from safepoint.weights.rebuilding import Rebuilder, is_device
from safepoint.weights.refusals import malformed
from safepoint.weights.tensorplan import SIZES, STORAGES, Device, DType, StorageType

_STATE_DICT: Final = "If you made it, save the state_dict and plain values instead."
_DENSE: Final = "If you made it, save tensor.to_dense() instead."
_PLAIN: Final = "If you made it, save tensor.detach().clone() as a plain tensor instead."
_DATA: Final = "If you made it, save tensors that have their data instead."
_QUANTIZED: Final = re.compile(r"QU?Int\w*Storage|qu?int\w+|per_(tensor|channel)_\w+")
_OTHER_TYPE: Final = re.compile(r"u?int[1-7]|bits[1-9x]+")
_NO_BYTES: Final = (
    "bytes that are empty, which PyTorch itself does not read back",
    "If you made it, save None in their place.",
)
# PyTorch's own restricted reader builds these. They are refused here, each for its reason.
_REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "torch._utils._rebuild_sparse_tensor": (
        "a sparse tensor, whose indices nobody checks before they are used",
        _DENSE,
    ),
    "torch._utils._rebuild_nested_tensor": (
        "a nested tensor, whose sizes nobody checks before they are used",
        "If you made it, save the list of its parts instead.",
    ),
    "torch._utils._rebuild_qtensor": (
        "a quantized tensor, which takes memory that the file does not have",
        "If you made it, save tensor.int_repr(), the scale and the zero point instead.",
    ),
    "torch._utils._rebuild_meta_tensor_no_storage": ("a tensor without data, of any size", _DATA),
    "torch._utils._rebuild_wrapper_subclass": ("a tensor of a class of its own", _PLAIN),
    "torch._utils._rebuild_device_tensor_from_numpy": ("a tensor of a NumPy array", _DATA),
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": (
        "a tensor of a device that cannot be read without it",
        "If you made it, save tensor.cpu() instead.",
    ),
    "torch._utils._rebuild_parameter_with_state": ("a parameter with attributes", _PLAIN),
    "torch._tensor._rebuild_from_type_v2": ("a tensor with attributes, or of a class", _PLAIN),
    "torch.serialization._get_layout": ("a memory layout", "Save its name, str(layout), instead."),
    "__builtin__.bytes": _NO_BYTES,
    "builtins.bytes": _NO_BYTES,
    "torch.nn.parameter.Parameter": ("a parameter without data", _DATA),
}


def names_for(rebuilder: Rebuilder) -> Functions:
    """Return the vetted function or value for each name that a model file may use."""
    names: dict[tuple[str, str], Callable[..., Any] | Constant | Collect] = {
        ("torch._utils", "_rebuild_tensor"): rebuilder.tensor,
        ("torch._utils", "_rebuild_tensor_v2"): rebuilder.tensor_v2,
        ("torch._utils", "_rebuild_tensor_v3"): rebuilder.tensor_v3,
        ("torch._utils", "_rebuild_parameter"): rebuilder.parameter,
        ("torch.storage", "UntypedStorage"): Constant(StorageType(None)),
        ("torch", "Size"): _size,
        ("torch", "device"): _device,
        ("collections", "OrderedDict"): Ordered,
        ("collections", "Counter"): _counter,
        ("_codecs", "encode"): _encode,
    }
    for module in ("builtins", "__builtin__"):  # today's name, and the one of protocol 2
        names |= {(module, "set"): Collect("set"), (module, "complex"): _complex}
        names[module, "bytearray"] = _bytearray
    for module in ("torch", "torch.cuda"):
        names |= {(module, name): Constant(StorageType(kind)) for name, kind in STORAGES.items()}
    return names | {("torch", name): Constant(DType(name)) for name in SIZES}


def unsafe(wanted: list[tuple[str, str]]) -> UnsafeModel:
    """Return the error for names that are not on the list."""
    reasons = [_reason(*name) for name in wanted]
    if None not in reasons and reasons[0]:
        what, do = reasons[0]
        return UnsafeModel(
            f"The file holds {what} ({named(*wanted[0])}).", f"{do} Nothing was loaded."
        )
    # Those that are no data at all say more than those that are data of the wrong kind.
    foreign = [named(*name) for name, reason in zip(wanted, reasons, strict=True) if reason is None]
    return unsafe_named(foreign)


def unsafe_named(shown: list[str]) -> UnsafeModel:
    """Return the error for names that are no data at all."""
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    verb = "is" if len(shown) == 1 else "are"
    return UnsafeModel(
        f"The file wants {', '.join(shown[:3])}{more}, which {verb} not data.",
        f"Nothing of it was run. Do not load it. {_STATE_DICT}",
    )


def _reason(module: str, name: str) -> tuple[str, str] | None:
    """Return what a name stands for, and what to save instead, if it is data of a wrong kind."""
    package = module.partition(".")[0]
    if package == "torch" and name.endswith("Tensor"):
        return "a tensor without data, of any size", _DATA
    if module == "torch" and _QUANTIZED.fullmatch(name):
        return _REFUSED["torch._utils._rebuild_qtensor"]
    if module == "torch" and _OTHER_TYPE.fullmatch(name):
        return "a type of elements that no tensor is saved with", "Save its name instead."
    if package == "numpy":
        return (
            "a NumPy value",
            "If you made it, save float(x), x.tolist() or torch.from_numpy(x) instead.",
        )
    return _REFUSED.get(f"{module}.{name}")


class Ordered(dict[Any, Any]):
    """What `collections.OrderedDict` becomes: a dict that may have the `_metadata` of modules."""

    __slots__ = ("metadata",)

    def __init__(self, pairs: object = None) -> None:
        super().__init__()
        self.metadata: object = None
        if pairs is None:
            return
        # Python 2 wrote the items as the argument.
        if type(pairs) is not list or any(
            type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str for pair in pairs
        ):
            raise malformed("An OrderedDict is made of something that is no list of items.")
        self.update(pairs)
        if len(self) != len(pairs):
            raise malformed("An OrderedDict has one key twice.")

    def __build__(self, state: object) -> Ordered:
        """Take the attributes that a module's state_dict has."""
        if state is not None:
            if not isinstance(state, dict) or list(state) != ["_metadata"]:
                raise malformed("An OrderedDict has attributes that a state_dict does not have.")
            self.metadata = state["_metadata"]
        return self


def _size(*arguments: object) -> tuple[int, ...]:
    (values,) = arguments if len(arguments) == 1 else ((),)
    if type(values) is not tuple or any(type(value) is not int for value in values):
        raise malformed("A torch.Size is made of something that is no tuple of integers.")
    return values


def _device(*arguments: object) -> Device:
    kind, *index = arguments or (None,)
    if len(index) > 1 or any(type(at) is not int or not 0 <= at < 10_000 for at in index):
        raise malformed("A torch.device has no such name.")
    name = f"{kind}:{index[0]}" if index else kind
    if kind != "meta" and not is_device(name):
        raise malformed("A torch.device has no such name.")
    return Device(str(name))


def _counter(*arguments: object) -> dict[Any, Any]:
    (counts,) = arguments if len(arguments) == 1 else (None,)
    if type(counts) is not dict or any(type(count) is not int for count in counts.values()):
        raise malformed("A Counter is made of something that is no dict of integers.")
    return dict(counts)


def _encode(*arguments: object) -> bytes:
    """Return bytes, which protocol 2 writes as a text of their Latin-1 characters."""
    if len(arguments) == 2 and type(arguments[0]) is str and arguments[1] == "latin1":
        try:
            return arguments[0].encode("latin-1")
        except UnicodeEncodeError:
            pass
    raise malformed("The file encodes something other than bytes.")


def _bytearray(*arguments: object) -> bytes:
    # Never of a number: PyTorch would reserve that many bytes.
    if len(arguments) == 2 and arguments[1] == "latin-1":
        return _encode(arguments[0], "latin1")
    if not arguments:
        return b""
    if len(arguments) == 1 and type(arguments[0]) is bytes:
        return arguments[0]
    raise malformed("A bytearray is made of something other than bytes.")


def _complex(*arguments: object) -> complex:
    real, imaginary = arguments if len(arguments) == 2 else (None, None)
    if type(real) is not float or type(imaginary) is not float:
        raise malformed("A complex number is made of something other than two numbers.")
    return complex(real, imaginary)
