"""The checks on models, on the PyTorch here, and on the test that a project has."""

from __future__ import annotations

import io
import json
import pickle
import shlex
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from zipfile import ZipFile

import pytest

from safepoint import SigningKey
from safepoint.attacks.models import archive_of
from safepoint.attacks.outcome import MARKER
from safepoint.attacks.payload import marker_pickle
from safepoint.audit import check_models, check_safety_test, check_torch
from safepoint.audit import models as looked_at
from safepoint.errors import MissingPackage, StorageUnavailable
from safepoint.models import Classified, classify, save_checkpoint, seal_model
from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import torch

SYSTEM = b"cos\nsystem\n(S'id'\ntR."
CONVERT = "Convert it once: safepoint convert FILE NEW --key KEY"
DISTRUST = "Do not load it. If you made it, save plain data instead."
FIND_OUT = "Find out what it is before you load it."


def tensors() -> bytes:
    file = io.BytesIO()
    torch.save({"w": torch.ones(2)}, file)
    return file.getvalue()


def zipped(name: str, data: bytes) -> bytes:
    file = io.BytesIO()
    with ZipFile(file, "w") as archive:
        archive.writestr(name, data)
    return file.getvalue()


def lines(folder: Path) -> list[str]:
    return [str(each).replace(f"{folder}/", "") for each in check_models(folder)]


def audit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "safepoint", "audit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "name",
    [
        *("model", "model.pkl", "weights.dat", "net.joblib", "net.npz", "net.h5"),
        *("pytorch_model.bin", "net.pt", "net.safetensors", "notes.txt", "deep/er/.hidden"),
    ],
)
def test_a_pickle_that_runs_code_is_an_error_by_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "models"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_bytes(marker_pickle(tmp_path / MARKER))
    assert lines(folder)[0] == (
        f"SP24 error: {name} is a pickle, and asks for os.mkdir. {DISTRUST}"
    )
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize(
    ("name", "data", "first"),
    [
        ("net.pt", tensors, (f"SP25 warning: net.pt is a PyTorch archive, and holds nothing but"
         f" tensors and plain values. {CONVERT}")),
        ("net", lambda: archive_of(SYSTEM), ("SP24 error: net is a PyTorch archive, and asks for"
         " os.system. Nothing of it was run. Do not load it. If you made it, save the state_dict"
         " and plain values instead.")),
        ("a.npz", lambda: zipped("a.pkl", SYSTEM), ("SP24 error: a.npz is a zip archive, and asks"
         f" for os.system. {DISTRUST}")),
        ("net.safetensors", tensors, ("SP25 error: net.safetensors is a PyTorch archive, whatever"
         " its name says. Do not load it. Ask who named it; if that was you, give it the right"
         " ending.")),
        ("net.bin", lambda: b'{"a": 1}', ("SP25 warning: net.bin is JSON, and has the name of a"
         f" model. {FIND_OUT}")),
        ("net.h5", lambda: b"\x89HDF\r\n\x1a\n" + bytes(90), ("SP25 warning: net.h5 is of no format"
         f" that is known here, and has the name of a model. {FIND_OUT}")),
        ("old", lambda: pickle.dumps([1]), ("SP25 warning: old is a pickle, and what is pickled in"
         " it is plain values. Read it once, as data, with safepoint.models.read_pickle, and save"
         " it as JSON.")),
        ("net.gz", lambda: b"\x1f\x8b\x08" + bytes(90), ("SP25 warning: net.gz is compressed data,"
         f" which is not looked into. {FIND_OUT}")),
        ("cut.zip", lambda: zipped("a", b"a")[:-9], "SP25 error: cut.zip"),
    ],
)  # fmt: skip
def test_content_decides(tmp_path: Path, name: str, data: object, first: str) -> None:
    assert callable(data)
    (tmp_path / name).write_bytes(data())
    assert lines(tmp_path)[0].startswith(first)
    assert lines(tmp_path)[1:] == [
        (
            f"SP24 note: {name} has no seal. Seal it where it is made: safepoint seal-model FILE"
            " --key KEY"
        )
    ]


def test_to_convert_a_file_is_advised_where_that_works(tmp_path: Path) -> None:
    """It was said of a bare pickle of os.system, too, and without the command."""
    torch.save({"w": torch.ones(2), "day": date(2026, 1, 1)}, tmp_path / "net.pt")
    shutil.copy(tmp_path / "net.pt", tmp_path / "net.safetensors")
    (tmp_path / "bare.pt").write_bytes(SYSTEM)
    bare, net, named = (line for line in lines(tmp_path) if line.startswith("SP24 error"))
    assert "--trusted" not in bare + named
    command = net.partition("changed it: safepoint ")[2]
    assert command.startswith("convert --trusted net.pt net.safetensors --key ")
    options = shlex.split(command.replace("net.safetensors", "new.safetensors"))
    run = [sys.executable, "-m", "safepoint", *options]
    assert subprocess.run(run, cwd=tmp_path, check=False, capture_output=True).returncode == 0


def test_what_is_sealed_gives_no_finding_but_for_its_format(tmp_path: Path) -> None:
    key = SigningKey.generate()
    save_checkpoint(tmp_path / "net.safetensors", {"w": torch.ones(2)}, key=key)
    assert lines(tmp_path) == []
    (tmp_path / "net.pt").write_bytes(tensors())
    seal_model(tmp_path / "net.pt", key=key)
    assert [line.split(":")[0] for line in lines(tmp_path)] == ["SP25 warning"]


def test_the_worst_comes_first_and_nothing_is_cut(tmp_path: Path) -> None:
    """The command cuts a long row, and says so: never one of another rule or severity."""
    for number in range(25):
        (tmp_path / f"{number}.pt").write_bytes(tensors())
    (tmp_path / "pytorch_model.bin").write_bytes(SYSTEM)
    found = check_models(tmp_path)
    assert [each.severity for each in found] == ["error"] + 25 * ["warning"] + 26 * ["note"]
    done = audit("--models", tmp_path)
    printed = done.stdout.splitlines()
    assert (done.returncode, done.stderr, len(printed)) == (1, "", 1 + 21 + 21)
    assert "pytorch_model.bin is a pickle, and asks for os.system" in printed[0]
    assert printed[21] == (
        "SP25 warning: There are 5 more findings like these. Mend those above, and run the audit"
        " again."
    )


def test_what_was_skipped_is_counted(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "net.safetensors", {"w": torch.ones(2)}, key=SigningKey.generate())
    (tmp_path / "config.json").write_text(json.dumps({"layers": 2}))
    say = "If your code loads one as a model, find out what it is."
    assert lines(tmp_path) == [
        f"SP25 note: 1 file in {tmp_path} is no model and was skipped: 'config.json'. {say}"
    ]
    for name in ("a", "b", "d\n"):
        (tmp_path / name).write_text("hello")
    assert lines(tmp_path) == [
        (
            f"SP25 note: 4 files in {tmp_path} are no models and were skipped: 'a', 'b',"
            f" 'config.json' and 1 more. {say}"
        )
    ]
    done = audit("--models", tmp_path)
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)


@pytest.mark.parametrize(
    ("name", "why"),
    [(None, "it holds no file"), ("readme", "skipped: 'readme'"), ("gone", "could not be looked")],
)
def test_nothing_looked_at_is_not_green(tmp_path: Path, name: str | None, why: str) -> None:
    if name == "readme":
        (tmp_path / name).write_text("hello")
    elif name is not None:
        (tmp_path / name).symlink_to(tmp_path / "nowhere")
    done = audit("--models", tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"No model was looked at in {tmp_path}: ")
    assert why in done.stderr


def test_a_link_is_looked_at_as_what_a_loader_would_find(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(SYSTEM)
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot/model.bin").symlink_to("../blob")
    (tmp_path / "snapshot/loop").symlink_to("loop")
    (tmp_path / "snapshot/folder").symlink_to(tmp_path)
    found = lines(tmp_path / "snapshot")
    assert found[0].startswith("SP24 error: model.bin is a pickle")
    lead = "Find out where it leads, and look at that path."
    assert found[1:3] == [
        f"SP25 warning: folder is a link, and could not be looked at: it is a folder. {lead}",
        (
            "SP25 warning: loop is a link, and could not be looked at: it cannot be read (Too many"
            f" levels of symbolic links). {lead}"
        ),
    ]


def test_no_file_hides_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six pickles that run code went unnamed beside an array without a header, in a zip."""
    for number in range(6):
        (tmp_path / f"{number}.pt").write_bytes(SYSTEM)
    (tmp_path / "a.npz").write_bytes(zipped("a.npy", b"\x93NUMPY\1\0"))
    assert sum(line.startswith("SP24 error") for line in lines(tmp_path)) == 6

    def broken(file: str) -> Classified:
        if file.endswith("a.npz"):
            raise ValueError
        return classify(file)

    monkeypatch.setattr(looked_at, "classify", broken)
    found = lines(tmp_path)
    assert sum(line.startswith("SP24 error") for line in found) == 6
    assert (
        "SP25 warning: a.npz could not be looked at: ValueError, which is a defect of safepoint. Do"
        " not load it, and report it with the file."
    ) in found


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="is not a folder"):
        check_models(tmp_path / "none")


def test_an_old_torch_is_an_error_and_none_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_torch() == []
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "2.5.1")
        (found,) = check_torch()
    assert str(found).startswith("SP23 error: PyTorch 2.5.1 does not keep the promise")
    assert found.do == "Upgrade: pip install 'torch>=2.10'"

    def missing() -> None:
        raise MissingPackage("There is none.", "Install it.")

    monkeypatch.setattr(looked_at, "package", missing)
    assert check_torch() == []


GOOD = """
import pytest
torch = pytest.importorskip("torch", exc_type=ImportError)
def test_it(tmp_path):
    with pytest.raises(RuntimeError):
        load_checkpoint(tmp_path / "x")
"""
NONE = (
    "SP27 warning: here has no test that expects an unsafe load to be refused. Copy"
    " tests/utils/test_checkpointing_safe_load.py from the examples of this guide."
)


@pytest.mark.parametrize(
    ("where", "test", "settings", "expected"),
    [
        ("tests", GOOD, "PYTEST_DISABLE_PLUGIN_AUTOLOAD: 1", []),
        ("tests", "def test_it(): pass", "", [NONE]),
        ("venv", GOOD, "", [NONE]),
        ("tests", GOOD.replace(", exc_type=ImportError", ""), "", [
            ("SP27 warning: here/tests/test_load.py fails instead of skipping where PyTorch is"
            ' installed and broken. Write pytest.importorskip("torch", exc_type=ImportError).'),
            ("SP27 warning: Nothing in here keeps stray pytest plugins out of the safety test. Run"
            " it with PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 in CI."),
        ]),
    ],
)  # fmt: skip
def test_a_project_tests_that_its_loads_are_safe(
    tmp_path: Path, where: str, test: str, settings: str, expected: list[str]
) -> None:
    (tmp_path / where).mkdir()
    (tmp_path / where / "test_load.py").write_text(test)
    (tmp_path / "ci.yml").write_text(settings)
    if where == "venv":
        (tmp_path / "venv/pyvenv.cfg").touch()
    found = [str(each).replace(str(tmp_path), "here") for each in check_safety_test(tmp_path)]
    assert found == expected


def test_the_command_looks_at_code_alone(tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text("import torch\n\nstate = torch.load(path)\n")
    done = audit("--code", tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert {line.split(":")[0] for line in done.stdout.splitlines()} == {
        "SP23 warning",
        "SP27 warning",
    }
