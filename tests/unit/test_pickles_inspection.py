"""What a file would do is told, and not done: pickles, archives, arrays, JSON."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from safepoint import CheckpointError, ConfigurationError, LimitExceeded, NotFound, PickleRefused
from safepoint.errors import StorageUnavailable
from safepoint.pickles.inspection import Inspected, Inspection, inspect
from safepoint.pickles.kinds import Kind
from safepoint.pickles.limits import PickleLimits
from safepoint.pickles.scanning import scan

MKDIR = "posix.mkdir" if os.name == "posix" else "nt.mkdir"


class Payload:
    """Leaves a folder where a pickle of it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


def one(found: Inspection) -> Inspected:
    (pickled,) = found.pickles
    return pickled


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, data in members.items():
            made.writestr(name.replace("__", "/").replace("_pkl", ".pkl"), data)
    return file.getvalue()


def model(data: bytes, **more: bytes) -> bytes:
    return archive(m__data_pkl=data, m__version=b"3\n", m__byteorder=b"little", **more)


# Each way to hold a pickle that acts

HOLDERS: dict[str, Callable[[bytes], bytes]] = {
    "a pickle": lambda data: data,
    "the second of two pickles": lambda data: pickle.dumps(1) + data,
    "the data.pkl of a PyTorch archive": model,
    "another member of a PyTorch archive": lambda data: model(pickle.dumps({}), m__extra=data),
    "a storage of a PyTorch archive": lambda data: model(pickle.dumps({}), m__data__0=data),
    "the constants of TorchScript": lambda data: model(pickle.dumps({}), m__constants_pkl=data),
    "a member of an archive": lambda data: archive(readme=b"hello", state=data),
    "JSON of Agent Framework": lambda data: json.dumps(
        {"state": {"x": {"__pickled__": base64.b64encode(data).decode(), "__type__": "a:B"}}}
    ).encode(),
    "a text in JSON": lambda data: json.dumps([base64.b64encode(data).decode()]).encode(),
}


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("holder", HOLDERS)
def test_what_a_pickle_asks_for_is_told_and_not_run(
    marker: Path, tmp_path: Path, holder: str, protocol: int
) -> None:
    acts = pickle.dumps(Payload(marker), protocol)
    file = tmp_path / "harmless.safetensors"
    file.write_bytes(HOLDERS[holder](acts))
    for found in (inspect(file), inspect(str(file)), inspect(file.read_bytes())):
        assert any(each.imports == (MKDIR,) for each in found.pickles)
        assert any(each.calls for each in found.pickles)
        assert not found.plain
    assert not marker.exists()
    pickle.loads(acts)  # it would have been
    assert marker.exists()


@pytest.mark.parametrize("protocol", [0, 1])
def test_a_pickle_without_a_first_sign_is_one_too(marker: Path, protocol: int) -> None:
    acts = pickle.dumps(Payload(marker), protocol)
    for holder in ("a pickle", "a member of an archive", "JSON of Agent Framework"):
        found = one(inspect(HOLDERS[holder](acts)))
        assert (found.imports, found.protocol, found.plain) == ((MKDIR,), 0, False)
    assert not marker.exists()


def test_the_answer_for_a_pickle_that_acts(marker: Path) -> None:
    data = pickle.dumps(Payload(marker), 4)
    assert inspect(data) == Inspection(
        Kind.PICKLE,
        len(data),
        (
            Inspected(
                where="",
                imports=(MKDIR,),
                opcodes=15,
                protocol=4,
                calls=True,
                plain=False,
                reason=f"The pickle wants {MKDIR}, which is not on the list of what may be built.",
                trailing=0,
            ),
        ),
    )


def test_the_answer_for_plain_data() -> None:
    found = inspect(pickle.dumps({"due": datetime(2026, 1, 31, tzinfo=UTC)}))
    assert found.plain
    assert one(found).imports == ("datetime.datetime", "datetime.timedelta", "datetime.timezone")
    assert one(found).reason == ""


def test_each_of_several_pickles_is_told_by_its_place() -> None:
    found = inspect(pickle.dumps(1) + pickle.dumps([2]) + b"cos\nsystem\n.")
    assert found.kind is Kind.PICKLES
    assert [(each.where, each.plain) for each in found.pickles] == [
        ("pickle 1 (byte 0)", True),
        ("pickle 2 (byte 5)", True),
        ("pickle 3 (byte 22)", False),
    ]


def test_the_place_in_json_is_told() -> None:
    inner = {"__pickled__": base64.b64encode(pickle.dumps((1, 2))).decode(), "__type__": "x:y"}
    text = json.dumps({"state": {"x": [0, inner], "or der": inner, "__pickled__x": "gAWVnot"}})
    found = inspect(text.encode())
    assert [each.where for each in found.pickles] == ["state.x[1]", "state['or der']"]
    assert found.plain


def test_a_text_that_only_looks_like_one_is_left_alone() -> None:
    for text in ("gA", "gAAAA", "gAIN", "gAlaxies are far away", "gAWV" + "A" * 96):
        assert inspect(json.dumps({"note": text}).encode()).pickles == ()


# What it asks for, however it is said


@pytest.mark.parametrize(
    ("data", "imports"),
    [
        (b"cos\nsystem\n.", ("os.system",)),
        (b"(S'id'\nios\nsystem\n.", ("os.system",)),
        (b"(cos\nsystem\nS'id'\no.", ("os.system",)),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", ("os.system",)),
        (b"\x80\x04\x8c\x02os\x94\x8c\x06system\x9400h\x00h\x01\x93.", ("os.system",)),
        (b"\x80\x04\x8c\x02os20\x8c\x06system\x93.", ("os.system",)),
        (b"\x80\x04(\x8c\x01a1\x8c\x02os\x8c\x06system\x93.", ("os.system",)),
        (b"\x80\x04\x8c\x02os(K\x01K\x02t0\x8c\x06system\x93.", ("os.system",)),
        (b"\x80\x04\x8c\x02os\x8c\x0bpath.system\x93.", ("os.path.system",)),
        (b"\x80\x04\x8c\x02os(ia\nb\n0\x8c\x06system\x93.", ("a.b", "os.system")),
        (b"\x80\x04\x8c\x02os\x8c\x01a\x8c\x01b\x930\x8c\x06system\x93.", ("a.b", "os.system")),
        (b"\x80\x04C\x02osC\x06system\x93.", ("a name that is made while it runs (byte 14)",)),
        (b"\x80\x04\x93.", ("a name that is made while it runs (byte 2)",)),
        (b"\x80\x04h\x07h\x08\x93.", ("a name that is made while it runs (byte 6)",)),
        (b"\x80\x02\x82\x07.", ("number 7 of copyreg's extensions",)),
        (b"cos\n\x1b[31m\n.", ("'os.\\x1b[31m'",)),
        (b"\x80\x04\x8c\x02os\x8c\x0dsystem\nplain!\x93.", ("'os.system\\nplain!'",)),
        (b"ca\nb\n0ca\nb\n0cc\nd\n.", ("a.b", "c.d")),
    ],
)
def test_a_name_is_found_however_it_is_asked_for(data: bytes, imports: tuple[str, ...]) -> None:
    assert scan(data).imports == imports


def test_a_list_of_names_that_never_ends_is_cut() -> None:
    found = scan(b"".join(b"ca\nb%d\n0" % number for number in range(3000)) + b"N.")
    assert len(found.imports) < 1100
    assert "more than 1000 names" in found.imports


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_pickle_that_breaks_off_is_told_with_what_ran_by_then(cut: int) -> None:
    data = (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R" + b"N0" * 20)[: 21 + cut]
    found = inspect(data)
    assert not found.plain
    assert one(found).imports == ("os.system",)
    assert one(found).broken == one(found).reason == "The pickle is cut short."


def test_a_pickle_with_another_instruction_than_there_is() -> None:
    found = one(inspect(b"\x80\x04\x8c\x02os\x8c\x06system\x93\xff."))
    assert found.broken == "There is no instruction 0xff in a pickle, as at byte 15."


# PyTorch, for real


@pytest.fixture(scope="module")
def torch_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    folder = tmp_path_factory.mktemp("torch")
    state = {"weight": torch.randn(20, 5), "bias": torch.zeros(5), "tiny": torch.tensor([46])}
    acts = {**state, "payload": Payload(folder / "marker")}
    torch.save(state, folder / "tensors.pt")
    torch.save(acts, folder / "acts.pt")
    old = {"_use_new_zipfile_serialization": False}
    torch.save(state, folder / "old.pt", **old)
    torch.save(acts, folder / "old_acts.pt", **old)
    kinds = [torch.randint(0, 256, (64,), dtype=torch.uint8) for _ in range(2000)]
    torch.save(dict(enumerate(kinds)), folder / "random.pt")
    return folder


def test_a_state_dict_is_plain(torch_files: Path) -> None:
    found = inspect(torch_files / "tensors.pt")
    assert found.kind is Kind.TORCH_ZIP
    assert found.plain
    assert one(found).where == "tensors/data.pkl"
    assert "torch._utils._rebuild_tensor_v2" in one(found).imports


def test_a_model_that_acts_is_told(torch_files: Path) -> None:
    found = inspect(torch_files / "acts.pt")
    assert one(found).reason == f"The file wants {MKDIR}, which is not data."
    assert not (torch_files / "marker").exists()


def test_an_old_file_is_read_to_its_tensors(torch_files: Path) -> None:
    found = inspect(torch_files / "old.pt")
    assert found.kind is Kind.TORCH_LEGACY
    assert found.plain
    assert [each.where.partition(" (")[0] for each in found.pickles] == [
        f"pickle {number}" for number in range(1, 6)
    ]
    assert [each.trailing > 0 for each in found.pickles] == [False] * 4 + [True]


def test_an_old_file_that_acts_is_told_by_the_pickle_that_does(torch_files: Path) -> None:
    found = inspect(torch_files / "old_acts.pt")
    assert [each.plain for each in found.pickles] == [True, True, True, False, True]
    assert found.pickles[3].reason == f"The file wants {MKDIR}, which is not data."
    assert not (torch_files / "marker").exists()


def test_the_bytes_of_tensors_are_not_taken_for_pickles(torch_files: Path) -> None:
    """Two thousand storages of random bytes: some begin like a pickle."""
    found = inspect(torch_files / "random.pt")
    assert [each.where for each in found.pickles] == ["random/data.pkl"]
    assert found.plain


def test_a_storage_that_begins_like_a_pickle_is_none() -> None:
    found = inspect(model(pickle.dumps({}, 2), m__data__0=b"\x80\x02" + bytes(30)))
    assert [each.where for each in found.pickles] == ["m/data.pkl"]


def test_a_member_of_plain_data_is_a_pickle_and_one_of_text_is_none() -> None:
    data = archive(readme=b"cats are nice,\nand so are dogs.\n", state=pickle.dumps([1], 0))
    found = inspect(data)
    assert [each.where for each in found.pickles] == ["state"]
    assert found.plain


def test_an_archive_without_its_pickle_is_not_plain() -> None:
    found = inspect(model(b""))
    assert found.pickles == ()
    assert not found.plain
    assert len(found.unseen) == 1


def test_an_old_file_that_is_cut_is_not_plain(torch_files: Path) -> None:
    data = (torch_files / "old.pt").read_bytes()
    starts = [int(each.where[:-1].partition("byte ")[2]) for each in inspect(data).pickles]
    for size in (*starts[1:], 16, 22, 150, len(data) - 1):
        assert not inspect(data[:size]).plain


def test_torchscript_is_never_plain() -> None:
    found = inspect(model(pickle.dumps({}), m__code__a=b"def f(): pass"))
    assert found.kind is Kind.TORCH_SCRIPT
    assert not found.plain
    assert found.unseen == ("It holds code of TorchScript, which is not looked into.",)


# NumPy


def array(descr: str, rest: bytes, version: int = 1) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': (1,), }}\n".encode()
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + struct.pack("<H" if version == 1 else "<I", len(header))
        + header
        + rest
    )


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("descr", ["'|O'", "'O'", "[('a', '<i4'), ('b', '|O')]"])
def test_an_array_of_objects_holds_a_pickle(marker: Path, descr: str, version: int) -> None:
    data = array(descr, pickle.dumps(Payload(marker)), version)
    assert one(inspect(data)).where == "the objects of the array"
    assert one(inspect(data)).imports == (MKDIR,)
    assert one(inspect(archive(**{"a.npy": data}))).where == "a.npy, the objects of the array"
    assert not inspect(data).plain
    assert not marker.exists()


def test_an_array_of_numbers_holds_none() -> None:
    assert inspect(array("'<f8'", bytes(8))) == Inspection(Kind.NPY, 76, ())


# What is not entered is said


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\x1f\x8b\x08" + bytes(30), "It is compressed data (gzip), which is not entered."),
        (b"BZh9" + bytes(30), "It is compressed data (bzip2), which is not entered."),
        (b"\xfd7zXZ\0" + bytes(30), "It is compressed data (xz), which is not entered."),
        (b"hello", "It is of no format that is known here."),
        (
            archive(inner=archive(state=b"cos\nsystem\n.")),
            "inner is an archive in the archive, which is not entered.",
        ),
    ],
    ids=["gzip", "bzip2", "xz", "text", "nested"],
)
def test_what_is_not_looked_into_is_said(data: bytes, sentence: str) -> None:
    found = inspect(data)
    assert found.unseen == (sentence,)
    assert not found.plain


def test_a_member_that_nobody_can_read_is_said() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_BZIP2) as made:
        made.writestr("state", b"cos\nsystem\n.")
    assert inspect(file.getvalue()).unseen == ("state is encrypted, or packed in a rare way.",)


def test_a_file_without_a_pickle_is_plain() -> None:
    assert inspect(b'{"amount": 42}') == Inspection(Kind.JSON, 14, ())
    assert inspect(b"") == Inspection(Kind.EMPTY, 0, ())


# Bad input, each with one clear error


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pickle.dumps(1) + b"more", "The file is a pickle, and "),
        (
            b'{"state": {"__pickled__": "?", "__type__": "a:b"}}',
            "state is marked as a pickle, and is no base64. Nothing was run.",
        ),
        (archive(state=b"cos\nsystem\n.") + b"more", "The file begins as a zip archive, and "),
    ],
    ids=["a pickle and more", "no base64", "an archive and more"],
)
def test_a_file_of_two_meanings_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(PickleRefused) as refusal:
        inspect(data)
    assert str(refusal.value).startswith(message)


def test_json_with_a_key_twice_is_not_plain() -> None:
    assert not inspect(b'{"a": 1, "a": 2}').plain


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as refusal:
        inspect(tmp_path / "nothing.pt")
    assert str(refusal.value) == f"There is no file {tmp_path}/nothing.pt. Check the path."


def test_a_folder_a_pipe_and_no_path_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe):
        with pytest.raises(StorageUnavailable) as refusal:
            inspect(path)
        assert str(refusal.value) == f"{path} is a folder, a pipe or a device. Name a file."
    with pytest.raises(StorageUnavailable, match=r"cannot be read \(not a path\)"):
        inspect("a\0b")
    wrong: Any = 7
    with pytest.raises(ConfigurationError) as mistake:
        inspect(wrong)
    assert str(mistake.value) == (
        'A path or bytes can be looked at, and this is int. Write inspect("model.pt").'
    )


def test_an_archive_that_unpacks_to_much_is_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for number in range(4):
            made.writestr(f"{number}.pkl", b"N0" * 30_000 + b"N.")
    limits = PickleLimits(data_bytes=100_000)
    with pytest.raises(LimitExceeded) as refusal:
        inspect(file.getvalue(), limits=limits)
    assert refusal.value.what == "The pickles in the archive are larger than 100000 bytes."
    with pytest.raises(LimitExceeded, match=r"^The pickle is larger than 50000 bytes"):
        inspect(file.getvalue(), limits=PickleLimits(data_bytes=50_000))


def test_json_that_is_nested_deep_is_refused() -> None:
    with pytest.raises(CheckpointError):
        inspect(b"[" * 500 + b"1" + b"]" * 500)


def test_random_bytes_and_torn_files_end_as_an_answer_or_as_our_error(marker: Path) -> None:
    whole = model(pickle.dumps(Payload(marker), 2), m__data__0=bytes(range(256)))
    chance = random.Random(7)  # noqa: S311  chance, not secrets
    for size in range(0, len(whole), 7):
        torn = bytearray(whole[: size or None])
        torn[chance.randrange(len(torn))] ^= 1 << chance.randrange(8)
        for data in (bytes(torn), chance.randbytes(40)):
            with suppress(CheckpointError):
                inspect(data)
    assert not marker.exists()


# Arrays of objects by another name: NumPy evaluates the header


ODD_HEADERS = {
    "a word": "{'descr': 'object', 'fortran_order': False, 'shape': (1,), }",
    "hexadecimal": r"{'descr': '|\x4f', 'fortran_order': False, 'shape': (1,), }",
    "octal": r"{'descr': '|\117', 'fortran_order': False, 'shape': (1,), }",
    "a key twice": r"{'descr': '<i8', 'descr': '|\x4f', 'fortran_order': False, 'shape': (1,), }",
    "an escaped key": r"{'descr': '<i8', 'fortran_order': False, 'shape': (1,), "
    r"'d\x65scr': '|\x4f'}",
    "a field": r"{'descr': [('a', '|\x4f')], 'fortran_order': False, 'shape': (1,), }",
    "another order": r"{'shape': (1,), 'descr': '|\x4f', 'fortran_order': False}",
}


def headed(header: str, rest: bytes, version: bytes = b"\1\0") -> bytes:
    raw = header.encode() + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(raw)) + raw + rest


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("header", ODD_HEADERS.values(), ids=ODD_HEADERS)
def test_an_array_of_objects_is_one_however_its_header_says_so(
    marker: Path, header: str, protocol: int
) -> None:
    data = headed(header, pickle.dumps(Payload(marker), protocol))
    for found in (inspect(data), inspect(archive(**{"a.npy": data}))):
        assert one(found).imports == (MKDIR,)
        assert not found.plain
    assert not marker.exists()


@pytest.mark.parametrize("header", ["a word", "hexadecimal", "octal", "a field"])
def test_numpy_does_run_what_is_behind_such_a_header(marker: Path, header: str) -> None:
    np = pytest.importorskip("numpy")
    data = headed(ODD_HEADERS[header], pickle.dumps(Payload(marker)))
    with suppress(Exception):
        np.load(io.BytesIO(data), allow_pickle=True)
    assert marker.exists()


@pytest.mark.parametrize(
    "data",
    [
        headed(ODD_HEADERS["hexadecimal"], b"no pickle"),
        headed("{'descr': '|T16', 'fortran_order': False, 'shape': (1,), }", b"no pickle"),
        headed("{'descr': '<i8', 'fortran_order': False, 'shape': (1L,), }", bytes(8)),
        headed("{'descr': '<i8', 'fortran_order': 0, 'shape': (1,), }", bytes(8)),
        array("'<i8'", bytes(8)).replace(b"NUMPY\1", b"NUMPY\7"),
        array("[('a', [('b', '<i8')])]", bytes(8)),
    ],
    ids=["escaped", "texts", "Python 2", "another word", "another version", "nested"],
)
def test_an_array_with_a_header_that_is_not_known_is_not_plain(data: bytes) -> None:
    form = "is a NumPy array of a form that is not known here, and may hold objects."
    assert inspect(data).unseen == (f"It {form}",)
    assert inspect(archive(**{"a.npy": data})).unseen == (f"a.npy {form}",)


def test_an_array_in_an_archive_that_does_not_end_with_its_last_item_is_not_plain() -> None:
    for rest in (b"", bytes(9)):
        assert not inspect(archive(**{"a.npy": array("'<f8'", rest)})).plain


def test_arrays_as_numpy_writes_them_are_plain() -> None:
    np = pytest.importorskip("numpy")
    arrays = [
        *(np.zeros((), "f4"), np.zeros((2, 3), "c16"), np.zeros(0, "?"), np.zeros((5, 0, 2), "u2")),
        *(np.array(["a", "bcd"]), np.array([b"xy"]), np.zeros(3, "M8[25s]"), np.zeros(3, "m8")),
        *(np.zeros(3, "V5"), np.asfortranarray(np.zeros((3, 4))), np.zeros(2, ">i4")),
        np.zeros(3, [("O", "f8"), ("b c", "i4", (2, 3)), ("é", "U7")]),
        np.zeros(3, np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    ]
    for each in arrays:
        file = io.BytesIO()
        np.save(file, each)
        assert inspect(file.getvalue()) == Inspection(Kind.NPY, len(file.getvalue()), ())
    file = io.BytesIO()
    np.savez(file, *arrays)
    assert inspect(file.getvalue()).plain


# Pickles in archives and texts that say little at their beginning


LONG = b"S'" + b"A" * 5000 + b"'\n0"
BEFORE = {
    "nothing": b"",
    "a long line": LONG,
    "a long text": b"X" + struct.pack("<I", 100_000) + b"A" * 100_000 + b"0",
    "a line that is no number for us": b"I 1\n0",
    "octal": b"I010\n0",
    "a number and more": b"F1\0 and more\n0",
    "a mark that is taken away": b"(0",
    "a name that is none": b"csys\n1x\n0" + LONG,
    "another pickle": b"N.",
}


@pytest.mark.parametrize("after", [b".", b".\n", b"\xff", b"0csys\n1 2\n.\n", b""])
@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("holder", ["a member of an archive", "a text in JSON"])
def test_a_pickle_that_acts_before_it_breaks_is_told(
    marker: Path, holder: str, before: bytes, after: bytes
) -> None:
    acts = pickle.dumps(Payload(marker), 0)[:-1]
    found = inspect(HOLDERS[holder](before + acts + after))
    assert found.pickles
    assert not found.plain
    assert not marker.exists()


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_an_unpickler_does_run_it(marker: Path, before: bytes) -> None:
    before = before.replace(b"csys\n1x\n", b"csys\npath\n")  # one that is there
    file = io.BytesIO(before + pickle.dumps(Payload(marker), 0)[:-1] + b"\xff")
    with suppress(pickle.UnpicklingError):
        pickle.load(file)
        pickle.load(file)
    assert marker.exists()


def test_base64_as_addresses_and_letters_write_it(marker: Path) -> None:
    acts = b"N0" + LONG + pickle.dumps(Payload(marker), 0) + b"\xfb\xff"
    plain = base64.b64encode(acts).decode()
    assert "+" in plain or "/" in plain
    for text in (
        plain,
        base64.urlsafe_b64encode(acts).decode(),
        base64.encodebytes(acts).decode(),
        plain.rstrip("="),
    ):
        assert one(inspect(json.dumps({"note": text}).encode())).imports == (MKDIR,)


def test_a_number_that_stands_for_a_name_is_told_if_it_is_called() -> None:
    assert inspect(archive(state=b"\x82\x07)R\xff")).pickles
    assert inspect(archive(state=b"\x82\x07\xff")).plain


def test_a_member_that_goes_on_for_too_long_is_said() -> None:
    long = b"N0" * 600
    data = archive(state=long + b"cos\nsystem\n.", more=b"x")
    sentences = (
        "state reads as a pickle for longer than was looked at.",
        "What follows state in the archive was not looked at.",
    )
    assert inspect(data, limits=PickleLimits(opcodes=1000)).unseen == sentences
    assert inspect(data, limits=PickleLimits(data_bytes=1000)).unseen == sentences
    assert one(inspect(data)).imports == ("os.system",)


def test_tensors_that_begin_like_a_long_text_are_passed_by() -> None:
    """Many in one archive: each says that it has 100 MB, and has 100 kB."""
    storages = {f"m__data__{n}": b"X\0\0\0\6" + b"\xff" * 100_000 for n in range(30)}
    data = model(pickle.dumps({}, 2), **storages)
    found = inspect(data, limits=PickleLimits(data_bytes=1_000_000))
    assert [each.where for each in found.pickles] == ["m/data.pkl"]
    assert found.unseen == ()


def test_tensors_that_read_as_a_long_pickle_are_said() -> None:
    """A header of 0x56 bytes reads as UNICODE, which goes to the end of the line."""
    header = b'{"a":{"dtype":"U8","shape":[5000],"data_offsets":[0,5000]}}'.ljust(0x56)
    data = struct.pack("<Q", 0x56) + header + b"\xff" * 5000
    assert inspect(data).plain
    found = inspect(data, limits=PickleLimits(data_bytes=1000))
    assert found.unseen == ("It reads as a pickle, too, for longer than was looked at.",)


def test_no_memory_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise MemoryError

    for place in ("inspection.scan", "taking.identify", "unzipping.walk"):
        with monkeypatch.context() as patched:
            patched.setattr(f"safepoint.pickles.{place}", fails)
            with pytest.raises(LimitExceeded, match="There is not enough memory"):
                inspect(archive(a_pkl=b"N."))
