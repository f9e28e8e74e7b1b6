"""Small files that take memory, time or the process away from a careless reader.

Never load one in a process that you need: `tests.corpus.forked` gives a child that has limits.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.corpus.assembler import Call, Raw, call, name, pickled
from tests.corpus.embed import as_archive, as_legacy

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB


class Exhausting(NamedTuple):
    """Such a file.

    Attributes:
        name: what it does.
        make: returns its content.
        suffix: .pkl, or .pt for a model file.
    """

    name: str
    make: Callable[[], bytes]
    suffix: str = ".pkl"


def _persistent(key: str, elements: int, kind: str = "FloatStorage") -> Raw:
    """Refer to a storage, as `torch.save` does."""
    parts = ("storage", name(f"torch:{kind}"), key, "cpu", elements)
    return Raw(pickled(parts, 2)[2:-1] + b"Q")


def _tensor(storage: Raw, shape: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> Call:
    hooks = call("collections:OrderedDict")
    return call("torch._utils:_rebuild_tensor_v2", storage, offset, shape, stride, False, hooks)


def _model(value: Any, **storages: bytes) -> bytes:
    return as_archive(pickled({"weight": value}, 2), storages)


def doubling(levels: int, pair: bytes) -> bytes:
    """Return opcodes for a value that holds itself twice, that often."""
    code = b"N"
    for number in range(levels):
        code += b"q%c" % number + pair.replace(b"GET", b"h%c" % number)
    return code


def bomb(size: int = 128 * MIB) -> bytes:
    """Return an archive with one storage of zeros, deflated to a thousandth."""
    data = pickled({"weight": _tensor(_persistent("0", size // 4), (size // 4,), (1,))}, 2)
    file = io.BytesIO(as_archive(data, compression=zipfile.ZIP_DEFLATED))
    with (
        zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("archive/data/0", "w") as member,
    ):
        for _ in range(size // MIB):
            member.write(b"\0" * MIB)
    return file.getvalue()


def _deflated_nesting() -> bytes:
    """Return a model file whose pickle nests a million tuples and makes a key of them."""
    deep = b"\x80\x02}N" + b"\x85" * 1_000_000 + b"Ns."
    return as_archive(deep, compression=zipfile.ZIP_DEFLATED)


def _sparse() -> bytes:
    """Return a sparse tensor whose one index points far outside of its shape."""
    indices = _tensor(_persistent("0", 1, "LongStorage"), (1, 1), (1, 1))
    values = _tensor(_persistent("1", 1), (1,), (1,))
    layout = call("torch.serialization:_get_layout", "torch.sparse_coo")
    sparse = call("torch._utils:_rebuild_sparse_tensor", layout, (indices, values, (2,), False))
    return _model(sparse, **{"0": struct.pack("<q", 2**40), "1": b"\0" * 4})


def _a_size_that_lies() -> bytes:
    """Return an archive whose storage says that it has 3 GiB."""
    content = bytearray(_model(_tensor(_persistent("0", 1), (1,), (1,)), **{"0": b"\0" * 4}))
    at = content.rindex(b"PK\x01\x02", 0, content.rindex(b"archive/data/0"))
    content[at + 20 : at + 28] = struct.pack("<II", 3 << 30, 3 << 30)
    return bytes(content)


EXHAUSTING: Final[tuple[Exhausting, ...]] = (
    Exhausting("9 bytes, a memo of 4 GB", lambda: b"\x80\x02Nr\xff\xff\xff\x1f."),
    Exhausting(
        "4 GB reserved for a bytearray", lambda: b"\x80\x05\x96" + struct.pack("<Q", 2**32) + b"."
    ),
    Exhausting("an integer of a million digits", lambda: b"I" + b"9" * 1_000_000 + b"\n."),
    Exhausting(
        "tuples that double 40 times", lambda: b"\x80\x02" + doubling(40, b"GET\x86") + b"."
    ),
    Exhausting(
        "a key of tuples that double", lambda: b"\x80\x02}" + doubling(30, b"GET\x86") + b"Ns."
    ),
    Exhausting("a thirty thousand tuples deep", lambda: b"\x80\x02N" + b"\x85" * 30_000 + b"."),
    Exhausting(
        "a key a thirty thousand tuples deep", lambda: b"\x80\x02}N" + b"\x85" * 30_000 + b"Ns."
    ),
    Exhausting(
        "a memo of one hash",
        lambda: b"\x80\x02N" + b"".join(b"p%d\n" % (n * (2**61 - 1)) for n in range(40_000)) + b".",
    ),
    Exhausting(
        "a text that doubles",
        lambda: b"\x80\x02X\x10\0\0\0" + b"x" * 16 + doubling(40, b"](GETGETe")[1:] + b".",
    ),
    Exhausting(
        "a storage of 6 GB that is not there",
        lambda: as_legacy(
            pickled({"w": _tensor(_legacy_storage(1_500_000_000), (1,), (1,))}, 2),
            pickled(["0"], 2) + struct.pack("<q", 1_500_000_000),
        ),
        ".pt",
    ),
    Exhausting("an archive that is a bomb", bomb, ".pt"),
    Exhausting(
        "a tensor of 10^12 elements",
        lambda: _model(
            _tensor(_persistent("0", 1), (1_000_000, 1_000_000), (0, 0)), **{"0": b"\0" * 4}
        ),
        ".pt",
    ),
    Exhausting(
        "a storage smaller than it says",
        lambda: _model(_tensor(_persistent("0", 1 << 28), (1 << 28,), (1,)), **{"0": b"\0" * 4}),
        ".pt",
    ),
    Exhausting("a sparse tensor with a wild index", _sparse, ".pt"),
    Exhausting("a million tuples deep, deflated", _deflated_nesting, ".pt"),
    Exhausting(
        "a key of tuples that double, in a model file",
        lambda: as_archive(b"\x80\x02}" + doubling(30, b"GET\x86") + b"Ns."),
        ".pt",
    ),
    Exhausting("a member with a size that lies", _a_size_that_lies, ".pt"),
)


def _legacy_storage(elements: int) -> Raw:
    """Refer to a storage, as the older file does: with a place for a view."""
    parts = ("storage", name("torch:FloatStorage"), "0", "cpu", elements, None)
    return Raw(pickled(parts, 2)[2:-1] + b"Q")
