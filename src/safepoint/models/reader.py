"""A PyTorch file, read as data: its pickle describes the tensors and nothing in it is called.

The pickle is drawn and built as `machine` says, from functions that take exactly what `torch.save`
writes. A tensor is made of a storage that is in the file and never of a size that the file only
claims. Without PyTorch the same functions give the plan: which tensors there are, of what shape.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import math
import os
import re
import struct
import sys
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from operator import mul
from types import SimpleNamespace
from typing import IO, Any, Final, NamedTuple, Self

from safepoint.core.errors import CheckpointError, DecodeError, LimitExceeded, ModelRefused, quoted
from safepoint.models.limits import DEFAULT_MODEL_LIMITS, ModelLimits, PickleLimits, malformed, over
from safepoint.models.machine import Builder, Collect, Constant, Drawn, Name, Raw
from safepoint.models.opcodes import Ref, named, odd, read_at, scan
from safepoint.models.plain import PLAIN, made_of
from safepoint.models.tensors import CODES, FORMATS, TensorSpec, dtype_name, free_name, package
from safepoint.models.zips import DESCRIBED, STORED, Member, content

SIZES: Final[Mapping[str, int]] = dict(CODES.values()) | FORMATS["elements"]
"""Bytes per element, by PyTorch's name of the type."""

_STORAGES: Final[Mapping[str, str | None]] = FORMATS["storages"]
_VALUES: Final = 2_000_000
_DEPTH: Final = 100
_LONGEST: Final = 4096
_DIMENSIONS: Final = 64
_LARGEST: Final = 2**63 - 1
_KEY: Final = re.compile(r"[0-9]{1,20}")
_DEVICE: Final = re.compile(r"(?!meta\b)[a-z]{2,16}(:[0-9]{1,4})?")
_ATTRIBUTE: Final = re.compile(r"(?!__)[^\W\d]\w{0,200}")
_NOTHING: Final = "Nothing of it was run."
_BUILTINS: Final = ("builtins", "__builtin__")
_NUMPY: Final = ("numpy.core.", "numpy._core.")
_NUMBERS: Final = re.compile(r"[<>|=]?[?biufcSU][0-9]{0,5}")


class Word(str):
    """A type of elements, a device or a layout, where there is no PyTorch."""

    __slots__ = ()


class _StorageType(NamedTuple):
    """A type of storage. `dtype` is None for one that holds bytes and no elements."""

    dtype: str | None


class _Storage(NamedTuple):
    """A storage that the file says it has."""

    dtype: str | None
    key: str
    nbytes: int

    def __setstate__(self, state: object) -> None:
        raise odd("changes or sets attributes of what has none")


class Left:
    """What is not data: kept as its name and what it was given and never called.

    Attributes:
        name: the name.
        given: its arguments, items and state.
    """

    def __init__(self, name: str, *given: Any) -> None:
        self.name = name
        self.given: list[Any] = [*given]


class Tensors(dict[str, Any]):
    """The tensors of a file by the way to them, and what was left behind.

    Attributes:
        left: the names of what is not data, each with how often it occurs.
    """

    def __init__(self, tensors: Mapping[str, Any], left: Mapping[str, int]) -> None:
        super().__init__(tensors)
        self.left = dict(left)


@dataclass
class _Contents:
    """What a PyTorch file consists of.

    Attributes:
        pickle: the bytes in which the pickle that describes the tensors begins.
        start: where it begins.
        storages: where the bytes of each storage begin in the file, and how many there are; None
            as long as only the pickle says so, in the old format.
    """

    pickle: bytes
    start: int = 0
    storages: dict[str, tuple[int, int]] | None = field(default_factory=dict)


def read_model(
    file: IO[bytes],
    members: tuple[Member, ...],
    limits: ModelLimits = DEFAULT_MODEL_LIMITS,
    torch: Any = None,
    *,
    only_tensors: bool = False,
) -> _Reader:
    """Return what has read a PyTorch file: its `state`, what was `left` behind, what it `asked`.

    Args:
        file: the file, open for reading in binary mode, and seekable.
        members: those of the archive; none of a file in the old format.
        limits: how large it may be, and how large what it builds.
        torch: PyTorch. Without it, tensors are given as their type and shape.
        only_tensors: leave behind what is not data, in place of refusing it.

    Raises:
        ModelRefused: it wants a name that is not data, or is not as `torch.save` writes it.
        LimitExceeded: it is too large, or would build something too large.
    """
    kind = _Leaving if only_tensors else _Reader
    if members:
        return kind(file, _archive(file, members, limits), limits, torch).model()
    contents = _old(file, limits)
    plan = (_Leaving if torch else kind)(file, contents, limits, None).model()
    contents.storages = _storages(file, plan, limits)
    return kind(file, contents, limits, torch).model() if torch else plan


def named_tensors(state: Any, kind: type) -> dict[str, Any]:
    """Return the tensors of a state by the way to them: keys and indices, joined with `/`.

    Those of a module have the names that its `state_dict` gives them.

    Args:
        state: what was loaded, or would be; its depth is bounded.
        kind: the type of a tensor.

    Raises:
        LimitExceeded: the way to one is too long.
    """
    tensors: dict[str, Any] = {}
    times: Counter[str] = Counter()
    try:
        for path, tensor in _tensors(state, kind, "", set()):
            tensors[free_name(path or "tensor", tensors, times)] = tensor
    except RecursionError:  # through objects that lead back to others
        problem = LimitExceeded("The way to a tensor has too many steps.", "Save a flatter state.")
    else:
        return tensors
    raise problem


_PARTS: Final = ("_parameters", "_buffers", "_modules")  # of a module


def _tensors(value: Any, kind: type, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    # A file can lead to one tensor through a long key many times: each way would copy the key.
    too_long = len(path) > _LONGEST
    if isinstance(value, kind):
        if too_long:
            raise LimitExceeded(
                f"The way to a tensor in the state is longer than {_LONGEST} characters.",
                "Use shorter keys, or fewer levels.",
            )
        yield path, value
        return
    if isinstance(value, Left):
        if id(value) in seen:
            return
        seen.add(id(value))
        for given in value.given:
            is_module = isinstance(given, dict) and given.keys() >= {*_PARTS}
            for part in _PARTS if is_module else ():
                yield from _tensors(given[part], kind, path, seen)
            rest = {k: v for k, v in given.items() if k not in _PARTS} if is_module else given
            yield from _tensors(rest, kind, path, seen)
        return
    items: Any = ()
    if isinstance(value, argparse.Namespace | SimpleNamespace):
        value = vars(value)
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple | deque) and type(value) is not TensorSpec:
        items = enumerate(value)
    for key, item in items:
        step = key if type(key) is str else repr(key) if type(key) in (int, tuple) else "key"
        further = f"{path}/{step}" if path else step
        yield from _tensors(item, kind, path if too_long else further, seen)


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
_EXTRAS: Final = {1, 0x4246}  # sizes of large members; "FB", with which PyTorch pads
_FLAGS: Final = DESCRIBED | 0x0800 | 0x0006  # the name is UTF-8; how hard it was to deflate


def _archive(file: IO[bytes], members: tuple[Member, ...], limits: ModelLimits) -> _Contents:
    """Take an archive apart. Each of its members is one that `torch.save` writes."""
    storages: dict[str, tuple[int, int]] = {}
    inner: dict[str, Member] = {}
    prefix = members[0].name.partition("/")[0]
    is_folder = _FOLDER.fullmatch(prefix) and prefix.isprintable()
    for member in members:
        folder, _, name = member.name.partition("/")
        if member.method != STORED:
            raise malformed(
                f"The member {quoted(member.name)} is compressed, which PyTorch does not do."
            )
        storage = _STORAGE.fullmatch(name)
        said = _MEMBERS.get(name)
        small = b"" if said is None or member.size > _SMALL else content(file, member, _SMALL)
        is_known = storage or name == "data.pkl" or (said and said.fullmatch(small))
        # A reader that takes a member for a folder hands out memory that nobody filled.
        is_plain = not (
            member.odd or member.flags & ~_FLAGS or not _EXTRAS.issuperset(member.extras)
        )
        if not (is_known and is_plain and is_folder and folder == prefix):
            shown = quoted(member.name)
            raise malformed(f"The archive has a member that torch.save does not write: {shown}.")
        if small == b"big":
            raise _other_order()
        inner[name] = member
        if storage:
            storages[storage[1]] = member.start, member.size
    if not {"data.pkl", "version"} <= inner.keys():
        raise malformed(
            "The archive has no data.pkl or no version, so torch.save did not write it."
        )
    if inner["data.pkl"].size > limits.header_bytes:
        raise over(limits, "header_bytes")
    return _Contents(content(file, inner["data.pkl"], limits.header_bytes), 0, storages)


def _other_order() -> ModelRefused:
    return malformed("The file was written on a machine that stores the high byte first.")


_OLD_VERSION: Final = 1001


def _old(file: IO[bytes], limits: ModelLimits) -> _Contents:
    """Look at how a file of the old format begins: with three pickles of numbers."""
    begins = read_at(file, 0, limits.header_bytes + 1)
    builder = Builder({}, _within(limits))
    at, first = 0, []
    for _ in range(3):
        value, at = _refusing(partial(builder.read, begins, at))
        first.append(value)
    machine = first[2] if type(first[2]) is dict else {}
    if first[1] != _OLD_VERSION or machine.get("little_endian", True) is not True:
        raise _other_order() if first[1] == _OLD_VERSION else malformed("It is of another version.")
    return _Contents(begins, at, None)


def _storages(file: IO[bytes], plan: _Reader, limits: ModelLimits) -> dict[str, tuple[int, int]]:
    """Find the storages behind the pickles of the old format: each that the plan tells of."""
    storages: dict[str, tuple[int, int]] = {}
    read = partial(Builder({}, _within(limits)).read, plan.contents.pickle, plan.end)
    keys, at = _refusing(read)
    size = file.seek(0, os.SEEK_END)
    for key in keys if type(keys) is list else ():
        storage = plan.said.get(key) if type(key) is str else None
        width = SIZES[storage.dtype or "uint8"] if storage is not None else 1
        (count,) = struct.unpack("<q", read_at(file, at, 8).ljust(8, b"\xff"))
        if storage is None or key in storages or count * width != storage.nbytes:
            raise malformed("The storages of the file are not those that its pickle describes.")
        storages[key] = at + 8, storage.nbytes
        at += 8 + storage.nbytes
    if at != size or storages.keys() != plan.said.keys():
        raise malformed("The file is cut short, or has bytes that belong to no storage.")
    return storages


def _within(limits: ModelLimits) -> PickleLimits:
    return PickleLimits(limits.header_bytes + 1, _VALUES, _DEPTH)


def _refusing(read: Callable[[], Any]) -> Any:
    """Let a refusal of the machine be one of a model."""
    try:
        return read()
    except LimitExceeded as error:
        if error.kind != "pickle":
            raise
        problem: CheckpointError = LimitExceeded(
            error.what, f"Save a flatter state, and long lists of numbers as tensors. {_NOTHING}"
        )
    except DecodeError as error:
        problem = ModelRefused(error.what, f"{error.do} {_NOTHING}")
    raise problem


def is_data(module: str, name: str) -> bool:
    """Tell whether a name stands for data in a model file."""
    return (module, name) in _KNOWN


# What honest files hold of libraries: it needs their code, and need not be an attack. Not all of a
# library: pandas has a class that computes a text, scipy one that opens a file, torch and joblib
# some that start a program, and ultralytics.YOLO loads another pickle.
_CLASS: Final = re.compile(
    r"(__main__|models|sklearn(?!\.(externals|conftest|utils\._testing))"
    r"|torch\.(nn\.modules|nn\.parallel|nn\.utils\.rnn|ao\.nn|optim)"
    r"|torch\.distributed\.checkpoint\.(metadata|filesystem(?=\._StorageInfo\Z))"
    r"|ultralytics\.(nn|utils(?=\.(Iterable|loss|tal)))|joblib\.numpy_pickle(_compat)?"
    r"|pandas\.(_libs|arrays|core\.(frame|series|indexes|internals|arrays|dtypes))"
    r"|scipy\.(sparse|spatial|stats|interpolate)|zoneinfo|numpy\.random"
    r"|transformers\.(models|training_args\w*|trainer_utils|trainer_pt_utils|configuration_utils)"
    r"|(xgboost|lightgbm)\.(core|basic|sklearn))(\.[A-Za-z_]\w*)*\._?(?!Popen\Z)[A-Z]\w*"
    r"|scipy\.sparse\._\w+\.\w+_(array|matrix)|sklearn(\.\w+)+\.newObj|argparse\.Namespace"
    r"|pandas\.(DataFrame|Series|\w*Index|StringDtype|Categorical)|accelerate\.state\.PartialState"
    r"|accelerate\.utils\.dataclasses\.DistributedType"
    r"|pandas\.core\.indexes\.\w+\._new_\w+|pandas\._libs(\.\w+)+\._\w*unpickle\w*"
    r"|torch\.\w*Tensor|torch\._utils\._rebuild_\w+|numpy\.random\.\w+\.__\w+"
    r"|numpy\._?core\.numeric\._frombuffer|numpy\.(bool|float|u?int|complex)\d*_?"
    r"|(builtins|__builtin__)\.(Ellipsis|NotImplemented)|fractions\.Fraction|random\.Random"
)
# Where the names are asked for that run a program. No other library is on every machine.
_STANDARD: Final = sys.stdlib_module_names | {"__builtin__"}


def rank(name: str) -> int:
    """Return 2 for a name of data or of a library's class, 1 for one that nobody here knows.

    It is 0 for one of the standard library, or that is made up while the file is read.
    """
    if is_data(*name.rpartition(".")[::2]) or _CLASS.fullmatch(name):
        return 2
    top = name.partition(".")[0]
    return int(top.isidentifier() and top not in _STANDARD)


def listed(names: Iterable[str]) -> str:
    """List up to 20 names: first what may run code; of classes, as many as make three."""
    ordered = sorted(names, key=lambda name: (rank(name), name))
    most = min(20, max(3, sum(rank(name) < 2 for name in ordered)))
    more = [f"and {len(ordered) - most:,} more"] if len(ordered) > most else []
    return " ".join([", ".join(ordered[:most]), *more])


def needed(names: Iterable[str]) -> str:
    """Return whose code a file needs; nothing if what it asks for may run code anyway."""
    if any(rank(name) < 2 for name in names):
        return ""
    tops = {name.partition(".")[0] for name in names}
    its_own = ["the script that wrote it"] if "__main__" in tops else []
    return ", ".join(filter(None, [listed(tops - {"__main__"}), *its_own]))


_UNTRUSTED: Final = (
    "Do not load it; tell the sender. ",
    "Do not load it unless you know that code. ",
    "",
)


def advice(names: Iterable[str], *, has_tensors: bool = True) -> str:
    """Return what to do with a file that wants these, to whoever was given it and who made it."""
    do = _UNTRUSTED[least := min(map(rank, names))]
    if least and has_tensors:
        do += "Load only its tensors, with safepoint.models.load_tensors, or ask for safetensors. "
    kept = "the state_dict and plain values" if has_tensors else "plain data"
    return f"{_NOTHING} {do}If you made it, save {kept} instead."


def _unsafe(wanted: list[Ref], unclear: tuple[str, ...]) -> ModelRefused:
    """Return the error for names that are not on the list."""
    names = {*(named(*pair) for pair in wanted), *unclear}
    return ModelRefused(wanting("file", names), advice(names))


def wanting(what: str, names: Collection[str]) -> str:
    """Say which names a file or a pickle wants that are not data."""
    verb = "is" if len(names) == 1 else "are"
    code = f": it needs the code of {whose}" if (whose := needed(names)) else ""
    return f"The {what} wants {listed(names)}, which {verb} not data{code}."


# --- names that are built


def _drawn_of_old(identifier: Any) -> Any:
    """Draw what was rewritten. The class of a module is an id, with the text of its source."""
    parts = identifier if type(identifier) is tuple else ()
    if len(parts) == 4 and parts[0] == "module" and type(parts[1]) is Name:
        return parts[1]
    # The last part says which storage it is a part of.
    return _drawn_storage(parts[:5] if len(parts) == 6 and parts[5] is None else identifier)


def _drawn_storage(identifier: Any) -> Any:
    """Draw what was rewritten. The id of a storage is what it says of it."""
    if type(identifier) is tuple and len(identifier) == 5 and identifier[0] == "storage":
        _, kind, key, device, count = identifier
        is_known = type(kind) is Name and type(kind.entry) is _StorageType
        has_key = type(key) is str and _KEY.fullmatch(key)
        if is_known and has_key and _is_device(device) and _is_size(count):
            return _Storage(kind.entry.dtype, key, count * SIZES[kind.entry.dtype or "uint8"])
    return Builder.follow(identifier)


class _Reader(Builder):
    """Builds what a PyTorch file describes: with PyTorch, or as a plan without it."""

    leaves = False  # behind what is not data

    def __init__(
        self, file: IO[bytes], contents: _Contents, limits: ModelLimits, torch: Any
    ) -> None:
        self._file, self.contents, self._sizes, self._torch = file, contents, limits, torch
        self.left: Counter[str] = Counter()
        self.said: dict[str, _Storage] = {}
        self._filled: dict[str, Any] = {}
        self._views: set[tuple[Any, ...]] = set()
        self._copied = self._kept = self._checked = self._tensors = 0
        self.follow = _drawn_of_old if contents.start else _drawn_storage
        self._dtypes, values = _values_of(torch)
        super().__init__({**values, **self._table()}, _within(limits))

    def _table(self) -> dict[Ref, Any]:
        return {
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor_v2,
            ("torch._utils", "_rebuild_tensor_v3"): self._tensor_v3,
            ("torch._utils", "_rebuild_parameter"): self._parameter,
            ("torch._utils", "_rebuild_parameter_with_state"): self._parameter,
            ("torch._utils", "_rebuild_sparse_tensor"): self._sparse,
            ("torch._utils", "_rebuild_qtensor"): self._quantized,
            ("torch._utils", "_rebuild_meta_tensor_no_storage"): self._meta,
            ("torch._tensor", "_rebuild_from_type_v2"): Raw(self._typed),
            ("torch.serialization", "_get_layout"): self._layout,
            ("torch", "Size"): self._size,
            ("torch", "device"): self._device,
            ("numpy", "dtype"): self._dtype,
            **{(f"{at}multiarray", "_reconstruct"): self._array for at in _NUMPY},
            **{(f"{at}multiarray", "scalar"): self._scalar for at in _NUMPY},
        }

    def model(self) -> Self:
        """Read what the file holds."""
        contents, problem = self.contents, None
        try:
            self.state, _ = _refusing(partial(self.read, contents.pickle, contents.start))
        except ModelRefused as error:
            problem = error
        if problem is not None:
            # What it wants says more than how it is damaged: most readers run it up to there.
            found = scan(io.BytesIO(contents.pickle), contents.start, limits=self.limits)
            unlisted = [pair for pair in found.asked if self.entry(pair) is None]
            raise _unsafe(unlisted, found.unclear) if unlisted or found.unclear else problem
        if contents.storages is None:
            return self
        said = {key: storage.nbytes for key, storage in self.said.items()}
        for key in said.keys() | contents.storages.keys():
            _, nbytes = contents.storages.get(key, (0, "missing"))
            if said.get(key) != nbytes:
                raise malformed(
                    f"The storage {key} is {said.get(key, 'missing')} bytes in the pickle, and in"
                    f" the file {nbytes}."
                )
        if self.end != len(contents.pickle) and not contents.start:
            raise malformed(f"The pickle ends at byte {self.end}, and something else follows.")
        return self

    def keys(self, parts: list[Any], depth: int) -> list[Any]:
        """Return what is about to be hashed. Nothing has a name for a tensor in a key."""
        keys = super().keys(parts, depth)
        if any(map(self._is_tensor, keys)):
            raise malformed("The file holds a tensor in a set or as a key.")
        return keys

    # Storages, which are the one thing that a model's pickle may refer to.

    def value(self, part: Any, depth: int) -> Any:
        """Return what was drawn, built: a storage by itself as well."""
        found = super().value(part, depth)
        if type(found) is not _Storage:
            return found
        filled = self._bytes(found)
        if found.dtype is None or filled is None:
            return filled
        dtype = getattr(self._torch, found.dtype)
        return self._torch.storage.TypedStorage(wrap_storage=filled, dtype=dtype, _internal=True)

    def text(self, text: str) -> str:
        """Return a text. Vocabularies have halves of characters in them."""
        return text

    def persistent(self, found: Any) -> Any:
        """Return the storage that an id describes."""
        if type(found) is Drawn:
            if type(found.parts) is not tuple or found.parts[:1] != ("storage",):
                raise ModelRefused(
                    "The file refers to something that is not the storage of a tensor.",
                    "If you made it, save the model's state_dict instead of the model.",
                )
            raise malformed("The file describes a storage in a way that torch.save does not.")
        # PyTorch gives the first type of a storage to all its tensors.
        self._kept += 0 if found.key in self.said else found.nbytes
        first = self.said.setdefault(found.key, found)
        if first != found and (first.nbytes or found.nbytes):
            raise malformed(f"The storage {found.key} is described twice, in different ways.")
        return found

    def _bytes(self, storage: _Storage) -> Any:
        """Return a storage with its bytes: a copy, so that no writer of the file changes it."""
        if self._torch is None:
            return None
        if storage.key not in self._filled:
            start, size = (self.contents.storages or {}).get(storage.key, (0, -1))
            if size != storage.nbytes:
                raise malformed(f"The storage {storage.key} has another size, or is missing.")
            try:
                made = self._torch.UntypedStorage(size)
            except RuntimeError:  # which is how PyTorch says it
                raise MemoryError from None
            if size:
                memory = memoryview((ctypes.c_char * size).from_address(made.data_ptr()))
                self._file.seek(start)
                if self._file.readinto(memory.cast("B")) != size:  # type: ignore[attr-defined]
                    raise malformed("The file is cut short.")
            if storage.dtype == "bool" and size:
                raw = self._torch.empty(0, dtype=self._torch.uint8).set_(made, 0, (size,), (1,))
                if int(raw.max()) > 1:
                    raise malformed("The file holds a truth value that is neither true nor false.")
            self._filled[storage.key] = made
        return self._filled[storage.key]

    # Tensors. With PyTorch they are made, and without it they are described.

    def _sized(self, dtype: str, storage: Any, offset: Any, size: Any, stride: Any) -> None:
        """Refuse a tensor that is not within its storage, or too large once it is copied."""
        if type(storage) is not _Storage:
            raise malformed("A tensor has no storage.")
        if not _are_sizes(size, stride, offset):
            raise malformed("A tensor has a size, a stride or an offset that no tensor has.")
        self._count_tensor(size)
        last = sum(map(mul, size, stride)) - sum(stride) + 1
        end = offset + (0 if 0 in size else last)
        if end * SIZES[dtype] > storage.nbytes:
            raise malformed(
                f"A tensor of the shape {quoted(tuple(size))} reaches beyond its storage of "
                f"{storage.nbytes} bytes."
            )
        # Bound what copies take: a stride of 0 or a small one makes many elements of one.
        more = math.prod(size) - last
        view = (storage.key, dtype, offset, size, stride) if more > 0 else None
        if view and view not in self._views:
            self._views.add(view)
            self._copied += more * SIZES[dtype]
        if self._copied > self._sizes.memory_bytes:
            raise LimitExceeded(
                f"The tensors take {self._copied} bytes more when they are copied than the file"
                f" has of them, over the limit of {self._sizes.memory_bytes}.",
                "If it is meant to be that large, raise ModelLimits.memory_bytes.",
            )

    def _count_tensor(self, size: tuple[int, ...]) -> None:
        self._tensors += 1
        if self._tensors > self._sizes.tensors:
            raise over(self._sizes, "tensors")
        # An empty tensor too: (2**40, 0) has no elements, and sizes that overflow elsewhere.
        if math.prod(filter(None, size)) > self._sizes.elements:
            subject = f"A tensor of the shape {quoted(tuple(size))}"
            raise over(self._sizes, "elements", subject=subject)

    def _tensor_v2(self, storage: Any, *given: Any) -> Any:
        dtype = (storage.dtype or "uint8") if type(storage) is _Storage else ""
        return self._tensor(dtype, storage, *given)

    def _tensor_v3(self, storage: Any, *given: Any) -> Any:
        at, size, stride, grad, hooks, dtype, *more = given
        if type(storage) is not _Storage or storage.dtype is not None or dtype not in self._dtypes:
            raise malformed("A tensor has no storage, or no type.")
        if self._dtypes[dtype] == "bool":  # PyTorch keeps those in a storage that says so
            raise malformed("A tensor of truth values is not described as PyTorch does it.")
        return self._tensor(self._dtypes[dtype], storage, at, size, stride, grad, hooks, *more)

    def _tensor(self, dtype: str, storage: Any, *given: Any) -> Any:
        at, size, stride, *more = given
        grad, hooks, remarks = more + [False, None, None][len(more) :]
        if not dtype or dtype.startswith("q"):
            raise malformed("A tensor has no storage, or is quantized and does not say how.")
        self._sized(dtype, storage, at, size, stride)
        _check_extras(dtype, grad, hooks)
        if remarks is not None:
            # A lazy conjugate or a lazy minus, which PyTorch notes beside the elements.
            bits = {"conj": dtype.startswith("complex"), "neg": True}
            if type(remarks) is not dict or any(
                not bits.get(name) or type(bit) is not bool for name, bit in remarks.items()
            ):
                raise malformed("A tensor has metadata that PyTorch does not write.")
        if self._torch is None:
            return TensorSpec(dtype, tuple(size))
        tensor = self._torch.empty(0, dtype=getattr(self._torch, dtype))
        tensor.set_(self._bytes(storage), at, size, stride)
        if remarks:
            self._torch._utils.set_tensor_metadata(tensor, remarks)  # noqa: SLF001
        return tensor.requires_grad_() if grad else tensor

    def _parameter(self, data: Any, grad: Any, hooks: Any, state: Any = None) -> Any:
        if not self._is_tensor(data):
            raise malformed("A parameter is made of something that is not a tensor.")
        _check_extras(dtype_name(data.dtype), grad, hooks)
        if self._torch is None:
            return data
        return _with_attributes(self._torch.nn.Parameter(data, grad), state)

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, TensorSpec if self._torch is None else self._torch.Tensor)

    def _is_dense(self, value: Any) -> bool:
        torch = self._torch
        return self._is_tensor(value) and (
            torch is None
            or (value.layout is torch.strided and value.is_cpu and not value.is_quantized)
        )

    def _typed(self, depth: int, make: Any, kind: Any, given: Any, state: Any = None) -> Any:
        """Build a tensor with attributes. One of a class of its own is a tensor, or refused."""
        nested = type(make) is not Name or type(make.entry) is Raw
        if nested or type(given) is not tuple or type(kind) is not Name:
            raise malformed("A tensor with attributes is not described as PyTorch does it.")
        tensor = self._call(Drawn("call", make, given), depth)
        if not self._is_tensor(tensor):
            raise malformed("A tensor with attributes is none.")
        if kind.entry not in _CLASSES:
            if not self.leaves:
                raise _unsafe([kind.key], ())
            self.left[str(kind)] += 1
            return tensor
        attributes = self.value(state, depth + 1)
        if self._torch is None:
            return tensor
        if kind.entry == _CLASSES[-1]:
            tensor = self._torch.nn.Buffer(tensor)
        return _with_attributes(tensor, attributes)

    def _sparse(self, layout: Any, data: Any) -> Any:
        coalesced: Any = False
        if type(data) is tuple and str(layout) == "torch.sparse_coo":
            *parts, size = data[:3]
            coalesced = data[3] if len(data) == 4 else False
        else:
            *parts, size = data
        if not (all(map(self._is_dense, parts)) and _are_sizes(size, size)):
            raise malformed("A sparse tensor is not described as PyTorch does it.")
        self._count_tensor(size)
        if self._torch is None:
            self.left["a sparse tensor, whose indices only PyTorch checks"] += 1
            return TensorSpec(parts[-1].dtype, tuple(size))
        # PyTorch walks through all of them, which can be the same ones for each tensor.
        self._checked += sum(part.numel() * part.element_size() for part in parts)
        if self._checked > 8 * self._kept + self._sizes.memory_bytes // 64:
            raise LimitExceeded(
                "The sparse tensors are made of many times what the file has.",
                "Save them as dense ones, or each with values of its own.",
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that some layouts are new
            if len(parts) == 2:
                made = self._torch.sparse_coo_tensor(*parts, size, check_invariants=True)
                return made.coalesce() if coalesced else made
            return self._torch.sparse_compressed_tensor(
                *parts, size, layout=layout, check_invariants=True
            )

    def _quantized(self, storage: Any, *given: Any) -> Any:
        at, size, stride, how, grad, hooks, *_ = given
        dtype = (storage.dtype or "") if type(storage) is _Storage else ""
        if not dtype.startswith("q") or type(how) is not tuple or len(how) not in (3, 4):
            raise malformed("A quantized tensor is not described as PyTorch does it.")
        self._sized(dtype, storage, at, size, stride)
        _check_extras(dtype, grad, hooks)
        if math.prod(size) * SIZES[dtype] > storage.nbytes:
            raise malformed("A quantized tensor takes more than its storage.")
        if self._torch is None:
            return TensorSpec(dtype, tuple(size))
        kind = {"dtype": getattr(self._torch, dtype)}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"torch\.quantize_per_tensor")  # will be removed
            if len(how) == 3:
                kind |= {"scale": float(how[1]), "zero_point": int(how[2])}
                made = self._torch._empty_affine_quantized(size, **kind)  # noqa: SLF001
            else:
                kind |= {"scales": how[1], "zero_points": how[2], "axis": how[3]}
                made = self._torch._empty_per_channel_affine_quantized(size, **kind)  # noqa: SLF001
        return made.set_(self._bytes(storage), at, size, stride)

    def _meta(self, dtype: Any, size: Any, stride: Any, grad: Any) -> Any:
        if dtype not in self._dtypes or not _are_sizes(size, stride):
            raise malformed("A tensor without data is not described as PyTorch does it.")
        self._count_tensor(size)
        _check_extras(self._dtypes[dtype], grad, {})
        if self._torch is None:
            return TensorSpec(self._dtypes[dtype], tuple(size))
        return self._torch.empty_strided(
            size, stride, dtype=dtype, device="meta", requires_grad=grad
        )

    # Other values of PyTorch and of NumPy.

    def _size(self, values: Any = ()) -> Any:
        if type(values) is not tuple or any(type(value) is not int for value in values):
            raise ValueError
        return values if self._torch is None else self._torch.Size(values)

    def _device(self, kind: Any, *index: Any) -> Any:
        name = f"{kind}:{index[0]}" if index else kind
        if name != "meta" and (len(index) > 1 or not _is_device(name)):
            raise ValueError
        return Word(name) if self._torch is None else self._torch.device(name)

    def _layout(self, name: Any) -> Any:
        if name not in _LAYOUTS:
            raise ValueError
        return Word(name) if self._torch is None else getattr(self._torch, name[6:])

    def _numpy(self) -> Any:
        return None if self._torch is None else package("numpy")

    def _dtype(self, code: Any, *_: Any) -> Any:
        return _Numbers(self._numpy(), code)

    def _array(self, *_: Any) -> Any:
        return _Array(self._numpy())

    def _scalar(self, dtype: Any, raw: Any) -> Any:
        numpy = self._numpy()
        if type(raw) is not bytes or (dtype is not None and dtype.itemsize != len(raw)):
            raise ValueError
        return None if numpy is None else numpy.frombuffer(raw, dtype, 1)[0]


class _Leaving(_Reader):
    """Builds as much as there is of data, and leaves the rest behind in place of refusing it."""

    leaves = True

    def entry(self, key: Ref) -> Any:
        """Return what stands behind a name: a function, or what leaves it behind."""
        found = super().entry(key)
        return partial(self._leave, named(*key)) if found is None else found

    def _leave(self, name: str, *given: Any) -> Left:
        self.left[name] += 1
        return Left(name, *given)

    def value(self, part: Any, depth: int) -> Any:
        """Return what was drawn, built. A name by itself is left behind."""
        if type(part) is Name and type(part.entry) is not Constant:
            self._count(1, 0, depth)
            return self._leave(str(part))
        return super().value(part, depth)

    def keys(self, parts: list[Any], depth: int) -> list[Any]:
        """Return what is about to be hashed. An optimizer has the tensors of its model for keys."""
        keys = Builder.keys(self, parts, depth)
        return [Left("a key", each) if self._is_tensor(each) else each for each in keys]

    def called(self, name: object, function: Any, arguments: list[Any]) -> Any:
        """Call a function, or leave behind what it does not take."""
        with suppress(DecodeError):
            return super().called(name, function, arguments)
        return self._leave(str(name), *arguments)

    def finished(self, drawn: Drawn, value: Any, depth: int) -> Any:
        """Give what a call returned its items and its state. What is left behind takes any."""
        if not isinstance(value, Left):
            return super().finished(drawn, value, depth)
        self._done[id(drawn)] = value  # an object may hold itself
        self._extents[id(drawn)] = 0, 0, 0
        for parts in (drawn.items, drawn.pairs, (drawn.state,)):
            value.given += self.values(parts, depth + 1)
        return value


_SCHEMES: Final = ("per_tensor_affine", "per_channel_affine", "per_tensor_symmetric")
_LAYOUTS: Final = tuple(
    f"torch.{name}"
    for name in ("strided", *(f"sparse_{x}" for x in ("coo", "csr", "csc", "bsr", "bsc")))
)
_CLASSES: Final[tuple[Ref, ...]] = (
    ("torch", "Tensor"),
    ("torch.nn.parameter", "Parameter"),
    ("torch.nn.parameter", "Buffer"),
)


class _Numbers:
    """A type of NumPy's that does not know its order of bytes yet. None stands for it in a plan."""

    def __init__(self, numpy: Any, code: Any) -> None:
        if type(code) is not str or not _NUMBERS.fullmatch(code):
            raise ValueError
        self._numpy, self._code = numpy, code

    def __build__(self, state: Any) -> Any:
        order = state[1] if type(state) is tuple and len(state) >= 8 else ""
        if order not in ("<", ">", "|", "=") or state[2:5] != (None,) * 3:
            raise ValueError
        found = None if self._numpy is None else self._numpy.dtype(self._code)
        return found if found is None or order == "|" else found.newbyteorder(order)


class _Array:
    """An array of NumPy's that has no numbers yet. None stands for it in a plan."""

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy

    def __build__(self, state: Any) -> Any:
        _, shape, dtype, is_fortran, raw = state
        if type(raw) is not bytes or not _are_sizes(shape, shape):
            raise ValueError
        if self._numpy is None:
            return None
        flat = self._numpy.frombuffer(raw, dtype)
        return flat.reshape(shape, order="F" if is_fortran else "C").copy(order="K")


class _Ordered(OrderedDict[Any, Any]):
    """An OrderedDict that has no items yet."""

    def __build__(self, state: object) -> Any:
        """Take the attributes that a module's state_dict has."""
        made: Any = OrderedDict(self)
        if state is not None:
            if type(state) is not dict or list(state) != ["_metadata"]:
                raise malformed("An OrderedDict has attributes that a state_dict does not have.")
            made._metadata = state["_metadata"]  # noqa: SLF001
        return made


class _Attributes:
    """An object of attributes that has none yet."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __build__(self, state: Any) -> Any:
        return _with_attributes(self._cls(), state)


def _with_attributes(value: Any, state: Any) -> Any:
    """Give an object attributes of its own. None of them covers one of its class."""
    if type(state) is tuple and len(state) == 2 and not state[1]:
        state = state[0]
    for name, item in (state or {}).items():
        if not (type(name) is str and _ATTRIBUTE.fullmatch(name)) or hasattr(type(value), name):
            raise ValueError
        vars(value)[name] = item
    return value


# The machine refuses what raises here, and says which name it was.


def _counter(counts: Any) -> Any:
    if type(counts) is not dict or any(type(count) is not int for count in counts.values()):
        raise ValueError
    return Counter(counts)


_FACTORIES: Final[Mapping[Ref, Any]] = {
    **{("collections", cls.__name__): cls for cls in (Counter, OrderedDict, deque)},
    **{
        (module, name): cls
        for module in _BUILTINS
        for cls in (bool, dict, float, int, list, set, str, tuple)
        for name in (cls.__name__, {int: "long", str: "unicode"}.get(cls, ""))  # as in Python 2
    },
}


def _default(factory: Any = None) -> Any:
    return defaultdict(None if factory is None else _FACTORIES[factory.key])


def _deque(items: Any = (), most: Any = None) -> Any:
    if items or (most is not None and not _is_size(most)):
        raise ValueError
    return deque(maxlen=most)


_OF_NUMBERS: Final = (("range", range), ("xrange", range), ("slice", slice))


def _of_numbers(make: Callable[..., Any], *numbers: Any) -> Any:
    if any(type(number) not in (int, type(None)) for number in numbers):
        raise ValueError
    return make(*numbers)


def _bytearray(data: Any = b"", encoding: Any = None) -> Any:
    # Never of a number: PyTorch would reserve that many bytes.
    if type(data) is str and encoding == "latin-1":
        return bytearray(data, "latin-1")
    if type(data) is not bytes or encoding is not None:
        raise ValueError
    return bytearray(data)


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _are_sizes(size: Any, stride: Any, offset: Any = 0) -> bool:
    both = isinstance(size, tuple) and isinstance(stride, tuple)
    if not (both and len(size) == len(stride) <= _DIMENSIONS):
        return False
    numbers = (offset, *size, *stride)
    return {*map(type, numbers)} == {int} and min(numbers) >= 0 and max(numbers) <= _LARGEST


def _is_device(value: object) -> bool:
    return type(value) is str and _DEVICE.fullmatch(value) is not None


def _check_extras(dtype: str, grad: object, hooks: object) -> None:
    """Refuse what a tensor that was saved does not have: hooks, or gradients of integers."""
    if type(grad) is not bool or not (hooks is None or (isinstance(hooks, dict) and not hooks)):
        raise malformed("A tensor has hooks, or does not say whether it has gradients.")
    if grad and not dtype.startswith(("float", "bfloat", "complex")):
        raise malformed("A tensor of integers asks for gradients.")


@cache
def _values_of(torch: Any) -> tuple[dict[Any, str], dict[Ref, Any]]:
    """Return the types of elements, each with its name, and the names that need no file.

    Args:
        torch: PyTorch, None where there is none.
    """
    dtypes = {name: getattr(torch, name, Word(name)) for name in SIZES}
    return {value: name for name, value in dtypes.items()}, {
        **PLAIN,
        ("torch.storage", "UntypedStorage"): _StorageType(None),
        ("torch.torch_version", "TorchVersion"): made_of(str, str),
        **{("torch", name): _StorageType(kind) for name, kind in _STORAGES.items()},
        **{("torch", name): Constant(dtype) for name, dtype in dtypes.items()},
        **{("torch", name): Constant(getattr(torch, name, Word(name))) for name in _SCHEMES},
        **{pair: pair for pair in _CLASSES},
        ("collections", "OrderedDict"): Collect(_Ordered, OrderedDict),
        ("collections", "Counter"): _counter,
        ("collections", "defaultdict"): _default,
        ("collections", "deque"): _deque,
        ("argparse", "Namespace"): partial(_Attributes, argparse.Namespace),
        ("types", "SimpleNamespace"): partial(_Attributes, SimpleNamespace),
        **{(module, "complex"): made_of(complex, float, float) for module in _BUILTINS},
        **{(module, "bytearray"): _bytearray for module in _BUILTINS},
        **{(m, name): partial(_of_numbers, made) for m in _BUILTINS for name, made in _OF_NUMBERS},
        ("numpy", "ndarray"): ("numpy", "ndarray"),
    }


_KNOWN: Final = frozenset(
    _Reader(io.BytesIO(), _Contents(b""), DEFAULT_MODEL_LIMITS, None).functions
)
