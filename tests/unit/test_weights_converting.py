"""convert: what torch.save wrote becomes sealed safetensors, equal to the last bit, or nothing."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import importlib
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save, save_file

from safepoint.errors import (
    CheckpointError,
    ConfigurationError,
    Conflict,
    InvalidId,
    ModelMalformed,
    ModelMismatch,
    ModelUnsupported,
    NotFound,
    SealBroken,
    StorageFull,
    UnsafeModel,
)
from safepoint.weights import (
    ModelLimits,
    Schema,
    TensorSpec,
    UnrestrictedLoad,
    convert,
    isolated,
    load_checkpoint,
    seal_model,
)
from safepoint.weights.digest import digest
from safepoint.weights.packing import pack
from tests.unit.weights_helpers import (
    KEY,
    KEYS,
    hostile,
    listed,
    not_data,
    refused,
    same,
    saved,
    state_dict,
)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new.safetensors"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[None]:
    """Nothing temporary is left, whatever happens."""
    yield
    assert list(tmp_path.glob(".*")) == []


def every_bit() -> dict[str, Any]:
    """Return a training state with all that a comparison by value would miss."""
    tied = torch.tensor([0x7FC00001, 0xFFC12345 - 2**32, 0x7F800001], dtype=torch.int32)
    return {
        "model": {
            "nan": tied.view(torch.float32).clone(),
            "zero": torch.tensor([0.0, -0.0]),
            "bfloat16": torch.tensor([0x7FC1, 0x8000 - 2**16], dtype=torch.int16).view(
                torch.bfloat16
            ),
            "float8": torch.tensor([0x7F, -128], dtype=torch.int8).view(torch.float8_e4m3fn),
            "bool": torch.tensor([[True], [False]]),
            "int64": torch.tensor([-(2**63), 2**63 - 1]),
            "view": torch.arange(12).reshape(3, 4)[:, 1:3],
            "empty": torch.empty(0, 4),
            "scalar": torch.tensor(1.5, dtype=torch.float64),
        },
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]},
        "tied": [tied, tied],
        "epoch": 7,
        "best": float("-inf"),
        "name": "ü\n",
        "none": None,
        "raw": b"\x00",
        "shape": (1, (2,)),
    }


def test_a_training_state(tmp_path: Path, new: Path) -> None:
    """All of it comes back, and the old file is as it was: bytes, time and mode."""
    old = saved(tmp_path / "old.pt", every_bit())
    before = old.read_bytes(), old.stat().st_mtime_ns, old.stat().st_mode
    calls: list[tuple[int, int]] = []
    done = convert(str(old), new, key=KEY, app="tests", progress=lambda *call: calls.append(call))
    assert (old.read_bytes(), old.stat().st_mtime_ns, old.stat().st_mode) == before
    assert listed(tmp_path) == ["new.safetensors", "new.safetensors.seal", "old.pt"]

    found = load_checkpoint(new, keys=KEYS)
    assert same(found, every_bit())
    assert found["tied"][0] is found["tied"][1]

    size = new.stat().st_size
    assert (done.path, done.size, done.tensors) == (str(new), size, len(load_file(new)))
    assert done.digest == digest(new.read_bytes())
    assert '"app":"tests"' in Path(f"{new}.seal").read_text()

    assert calls == sorted(calls)
    assert {total for _, total in calls} == {old.stat().st_size}
    assert calls[-1] == (old.stat().st_size, old.stat().st_size)
    assert len(calls) >= 2


def test_the_older_format_with_its_seal(tmp_path: Path) -> None:
    """Of a file that others can write, whose name is odd; the old seal is verified first."""
    old = saved(tmp_path / "plain.pt", legacy=True).rename(tmp_path / "it's\nold\udcff.pth")
    old.chmod(0o666)
    seal_model(old, key=KEY, name="llama")
    new = tmp_path / "new\n.safetensors"
    schema = Schema.of(state_dict())
    done = convert(old, new, key=KEY, name="llama", keys=KEYS, schema=schema)
    assert done.tensors == 2
    assert same(load_checkpoint(new, keys=KEYS, name="llama"), state_dict())


def test_safetensors_to_be_sealed(tmp_path: Path, new: Path) -> None:
    """Nothing of such a file can run, so safe=False is no reason for a warning."""
    save_file(state_dict(), tmp_path / "old.safetensors")
    convert(tmp_path / "old.safetensors", new, key=KEY, safe=False)
    assert same(load_checkpoint(new, keys=KEYS), state_dict())


CUSTOM = """
class Config:
    def __init__(self):
        self.width = 3

class Rebuilt:
    def __reduce__(self):
        return dict, ([("width", 3)],)
"""


@pytest.fixture
def custom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a module that exists in this test alone, and that a new process can import."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "made_here.py").write_text(CUSTOM)
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module("made_here")
    del sys.modules["made_here"]


def test_a_trusted_file(tmp_path: Path, new: Path, custom: Any) -> None:
    """It runs what it wants in the other process, and leaves data."""
    old = saved(tmp_path / "old.pt", {"model": state_dict(), "config": custom.Rebuilt()})
    with pytest.warns(UnrestrictedLoad) as caught:
        convert(old, new, key=KEY, safe=False)
    assert caught[0].filename == __file__
    expected = {"model": state_dict(), "config": {"width": 3}}
    assert same(load_checkpoint(new, keys=KEYS), expected)


def test_a_class_of_your_own(tmp_path: Path, new: Path, custom: Any) -> None:
    """It is loaded there, with your seal as the reason, and it is not data. The message says so."""
    old = saved(tmp_path / "old.pt", {"model": state_dict(), "config": custom.Config()})
    seal_model(old, key=KEY)
    with pytest.raises(ModelUnsupported) as caught:
        convert(old, new, key=KEY, name="old", keys=KEYS, safe=False)
    assert "Config" in str(caught.value)
    assert str(caught.value).endswith(
        "Convert it first to dicts, lists, tuples, numbers, texts or bytes, or leave it out."
    )
    assert not new.exists()


def test_a_payload(tmp_path: Path, new: Path) -> None:
    old = hostile(tmp_path / "old.pt", tmp_path / "marker")
    with refused(UnsafeModel, not_data(old)):
        convert(old, new, key=KEY)
    assert listed(tmp_path) == ["old.pt"]


def test_a_full_disk(tmp_path: Path, new: Path) -> None:
    """The other process has the limits of this one, and what it says of them comes back."""
    old = saved(tmp_path / "old.pt", {"weight": torch.zeros(50_000)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    message = (
        f"There is no room to write down what {old} holds (EFBIG), so nothing was saved. Free some"
        " space, there and where temporary files go, and try again."
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with refused(StorageFull, message):
            convert(old, new, key=KEY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert listed(tmp_path) == ["old.pt"]


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that lets other lines stand in for the isolated process.

    Before it is called, none may be started at all.
    """
    run = isolated._run

    def never(*_: object) -> None:
        raise AssertionError

    def stand_in(lines: str) -> None:
        start = f"import json, os, signal, sys; task = json.loads(sys.argv[2]); {lines}"
        monkeypatch.setattr(isolated, "_START", start)
        monkeypatch.setattr(isolated, "_run", run)

    monkeypatch.setattr(isolated, "_run", never)
    return stand_in


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"target": "new.pt"}, ConfigurationError),
        ({"target": "taken.safetensors"}, Conflict),
        ({"target": "missing/new.safetensors"}, CheckpointError),
        ({"source": "missing.pt"}, NotFound),
        ({"source": "."}, CheckpointError),
        ({"key": KEYS}, ConfigurationError),
        ({"name": "A B"}, InvalidId),
        ({"app": "\n"}, InvalidId),
        ({"safe": 0}, ConfigurationError),
        ({"schema": {}}, ConfigurationError),
        ({"limits": {}}, ConfigurationError),
        ({"limits": ModelLimits(file_bytes=5)}, CheckpointError),
        ({"keys": KEYS}, NotFound),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_refused_before_anything_is_loaded(
    tmp_path: Path,
    child: Callable[[str], None],
    arguments: dict[str, Any],
    kind: type[CheckpointError],
) -> None:
    saved(tmp_path / "old.pt")
    (tmp_path / "taken.safetensors").write_bytes(b"taken")
    given = {"source": "old.pt", "target": "new.safetensors", "key": KEY, **arguments}
    source, target = tmp_path / given.pop("source"), tmp_path / given.pop("target")
    with pytest.raises(kind):
        convert(source, target, **given)
    assert listed(tmp_path) == ["old.pt", "taken.safetensors"]
    assert (tmp_path / "taken.safetensors").read_bytes() == b"taken"


def test_an_edited_file_with_a_seal(
    tmp_path: Path, new: Path, child: Callable[[str], None]
) -> None:
    old = saved(tmp_path / "old.pt")
    seal_model(old, key=KEY)
    with pytest.raises(ConfigurationError, match="has a seal, and no keys were given"):
        convert(old, new, key=KEY)
    hostile(old, tmp_path / "marker")
    with pytest.raises(SealBroken):
        convert(old, new, key=KEY, name="old", keys=KEYS, safe=False)
    assert not new.exists()


def test_an_interrupt(tmp_path: Path, new: Path, child: Callable[[str], None]) -> None:
    """Whoever raises in the progress ends the other process. Nothing appears."""
    old = saved(tmp_path / "old.pt")
    child("os.write(task['tensors'], bytes(1000)); signal.pause()")
    seen: list[int] = []

    def progress(done: int, total: int) -> None:
        seen.append(done)
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(old, new, key=KEY, progress=progress)
    assert listed(tmp_path) == ["old.pt"]
    assert seen[-1] == 1000


def test_a_target_that_appears_meanwhile(
    tmp_path: Path, new: Path, child: Callable[[str], None]
) -> None:
    old = saved(tmp_path / "old.pt")
    handed(tmp_path, child, save(state_dict()), pack(state_dict()).rest)

    def progress(done: int, total: int) -> None:
        new.write_bytes(b"another")

    with pytest.raises(Conflict):
        convert(old, new, key=KEY, progress=progress)
    assert new.read_bytes() == b"another"
    assert not Path(f"{new}.seal").exists()


def handed(folder: Path, child: Callable[[str], None], tensors: bytes, rest: bytes) -> None:
    """Let the other process hand back these."""
    (folder / "tensors").write_bytes(tensors)
    (folder / "rest").write_bytes(rest)
    child(
        f"os.write(task['tensors'], open({str(folder / 'tensors')!r}, 'rb').read());"
        f"os.write(task['rest'], open({str(folder / 'rest')!r}, 'rb').read());"
        "os.write(1, b'done')"
    )


@pytest.mark.parametrize(
    ("tensors", "rest"),
    [
        (b"", b"{}"),
        (bytes([16]) + bytes(7) + b"no header at all", b"{}"),
        (save(state_dict()), b""),
        (save(state_dict()), b"null"),
        (save(state_dict()), b'{"a":1}\n{"b":2}'),
        (save({"weight": torch.ones(1)}), pack(state_dict()).rest),
        (save(state_dict()) + b"x", pack(state_dict()).rest),
    ],
    ids=["nothing", "garbage", "no rest", "null", "two rests", "other tensors", "more"],
)
def test_what_cannot_be_loaded_is_not_sealed(
    tmp_path: Path, new: Path, child: Callable[[str], None], tensors: bytes, rest: bytes
) -> None:
    """The other process lies. Its word is not sealed."""
    old = saved(tmp_path / "old.pt")
    handed(tmp_path, child, tensors, rest)
    with pytest.raises(ModelMalformed):
        convert(old, new, key=KEY)
    assert listed(tmp_path) == ["old.pt", "rest", "tensors"]


def test_a_schema_that_does_not_fit(
    tmp_path: Path, new: Path, child: Callable[[str], None]
) -> None:
    old = saved(tmp_path / "old.pt")
    handed(tmp_path, child, save(state_dict()), pack(state_dict()).rest)
    message = f"{old}: The tensor 'gamma' is missing. Load the file that belongs to this model."
    with refused(ModelMismatch, message):
        convert(old, new, key=KEY, schema=Schema({"gamma": TensorSpec("float32", (1,))}))
    assert not new.exists()
    assert convert(old, new, key=KEY, schema=Schema.of(state_dict())).tensors == 2
