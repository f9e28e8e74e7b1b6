"""A safetensors file: read from one buffer, written byte for byte as the package writes it."""

from __future__ import annotations

import importlib
import io
import json
import mmap
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safepoint.errors import LimitExceeded, MissingPackage, ModelMalformed, ModelUnsupported
from safepoint.weights import _packages, dtypes, writing
from safepoint.weights.digest import digest
from safepoint.weights.dtypes import CODES
from safepoint.weights.limits import ModelLimits
from safepoint.weights.tensorfile import TensorFile, open_tensorfile, open_tensors
from safepoint.weights.writing import write_into

torch = pytest.importorskip("torch", exc_type=ImportError)
safetensors = pytest.importorskip("safetensors.torch", exc_type=ImportError)

NAMES = sorted(name for name, _ in CODES.values())


def tensor_of(name: str, shape: tuple[int, ...] = (3, 4), seed: int = 0) -> Any:
    """Make a tensor of any type from random bytes, so that NaN and odd bit patterns occur."""
    dtype = getattr(torch, name)
    if name == "bool":
        return torch.arange(torch.Size(shape).numel()).view(shape) % 3 == 0
    count = torch.Size(shape).numel() * dtype.itemsize
    random = torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=random)
    return raw.view(dtype).view(shape) if count else torch.empty(shape, dtype=dtype)


def raw(tensor: Any) -> bytes:
    """Return the bytes of a tensor."""
    flat = tensor.contiguous().view(-1)
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Tell whether two dicts of tensors are equal bit for bit."""
    return one.keys() == other.keys() and all(
        (one[name].dtype, one[name].shape, raw(one[name]))
        == (other[name].dtype, other[name].shape, raw(other[name]))
        for name in one
    )


def written(path: Path, tensors: dict[str, Any]) -> bytes:
    with path.open("wb") as file:
        write_into(file.fileno(), tensors)
    return path.read_bytes()


def loaded(path: Path, *, private: bool = True, limits: ModelLimits | None = None) -> Any:
    with path.open("rb") as file:
        return open_tensors(file, limits or ModelLimits(), private=private)


ALL = {
    f"{name}.{shape}": tensor_of(name, shape)
    for name in NAMES
    for shape in [(3, 4), (), (0,), (5,)]
}


# --- writing and reading back ---


def test_the_bytes_are_those_that_the_safetensors_package_writes(tmp_path: Path) -> None:
    """All types, and shapes with no, one and two dimensions, and none at all."""
    for state in (ALL, {}, {"ünï": tensor_of("uint8"), "a b": tensor_of("uint8", (1,))}):
        expected = safetensors.save(state, metadata={"format": "pt"})
        assert written(tmp_path / "model.safetensors", state) == expected


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_each_type_comes_back_bit_for_bit(tmp_path: Path, name: str, private: bool) -> None:
    state = {
        "matrix": tensor_of(name),
        "number": tensor_of(name, ()),
        "empty": tensor_of(name, (0, 3)),
        "many": tensor_of(name, (1, 2, 1, 3, 1)),
    }
    path = tmp_path / "model.safetensors"
    written(path, state)
    assert same(loaded(path, private=private), state)
    assert same(safetensors.load_file(path), state)


@pytest.mark.parametrize("private", [True, False])
def test_no_tensors_at_all_come_back(tmp_path: Path, private: bool) -> None:
    path = tmp_path / "model.safetensors"
    written(path, {})
    assert loaded(path, private=private) == {}


def test_small_and_large_tensors_are_written_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small ones are collected and large ones written in pieces: neither may overtake the other."""
    monkeypatch.setattr(writing, "_SMALL", 16)
    monkeypatch.setattr(writing, "_BATCH", 40)
    monkeypatch.setattr(writing, "_PIECE", 7)
    state = {f"{number:02}": tensor_of("uint8", (number * 7 % 40,)) for number in range(40)}
    expected = safetensors.save(state, metadata={"format": "pt"})
    assert written(tmp_path / "model.safetensors", state) == expected


def test_a_disk_that_takes_a_part_at_a_time_gets_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:5])))
    expected = safetensors.save({"a": tensor_of("float32")}, metadata={"format": "pt"})
    assert written(tmp_path / "model.safetensors", {"a": tensor_of("float32")}) == expected


def test_a_disk_that_takes_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", lambda *_: 0)
    with pytest.raises(OSError, match="nothing was written"):
        written(tmp_path / "model.safetensors", {"a": tensor_of("float32")})


def test_it_is_written_from_where_the_descriptor_stands(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with path.open("wb", buffering=0) as file:
        file.write(b"before")
        write_into(file.fileno(), {})
    assert path.read_bytes() == b"before" + safetensors.save({}, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: torch.ones(2, 3).t(),
            "The tensor 'a' is not one contiguous piece of the CPU's memory.",
        ),
        (
            lambda: torch.ones(2, dtype=torch.complex64).conj(),
            "The tensor 'a' is not one contiguous piece of the CPU's memory.",
        ),
        (
            lambda: torch.ones(2, dtype=torch.complex64).conj().imag,
            "The tensor 'a' is not one contiguous piece of the CPU's memory.",
        ),
        (
            lambda: torch._neg_view(torch.ones(2)),
            "The tensor 'a' is not one contiguous piece of the CPU's memory.",
        ),
        (
            lambda: torch.empty(2, device="meta"),
            "The tensor 'a' is on the meta device and has no values.",
        ),
        (
            lambda: torch.ones(2).to_sparse(),
            "The tensor 'a' is torch.sparse_coo, and safetensors holds dense ones alone.",
        ),
        (
            lambda: torch.ones(2, dtype=torch.complex128),
            "The tensor 'a' is of the type complex128, which safetensors cannot hold.",
        ),
    ],
)
def test_only_memory_that_is_all_of_the_tensor_is_written(
    tmp_path: Path, make: Any, message: str
) -> None:
    path = tmp_path / "model.safetensors"
    with pytest.raises(ModelUnsupported) as refused:
        written(path, {"first": torch.ones(1), "a": make()})
    assert refused.value.what == message
    assert path.read_bytes() == b""  # all are checked before the first byte is written


def test_a_name_that_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ModelUnsupported) as refused:
        written(tmp_path / "model", {"../a": torch.ones(1)})
    assert str(refused.value) == (
        "The tensor '../a' has a name that looks like a way out of a folder: it holds '..' or a"
        " backslash, or begins with '/'. Rename the keys on the way to it."
    )


# --- one buffer ---


@pytest.mark.parametrize("private", [True, False])
def test_a_change_of_a_tensor_never_reaches_the_file(tmp_path: Path, private: bool) -> None:
    path = tmp_path / "model.safetensors"
    before = written(path, {"a": torch.zeros(4)})
    tensors = loaded(path, private=private)
    tensors["a"].fill_(7)
    assert tensors["a"].tolist() == [7] * 4
    assert path.read_bytes() == before


@pytest.mark.parametrize("private", [True, False])
def test_a_forked_process_has_tensors_of_its_own(tmp_path: Path, private: bool) -> None:
    """Memory that is shared would be one with that of every child."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("no /proc to look at the mappings of this process")
    path = tmp_path / "model.safetensors"
    written(path, {"a": torch.zeros(4)})
    address = loaded(path, private=private)["a"]
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(each, 16) for each in line.split()[0].split("-"))
        if first <= address.data_ptr() < last:
            assert line.split()[1] == "rw-p"
            return
    pytest.fail("the tensor is in no mapping")


def test_a_file_that_nobody_else_can_write_is_mapped(tmp_path: Path) -> None:
    """A model of many GB is there at once, and only what is used of it is read."""
    path = tmp_path / "model.safetensors"
    written(path, {"a": torch.zeros(4)})
    with path.open("rb") as file:
        assert isinstance(open_tensorfile(file, private=True).buffer, mmap.mmap)
        loaded_tensors = open_tensors(file, private=True)
    if Path("/proc/self/maps").exists():
        assert str(path) in Path("/proc/self/maps").read_text()
    del loaded_tensors


def test_where_the_file_stands_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    written(path, {"a": torch.ones(4)})
    for private in (True, False):
        with path.open("rb") as file:
            file.read(11)
            assert open_tensors(file, private=private)["a"].tolist() == [1] * 4


def test_a_file_that_others_can_write_is_read_once(tmp_path: Path) -> None:
    """Whoever edits it after its digest was compared changes nothing of what is loaded."""
    path = tmp_path / "model.safetensors"
    genuine = written(path, {"a": torch.zeros(4)})
    with path.open("rb") as file:
        opened = open_tensorfile(file, private=False)
        assert opened.digest() == digest(genuine)
        written(path, {"a": torch.ones(4), "more": torch.ones(1)})
        assert opened.tensors()["a"].tolist() == [0] * 4
        assert list(opened.table().tensors) == ["a"]
        assert opened.digest() == digest(genuine)


def test_what_is_in_memory_is_used_as_it_is() -> None:
    state = {"a": tensor_of("float32"), "b": tensor_of("int8", (3,))}
    data = safetensors.save(state)
    assert same(open_tensors(io.BytesIO(data), private=False), state)


def test_tensors_of_bytes_are_of_a_copy(recwarn: pytest.WarningsRecorder) -> None:
    """PyTorch would let somebody write to memory that is never written."""
    data = safetensors.save({"a": torch.zeros(1)})
    tensors = TensorFile(data).tensors()
    tensors["a"].fill_(1)
    assert data == safetensors.save({"a": torch.zeros(1)})


def test_the_file_may_be_closed_and_removed_while_its_tensors_are_used(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    state = {"a": tensor_of("float64", (1000,))}
    written(path, state)
    tensors = loaded(path)
    path.unlink()
    assert same(tensors, state)


def test_each_tensor_has_memory_of_its_own(tmp_path: Path) -> None:
    """One that is saved again or sent elsewhere must not take the whole file along."""
    path = tmp_path / "model.safetensors"
    written(path, {"a": tensor_of("float32"), "b": tensor_of("float32")})
    tensors = loaded(path)
    assert [each.untyped_storage().nbytes() for each in tensors.values()] == [48, 48]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("private", [True, False])
def test_tensors_at_odd_places_are_copied_to_even_ones(
    tmp_path: Path, name: str, private: bool
) -> None:
    """Other writers do not pad the header."""
    state = {"a": tensor_of(name)}
    data = safetensors.save(state)
    length = int.from_bytes(data[:8], "little")
    padded = data[8 : 8 + length] + b" " * 3
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(padded).to_bytes(8, "little") + padded + data[8 + length :])
    tensors = loaded(path, private=private)
    assert same(tensors, state)
    assert tensors["a"].data_ptr() % tensors["a"].element_size() == 0
    start = TensorFile(memoryview(bytearray(b"x" + data))[1:]).tensors()["a"]
    assert start.data_ptr() % start.element_size() == 0
    assert same({"a": start}, state)


def test_a_third_truth_value_is_refused() -> None:
    data = bytearray(safetensors.save({"a": torch.tensor([True, False])}))
    data[-1] = 2
    assert safetensors.load(bytes(data))  # a gap of the package
    with pytest.raises(ModelMalformed) as refused:
        TensorFile(data).tensors()
    assert str(refused.value) == (
        "The tensor 'a' holds a byte that is neither true nor false. Nothing was loaded. Save the"
        " model again with safetensors or save_checkpoint."
    )


@pytest.mark.parametrize("private", [True, False])
def test_an_empty_file_is_refused(tmp_path: Path, private: bool) -> None:
    path = tmp_path / "model.safetensors"
    path.touch()
    with pytest.raises(ModelMalformed) as refused:
        loaded(path, private=private)
    assert str(refused.value) == (
        "The safetensors file is empty. Copy it again: the save or the copy did not finish."
    )
    with pytest.raises(ModelMalformed, match="is empty"):
        open_tensors(io.BytesIO(), private=False)


@pytest.mark.parametrize("private", [True, False])
def test_a_file_over_the_limit_is_not_read(tmp_path: Path, private: bool) -> None:
    path = tmp_path / "model.safetensors"
    size = len(written(path, {"a": torch.zeros(4)}))
    with pytest.raises(LimitExceeded) as refused:
        loaded(path, private=private, limits=ModelLimits(file_bytes=size - 1))
    assert str(refused.value) == (
        f"The safetensors file is {size} bytes, over the limit of {size - 1}. If it is meant to be"
        " that large, raise ModelLimits.file_bytes."
    )
    assert loaded(path, private=private, limits=ModelLimits(file_bytes=size))


def test_a_file_that_is_cut_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    written(path, {"a": torch.zeros(4)})

    class Shrinking(io.FileIO):
        def readinto(self, buffer: Any) -> int:
            os.truncate(path, 50)
            return super().readinto(buffer)

    with Shrinking(path) as file, pytest.raises(ModelMalformed) as refused:
        open_tensors(file, private=False)
    assert str(refused.value) == (
        "The safetensors file became shorter while it was read. Nothing was loaded. Load it again"
        " once nobody writes it."
    )


def test_a_file_that_is_cut_before_it_is_mapped_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    written(path, {"a": torch.zeros(4)})
    real = os.fstat

    def longer(descriptor: int) -> Any:
        return SimpleNamespace(st_size=real(descriptor).st_size + 1)

    monkeypatch.setattr(os, "fstat", longer)
    with io.FileIO(path) as file, pytest.raises(ModelMalformed, match="became shorter"):
        open_tensors(file, private=True)


def test_every_cut_is_refused() -> None:
    data = safetensors.save({"a": torch.zeros(2), "b": torch.ones(1)})
    for length in range(1, len(data)):
        with pytest.raises(ModelMalformed):
            TensorFile(data[:length]).tensors()


def test_a_machine_with_the_other_order_of_bytes_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = safetensors.save({"a": torch.zeros(2)})
    monkeypatch.setattr(dtypes, "sys", SimpleNamespace(byteorder="big"))
    for attempt in (TensorFile(data).tensors, lambda: written(tmp_path / "model", {})):
        with pytest.raises(ModelUnsupported) as refused:
            attempt()
        assert str(refused.value) == (
            "This machine stores the high byte of a number first, and safetensors the low one."
            " Load and save on a little-endian machine, such as any x86-64 or ARM server."
        )


# --- the packages ---


@pytest.mark.parametrize("name", ["torch", "safetensors"])
def test_without_the_package_one_sentence_says_how_to_get_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackage) as refused:
        getattr(_packages, name)()
    assert str(refused.value) == (
        f"safepoint.weights needs {name}, which is not installed."
        " Install it: pip install 'safepoint[torch]'"
    )


@pytest.mark.parametrize(
    "problem",
    [
        ImportError("libtorch.so: cannot open\nshared object"),
        ModuleNotFoundError("no typing_extensions", name="typing_extensions"),
        OSError("libtorch.so: cannot open\nshared object"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_a_broken_installation_is_told_apart_from_a_missing_one(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> None:
        raise problem

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(MissingPackage) as refused:
        _packages.torch()
    assert refused.value.what.startswith(
        "safepoint.weights needs torch, whose installation is broken ('"
    )
    assert "\n" not in str(refused.value)
    assert refused.value.do == "Install it again: pip install --force-reinstall torch"


def test_the_packages_are_what_they_are_called() -> None:
    assert _packages.torch() is torch
    assert _packages.safetensors().__name__ == "safetensors"


# --- what nobody thought of ---


@settings(max_examples=60, deadline=None, database=None)
@given(
    st.dictionaries(
        st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8),
        st.tuples(
            st.sampled_from(NAMES), st.lists(st.integers(0, 3), max_size=4), st.integers(0, 9)
        ),
        max_size=5,
    )
)
def test_any_tensors_are_written_and_read_as_safetensors_does(
    tmp_path_factory: pytest.TempPathFactory, case: dict[str, Any]
) -> None:
    state = {
        name: tensor_of(kind, tuple(shape), seed) for name, (kind, shape, seed) in case.items()
    }
    path = tmp_path_factory.mktemp("any") / "model.safetensors"
    assert written(path, state) == safetensors.save(state, metadata={"format": "pt"})
    assert same(loaded(path, private=True), state)
    assert same(loaded(path, private=False), state)


@settings(max_examples=200, deadline=None, database=None)
@given(st.data())
def test_a_changed_file_is_refused_or_loads_as_safetensors_loads_it(data: st.DataObject) -> None:
    state = {
        "a": tensor_of("float32", (2,)),
        "b": tensor_of("uint8", (3,)),
        "c": tensor_of("int64"),
    }
    file = bytearray(safetensors.save(state))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    try:
        ours = TensorFile(file).tensors()
    except (ModelMalformed, LimitExceeded):
        return
    assert same(ours, safetensors.load(bytes(file)))


def test_three_hundred_thousand_empty_tensors_are_refused_at_once() -> None:
    """The safetensors package takes seconds for them."""
    empty = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    header = "{" + ",".join(f'"{number}":{empty}' for number in range(300_000)) + "}"
    file = len(header).to_bytes(8, "little") + header.encode()
    assert json.loads(header)
    with pytest.raises(LimitExceeded, match="describes more than 100000 tensors"):
        TensorFile(file).tensors()
