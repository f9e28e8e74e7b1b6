"""Bad input: one clear error each, whatever the format, and nothing of it runs."""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import bz2
import collections
import gzip
import io
import lzma
import pickle
import random
import subprocess
import sys
import tarfile
import textwrap
import warnings
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

from safepoint.errors import (
    CheckpointError,
    LimitExceeded,
    MissingPackage,
    ModelError,
    ModelMalformed,
    UnsafeModel,
)
from safepoint.weights import load_checkpoint
from tests.corpus import dos
from tests.corpus.embed import as_archive
from tests.unit.killed import ROOT
from tests.unit.weights_helpers import Mark, not_data, refused, same, saved, state_dict

AGAIN = "Get the file again from whoever made it. Nothing in it was loaded."
UNKNOWN = (
    "is of no format that is known here. Nothing was loaded. It may be damaged or cut short: copy"
    " it again, and check that it is the model."
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of its own, so that messages are short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)  # noqa: S311  the same each time


def archive(state: Any = None) -> bytes:
    return saved(Path("made.pt"), state).read_bytes()


def legacy() -> bytes:
    return saved(Path("made.pt"), legacy=True).read_bytes()


def safetensors() -> bytes:
    return bytes(save(state_dict()))


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


def tarred(*names: str) -> bytes:
    file = io.BytesIO()
    content = pickle.dumps(Mark(Path("marker")), 2)
    with tarfile.open(fileobj=file, mode="w") as made:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    return file.getvalue()


def array(save_array: Callable[..., None], **values: Any) -> bytes:
    file = io.BytesIO()
    save_array(file, *values.values())
    return file.getvalue()


def script() -> bytes:
    """Return a genuine TorchScript file."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and still around
        torch.jit.save(torch.jit.script(torch.nn.ReLU()), file)
    return file.getvalue()


CUT_HEADER = (
    "ends before its header does. Nothing was loaded. Save the model again with safetensors or"
    " save_checkpoint."
)
CUT_ZIP = (
    "The file begins as a zip archive, and does not end as one: it is cut short, or bytes follow."
    f" {AGAIN}"
)


@pytest.mark.parametrize(
    ("name", "make", "kind", "message"),
    [
        ("random.pt", lambda: noise(999), ModelMalformed, UNKNOWN),
        ("random", lambda: noise(9), ModelMalformed, UNKNOWN),
        ("random.safetensors", lambda: noise(99), ModelMalformed, UNKNOWN),
        ("text.pt", lambda: b"model weights go here\n", ModelMalformed, UNKNOWN),
        ("cut.pt", lambda: archive()[:-1], ModelMalformed, CUT_ZIP),
        ("half.pt", lambda: archive()[:500], ModelMalformed, CUT_ZIP),
        ("more.pt", lambda: archive() + b"x", ModelMalformed, CUT_ZIP),
        ("cut.safetensors", lambda: safetensors()[:20], ModelMalformed, CUT_HEADER),
        ("two.safetensors", lambda: safetensors()[:8], ModelMalformed, UNKNOWN),
        ("pickle.pt", lambda: pickle.dumps(Mark(Path("marker"))), ModelMalformed, "a pickle"),
        ("pickle.pkl", lambda: pickle.dumps({"a": 1}), ModelMalformed, "a pickle"),
        ("zip.pt", lambda: zipped(**{"a.txt": b"a"}), ModelMalformed, "a zip archive"),
        ("nested.pt", lambda: zipped(**{"model.pt": archive()}), ModelMalformed, "a zip archive"),
        ("npy.pt", lambda: array(np.save, x=np.ones(2)), ModelMalformed, "a NumPy array"),
        (
            "npz.pt",
            lambda: array(np.savez, x=np.ones(2)),
            ModelMalformed,
            "an archive of NumPy arrays",
        ),
        ("a.gz", lambda: gzip.compress(archive()), ModelMalformed, "compressed data (gzip)"),
        ("a.bz2", lambda: bz2.compress(archive()), ModelMalformed, "compressed data (bzip2)"),
        ("a.xz", lambda: lzma.compress(archive()), ModelMalformed, "compressed data (xz)"),
        ("a.json", lambda: b'{"weight": [1, 2]}', ModelMalformed, "JSON"),
        ("tar.pt", lambda: tarred("a", "b"), ModelMalformed, "a tar archive"),
        (
            "legacy.tar",
            lambda: tarred("storages", "tensors", "pickle"),
            ModelMalformed,
            "a PyTorch tar file of the format before 0.1.10",
        ),
        ("script.pt", script, UnsafeModel, "a TorchScript archive"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value[:20] else "",
)
@pytest.mark.parametrize("safe", [True, False], ids=["safe", "trusted"])
@pytest.mark.filterwarnings("ignore::safepoint.weights.UnrestrictedLoad")
def test_a_file_that_is_no_model(
    here: Path,
    name: str,
    make: Callable[[], bytes],
    kind: type[CheckpointError],
    message: str,
    safe: bool,
) -> None:
    """Also with safe=False: that is for models that one trusts, and these are none."""
    Path(name).write_bytes(make())
    ways = {
        "a pickle": "See what it wants: python -m safepoint.pickles inspect FILE",
        "a TorchScript archive": "It is a program. Ask for the weights alone: a state_dict, as"
        " safetensors.",
        "a PyTorch tar file of the format before 0.1.10": "PyTorch before 0.1.10 wrote it. Load it"
        " where it was made, and save it anew.",
    }
    way = ways.get(message, "Check that this is the file.")
    if message in (UNKNOWN, CUT_HEADER):
        expected = f"{name} {message}"
    elif message is CUT_ZIP:
        expected = f"{name}: {message}"
    else:
        expected = f"{name} is {message}, which is not loaded. {way}"
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(name, safe=safe)
    assert (type(caught.value), str(caught.value)) == (kind, expected)
    assert is_one(caught.value)
    assert not Path("marker").exists()


def is_one(error: BaseException) -> bool:
    """Tell whether an error is shown alone: what was raised on the way may quote the file."""
    return error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)


def test_cut_at_any_place() -> None:
    """One error of the tree, for each format, wherever a copy ended."""
    for name, content in (
        ("a.pt", archive()),
        ("b.pt", legacy()),
        ("c.safetensors", safetensors()),
    ):
        for end in [*range(0, len(content), 7), len(content) - 1]:
            Path(name).write_bytes(content[:end])
            with pytest.raises(ModelMalformed) as caught:
                load_checkpoint(name)
            assert str(caught.value).isprintable()
            assert name in caught.value.what
            assert is_one(caught.value)


def test_any_bit_flipped(here: Path) -> None:
    """A weight may differ, as there is no seal. Whatever else happens is one of our errors."""
    rng = random.Random(11)  # noqa: S311  the same each time
    for name, content in (
        ("a.pt", archive()),
        ("b.pt", legacy()),
        ("c.safetensors", safetensors()),
    ):
        loaded = 0
        refusals: list[CheckpointError] = []
        for _ in range(200):
            edited = bytearray(content)
            edited[rng.randrange(len(edited))] ^= 1 << rng.randrange(8)
            Path(name).write_bytes(edited)
            try:
                loaded += isinstance(load_checkpoint(name), dict)
            except CheckpointError as error:
                refusals.append(error)
        assert loaded < 150
        assert all(is_one(error) and name in error.what for error in refusals)


MEMBERS = {"archive/data.pkl": pickle.dumps({}, 2), "archive/version": b"3\n"}
NOT_WRITTEN = "Get the file again, or write it again with torch.save. Nothing was loaded."


def test_an_archive_in_a_model() -> None:
    Path("model.pt").write_bytes(zipped(**MEMBERS, **{"archive/inner.zip": archive()}))
    message = "model.pt has a member that torch.save does not write: 'inner.zip'. " + NOT_WRITTEN
    with refused(ModelMalformed, message):
        load_checkpoint("model.pt")


def test_code_in_a_model() -> None:
    """The layout of TorchScript by hand: what identify calls it does not matter."""
    Path("model.pt").write_bytes(
        zipped(
            **MEMBERS, **{"archive/code/__torch__.py": b"", "archive/constants.pkl": b"\x80\x02N."}
        )
    )
    with pytest.raises(UnsafeModel, match="TorchScript archive"):
        load_checkpoint("model.pt")


def test_a_bomb() -> None:
    """128 MiB of zeros in 130 kB."""
    content = dos.bomb()
    assert len(content) < 1_000_000
    Path("model.pt").write_bytes(content)
    with pytest.raises(
        LimitExceeded, match=r"PyTorch does not compress\..*raise ModelLimits\.ratio"
    ):
        load_checkpoint("model.pt")


class OfMine:
    pass


def wants(name: str) -> str:
    return not_data(Path("model.pt"), name)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (date(2026, 1, 1), "datetime.date"),
        (OfMine(), "tests.unit.test_weights_bad_input.OfMine"),
        (torch.nn.ReLU(), "torch.nn.modules.activation.ReLU"),
        (Path("a"), "pathlib.PosixPath"),
        (print, "__builtin__.print"),
        (OfMine, "tests.unit.test_weights_bad_input.OfMine"),
    ],
    ids=["a date", "an object", "a module", "a path", "a function", "a class"],
)
def test_something_else_than_tensors(value: Any, name: str) -> None:
    """The message names what the file wants, and what to do if it is yours."""
    saved(Path("model.pt"), {"weight": torch.ones(1), "value": value})
    with pytest.raises(UnsafeModel) as caught:
        load_checkpoint("model.pt")
    assert str(caught.value) == wants(name)
    assert is_one(caught.value)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: np.ones(2), "a NumPy value"),
        (lambda: np.float64(1), "a NumPy value"),
        (lambda: torch.eye(2).to_sparse(), "a sparse tensor"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), "a quantized"),
        (lambda: torch.ones(2, device="meta"), "a tensor"),
    ],
    ids=["array", "scalar", "sparse", "quantized", "meta"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensors_of_another_kind(make: Callable[[], Any], what: str) -> None:
    saved(Path("model.pt"), {"value": make()})
    with pytest.raises(UnsafeModel, match=rf"^model\.pt holds {what}.* Nothing was loaded\."):
        load_checkpoint("model.pt")


@pytest.mark.parametrize(
    "value",
    [None, True, 5, 2.5, "text", b"raw", (1, 2), {1, 2}, [[]], collections.OrderedDict(a=1)],
    ids=repr,
)
def test_plain_values_are_data(value: Any) -> None:
    saved(Path("model.pt"), {"weight": torch.ones(1), "value": value})
    assert same(load_checkpoint("model.pt")["value"], value)


@pytest.mark.parametrize("old", [False, True], ids=["archive", "legacy"])
@pytest.mark.parametrize("tag", ["cuda:0", "cuda:7", "cuda", "mps:0", "xla:0"])
def test_tensors_of_another_device(monkeypatch: pytest.MonkeyPatch, tag: str, old: bool) -> None:
    """The device is written in the file. Here they load, on the CPU, wherever they were."""
    with monkeypatch.context() as patch:
        patch.setattr("torch.serialization.location_tag", lambda _: tag)
        saved(Path("model.pt"), legacy=old)
    assert tag.encode() in Path("model.pt").read_bytes()
    found = load_checkpoint("model.pt")
    assert same(found, state_dict())
    assert {tensor.device.type for tensor in found.values()} == {"cpu"}


@pytest.mark.parametrize("file", dos.EXHAUSTING, ids=lambda file: file.name)
def test_a_file_that_takes_all_there_is(file: dos.Exhausting) -> None:
    """Each of them takes memory, time or the process away from a careless reader."""
    name = f"model{file.suffix}"
    Path(name).write_bytes(file.make())
    with pytest.raises((ModelError, LimitExceeded)) as caught:
        load_checkpoint(name)
    assert str(caught.value).isprintable()
    assert name in caught.value.what
    assert is_one(caught.value)


def test_a_payload_in_a_member_that_nobody_reads() -> None:
    content = as_archive(pickle.dumps({}, 2), {"0": pickle.dumps(Mark(Path("marker")), 2)})
    Path("model.pt").write_bytes(content)
    message = f"model.pt has the storage 0, which no tensor uses. {NOT_WRITTEN}"
    with refused(ModelMalformed, message):
        load_checkpoint("model.pt")


REINSTALL = "Install it again: pip install --force-reinstall torch"
# Without PyTorch, or with one that is broken: a finder that answers before all others.
WITHOUT = """
    import sys

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in sys.argv[1].split(","):
                raise {raised}

    sys.meta_path.insert(0, Finder())
    from safepoint import SigningKey
    from safepoint.errors import CheckpointError, MissingPackage
    from safepoint.weights import convert, load_checkpoint, save_checkpoint
    from safepoint.weights.__main__ import main

    key = SigningKey.generate()
    key.to_file("model.key")
    for call in (
        lambda: load_checkpoint("model.pt"),
        lambda: load_checkpoint("model.safetensors"),
        lambda: save_checkpoint("new.safetensors", {{}}, key=key),
    ):
        try:
            call()
        except MissingPackage as error:
            assert isinstance(error, ImportError)
            print(error)
    assert main(["inspect", "model.pt"]) == 0
    assert main(["inspect", "model.safetensors"]) == 0
    assert main(["seal", "model.pt", "--key", "model.key"]) == 0
    assert main(["verify", "model.pt", "--key", "model.key"]) == 0
    assert "torch" not in sys.modules
"""


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (
            'ModuleNotFoundError(f"No module named {name!r}", name=name)',
            "which is not installed. Install it: pip install 'safepoint[torch]'",
        ),
        (
            'OSError("libtorch_cpu.so: not there")',
            f"whose installation is broken ('libtorch_cpu.so: not there'). {REINSTALL}",
        ),
        (
            'ImportError("undefined symbol")',
            f"whose installation is broken ('undefined symbol'). {REINSTALL}",
        ),
    ],
    ids=["missing", "a library is missing", "broken"],
)
def test_no_pytorch(here: Path, raised: str, message: str) -> None:
    """One sentence. To inspect, seal and verify a file needs no PyTorch at all."""
    saved(Path("model.pt"))
    Path("model.safetensors").write_bytes(safetensors())
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WITHOUT).format(raised=raised), "torch"],
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == [f"safepoint.weights needs torch, {message}"] * 3
    assert MissingPackage.__mro__[1:3] == (CheckpointError, ImportError)
