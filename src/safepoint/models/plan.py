"""What a PyTorch file would build, known before PyTorch sees a byte of it.

`torch.load(weights_only=True)` runs no code of the file, and it does all else that the file says:
it takes the memory that it asks for, and believes its sizes. A plan is made without PyTorch, with
functions that check and build nothing: each stands for one name that PyTorch's own restricted
reader knows, and takes the arguments that `torch.save` writes and no others. What is not in the
plan is not in the file.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from types import NoneType
from typing import IO, Any, Final, NamedTuple, TypeGuard

from safepoint.core.errors import (
    CheckpointError,
    DecodeError,
    InvalidId,
    LimitExceeded,
    ModelRefused,
    quoted,
    shell,
)
from safepoint.core.names import check_name
from safepoint.models.limits import (
    DEFAULT_MODEL_LIMITS,
    ModelLimits,
    PickleLimits,
    malformed,
    over,
)
from safepoint.models.machine import Collect, Constant, run
from safepoint.models.opcodes import Scan, named, scan
from safepoint.models.plain import PLAIN, made_of
from safepoint.models.tensors import CODES, FORMATS, TensorSpec
from safepoint.models.zips import DESCRIBED, STORED, Member, content

SIZES: Final[Mapping[str, int]] = dict(CODES.values()) | FORMATS["elements"]
"""Bytes per element, by PyTorch's name of the type."""

_INSTRUCTIONS: Final = frozenset(FORMATS["instructions"].split())
# What one tensor of five dimensions takes, with room to spare; an ordinary one takes two thirds.
_OPCODES: Final = 60
_NODES: Final = 40
_OTHER_VALUES: Final = 500_000
_LONGEST: Final = 4096
_DIMENSIONS: Final = 64
_LARGEST: Final = 2**63 - 1
_NOTHING: Final = "Nothing was loaded."


class _Named(NamedTuple):
    """A type of elements, or a device, as a value."""

    name: str
    is_dtype: bool


class _StorageType(NamedTuple):
    """A type of storage. `dtype` is None for one that holds bytes and no elements."""

    dtype: str | None


class _Storage(NamedTuple):
    """A storage that the file says it has."""

    dtype: str | None
    key: str
    device: str
    nbytes: int


_LEAVES: Final = frozenset([NoneType, bool, int, float, complex, str, bytes, _Named])


def read_plan(
    file: IO[bytes],
    members: tuple[Member, ...],
    limits: ModelLimits = DEFAULT_MODEL_LIMITS,
    path: str = "",
    told: list[Scan] | None = None,
) -> dict[str, TensorSpec]:
    """Read what a PyTorch archive would build. No tensor is read, and nothing is run.

    Args:
        file: the file, open for reading in binary mode, and seekable.
        members: those of the archive.
        limits: how large it may be, and how large what it builds.
        path: where it is, for the command that a refusal advises.
        told: as of `run`.

    Returns:
        The tensors by the way to them: keys and indices, joined with `/`.

    Raises:
        ModelRefused: it wants a name that is not data, or a kind of tensor that PyTorch does not
            check; or it is not as `torch.save` writes it.
        LimitExceeded: it is too large, or would build something too large.
    """
    pickle, held = _archive(file, members, limits)
    planner = _Planner(limits)
    value = planner.follow(pickle, path, told)
    said = {key: storage.nbytes for key, storage in planner.storages.items()}
    for key in said.keys() | held.keys():
        if said.get(key) != held.get(key):
            raise malformed(
                f"The storage {key} is {said.get(key, 'missing')} bytes in the pickle, and in the"
                f" archive {held.get(key, 'missing')}."
            )
    _check(value)
    tensors: dict[str, TensorSpec] = named_tensors(value, TensorSpec)
    if len(tensors) > limits.tensors:
        raise over(limits, "tensors")
    return tensors


def named_tensors(state: Any, kind: type) -> dict[str, Any]:
    """Return the tensors of a state by the way to them: keys and indices, joined with `/`.

    Args:
        state: what was loaded, or would be; its depth is bounded.
        kind: the type of a tensor.

    Raises:
        LimitExceeded: the way to one is too long.
    """
    tensors: dict[str, Any] = {}
    times: Counter[str] = Counter()
    for path, tensor in _tensors(state, kind, ""):
        own = name = path or "tensor"
        while own in tensors:  # {"a/b": …, "a": {"b": …}}
            times[name] += 1
            own = f"{name}#{times[name] + 1}"
        tensors[own] = tensor
    return tensors


def _tensors(value: Any, kind: type, path: str) -> Iterator[tuple[str, Any]]:
    # A file can lead to one tensor through a long key many times: each way would copy the key.
    too_long = len(path) > _LONGEST
    if isinstance(value, kind):
        if too_long:
            raise LimitExceeded(
                f"The way to a tensor in the state is longer than {_LONGEST} characters.",
                "Use shorter keys, or fewer levels.",
            )
        yield path, value
    elif isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            step = key if type(key) is str else repr(key)
            further = f"{path}/{step}" if path else step
            yield from _tensors(item, kind, path if too_long else further)


def _check(value: Any, *, plain: bool = False) -> None:
    """Refuse what is no plain value, and a tensor where nothing has a name for it."""
    if isinstance(value, dict):
        _check(getattr(value, "metadata", None), plain=True)
        for key, item in value.items():
            _check(key, plain=True)
            _check(item, plain=plain)
    elif type(value) in (list, tuple, set):
        for item in value:
            _check(item, plain=plain or type(value) is set)
    elif type(value) not in _LEAVES and (plain or type(value) is not TensorSpec):
        raise ModelRefused(
            "The file holds a storage or its type by itself; or a tensor in a set, as a key, or"
            " among the remarks on a state_dict.",
            "Save tensors in a list, or under a key of their own. Nothing was loaded.",
        )


# The archive that torch.save writes: a pickle that describes the tensors, one member per storage
# with the bytes of the tensors, and a few small members about the format.
_MEMBERS: Final[Mapping[str, re.Pattern[bytes]]] = {
    "version": re.compile(rb"[0-9]{1,4}\n?"),
    "byteorder": re.compile(rb"little|big"),
    ".format_version": re.compile(rb"[0-9]{1,4}"),
    ".storage_alignment": re.compile(rb"[0-9]{1,9}"),
    ".data/serialization_id": re.compile(rb"[0-9]{1,64}"),
}
_SMALL: Final = 64
_STORAGE: Final = re.compile(r"data/([0-9]{1,20})")
_FOLDER: Final = re.compile(r"(?!\.{1,2}\Z)[^/\\]{1,512}")
_FLAGS: Final = DESCRIBED | 0x0800 | 0x0006  # the name is UTF-8; how hard it was to deflate
_EXTRAS: Final = {1, 0x4246}  # sizes of large members; "FB", with which PyTorch pads


def _archive(
    file: IO[bytes], members: tuple[Member, ...], limits: ModelLimits
) -> tuple[bytes, dict[str, int]]:
    """Return the pickle of a PyTorch archive, and the bytes of each storage by its key."""
    storages: dict[str, int] = {}
    inner: dict[str, Member] = {}
    prefix = members[0].name.partition("/")[0] if members else ""
    for member in members:
        shown = quoted(member.name)
        folder, _, name = member.name.partition("/")
        if member.method != STORED:
            raise malformed(f"The member {shown} is compressed, which PyTorch does not do.")
        storage = _STORAGE.fullmatch(name)
        said = _MEMBERS.get(name)
        if not (
            # A reader that takes a member for a folder hands out memory that nobody filled.
            not (member.odd or member.flags & ~_FLAGS)
            and member.extras <= _EXTRAS
            and folder == prefix
            and _FOLDER.fullmatch(folder)
            and folder.isprintable()
            and (
                storage
                or name == "data.pkl"
                or (
                    said and member.size <= _SMALL and said.fullmatch(content(file, member, _SMALL))
                )
            )
        ):
            raise malformed(f"The archive has a member that torch.save does not write: {shown}.")
        inner[name] = member
        if storage:
            storages[storage[1]] = member.size
    if not {"data.pkl", "version"} <= inner.keys():
        raise malformed(
            "The archive has no data.pkl or no version, so torch.save did not write it."
        )
    if inner["data.pkl"].size > limits.pickle_bytes:
        raise over(limits, "pickle_bytes")
    return content(file, inner["data.pkl"], limits.pickle_bytes), storages


# --- names that are refused, and why

_REASONS: Final = [
    (re.compile(each["names"], re.DOTALL), each["what"], each["instead"])
    for each in FORMATS["refused"]
]
# What an unrestricted load makes of these, a conversion can keep.
_KEPT: Final = re.compile(
    r"datetime\.(date|datetime|time|timedelta|timezone)|decimal\.Decimal|uuid\.UUID"
    r"|(builtins|__builtin__)\.frozenset|pathlib(\._local)?\.(Pure)?(Posix|Windows)Path"
)


def _reason(name: str) -> tuple[str, str] | None:
    """Return what a name stands for, and what to save instead, if it is data of a wrong kind."""
    return next(((w, do) for names, w, do in _REASONS if names.fullmatch(name)), None)


def is_data(module: str, name: str) -> bool:
    """Tell whether a name stands for data in a model file, of a kind that is loaded or not."""
    return (module, name) in _KNOWN or _reason(f"{module}.{name}") is not None


def _unsafe(wanted: list[tuple[str, str]], unclear: tuple[str, ...], path: str) -> ModelRefused:
    """Return the error for names that are not on the list."""
    # Those that are no data at all say more than those that are data of the wrong kind.
    foreign = [named(*pair) for pair in wanted if _reason(".".join(pair)) is None] or [*unclear]
    reason = _reason(".".join(wanted[0])) if wanted and not foreign else None
    if reason is not None:
        return ModelRefused(
            f"The file holds {reason[0]} ({named(*wanted[0])}).",
            f"If you made it, save {reason[1]} instead. {_NOTHING}",
        )
    more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
    verb = "is" if len(foreign) == 1 else "are"
    advice = ""
    if path and not unclear and all(_KEPT.fullmatch(".".join(pair)) for pair in wanted):
        advice = _advice(path)
    return ModelRefused(
        f"The file wants {', '.join(foreign[:3])}{more}, which {verb} not data.",
        "Nothing of it was run. Do not load it. If you made it, save the state_dict and plain"
        f" values instead.{advice}",
    )


def _advice(path: str) -> str:
    new, called = PurePath(path).with_suffix(".safetensors"), ""
    try:
        check_name("model", new.stem)
    except InvalidId:
        called = " --name model"
    return (
        " Or convert it, if you made it yourself and nobody can have changed it: safepoint"
        f" convert --trusted {shell(path)} {shell(str(new))} --key model.key --create{called}"
    )


# --- names that are planned

_DEVICE: Final = re.compile(r"(?!meta\b)[a-z]{2,16}(:[0-9]{1,4})?")  # meta tensors have no data
_KEY: Final = re.compile(r"[0-9]{1,20}")


class _Planner:
    """The functions that a model file may call, as plans: they check, and build no tensor."""

    def __init__(self, limits: ModelLimits) -> None:
        self.limits = limits
        self.storages: dict[str, _Storage] = {}
        self._views: set[tuple[Any, ...]] = set()
        self._held = self._copied = 0
        self.names: dict[tuple[str, str], Callable[..., Any] | Constant | Collect] = {
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor_v2,
            ("torch._utils", "_rebuild_tensor_v3"): self._tensor_v3,
            ("torch._utils", "_rebuild_parameter"): _parameter,
            ("torch.storage", "UntypedStorage"): Constant(_StorageType(None)),
            ("torch", "Size"): _size,
            ("torch", "device"): _device,
            ("collections", "OrderedDict"): _Ordered,
            ("collections", "Counter"): _counter,
            ("_codecs", "encode"): PLAIN["_codecs", "encode"],  # type: ignore[dict-item]
            **{("torch", name): Constant(_Named(name, True)) for name in SIZES},
            **{
                ("torch", name): Constant(_StorageType(kind))
                for name, kind in FORMATS["storages"].items()
            },
        }
        for module in ("builtins", "__builtin__"):  # today's name, and the one of protocol 2
            self.names[module, "set"] = Collect("set")
            self.names[module, "complex"] = made_of(complex, float, float)
            self.names[module, "bytearray"] = _bytearray

    def follow(self, pickle: bytes, path: str, told: list[Scan] | None = None) -> Any:
        """Follow the pickle of an archive, and return what it describes."""
        limits = self.limits
        inner = PickleLimits(
            data_bytes=limits.pickle_bytes,
            opcodes=_OPCODES * limits.tensors + 2 * _OTHER_VALUES,
            memo=_OPCODES * limits.tensors + _OTHER_VALUES,
            nodes=_OTHER_VALUES,
            text_bytes=limits.pickle_bytes,
        )
        problem: CheckpointError
        try:
            return run(
                pickle,
                functions=self.names,
                persistent=self._storage,
                instructions=_INSTRUCTIONS,
                limits=inner,
                nodes_per_id=_NODES,
                told=told,
            )
        except LimitExceeded as error:
            if error.kind != "pickle":
                raise
            raise LimitExceeded(
                error.what,
                f"Save a flatter state, and long lists of numbers as tensors. {_NOTHING}",
            ) from None
        except DecodeError as error:
            problem = ModelRefused(error.what, f"{error.do} {_NOTHING}")
        # What it wants says more than how it is damaged: most readers run it up to there.
        found = scan(pickle, limits=inner)
        wanted = [(each.module, each.name) for each in found.asked]
        unlisted = [pair for pair in wanted if pair not in self.names]
        raise _unsafe(unlisted, found.unclear, path) if unlisted or found.unclear else problem

    def _storage(self, identifier: object) -> _Storage:
        """Plan a storage: the one thing that a model's pickle may refer to."""
        if type(identifier) is not tuple or identifier[:1] != ("storage",):
            raise ModelRefused(
                "The file refers to something that is no storage of a tensor.",
                "If you made it, save the state_dict of the model, and not the model.",
            )
        kind, key, device, count = identifier[1:] if len(identifier) == 5 else (None,) * 4
        if (
            type(kind) is not _StorageType
            or not (type(key) is str and _KEY.fullmatch(key))
            or not _is_device(device)
            or not _is_size(count)
        ):
            raise malformed("The file describes a storage in a way that torch.save does not.")
        found = _Storage(kind.dtype, key, device, count * SIZES[kind.dtype or "uint8"])
        # PyTorch gives the first type of a storage to all its tensors.
        if key not in self.storages:
            self.storages[key] = found
            self._held += found.nbytes
        first = self.storages[key]
        if first != found and (first.nbytes or found.nbytes):
            raise malformed(f"The storage {key} is described twice, and not alike.")
        return found

    def _tensor(
        self, dtype: str, storage: _Storage, offset: object, size: object, stride: object
    ) -> TensorSpec:
        if not (
            _is_size(offset)
            and _are_sizes(size)
            and _are_sizes(stride)
            and len(size) == len(stride) <= _DIMENSIONS
        ):
            raise malformed("A tensor has a size, a stride or an offset that no tensor has.")
        # An empty tensor too: (2**40, 0) has no elements, and sizes that overflow elsewhere.
        if math.prod(length or 1 for length in size) > self.limits.elements:
            subject = f"A tensor of the shape {quoted(tuple(size))}"
            raise over(self.limits, "elements", subject=subject)
        last = sum((length - 1) * step for length, step in zip(size, stride, strict=True)) + 1
        end = offset + (0 if 0 in size else last)
        if end * SIZES[dtype] > storage.nbytes:
            raise malformed(
                f"A tensor of the shape {quoted(tuple(size))} reaches beyond its storage of "
                f"{storage.nbytes} bytes."
            )
        # Bound what copies of all tensors take: a stride of 0 makes many elements of one.
        view = (storage.key, dtype, offset, size, stride)
        if view not in self._views:
            self._views.add(view)
            self._copied += math.prod(size) * SIZES[dtype]
        if self._copied > self._held + self.limits.memory_bytes:
            raise LimitExceeded(
                f"The tensors are made of {self._held} bytes and take {self._copied} when they are"
                f" copied, over the limit of {self.limits.memory_bytes} more.",
                "If it is meant to be that large, raise ModelLimits.memory_bytes.",
            )
        return TensorSpec(dtype, tuple(size))

    def _tensor_v2(self, held: Any, at: Any, size: Any, stride: Any, *more: Any) -> TensorSpec:
        if type(held) is not _Storage:
            raise malformed("A tensor has no storage.")
        plan = self._tensor(held.dtype or "uint8", held, at, size, stride)
        _check_extras(plan.dtype, *more)
        return plan

    def _tensor_v3(
        self,
        held: Any,
        at: Any,
        size: Any,
        stride: Any,
        grad: Any,
        hooks: Any,
        dtype: Any,
        *more: Any,
    ) -> TensorSpec:
        typed = type(dtype) is _Named and dtype.is_dtype
        if type(held) is not _Storage or held.dtype is not None or not typed:
            raise malformed("A tensor has no storage, or no type.")
        _check_extras(dtype.name, grad, hooks, *more)
        return self._tensor(dtype.name, held, at, size, stride)


def _parameter(data: object, requires_grad: object, hooks: object) -> TensorSpec:
    if type(data) is not TensorSpec:
        raise malformed("A parameter is made of something that is no tensor.")
    _check_extras(data.dtype, requires_grad, hooks)
    return data


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _LARGEST


def _are_sizes(values: object) -> TypeGuard[tuple[int, ...]]:
    return type(values) is tuple and all(_is_size(value) for value in values)


def _is_device(value: object) -> TypeGuard[str]:
    return type(value) is str and _DEVICE.fullmatch(value) is not None


def _check_extras(dtype: str, grad: object, hooks: object, remarks: object = None) -> None:
    """Refuse what a tensor that was saved does not have: hooks, or gradients of integers."""
    if type(grad) is not bool or not isinstance(hooks, dict) or hooks:
        raise malformed("A tensor has hooks, or does not say whether it has gradients.")
    if grad and not dtype.startswith(("float", "bfloat", "complex")):
        raise malformed("A tensor of integers asks for gradients.")
    # A lazy conjugate or a lazy minus, which PyTorch notes beside the elements.
    bits = {"conj": dtype.startswith("complex"), "neg": True}
    if remarks is not None and (
        type(remarks) is not dict
        or any(not bits.get(name) or type(bit) is not bool for name, bit in remarks.items())
    ):
        raise malformed("A tensor has metadata that PyTorch does not write.")


class _Ordered(dict[Any, Any]):
    """What `collections.OrderedDict` becomes: a dict that may have the `_metadata` of modules."""

    __slots__ = ("metadata",)

    def __init__(self) -> None:
        super().__init__()
        self.metadata: object = None

    def __build__(self, state: object) -> _Ordered:
        """Take the attributes that a module's state_dict has."""
        if state is not None:
            if not isinstance(state, dict) or list(state) != ["_metadata"]:
                raise malformed("An OrderedDict has attributes that a state_dict does not have.")
            self.metadata = state["_metadata"]
        return self


# The machine refuses what raises ValueError here, and says which name it was.


def _size(values: object = ()) -> tuple[int, ...]:
    if type(values) is not tuple or any(type(value) is not int for value in values):
        raise ValueError
    return values


def _device(kind: object, *index: object) -> _Named:
    name = f"{kind}:{index[0]}" if index else kind
    if name != "meta" and (len(index) > 1 or not _is_device(name)):
        raise ValueError
    return _Named(str(name), False)


def _counter(counts: object) -> dict[Any, Any]:
    if type(counts) is not dict or any(type(count) is not int for count in counts.values()):
        raise ValueError
    return dict(counts)


def _bytearray(data: object = b"", encoding: object = None) -> bytes:
    # Never of a number: PyTorch would reserve that many bytes.
    if type(data) is str and encoding == "latin-1":
        return data.encode("latin-1")
    if type(data) is not bytes or encoding is not None:
        raise ValueError
    return data


_KNOWN: Final = frozenset(_Planner(DEFAULT_MODEL_LIMITS).names)
