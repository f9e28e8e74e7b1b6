"""Model files by hand: zip archives with any field wrong, and pickles put together by opcode."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

VERSION = ("archive/version", b"3\n")
MAGIC = 0x1950A86A20F9469CFC6C


@dataclass
class Part:
    """A member of an archive. `central` and `local` say what only that half shall say."""

    name: str | bytes
    data: bytes = b""
    packed: bytes | None = None
    before: bytes = b""
    after: bytes = b""
    central: dict[str, Any] = field(default_factory=dict)
    local: dict[str, Any] = field(default_factory=dict)


def zipped(*parts: Part | tuple[str, bytes], **end: Any) -> bytes:
    """Return a zip archive of these members. Fields of the end record can be given by name."""
    body, directory = b"", b""
    for given in parts:
        part = given if isinstance(given, Part) else Part(*given)
        name = part.name.encode() if isinstance(part.name, str) else part.name
        packed = part.data if part.packed is None else part.packed
        both: dict[str, Any] = {"signature": b"PK\1\2", "flags": 0, "method": 0, "extra": b""}
        both |= {"crc": zlib.crc32(part.data), "packed": len(packed), "name": name}
        both["size"] = len(part.data)
        body += part.before
        here = both | {"comment": b"", "disk": 0, "attributes": 0, "at": len(body)} | part.central
        there = both | {"signature": b"PK\3\4"} | part.local
        head = [there[key] for key in ("signature", "flags", "method", "crc", "packed", "size")]
        names = [there["name"], there["extra"]]
        body += struct.pack("<4s5H3L2H", head[0], 20, *head[1:3], 0, 0, *head[3:], *map(len, names))
        body += b"".join(names) + packed + part.after
        head = [here[key] for key in ("signature", "flags", "method", "crc", "packed", "size")]
        names = [here["name"], here["extra"], here["comment"]]
        where = (here["disk"], 0, here["attributes"], here["at"])
        numbers = (20, 20, *head[1:3], 0, 0, *head[3:], *map(len, names), *where)
        directory += struct.pack("<4s6H3L5H2L", head[0], *numbers) + b"".join(names)
    last: dict[str, Any] = {"gap": b"", "disk": 0, "first": 0, "comment": b"", "wide": b""}
    last |= {"here": len(parts), "count": len(parts), "length": len(directory), "tail": b""}
    last |= {"start": len(body) + len(end.get("gap", b"")), **end}
    counts = [last[key] for key in ("disk", "first", "here", "count", "length", "start")]
    record = struct.pack("<4s4H2LH", b"PK\5\6", *counts, len(last["comment"]))
    tail: bytes = last["wide"] + record + last["comment"] + last["tail"]
    return body + bytes(last["gap"]) + directory + tail


def wide_end(at: int, **changes: Any) -> bytes:
    """Return the two records for large archives that stand before the last one."""
    told: dict[str, Any] = {"signature": b"PK\6\6", "rest": 44, "this": 0, "first": 0, "here": 2}
    told |= {"count": 2, "length": 0, "start": 0, "disk": 0, "place": at, "disks": 1} | changes
    keys = ("this", "first", "here", "count", "length", "start")
    values = [told[key] for key in keys]
    return struct.pack(
        "<4sQ2H2L4Q", told["signature"], told["rest"], 45, 45, *values
    ) + struct.pack("<4sLQL", b"PK\6\7", told["disk"], told["place"], told["disks"])


def archive(pickle: bytes, storages: Mapping[str, bytes] | None = None) -> bytes:
    """Return a PyTorch archive with this pickle and these storages."""
    members = [(f"archive/data/{key}", data) for key, data in (storages or {}).items()]
    return zipped(("archive/data.pkl", pickle), *members, VERSION)


# Pickles, put together. Each returns the opcodes that leave one value.


def proto(*code: bytes) -> bytes:
    return b"\x80\x02" + b"".join(code) + b"."


def name(module: str, qualified: str) -> bytes:
    return f"c{module}\n{qualified}\n".encode()


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def tuple_(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def sizes(values: tuple[int, ...]) -> bytes:
    return tuple_(*map(number, values))


def call(function: tuple[str, str], *arguments: bytes) -> bytes:
    return name(*function) + tuple_(*arguments) + b"R"


FALSE, TRUE, NONE = b"\x89", b"\x88", b"N"
HOOKS = call(("collections", "OrderedDict"))
FLOATS = ("torch", "FloatStorage")
BYTES = ("torch.storage", "UntypedStorage")


def storage(
    key: str = "0",
    count: int = 4,
    kind: tuple[str, str] = FLOATS,
    device: str = "cpu",
    *more: bytes,
) -> bytes:
    """Return a storage of that many elements."""
    return (
        tuple_(text("storage"), name(*kind), text(key), text(device), number(count), *more) + b"Q"
    )


def tensor(
    held: bytes | None = None,
    offset: int = 0,
    shape: tuple[int, ...] = (4,),
    stride: tuple[int, ...] = (1,),
    *more: bytes,
    grad: bytes = FALSE,
    hooks: bytes = HOOKS,
) -> bytes:
    """Return a tensor of four floats, if nothing else is said."""
    held = storage() if held is None else held
    arguments = (held, number(offset), sizes(shape), sizes(stride), grad, hooks, *more)
    return call(("torch._utils", "_rebuild_tensor_v2"), *arguments)


def legacy(
    value: bytes,
    keys: tuple[str, ...] = ("0",),
    storages: bytes = struct.pack("<q4f", 4, 1, 2, 3, 4),
    *,
    magic: int = MAGIC,
    version: int = 1001,
    machine: bytes = b"}",
) -> bytes:
    """Return a file of the old format."""
    listed = b"](" + b"".join(map(text, keys)) + b"e"
    pickles = (number(magic), number(version), machine, value, listed)
    return b"".join(map(proto, pickles)) + storages


# What refused.txt is made of, besides.

FOUR = struct.pack("<4f", 1, 2, 3, 4)
PICKLE = ("archive/data.pkl", proto(tensor()))
STORAGE = ("archive/data/0", FOUR)
HONEST = (PICKLE, STORAGE, VERSION)
DESCRIBED = struct.pack("<4s3L", b"PK\7\10", zlib.crc32(FOUR), 16, 16)
OLD = tensor(storage("0", 4, FLOATS, "cpu", NONE))
RUNS = b"cos\nsystem\n(S'id'\ntR."
ODD = b"N0\x80\x04(Vid\nisite-packages.pip.__main__\nos.system\n"  # a folder is a module
LENIENT = b"I 1\n0cos\nsystem\n(S'id'\ntR."  # C's unpickler reads I 1


def both(name: str, data: bytes = FOUR, **fields: Any) -> Part:
    return Part(name, data, central=dict(fields), local=dict(fields))


def one(*code: bytes) -> bytes:
    return archive(proto(*code), {"0": FOUR})


def doubled(levels: int) -> bytes:
    """Return a list of two of what is a list of two of …: small in the file, 2**levels outside."""
    code = b"]q\0"
    for level in range(levels):
        code += b"](" + b"h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1])
    return proto(code)


def built(header: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype: Any = "U8", shape: Any = (1,), offsets: Any = (0, 1), **more: Any) -> Any:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def of(tensors: Any, data: bytes = b"x") -> bytes:
    return built(json.dumps(tensors), data)


ENTRY = json.dumps(entry())


def zip_of(name: str, data: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as packed:
        packed.writestr(name, data)
    return file.getvalue()


def array(dtype: str, data: bytes) -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': (1,), }}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def padded(length: int, data: bytes) -> bytes:
    """Return a safetensors file whose header has that length, which reads as instructions."""
    header = b'{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (len(data), len(data))
    return struct.pack("<Q", length) + header.ljust(length) + data


def texts_and_stop() -> bytes:
    """Return one whose length reads as BINUNICODE, and whose metadata end the pickle."""
    length = int.from_bytes(b"X" + struct.pack("<I", 0x60) + b"\0\0\0", "little")
    header = b'{"__metadata__":{"k":"'
    header += b"x" * (5 + 0x60 - 8 - len(header)) + b"(t0."
    return struct.pack("<Q", length) + header + b"x" * (length - len(header) - 3) + b'"}}'


def framed(inside: bytes) -> bytes:
    return b"N\x95" + struct.pack("<Q", len(inside)) + inside


def cases(section: str) -> list[Any]:
    """Return the cases of a section of refused.txt: what it is, an error, and a word."""
    text = (Path(__file__).parents[1] / "corpus" / "refused.txt").read_text("utf-8")
    lines = text.partition(f"## {section}\n")[2].partition("\n\n")[0].splitlines()
    split = [line.split(" | ", maxsplit=3) for line in lines]
    return [pytest.param(what, error, word, id=name) for name, error, word, what in split]


def made(what: str) -> bytes:
    """Return the bytes of a case."""
    data: bytes = eval(what, {**globals(), "pickle": pickle, "tarfile": tarfile})  # noqa: S307  our own file
    return data
