"""Files that readers could differ on, or that lie about their sizes: refused before PyTorch."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from safepoint.errors import (
    CheckpointError,
    LimitExceeded,
    ModelMalformed,
    PickleRefused,
    UnsafeModel,
)
from safepoint.models import Kind, ModelLimits, Verdict, classify, identify, inspect
from safepoint.models.plan import TensorPlan, read_plan
from safepoint.models.tensors import Entry, read_table
from safepoint.models.zips import read_directory
from tests.unit.archive_helpers import (
    BYTES,
    FALSE,
    HOOKS,
    NONE,
    TRUE,
    VERSION,
    Part,
    archive,
    call,
    legacy,
    name,
    number,
    proto,
    sizes,
    storage,
    tensor,
    text,
    tuple_,
    wide_end,
    zipped,
)

FOUR = struct.pack("<4f", 1, 2, 3, 4)
PICKLE = ("archive/data.pkl", proto(tensor()))
STORAGE = ("archive/data/0", FOUR)
HONEST = (PICKLE, STORAGE, VERSION)
SMALL = ModelLimits(tensors=1000, elements=10**6, memory_bytes=10**6)
DESCRIBED = struct.pack("<4s3L", b"PK\7\10", zlib.crc32(FOUR), 16, 16)


def planned(data: bytes, limits: ModelLimits = SMALL) -> dict[str, TensorPlan]:
    file = io.BytesIO(data)
    members = None
    if data[:1] != b"\x80":
        members = read_directory(file, len(data), limits.entries)
    return read_plan(file, members, limits)


def both(name: str, data: bytes = FOUR, **fields: Any) -> Part:
    return Part(name, data, central=dict(fields), local=dict(fields))


def test_honest_archives_are_planned() -> None:
    float32 = {"tensor": TensorPlan("float32", (4,))}
    assert planned(zipped(*HONEST)) == float32
    described = Part(*STORAGE, after=DESCRIBED, central={"flags": 8}, local={"flags": 8})
    assert planned(zipped(PICKLE, described, VERSION)) == float32
    padded = Part(*STORAGE, local={"extra": b"FB\2\0ab"})
    assert planned(zipped(PICKLE, padded, ("archive/byteorder", b"big"), VERSION)) == float32
    assert planned(legacy(tensor(storage("0", 4, ("torch", "FloatStorage"), "cpu", NONE)))) == (
        float32
    )
    v3 = call(
        ("torch._utils", "_rebuild_tensor_v3"),
        *(storage(count=16, kind=BYTES), number(0), sizes((8,)), sizes((1,)), FALSE, HOOKS),
        name("torch", "uint16"),
    )
    assert planned(archive(proto(v3), {"0": FOUR})) == {"tensor": TensorPlan("uint16", (8,))}
    parameter = call(("torch._utils", "_rebuild_parameter"), tensor(), TRUE, HOOKS)
    assert planned(archive(proto(parameter), {"0": FOUR})) == float32


# What makes an archive one that two readers could see in two ways, and a word of the refusal.
ZIPS: dict[str, tuple[bytes, str]] = {
    "no members": (zipped(), "empty"),
    "cut short": (zipped(*HONEST)[:-1], "does not end as one"),
    "a comment": (zipped(*HONEST, comment=b"pickle"), "does not end as one"),
    "bytes behind the end": (zipped(*HONEST, tail=b"\x80\x02N."), "does not end as one"),
    "bytes before it": (zipped(Part(*PICKLE, before=b"\0\0\0"), VERSION), "leaves a gap"),
    "bytes between two": (zipped(PICKLE, Part(*VERSION, before=b"\0")), "leaves a gap"),
    "bytes before the directory": (zipped(*HONEST, gap=b"\0"), "belong to none"),
    "bytes after the directory": (zipped(*HONEST, wide=b"\0" * 100), "belong to none"),
    "another start": (zipped(*HONEST, start=0), "belong to none"),
    "several disks": (zipped(*HONEST, disk=1), "one part of several"),
    "entries elsewhere": (zipped(*HONEST, here=2), "one part of several"),
    "fewer entries": (zipped(*HONEST, here=2, count=2), "belong to no entry"),
    "more entries": (zipped(*HONEST, here=5, count=5), "cut short"),
    "another signature": (
        zipped(PICKLE, Part(*VERSION, central={"signature": b"PK\1\3"})),
        "damaged",
    ),
    "an entry with a comment": (
        zipped(PICKLE, Part(*VERSION, central={"comment": b"hi"})),
        "encrypted, a folder",
    ),
    "an entry on another disk": (zipped(PICKLE, Part(*VERSION, central={"disk": 1})), "damaged"),
    "a member twice": (zipped(PICKLE, PICKLE, VERSION), "Two members"),
    "but for the case": (zipped(("archive/DATA.pkl", b"N."), PICKLE, VERSION), "their case"),
    "a long name": (zipped(PICKLE, ("archive/" + "x" * 600, b""), VERSION), "unsafe name"),
    "no text as name": (zipped(Part(b"archive/data.pkl\xff", b"N."), VERSION), "unsafe name"),
    "a way out": (zipped(("../data.pkl", b"N."), VERSION), "one folder|unsafe name"),
    "two folders": (zipped(PICKLE, STORAGE, ("other/version", b"3\n")), "all in one folder"),
    "encrypted": (zipped(both("archive/data.pkl", flags=1), VERSION), "encrypted"),
    "a folder": (
        zipped(PICKLE, Part(*STORAGE, central={"attributes": 0x10}), VERSION),
        "a folder",
    ),
    "rarely packed": (zipped(both("archive/data.pkl", method=93), VERSION), "does not use"),
    "two sizes": (zipped(both("archive/data.pkl", size=5), VERSION), "two sizes"),
    "another name inside": (
        zipped(Part(*PICKLE, local={"name": b"archive/DATA.pkl"}), VERSION),
        "another one in the directory",
    ),
    "packed in one half": (zipped(Part(*PICKLE, local={"method": 8}), VERSION), "another one"),
    "another header": (zipped(Part(*PICKLE, local={"signature": b"PK\3\5"})), "another one"),
    "another size inside": (zipped(Part(*PICKLE, local={"size": 3}), VERSION), "another size"),
    "no size inside": (
        zipped(Part(*PICKLE, local={"size": 0, "packed": 0, "crc": 0}), VERSION),
        "another size",
    ),
    "another checksum inside": (zipped(Part(*PICKLE, local={"crc": 3})), "another size"),
    "another size behind": (
        zipped(
            PICKLE,
            Part(*STORAGE, after=DESCRIBED[:-1] + b"\1", central={"flags": 8}, local={"flags": 8}),
            VERSION,
        ),
        "another size",
    ),
    "beyond the archive": (
        zipped(PICKLE, both("archive/version", b"3\n", size=500, packed=500)),
        "beyond the archive",
    ),
    "two entries for the same bytes": (
        zipped(PICKLE, STORAGE, Part("archive/data/1", FOUR, central={"at": 46}), VERSION),
        "overlaps",
    ),
    "an extra field of another tool": (
        zipped(Part(*PICKLE, local={"extra": b"UT\4\0abcd"}), STORAGE, VERSION),
        "another tool",
    ),
    "an extra field that is cut": (zipped(Part(*PICKLE, local={"extra": b"FB"})), "damaged"),
    "an extra field that is too long": (
        zipped(Part(*PICKLE, local={"extra": b"FB\4\0a"})),
        "damaged",
    ),
    "an extra field twice": (zipped(Part(*PICKLE, local={"extra": b"FB\0\0" * 2})), "damaged"),
    "a large size that is missing": (
        zipped(Part(*PICKLE, central={"size": 0xFFFFFFFF})),
        "does not fit it",
    ),
    "no pickle": (zipped(STORAGE, VERSION), "no data.pkl or no version"),
    "another member": (zipped(*HONEST, ("archive/hello", b"")), "torch.save does not write"),
    "a version that is none": (
        zipped(PICKLE, STORAGE, ("archive/version", b"three")),
        "does not say what PyTorch writes",
    ),
    "a checksum that is wrong": (
        zipped(both(PICKLE[0], PICKLE[1], crc=7), STORAGE, VERSION),
        "does not match its checksum",
    ),
    "a spare storage": (zipped(*HONEST, ("archive/data/1", b"")), "which no tensor uses"),
}


@pytest.mark.parametrize("case", ZIPS)
def test_an_archive_that_readers_could_differ_on_is_refused(case: str) -> None:
    data, word = ZIPS[case]
    with pytest.raises(ModelMalformed, match=word):
        planned(data)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"count": 9, "here": 9}, "disagree"),
        ({"signature": b"PK\6\5"}, "not where it should be"),
        ({"place": 7}, "not where it should be"),
        ({"rest": 45}, "not where it should be"),
        ({"disks": 2}, "one part of several"),
        ({"this": 1}, "one part of several"),
        ({}, ""),
    ],
)
def test_the_records_that_end_an_archive_must_agree(changes: dict[str, Any], word: str) -> None:
    plain = zipped(*HONEST)
    start, length = struct.unpack("<LL", plain[-6:-2] + plain[-10:-6])
    told = {"here": 3, "count": 3, "start": start, "length": length, **changes}
    data = zipped(*HONEST, wide=wide_end(start + length, **told))
    if not word:
        assert planned(data)
        return
    with pytest.raises(ModelMalformed, match=word):
        planned(data)


def test_what_is_compressed_is_refused_unless_the_limits_allow_it() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in HONEST:
            packed.writestr(name, data)
    with pytest.raises(LimitExceeded, match="PyTorch does not compress"):
        planned(file.getvalue())
    assert planned(file.getvalue(), ModelLimits(ratio=1000))


def one(*code: bytes) -> bytes:
    return archive(proto(*code), {"0": FOUR})


def doubled(levels: int) -> bytes:
    """Return a list of two of what is a list of two of …: small in the file, 2**levels outside."""
    code = b"]q\0"
    for level in range(levels):
        code += b"](" + b"h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1])
    return proto(code)


Refusal = tuple[Callable[[], bytes], type[CheckpointError], str]
PLANS: dict[str, Refusal] = {
    "gigabytes of zeros": (
        lambda: one(call(("builtins", "bytearray"), number(6 * 10**9))),
        ModelMalformed,
        "A bytearray is made",
    ),
    "gigabytes of nothing": (
        lambda: one(call(("torch", "FloatTensor"), number(15 * 10**8))),
        UnsafeModel,
        "a tensor without data",
    ),
    "10^12 elements": (
        lambda: one(tensor(None, 0, (10**12,), (0,))),
        LimitExceeded,
        "raise ModelLimits.elements",
    ),
    "sizes that overflow": (
        lambda: one(tensor(None, 0, (2**62, 2**62, 0), (0, 0, 0))),
        LimitExceeded,
        "raise ModelLimits.elements",
    ),
    "many of one": (
        lambda: one(tuple_(*[tensor(None, at, (10**5,), (0,)) for at in range(4)])),
        LimitExceeded,
        "1200000 bytes when they are copied, and are made of 16",
    ),
    "another size than its member": (
        lambda: one(tensor(storage(count=10**9), 0, (10**5,), (1,))),
        ModelMalformed,
        "is 4000000000 bytes in the pickle, and in the archive 16",
    ),
    "a missing storage": (
        lambda: one(tensor(), tensor(storage("7")), b"\x86"),
        ModelMalformed,
        "in the archive missing",
    ),
    "beyond its storage": (lambda: one(tensor(None, 0, (5,))), ModelMalformed, "beyond its"),
    "by its offset": (lambda: one(tensor(None, 1)), ModelMalformed, "beyond its storage"),
    "by its stride": (
        lambda: one(tensor(None, 0, (2, 2), (2**62, 1))),
        ModelMalformed,
        "beyond its storage",
    ),
    "empty, and beyond": (lambda: one(tensor(None, 5, (0,))), ModelMalformed, "beyond its"),
    "a sparse tensor": (
        lambda: one(call(("torch._utils", "_rebuild_sparse_tensor"), NONE, tensor())),
        UnsafeModel,
        "a sparse tensor",
    ),
    "2^30 values": (lambda: archive(doubled(30)), LimitExceeded, "500000 values, written out"),
    "deep": (
        lambda: archive(proto(b")" + b"\x85" * 100_000)),
        LimitExceeded,
        "deeper than 64 levels",
    ),
    "a million tensors": (
        lambda: one(tensor() + b"q\0(" + b"h\0" * 1001 + b"t\x86"),
        LimitExceeded,
        "more than 1000 tensors",
    ),
    "a memo of gigabytes": (
        lambda: archive(proto(b"Nr\xff\xff\xff\xff")),
        LimitExceeded,
        "raise ModelLimits.tensors",
    ),
    "a storage of two types": (
        lambda: one(tensor(), tensor(storage(kind=("torch", "IntStorage"))), b"\x86"),
        ModelMalformed,
        "described twice",
    ),
    "a storage alone": (lambda: one(storage()), UnsafeModel, "a storage by itself"),
    "a type of storage": (
        lambda: one(name("torch", "FloatStorage"), tensor(), b"\x86"),
        ModelMalformed,
        "a type of storage as a value",
    ),
    "a storage's key": (lambda: one(tensor(storage("../0"))), ModelMalformed, "a way that"),
    "a device": (lambda: one(tensor(storage(device="meta"))), ModelMalformed, "a way that"),
    "a module": (
        lambda: one(tuple_(text("module"), NONE) + b"Q"),
        UnsafeModel,
        "no storage of a tensor",
    ),
    "hooks": (lambda: one(tensor(hooks=b"}K\1K\1s")), ModelMalformed, "has hooks"),
    "gradients of integers": (
        lambda: one(tensor(storage(kind=("torch", "IntStorage")), grad=TRUE)),
        ModelMalformed,
        "asks for gradients",
    ),
    "a negative size": (lambda: one(tensor(None, 0, (-1,))), ModelMalformed, "no tensor has"),
    "a tensor as a key": (lambda: one(b"}", tensor(), b"K\1s"), ModelMalformed, "as a key"),
    "a way that is long": (
        lambda: one(b"}", text("k" * 5000), tensor(), b"s"),
        LimitExceeded,
        "longer than 4096",
    ),
    "an OrderedDict with methods": (
        lambda: one(call(("collections", "OrderedDict")), b"}", text("items"), b"K\1sb"),
        ModelMalformed,
        "attributes that a state_dict does not have",
    ),
    "code": (lambda: one(call(("os", "system"), text("id"))), UnsafeModel, "wants os.system,"),
    "code behind damage": (
        lambda: one(b"0", call(("os", "system"), text("id"))),
        UnsafeModel,
        "wants os.system,",
    ),
    "another instruction": (lambda: one(b"I1\n"), ModelMalformed, "uses INT, which a file of"),
    "more behind the pickle": (
        lambda: archive(proto(NONE) + b"N."),
        ModelMalformed,
        "is followed by more",
    ),
    "TorchScript": (
        lambda: zipped(*HONEST, ("archive/code/__torch__.py", b"")),
        UnsafeModel,
        "which holds code",
    ),
    "old: another number": (lambda: legacy(b"N", (), b"", magic=7), ModelMalformed, "the number"),
    "old: a storage too many": (
        lambda: legacy(b"N", ("0",)),
        ModelMalformed,
        "not that of the tensors",
    ),
    "old: another count": (
        lambda: legacy(
            tensor(storage("0", 4, ("torch", "FloatStorage"), "cpu", NONE)),
            storages=struct.pack("<q4f", 10**9, 1, 2, 3, 4),
        ),
        ModelMalformed,
        "has 1000000000 elements",
    ),
    "old: a new type": (
        lambda: legacy(tensor(storage("0", 16, BYTES, "cpu", NONE))),
        ModelMalformed,
        "came after 2021",
    ),
    "old: no bytes of a storage": (
        lambda: legacy(
            tensor(storage("0", 4, ("torch", "FloatStorage"), "cpu", NONE)), storages=b""
        ),
        ModelMalformed,
        "cut short",
    ),
    "old: cut short": (
        lambda: legacy(tensor(storage("0", 4, ("torch", "FloatStorage"), "cpu", NONE)))[:-1],
        ModelMalformed,
        "cut short, or is followed by more",
    ),
}


@pytest.mark.parametrize("case", PLANS)
def test_a_file_is_refused_for_what_it_would_build(case: str) -> None:
    make, error, word = PLANS[case]
    with pytest.raises(error, match=word) as refusal:
        planned(make())
    assert type(refusal.value) is error


def test_a_limit_is_the_last_that_passes() -> None:
    two = one(tensor(), tensor(), b"\x86")
    assert len(planned(two, ModelLimits(tensors=2))) == 2
    for limits in (ModelLimits(tensors=1), ModelLimits(file_bytes=len(two) - 1)):
        with pytest.raises(LimitExceeded):
            planned(two, limits)
    old = legacy(tensor(storage("0", 4, ("torch", "FloatStorage"), "cpu", NONE)))
    with pytest.raises(LimitExceeded, match=r"raise ModelLimits\.pickle_bytes"):
        planned(old, ModelLimits(pickle_bytes=50))


def test_two_tensors_of_one_path_are_two() -> None:
    """{"a/b": …, "a": {"b": …}} is an honest state, and was called malformed."""
    inner = b"}" + text("b") + tensor() + b"s"
    state = b"}(" + text("a/b") + tensor() + text("a") + inner + b"u"
    assert list(planned(one(state))) == ["a/b", "a/b#2"]


def built(header: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype: Any = "U8", shape: Any = (1,), offsets: Any = (0, 1), **more: Any) -> Any:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def of(tensors: Any, data: bytes = b"x") -> bytes:
    return built(json.dumps(tensors), data)


ENTRY = json.dumps(entry())
TABLES: dict[str, tuple[bytes, str]] = {
    "a name twice": (built(f'{{"a":{ENTRY},"a":{ENTRY}}}', b"x"), "'a' twice"),
    "a field twice": (built('{"a":{"dtype":"U8","dtype":"U8"}}'), "'dtype' twice"),
    "metadata twice": (built('{"__metadata__":{"k":"1","k":"2"}}'), "'k' twice"),
    "metadata that are null": (of({"__metadata__": None}, b""), "metadata that are not texts"),
    "half a character": (of({"__metadata__": {"k": "\ud800"}}, b""), "half a character"),
    "a way out": (of({"../a": entry()}), "way out of a folder"),
    "an absolute name": (of({"/a": entry()}), "way out of a folder"),
    "a backslash": (of({"a\\b": entry()}), "way out of a folder"),
    "no name": (of({"": entry()}), "is empty"),
    "a line break": (of({"a\nb": entry()}), "cannot be shown"),
    "a long name": (of({"a" * 513: entry()}), "longer than 512"),
    "a key that nobody reads": (of({"a": entry(note="hi")}), "something else than dtype"),
    "no offsets": (of({"a": {"dtype": "U8", "shape": [1]}}), "something else than dtype"),
    "a deeper entry": (of({"a": {"b": entry()}}), "something else than dtype"),
    "more after the JSON": (built(f'{{"a":{ENTRY}}}\n', b"x"), "after the JSON"),
    "a space before it": (built(f' {{"a":{ENTRY}}}', b"x"), "is not JSON"),
    "no JSON": (built("hello"), "is not JSON"),
    "no header": (b"\0\0\0", "ends before its header"),
    "a cut header": (built('{"a":', length=50), "ends before its header does"),
    "not UTF-8": (built(b'{"\xff":1}'), "is not JSON"),
    "nesting": (built('{"a":' + "[" * 9999), "nested too deep"),
    "an entry alone": (of(entry()), "one entry and not a table"),
    "NaN": (built('{"a":NaN}'), "'NaN' in its header"),
    "a fraction": (of({"a": entry(shape=[1.0])}), "not an integer"),
    "minus zero": (of({"a": 1}).replace(b"1", b"-0"), "not an integer"),
    "a truth value": (of({"a": entry(shape=[True])}), "not a list of sizes"),
    "a negative size": (of({"a": entry(shape=[-1], offsets=[1, 0])}), "not a list of sizes"),
    "three offsets": (of({"a": entry(offsets=[0, 1, 1])}), "not two places"),
    "negative offsets": (of({"a": entry(offsets=[-1, 0])}), "not two places"),
    "a large shape": (of({"a": entry(shape=[2])}), "another number of bytes"),
    "an unknown type": (of({"a": entry("F4", [2])}), "not one of those that are loaded"),
    "a hole": (of({"a": entry(), "b": entry(offsets=[2, 3])}, b"xyz"), "after a hole"),
    "an overlap": (
        of({"a": entry(shape=[2], offsets=[0, 2]), "b": entry(offsets=[1, 2])}, b"xy"),
        "overlaps",
    ),
    "bytes too few": (of({"a": entry()}, b""), "ends before its last tensor"),
    "bytes too many": (of({"a": entry()}, b"xy"), "1 bytes after its last tensor"),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_safetensors_file_of_two_meanings_is_refused(case: str) -> None:
    data, word = TABLES[case]
    with pytest.raises(ModelMalformed, match=word):
        read_table(data, len(data))
    if identify(data) is Kind.SAFETENSORS:
        assert classify(data).verdict is Verdict.NOT_LOOKED_INTO


def test_a_table_says_what_where_and_its_limits_hold() -> None:
    data = of({"__metadata__": {"format": "pt"}, "a": entry("F32", [1], [0, 4])}, FOUR[:4])
    start = len(data) - 4
    assert read_table(data, len(data)) == {"a": Entry("float32", (1,), start, start + 4)}
    for header, limits in (
        (of({"a": entry("U8", [2**35], [0, 2**35])}), ModelLimits()),
        (of({"a": entry("U8", [2**35, 0], [0, 0])}, b""), ModelLimits()),
        (of({"a": entry("U8", [1] * 65)}), ModelLimits()),
        (of({str(n): 0 for n in range(50)}), ModelLimits(tensors=1)),
        (built("[" * 999, length=999), ModelLimits(tensors=1)),
        (built("{}", length=10**9), ModelLimits()),
        (of({"__metadata__": {str(n): "" for n in range(1001)}}, b""), ModelLimits()),
    ):
        with pytest.raises(LimitExceeded):
            read_table(header, len(header), limits)


RUNS = b"cos\nsystem\n(S'id'\ntR."
LENIENT = b"I 1\n0cos\nsystem\n(S'id'\ntR."  # C's unpickler reads I 1


def zip_of(name: str, data: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as packed:
        packed.writestr(name, data)
    return file.getvalue()


def tar_of(data: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo("state.pkl")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


PACKED = {
    "gzip": gzip.compress(RUNS),
    "zlib": zlib.compress(RUNS),
    "bz2": bz2.compress(RUNS),
    "xz": lzma.compress(RUNS),
    "lzma": lzma.compress(RUNS, lzma.FORMAT_ALONE),
    "tar": tar_of(RUNS),
    "zip": zip_of("state.pkl", RUNS),
}


@pytest.mark.parametrize("how", PACKED)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_what_is_packed_in_a_zip_is_never_green(how: str, method: int) -> None:
    """inspect called such a zip plain, though it had not looked into the member."""
    found = inspect(zip_of("weights.dat", PACKED[how], method))
    assert not found.plain
    assert found.unseen[0].endswith("which is not looked into.")
    assert found.verdict is Verdict.NOT_LOOKED_INTO
    if how != "zip":
        assert classify(PACKED[how]).verdict is Verdict.NOT_LOOKED_INTO
    else:
        assert classify(PACKED[how]).verdict is Verdict.RUNS_CODE


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


def tar_like() -> bytes:
    """PyTorch looks for a tar archive first, and one checksum is all that a tar needs."""
    plain = legacy(NONE, (), b"", machine=text("0" * 1000))
    header = bytearray(plain[:512])
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + plain[512:]


VERDICTS: dict[str, tuple[bytes, Verdict]] = {
    "a raw pickle that runs code": (RUNS, Verdict.RUNS_CODE),
    "one that only lenient readers follow": (LENIENT, Verdict.RUNS_CODE),
    "one in a zip": (zip_of("x.dat", RUNS), Verdict.RUNS_CODE),
    "the second of two": (pickle.dumps(1) + RUNS, Verdict.RUNS_CODE),
    "one in base64": (
        b'{"__pickled__": "Y29zCnN5c3RlbQooUydpZCcKdFIu", "__type__": "x"}',
        Verdict.RUNS_CODE,
    ),
    "objects of an array": (array("|O", RUNS), Verdict.RUNS_CODE),
    "a model that runs code": (one(call(("os", "system"), text("id"))), Verdict.RUNS_CODE),
    "TorchScript": (zipped(*HONEST, ("archive/code/x.py", b"")), Verdict.RUNS_CODE),
    "a sparse tensor": (
        one(call(("torch._utils", "_rebuild_sparse_tensor"), NONE, tensor())),
        Verdict.REFUSED,
    ),
    "the old format, and a tar": (tar_like(), Verdict.REFUSED),
    "two things at once": (RUNS + zip_of("a", b""), Verdict.REFUSED),
    "a pickle, and more": (pickle.dumps([1, 2]) + b"more", Verdict.REFUSED),
    "a pickle cut short": (b"\x80\x04]\x94(K\x01", Verdict.REFUSED),
    "safetensors, and code": (padded(0x56, b"\n0cos\nsystem\n"), Verdict.REFUSED),
    "and code behind odd numbers": (
        padded(0x5628, b"\n(0I 7\nF1\0 and more\ncos\nsystem\n"),
        Verdict.REFUSED,
    ),
    "safetensors, and a pickle": (texts_and_stop(), Verdict.REFUSED),
    "a text behind a pickle": (pickle.dumps(1) + pickle.dumps(2) + b"more", Verdict.REFUSED),
    "a sealed record": (b"safepoint/1 0123456789abcdef x\n{}\n{}\n", Verdict.NOT_A_MODEL),
    "a plain pickle": (pickle.dumps({"amount": 42}), Verdict.PICKLE),
    "a PyTorch archive": (zipped(*HONEST), Verdict.TORCH),
    "the old format": (
        legacy(tensor(storage("0", 4, ("torch", "FloatStorage"), "cpu", NONE))),
        Verdict.TORCH,
    ),
    "safetensors": (of({"a": entry()}), Verdict.SAFETENSORS),
    "an array of numbers": (array("<i2", b"\0\0"), Verdict.NOT_A_MODEL),
    "a page": (b"# Models\n\nN. B.: text.\n", Verdict.NOT_A_MODEL),
    "JSON": (b'{"a": [1, 2]}', Verdict.NOT_A_MODEL),
    "nothing": (b"", Verdict.NOT_A_MODEL),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_content_decides_what_a_file_is(case: str) -> None:
    data, verdict = VERDICTS[case]
    assert classify(data).verdict is verdict


def test_the_worst_comes_first_whatever_its_name(tmp_path: Any) -> None:
    """A raw os.system pickle named pytorch_model.bin is worse than an honest .pt."""
    (tmp_path / "pytorch_model.bin").write_bytes(RUNS)
    (tmp_path / "honest.pt").write_bytes(zipped(*HONEST))
    raw, honest = (classify(tmp_path / each) for each in ("pytorch_model.bin", "honest.pt"))
    order = list(Verdict)
    assert order.index(raw.verdict) == 0 < order.index(honest.verdict)
    assert raw.what == "It is a pickle, and asks for os.system."


def test_a_zip_of_another_tool_is_read_and_a_polyglot_is_not() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.mkdir("folder")
        with made.open("folder/a.npy", "w", force_zip64=True) as member:
            member.write(b"text")
    assert identify(file.getvalue()) is Kind.ZIP
    assert inspect(file.getvalue()).plain
    for data in (b"text" + file.getvalue(), file.getvalue() + b"text"):
        with pytest.raises((ModelMalformed, PickleRefused)):
            inspect(data)
