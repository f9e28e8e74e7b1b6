"""safetensors files: read strictly, viewed as tensors, and written without a second copy.

A file is 8 bytes with the length of the header, the header in JSON, and the bytes of the tensors.
The safetensors package lets pass what has two meanings: a name or a key that occurs twice (the last
one wins), names such as `../x`, keys that nobody reads. Here each byte of the file has one meaning,
or the file is refused.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import json
import mmap
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, NoReturn

from safepoint.errors import (
    LimitExceeded,
    MissingPackage,
    ModelMalformed,
    ModelUnsupported,
    quoted,
)
from safepoint.models.limits import DEFAULT_MODEL_LIMITS, ModelLimits, over_limit

if TYPE_CHECKING:
    import torch

CODES: Final[dict[str, tuple[str, int]]] = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 1),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 1),
    "I16": ("int16", 2),
    "U16": ("uint16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I32": ("int32", 4),
    "U32": ("uint32", 4),
    "F32": ("float32", 4),
    "C64": ("complex64", 8),
    "F64": ("float64", 8),
    "I64": ("int64", 8),
    "U64": ("uint64", 8),
}
"""What a safetensors file may hold: the code in the file, PyTorch's name, bytes per element.

In the order of the safetensors package, which writes the last of them first.
"""

STORED: Final = frozenset(name for name, _ in CODES.values())
"""The names of PyTorch's types that safetensors can hold."""

PREFIX: Final = 8
_LONGEST_NAME: Final = 512
_DIMENSIONS: Final = 64  # what PyTorch can work with
_METADATA: Final = "__metadata__"
_METADATA_KEYS: Final = 1000
_KEYS: Final = {"dtype", "shape", "data_offsets"}
_DO: Final = "Nothing was loaded. Save the model again with safetensors or save_checkpoint."
_WINDOW: Final = 64 * 1024


def package(name: str = "torch") -> Any:
    """Return an optional package.

    Raises:
        MissingPackage: it is not installed, or its installation is broken.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            raise MissingPackage(
                f"safepoint.models needs {name}, which is not installed.",
                "Install it: pip install 'safepoint[torch]'",
            ) from None
        broken: Exception = error
    except (ImportError, OSError) as error:  # a library that does not load is an OSError
        broken = error
    raise MissingPackage(
        f"safepoint.models needs {name}, whose installation is broken ({quoted(str(broken))}).",
        f"Install it again: pip install --force-reinstall {name}",
    ) from None


def dtype_name(dtype: object) -> str:
    """Return PyTorch's name of a type without the module: `float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


class Entry(NamedTuple):
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


class _Wrong(Exception):
    """What is wrong with the header, as the end of a sentence about the file."""


def read_table(
    head: Any, size: int, limits: ModelLimits = DEFAULT_MODEL_LIMITS
) -> dict[str, Entry]:
    """Return the tensors of a safetensors file by name, checked against the size of the file.

    Args:
        head: the file from its start on; at least all of its header.
        size: how many bytes the whole file has.
        limits: what is too large.

    Raises:
        ModelMalformed: it is not a safetensors file, is cut or has bytes too many, or a tensor's
            bytes are not where its shape and type need them.
        LimitExceeded: the header is too large, or describes too many or too large tensors.
    """
    length = int.from_bytes(head[:PREFIX], "little")
    if size < PREFIX or len(head) < PREFIX:
        raise _malformed("ends before its header")
    if length > limits.header_bytes:
        raise over_limit(
            f"The header of the safetensors file takes {length} bytes, and the limit is"
            f" {limits.header_bytes}.",
            "header_bytes",
        )
    start = PREFIX + length
    if start > min(size, len(head)):
        raise _malformed("ends before its header does")
    try:
        content = _parsed(bytes(head[PREFIX:start]), start, limits)
        _check_metadata(content.pop(_METADATA, {}))
        if len(content) > limits.tensors:
            raise _too_many(limits)
        _check_names(content)
        for name, found in content.items():
            if type(found) is not Entry:
                _entry(name, found, start, limits.elements)  # says what is wrong with it
        _check_layout(content, start, size)
    except _Wrong as wrong:
        raise _malformed(str(wrong)) from None
    return content


def _malformed(why: str) -> ModelMalformed:
    return ModelMalformed(f"The safetensors file {why}.", _DO)


def _too_many(limits: ModelLimits) -> LimitExceeded:
    return over_limit(
        f"The header of the safetensors file describes more than {limits.tensors} tensors.",
        "tensors",
    )


def _parsed(header: bytes, start: int, limits: ModelLimits) -> dict[str, Any]:
    """Return what the header says by name: an `Entry` for each that is one, else what is there."""
    # A parser takes 30 bytes for each byte of such text. This counts at the speed of `bytes.count`.
    most = limits.tensors
    if _exceeds(header, b"[{", 3 * most + 2) or _exceeds(header, b",", 12 * most + _METADATA_KEYS):
        raise _too_many(limits)
    if header[:1] != b"{":
        raise _Wrong("has a header that is not JSON")

    def made(pairs: list[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for at, name in enumerate(names) if name in names[:at])
            raise _Wrong(f"has {quoted(twice)} twice in its header")
        # An entry is made as soon as it is read: ten thousand dicts less to keep meanwhile.
        try:
            return _entry("", found, start, limits.elements)
        except (_Wrong, LimitExceeded):
            return found  # no entry, or a wrong one: that is said where its name is known

    decoder = json.JSONDecoder(
        object_pairs_hook=made,
        parse_float=_not_integer,
        parse_constant=_not_integer,
        parse_int=_integer if b"-0" in header else None,
    )
    try:
        text = header.decode()
        content, end = decoder.raw_decode(text)
    except RecursionError:
        raise _Wrong("has a header that is nested too deep") from None
    except ValueError:  # not UTF-8, not JSON, a number of thousands of digits
        raise _Wrong("has a header that is not JSON") from None
    if text[end:].strip(" "):
        raise _Wrong("has something else after the JSON of its header")
    if type(content) is not dict:
        raise _Wrong("has a header that is one entry and not a table")
    return content


def _exceeds(header: bytes, marks: bytes, most: int) -> bool:
    """Tell whether JSON text has more of these marks than that, before anything parses it.

    Marks in strings do not count. They are told apart window by window, so that a megabyte of
    quotes does not become a list of a million pieces.
    """
    if sum(map(header.count, marks)) <= most:
        return False
    # Outside of a string a backslash ends the parse, so it does not matter what follows it.
    bare = header.replace(b"\\\\", b"").replace(b'\\"', b"")
    inside = False
    total = 0
    for start in range(0, len(bare), _WINDOW):
        pieces = bare[start : start + _WINDOW].split(b'"')
        total += sum(map(b"".join(pieces[inside::2]).count, marks))
        inside ^= not len(pieces) % 2
    return total > most


def _not_integer(text: str) -> NoReturn:
    raise _Wrong(f"has the number {quoted(text)} in its header, which is not an integer")


def _integer(text: str) -> int:
    if text == "-0":
        _not_integer(text)
    return int(text)


def _check_metadata(found: object) -> None:
    if not isinstance(found, dict) or not all(type(text) is str for text in found.values()):
        raise _Wrong("has metadata that are not texts")
    if len(found) > _METADATA_KEYS:
        raise LimitExceeded(
            f"The safetensors file has {len(found)} metadata, and the limit is {_METADATA_KEYS}.",
            "Save it again without them.",
        )
    try:
        "".join([*found, *found.values()]).encode()
    except UnicodeEncodeError:
        raise _Wrong("has metadata with half a character in it") from None


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


def _check_names(names: Collection[str]) -> None:
    """Refuse a name that is none. Nearly always, one look at all of them together is enough."""
    together = " ".join(["", *names])
    if (
        names
        and together.isprintable()
        and not any(sign in together for sign in ("\\", "..", " /"))
        and min(map(len, names)) > 0
        and max(map(len, names)) <= _LONGEST_NAME
    ):
        return
    for name in names:
        if problem := name_problem(name):
            raise _Wrong(f"has a tensor {quoted(name)}, whose name {problem}")


def _entry(name: str, found: Any, start: int, most: int) -> Entry:
    if type(found) is not dict or found.keys() != _KEYS:
        raise _Wrong(f"says of {quoted(name)} something else than dtype, shape and data_offsets")
    code, shape, offsets = found["dtype"], found["shape"], found["data_offsets"]
    known = CODES.get(code) if type(code) is str else None
    if known is None:
        raise _Wrong(
            f"gives {quoted(name)} the dtype {quoted(code)}, which is not one of those that are"
            " loaded"
        )
    dtype, width = known
    # Zeros do not hide what stands beside them: PyTorch computes with the other sizes, too.
    elements = room = 1
    for size in shape if type(shape) is list else (None,):
        if type(size) is not int or size < 0:
            raise _Wrong(f"gives {quoted(name)} a shape that is not a list of sizes")
        elements *= size
        room *= size or 1
        if room > most:
            raise over_limit(
                f"The tensor {quoted(name)} has more than {most} elements.", "elements"
            )
    if len(shape) > _DIMENSIONS:
        raise LimitExceeded(
            f"The tensor {quoted(name)} has {len(shape)} dimensions, and the limit is"
            f" {_DIMENSIONS}.",
            "Save it again with fewer.",
        )
    begin, end = offsets if type(offsets) is list and len(offsets) == 2 else (None, None)
    if type(begin) is not int or type(end) is not int or begin < 0:
        raise _Wrong(f"gives {quoted(name)} data_offsets that are not two places")
    if elements * width != end - begin:
        raise _Wrong(f"gives {quoted(name)} another number of bytes than its shape needs")
    return Entry(dtype, tuple(shape), start + begin, start + end)


def _check_layout(tensors: Mapping[str, Entry], start: int, size: int) -> None:
    """Refuse a hole, an overlap and a rest: each byte belongs to one tensor."""
    position = start
    for name, entry in sorted(tensors.items(), key=lambda item: item[1][2:]):
        if entry.begin != position:
            what = "overlaps another tensor" if entry.begin < position else "begins after a hole"
            raise _Wrong(f"has a tensor {quoted(name)} that {what}")
        position = entry.end
    if position > size:
        raise _Wrong("ends before its last tensor does")
    if position < size:
        raise _Wrong(f"has {size - position} bytes after its last tensor")


def buffer_of(file: BinaryIO, limits: ModelLimits = DEFAULT_MODEL_LIMITS, *, private: bool) -> Any:
    """Take the bytes of an open file: mapped if nobody else can write it, else read once.

    A mapping is private, so that a change of a tensor never reaches the file. It is not a copy:
    whoever can write the file may change a page that was not touched yet, or cut it off.

    Args:
        file: a file, or an `io.BytesIO` whose content is used as it is.
        limits: what is too large.
        private: whether nobody but this user and root can write it.

    Raises:
        ModelMalformed: it is empty, or became shorter while it was read.
        LimitExceeded: it is too large.
        OSError: it cannot be read.
    """
    if isinstance(file, io.BytesIO):
        return file.getbuffer()
    size = os.fstat(file.fileno()).st_size
    if size > limits.file_bytes:
        raise over_limit(
            f"The safetensors file is {size} bytes, over the limit of {limits.file_bytes}.",
            "file_bytes",
        )
    if not size:
        raise _malformed("is empty")
    try:
        if private:
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    except ValueError:
        raise _shorter() from None
    # Memory of the system, not a bytearray: its pages are not zeroed twice, and it is aligned.
    # ACCESS_COPY, or a process that is forked later would write into the same tensors.
    buffer = mmap.mmap(-1, size, access=mmap.ACCESS_COPY)
    with memoryview(buffer) as room:
        file.seek(0)
        filled = 0
        while filled < size:
            with room[filled:] as rest:
                count = file.readinto(rest)  # type: ignore[attr-defined]
            if not count:
                raise _shorter()
            filled += count
    return buffer


def _shorter() -> ModelMalformed:
    return ModelMalformed(
        "The safetensors file became shorter while it was read.",
        "Nothing was loaded. Load it again once nobody writes it.",
    )


def tensors_of(buffer: Any, table: Mapping[str, Entry]) -> dict[str, torch.Tensor]:
    """Return the tensors by name. They are views of the buffer, which lives as long as they do.

    Raises:
        MissingPackage: torch is not installed.
        ModelUnsupported: this machine stores the high byte of a number first.
        ModelMalformed: a truth value is neither true nor false.
    """
    _check_byte_order()
    torch = package()
    if memoryview(buffer).readonly:
        buffer = bytearray(buffer)  # a tensor on memory that it may not write is no safe tensor
    view = torch.frombuffer
    address = view(buffer, dtype=torch.uint8, count=1).data_ptr()
    widths: dict[str, tuple[Any, int]] = {}
    tensors = {}
    for name, (kind, shape, begin, end) in table.items():
        if kind not in widths:
            dtype = getattr(torch, kind)
            widths[kind] = dtype, dtype.itemsize
        dtype, width = widths[kind]
        if begin == end:
            tensors[name] = torch.empty(shape, dtype=dtype)
            continue
        if (address + begin) % width:
            raw = view(buffer, dtype=torch.uint8, count=end - begin, offset=begin)
            tensors[name] = raw.clone().view(dtype).view(shape)
        else:
            tensor = view(buffer, dtype=dtype, count=(end - begin) // width, offset=begin)
            tensors[name] = tensor if len(shape) == 1 else tensor.view(shape)
        if kind == "bool":
            # A third truth value: what code compiled for two does with it is undefined.
            raw = view(buffer, dtype=torch.uint8, count=end - begin, offset=begin)
            if int(raw.max()) > 1:
                raise ModelMalformed(
                    f"The tensor {quoted(name)} holds a byte that is neither true nor false.", _DO
                )
    return tensors


def open_tensors(
    file: BinaryIO, limits: ModelLimits = DEFAULT_MODEL_LIMITS, *, private: bool
) -> dict[str, torch.Tensor]:
    """Return the tensors of an open safetensors file by name. See `buffer_of` and `read_table`."""
    buffer = buffer_of(file, limits, private=private)
    return tensors_of(buffer, read_table(buffer, len(buffer), limits))


def _check_byte_order() -> None:
    if sys.byteorder != "little":
        raise ModelUnsupported(
            "This machine stores the high byte of a number first, and safetensors the low one.",
            "Load and save on a little-endian machine, such as any x86-64 or ARM server.",
        )


_CODE_OF: Final = {name: code for code, (name, _) in CODES.items()}
# Wide types first, so that each is aligned.
_ORDER: Final = {name: -number for number, (name, _) in enumerate(CODES.values())}
_PIECE: Final = 1 << 30  # one write takes less than 2 GiB
_SMALL: Final = 1 << 16
_BATCH: Final = 1 << 20


def write_into(descriptor: int, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a safetensors file to an open descriptor, from where it stands.

    The bytes are those that the safetensors package writes. A test compares them.

    Args:
        descriptor: where to.
        tensors: what `pack` returned: of types that safetensors has, and each one contiguous
            piece of the CPU's memory.

    Raises:
        ModelUnsupported: this machine stores the high byte of a number first.
        OSError: it cannot be written.
    """
    _check_byte_order()
    described = [(dtype_name(tensor.dtype), name, tensor) for name, tensor in tensors.items()]
    described.sort(key=lambda each: (_ORDER[each[0]], each[1]))
    table: dict[str, Any] = {_METADATA: {"format": "pt"}}
    position = 0
    for dtype, name, tensor in described:
        end = position + tensor.nbytes
        table[name] = {
            "dtype": _CODE_OF[dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    _write(descriptor, len(text).to_bytes(8, "little") + text, (each[2] for each in described))


def _write(descriptor: int, header: bytes, tensors: Iterable[torch.Tensor]) -> None:
    # Small ones are collected: ten thousand calls for 256 bytes each take longer than a copy.
    gathered = bytearray(header)
    for tensor in tensors:
        if not tensor.nbytes:
            continue
        memory = memoryview((ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr()))
        if tensor.nbytes <= _SMALL:
            gathered += memory
        if tensor.nbytes > _SMALL or len(gathered) > _BATCH:
            write_all(descriptor, memoryview(bytes(gathered)))
            gathered.clear()
        if tensor.nbytes > _SMALL:
            write_all(descriptor, memory)
    write_all(descriptor, memoryview(bytes(gathered)))


def write_all(descriptor: int, memory: memoryview | bytes) -> None:
    """Write every byte: one `write` may take a part of them."""
    rest = memoryview(memory)
    while rest:
        rest = rest[os.write(descriptor, rest[:_PIECE]) :]
