"""The old format of torch.save: five pickles and raw storages, every byte accounted for."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safepoint.errors import CheckpointError, LimitExceeded, ModelMalformed, UnsafeModel
from safepoint.pickles.kinds import Kind
from safepoint.weights.limits import ModelLimits
from safepoint.weights.plan import Plan, read_plan
from tests.unit.archive_helpers import (
    BYTES,
    FLOATS,
    MAGIC,
    NONE,
    call,
    legacy,
    name,
    number,
    opened,
    proto,
    storage,
    tensor,
    text,
    tuple_,
)

AGAIN = "Get the file again, or write it again with torch.save. Nothing was loaded."
RAW = struct.pack("<q4f", 4, 1, 2, 3, 4)
OLD = storage("0", 4, FLOATS, "cpu", NONE)
LISTED = f"The list of storages is not that of the tensors. {AGAIN}"
CUT = f"The file is cut short, or is followed by more. {AGAIN}"
START = f"The file does not begin with the number of a PyTorch file. {AGAIN}"
STORAGE = f"The file describes a storage in a way that torch.save does not. {AGAIN}"


def planned(data: bytes, limits: ModelLimits | None = None) -> Plan:
    return read_plan(opened(data), Kind.TORCH_LEGACY, limits or ModelLimits())


def test_the_files_below_are_right_but_for_one_thing() -> None:
    plan = planned(legacy(tensor(OLD)))
    assert plan.tensors["tensor"].shape == (4,)
    assert plan.byteorder == "little"


def test_storages_follow_in_the_order_of_their_list() -> None:
    second = storage("17", 1, FLOATS, "cuda:0", NONE)
    code = tuple_(tensor(OLD), tensor(second, 0, (1,)))
    plan = planned(legacy(code, ("17", "0"), struct.pack("<qf", 1, 5) + RAW))
    assert [plan.tensors[at].device for at in "01"] == ["cpu", "cuda:0"]


def test_a_file_without_tensors_has_no_storages() -> None:
    assert planned(legacy(number(3), (), b"")).tensors == {}


REFUSED: dict[str, tuple[Callable[[], bytes], type[CheckpointError], str]] = {
    "another number at the beginning": (
        lambda: legacy(tensor(OLD), magic=MAGIC + 1),
        ModelMalformed,
        START,
    ),
    "another version": (lambda: legacy(tensor(OLD), version=1002), ModelMalformed, START),
    "nothing behind the number": (
        lambda: proto(number(MAGIC)),
        ModelMalformed,
        f"The pickle is cut short. {AGAIN}",
    ),
    "bytes behind the last storage": (
        lambda: legacy(tensor(OLD)) + b"\0",
        ModelMalformed,
        CUT,
    ),
    "a last storage that is cut short": (
        lambda: legacy(tensor(OLD))[:-1],
        ModelMalformed,
        CUT,
    ),
    "no last storage": (
        lambda: legacy(tensor(OLD), storages=b""),
        ModelMalformed,
        f"The file is cut short. {AGAIN}",
    ),
    "a storage of another size than the pickle says": (
        lambda: legacy(tensor(OLD), storages=struct.pack("<q5f", 5, 1, 2, 3, 4, 5)),
        ModelMalformed,
        f"The storage 0 has 5 elements, and is 16 bytes in the pickle. {AGAIN}",
    ),
    "a storage of a negative size": (
        lambda: legacy(tensor(OLD), storages=struct.pack("<q", -1)),
        ModelMalformed,
        f"The storage 0 has -1 elements, and is 16 bytes in the pickle. {AGAIN}",
    ),
    "six gigabytes in 400 bytes": (
        lambda: legacy(tensor(storage("0", 15 * 10**8, FLOATS, "cpu", NONE))),
        ModelMalformed,
        f"The storage 0 has 4 elements, and is 6000000000 bytes in the pickle. {AGAIN}",
    ),
    "six gigabytes that are not there": (
        lambda: legacy(
            tensor(storage("0", 15 * 10**8, FLOATS, "cpu", NONE)),
            storages=struct.pack("<q", 15 * 10**8),
        ),
        ModelMalformed,
        CUT,
    ),
    "a tensor that makes its storage grow": (
        lambda: legacy(tensor(OLD, 0, (10**9,))),
        ModelMalformed,
        f"A tensor of the shape (1000000000,) reaches beyond its storage of 16 bytes. {AGAIN}",
    ),
    "a storage that is not in the list": (
        lambda: legacy(tensor(OLD), (), b""),
        ModelMalformed,
        LISTED,
    ),
    "a storage that no tensor uses": (
        lambda: legacy(tensor(OLD), ("0", "1"), RAW + RAW),
        ModelMalformed,
        LISTED,
    ),
    "a storage twice": (
        lambda: legacy(tensor(OLD), ("0", "0"), RAW + RAW),
        ModelMalformed,
        LISTED,
    ),
    "a list that is none": (
        lambda: legacy(tensor(OLD)).replace(proto(b"](" + text("0") + b"e"), proto(text("0"))),
        ModelMalformed,
        LISTED,
    ),
    "a list of numbers": (
        lambda: legacy(tensor(OLD)).replace(proto(b"](" + text("0") + b"e"), proto(b"](K\0e")),
        ModelMalformed,
        LISTED,
    ),
    "a list of lists": (
        lambda: legacy(tensor(OLD)).replace(proto(b"](" + text("0") + b"e"), proto(b"](]e")),
        ModelMalformed,
        LISTED,
    ),
    "a list of another storage": (lambda: legacy(tensor(OLD), ("1",)), ModelMalformed, LISTED),
    "a storage as in an archive": (lambda: legacy(tensor(storage())), ModelMalformed, STORAGE),
    "a part of a storage": (
        lambda: legacy(
            tensor(storage("0", 4, FLOATS, "cpu", tuple_(text("1"), number(0), number(2))))
        ),
        ModelMalformed,
        f"The file describes a part of a storage, as PyTorch before 0.4 did. {AGAIN}",
    ),
    "a storage of bytes": (
        lambda: legacy(tensor(storage("0", 4, BYTES, "cpu", NONE))),
        ModelMalformed,
        f"The old format cannot hold a type of elements that came after 2021. {AGAIN}",
    ),
    "a module and its source": (
        lambda: legacy(tuple_(text("module"), NONE, text("a.py"), text("import os")) + b"Q"),
        UnsafeModel,
        (
            "The file refers to something that is no storage of a tensor. "
            "If you made it, save the state_dict of the model, and not the model."
        ),
    ),
    "a name in the description of the machine": (
        lambda: legacy(tensor(OLD), machine=call(("os", "system"), text("true"))),
        UnsafeModel,
        (
            "The file wants os.system, which is not data. Nothing of it was run. Do not load it. "
            "If you made it, save the state_dict and plain values instead."
        ),
    ),
    "a storage in the description of the machine": (
        lambda: legacy(tensor(OLD), machine=OLD),
        ModelMalformed,
        f"The pickle uses BINPERSID, which plain data does not need. {AGAIN}",
    ),
    "a name in the list of storages": (
        lambda: legacy(tensor(OLD)).replace(
            proto(b"](" + text("0") + b"e"), proto(name("builtins", "eval"))
        ),
        UnsafeModel,
        (
            "The file wants builtins.eval, which is not data. Nothing of it was run. "
            "Do not load it. If you made it, save the state_dict and plain values instead."
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_torch_save_does_not_write_is_refused(case: str) -> None:
    make, error, message = REFUSED[case]
    data = make()
    with pytest.raises(error) as refusal:
        planned(data)
    assert str(refusal.value) == message


def test_a_file_that_is_a_tar_archive_too_is_refused() -> None:
    """PyTorch looks for a tar archive first, and one checksum is all that a tar needs."""
    plain = legacy(tensor(OLD), machine=text("0" * 1000))
    header = bytearray(plain[:512])
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    data = bytes(header) + plain[512:]
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        assert tar.next() is not None
    with pytest.raises(ModelMalformed) as refusal:
        planned(data)
    assert str(refusal.value) == (
        f"The file is a tar archive, too. PyTorch looks for that first. {AGAIN}"
    )


def test_the_file_and_its_pickles_have_limits() -> None:
    with pytest.raises(LimitExceeded) as refusal:
        planned(legacy(tensor(OLD)), ModelLimits(file_bytes=100))
    assert str(refusal.value) == (
        f"The file is {len(legacy(tensor(OLD)))} bytes, over the limit of 100. "
        "If it is meant to be that large, raise ModelLimits.file_bytes."
    )
    assert planned(legacy(tensor(OLD)), ModelLimits(file_bytes=len(legacy(tensor(OLD))))).tensors
    with pytest.raises(LimitExceeded) as refusal:
        planned(legacy(tensor(OLD)), ModelLimits(pickle_bytes=100))
    assert str(refusal.value) == (
        "The pickles in the file are over the limit of 100 bytes. "
        "If it is meant to be that large, raise ModelLimits.pickle_bytes."
    )


def test_a_large_file_is_refused_for_what_is_wrong_with_it() -> None:
    with pytest.raises(ModelMalformed) as refusal:
        planned(legacy(tensor(OLD), version=1002), ModelLimits(pickle_bytes=100))
    assert str(refusal.value) == START


def test_what_torch_writes_and_cannot_read_back_is_refused_with_a_reason() -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    file = io.BytesIO()
    torch.save(torch.ones(2).to(torch.uint16), file, _use_new_zipfile_serialization=False)
    file.seek(0)
    with pytest.raises(AttributeError, match="has no attribute 'dtype'"):
        torch.load(file, weights_only=True)
    with pytest.raises(ModelMalformed) as refusal:
        planned(file.getvalue())
    assert refusal.value.what == (
        "The old format cannot hold a type of elements that came after 2021."
    )


def test_a_whole_model_of_the_old_format_is_named_and_not_built() -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    file = io.BytesIO()
    torch.save(torch.nn.Linear(1, 1), file, _use_new_zipfile_serialization=False)
    with pytest.raises(UnsafeModel, match=r"The file wants torch\.nn\.modules\.linear\.Linear"):
        planned(file.getvalue())


PIECES = st.binary(max_size=6) | st.sampled_from(
    [b"\xff" * 8, b"\0" * 8, proto(NONE), tensor(OLD), OLD, RAW, b".", b"Q", b"h\0", number(2**62)]
)


@given(st.data())
def test_a_damaged_file_is_refused_or_planned(data: st.DataObject) -> None:
    whole: Any = legacy(tuple_(tensor(OLD), tensor(OLD, 1, (2,))))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(whole)))
        end = min(len(whole), start + data.draw(st.integers(0, 10)))
        whole = whole[:start] + data.draw(PIECES) + whole[end:]
    try:
        plan = planned(whole, ModelLimits(tensors=1000, elements=10**6, memory_bytes=10**6))
    except CheckpointError:
        return
    assert all(one.storage_bytes < len(whole) for one in plan.tensors.values())
