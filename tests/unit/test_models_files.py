"""Files that readers could differ on, or that lie about their sizes: refused before PyTorch."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from typing import Any

import pytest

from safepoint.core import errors
from safepoint.core.errors import LimitExceeded, ModelRefused
from safepoint.models import Format, ModelLimits, PickleLimits, TensorSpec, Verdict, inspect
from safepoint.models.opcodes import scan
from safepoint.models.reader import named_tensors, read_model
from safepoint.models.tensors import TensorEntry, read_table
from safepoint.models.zips import read_directory
from tests.unit.archive_helpers import (
    BYTES,
    DESCRIBED,
    FALSE,
    FOUR,
    HONEST,
    HOOKS,
    PICKLE,
    RUNS,
    STORAGE,
    TRUE,
    VERSION,
    Part,
    archive,
    built,
    call,
    cases,
    entry,
    made,
    name,
    number,
    of,
    one,
    proto,
    sizes,
    storage,
    tensor,
    wide_end,
    zip_of,
    zipped,
)

SMALL = ModelLimits(tensors=1000, elements=10**6, memory_bytes=10**6)


def planned(data: bytes, limits: ModelLimits = SMALL) -> dict[str, TensorSpec]:
    file = io.BytesIO(data)
    value = read_model(file, read_directory(file, len(data), limits), limits).state
    return named_tensors(value, TensorSpec)


def test_honest_archives_are_planned() -> None:
    float32 = {"tensor": TensorSpec("float32", (4,))}
    assert planned(zipped(*HONEST)) == float32
    behind = {"flags": 8, "crc": 0, "packed": 0, "size": 0}
    described = Part(*STORAGE, after=DESCRIBED, central={"flags": 8}, local=behind)
    assert planned(zipped(PICKLE, described, VERSION)) == float32
    padded = Part(*STORAGE, local={"extra": b"FB\2\0ab"})
    assert planned(zipped(PICKLE, padded, ("archive/byteorder", b"little"), VERSION)) == float32
    given = storage(count=16, kind=BYTES), number(0), sizes((8,)), sizes((1,)), FALSE, HOOKS
    v3 = call(("torch._utils", "_rebuild_tensor_v3"), *given, name("torch", "uint16"))
    assert planned(archive(proto(v3), {"0": FOUR})) == {"tensor": TensorSpec("uint16", (8,))}
    parameter = call(("torch._utils", "_rebuild_parameter"), tensor(), TRUE, HOOKS)
    assert planned(archive(proto(parameter), {"0": FOUR})) == float32


@pytest.mark.parametrize(("what", "error", "word"), [*cases("archives"), *cases("plans")])
def test_a_file_is_refused_for_what_it_is_or_would_build(what: str, error: str, word: str) -> None:
    with pytest.raises(getattr(errors, error), match=word) as refusal:
        planned(made(what))
    assert type(refusal.value).__name__ == error


@pytest.mark.parametrize(
    "changes",
    [
        *({"count": 9, "here": 9}, {"signature": b"PK\6\5"}, {"place": 7}, {"rest": 45}),
        *({"disks": 2}, {"this": 1}, {"first": 1}, {"here": 2}, {"disk": 1}, {}),
    ],
)
def test_the_records_that_end_an_archive_must_agree(changes: dict[str, Any]) -> None:
    plain = zipped(*HONEST)
    start, length = struct.unpack("<LL", plain[-6:-2] + plain[-10:-6])
    told = {"here": 3, "count": 3, "start": start, "length": length, **changes}
    data = zipped(*HONEST, wide=wide_end(start + length, **told))
    if not changes:
        assert planned(data)
        return
    with pytest.raises(ModelRefused, match="disagree"):
        planned(data)


def test_a_limit_is_the_last_that_passes() -> None:
    two = one(tensor(), tensor(), b"\x86")
    assert len(planned(two, ModelLimits(tensors=2))) == 2
    with pytest.raises(LimitExceeded):
        planned(two, ModelLimits(tensors=1))
    with pytest.raises(LimitExceeded, match=r"raise ModelLimits\.header_bytes"):
        planned(two, ModelLimits(header_bytes=50))


@pytest.mark.parametrize(("what", "error", "word"), cases("tables"))
def test_a_safetensors_file_of_two_meanings_is_refused(what: str, error: str, word: str) -> None:
    data = made(what)
    with pytest.raises(getattr(errors, error), match=word):
        read_table(data, len(data))
    found = inspect(data)
    if found.kind is Format.SAFETENSORS:
        assert found.verdict is Verdict.NOT_LOOKED_INTO


def test_a_table_says_what_where_and_its_limits_hold() -> None:
    data = of({"__metadata__": {"format": "pt"}, "a": entry("F32", [1], [0, 4])}, FOUR[:4])
    start = len(data) - 4
    assert read_table(data, len(data)) == {"a": TensorEntry("float32", (1,), start, start + 4)}
    for header, limits in (
        (of({"a": entry("U8", [2**35], [0, 2**35])}), ModelLimits()),
        (of({"a": entry("U8", [2**35, 0], [0, 0])}, b""), ModelLimits()),
        (of({str(n): 0 for n in range(50)}), ModelLimits(tensors=1)),
        (built("{" + "[" * 200_000), ModelLimits(tensors=1)),
        (built("{}", length=10**9), ModelLimits()),
    ):
        with pytest.raises(LimitExceeded):
            read_table(header, len(header), limits)


PACKED = {
    "gzip": gzip.compress(RUNS),
    "7z": b"7z\xbc\xaf\x27\x1c\0\4" + bytes(30),
    "compress": b"\x1f\x9d\x90" + bytes(30),
    "skippable zstd": b"\x50\x2a\x4d\x18\4\0\0\0abcd\x28\xb5\x2f\xfd" + bytes(30),
    "zip": zip_of("state.pkl", RUNS),
    "zip behind a script": b"#!/bin/sh\n" + zip_of("state.pkl", RUNS),
}


@pytest.mark.parametrize("how", PACKED)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_what_is_packed_in_a_zip_is_never_green(how: str, method: int) -> None:
    """inspect called such a zip plain, though it had not looked into the member."""
    found = inspect(zip_of("weights.dat", PACKED[how], method))
    assert not found.plain
    is_polyglot = how == "zip behind a script"
    says = "but ends as one." if is_polyglot else "which is not looked into."
    assert [*found.unseen, *(why for why, _ in found.refused)][0].endswith(says)
    verdict = Verdict.REFUSED if is_polyglot else Verdict.NOT_LOOKED_INTO
    assert found.verdict is verdict
    assert inspect(PACKED[how]).verdict is (Verdict.RUNS_CODE if how == "zip" else verdict)


@pytest.mark.parametrize(("what", "verdict", "word"), cases("verdicts"))
def test_content_decides_what_a_file_is(what: str, verdict: str, word: str) -> None:
    found = inspect(made(what))
    assert found.verdict is Verdict[verdict]
    assert found.what.startswith(word)


def test_a_name_behind_many_pickles_is_not_called_clean() -> None:
    """Behind five million instructions in a zip, os.system went unseen: "not a model", exit 0."""
    few = PickleLimits(nodes=20)
    for data in (b"N." * 60 + RUNS, zip_of("x.dat", b"N." * 60 + RUNS)):
        assert inspect(data, limits=few).verdict is Verdict.NOT_LOOKED_INTO


def test_a_name_that_the_first_look_cuts_is_listed_whole() -> None:
    """The first 64 KiB ended in an INST without a mark, and `posix.syst` was listed."""
    for start in range(65536 - 14, 65536 + 1, 2):
        found = scan(io.BytesIO(b"N0" * (start // 2) + b"iposix\nsystem\n."))
        assert found.asked == (("posix", "system"),)


def test_a_zip_of_another_tool_is_read_and_a_polyglot_is_not() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.mkdir("folder")
        with made.open("folder/a.npy", "w", force_zip64=True) as member:
            member.write(b"text")
    found = inspect(file.getvalue())
    assert (found.kind, found.plain) == (Format.ZIP, True)
    for data in (b"text" + file.getvalue(), file.getvalue() + b"text"):
        found = inspect(data)
        assert (found.kind, found.plain) == (Format.UNCLEAR, False)
        assert [(found.what, found.do)] == found.refused
