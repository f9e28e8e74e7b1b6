"""The directory of a PyTorch archive: read strictly, before PyTorch sees the file."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint import errors
from safepoint.errors import CheckpointError, LimitExceeded, ModelMalformed, UnsafeModel
from safepoint.weights.archive import Archive, read_archive
from safepoint.weights.limits import ModelLimits
from tests.unit.archive_helpers import VERSION, Part, opened, wide_end, zipped

AGAIN = "Get the file again, or write it again with torch.save. Nothing was loaded."
PICKLE = ("archive/data.pkl", b"\x80\x02N.")
STORAGE = ("archive/data/0", b"12345678")
HONEST = (PICKLE, STORAGE, ("archive/byteorder", b"little"), VERSION)
DESCRIBED = struct.pack("<4s3L", b"PK\7\10", zlib.crc32(b"12345678"), 8, 8)


def saved(value: Any, **options: Any) -> bytes:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def test_what_torch_save_writes_is_read() -> None:
    torch = pytest.importorskip("torch")
    state = {"a": torch.ones(3), "b": torch.zeros(0), "c": torch.ones(2, dtype=torch.uint16)}
    archive = read_archive(opened(saved(state)))
    assert archive.storages == {"0": 12, "1": 0, "2": 4}
    assert (archive.prefix, archive.byteorder) == ("archive", "little")
    assert archive.pickle.startswith(b"\x80\x02}")


def test_the_pickle_is_not_shown() -> None:
    assert "x80" not in repr(read_archive(opened(zipped(*HONEST))))


def test_an_archive_that_was_written_without_checksums_is_read() -> None:
    torch = pytest.importorskip("torch")
    torch.serialization.set_crc32_options(False)
    try:
        data = saved(torch.ones(3))
    finally:
        torch.serialization.set_crc32_options(True)
    assert read_archive(opened(data)).storages == {"0": 12}


def test_the_folder_in_the_archive_is_named_after_the_file(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "my model (v2).tar.pt"
    torch.save(torch.ones(3), path)
    with path.open("rb", buffering=0) as file:
        assert read_archive(file).prefix == "my model (v2).tar"


def test_an_archive_of_more_than_four_gigabytes_is_read(tmp_path: Path) -> None:
    """A file with a hole in it: its directory needs 64 bits, and the disk a few kilobytes."""
    torch = pytest.importorskip("torch")
    path = tmp_path / "large.pt"
    large = torch.empty(2**32 + 5, dtype=torch.uint8)
    with torch.serialization.skip_data():
        torch.save([large, torch.ones(3), torch.zeros(0)], path)
    with path.open("rb") as file:
        assert read_archive(file).storages == {"0": 2**32 + 5, "1": 12, "2": 0}


def test_an_archive_of_another_tool_is_read_if_it_is_as_plain() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in (PICKLE, STORAGE, VERSION):
            archive.writestr(name, data)
    assert read_archive(file) == Archive("archive", PICKLE[1], {"0": 8}, "little")


def test_the_order_of_the_directory_need_not_be_that_of_the_members() -> None:
    first = 30 + len(PICKLE[0]) + len(PICKLE[1])
    parts = [
        Part(*PICKLE, central={"name": b"archive/version", "size": 2, "packed": 2}),
        Part(*VERSION, central={"name": b"archive/data.pkl", "size": 4, "packed": 4}),
    ]
    parts[0].central |= {"at": first, "crc": zlib.crc32(b"3\n")}
    parts[1].central |= {"at": 0, "crc": zlib.crc32(PICKLE[1])}
    assert read_archive(opened(zipped(*parts))).pickle == PICKLE[1]


def test_a_big_endian_archive_says_so() -> None:
    data = zipped(PICKLE, ("archive/byteorder", b"big"), VERSION)
    assert read_archive(opened(data)).byteorder == "big"


def test_compressed_members_are_read_if_the_limits_allow_it() -> None:
    pickle = b"\x80\x02" + b"N0" * 5000 + b"N."
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/version", b"3\n")
    assert read_archive(file, ModelLimits(ratio=1000)).pickle == pickle
    with pytest.raises(LimitExceeded, match="makes 10004 bytes of"):
        read_archive(file, ModelLimits(ratio=100))


def _deflated(
    data: bytes, *, told: int | None = None, tail: bytes = b"", whole: bool = True
) -> Part:
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(data)
    packed += packer.flush(zlib.Z_FINISH if whole else zlib.Z_SYNC_FLUSH) + tail
    both = {"method": 8, "size": len(data) if told is None else told}
    return Part("archive/data.pkl", data, packed, central=dict(both), local=dict(both))


def test_a_compressed_member_is_refused_by_default_even_if_it_is_no_smaller() -> None:
    part = _deflated(b"\x80\x02N.")
    assert part.packed is not None
    assert len(part.packed) > 4
    with pytest.raises(LimitExceeded, match="makes 4 bytes of 6; PyTorch does not compress"):
        read_archive(opened(zipped(part, VERSION)))
    assert read_archive(opened(zipped(part, VERSION)), ModelLimits(ratio=2)).pickle == PICKLE[1]


def test_a_member_may_grow_as_much_as_the_limit_says() -> None:
    """It is not over the limit, and goes on to be refused for what it is."""
    pickle = b"N" * 9 + b"."
    part = _deflated(pickle)
    assert part.packed is not None
    part.packed += bytes(5 - len(part.packed) % 5)
    size = {"method": 8, "size": 2 * len(part.packed), "packed": len(part.packed)}
    part.central, part.local = dict(size), dict(size)
    with pytest.raises(ModelMalformed, match="is not compressed as its entry says"):
        read_archive(opened(zipped(part, VERSION)), ModelLimits(ratio=2))


def test_padding_may_be_empty_and_a_serialization_id_long() -> None:
    parts = (Part(*PICKLE, local={"extra": b"FB\0\0"}), VERSION)
    number = ("archive/.data/serialization_id", b"1" * 64)
    assert read_archive(opened(zipped(*parts, number))).pickle == PICKLE[1]


def _both(name: str, data: bytes = b"", **fields: Any) -> Part:
    return Part(name, data, central=dict(fields), local=dict(fields))


MALFORMED: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "The archive is cut short."),
    "an archive without members": (zipped, "The archive is empty."),
    "cut short": (
        lambda: zipped(*HONEST)[:-1],
        "The archive does not end with the record that ends a zip.",
    ),
    "a comment behind the end": (
        lambda: zipped(*HONEST, comment=b"pickle"),
        "The archive does not end with the record that ends a zip.",
    ),
    "bytes behind the end": (
        lambda: zipped(*HONEST, tail=b"\x80\x02N."),
        "The archive does not end with the record that ends a zip.",
    ),
    "bytes before the first member": (
        lambda: zipped(Part(*PICKLE, before=b"\x80\x02N."), VERSION),
        "The member 'archive/data.pkl' overlaps another, or leaves a gap.",
    ),
    "bytes between two members": (
        lambda: zipped(PICKLE, Part(*VERSION, before=b"\0")),
        "The member 'archive/version' overlaps another, or leaves a gap.",
    ),
    "bytes before the directory": (
        lambda: zipped(*HONEST, gap=b"\0"),
        "The archive has bytes that belong to no member.",
    ),
    "bytes after the directory": (
        lambda: zipped(*HONEST, wide=b"\0" * 100),
        "The directory of the archive does not reach to its end.",
    ),
    "a directory that starts elsewhere": (
        lambda: zipped(*HONEST, start=0),
        "The directory of the archive does not reach to its end.",
    ),
    "a part of several": (lambda: zipped(*HONEST, disk=1), "The archive is one part of several."),
    "a directory on another disk": (
        lambda: zipped(*HONEST, first=1),
        "The archive is one part of several.",
    ),
    "a comment that is not there": (
        lambda: zipped(*HONEST)[:-2] + b"\1\0",
        "The archive does not end with the record that ends a zip.",
    ),
    "entries on another disk": (
        lambda: zipped(*HONEST, here=3),
        "The archive is one part of several.",
    ),
    "fewer entries than the directory has": (
        lambda: zipped(*HONEST, here=3, count=3),
        "The directory of the archive has bytes that belong to no entry.",
    ),
    "more entries than the directory has": (
        lambda: zipped(*HONEST, here=5, count=5),
        "The directory of the archive is cut short.",
    ),
    "many more entries than the directory has": (
        lambda: zipped(*HONEST, here=5000, count=5000),
        "The directory of the archive is not as long as its entries.",
    ),
    "no entries, and a directory": (
        lambda: zipped(*HONEST, here=0, count=0),
        "The directory of the archive is not as long as its entries.",
    ),
    "an entry with another signature": (
        lambda: zipped(PICKLE, Part(*VERSION, central={"signature": b"PK\1\3"})),
        "The directory of the archive is damaged.",
    ),
    "an entry with a comment": (
        lambda: zipped(PICKLE, Part(*VERSION, central={"comment": b"hi"})),
        "The directory of the archive is damaged.",
    ),
    "an entry on another disk": (
        lambda: zipped(PICKLE, Part(*VERSION, central={"disk": 1})),
        "The directory of the archive is damaged.",
    ),
    "a member twice": (
        lambda: zipped(PICKLE, PICKLE, VERSION),
        "Two members of the archive have the name 'archive/data.pkl'.",
    ),
    "a member twice, but for the case": (
        lambda: zipped(("archive/DATA.pkl", b"N."), PICKLE, VERSION),
        "Two members of the archive have the name 'archive/data.pkl'.",
    ),
    "a member without a name": (
        lambda: zipped(PICKLE, ("", b""), VERSION),
        "A member of the archive has no name, or one that is too long.",
    ),
    "a member with a long name": (
        lambda: zipped(PICKLE, ("archive/" + "x" * 600, b""), VERSION),
        "A member of the archive has no name, or one that is too long.",
    ),
    "a member whose name is no text": (
        lambda: zipped(Part(b"archive/data.pkl\xff", b"N."), VERSION),
        r"The member 'archive/data.pkl\\xff' has a name that is not text.",
    ),
    "an encrypted member": (
        lambda: zipped(_both("archive/data.pkl", b"N.", flags=1), VERSION),
        "The member 'archive/data.pkl' is encrypted, a folder, or a patch.",
    ),
    "a member that PyTorch takes for a folder": (
        lambda: zipped(PICKLE, Part(*STORAGE, central={"attributes": 0x10}), VERSION),
        "The member 'archive/data/0' is encrypted, a folder, or a patch.",
    ),
    "a member that is packed in another way": (
        lambda: zipped(_both("archive/data.pkl", b"N.", method=93), VERSION),
        "The member 'archive/data.pkl' is stored in a way that PyTorch does not use.",
    ),
    "a stored member of two sizes": (
        lambda: zipped(_both("archive/data.pkl", b"N.", size=6 * 10**9 % 2**32), VERSION),
        "The member 'archive/data.pkl' is stored in a way that PyTorch does not use.",
    ),
    "a member that is another one in the directory": (
        lambda: zipped(Part(*PICKLE, local={"name": b"archive/DATA.pkl"}), VERSION),
        "The member 'archive/data.pkl' is another one in the directory of the archive.",
    ),
    "a member that is compressed in one half": (
        lambda: zipped(Part(*PICKLE, local={"method": 8}), VERSION),
        "The member 'archive/data.pkl' is another one in the directory of the archive.",
    ),
    "a member with another signature": (
        lambda: zipped(Part(*PICKLE, local={"signature": b"PK\3\5"}), VERSION),
        "The member 'archive/data.pkl' is another one in the directory of the archive.",
    ),
    "a member with another size in its header": (
        lambda: zipped(Part(*PICKLE, local={"size": 3}), VERSION),
        "The member 'archive/data.pkl' has another size in the directory.",
    ),
    "a member with no size in its header": (
        lambda: zipped(Part(*PICKLE, local={"size": 0, "packed": 0, "crc": 0}), VERSION),
        "The member 'archive/data.pkl' has another size in the directory.",
    ),
    "a member with another size before it than behind it": (
        lambda: zipped(
            PICKLE,
            Part(*STORAGE, after=DESCRIBED, central={"flags": 8}, local={"flags": 8, "size": 9}),
            VERSION,
        ),
        "The member 'archive/data/0' has another size in the directory.",
    ),
    "a member with another checksum in its header": (
        lambda: zipped(Part(*PICKLE, local={"crc": 3}), VERSION),
        "The member 'archive/data.pkl' has another size in the directory.",
    ),
    "a member with another size behind it": (
        lambda: zipped(
            PICKLE,
            Part(*STORAGE, after=DESCRIBED[:-1] + b"\1", central={"flags": 8}, local={"flags": 8}),
            VERSION,
        ),
        "The member 'archive/data/0' has another size in the directory.",
    ),
    "a member that reaches into the next": (
        lambda: zipped(
            Part(*PICKLE, central={"size": 9, "packed": 9}, local={"size": 9, "packed": 9}),
            VERSION,
        ),
        "The member 'archive/version' overlaps another, or leaves a gap.",
    ),
    "a member that reaches beyond the archive": (
        lambda: zipped(
            PICKLE,
            Part(
                *VERSION, central={"size": 500, "packed": 500}, local={"size": 500, "packed": 500}
            ),
        ),
        "The member 'archive/version' reaches beyond the archive.",
    ),
    "two entries for the same bytes": (
        lambda: zipped(
            PICKLE, STORAGE, Part("archive/data/1", b"12345678", central={"at": 46}), VERSION
        ),
        "The member 'archive/data/1' overlaps another, or leaves a gap.",
    ),
    "an extra field of another tool": (
        lambda: zipped(Part(*PICKLE, local={"extra": b"UT\4\0abcd"}), VERSION),
        "A member's extra field is damaged, or of a tool that is not PyTorch.",
    ),
    "an extra field that is longer than it is": (
        lambda: zipped(Part(*PICKLE, local={"extra": b"FB\xff\xffZZ"}), VERSION),
        "A member's extra field is damaged, or of a tool that is not PyTorch.",
    ),
    "padding twice": (
        lambda: zipped(Part(*PICKLE, local={"extra": b"FB\1\0ZFB\1\0Z"}), VERSION),
        "A member's extra field is damaged, or of a tool that is not PyTorch.",
    ),
    "an extra field that is cut short": (
        lambda: zipped(Part(*PICKLE, local={"extra": b"FB"}), VERSION),
        "A member's extra field is damaged.",
    ),
    "a large size that is small": (
        lambda: zipped(
            Part(*PICKLE, central={"size": 2**32 - 1, "extra": struct.pack("<2HQ", 1, 8, 4)}),
            VERSION,
        ),
        "A member's entry has a size that does not fit it.",
    ),
    "a large size that nobody asked for": (
        lambda: zipped(Part(*PICKLE, central={"extra": struct.pack("<2HQ", 1, 8, 2**40)}), VERSION),
        "A member's entry has a size that does not fit it.",
    ),
    "a large size that is missing": (
        lambda: zipped(Part(*PICKLE, central={"size": 2**32 - 1}), VERSION),
        "A member's entry has a size that does not fit it.",
    ),
    "a member outside the folder": (
        lambda: zipped(PICKLE, ("other/data/0", b""), VERSION),
        "The members of the archive are not all in one folder: 'other/data/0'.",
    ),
    "a member in no folder": (
        lambda: zipped(("data.pkl", b"N."), ("version", b"3\n")),
        "The members of the archive are not all in one folder: 'data.pkl'.",
    ),
    "an absolute name": (
        lambda: zipped(("/data.pkl", b"N."), ("/version", b"3\n")),
        "A member of the archive has an unsafe name: '/data.pkl'.",
    ),
    "a name that climbs": (
        lambda: zipped(("../data.pkl", b"N."), ("../version", b"3\n")),
        "A member of the archive has an unsafe name: '../data.pkl'.",
    ),
    "a name that climbs inside": (
        lambda: zipped(PICKLE, ("archive/data/../../x", b""), VERSION),
        "The archive has a member that torch.save does not write: 'data/../../x'.",
    ),
    "a name with a backslash": (
        lambda: zipped(PICKLE, ("archive/data\\0", b""), VERSION),
        r"A member of the archive has an unsafe name: 'archive/data\\0'.",
    ),
    "a name that ends at a zero byte": (
        lambda: zipped(PICKLE, ("archive/version\0x", b""), VERSION),
        r"A member of the archive has an unsafe name: 'archive/version\x00x'.",
    ),
    "a member that nobody knows": (
        lambda: zipped(PICKLE, ("archive/extra/payload.bin", b"MZ"), VERSION),
        "The archive has a member that torch.save does not write: 'extra/payload.bin'.",
    ),
    "a storage with a name of its own": (
        lambda: zipped(PICKLE, ("archive/data/evil.pkl", b"N."), VERSION),
        "The archive has a member that torch.save does not write: 'data/evil.pkl'.",
    ),
    "no pickle": (
        lambda: zipped(STORAGE, VERSION),
        "The archive has no data.pkl or no version, so torch.save did not write it.",
    ),
    "no version": (
        lambda: zipped(PICKLE),
        "The archive has no data.pkl or no version, so torch.save did not write it.",
    ),
    "a byte order that there is not": (
        lambda: zipped(PICKLE, ("archive/byteorder", b"middle"), VERSION),
        "The member byteorder of the archive does not say what PyTorch writes there.",
    ),
    "an alignment of many digits": (
        lambda: zipped(PICKLE, ("archive/.storage_alignment", b"9" * 5000), VERSION),
        "The member .storage_alignment of the archive does not say what PyTorch writes there.",
    ),
    "a pickle that does not match its checksum": (
        lambda: zipped(_both("archive/data.pkl", b"N.", crc=7), VERSION),
        "The member 'archive/data.pkl' does not match its checksum.",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_an_archive_that_readers_could_differ_on_is_refused(case: str) -> None:
    make, what = MALFORMED[case]
    with pytest.raises(ModelMalformed) as refusal:
        read_archive(opened(make()))
    assert str(refusal.value) == f"{what} {AGAIN}"


def _wide(**changes: Any) -> bytes:
    """The honest archive of two members, with the records for large archives."""
    plain = zipped(PICKLE, VERSION)
    start, length = struct.unpack("<LL", plain[-10:-2][4:] + plain[-10:-2][:4])
    told = {"length": length, "start": start} | changes
    return plain[:-22] + wide_end(len(plain) - 22, **told) + plain[-22:]


def test_the_records_for_large_archives_are_read() -> None:
    assert read_archive(opened(_wide())).pickle == PICKLE[1]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"count": 1, "here": 1}, "The two records that end the archive disagree."),
        ({"start": 0}, "The two records that end the archive disagree."),
        ({"length": 0}, "The two records that end the archive disagree."),
        ({"place": 0}, "The record that ends a large archive is not where it should be."),
        (
            {"signature": b"PK\6\5"},
            "The record that ends a large archive is not where it should be.",
        ),
        ({"rest": 45}, "The record that ends a large archive is not where it should be."),
        ({"disks": 2}, "The archive is one part of several."),
        ({"disk": 1}, "The archive is one part of several."),
        ({"this": 1}, "The archive is one part of several."),
        ({"first": 1}, "The archive is one part of several."),
        ({"here": 1}, "The archive is one part of several."),
    ],
)
def test_the_records_that_end_an_archive_must_agree(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(ModelMalformed) as refusal:
        read_archive(opened(_wide(**changes)))
    assert str(refusal.value) == f"{what} {AGAIN}"


def test_a_member_may_be_described_behind_its_bytes() -> None:
    late = {"flags": 8, "crc": 0, "packed": 0, "size": 0}
    part = Part(*STORAGE, after=DESCRIBED, central={"flags": 8}, local=late)
    assert read_archive(opened(zipped(PICKLE, part, VERSION))).storages == {"0": 8}


@pytest.mark.parametrize(
    "part",
    [
        _deflated(b"N" * 100, told=50),
        _deflated(b"N" * 100, told=101),
        _deflated(b"N" * 100, tail=b"more"),
        _deflated(b"N" * 100, whole=False),
        Part(
            "archive/data.pkl", b"N.", b"\xff\xff\xff", central={"method": 8}, local={"method": 8}
        ),
    ],
    ids=["shorter", "longer", "followed by more", "without an end", "not deflated"],
)
def test_a_compressed_pickle_must_be_what_its_entry_says(part: Part) -> None:
    with pytest.raises(ModelMalformed) as refusal:
        read_archive(opened(zipped(part, VERSION)), ModelLimits(ratio=1000))
    assert refusal.value.what == (
        "The member 'archive/data.pkl' is not compressed as its entry says."
    )


@pytest.mark.parametrize(
    "name", ["constants.pkl", "code/__torch__.py", "code/__torch__.py.debug_pkl", "constants/0"]
)
def test_torchscript_is_refused_as_code(name: str) -> None:
    with pytest.raises(UnsafeModel) as refusal:
        read_archive(opened(zipped(PICKLE, (f"archive/{name}", b""), VERSION)))
    assert str(refusal.value) == (
        "The file is a TorchScript archive, which holds code. Save the state_dict of the model "
        "with safepoint.weights.save_checkpoint instead."
    )


ZEROS = zlib.compressobj(wbits=-15)
PACKED = ZEROS.compress(bytes(2**20)) + ZEROS.flush()
BOMB_SIZE = {"method": 8, "size": 2**20, "packed": len(PACKED)}
BOMB = zipped(PICKLE, Part("archive/data/0", b"", PACKED, b"", b"", BOMB_SIZE, BOMB_SIZE), VERSION)
NOT_PACKED = "PyTorch does not compress."
PACK_AGAIN = "If you compressed it, unpack it and pack it again without"
LARGE = "If it is meant to be that large, raise ModelLimits"


@pytest.mark.parametrize(
    ("data", "limits", "what", "do"),
    [
        (
            zipped(*HONEST),
            ModelLimits(file_bytes=100),
            "The archive is 470 bytes, over the limit of 100.",
            f"{LARGE}.file_bytes.",
        ),
        (
            zipped(*HONEST),
            ModelLimits(entries=3),
            "The archive has 4 members, over the limit of 3.",
            "If it is meant to have that many, raise ModelLimits.entries.",
        ),
        (
            zipped(*HONEST),
            ModelLimits(pickle_bytes=3),
            "The pickle in the archive is 4 bytes, over the limit of 3.",
            f"{LARGE}.pickle_bytes.",
        ),
        (
            BOMB,
            ModelLimits(),
            f"The member 'archive/data/0' makes 1048576 bytes of {len(PACKED)}; {NOT_PACKED}",
            f"{PACK_AGAIN}, or raise ModelLimits.ratio.",
        ),
        (
            BOMB,
            ModelLimits(ratio=2000, file_bytes=2**19),
            "The archive unpacks to 1048582 bytes, over the limit of 524288.",
            f"{LARGE}.file_bytes.",
        ),
    ],
    ids=["file", "entries", "pickle", "ratio", "unpacked"],
)
def test_what_is_too_large_is_refused_before_it_is_read(
    data: bytes, limits: ModelLimits, what: str, do: str
) -> None:
    with pytest.raises(LimitExceeded) as refusal:
        read_archive(opened(data), limits)
    assert (refusal.value.what, refusal.value.do) == (what, do)


def test_what_is_as_large_as_its_limit_is_read() -> None:
    data = zipped(*HONEST)
    limits = ModelLimits(file_bytes=len(data), entries=4, pickle_bytes=len(PICKLE[1]))
    assert read_archive(opened(data), limits).storages == {"0": 8}
    packed = ModelLimits(file_bytes=2**20 + 6, ratio=2000)
    assert read_archive(opened(BOMB), packed).storages == {"0": 2**20}


class Counted(io.BytesIO):
    """A file that counts what is read of it."""

    seen = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.seen += len(data)
        return data


def test_the_number_of_entries_is_known_before_the_directory_is_read() -> None:
    file = Counted(zipped(PICKLE, *[(f"archive/data/{at}", b"") for at in range(500)], VERSION))
    with pytest.raises(LimitExceeded, match="has 502 members"):
        read_archive(file, ModelLimits(entries=501))
    assert file.seen < 100


def test_no_storage_is_read() -> None:
    file = Counted(zipped(PICKLE, ("archive/data/0", bytes(10**6)), VERSION))
    assert read_archive(file).storages == {"0": 10**6}
    assert file.seen < 1000


class Slow(io.BytesIO):
    """A file without a buffer, which gives three bytes at a time."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size, 3) if size is not None and size > 0 else size)


def test_a_file_may_give_less_than_was_asked_for() -> None:
    assert read_archive(Slow(zipped(*HONEST))).storages == {"0": 8}


class Cut(io.BytesIO):
    """A file that has no beginning any more when that is read."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size) if self.tell() > 20 else b""


def test_a_file_that_changes_while_it_is_read_is_refused() -> None:
    with pytest.raises(ModelMalformed) as refusal:
        read_archive(Cut(zipped(*HONEST)))
    assert str(refusal.value) == f"The archive is cut short. {AGAIN}"


def test_errors_hold_no_content_of_the_file() -> None:
    secret = "sk-" + "x" * 40
    with pytest.raises(ModelMalformed) as refusal:
        read_archive(opened(zipped(PICKLE, ("archive/byteorder", secret.encode()), VERSION)))
    assert secret not in errors.quoted(refusal.value.args)


@given(st.data())
def test_a_damaged_archive_is_refused_or_read_the_same(data: st.DataObject) -> None:
    """Bytes are changed, cut and doubled anywhere: nothing but our errors comes out."""
    late = {"flags": 8, "crc": 0, "packed": 0, "size": 0}
    part = Part(*STORAGE, after=DESCRIBED, central={"flags": 8}, local=late)
    raw = bytearray(data.draw(st.sampled_from([zipped(PICKLE, part, VERSION), _wide()])))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        piece = data.draw(st.binary(max_size=4) | st.sampled_from([b"\xff" * 4, b"\0" * 8]))
        raw[at : at + data.draw(st.sampled_from([0, 1, len(piece)]))] = piece
    try:
        archive = read_archive(opened(bytes(raw)))
    except CheckpointError:
        return
    assert sum(archive.storages.values()) + len(archive.pickle) < len(raw)
    with zipfile.ZipFile(opened(bytes(raw))) as other:
        names = other.namelist()
        assert f"{archive.prefix}/data.pkl" in names
        assert len(names) == len({*names}) == 2 + len(archive.storages)
