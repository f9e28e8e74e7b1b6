"""safetensors files: read strictly, viewed as tensors, and written without a second copy.

A file is 8 bytes with the length of the header, the header in JSON, and the bytes of the tensors.
The safetensors package lets pass what has two meanings: a name or a key that occurs twice (the last
one wins), names such as `../x`, keys that nobody reads. Here each byte of the file has one meaning,
or the file is refused.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import mmap
import os
import sys
from collections import Counter
from collections.abc import Container, Mapping
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from safepoint.core.errors import DecodeError, LimitExceeded, ModelRefused, missing, quoted
from safepoint.models.limits import DEFAULT_MODEL_LIMITS, ModelLimits, over
from safepoint.models.plain import strict_json
from safepoint.rules import package_toml

if TYPE_CHECKING:
    import torch

FORMATS: Final = package_toml("models/formats.toml")
"""What may be in files of tensors."""

CODES: Final[dict[str, tuple[str, int]]] = {
    code: (name, width) for code, (name, width) in FORMATS["safetensors"].items()
}
"""What a safetensors file may hold: the code in the file, PyTorch's name, bytes per element."""

STORED: Final = frozenset(name for name, _ in CODES.values())
"""The names of PyTorch's types that safetensors can hold."""

PREFIX: Final = 8
_LONGEST_NAME: Final = 512
_DIMENSIONS: Final = 64  # what PyTorch can work with
_METADATA: Final = "__metadata__"
_DO: Final = "Nothing was loaded. Get the file again. If you made it, save it again."
_SPARE: Final = 100_000  # brackets and commas in metadata and names


def package(name: str = "torch") -> Any:
    """Return an optional package.

    Raises:
        MissingPackage: it is not installed, or its installation is broken.
    """
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:  # a library that does not load is an OSError
        why = "is not installed"
        if not (isinstance(error, ModuleNotFoundError) and error.name == name):
            why = f"is not installed whole ({quoted(str(error))}), so add --force-reinstall"
    raise missing(f"safepoint.models needs {name}, which {why}.", "torch")


def dtype_name(dtype: object) -> str:
    """Return PyTorch's name of a type without the module: `float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


class TensorSpec(NamedTuple):
    """The type and the shape of a tensor.

    Attributes:
        dtype: `"float32"`.
        shape: its dimensions.
    """

    dtype: str
    shape: tuple[int, ...]


class TensorEntry(NamedTuple):
    """One tensor of the table.

    Attributes:
        dtype: the type of its elements, as PyTorch calls it: `float32`.
        shape: its dimensions; none for a single number.
        begin: where its bytes begin, from the start of the file.
        end: where they end.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_table(
    head: Any, size: int, limits: ModelLimits = DEFAULT_MODEL_LIMITS
) -> dict[str, TensorEntry]:
    """Return the tensors of a safetensors file by name, checked against the size of the file.

    Args:
        head: the file from its start on; at least all of its header.
        size: how many bytes the whole file has.
        limits: what is too large.

    Raises:
        ModelRefused: it is not a safetensors file, is cut or has bytes too many, or a tensor's
            bytes are not where its shape and type need them.
        LimitExceeded: the header is too large, or describes too many or too large tensors.
    """
    length = int.from_bytes(head[:PREFIX], "little")
    if size < PREFIX or len(head) < PREFIX:
        raise _wrong("ends before its header")
    if length > limits.header_bytes:
        raise over(limits, "header_bytes")
    start = PREFIX + length
    if start > min(size, len(head)):
        raise _wrong("ends before its header does")
    content = _parsed(bytes(head[PREFIX:start]), limits)
    metadata = content.pop(_METADATA, {})
    if type(metadata) is not dict or not all(type(text) is str for text in metadata.values()):
        raise _wrong("has metadata that are not texts")
    if len(content) > limits.tensors:
        raise over(limits, "tensors")
    table = {name: _entry(name, each, start, limits) for name, each in content.items()}
    position = start
    for name, entry in sorted(table.items(), key=lambda item: item[1][2:]):
        if entry.begin != position:  # each byte belongs to one tensor
            raise _wrong(f"has a tensor {quoted(name)} that overlaps another, or leaves a hole")
        position = entry.end
    if position > size:
        raise _wrong("ends before its last tensor does")
    if position < size:
        raise _wrong(f"has {size - position} bytes after its last tensor")
    return table


def _wrong(why: str) -> ModelRefused:
    return ModelRefused(f"The safetensors file {why}.", _DO)


def _parsed(header: bytes, limits: ModelLimits) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        found = strict_json(header, len(header), 15 * limits.tensors + _SPARE)
        is_json = header[:1] == b"{" and header.rstrip(b" ")[-1:] == b"}"
    except LimitExceeded:
        raise over(limits, "tensors") from None
    except DecodeError:
        is_json = False
    if not is_json:
        raise _wrong("has a header that is not JSON, or says a thing twice")
    return found


def name_problem(name: str) -> str | None:
    """Return what is wrong with the name of a tensor, or None.

    A name is shown to people, and other tools make file names of it.
    """
    if not name:
        return "is empty"
    if len(name) > _LONGEST_NAME:
        return f"is longer than {_LONGEST_NAME} characters"
    if not name.isprintable():
        return "holds a character that cannot be shown"
    if name == _METADATA:
        return "is reserved"
    if ".." in name or "\\" in name or name[0] == "/":
        return "looks like a way out of a folder: it holds '..' or a backslash, or begins with '/'"
    return None


def free_name(name: str, taken: Container[str], times: Counter[str]) -> str:
    """Return a name that is not taken yet: `a/b#2` for a second `a/b`.

    Args:
        name: what it should be.
        taken: those that are.
        times: how often each was asked for, which this counts.
    """
    own = name
    while own in taken:  # {"a/b": …, "a": {"b": …}}; and 1 and "1" look the same
        times[name] += 1
        own = f"{name}#{times[name] + 1}"
    return own


def _entry(name: str, found: Any, start: int, limits: ModelLimits) -> TensorEntry:
    if problem := name_problem(name):
        raise _wrong(f"has a tensor {quoted(name)}, whose name {problem}")
    said: dict[str, Any] = found if type(found) is dict else {}
    code, shape, offsets = said.get("dtype"), said.get("shape", 0), said.get("data_offsets", 0)
    dtype, width = CODES.get(code, ("", 0)) if type(code) is str else ("", 0)
    places = _are_sizes(shape, _DIMENSIONS) and _are_sizes(offsets, 2) and len(offsets) == 2
    if len(said) != 3 or not dtype or not places:
        raise _wrong(f"says of {quoted(name)} something else than dtype, shape and data_offsets")
    elements = room = 1
    for size in shape:
        elements *= size
        # Zeros do not hide what stands beside them: PyTorch computes with the other sizes, too.
        room *= size or 1
    if room > limits.elements:
        raise over(limits, "elements", subject=f"The tensor {quoted(name)}")
    begin, end = offsets
    if elements * width != end - begin:
        raise _wrong(f"gives {quoted(name)} another number of bytes than its shape needs")
    return TensorEntry(dtype, tuple(shape), start + begin, start + end)


def _are_sizes(found: Any, most: int) -> bool:
    if type(found) is not list or len(found) > most:
        return False
    for each in found:  # noqa: SIM110  ten thousand tensors, a third faster
        if type(each) is not int or each < 0:
            return False
    return True


def open_tensors(
    file: BinaryIO | IO[bytes], limits: ModelLimits = DEFAULT_MODEL_LIMITS
) -> dict[str, torch.Tensor]:
    """Return the tensors of an open safetensors file by name.

    They are views of a mapping, which lives as long as they do. It is private, so that a change of
    a tensor never reaches the file; it is not a copy, so nobody else may be able to write the file.

    Args:
        file: the file.
        limits: what is too large.

    Raises:
        ModelRefused: as `read_table`, or a truth value is neither true nor false; or this machine
            stores the high byte of a number first.
        LimitExceeded: it is over a limit.
        MissingPackage: torch is not installed.
    """
    _check_byte_order()
    torch = package()
    size = os.fstat(file.fileno()).st_size
    if not size:
        raise _wrong("is empty")
    buffer = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    table = read_table(buffer, size, limits)
    view = torch.frombuffer
    address = view(buffer, dtype=torch.uint8, count=1).data_ptr()
    tensors = {}
    for name, (kind, shape, begin, end) in table.items():
        dtype = getattr(torch, kind)
        if begin == end:
            tensors[name] = torch.empty(shape, dtype=dtype)
            continue
        raw = view(buffer, dtype=torch.uint8, count=end - begin, offset=begin)
        # A third truth value: what code compiled for two does with it is undefined.
        if kind == "bool" and int(raw.max()) > 1:
            raise ModelRefused(
                f"The tensor {quoted(name)} holds a byte that is neither true nor false.", _DO
            )
        aligned = raw.clone() if (address + begin) % dtype.itemsize else raw
        tensors[name] = aligned.view(dtype) if len(shape) == 1 else aligned.view(dtype).view(shape)
    return tensors


def _check_byte_order() -> None:
    if sys.byteorder != "little":
        raise ModelRefused(
            "This machine stores the high byte of a number first, and safetensors the low one.",
            "Load and save on a little-endian machine, such as any x86-64 or ARM server.",
        )


# Wide types first, so that each is aligned; and the code of each.
_ORDER: Final = {name: (-number, code) for number, (code, (name, _)) in enumerate(CODES.items())}
_BATCH: Final = 1 << 20


def write_into(descriptor: int, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a safetensors file to an open descriptor, from where it stands.

    The bytes are those that the safetensors package writes. A test compares them.

    Args:
        descriptor: where to.
        tensors: what `pack` returned: of types that safetensors has, and each one contiguous
            piece of the CPU's memory.

    Raises:
        ModelRefused: this machine stores the high byte of a number first.
        OSError: it cannot be written.
    """
    _check_byte_order()
    described = [(*_ORDER[dtype_name(each.dtype)], name, each) for name, each in tensors.items()]
    described.sort(key=lambda each: (each[0], each[2]))
    table: dict[str, Any] = {_METADATA: {"format": "pt"}}
    position = 0
    for _, code, name, tensor in described:
        end = position + tensor.nbytes
        shape = list(tensor.shape)
        table[name] = {"dtype": code, "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    # Buffered: ten thousand calls for 256 bytes each take longer than a copy of small ones.
    with open(descriptor, "wb", buffering=_BATCH, closefd=False) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for *_, tensor in described:
            if tensor.nbytes:
                at = tensor.data_ptr()
                file.write(memoryview((ctypes.c_char * tensor.nbytes).from_address(at)))
