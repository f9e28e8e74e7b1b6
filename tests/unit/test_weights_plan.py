"""What a PyTorch file would build is known before PyTorch sees it, and is what PyTorch builds."""

from __future__ import annotations

import io
import pickle
import struct
import warnings
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    LimitExceeded,
    ModelMalformed,
    UnsafeModel,
)
from safepoint.pickles.kinds import Kind
from safepoint.weights.limits import ModelLimits
from safepoint.weights.plan import Plan, read_plan
from safepoint.weights.tensorplan import TensorPlan
from tests.unit.archive_helpers import (
    archive,
    call,
    number,
    opened,
    proto,
    tensor,
    text,
)

torch = pytest.importorskip("torch", exc_type=ImportError)
nn = torch.nn

AGAIN = "Get the file again, or write it again with torch.save. Nothing was loaded."
FOUR = struct.pack("<4f", 1, 2, 3, 4)


def saved(value: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def planned(data: bytes, limits: ModelLimits | None = None, kind: Kind = Kind.TORCH_ZIP) -> Plan:
    return read_plan(opened(data), kind, limits or ModelLimits())


def tensors_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what torch.load gave, by the same paths."""
    if isinstance(value, torch.Tensor):
        yield path or "tensor", value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_of(item, f"{path}/{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from tensors_of(item, f"{path}/{index}" if path else str(index))


def plan_of(value: Any, device: str = "cpu") -> TensorPlan:
    """Say of a tensor what a plan says."""
    return TensorPlan(
        str(value.dtype).removeprefix("torch."),
        tuple(value.shape),
        value.stride(),
        value.storage_offset(),
        "",
        value.untyped_storage().nbytes(),
        device,
        value.requires_grad,
        isinstance(value, nn.Parameter),
    )


def anonymous(plan: TensorPlan) -> TensorPlan:
    """Leave out the key of the storage, which PyTorch forgets."""
    fields = {key: getattr(plan, key) for key in TensorPlan.__dataclass_fields__}
    return TensorPlan(**fields | {"storage": ""})


class Tied(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(3, 3)
        self.decode = nn.Linear(3, 3)
        self.decode.weight = self.encode.weight
        self.register_buffer("mask", torch.ones(3, dtype=torch.bool))


def trained(optimizer: Callable[..., Any], **options: Any) -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    one = optimizer(model.parameters(), lr=0.1, **options)
    for _ in range(2):
        one.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        one.step()
    return {"model": model.state_dict(), "optimizer": one.state_dict()}


def _shared(base: Any) -> Any:
    return [base, base[2:5], base.view(2, 5)]


def _empty_views(none: Any) -> Any:
    return [none, none.view(torch.int32)]


NEW_TYPES = [
    *("uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
]
OLD_TYPES = [
    *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32"),
    *("float64", "complex64", "complex128"),
]
HONEST: dict[str, Callable[[], Any]] = {
    "linear": lambda: nn.Linear(3, 4).state_dict(),
    "convolution": lambda: nn.Conv2d(3, 8, 3).state_dict(),
    "batch norm": lambda: nn.BatchNorm2d(4).state_dict(),
    "lstm": lambda: nn.LSTM(4, 5, 2, bidirectional=True).state_dict(),
    "transformer": lambda: nn.TransformerEncoderLayer(8, 2, 16).state_dict(),
    "embedding": lambda: nn.Embedding(10, 3, padding_idx=0).state_dict(),
    "tied weights": lambda: Tied().state_dict(),
    "parameters": lambda: dict(nn.Linear(3, 4).named_parameters()),
    "kept variables": lambda: nn.Linear(3, 4).state_dict(keep_vars=True),
    "a parameter without gradients": lambda: nn.Parameter(torch.ones(2), requires_grad=False),
    "adam": lambda: trained(torch.optim.Adam, betas=(0.9, 0.99), amsgrad=True),
    "adamw": lambda: trained(torch.optim.AdamW, weight_decay=0.1),
    "sgd": lambda: trained(torch.optim.SGD, momentum=0.9, nesterov=True),
    "rmsprop": lambda: trained(torch.optim.RMSprop),
    "a training state": lambda: {
        "model": nn.Linear(2, 2).state_dict(),
        "epoch": 3,
        "rng": torch.get_rng_state(),
        "lr": 0.1,
        "name": "x",
        "best": float("inf"),
        "done": False,
        "note": None,
    },
    "a scheduler": lambda: torch.optim.lr_scheduler.StepLR(
        torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), 3
    ).state_dict(),
    "one tensor": lambda: torch.ones(2, 3),
    "no tensor": lambda: {"epoch": 3},
    "nothing": lambda: None,
    "lists and tuples": lambda: [torch.ones(1), (torch.ones(2), [torch.ones(3)])],
    "an empty dict": dict,
    "numbers as keys": lambda: {0: torch.ones(1), 17: {2: torch.ones(2)}},
    "a tuple as key": lambda: {(1, "a"): torch.ones(1)},
    "odd names": lambda: {"": torch.ones(1), "a b\n": torch.ones(1), "ü/☃/../x": torch.ones(1)},
    "no dimensions": lambda: torch.tensor(3.5),
    "empty": lambda: [torch.zeros(0), torch.zeros(0, 3), torch.zeros(2, 0, 5)],
    "an empty slice": lambda: torch.ones(4, 3)[2:2],
    "transposed": lambda: torch.ones(3, 4).t(),
    "a slice": lambda: torch.arange(20.0)[3:17:2],
    "channels last": lambda: torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "expanded": lambda: torch.ones(1, 3).expand(50, 3),
    "strided": lambda: torch.arange(100.0).as_strided((3, 4), (20, 2), 5),
    "shared storage": lambda: _shared(torch.arange(10.0)),
    "the same twice": lambda: [torch.ones(3)] * 2,
    "two types of nothing": lambda: _empty_views(torch.zeros(0)),
    "conjugated": lambda: torch.ones(2, dtype=torch.complex64).conj(),
    "negated": lambda: torch.ones(2, dtype=torch.complex64).conj().imag,
    "detached buffer": lambda: nn.Buffer(torch.ones(2)).detach(),
    "values of torch": lambda: [torch.Size([1, 2]), torch.device("cuda", 1), torch.bfloat16],
    "a device without a number": lambda: [torch.device("cpu"), torch.device("meta")],
    "sets": lambda: [{1, 2}, {"a"}, set()],
    "large integers": lambda: [2**64, -(2**300), 2**2000],
    "bytes": lambda: [b"\0\xff", bytearray(b"\0\xff"), bytearray()],
    "complex numbers": lambda: 1j,
    "a counter": lambda: Counter("abca"),
    "an ordered dict": lambda: OrderedDict(b=torch.ones(1), a=OrderedDict()),
    "many keys": lambda: {f"layer{at}": torch.ones(1) for at in range(1200)},
    **{
        f"type {kind}": lambda kind=kind: torch.ones(3).to(getattr(torch, kind))  # type: ignore[misc]
        for kind in OLD_TYPES
    },
    **{
        f"type {kind}": lambda kind=kind: torch.zeros(16, dtype=torch.uint8).view(  # type: ignore[misc]
            getattr(torch, kind)
        )
        for kind in NEW_TYPES
    },
}


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.parametrize("case", HONEST)
def test_a_plan_is_what_torch_load_builds(case: str) -> None:
    data = saved(HONEST[case]())
    plan = planned(data)
    built = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    expected = {path: plan_of(value) for path, value in tensors_of(built)}
    assert {path: anonymous(one) for path, one in plan.tensors.items()} == expected


@pytest.mark.parametrize("case", [case for case in HONEST if case.split()[-1] not in NEW_TYPES])
def test_a_plan_of_the_old_format_is_what_torch_load_builds(case: str) -> None:
    data = saved(HONEST[case](), _use_new_zipfile_serialization=False)
    plan = planned(data, kind=Kind.TORCH_LEGACY)
    built = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    expected = {path: plan_of(value) for path, value in tensors_of(built)}
    assert {path: anonymous(one) for path, one in plan.tensors.items()} == expected


def test_tensors_that_share_memory_have_one_storage() -> None:
    plan = planned(saved(Tied().state_dict()))
    weights = {plan.tensors[f"{half}.weight"].storage for half in ("encode", "decode")}
    assert len(weights) == 1
    assert plan.tensors["encode.bias"].storage not in weights


def test_a_plan_tells_the_names_that_the_file_uses() -> None:
    plan = planned(saved({"a": torch.ones(1), "b": torch.zeros(2, dtype=torch.uint16)}))
    assert plan.wants == (
        "collections.OrderedDict",
        "torch.FloatStorage",
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_tensor_v3",
        "torch.storage.UntypedStorage",
        "torch.uint16",
    )


def rewritten(data: bytes, old: bytes, new: bytes, member: str = "data.pkl") -> bytes:
    """Return an archive in which one member says something else."""
    file = io.BytesIO()
    with zipfile.ZipFile(opened(data)) as before, zipfile.ZipFile(file, "w") as after:
        for entry in before.namelist():
            content = before.read(entry)
            if entry.endswith(member):
                assert old in content
                content = content.replace(old, new)
            after.writestr(entry, content)
    return file.getvalue()


def test_tensors_of_a_gpu_are_planned_with_their_device() -> None:
    data = rewritten(saved({"a": torch.ones(3)}), text("cpu"), text("cuda:3"))
    assert planned(data).tensors["a"].device == "cuda:3"
    assert torch.load(opened(data), weights_only=True, map_location="cpu")["a"].device.type == "cpu"


def test_a_big_endian_file_says_so() -> None:
    data = rewritten(saved(torch.ones(3)), b"little", b"big", "byteorder")
    assert planned(data).byteorder == "big"


def test_protocol_3_is_read_as_torch_reads_it() -> None:
    data = saved({"a": torch.ones(3)}, pickle_protocol=3)
    assert planned(data).tensors["a"].shape == (3,)
    with pytest.warns(UserWarning, match="pickle protocol 3"):
        assert torch.load(opened(data), weights_only=True)["a"].shape == (3,)


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_protocol_that_torch_does_not_read_safely_is_refused_with_the_way_out(
    protocol: int,
) -> None:
    data = saved({"a": torch.ones(3)}, pickle_protocol=protocol)
    with pytest.raises(ModelMalformed) as refusal:
        planned(data)
    assert str(refusal.value) == (
        "The pickle in the file uses FRAME, which a file of tensors does not need. "
        "Save it again with torch.save, without pickle_protocol. Nothing was loaded."
    )
    with (
        pytest.warns(UserWarning, match=f"pickle protocol {protocol}"),
        pytest.raises(pickle.UnpicklingError, match="Unsupported operand 149"),
    ):
        torch.load(opened(data), weights_only=True)


def test_a_kind_without_a_plan_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        planned(b"", kind=Kind.SAFETENSORS)
    assert str(refusal.value) == (
        "There is no plan for a safetensors file. "
        "Give a file that torch.save wrote, and the Kind that identify returns for it."
    )


# What torch.load(weights_only=True) accepts on 2.13.0 and a plan refuses, each for its reason.


def attributed(one: Any) -> Any:
    one.note = 1
    return one


NO_PLAIN_VALUE = (
    "The file has a tensor, or something else that is no plain value, in a set or as a key. Save it"
    " in a list, or under a key of its own. Nothing was loaded."
)
STRICTER: dict[str, tuple[Callable[[], bytes], type[CheckpointError], str]] = {
    "sparse: indices are not checked, and crash later": (
        lambda: saved(torch.eye(2).to_sparse()),
        UnsafeModel,
        (
            "The file holds a sparse tensor, whose indices nobody checks before they are used "
            "(torch._utils._rebuild_sparse_tensor). "
            "If you made it, save tensor.to_dense() instead. Nothing was loaded."
        ),
    ),
    "nested: sizes are not checked": (
        lambda: saved(_nested()),
        UnsafeModel,
        (
            "The file holds a nested tensor, whose sizes nobody checks before they are used "
            "(torch._utils._rebuild_nested_tensor). "
            "If you made it, save the list of its parts instead. Nothing was loaded."
        ),
    ),
    "quantized: takes memory that the file does not have": (
        lambda: saved(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)),
        UnsafeModel,
        (
            "The file holds a quantized tensor, which takes memory that the file does not have "
            "(torch._utils._rebuild_qtensor). "
            "If you made it, save tensor.int_repr(), the scale and the zero point instead. "
            "Nothing was loaded."
        ),
    ),
    "meta: has any size": (
        lambda: saved(torch.empty(2, device="meta")),
        UnsafeModel,
        (
            "The file holds a tensor without data, of any size "
            "(torch._utils._rebuild_meta_tensor_no_storage). "
            "If you made it, save tensors that have their data instead. Nothing was loaded."
        ),
    ),
    "attributes: any could be set, whatever it means to the class": (
        lambda: saved(attributed(torch.ones(2))),
        UnsafeModel,
        (
            "The file holds a tensor with attributes, or of a class "
            "(torch._tensor._rebuild_from_type_v2). "
            "If you made it, save tensor.detach().clone() as a plain tensor instead. "
            "Nothing was loaded."
        ),
    ),
    "attributes of a parameter": (
        lambda: saved(attributed(nn.Parameter(torch.ones(2)))),
        UnsafeModel,
        (
            "The file holds a parameter with attributes "
            "(torch._utils._rebuild_parameter_with_state). "
            "If you made it, save tensor.detach().clone() as a plain tensor instead. "
            "Nothing was loaded."
        ),
    ),
    "a layout: nobody needs it": (
        lambda: saved(torch.strided),
        UnsafeModel,
        (
            "The file holds a memory layout (torch.serialization._get_layout). "
            "Save its name, str(layout), instead. Nothing was loaded."
        ),
    ),
    "a storage: it has no shape": (
        lambda: saved(torch.ones(2).untyped_storage()),
        UnsafeModel,
        (
            "The file holds a storage by itself, which has no shape that could be checked. "
            "If you made it, save a tensor instead. Nothing was loaded."
        ),
    ),
    "a tensor of a size: takes memory that the file does not have": (
        lambda: archive(proto(call(("torch", "FloatTensor"), number(3)))),
        UnsafeModel,
        (
            "The file holds a tensor without data, of any size (torch.FloatTensor). "
            "If you made it, save tensors that have their data instead. Nothing was loaded."
        ),
    ),
    "a bytearray of a size: takes memory that the file does not have": (
        lambda: archive(proto(call(("builtins", "bytearray"), number(3)))),
        ModelMalformed,
        f"A bytearray is made of something other than bytes. {AGAIN}",
    ),
    "compressed: PyTorch writes no such archive": (
        lambda: _compressed(saved(torch.ones(2))),
        LimitExceeded,
        "The member 'archive/data.pkl' makes",
    ),
    "a storage that no tensor uses": (
        lambda: archive(proto(tensor()), {"0": FOUR, "1": b"hidden"}),
        ModelMalformed,
        f"The archive has the storage 1, which no tensor uses. {AGAIN}",
    ),
    "a value that contains itself": (
        lambda: saved(_circle()),
        ModelMalformed,
        "The pickle changes a value that is part of another one by then.",
    ),
    "text that is not Unicode": (
        lambda: saved({"a": "\ud800"}),
        ModelMalformed,
        "The pickle holds text that is none: half a character, or bytes of Python 2. " + AGAIN,
    ),
    "two tensors of one name": (
        lambda: saved({"a/b": torch.ones(1), "a": {"b": torch.ones(1)}}),
        ModelMalformed,
        f"Two tensors of the file have the name 'a/b'. {AGAIN}",
    ),
    "a tensor as key: it has no name": (
        lambda: saved({torch.ones(1): 1}),
        ModelMalformed,
        NO_PLAIN_VALUE,
    ),
    "a tensor in a set": (lambda: saved({"a": {torch.ones(1), 2}}), ModelMalformed, NO_PLAIN_VALUE),
    "a tensor in a tuple in a set": (
        lambda: saved([{(1, ("b", torch.ones(1)))}]),
        ModelMalformed,
        NO_PLAIN_VALUE,
    ),
    "a tensor in a tuple that is a key": (
        lambda: saved({(1, (torch.ones(1),)): 2}),
        ModelMalformed,
        NO_PLAIN_VALUE,
    ),
    "deeper than 64 levels": (
        lambda: saved(_deep(70)),
        LimitExceeded,
        "The pickle is nested deeper than 64 levels. Save a flatter state. Nothing was loaded.",
    ),
    "attributes of an OrderedDict": (
        lambda: saved(attributed(OrderedDict())),
        ModelMalformed,
        f"An OrderedDict has attributes that a state_dict does not have. {AGAIN}",
    ),
    "more than 64 dimensions": (
        lambda: saved(torch.ones([1] * 65)),
        ModelMalformed,
        f"A tensor has a size, a stride or an offset that no tensor has. {AGAIN}",
    ),
}


def _nested() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is a prototype, said once in a process
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def _compressed(data: bytes) -> bytes:
    file = io.BytesIO()
    with (
        zipfile.ZipFile(opened(data)) as before,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as after,
    ):
        for entry in before.namelist():
            after.writestr(entry, before.read(entry))
    return file.getvalue()


def _circle() -> Any:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def _deep(levels: int) -> Any:
    value: Any = torch.ones(1)
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("case", STRICTER)
def test_a_plan_is_stricter_than_torch_on_purpose(case: str) -> None:
    make, error, message = STRICTER[case]
    data = make()
    torch.load(opened(data), weights_only=True, map_location="cpu")
    with pytest.raises(error) as refusal:
        planned(data)
    assert str(refusal.value).startswith(message)
