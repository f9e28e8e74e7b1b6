"""Files that PyTorch believes, or that are made to hurt: each is refused by its plan.

No file here is given to PyTorch in this process.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
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
    FALSE,
    FLOATS,
    HOOKS,
    NONE,
    TRUE,
    VERSION,
    Part,
    archive,
    call,
    name,
    number,
    opened,
    proto,
    sizes,
    storage,
    tensor,
    text,
    tuple_,
    zipped,
)

AGAIN = "Get the file again, or write it again with torch.save. Nothing was loaded."
DATA = "If you made it, save tensors that have their data instead. Nothing was loaded."
RUN = (
    "Nothing of it was run. Do not load it. "
    "If you made it, save the state_dict and plain values instead."
)
FOUR = struct.pack("<4f", 1, 2, 3, 4)
SMALL = ModelLimits(tensors=1000, elements=10**6, memory_bytes=10**6)


def planned(data: bytes, limits: ModelLimits = SMALL) -> Plan:
    return read_plan(opened(data), Kind.TORCH_ZIP, limits)


def test_the_files_below_are_right_but_for_one_thing() -> None:
    plan = planned(archive(proto(tensor()), {"0": FOUR}))
    assert plan.tensors["tensor"].shape == (4,)
    plan = planned(archive(proto(v3()), {"0": FOUR}))
    assert plan.tensors["tensor"].dtype == "uint16"
    plan = planned(archive(proto(parameter()), {"0": FOUR}))
    assert plan.tensors["tensor"].parameter
    old = call(("torch._utils", "_rebuild_tensor"), storage(), number(1), sizes((3,)), sizes((1,)))
    plan = planned(archive(proto(old), {"0": FOUR}))
    assert (plan.tensors["tensor"].offset, plan.tensors["tensor"].dtype) == (1, "float32")


def v3(dtype: bytes = name("torch", "uint16"), held: bytes | None = None, *more: bytes) -> bytes:
    held = storage(count=16, kind=BYTES) if held is None else held
    arguments = (held, number(0), sizes((8,)), sizes((1,)), FALSE, HOOKS, dtype, *more)
    return call(("torch._utils", "_rebuild_tensor_v3"), *arguments)


def parameter(data: bytes | None = None, grad: bytes = TRUE, hooks: bytes = HOOKS) -> bytes:
    return call(("torch._utils", "_rebuild_parameter"), data or tensor(), grad, hooks)


def one(*code: bytes) -> Callable[[], bytes]:
    """Return what makes an archive of this value and one storage of four floats."""
    return lambda: archive(proto(*code), {"0": FOUR})


def doubled(levels: int) -> bytes:
    """Return a list of two of what is a list of two of …: small in the file, 2**levels outside."""
    code = b"]q\0"
    for level in range(levels):
        code += b"](" + b"h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1])
    return proto(code)


def nested_key() -> bytes:
    """Return a dict with a key of 2**8 values."""
    pairs = b"".join(b"q%ch%c\x86" % (level, level) for level in range(8))
    return proto(b"}K\1\x85" + pairs + b"K\1s")


def colliding(count: int) -> bytes:
    """Return a set of numbers that all have one hash."""
    numbers = b"".join(number(at * (2**61 - 1)) for at in range(1, count))
    return proto(call(("builtins", "set"), b"](" + numbers + b"e"))


DENIALS: dict[str, tuple[Callable[[], bytes], type[CheckpointError], str]] = {
    "six gigabytes of zeros in 400 bytes": (
        one(call(("builtins", "bytearray"), number(6 * 10**9))),
        ModelMalformed,
        f"A bytearray is made of something other than bytes. {AGAIN}",
    ),
    "six gigabytes of nothing in 400 bytes": (
        one(call(("torch", "FloatTensor"), number(15 * 10**8))),
        UnsafeModel,
        f"The file holds a tensor without data, of any size (torch.FloatTensor). {DATA}",
    ),
    "ten to the twelve elements in 600 bytes": (
        one(tensor(None, 0, (10**12,), (0,))),
        LimitExceeded,
        (
            "A tensor of the shape (1000000000000,) has more than 1000000 elements. "
            "If it is meant to be that large, raise ModelLimits.elements."
        ),
    ),
    "sizes that overflow, and no elements": (
        one(tensor(None, 0, (2**62, 2**62, 0), (0, 0, 0))),
        LimitExceeded,
        (
            "A tensor of the shape (4611686018427387904, 4611686018427387904, 0) has more than "
            "1000000 elements. If it is meant to be that large, raise ModelLimits.elements."
        ),
    ),
    "many elements of one, in several tensors": (
        one(tuple_(*[tensor(None, at, (10**5,), (0,)) for at in range(4)])),
        LimitExceeded,
        (
            "The tensors take 1200000 bytes when they are copied, and are made of 16. "
            "If it is meant to be that large, raise ModelLimits.memory_bytes."
        ),
    ),
    "a storage of another size than its member": (
        one(tensor(storage(count=10**9), 0, (10**5,), (1,))),
        ModelMalformed,
        f"The storage 0 is 4000000000 bytes in the pickle, and in the archive 16. {AGAIN}",
    ),
    "a storage that is not there": (
        one(tensor(), tensor(storage("7")), b"\x86"),
        ModelMalformed,
        f"The storage 7 is 16 bytes in the pickle, and in the archive missing. {AGAIN}",
    ),
    "a tensor beyond its storage": (
        one(tensor(None, 0, (5,))),
        ModelMalformed,
        f"A tensor of the shape (5,) reaches beyond its storage of 16 bytes. {AGAIN}",
    ),
    "a tensor beyond its storage by its offset": (
        one(tensor(None, 1)),
        ModelMalformed,
        f"A tensor of the shape (4,) reaches beyond its storage of 16 bytes. {AGAIN}",
    ),
    "a tensor beyond its storage by its stride": (
        one(tensor(None, 0, (2, 2), (2**62, 1))),
        ModelMalformed,
        f"A tensor of the shape (2, 2) reaches beyond its storage of 16 bytes. {AGAIN}",
    ),
    "a tensor beyond its storage by the size of its elements": (
        one(v3(name("torch", "complex128"))),
        ModelMalformed,
        f"A tensor of the shape (8,) reaches beyond its storage of 16 bytes. {AGAIN}",
    ),
    "an empty tensor that begins beyond its storage": (
        one(tensor(None, 5, (0,))),
        ModelMalformed,
        f"A tensor of the shape (0,) reaches beyond its storage of 16 bytes. {AGAIN}",
    ),
    "a sparse tensor with indices from nowhere": (
        one(call(("torch._utils", "_rebuild_sparse_tensor"), NONE, tensor())),
        UnsafeModel,
        (
            "The file holds a sparse tensor, whose indices nobody checks before they are used "
            "(torch._utils._rebuild_sparse_tensor). "
            "If you made it, save tensor.to_dense() instead. Nothing was loaded."
        ),
    ),
    "a meta tensor of any size": (
        one(call(("torch._utils", "_rebuild_meta_tensor_no_storage"), NONE)),
        UnsafeModel,
        (
            "The file holds a tensor without data, of any size "
            f"(torch._utils._rebuild_meta_tensor_no_storage). {DATA}"
        ),
    ),
    "two to the thirty values in 300 bytes": (
        lambda: archive(doubled(30)),
        LimitExceeded,
        (
            "The pickle holds more than 500000 values, written out. "
            "Save long lists of numbers as tensors. Nothing was loaded."
        ),
    ),
    "a million instructions, and no tensor": (
        lambda: archive(proto(b"](" + b"N" * 1_000_000 + b"e")),
        LimitExceeded,
        (
            "The pickle has 1000005 instructions, and 0 tensors. "
            "Save long lists of numbers as tensors. Nothing was loaded."
        ),
    ),
    "a hundred thousand levels": (
        lambda: archive(proto(b")" + b"\x85" * 100_000)),
        LimitExceeded,
        "The pickle is nested deeper than 64 levels. Save a flatter state. Nothing was loaded.",
    ),
    "a key that takes long to hash": (
        lambda: archive(nested_key()),
        LimitExceeded,
        "The pickle has a key of more than 64 values. Use shorter keys. Nothing was loaded.",
    ),
    "a million tensors": (
        one(b"(" + tensor() * 1001 + b"t"),
        LimitExceeded,
        (
            "The file has more than 1000 tensors. "
            "If it is meant to have that many, raise ModelLimits.tensors."
        ),
    ),
    "one tensor a million times": (
        one(tensor() + b"q\0(" + b"h\0" * 1001 + b"t\x86"),
        LimitExceeded,
        (
            "The file has more than 1000 tensors. "
            "If it is meant to have that many, raise ModelLimits.tensors."
        ),
    ),
    "four gigabytes of memo": (
        lambda: archive(proto(b"Nr\xff\xff\xff\xff")),
        LimitExceeded,
        (
            "The pickle numbers a value above the limit of 560000. "
            "Split what it holds, or raise ModelLimits.tensors."
        ),
    ),
}


def test_what_is_as_large_as_its_limit_is_planned() -> None:
    plan = planned(
        archive(proto(tensor(None, 0, (500,), (0,))), {"0": FOUR}),
        ModelLimits(elements=500, memory_bytes=500 * 4 - 16, tensors=1),
    )
    assert plan.tensors["tensor"].elements == 500
    with pytest.raises(LimitExceeded, match="The tensors take 2000 bytes"):
        planned(
            archive(proto(tensor(None, 0, (500,), (0,))), {"0": FOUR}),
            ModelLimits(memory_bytes=500 * 4 - 17),
        )


@pytest.mark.parametrize("function", ["_rebuild_tensor", "_rebuild_tensor_v2"])
def test_a_tensor_of_an_untyped_storage_is_one_of_bytes(function: str) -> None:
    more = (FALSE, HOOKS) if function.endswith("v2") else ()
    code = call(
        ("torch._utils", function),
        *(storage(count=16, kind=BYTES), number(0), sizes((16,)), sizes((1,)), *more),
    )
    plan = planned(archive(proto(code), {"0": FOUR}))
    assert plan.tensors["tensor"].dtype == "uint8"


@pytest.mark.parametrize("case", DENIALS)
def test_a_file_that_would_take_memory_or_time_is_refused(case: str) -> None:
    make, error, message = DENIALS[case]
    data = make()
    with pytest.raises(error) as refusal:
        planned(data)
    assert str(refusal.value) == message


def test_keys_that_get_into_each_others_way_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="too many that share a hash"):
        planned(archive(colliding(2000)))


def test_two_gigabytes_in_a_two_megabyte_zip_are_refused_by_the_directory() -> None:
    packer = zlib.compressobj(9, wbits=-15)
    packed = b"".join(packer.compress(bytes(2**20)) for _ in range(64)) + packer.flush()
    size = {"method": 8, "size": 2**31, "packed": len(packed)}
    part = Part("archive/data/0", b"", packed, b"", b"", size, size)
    with pytest.raises(LimitExceeded, match="makes 2147483648 bytes of"):
        planned(zipped(("archive/data.pkl", proto(NONE)), part, VERSION))


@pytest.mark.skipif(sys.platform != "linux", reason="the limits on memory are those of Linux")
def test_pytorch_believes_such_files(tmp_path: Path) -> None:
    """The attacks are real: in a process of its own, and under limits, PyTorch does as told."""
    pytest.importorskip("torch", exc_type=ImportError)
    (tmp_path / "memory.pt").write_bytes(DENIALS["six gigabytes of zeros in 400 bytes"][0]())
    (tmp_path / "shape.pt").write_bytes(DENIALS["ten to the twelve elements in 600 bytes"][0]())
    program = """if True:
        import resource, torch
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, used + 2**30))
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        print(torch.load("shape.pt", weights_only=True, map_location="cpu").numel())
        try:
            torch.load("memory.pt", weights_only=True, map_location="cpu")
        except MemoryError:
            print("MemoryError")
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", program],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == ["1000000000000", "MemoryError"]


NO_TENSOR = f"A tensor has a size, a stride or an offset that no tensor has. {AGAIN}"
NO_STORAGE = f"The file describes a storage in a way that torch.save does not. {AGAIN}"
NO_HOOKS = f"A tensor has hooks, or does not say whether it has gradients. {AGAIN}"
NO_SIZE = f"A torch.Size is made of something that is no tuple of integers. {AGAIN}"
NO_DEVICE = f"A torch.device has no such name. {AGAIN}"
NO_ITEMS = f"An OrderedDict is made of something that is no list of items. {AGAIN}"
NO_BYTES = f"The file encodes something other than bytes. {AGAIN}"
STATE = ("collections", "OrderedDict")
FORGED: dict[str, tuple[Callable[[], bytes], str]] = {
    "a size that is negative": (one(tensor(None, 0, (-4,))), NO_TENSOR),
    "a stride that is negative": (one(tensor(None, 3, (4,), (-1,))), NO_TENSOR),
    "an offset that is negative": (one(tensor(None, -1)), NO_TENSOR),
    "a size without its stride": (one(tensor(None, 0, (4,), ())), NO_TENSOR),
    "a size beyond 64 bits": (one(tensor(None, 0, (2**64,), (0,))), NO_TENSOR),
    "a size that is a truth": (
        one(
            call(
                ("torch._utils", "_rebuild_tensor_v2"),
                *(storage(), number(0), tuple_(TRUE), sizes((1,)), FALSE, HOOKS),
            )
        ),
        NO_TENSOR,
    ),
    "a size that is a list": (
        one(
            call(
                ("torch._utils", "_rebuild_tensor_v2"),
                *(storage(), number(0), b"](K\4e", sizes((1,)), FALSE, HOOKS),
            )
        ),
        NO_TENSOR,
    ),
    "a new tensor without a storage": (
        one(v3(held=text("0"))),
        f"A tensor has no storage, or no type. {AGAIN}",
    ),
    "a storage with a key that is a number": (
        one(tuple_(text("storage"), name(*FLOATS), number(0), text("cpu"), number(4)) + b"Q"),
        NO_STORAGE,
    ),
    "a storage that is empty at first": (
        one(tensor(storage(count=0), 0, (0,)), tensor(), b"\x86"),
        f"The storage 0 is described twice, and not alike. {AGAIN}",
    ),
    "a storage that is empty later": (
        one(tensor(), tensor(storage(count=0), 0, (0,)), b"\x86"),
        f"The storage 0 is described twice, and not alike. {AGAIN}",
    ),
    "a remark that is a number": (
        one(tensor(None, 0, (4,), (1,), b"}(" + text("neg") + number(1) + b"u")),
        f"A tensor has remarks that PyTorch does not write. {AGAIN}",
    ),
    "an old tensor without a storage": (
        one(call(("torch._utils", "_rebuild_tensor"), NONE, number(0), sizes(()), sizes(()))),
        f"A tensor has no storage. {AGAIN}",
    ),
    "a storage of a device that is a number": (
        one(
            tuple_(text("storage"), name(*FLOATS), text("0"), number(1), number(4)) + b"Q",
        ),
        NO_STORAGE,
    ),
    "a tensor without a storage": (
        one(tensor(text("0"))),
        f"A tensor has no storage. {AGAIN}",
    ),
    "a new tensor with a typed storage": (
        one(v3(held=storage())),
        f"A tensor has no storage, or no type. {AGAIN}",
    ),
    "a new tensor with a type that is a text": (
        one(v3(text("float32"))),
        f"A tensor has no storage, or no type. {AGAIN}",
    ),
    "gradients of integers": (
        one(tensor(storage(count=2, kind=("torch", "LongStorage")), 0, (2,), grad=TRUE)),
        f"A tensor of integers asks for gradients. {AGAIN}",
    ),
    "gradients that are a number": (one(tensor(grad=number(1))), NO_HOOKS),
    "hooks": (
        one(tensor(hooks=call(STATE) + b"(" + number(1) + NONE + b"u")),
        NO_HOOKS,
    ),
    "hooks that are nothing": (one(tensor(hooks=NONE)), NO_HOOKS),
    "hooks of a parameter": (
        one(parameter(hooks=call(STATE) + b"(" + number(1) + NONE + b"u")),
        NO_HOOKS,
    ),
    "a parameter of a number": (
        one(parameter(number(3))),
        f"A parameter is made of something that is no tensor. {AGAIN}",
    ),
    "remarks that nobody knows": (
        one(tensor(None, 0, (4,), (1,), b"}(" + text("backend") + TRUE + b"u")),
        f"A tensor has remarks that PyTorch does not write. {AGAIN}",
    ),
    "a conjugate of real numbers": (
        one(tensor(None, 0, (4,), (1,), b"}(" + text("conj") + TRUE + b"u")),
        f"A tensor has remarks that PyTorch does not write. {AGAIN}",
    ),
    "remarks that are no dict": (
        one(tensor(None, 0, (4,), (1,), number(1))),
        f"A tensor has remarks that PyTorch does not write. {AGAIN}",
    ),
    "a storage of a negative size": (one(tensor(storage(count=-4))), NO_STORAGE),
    "a storage with a key that climbs": (one(tensor(storage("../0"))), NO_STORAGE),
    "a storage of a device that is a command": (
        one(tensor(storage(device="cpu; rm -rf /"))),
        NO_STORAGE,
    ),
    "a storage without data": (one(tensor(storage(device="meta"))), NO_STORAGE),
    "a storage of a type of elements": (
        one(tensor(storage(kind=("torch", "float32")))),
        NO_STORAGE,
    ),
    "a storage with one field more": (
        one(tensor(storage("0", 4, FLOATS, "cpu", NONE))),
        NO_STORAGE,
    ),
    "a storage of two types": (
        one(tensor(), tensor(storage(kind=("torch", "IntStorage"))), b"\x86"),
        f"The storage 0 is described twice, and not alike. {AGAIN}",
    ),
    "a storage of two sizes": (
        one(tensor(), tensor(storage(count=2), 0, (2,)), b"\x86"),
        f"The storage 0 is described twice, and not alike. {AGAIN}",
    ),
    "a storage of two devices": (
        one(tensor(), tensor(storage(device="cuda:0")), b"\x86"),
        f"The storage 0 is described twice, and not alike. {AGAIN}",
    ),
    "a type of storage as a value": (
        one(tensor(), name(*FLOATS), b"\x86"),
        f"The file holds a type of storage as a value. {AGAIN}",
    ),
    "a tensor among the remarks on a state_dict": (
        one(call(STATE) + b"}(" + text("_metadata") + tensor() + b"ub"),
        f"A tensor stands among the remarks on a state_dict. {AGAIN}",
    ),
    "a method of an OrderedDict": (
        one(tensor(), call(STATE) + b"}(" + text("items") + NONE + b"ub", b"\x86"),
        f"An OrderedDict has attributes that a state_dict does not have. {AGAIN}",
    ),
    "an OrderedDict of a number": (one(call(STATE, number(3))), NO_ITEMS),
    "an OrderedDict of pairs that are none": (one(call(STATE, b"](](K\1ee")), NO_ITEMS),
    "an OrderedDict with a key twice": (
        one(call(STATE, b"](" + (b"](" + text("a") + b"K\1e") * 2 + b"e")),
        f"An OrderedDict has one key twice. {AGAIN}",
    ),
    "a key twice": (
        one(b"}(" + text("a") + tensor() + text("a") + tensor() + b"u"),
        f"The pickle has one key twice. {AGAIN}",
    ),
    "a torch.Size of texts": (one(call(("torch", "Size"), tuple_(text("a")))), NO_SIZE),
    "a torch.Size of a number": (one(call(("torch", "Size"), number(3))), NO_SIZE),
    "a torch.device that is a command": (one(call(("torch", "device"), text("a b"))), NO_DEVICE),
    "a torch.device with a negative number": (
        one(call(("torch", "device"), text("cuda"), number(-1))),
        NO_DEVICE,
    ),
    "a torch.device with a number that is a text": (
        one(call(("torch", "device"), text("cuda"), text("0"))),
        NO_DEVICE,
    ),
    "a torch.device with two numbers": (
        one(call(("torch", "device"), text("cuda"), number(0), number(0))),
        NO_DEVICE,
    ),
    "a torch.device of a number": (one(call(("torch", "device"), number(0))), NO_DEVICE),
    "a torch.device of nothing": (one(call(("torch", "device"))), NO_DEVICE),
    "a counter of texts": (
        one(call(("collections", "Counter"), text("abc"))),
        f"A Counter is made of something that is no dict of integers. {AGAIN}",
    ),
    "a counter that counts texts": (
        one(call(("collections", "Counter"), b"}(" + text("a") + text("b") + b"u")),
        f"A Counter is made of something that is no dict of integers. {AGAIN}",
    ),
    "bytes without a codec": (one(call(("_codecs", "encode"), text("a"))), NO_BYTES),
    "bytes of a number": (
        one(call(("_codecs", "encode"), number(10**9), text("latin1"))),
        NO_BYTES,
    ),
    "bytes through another codec": (
        one(call(("_codecs", "encode"), text("a"), text("zlib"))),
        NO_BYTES,
    ),
    "bytes that are no bytes": (
        one(call(("_codecs", "encode"), text("☃"), text("latin1"))),
        NO_BYTES,
    ),
    "a complex number of a text": (
        one(call(("builtins", "complex"), text("1" * 1000))),
        f"A complex number is made of something other than two numbers. {AGAIN}",
    ),
    "a complex number of a text and a number": (
        one(call(("builtins", "complex"), b"G" + bytes(8), text("1"))),
        f"A complex number is made of something other than two numbers. {AGAIN}",
    ),
    "a complex number of an integer": (
        one(call(("builtins", "complex"), number(1), b"G" + bytes(8))),
        f"A complex number is made of something other than two numbers. {AGAIN}",
    ),
    "a bytearray of bytes and more": (
        one(
            call(
                ("builtins", "bytearray"),
                call(("_codecs", "encode"), text("a"), text("latin1")),
                NONE,
            )
        ),
        f"A bytearray is made of something other than bytes. {AGAIN}",
    ),
    "a bytearray through another codec": (
        one(call(("builtins", "bytearray"), text("a"), text("utf-32"))),
        f"A bytearray is made of something other than bytes. {AGAIN}",
    ),
    "a function as a value": (
        one(tensor(), name("torch._utils", "_rebuild_tensor_v2"), b"\x86."),
        f"The pickle holds torch._utils._rebuild_tensor_v2 itself, which is no data. {AGAIN}",
    ),
    "too many arguments": (
        one(tensor(None, 0, (4,), (1,), NONE, NONE, NONE)),
        f"The pickle gives torch._utils._rebuild_tensor_v2 what it does not take. {AGAIN}",
    ),
    "bytes behind the pickle": (
        lambda: archive(proto(tensor()) + proto(NONE), {"0": FOUR}),
        f"The pickle in the archive is followed by more. {AGAIN}",
    ),
    "a pickle that is cut short": (
        lambda: archive(proto(tensor())[:-1], {"0": FOUR}),
        f"The pickle is cut short. {AGAIN}",
    ),
    "an object without its constructor": (
        one(name(*STATE) + b")\x81"),
        (
            "The pickle in the file uses NEWOBJ, which a file of tensors does not need. "
            "Save it again with torch.save, without pickle_protocol. Nothing was loaded."
        ),
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_what_torch_save_does_not_write_is_refused(case: str) -> None:
    make, message = FORGED[case]
    data = make()
    with pytest.raises(ModelMalformed) as refusal:
        planned(data)
    assert str(refusal.value) == message


def test_a_reference_that_is_no_storage_is_refused() -> None:
    module = tuple_(text("module"), NONE, text("model.py"), text("import os")) + b"Q"
    for code in (module, text("storage") + b"Q", number(3) + b"Q", b")Q"):
        with pytest.raises(UnsafeModel) as refusal:
            planned(archive(proto(code)))
        assert str(refusal.value) == (
            "The file refers to something that is no storage of a tensor. "
            "If you made it, save the state_dict of the model, and not the model."
        )


class Marker:
    """Leaves a file behind, if anything runs it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", range(6))
def test_a_payload_of_any_protocol_is_named_and_not_run(protocol: int, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    payload = pickle.dumps({"a": [1, Marker(marker)]}, protocol)
    with pytest.raises(UnsafeModel) as refusal:
        planned(archive(payload))
    assert refusal.value.do == RUN
    assert "pathlib" in refusal.value.what
    assert not marker.exists()
    pickle.loads(payload)
    assert marker.exists()


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (
            call(("os", "system"), text("true")),
            "The file wants os.system, which is not data.",
        ),
        (
            tuple_(*[call(("evil", f"f{at}")) for at in range(9)]),
            "The file wants evil.f0, evil.f1, evil.f2 and 6 more, which are not data.",
        ),
        (
            tuple_(*[call(("evil", f"f{at}")) for at in range(3)]),
            "The file wants evil.f0, evil.f1, evil.f2, which are not data.",
        ),
        (
            tuple_(call(("torch", "FloatTensor")), call(("posix", "system"))),
            "The file wants posix.system, which is not data.",
        ),
        (
            call(("torch.serialization", "load"), text("x")),
            "The file wants torch.serialization.load, which is not data.",
        ),
        (
            call(("torch.storage", "_load_from_bytes"), text("x")),
            "The file wants torch.storage._load_from_bytes, which is not data.",
        ),
        (
            call(("torch", "_utils._rebuild_tensor_v2"), NONE),
            "The file wants torch._utils._rebuild_tensor_v2, which is not data.",
        ),
        (
            tuple_(*[name("evil", kind) + b")R" for kind in ("Tensor", "qint8", "bits8")]),
            "The file wants evil.Tensor, evil.qint8, evil.bits8, which are not data.",
        ),
        (
            b"(ios\nsystem\n",
            "The file wants os.system, which is not data.",
        ),
        (
            b"\x82\1)R",
            "The file wants number 1 of copyreg's extensions, which is not data.",
        ),
        (
            name("os", "system") + b"\xff",
            "The file wants os.system, which is not data.",
        ),
        (
            call(("os\r", "sys\ttem")),
            r"The file wants 'os\r.sys\ttem', which is not data.",
        ),
    ],
    ids=[
        *(
            "a command",
            "many",
            "three",
            "worse than a size",
            "an unrestricted load",
            "pickled storage",
        ),
        *(
            "another split of a name",
            "names like those of PyTorch",
            "INST",
            "EXT",
            "before the damage",
            "an odd name",
        ),
    ],
)
def test_names_that_are_not_data_are_named(code: bytes, what: str) -> None:
    with pytest.raises(UnsafeModel) as refusal:
        planned(archive(proto(code)))
    assert str(refusal.value) == f"{what} {RUN}"


def test_python_2_wrote_the_items_of_an_ordered_dict_as_its_argument() -> None:
    item = b"](U\1a" + tensor() + b"e"
    plan = planned(archive(proto(call(STATE, b"](" + item + b"e")), {"0": FOUR}))
    assert plan.tensors["a"].shape == (4,)


def test_the_content_of_a_file_is_in_no_error() -> None:
    secret = "sk-" + "x" * 40
    with pytest.raises(ModelMalformed) as refusal:
        planned(archive(proto(tensor(storage(device=secret))), {"0": FOUR}))
    assert "sk-" not in str(refusal.value)
    assert refusal.value.__cause__ is None


HONEST = archive(
    proto(
        call(STATE)
        + b"("
        + (text("a") + tensor())
        + (text("b") + parameter(tensor(storage("1", 2), 1, (1, 1), (1, 1))))
        + (text("c") + v3(held=storage("2", 16, BYTES)))
        + b"u}("
        + (text("_metadata") + call(STATE) + b"(" + text("") + b"}(" + text("version") + b"K\1uu")
        + b"ub"
    ),
    {"0": FOUR, "1": b"12345678", "2": FOUR},
)
PICKLE = HONEST[HONEST.index(b"\x80\x02") : HONEST.index(b".PK") + 1]
PIECES = st.one_of(
    st.binary(max_size=6),
    st.sampled_from(
        [
            *(b"h\0", b"q\0", b"(", b"t", b"R", b"b", b"Q", b"0", b"2", b"u", b"s", b"e", b"}"),
            *(b"]", b")", b"\x81", b"\x85", b"\x86", b"\x93", b"\x95", b"\xff\xff\xff\xff"),
            *(number(2**62), number(-1), tensor(), storage(), HOOKS, name("os", "system"), TRUE),
        ]
    ),
)


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return the bytes with one to four pieces cut out, put in or replaced."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(whole)))
        end = min(len(whole), start + draw(st.integers(0, 12)))
        whole = whole[:start] + draw(PIECES) + whole[end:]
    return whole


def check(data: bytes) -> None:
    """Nothing but our errors comes out, or a plan that fits into the file."""
    try:
        plan = planned(data)
    except CheckpointError as error:
        message = str(error)
    else:
        message = ""
        for each in plan.tensors.values():
            assert each.storage_bytes <= len(data)
            assert each.elements <= SMALL.elements
    assert message.isascii()
    assert "\n" not in message


def test_the_honest_file_has_a_plan() -> None:
    assert sorted(planned(HONEST).tensors) == ["a", "b", "c"]
    assert read_plan(io.BytesIO(HONEST), Kind.TORCH_ZIP) == planned(HONEST)


@given(damaged(HONEST))
def test_a_damaged_file_is_refused_or_planned(data: bytes) -> None:
    check(data)


@given(damaged(PICKLE))
def test_a_damaged_pickle_in_a_whole_archive_is_refused_or_planned(data: bytes) -> None:
    check(archive(data, {"0": FOUR, "1": b"12345678", "2": FOUR}))


@given(st.lists(PIECES | st.binary(min_size=1, max_size=2), max_size=40))
def test_instructions_in_any_order_are_refused_or_planned(pieces: list[bytes]) -> None:
    check(archive(proto(*pieces), {"0": FOUR}))
