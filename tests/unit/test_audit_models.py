"""The checks on models, on the PyTorch here, and on the test that a project has."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from safepoint import SigningKey
from safepoint.audit import Finding, audit, discover
from safepoint.audit.catalogue import CHECKS
from safepoint.audit.looking import look
from safepoint.models import Inspection, inspect, save_checkpoint
from tests.harness.optional import need
from tests.zoo.build import zipped

need("torch", "PyTorch is not installed: pip install '.[torch]'")


SYSTEM = b"cos\nsystem\n(S'id'\ntR."


def ids(found: list[Finding]) -> str:
    return " ".join(each.id for each in found)


def check_models(folder: Path) -> list[Finding]:
    """Return what is found of models."""
    return [each for each in audit(folder) if each.rule in ("SP24", "SP25")]


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("net.bin", b'{"a": 1}', "SP25.named"),
        ("net.h5", b"\x89HDF\r\n\x1a\n" + bytes(90), "SP25.unknown"),
        ("cut.zip", zipped({"a": b"a"})[:-9], "SP25.damaged"),
    ],
    ids=["JSON", "HDF5", "cut"],
)
def test_content_decides(tmp_path: Path, name: str, data: bytes, found: str) -> None:
    (tmp_path / name).write_bytes(data)
    assert ids(check_models(tmp_path)).startswith(f"{found} SP24.unsealed")


def test_no_file_hides_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six pickles that run code went unnamed beside an array without a header, in a zip."""
    for number in range(6):
        (tmp_path / f"{number}.pt").write_bytes(SYSTEM)
    (tmp_path / "a.npz").write_bytes(zipped({"a.npy": b"\x93NUMPY\1\0"}))
    assert ids(check_models(tmp_path)).count("SP24.runs-code") == 6

    def broken(file: str) -> Inspection:
        if file.endswith("a.npz"):
            raise ValueError
        return inspect(file)

    monkeypatch.setattr(discover, "inspect", broken)
    found = ids(audit(tmp_path))
    assert (found.count("SP24.runs-code"), found.count("SP03.unseen")) == (6, 1)


ALONE = "PYTEST_DISABLE_PLUGIN_AUTOLOAD: 1"
GOOD = """
import pytest
torch = pytest.importorskip("torch", exc_type=ImportError)
def test_it(tmp_path):
    with pytest.raises(RuntimeError):
        load_checkpoint(tmp_path / "x")
"""


@pytest.mark.parametrize(
    ("where", "test", "settings", "expected"),
    [
        ("tests", GOOD, ALONE, ""),
        ("tests", GOOD, "", "SP27.no-test"),
        ("tests", "def test_it(): pass", ALONE, "SP27.no-test"),
        ("venv", GOOD, ALONE, "SP27.no-test"),
        (
            "tests",
            GOOD.replace(", exc_type=ImportError", ""),
            ALONE,
            "SP27.no-test",
        ),
    ],
)
def test_a_project_tests_that_its_loads_are_safe(
    tmp_path: Path, where: str, test: str, settings: str, expected: str
) -> None:
    (tmp_path / where).mkdir()
    (tmp_path / where / "test_load.py").write_text(test)
    (tmp_path / "ci.yml").write_text(settings)
    (tmp_path / "app.py").write_text("load_checkpoint(p)")
    if where == "venv":
        (tmp_path / "venv/pyvenv.cfg").touch()
    assert ids(audit(tmp_path, rule="SP27")) == expected


def test_the_tests_of_a_project_are_judged_once_and_together(tmp_path: Path) -> None:
    """With paths = ["src", "models"] and the test in tests/utils, it warned for ever."""
    for folder in ("src", "models", "tests/utils"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("src", "models"):
        (tmp_path / folder / "app.py").write_text("load_checkpoint(p)")
    paths = [str(tmp_path / "src"), str(tmp_path / "models")]
    (tmp_path / "ci.yml").write_text(ALONE)

    def said() -> str:
        return ids([each for each in look(paths).findings if each.rule == "SP27"])

    assert said() == "SP27.no-test"
    (tmp_path / "tests/utils/test_load.py").write_text(GOOD)
    assert said() == "SP27.no-test"  # nothing says that this folder is a project
    (tmp_path / "pyproject.toml").touch()
    assert said() == ""
    (tmp_path / "pyproject.toml").unlink()
    paths.append(str(tmp_path))
    assert said() == ""


def test_what_is_sealed_is_not_called_verified(tmp_path: Path) -> None:
    """A safetensors file that was changed behind its seal was green."""
    import torch

    path = tmp_path / "net.safetensors"
    save_checkpoint(path, {"weight": torch.ones(2)}, key=SigningKey.generate())
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    (found,) = check_models(tmp_path)
    assert found.id == "SP24.not-verified"
    assert found.do == f"Verify it: safepoint verify-model {path} --key KEY"


def test_an_audit_says_to_do_what_a_scan_says_and_its_examples_are_real(tmp_path: Path) -> None:
    import torch

    torch.save({"weight": Mkdir()}, tmp_path / "bad.pt")
    whole = zipped(
        {"yolo/data.pkl": b"cultralytics.nn.modules.conv\nConv\n.", "yolo/version": b"3"}
    )
    (tmp_path / "yolo.pt").write_bytes(whole)
    (tmp_path / "cut.pt").write_bytes((tmp_path / "bad.pt").read_bytes()[:-9])
    (tmp_path / "net.onnx").write_bytes(b"\x08\x08\x12\x07pytorch\x1a" + bytes(9))
    (tmp_path / "a.pkl").write_bytes(pickle.dumps([1]))
    torch.save({"weight": torch.ones(1)}, tmp_path / "good.pt")
    (tmp_path / "forest.pkl").write_bytes(b"csklearn.ensemble._forest\nRandomForestClassifier\n.")
    found = {
        Path(each.where).name: each for each in check_models(tmp_path) if "seal" not in each.id
    }
    assert len(found) == 7
    for name, each in found.items():
        assert each.do == inspect(tmp_path / name).do
    assert "load_tensors" not in found["forest.pkl"].do  # it refuses a bare pickle
    for name in ("bad.pt", "yolo.pt", "cut.pt", "net.onnx"):
        each = found[name]
        says = each.what.replace(f"{tmp_path}/", "")
        assert (CHECKS[each.id].says, CHECKS[each.id].do) == (f"For example: {says}", each.do)


class Mkdir:
    def __reduce__(self) -> Any:
        return os.mkdir, ("marker",)
