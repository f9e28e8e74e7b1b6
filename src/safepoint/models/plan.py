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
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from types import NoneType
from typing import IO, Any, Final, NamedTuple, TypeGuard

from safepoint.errors import (
    CheckpointError,
    InvalidId,
    LimitExceeded,
    ModelMalformed,
    PickleRefused,
    UnsafeModel,
    quoted,
    shell,
)
from safepoint.models.limits import (
    DEFAULT_MODEL_LIMITS,
    ModelLimits,
    PickleLimits,
    malformed,
    over_limit,
)
from safepoint.models.machine import Collect, Constant, run_at
from safepoint.models.opcodes import CUT, named, scan
from safepoint.models.tensors import CODES
from safepoint.models.zips import DEFLATED, DESCRIBED, STORED, Member, content, read_exactly
from safepoint.names import check_name
from safepoint.rules import package_toml

SIZES: Final[Mapping[str, int]] = dict(CODES.values()) | {
    "complex32": 4,
    "complex128": 16,
    "float4_e2m1fn_x2": 1,
}
"""Bytes per element, by PyTorch's name of the type."""

_DATA: Final = package_toml("models/torch.toml")
# Those of torch._weights_only_unpickler in 2.13.0, without NEWOBJ: torch.save does not need it.
# With another one, two readers could take different ways through the same bytes.
_INSTRUCTIONS: Final = frozenset(
    {
        *("APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPERSID"),
        *("BINPUT", "BINUNICODE", "BUILD", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET"),
        *("EMPTY_TUPLE", "GLOBAL", "LONG1", "LONG_BINGET", "LONG_BINPUT", "MARK", "NEWFALSE"),
        *("NEWTRUE", "NONE", "PROTO", "REDUCE", "SETITEM", "SETITEMS", "SHORT_BINSTRING", "STOP"),
        *("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    }
)
# What one tensor of five dimensions takes, with room to spare; an ordinary one takes two thirds.
_OPCODES: Final = 60
_NODES: Final = 40
_OTHER_VALUES: Final = 500_000
_LONGEST: Final = 4096
_DIMENSIONS: Final = 64
_LARGEST: Final = 2**63 - 1
_NOTHING: Final = "Nothing was loaded."


class TensorPlan(NamedTuple):
    """A tensor as it would be built: the type of its elements, and its size in each dimension."""

    dtype: str
    shape: tuple[int, ...]


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
    members: tuple[Member, ...] | None,
    limits: ModelLimits = DEFAULT_MODEL_LIMITS,
    path: str = "",
) -> dict[str, TensorPlan]:
    """Read what a PyTorch file would build. No tensor is read, and nothing is run.

    Args:
        file: the file, open for reading in binary mode, and seekable.
        members: those of the archive; None if it is of the format before 1.6.
        limits: how large it may be, and how large what it builds.
        path: where it is, for the command that a refusal advises.

    Returns:
        The tensors by the way to them: keys and indices, joined with `/`.

    Raises:
        UnsafeModel: it wants a name that is not data, or a kind of tensor that PyTorch does not
            check.
        ModelMalformed: it is not as `torch.save` writes it.
        LimitExceeded: it is too large, or would build something too large.
    """
    size = file.seek(0, 2)
    if size > limits.file_bytes:
        raise over_limit(
            f"The file is {size} bytes, over the limit of {limits.file_bytes}.", "file_bytes"
        )
    planner = _Planner(limits, path)
    if members is None:
        value = _legacy(file, size, planner)
    else:
        pickle, storages = _archive(file, members, limits)
        value, end = planner.follow(pickle, 0, 5)
        if end != len(pickle):
            raise malformed("The pickle in the archive is followed by more.")
        _compare(planner.storages, storages)
    _check_values(value)
    tensors: dict[str, TensorPlan] = named_tensors(value, TensorPlan)
    if len(tensors) > limits.tensors:
        raise over_limit(
            f"The file has more than {limits.tensors} tensors.", "tensors", "have that many"
        )
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


def _check_values(value: Any) -> None:
    """Refuse what is neither a tensor nor a plain value, or stands where a tensor cannot."""
    kind = type(value)
    if kind is dict or kind is _Ordered:
        if kind is _Ordered:
            _check_values(value.metadata)
            if named_tensors(value.metadata, TensorPlan):
                raise malformed("A tensor stands among the remarks on a state_dict.")
        for key, item in value.items():
            _check_key(key)
            _check_values(item)
    elif kind is list or kind is tuple:
        for item in value:
            _check_values(item)
    elif kind is set:
        for item in value:
            _check_key(item)
    elif kind is _Storage:
        raise UnsafeModel(
            "The file holds a storage by itself, which has no shape that could be checked.",
            "If you made it, save a tensor instead. Nothing was loaded.",
        )
    elif kind is not TensorPlan and kind not in _LEAVES:
        raise malformed("The file holds a type of storage as a value.")


def _check_key(key: object) -> None:
    """Refuse a tensor that is a key: nothing has a name for it."""
    for part in key if type(key) is tuple else (key,):
        if type(part) is tuple:
            _check_key(part)
        elif type(part) not in _LEAVES:
            raise ModelMalformed(
                "The file has a tensor, or something else that is no plain value, in a set or as a"
                " key.",
                "Save it in a list, or under a key of its own. Nothing was loaded.",
            )


# The archive that torch.save writes today: a pickle that describes the tensors, one member per
# storage with the bytes of the tensors, and a few small members about the format.
_STORAGE: Final = re.compile(r"data/([0-9]{1,20})")
_SMALL: Final[Mapping[str, re.Pattern[bytes]]] = {
    "version": re.compile(rb"[0-9]{1,4}\n?"),
    "byteorder": re.compile(rb"little|big"),
    ".format_version": re.compile(rb"[0-9]{1,4}"),
    ".storage_alignment": re.compile(rb"[0-9]{1,9}"),
    ".data/serialization_id": re.compile(rb"[0-9]{1,64}"),
}
_SMALL_BYTES: Final = 64
_SCRIPT: Final = re.compile(r"constants\.pkl|code/.*|constants/.*|.*\.debug_pkl", re.DOTALL)
_FLAGS: Final = DESCRIBED | 0x0800 | 0x0006  # the name is UTF-8; how hard it was to deflate
_EXTRAS: Final = {1, 0x4246}  # sizes of large members; "FB", with which PyTorch pads
_NAME: Final = 512


def _archive(
    file: IO[bytes], members: tuple[Member, ...], limits: ModelLimits
) -> tuple[bytes, dict[str, int]]:
    """Return the pickle of a PyTorch archive, and the bytes of each storage by its key."""
    inner = _inner(members)
    if any(_SCRIPT.fullmatch(name) for name in inner):
        raise UnsafeModel(
            "The file is a TorchScript archive, which holds code.",
            "Save the state_dict of the model with safepoint.models.save_checkpoint instead.",
        )
    storages = {}
    for name, member in inner.items():
        _check_member(member, limits)
        if match := _STORAGE.fullmatch(name):
            storages[match[1]] = member.size
        elif name in _SMALL:
            said = content(file, member, _SMALL_BYTES) if member.size <= _SMALL_BYTES else b""
            if not _SMALL[name].fullmatch(said):
                raise malformed(
                    f"The member {name} of the archive does not say what PyTorch writes there."
                )
        elif name != "data.pkl":
            raise malformed(
                f"The archive has a member that torch.save does not write: {quoted(name)}."
            )
    if not {"data.pkl", "version"} <= inner.keys():
        raise malformed(
            "The archive has no data.pkl or no version, so torch.save did not write it."
        )
    unpacked = sum(member.size for member in members)
    if unpacked > limits.file_bytes:
        raise over_limit(
            f"The archive unpacks to {unpacked} bytes, over the limit of {limits.file_bytes}.",
            "file_bytes",
        )
    pickle = inner["data.pkl"]
    if pickle.size > limits.pickle_bytes:
        raise _long_pickle(limits)
    return content(file, pickle, limits.pickle_bytes), storages


def _long_pickle(limits: ModelLimits) -> LimitExceeded:
    return over_limit(
        f"The pickles in the file are over the limit of {limits.pickle_bytes} bytes.",
        "pickle_bytes",
    )


def _inner(members: tuple[Member, ...]) -> dict[str, Member]:
    """Return the members by their name in the one folder that all of them are in."""
    if not members:
        raise malformed("The archive is empty.")
    prefix, _, _ = members[0].name.partition("/")
    inner: dict[str, Member] = {}
    for member in members:
        folder, _, name = member.name.partition("/")
        if folder != prefix or not name:
            raise malformed(
                f"The members of the archive are not all in one folder: {quoted(member.name)}."
            )
        shown = member.name.isprintable() and len(member.name) <= _NAME
        if prefix in ("", ".", "..") or "\\" in member.name or not shown:
            raise malformed(f"A member of the archive has an unsafe name: {quoted(member.name)}.")
        inner[name] = member
    # PyTorch finds a member whatever the case of its name.
    if len({name.lower() for name in inner}) != len(inner):
        raise malformed("Two members of the archive have names that differ in their case alone.")
    return inner


def _check_member(member: Member, limits: ModelLimits) -> None:
    shown = quoted(member.name)
    # A reader that takes a member for a folder hands out memory that nobody filled.
    if member.odd or member.flags & ~_FLAGS or not member.extras <= _EXTRAS:
        raise malformed(f"The member {shown} is encrypted, a folder, a patch, or of another tool.")
    if member.method not in (STORED, DEFLATED):
        raise malformed(f"The member {shown} is stored in a way that PyTorch does not use.")
    large = limits.ratio <= 1 or member.size > member.packed * limits.ratio
    if member.method == DEFLATED and large:
        raise LimitExceeded(
            f"The member {shown} makes {member.size} bytes of {member.packed};"
            " PyTorch does not compress.",
            "If you compressed it, unpack it and pack it again without, "
            "or raise ModelLimits.ratio.",
        )


def _compare(storages: Mapping[str, _Storage], members: Mapping[str, int]) -> None:
    """Compare what the pickle says of the storages with what the archive has."""
    for key, storage in storages.items():
        if members.get(key) != storage.nbytes:
            raise malformed(
                f"The storage {key} is {storage.nbytes} bytes in the pickle, and in the archive "
                f"{members.get(key, 'missing')}."
            )
    for key in members:
        if key not in storages:
            raise malformed(f"The archive has the storage {key}, which no tensor uses.")


# The format that torch.save wrote before 1.6, and writes on request: a magic number, a version, a
# description of the machine, the value itself, and the list of its storages; after that each
# storage, as a count of its elements and its bytes, up to the end.
_MAGIC: Final = 0x1950A86A20F9469CFC6C
_VERSION: Final = 1001
_COUNT: Final = struct.Struct("<q")


def _legacy(file: IO[bytes], size: int, planner: _Planner) -> Any:
    head = read_exactly(file, 0, min(size, planner.limits.pickle_bytes))
    values: list[Any] = []
    at = 0
    for fields in (0, 0, 0, 6, 0):
        try:
            value, at = planner.follow(head, at, fields)
        except ModelMalformed as error:
            if error.what != CUT or len(head) == size:
                raise
            raise _long_pickle(planner.limits) from None
        values.append(value)
    if values[:2] != [_MAGIC, _VERSION]:
        raise malformed("The file does not begin with the number of a PyTorch file.")
    keys, storages = values[4], planner.storages
    texts = type(keys) is list and all(type(key) is str for key in keys)
    if not texts or len(keys) != len(storages) or set(keys) != storages.keys():
        raise malformed("The list of storages is not that of the tensors.")
    for key in keys:
        storage = storages[key]
        if storage.dtype is None:
            raise malformed("The old format cannot hold a type of elements that came after 2021.")
        if size - at < _COUNT.size:
            raise malformed("The file is cut short.")
        (count,) = _COUNT.unpack(read_exactly(file, at, _COUNT.size))
        if count * SIZES[storage.dtype] != storage.nbytes:
            raise malformed(
                f"The storage {key} has {count} elements, and is {storage.nbytes} bytes in the"
                " pickle."
            )
        at += _COUNT.size + storage.nbytes
    if at != size:
        raise malformed("The file is cut short, or is followed by more.")
    return values[3]


# --- names that are refused, and why -------------------------------------------------------------

_REASONS: Final = [
    (re.compile(each["names"], re.DOTALL), each["what"], each["instead"])
    for each in _DATA["refused"]
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


def _unsafe(wanted: list[tuple[str, str]], path: str) -> UnsafeModel:
    """Return the error for names that are not on the list."""
    names = [".".join(name) for name in wanted]
    # Those that are no data at all say more than those that are data of the wrong kind.
    foreign = [pair for pair, name in zip(wanted, names, strict=True) if _reason(name) is None]
    reason = _reason(names[0])
    if not foreign and reason is not None:
        what, do = reason
        return UnsafeModel(
            f"The file holds {what} ({named(*wanted[0])}).",
            f"If you made it, save {do} instead. {_NOTHING}",
        )
    convert = ""
    if path and all(map(_KEPT.fullmatch, names)):
        new = PurePath(path).with_suffix(".safetensors")
        called = ""
        try:
            check_name("model", new.stem)
        except InvalidId:
            called = " --name model"
        convert = (
            " Or convert it, if you made it yourself and nobody can have changed it: safepoint"
            f" convert --trusted {shell(path)} {shell(str(new))} --key model.key --create{called}"
        )
    return _not_data([named(*name) for name in foreign], convert)


def _not_data(shown: list[str], convert: str = "") -> UnsafeModel:
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    verb = "is" if len(shown) == 1 else "are"
    return UnsafeModel(
        f"The file wants {', '.join(shown[:3])}{more}, which {verb} not data.",
        "Nothing of it was run. Do not load it. If you made it, save the state_dict and plain"
        f" values instead.{convert}",
    )


# --- names that are planned ----------------------------------------------------------------------

_DEVICE: Final = re.compile(r"[a-z]{2,16}(:[0-9]{1,4})?")
_KEY: Final = re.compile(r"[0-9]{1,20}")
_RAISED: Final = {
    "opcodes.": "tensors",
    "memo.": "tensors",
    "text_bytes.": "pickle_bytes",
    "data_bytes.": "pickle_bytes",
}


class _Planner:
    """The functions that a model file may call, as plans: they check, and build no tensor."""

    def __init__(self, limits: ModelLimits, path: str = "") -> None:
        self.limits = limits
        self.storages: dict[str, _Storage] = {}
        self._path = path
        self._views: set[tuple[Any, ...]] = set()
        self._held = 0
        self._copied = 0
        names: dict[tuple[str, str], Callable[..., Any] | Constant | Collect] = {
            ("torch._utils", "_rebuild_tensor"): self._tensor,
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor_v2,
            ("torch._utils", "_rebuild_tensor_v3"): self._tensor_v3,
            ("torch._utils", "_rebuild_parameter"): _parameter,
            ("torch.storage", "UntypedStorage"): Constant(_StorageType(None)),
            ("torch", "Size"): _size,
            ("torch", "device"): _device,
            ("collections", "OrderedDict"): _Ordered,
            ("collections", "Counter"): _counter,
            ("_codecs", "encode"): _encode,
        }
        for module in ("builtins", "__builtin__"):  # today's name, and the one of protocol 2
            names |= {(module, "set"): Collect("set"), (module, "complex"): _complex}
            names[module, "bytearray"] = _bytearray
        for module in ("torch", "torch.cuda"):
            for name, kind in _DATA["storages"].items():
                names[module, name] = Constant(_StorageType(kind))
        self.names = names | {("torch", name): Constant(_Named(name, True)) for name in SIZES}

    def follow(self, data: bytes, start: int, fields: int) -> tuple[Any, int]:
        """Follow the pickle that begins there, and return what it describes, and where it ends.

        Args:
            data: the bytes.
            start: where it begins.
            fields: how many values describe a storage; 0 where none may be.
        """
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
            return run_at(
                data,
                start,
                functions=self.names,
                persistent=(lambda pid: self._storage(pid, fields)) if fields else None,
                instructions=_INSTRUCTIONS,
                limits=inner,
                nodes_per_id=_NODES,
            )
        except LimitExceeded as error:
            raise _of_the_model(error) from None
        except PickleRefused as error:
            problem = malformed(error.what)
            if error.do.startswith("Save it again"):
                problem = ModelMalformed(error.what, f"{error.do} {_NOTHING}")
        # What it wants says more than how it is damaged: most readers run it up to there.
        found = scan(data, start, limits=inner)
        # But not a name that the end of these bytes cuts: there may be more in the file.
        wanted = [
            (name.module, name.name)
            for name in found.asked
            if data[name.position] != ord("c")
            or data.find(b"\n", data.index(b"\n", name.position) + 1) >= 0
        ]
        if unlisted := [name for name in wanted if name not in self.names]:
            problem = _unsafe(unlisted, self._path)
        elif found.unclear:
            problem = _not_data(list(found.unclear))
        raise problem

    def _storage(self, identifier: object, fields: int) -> _Storage:
        """Plan a storage: the one thing that a model's pickle may refer to."""
        if type(identifier) is not tuple or not identifier or identifier[0] != "storage":
            raise UnsafeModel(
                "The file refers to something that is no storage of a tensor.",
                "If you made it, save the state_dict of the model, and not the model.",
            )
        _, kind, key, device, count, part = identifier + (None,) * max(0, 6 - len(identifier))
        if part is not None:
            raise malformed("The file describes a part of a storage, as PyTorch before 0.4 did.")
        if (
            len(identifier) != fields
            or type(kind) is not _StorageType
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
        self, storage: object, offset: object, size: object, stride: object, dtype: str = ""
    ) -> TensorPlan:
        if type(storage) is not _Storage:
            raise malformed("A tensor has no storage.")
        dtype = dtype or storage.dtype or "uint8"
        if not (
            _is_size(offset)
            and _are_sizes(size)
            and _are_sizes(stride)
            and len(size) == len(stride) <= _DIMENSIONS
        ):
            raise malformed("A tensor has a size, a stride or an offset that no tensor has.")
        # An empty tensor too: (2**40, 0) has no elements, and sizes that overflow elsewhere.
        if math.prod(length or 1 for length in size) > self.limits.elements:
            raise over_limit(
                f"A tensor of the shape {quoted(tuple(size))} has more than "
                f"{self.limits.elements} elements.",
                "elements",
            )
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
            raise over_limit(
                f"The tensors take {self._copied} bytes when they are copied, and are made of "
                f"{self._held}.",
                "memory_bytes",
            )
        return TensorPlan(dtype, tuple(size))

    def _tensor_v2(self, *given: Any) -> TensorPlan:
        held, offset, size, stride, grad, hooks, metadata = (*given, None)[:7]
        plan = self._tensor(held, offset, size, stride)
        _check_extras(plan.dtype, grad, hooks, metadata, len(given) > 7)
        return plan

    def _tensor_v3(self, *given: Any) -> TensorPlan:
        held, offset, size, stride, grad, hooks, dtype, metadata = (*given, None)[:8]
        if type(held) is not _Storage or held.dtype is not None or not _is_dtype(dtype):
            raise malformed("A tensor has no storage, or no type.")
        _check_extras(dtype.name, grad, hooks, metadata, len(given) > 8)
        return self._tensor(held, offset, size, stride, dtype.name)


def _of_the_model(error: LimitExceeded) -> LimitExceeded:
    """Return the error with the limit that the caller can raise in the place of the inner one."""
    before, inner, limit = error.do.partition(", or raise PickleLimits.")
    if not inner:
        return error
    if limit == "nodes.":
        before = "Save long lists of numbers as tensors"
    if limit in _RAISED:
        return LimitExceeded(error.what, f"{before}, or raise ModelLimits.{_RAISED[limit]}.")
    return LimitExceeded(error.what, f"{before}. {_NOTHING}")


def _parameter(data: object, requires_grad: object, hooks: object) -> TensorPlan:
    if type(data) is not TensorPlan:
        raise malformed("A parameter is made of something that is no tensor.")
    _check_extras(data.dtype, requires_grad, hooks, None)
    return data


def _is_dtype(value: object) -> TypeGuard[_Named]:
    return type(value) is _Named and value.is_dtype


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _LARGEST


def _are_sizes(values: object) -> TypeGuard[tuple[int, ...]]:
    return type(values) is tuple and all(_is_size(value) for value in values)


def _is_device(value: object) -> TypeGuard[str]:
    # "meta" is the device of tensors without data.
    return type(value) is str and value != "meta" and _DEVICE.fullmatch(value) is not None


def _check_extras(
    dtype: str, requires_grad: object, hooks: object, metadata: object, more: bool = False
) -> None:
    """Refuse what a tensor that was saved does not have: hooks, or gradients of integers."""
    if type(requires_grad) is not bool or not isinstance(hooks, dict) or hooks or more:
        raise malformed("A tensor has hooks, or does not say whether it has gradients.")
    if requires_grad and not dtype.startswith(("float", "bfloat", "complex")):
        raise malformed("A tensor of integers asks for gradients.")
    # A lazy conjugate or a lazy minus, which PyTorch notes beside the elements.
    bits = {"conj": dtype.startswith("complex"), "neg": True}
    if metadata is not None and (
        type(metadata) is not dict
        or any(not bits.get(name) or type(bit) is not bool for name, bit in metadata.items())
    ):
        raise malformed("A tensor has remarks that PyTorch does not write.")


class _Ordered(dict[Any, Any]):
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
    odd = len(index) > 1 or any(type(at) is not int or not 0 <= at < 10_000 for at in index)
    if odd or (kind != "meta" and not _is_device(name)):
        raise ValueError
    return _Named(str(name), False)


def _counter(counts: object) -> dict[Any, Any]:
    if type(counts) is not dict or any(type(count) is not int for count in counts.values()):
        raise ValueError
    return dict(counts)


def _encode(text: object, encoding: object) -> bytes:
    """Return bytes, which protocol 2 writes as a text of their Latin-1 characters."""
    if type(text) is not str or encoding != "latin1":
        raise ValueError
    return text.encode("latin-1")


def _bytearray(data: object = b"", encoding: object = None) -> bytes:
    # Never of a number: PyTorch would reserve that many bytes.
    if encoding == "latin-1":
        return _encode(data, "latin1")
    if type(data) is not bytes or encoding is not None:
        raise ValueError
    return data


def _complex(real: object, imaginary: object) -> complex:
    if type(real) is not float or type(imaginary) is not float:
        raise ValueError
    return complex(real, imaginary)


_KNOWN: Final = frozenset(_Planner(DEFAULT_MODEL_LIMITS).names)
