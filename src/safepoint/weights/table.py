"""The table of a safetensors file: which tensors it holds, and where. Read strictly, without torch.

A file is 8 bytes with the length of the header, the header in JSON, and the bytes of the tensors.
The safetensors package lets pass what has two meanings: a name or a key that occurs twice (the last
one wins), names such as `../x`, keys that nobody reads. Here each byte of the file has one meaning,
or the file is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from safepoint.errors import LimitExceeded, ModelMalformed, quoted
from safepoint.weights.dtypes import CODES
from safepoint.weights.limits import DEFAULT_MODEL_LIMITS, ModelLimits
from safepoint.weights.strictjson import NotStrict, exceeds, read_json

PREFIX: Final = 8
LONGEST_NAME: Final = 512
_DIMENSIONS: Final = 64  # what PyTorch can work with
_METADATA: Final = "__metadata__"
_METADATA_KEYS: Final = 1000
_FRAMEWORK: Final = ("format", "pt")
_KEYS: Final = {"dtype", "shape", "data_offsets"}
_DO: Final = "Nothing was loaded. Save the model again with safetensors or save_checkpoint."
_BUDGET: Final = "If it is meant to be that large, raise ModelLimits.{}."


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


@dataclass(frozen=True, slots=True)
class Table:
    """What a safetensors file says it holds.

    Attributes:
        tensors: by name, in the order of the file.
        metadata: what else the header says, but for the usual `format: pt`. It is not interpreted.
    """

    tensors: Mapping[str, Entry]
    metadata: Mapping[str, str]


class _Wrong(Exception):
    """What is wrong with the header, as the end of a sentence."""


def read_table(
    head: bytes | bytearray | memoryview | Any,
    size: int,
    limits: ModelLimits = DEFAULT_MODEL_LIMITS,
) -> Table:
    """Read the table, and check it against the size of the file.

    Args:
        head: the file from its start on; at least all of its header.
        size: how many bytes the whole file has.
        limits: what is too large.

    Raises:
        ModelMalformed: it is not a safetensors file, is cut or has bytes too many, or a tensor's
            bytes are not where its shape and type need them.
        LimitExceeded: the header is too large, or describes too many or too large tensors.
    """
    if size < PREFIX or len(head) < PREFIX:
        raise _malformed("ends before its header")
    length = int.from_bytes(head[:PREFIX], "little")
    if length > limits.header_bytes:
        raise LimitExceeded(
            f"The header of the safetensors file takes {length} bytes, and the limit is"
            f" {limits.header_bytes}.",
            _BUDGET.format("header_bytes"),
        )
    if PREFIX + length > min(size, len(head)):
        raise _malformed("ends before its header does")
    start = PREFIX + length
    try:
        content = _parsed(bytes(head[PREFIX:start]), start, limits)
        metadata = _metadata(content.pop(_METADATA, {}))
        if len(content) > limits.tensors:
            raise LimitExceeded(
                f"The safetensors file holds {len(content)} tensors, and the limit is"
                f" {limits.tensors}.",
                _BUDGET.format("tensors"),
            )
        _check_names(content)
        for name, found in content.items():
            if type(found) is not Entry:
                _entry(name, found, start, limits.elements)  # says what is wrong with it
        _check_layout(content, start, size)
    except _Wrong as wrong:
        raise _malformed(str(wrong)) from None
    return Table(content, metadata)


def name_problem(name: str) -> str | None:
    """Return what is wrong with the name of a tensor, or None.

    A name is shown to people, and other tools make file names of it.
    """
    if (
        name.isprintable()
        and 0 < len(name) <= LONGEST_NAME
        and ".." not in name
        and "\\" not in name
        and name[0] != "/"
        and name != _METADATA
    ):
        return None
    if not name:
        return "is empty"
    if len(name) > LONGEST_NAME:
        return f"is longer than {LONGEST_NAME} characters"
    if not name.isprintable():
        return "holds a character that cannot be shown"
    if name == _METADATA:
        return "is reserved"
    return "looks like a way out of a folder: it holds '..' or a backslash, or begins with '/'"


def _malformed(why: str) -> ModelMalformed:
    return ModelMalformed(f"The safetensors file {why}.", _DO)


def _parsed(header: bytes, start: int, limits: ModelLimits) -> dict[str, Any]:
    """Return what the header says by name: an `Entry` for each that is one, else what is there."""

    def entry_or(found: dict[str, Any]) -> Any:
        # An entry is made as soon as it is read: ten thousand dicts less to keep meanwhile.
        try:
            return _entry("", found, start, limits.elements)
        except (_Wrong, LimitExceeded):
            return found  # no entry, or a wrong one: that is said where its name is known

    # A parser takes 30 bytes for each byte of such text. This counts at the speed of `bytes.count`.
    most = limits.tensors
    if exceeds(header, b"[{", 3 * most + 2) or exceeds(header, b",", 12 * most + _METADATA_KEYS):
        raise LimitExceeded(
            f"The header of the safetensors file describes more than {limits.tensors} tensors.",
            _BUDGET.format("tensors"),
        )
    try:
        content = read_json(header, entry_or)
    except NotStrict as error:
        raise _Wrong(str(error)) from None
    if type(content) is not dict:
        raise _Wrong("has a header that is one entry and not a table")
    return content


def _metadata(found: object) -> Mapping[str, str]:
    if not isinstance(found, dict) or not all(type(text) is str for text in found.values()):
        raise _Wrong("has metadata that are not texts")
    if len(found) > _METADATA_KEYS:
        raise LimitExceeded(
            f"The safetensors file has {len(found)} metadata, and the limit is {_METADATA_KEYS}.",
            "Save it again without them.",
        )
    if not all(map(_encodes, found)) or not all(map(_encodes, found.values())):
        raise _Wrong("has metadata with half a character in it")
    return {key: text for key, text in found.items() if (key, text) != _FRAMEWORK}


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_names(names: Collection[str]) -> None:
    """Refuse a name that is none. Nearly always, one look at all of them together is enough."""
    together = " ".join(["", *names])
    if (
        names
        and together.isprintable()
        and "\\" not in together
        and ".." not in together
        and " /" not in together
        and min(map(len, names)) > 0
        and max(map(len, names)) <= LONGEST_NAME
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
            raise LimitExceeded(
                f"The tensor {quoted(name)} has more than {most} elements.",
                _BUDGET.format("elements"),
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
