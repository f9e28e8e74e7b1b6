"""What a file is, by its content: honest files of each kind, and files that are two at once."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint.errors import ConfigurationError, LimitExceeded, ModelMalformed
from safepoint.pickles.kinds import Kind, identify
from safepoint.pickles.limits import PickleLimits

AGAIN = "Get the file again from whoever made it. Nothing in it was loaded."
MAGIC = 0x1950A86A20F9469CFC6C


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def streamed(members: dict[str, bytes]) -> bytes:
    """Return an archive that was written to a pipe: sizes stand behind the members."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.data += bytes(data)
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return pipe.data


def tarred(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def tensors(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


TENSORS = tensors({"a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}}, b"abc")
TORCH = zipped({"model/data.pkl": pickle.dumps({}, 2), "model/version": b"3\n"})
PARTS: list[Any] = [MAGIC, 1001, {}, {}, []]
LEGACY = b"".join(pickle.dumps(part, 2) for part in PARTS) + b"\0" * 99

HONEST: dict[str, tuple[Kind, bytes]] = {
    "nothing": (Kind.EMPTY, b""),
    "a record": (Kind.SEALED, b'safepoint/1 k abc=\n{"app":""}\n{}'),
    "a pruned record": (Kind.SEALED, b"0000000007\nsafepoint/1 k abc=\n{}\n{}"),
    "safetensors": (Kind.SAFETENSORS, TENSORS),
    "safetensors of nothing": (Kind.SAFETENSORS, tensors({})),
    "safetensors with metadata": (Kind.SAFETENSORS, tensors({"__metadata__": {"format": "pt"}})),
    "a torch archive": (Kind.TORCH_ZIP, TORCH),
    "a TorchScript archive": (
        Kind.TORCH_SCRIPT,
        zipped({"m/data.pkl": b"N.", "m/code/x.py": b"", "m/constants.pkl": b"N."}),
    ),
    "TorchScript without constants": (
        Kind.TORCH_SCRIPT,
        zipped({"m/data.pkl": b"N.", "m/code/x.py": b""}),
    ),
    "a torch file before 1.6": (Kind.TORCH_LEGACY, LEGACY),
    "a torch file before 1.6, protocol 4": (Kind.TORCH_LEGACY, pickle.dumps(MAGIC, 4) + b"\xff"),
    "a torch tar": (Kind.TORCH_TAR, tarred({"sys_info": b"", "pickle": b"N.", "storages": b"0"})),
    "a tar": (Kind.TAR, tarred({"a": b"x" * 700, "b": b""})),
    "a tar whose first name reads as a pickle": (Kind.TAR, tarred({"N.txt": b""})),
    "pickles": (Kind.PICKLES, pickle.dumps(1) + pickle.dumps([2], 0)),
    "a zip": (Kind.ZIP, zipped({"a.txt": b"hello", "b/c.txt": b""}, zipfile.ZIP_DEFLATED)),
    "a zip of nothing": (Kind.ZIP, zipped({})),
    "a zip from a pipe": (Kind.ZIP, streamed({"a.txt": b"hello", "b.txt": b"x"})),
    "an array": (Kind.NPY, npy(np.arange(6.0).reshape(2, 3))),
    "an array of one number": (Kind.NPY, npy(np.float64(3))),
    "an array of texts": (Kind.NPY, npy(np.array(["a", "bcd"]))),
    "an array of times": (Kind.NPY, npy(np.array(["2026-01-31"], dtype="datetime64[s]"))),
    "an array of objects": (Kind.NPY, npy(np.array([{}, None], dtype=object), allow_pickle=True)),
    "an array of records": (Kind.NPY, npy(np.zeros(2, dtype=[("x", "i4"), ("y", "f8")]))),
    "arrays": (Kind.NPZ, npz(a=np.arange(3), b=np.arange(2))),
    "gzip": (Kind.GZIP, gzip.compress(b"x")),
    "bzip2": (Kind.BZ2, bz2.compress(b"x")),
    "xz": (Kind.XZ, lzma.compress(b"x")),
    "zstd": (Kind.ZSTD, b"\x28\xb5\x2f\xfd\x04\x00\x09\x00\x00x"),
    "an object": (Kind.JSON, b' {"a": [1, 2.5e3, null, "x"]}\n'),
    "a number": (Kind.JSON, b"0.5"),
    "a word": (Kind.JSON, b"null"),
    "text": (Kind.UNKNOWN, b"hello"),
    "text that begins like a pickle": (Kind.UNKNOWN, b"N. Smith wrote:"),
    "numbers with commas": (Kind.UNKNOWN, b"0.5,0.3\n"),
    "STOP": (Kind.UNKNOWN, b"."),
    "half of an object": (Kind.UNKNOWN, b'{"a": '),
    "two objects": (Kind.UNKNOWN, b"{}{}"),
    "an object with a key twice": (Kind.UNKNOWN, b'{"a":1,"a":2}'),
    "half of a pickle": (Kind.UNKNOWN, pickle.dumps([1, 2])[:-1]),
    "instructions that leave nothing": (Kind.UNKNOWN, b"N0."),
    "instructions that take what is not there": (Kind.UNKNOWN, b"\x80\x04a."),
    "a mark that is not there": (Kind.UNKNOWN, b"Nt."),
    "a header that is none": (Kind.UNKNOWN, tensors(b"{nonsense}")),
    "a header without offsets": (Kind.UNKNOWN, tensors({"a": {"dtype": "U8"}})),
    "a header of another shape": (Kind.UNKNOWN, tensors({"a": {"data_offsets": [0, "x"]}})),
    **{
        f"a pickle of protocol {protocol}": (Kind.PICKLE, pickle.dumps({"a": [1, (2,)]}, protocol))
        for protocol in range(6)
    },
}


@pytest.mark.parametrize(("kind", "data"), HONEST.values(), ids=HONEST)
def test_a_file_is_what_its_content_says(kind: Kind, data: bytes) -> None:
    assert identify(data) is kind


@pytest.mark.parametrize(("kind", "data"), HONEST.values(), ids=HONEST)
def test_an_open_file_is_left_at_its_beginning(kind: Kind, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "misleading.safetensors"
    path.write_bytes(data)
    for buffering in (-1, 0):
        with path.open("rb", buffering=buffering) as file:
            file.read(3)
            assert identify(file) is kind
            assert file.tell() == 0


def test_each_kind_has_a_sentence_and_a_file_above() -> None:
    assert {kind for kind, _ in HONEST.values()} == set(Kind)
    assert len({kind.sentence for kind in Kind}) == len(Kind)
    assert Kind.TORCH_ZIP.sentence == "a PyTorch archive"


def in_comment(archive: bytes, extra: bytes) -> bytes:
    return archive[:-2] + struct.pack("<H", len(extra)) + extra


BEGINS = (
    "The file begins as a zip archive, and does not end as one: it is cut short, or bytes follow."
)
ENDS = "The file does not begin as a zip archive, and ends as one."
TENSORS_END = (
    "The safetensors file does not end where its last tensor does: it is cut short, or bytes"
    " follow."
)
ARRAY_END = (
    "The NumPy array does not end where its last item does: it is cut short, or bytes follow."
)
OUTSIDE = "The archive has bytes that belong to none of its members."
PICKLE = pickle.dumps([1, 2])
ZIPPED = zipped({"a.txt": b"hello"})


def follows(data: bytes) -> str:
    return f"The file is a pickle, and something else follows at byte {len(data)}."


def named_like(name: bytes) -> bytes:
    """Return a tar archive whose first name begins with these bytes."""
    archive = bytearray(tarred({"x" * len(name): b""}))
    archive[: len(name)] = name
    summed = sum(archive[:512]) - sum(archive[148:156]) + 8 * 32
    archive[148:156] = b"%06o\0 " % summed
    return bytes(archive)


TWO: dict[str, tuple[str, bytes]] = {
    "a script before a zip": (ENDS, b"#!/bin/sh\n" + ZIPPED),
    "a pickle before a zip": (ENDS, PICKLE + TORCH),
    "safetensors before a zip": (ENDS, TENSORS + TORCH),
    "safetensors that hold a zip": (
        ENDS,
        tensors({"a": {"data_offsets": [0, len(ZIPPED)]}}, ZIPPED),
    ),
    "gzip before a zip": (ENDS, gzip.compress(b"x") + ZIPPED),
    "JSON before a zip": (ENDS, b"{}" + ZIPPED),
    "a record before a zip": (ENDS, b"safepoint/1 k abc=\n" + ZIPPED),
    "a pickle that holds a zip": (ENDS, pickle.dumps(ZIPPED)),
    "a zip, moved, with bytes behind it": (ENDS, b"x" + ZIPPED + b"more"),
    "bytes behind a zip": (BEGINS, ZIPPED + b"x"),
    "half a zip": (BEGINS, TORCH[:-30]),
    "a comment": (BEGINS, in_comment(ZIPPED, b"x")),
    "a pickle in the comment": (BEGINS, in_comment(TORCH, PICKLE)),
    "a pickle behind a zip": (BEGINS, TORCH + PICKLE),
    "a comment that is not there": (OUTSIDE, in_comment(ZIPPED, b"x")[:-1]),
    "two zips": (OUTSIDE, TORCH + ZIPPED),
    "a pickle and something": (follows(PICKLE), PICKLE + b"\n"),
    "a pickle and a script": (follows(b"(lI1\na."), b"(lI1\na.import os"),
    "a small pickle and something": (follows(b"\x80\x04N."), b"\x80\x04N.x"),
    "a pickle and half of one": (follows(PICKLE), PICKLE + PICKLE[:-1]),
    "pickles and something": (follows(PICKLE + PICKLE), PICKLE + PICKLE + b"\0"),
    "a pickle before a torch file": (follows(PICKLE + LEGACY[:-99]), PICKLE + LEGACY),
    "a tar that is a pickle": (
        follows(b"cos\nsystem\n(S'id'\ntR."),
        named_like(b"cos\nsystem\n(S'id'\ntR."),
    ),
    "a tar that is gzip": (
        "The file is two things at once: compressed data (gzip), and a tar archive.",
        named_like(b"\x1f\x8b\x08"),
    ),
    "safetensors and something": (TENSORS_END, TENSORS + b"x"),
    "half of safetensors": (TENSORS_END, TENSORS[:-1]),
    "an array and something": (ARRAY_END, npy(np.arange(3)) + PICKLE),
    "half of an array": (ARRAY_END, npy(np.arange(3))[:-1]),
    "half of an array's header": ("The NumPy array is cut short.", npy(np.arange(3))[:20]),
    "a tar and something": (
        "The tar archive has bytes that belong to no member.",
        tarred({"a": b""}) + b"x",
    ),
    "a tar and two million zeros": (
        "The tar archive has bytes that belong to no member.",
        tarred({"a": b""}) + b"\0" * 2_000_000,
    ),
    "half of a tar": ("The tar archive is cut short.", tarred({"a": b"x" * 2000})[:1500]),
}


def test_a_safetensors_file_that_is_a_pickle_is_refused() -> None:
    """Attack: the length of the header reads as BINUNICODE, and the pickle goes on in a text."""
    text = 0x60
    length = int.from_bytes(b"X" + struct.pack("<I", text) + b"\0\0\0", "little")
    header = b'{"__metadata__":{"k":"'
    header += b"x" * (5 + text - 8 - len(header)) + b"(t0."
    header += b"x" * (length - len(header) - 3) + b'"}}'
    data = struct.pack("<Q", length) + header
    assert pickle.loads(data).startswith('\0\0\0{"__metadata__"')
    with pytest.raises(ModelMalformed) as refused:
        identify(data)
    assert str(refused.value) == f"{follows(data[: 5 + text + 4])} {AGAIN}"
    assert identify(data.replace(b"(t0.", b"(t0x")) is Kind.SAFETENSORS


@pytest.mark.parametrize(("what", "data"), TWO.values(), ids=TWO)
def test_a_file_that_is_two_things_or_has_bytes_of_none_is_refused(what: str, data: bytes) -> None:
    with pytest.raises(ModelMalformed) as refused:
        identify(data)
    assert str(refused.value) == f"{what} {AGAIN}"


def directory(archive: bytes) -> int:
    return archive.index(b"PK\1\2")


def moved(archive: bytes, by: int) -> bytes:
    """Return an archive whose end says that the directory starts elsewhere."""
    start = struct.unpack_from("<L", archive, len(archive) - 6)[0]
    return archive[:-6] + struct.pack("<L", start + by) + archive[-2:]


def test_bytes_between_members_and_directory_are_refused() -> None:
    at = directory(ZIPPED)
    hidden = moved(ZIPPED[:at] + b"hidden" + ZIPPED[at:], 6)
    assert zipfile.ZipFile(io.BytesIO(hidden)).read("a.txt") == b"hello"
    with pytest.raises(ModelMalformed, match="belong to none of its members"):
        identify(hidden)


@pytest.mark.parametrize("write", [zipped, streamed])
def test_bytes_between_members_are_refused(write: Callable[[dict[str, bytes]], bytes]) -> None:
    archive = write({"a": b"1", "b": b"2"})
    second = archive.index(b"PK\3\4", 4)
    entry = archive.index(b"PK\1\2", directory(archive) + 4)
    shifted = bytearray(moved(archive[:second] + b"hidden" + archive[second:], 6))
    struct.pack_into("<L", shifted, entry + 6 + 42, second + 6)
    assert zipfile.ZipFile(io.BytesIO(bytes(shifted))).read("b") == b"2"
    with pytest.raises(ModelMalformed, match="belong to none of its members"):
        identify(bytes(shifted))


def test_bytes_behind_the_last_entry_are_refused() -> None:
    at = len(ZIPPED) - 22
    length = struct.unpack_from("<L", ZIPPED, at + 12)[0]
    archive = bytearray(ZIPPED[:at] + b"hidden" + ZIPPED[at:])
    struct.pack_into("<L", archive, at + 6 + 12, length + 6)
    with pytest.raises(ModelMalformed, match="belong to none of its members"):
        identify(bytes(archive))


def test_an_archive_is_also_found_where_its_end_says_that_it_is() -> None:
    """Readers differ: some count back from the end, and some believe what it says."""
    at = len(ZIPPED) - 22
    archive = moved(b"x" + ZIPPED[:at] + b"between" + ZIPPED[at:], 1)
    with pytest.raises(ModelMalformed, match="and ends as one"):
        identify(archive)


def test_a_member_that_the_directory_does_not_list_is_refused() -> None:
    hidden = zipped({"a": b"1"})
    hidden = hidden[: directory(hidden)]
    archive = zipped({"b": b"2"})
    at = directory(archive)
    both = bytearray(moved(hidden + archive, len(hidden)))
    struct.pack_into("<L", both, len(hidden) + at + 42, len(hidden))
    assert zipfile.ZipFile(io.BytesIO(bytes(both))).namelist() == ["b"]
    with pytest.raises(ModelMalformed, match="belong to none of its members"):
        identify(bytes(both))


@pytest.mark.parametrize(
    ("offset", "value"),
    [(0, b"XX"), (28, b"\xff\xff"), (20, b"\xff\xff\xff\x7f"), (42, b"\1\0\0\0")],
    ids=["no entry", "a long name", "a long member", "another place"],
)
def test_a_damaged_directory_is_refused(offset: int, value: bytes) -> None:
    archive = bytearray(ZIPPED)
    at = directory(ZIPPED) + offset
    archive[at : at + len(value)] = value
    with pytest.raises(ModelMalformed, match=r"The archive (is damaged|has bytes)"):
        identify(bytes(archive))


def test_large_archives_are_read_by_their_second_record() -> None:
    """As PyTorch writes it for each archive."""
    at = len(ZIPPED) - 22
    count, length, start = struct.unpack_from("<HLL", ZIPPED, at + 10)
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, length, start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, at, 1)
    archive = ZIPPED[:at] + record + locator + ZIPPED[at:]
    assert identify(archive) is Kind.ZIP
    wide = ZIPPED[:at] + record + locator + ZIPPED[at : at + 12] + b"\xff" * 8 + b"\0\0"
    assert identify(wide) is Kind.ZIP
    with pytest.raises(ModelMalformed):
        identify(archive.replace(b"PK\6\6", b"PK\6\0"))
    with pytest.raises(ModelMalformed, match="and ends as one"):
        identify(gzip.compress(b"x") + archive)


def test_a_zip_end_that_points_nowhere_is_no_zip() -> None:
    """Four bytes of a tensor may spell PK."""
    data = b"PK\5\6" + b"\1" * 40
    assert identify(tensors({"a": {"data_offsets": [0, len(data)]}}, data)) is Kind.SAFETENSORS
    assert identify(pickle.dumps(data)) is Kind.PICKLE


def test_too_many_members_are_not_listed() -> None:
    at = len(ZIPPED) - 22
    count = 2**32
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, at, 0)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, at, 1)
    with pytest.raises(LimitExceeded, match="more than 200000 members"):
        identify(ZIPPED[:at] + record + locator + ZIPPED[at:])


class Counting(io.BytesIO):
    """A file that counts what is read of it."""

    total = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.total += len(data)
        return data


@pytest.mark.parametrize(
    "make",
    [
        lambda blob: tensors({"a": {"data_offsets": [0, len(blob)]}}, blob),
        lambda blob: zipped({"m/data.pkl": b"N.", "m/data/0": blob}),
        lambda blob: gzip.compress(blob, 0),
        lambda blob: b"\xff" + blob,
        lambda blob: npy(np.frombuffer(blob, dtype="u1")),
        lambda blob: tarred({"a": blob}),
    ],
    ids=["safetensors", "torch", "gzip", "unknown", "array", "tar"],
)
def test_of_a_large_file_little_is_read(make: Callable[[bytes], bytes]) -> None:
    file = Counting(make(b"\xff" * 8_000_000))
    identify(file)
    assert file.total < 2_500_000


def test_a_pickle_of_too_many_bytes_is_a_limit() -> None:
    data = pickle.dumps(b"x" * 200_000)
    assert identify(data) is Kind.PICKLE
    with pytest.raises(LimitExceeded, match="larger than 100000 bytes"):
        identify(data, limits=PickleLimits(data_bytes=100_000))
    with pytest.raises(LimitExceeded, match="more than 5 instructions together"):
        identify(b"N." * 3, limits=PickleLimits(opcodes=5))


def test_many_values_below_many_marks_are_passed_once() -> None:
    """Attack: whoever looks for each mark from the bottom of the stack is at it for hours."""
    many = 150_000
    assert identify(b"(" + b"N" * many + b"(t" * many + b"l.") is Kind.PICKLE


def test_json_of_too_many_bytes_is_a_limit() -> None:
    limits = PickleLimits(data_bytes=1000)
    with pytest.raises(LimitExceeded):
        identify(b"[" + b"1," * 1000 + b"1]", limits=limits)
    assert identify(b"1" * 2000, limits=limits) is Kind.UNKNOWN
    with pytest.raises(LimitExceeded, match="nested too deep"):
        identify(b"[" * 100_000 + b"]" * 100_000)


def test_a_huge_header_is_a_limit() -> None:
    class Huge(io.BytesIO):
        def seek(self, position: int, whence: int = 0) -> int:
            return 2**40 if whence == 2 else super().seek(position, whence)

    with pytest.raises(LimitExceeded, match="header of the safetensors file is larger than"):
        identify(Huge(struct.pack("<Q", 2**35) + b"{" + b" " * 100))


@pytest.mark.parametrize("source", ["model.pt", Path("model.pt"), None, 5])
def test_a_path_is_no_file(source: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        identify(source)
    assert str(refused.value) == (
        'identify takes an open file or bytes. Write identify(open("model.pt", "rb")).'
    )


@given(
    st.sampled_from([data for _, data in HONEST.values()]),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    st.binary(max_size=30),
)
def test_damaged_files_are_told_or_refused(
    data: bytes, edits: list[tuple[int, int]], more: bytes
) -> None:
    damaged = bytearray(data + more)
    for position, value in edits:
        if damaged:
            damaged[position % len(damaged)] = value
    try:
        assert identify(bytes(damaged)) in Kind
    except (ModelMalformed, LimitExceeded) as refusal:
        problem = refusal
    else:
        return
    assert "\n" not in str(problem)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_told_or_refused(data: bytes) -> None:
    with suppress(ModelMalformed, LimitExceeded):
        assert identify(data) in Kind


# Safetensors that unpicklers follow, and those that only look so


def padded(length: int, key: bytes, data: bytes = b"") -> bytes:
    """Return a safetensors file whose header has that length, with a tensor of that name."""
    header = b'{"' + key + b'":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}'
    header %= (len(data), len(data))
    return struct.pack("<Q", length) + header.ljust(length) + data


MARKER = "a-folder-that-this-test-looks-for-at-its-end"


def text(raw: str) -> bytes:
    assert 0x22 < len(raw) < 0x5C or len(raw) == 0x21  # a header cannot hold any length
    return b"U" + bytes([len(raw)]) + raw.encode()


# The length of the header reads as PROTO 4, and as BINFLOAT, which takes eight bytes.
ASKS = (
    text("multiprocessing.popen_spawn_posix")
    + text("os.path.os.path.os.path.os.path.os.mkdir")
    + b"q\xc3\x93"
)
POLYGLOT = padded(0x470480, b"a" + ASKS + b"(" + text(MARKER) + b"tR")


def test_a_safetensors_file_that_acts_as_a_pickle_before_it_breaks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelMalformed) as refused:
        identify(POLYGLOT)
    assert str(refused.value) == (
        "The file is two things at once: a safetensors file, and a pickle that asks for something"
        f" by byte 91. {AGAIN}"
    )
    assert not (tmp_path / MARKER).exists()
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(POLYGLOT)
    assert (tmp_path / MARKER).is_dir()


@pytest.mark.parametrize(
    "data",
    [
        padded(0x470480, b"a" + ASKS),
        padded(0x56, b"a", b"\n0cos\nsystem\n"),
        padded(0x56, b"a", b"\xff" * 100_000 + b"\n0cos\nsystem\n"),
        padded(0x14A58, b"a" * (5 + 0x14A - 10) + b"0" + ASKS),
        padded(0x5628, b"a", b"\n(0I 7\nF1\0 and more\ncos\nsystem\n"),
    ],
    ids=["a name", "behind a line", "behind a long line", "behind a text", "behind odd numbers"],
)
def test_a_safetensors_file_that_asks_for_a_name_is_refused(data: bytes) -> None:
    with pytest.raises(ModelMalformed, match="and a pickle that asks for something by byte"):
        identify(data)


@pytest.mark.parametrize("low", range(256))
@pytest.mark.parametrize("fill", [b"\xff", b"\0", b"N", b"(", b"P", b"2", b"A\n"])
def test_no_length_of_a_header_makes_a_file_of_tensors_a_pickle(low: int, fill: bytes) -> None:
    """Found by saving: a length that ends with 0x50 reads as PERSID, which goes to a newline."""
    data = padded(0x100 + low, b"model.layers.22.weight", fill * 3000)
    limits = PickleLimits(data_bytes=1000, opcodes=100)
    assert identify(data, limits=limits) is Kind.SAFETENSORS
    assert identify(data) is Kind.SAFETENSORS


@pytest.mark.parametrize("low", [0x50, 0x58, 0x28, 0x80, 0x88])
def test_of_large_tensors_little_is_read_whatever_the_length_of_the_header(low: int) -> None:
    file = Counting(padded(0x100 + low, b"weight", b"\xff" * 8_000_000))
    assert identify(file) is Kind.SAFETENSORS
    assert file.total < 2_500_000


def test_a_full_stop_in_a_name_is_no_end_of_a_pickle() -> None:
    """BINUNICODE, DUP, STOP: a length and the name of a layer may happen to read so."""
    at = 5 + 0x101
    header = b'{"__metadata__":{"k":"' + b"x" * (at - 8 - 22) + b'2."}}'
    data = struct.pack("<Q", 0x158) + header.ljust(0x158)
    assert data[at : at + 2] == b"2."
    assert identify(data) is Kind.SAFETENSORS


def test_a_mark_that_is_taken_away_is_one_of_a_pickle() -> None:
    assert pickle.loads(b"(0I1\n.") == 1
    assert identify(b"(0I1\n.") is Kind.PICKLE


def test_no_memory_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("safepoint.pickles.kinds.pickles_in", fails)
    file = io.BytesIO(b"anything")
    file.read(3)
    with pytest.raises(LimitExceeded) as refused:
        identify(file)
    assert str(refused.value) == (
        "There is not enough memory to look at the file. Nothing was run. Look at it on a larger"
        " machine, or keep it out."
    )
    assert file.tell() == 0
