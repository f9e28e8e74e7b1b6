"""load_checkpoint: what it returns, what it refuses, and that it never falls back."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import io
import pickle
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from safepoint import Keyring, SigningKey
from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    LimitExceeded,
    ModelError,
    ModelMalformed,
    ModelMismatch,
    SealError,
    UnsafeModel,
)
from safepoint.weights import (
    ModelLimits,
    Schema,
    TensorSpec,
    UnrestrictedLoad,
    load_checkpoint,
    reading,
    save_checkpoint,
    seal_model,
)
from safepoint.weights.plan import Plan
from tests.corpus.embed import as_archive, as_legacy
from tests.unit.weights_helpers import (
    KEY,
    KEYS,
    Mark,
    hostile,
    not_data,
    refused,
    same,
    saved,
    stand_in,
    state_dict,
)

BELONGS = "Load the file that belongs to this model."
OR_EXTRA = "Load the file that belongs to this model, or write Schema(…, extra=True)."
legacy = pytest.mark.parametrize("legacy", [False, True], ids=["archive", "legacy"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(tmp_path / "model.pt")


@legacy
def test_a_state_dict_comes_back(tmp_path: Path, legacy: bool) -> None:
    """Genuine tensors on the CPU, which a module takes."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    path = saved(tmp_path / "model.pt", model.state_dict(), legacy=legacy)
    found = load_checkpoint(path)
    assert type(found) is OrderedDict
    assert same(found, model.state_dict())
    assert {type(tensor) for tensor in found.values()} == {torch.Tensor}
    assert {tensor.device.type for tensor in found.values()} == {"cpu"}
    torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).load_state_dict(found)


@legacy
def test_a_training_state_comes_back(tmp_path: Path, legacy: bool) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = {
        "model": dict(model.state_dict()),
        "optimizer": optimizer.state_dict(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "rng": torch.get_rng_state(),
        "epoch": 7,
        "loss": [0.5, float("inf")],
        "half": torch.tensor([1.5, -0.0], dtype=torch.bfloat16),
    }
    found = load_checkpoint(saved(tmp_path / "model.pt", state, legacy=legacy))
    assert same(found, state)
    assert type(found["parameter"]) is torch.nn.Parameter


def test_safetensors(tmp_path: Path) -> None:
    save_file(state_dict(), tmp_path / "model.safetensors")
    assert same(load_checkpoint(tmp_path / "model.safetensors"), state_dict())
    assert same(load_checkpoint(str(tmp_path / "model.safetensors"), safe=False), state_dict())


@legacy
def test_a_payload_does_not_run(tmp_path: Path, legacy: bool) -> None:
    path = hostile(tmp_path / "model.pt", tmp_path / "marker", legacy=legacy)
    with refused(UnsafeModel, not_data(path)):
        load_checkpoint(path)
    assert not (tmp_path / "marker").exists()


def everything_is_fine(*_: object) -> Plan:
    """Stand in for a plan that missed something, so that PyTorch gets to see the file."""
    return Plan({}, (), "little")


def type_error(marker: Path) -> bytes:
    """Return a pickle that is a TypeError under the flag, and runs without it.

    It gives an OrderedDict the state None. The restricted reader takes that for attributes, which
    raises. The unrestricted one sees that there are none, and goes on to the payload.
    """
    return b"\x80\x02ccollections\nOrderedDict\n)RNb0" + pickle.dumps(Mark(marker), 2)[2:]


def unpickling_error(marker: Path) -> bytes:
    return pickle.dumps(Mark(marker), 2)


@pytest.mark.parametrize("embed", [as_archive, as_legacy])
@pytest.mark.parametrize(
    ("payload", "name"),
    [(type_error, "TypeError"), (unpickling_error, "UnpicklingError")],
    ids=["TypeError", "UnpicklingError"],
)
def test_it_never_falls_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    embed: Callable[[bytes], bytes],
    payload: Callable[[Path], bytes],
    name: str,
) -> None:
    """A file that fails under the flag is not tried without it, even if no plan had stopped it."""
    path = tmp_path / "model.pt"
    path.write_bytes(embed(payload(tmp_path / "marker")))
    with pytest.raises((UnsafeModel, ModelMalformed)):
        load_checkpoint(path)
    monkeypatch.setattr(reading, "read_plan", everything_is_fine)
    message = (
        f"PyTorch could not load {path} ({name}). Nothing was loaded. Copy it again; if that does"
        " not help, ask whoever made it."
    )
    with refused(ModelMalformed, message):
        load_checkpoint(path)
    assert not (tmp_path / "marker").exists()
    torch.load(path, weights_only=False)
    assert (tmp_path / "marker").exists(), "the payload is one, so the test can fail"


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (KeyError("secret"), ModelMalformed, "could not load"),
        (EOFError("secret"), ModelMalformed, "could not load"),
        (RuntimeError("secret"), ModelMalformed, "could not load"),
        (RecursionError("secret"), ModelMalformed, "could not load"),
        (pickle.UnpicklingError("secret"), ModelMalformed, "could not load"),
        (OSError(5, "secret"), ModelError, "could not load"),
        (ImportError("secret"), ModelError, "needs a class or a function that is not here"),
        (AttributeError("secret"), ModelError, "needs a class or a function that is not here"),
        (OSError(12, "secret"), LimitExceeded, "does not fit into the memory"),
        (MemoryError(), LimitExceeded, "does not fit into the memory"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"),
            LimitExceeded,
            "does not fit into the memory",
        ),
        (RuntimeError("std::bad_alloc"), LimitExceeded, "does not fit into the memory"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("safe", [True, False], ids=["safe", "trusted"])
@pytest.mark.filterwarnings("ignore::safepoint.weights.UnrestrictedLoad")
def test_whatever_pytorch_raises(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    kind: type[CheckpointError],
    message: str,
    safe: bool,
) -> None:
    """One error of the tree. What PyTorch said may quote the file, and does not come along."""
    torch_like = stand_in()
    torch_like.load.__globals__["calls"] = Raising(raised)
    monkeypatch.setattr("safepoint.weights._packages.torch", lambda: torch_like)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(path, safe=safe)
    assert type(caught.value) is kind
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    assert "secret" not in str(caught.value)


class Raising:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def append(self, _: object) -> None:
        raise self.error


def test_an_interrupt_is_an_interrupt(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch_like = stand_in()
    torch_like.load.__globals__["calls"] = Raising(KeyboardInterrupt())
    monkeypatch.setattr("safepoint.weights._packages.torch", lambda: torch_like)
    with pytest.raises(KeyboardInterrupt):
        load_checkpoint(path)


def unrestricted(path: Path) -> str:
    return (
        f"{path} is loaded without restriction, so it can run code, and nothing verified who made"
        " it. Pass keys= to verify its seal, or convert it to safetensors."
    )


@legacy
def test_a_trusted_file_runs(tmp_path: Path, legacy: bool) -> None:
    """safe=False means what it says, and says so, in the line that called."""
    path = hostile(tmp_path / "model.pt", tmp_path / "marker", legacy=legacy)
    with pytest.warns(UnrestrictedLoad) as caught:
        found = load_checkpoint(path, safe=False)
    assert [str(warning.message) for warning in caught] == [unrestricted(path)]
    assert caught[0].filename == __file__
    assert (tmp_path / "marker").exists()
    assert same(found["weight"], state_dict()["weight"])


def test_a_warning_as_an_error_comes_first(tmp_path: Path) -> None:
    """Whoever turns the warning into an error has turned unsealed files off."""
    path = hostile(tmp_path / "model.pt", tmp_path / "marker")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UnrestrictedLoad):
            load_checkpoint(path, safe=False)
    assert not (tmp_path / "marker").exists()


def test_a_verified_seal_is_a_reason_to_trust(tmp_path: Path) -> None:
    """No warning: warnings are errors in these tests."""
    path = hostile(tmp_path / "model.pt", tmp_path / "marker")
    seal_model(path, key=KEY)
    found = load_checkpoint(path, safe=False, keys=KEYS)
    assert same(found["weight"], state_dict()["weight"])
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize("how", ["edited", "another key", "no seal"])
def test_without_the_right_seal_nothing_runs(tmp_path: Path, how: str) -> None:
    path = hostile(tmp_path / "model.pt", tmp_path / "marker")
    keys = KEYS
    if how == "edited":
        saved(path)
        seal_model(path, key=KEY)
        hostile(path, tmp_path / "marker")
    elif how == "another key":
        seal_model(path, key=KEY)
        keys = Keyring(SigningKey.generate())
    with pytest.raises((SealError, LookupError)):
        load_checkpoint(path, safe=False, keys=keys)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("value", [1, 0, "False", None, torch.tensor(True)], ids=repr)
@pytest.mark.parametrize("flag", ["safe", "isolated"])
def test_a_flag_that_is_none(path: Path, flag: str, value: object) -> None:
    """`safe="False"` is truthy, and safe=0 is not False: neither is guessed at."""
    message = (
        f"{flag} is True or False, not {type(value).__name__}. Write {flag}=True. Nothing was"
        " loaded."
    )
    with refused(ConfigurationError, message):
        load_checkpoint(path, **{flag: value})  # type: ignore[arg-type]


def test_other_arguments_of_the_wrong_kind(path: Path) -> None:
    message = (
        "A schema is a Schema, not dict. Write schema=Schema({...}), or Schema.of(state_dict)."
    )
    with refused(ConfigurationError, message):
        load_checkpoint(path, schema={})  # type: ignore[arg-type]
    message = (
        "limits are ModelLimits, not int. Write limits=ModelLimits(file_bytes=...), or leave it"
        " out."
    )
    with refused(ConfigurationError, message):
        load_checkpoint(path, limits=7)  # type: ignore[arg-type]


@legacy
def test_a_schema_that_fits(tmp_path: Path, legacy: bool) -> None:
    path = saved(tmp_path / "model.pt", legacy=legacy)
    assert same(load_checkpoint(path, schema=Schema.of(state_dict())), state_dict())
    any_rows = Schema({"weight": TensorSpec("float32", (None, 3))}, extra=True)
    assert same(load_checkpoint(path, schema=any_rows), state_dict())


WEIGHT = TensorSpec("float32", (2, 3))
BIAS = TensorSpec("float32", (2,))


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (
            {"weight": TensorSpec("float32", (3, 2)), "bias": BIAS},
            "The tensor 'weight' is float32 (2, 3), and the schema says float32 (3, 2). " + BELONGS,
        ),
        (
            {"weight": TensorSpec("float16", (2, 3)), "bias": BIAS},
            "The tensor 'weight' is float32 (2, 3), and the schema says float16 (2, 3). " + BELONGS,
        ),
        (
            {"weight": WEIGHT, "bias": BIAS, "gamma": BIAS},
            "The tensor 'gamma' is missing. " + BELONGS,
        ),
        (
            {"weight": WEIGHT},
            f"The tensor 'bias' is not in the schema. {OR_EXTRA}",
        ),
    ],
    ids=["shape", "type", "missing", "extra"],
)
@pytest.mark.parametrize("form", ["archive", "legacy", "safetensors", "sealed"])
def test_a_schema_that_does_not_fit(
    tmp_path: Path, form: str, specs: dict[str, TensorSpec], message: str
) -> None:
    path = tmp_path / ("model.safetensors" if form in ("safetensors", "sealed") else "model.pt")
    if form == "sealed":
        save_checkpoint(path, state_dict(), key=KEY)
    elif form == "safetensors":
        save_file(state_dict(), path)
    else:
        saved(path, legacy=form == "legacy")
    with refused(ModelMismatch, f"{path}: {message}"):
        load_checkpoint(path, schema=Schema(specs), keys=KEYS if form == "sealed" else None)


def test_a_schema_comes_before_pytorch(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit never reaches torch.load."""
    torch_like = stand_in()
    monkeypatch.setattr("safepoint.weights._packages.torch", lambda: torch_like)
    with pytest.raises(ModelMismatch):
        load_checkpoint(path, schema=Schema({"weight": TensorSpec("int8", (1,))}))
    assert torch_like.calls == []


def test_a_schema_of_a_nested_state(tmp_path: Path) -> None:
    """Names are the way to a tensor, the same in each format. Tied weights have both names."""
    tied = torch.ones(2)
    state = {"model": {"in": tied, "out": tied}, "steps": [torch.zeros(1)], "epoch": 1}
    names = {"model/in": BIAS, "model/out": BIAS, "steps/0": TensorSpec("float32", (1,))}
    path = saved(tmp_path / "model.pt", state)
    assert same(load_checkpoint(path, schema=Schema(names)), state)
    sealed = tmp_path / "model.safetensors"
    save_checkpoint(sealed, state, key=KEY)
    assert same(load_checkpoint(sealed, keys=KEYS, schema=Schema(names)), state)
    for wrong in (Schema({"model/in": BIAS}), Schema({**names, "model/both": BIAS})):
        with pytest.raises(ModelMismatch):
            load_checkpoint(sealed, keys=KEYS, schema=wrong)


def test_a_schema_and_a_trusted_file(path: Path) -> None:
    message = (
        "A schema is checked before a model reaches your process, and an unrestricted load cannot"
        " wait for that. Load with safe=True, or with isolated=True."
    )
    with refused(ConfigurationError, message):
        load_checkpoint(path, safe=False, schema=Schema.of(state_dict()))


@pytest.mark.parametrize(
    ("limits", "state", "message"),
    [
        (ModelLimits(entries=3), None, "raise ModelLimits.entries"),
        (ModelLimits(pickle_bytes=20), None, "raise ModelLimits.pickle_bytes"),
        (ModelLimits(tensors=1), None, "raise ModelLimits.tensors"),
        (ModelLimits(elements=5), None, "raise ModelLimits.elements"),
        (ModelLimits(file_bytes=100), None, "raise ModelLimits.file_bytes"),
        (ModelLimits(elements=100), torch.zeros(1).expand(10**6), "raise ModelLimits.elements"),
    ],
    ids=["entries", "pickle_bytes", "tensors", "elements", "file_bytes", "stride 0"],
)
def test_the_limits_of_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: ModelLimits, state: Any, message: str
) -> None:
    """Each is checked before PyTorch sees a byte, and the message says which to raise."""
    path = saved(tmp_path / "model.pt", state)
    torch_like = stand_in()
    monkeypatch.setattr("safepoint.weights._packages.torch", lambda: torch_like)
    with pytest.raises(LimitExceeded, match=message):
        load_checkpoint(path, limits=limits)
    assert torch_like.calls == []


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (ModelLimits(header_bytes=16), "raise ModelLimits.header_bytes"),
        (ModelLimits(tensors=1), "raise ModelLimits.tensors"),
        (ModelLimits(elements=5), "raise ModelLimits.elements"),
        (ModelLimits(file_bytes=100), "raise ModelLimits.file_bytes"),
    ],
    ids=["header_bytes", "tensors", "elements", "file_bytes"],
)
def test_the_limits_of_safetensors(tmp_path: Path, limits: ModelLimits, message: str) -> None:
    path = tmp_path / "model.safetensors"
    save_file(state_dict(), path)
    with pytest.raises(LimitExceeded, match=message):
        load_checkpoint(path, limits=limits)


def test_a_compressed_archive(tmp_path: Path) -> None:
    """PyTorch does not compress. What was compressed by hand needs a higher ratio."""
    path = tmp_path / "model.pt"
    plain = saved(tmp_path / "plain.pt", {"weight": torch.zeros(1000)})
    with zipfile.ZipFile(io.BytesIO(plain.read_bytes())) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.infolist():
            new.writestr(member.filename, old.read(member), zipfile.ZIP_DEFLATED)
    with pytest.raises(LimitExceeded, match=r"raise ModelLimits\.ratio"):
        load_checkpoint(path)
    found = load_checkpoint(path, limits=ModelLimits(ratio=1000))
    assert same(found, {"weight": torch.zeros(1000)})
