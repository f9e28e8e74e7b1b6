"""The checks on models, on the PyTorch here, and on the test that a project has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from safepoint import SigningKey, StorageUnavailable
from safepoint.attacks.models.strikes import archive_of
from safepoint.attacks.outcome import MARKER
from safepoint.attacks.payload import marker_pickle
from safepoint.audit import check_models, check_safety_test, check_torch
from safepoint.errors import MissingPackage
from safepoint.models import save_checkpoint, seal_model
from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install 'safepoint[torch]'")

import torch

Lines = Callable[[Path], list[str]]
CONVERT = "Convert it once: safepoint convert FILE NEW --key KEY"
DISTRUST = "Do not load it, unless you made it: then convert it with --trusted."
SEAL = "Seal it where it is made: safepoint seal-model FILE --key KEY"


def lines(folder: Path) -> list[str]:
    return [str(each).replace(f"{folder}/", "") for each in check_models(folder)]


def test_sealed_safetensors_are_as_they_should_be(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "net.safetensors", {"w": torch.ones(2)}, key=SigningKey.generate())
    assert lines(tmp_path) == []


def test_a_model_without_a_seal_is_a_note(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "net.safetensors", {"w": torch.ones(2)}, key=SigningKey.generate())
    (tmp_path / "net.safetensors.seal").unlink()
    assert lines(tmp_path) == [f"SP24 note: net.safetensors has no seal. {SEAL}"]


def test_an_honest_pickle_is_a_warning(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "net.pt")
    seal_model(tmp_path / "net.pt", key=SigningKey.generate())
    assert lines(tmp_path) == [
        (
            "SP25 warning: net.pt is a PyTorch archive, and holds nothing but tensors and plain"
            f" values. {CONVERT}"
        )
    ]


def test_a_payload_is_an_error_and_does_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "net.pt").write_bytes(archive_of(marker_pickle(tmp_path / MARKER)))
    first, seal = lines(folder)
    assert first == f"SP24 error: net.pt wants os.mkdir, which is not data. {DISTRUST}"
    assert seal == f"SP24 note: net.pt has no seal. {SEAL}"
    assert not (tmp_path / MARKER).exists()


def test_a_name_that_lies_is_an_error(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "net.safetensors")
    assert lines(tmp_path)[0] == (
        f"SP25 error: net.safetensors is a PyTorch archive, whatever its name says. {DISTRUST}"
    )


def test_something_else_of_that_name_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "net.bin").write_text('{"a": 1}')
    assert lines(tmp_path)[0] == (
        "SP25 warning: net.bin is JSON, and has the name of a model. Find out what it is before"
        " you load it."
    )


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("hello")
    assert lines(tmp_path) == []


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="is not a folder"):
        check_models(tmp_path / "none")


def test_the_torch_of_the_tests_keeps_its_promise() -> None:
    assert check_torch() == []


def test_an_old_torch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    (found,) = check_torch()
    assert str(found).startswith("SP23 error: PyTorch 2.5.1 does not keep the promise")
    assert found.do == "Upgrade: pip install 'torch>=2.10'"


def test_no_torch_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingPackage("There is none.", "Install it.")

    monkeypatch.setattr("safepoint.audit.models.package", missing)
    assert check_torch() == []


GOOD = """
import pytest
torch = pytest.importorskip("torch", exc_type=ImportError)
def test_it(tmp_path):
    with pytest.raises(RuntimeError):
        load_checkpoint(tmp_path / "x")
"""


def project(folder: Path, test: str, settings: str = "") -> list[str]:
    (folder / "tests").mkdir()
    (folder / "tests" / "test_load.py").write_text(test)
    (folder / "ci.yml").write_text(settings)
    return [str(each).replace(f"{folder}", "here") for each in check_safety_test(folder)]


def test_a_project_with_a_safety_test_that_is_run_alone_is_fine(tmp_path: Path) -> None:
    assert project(tmp_path, GOOD, "PYTEST_DISABLE_PLUGIN_AUTOLOAD: 1") == []


def test_a_project_without_a_safety_test_is_told_where_to_get_one(tmp_path: Path) -> None:
    assert project(tmp_path, "def test_it(): pass") == [
        (
            "SP27 warning: here has no test that expects an unsafe load to be refused. Copy"
            " tests/utils/test_checkpointing_safe_load.py from the examples of this guide."
        )
    ]


def test_stray_plugins_and_a_broken_torch_are_told(tmp_path: Path) -> None:
    assert project(tmp_path, GOOD.replace(", exc_type=ImportError", "")) == [
        (
            "SP27 warning: here/tests/test_load.py fails instead of skipping where PyTorch is"
            ' installed and broken. Write pytest.importorskip("torch", exc_type=ImportError).'
        ),
        (
            "SP27 warning: Nothing in here keeps stray pytest plugins out of the safety test. Run"
            " it with PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 in CI."
        ),
    ]


def test_the_tests_of_installed_packages_do_not_count(tmp_path: Path) -> None:
    installed = tmp_path / "venv" / "lib" / "site-packages" / "other"
    installed.mkdir(parents=True)
    (installed / "test_load.py").write_text(GOOD)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    (found,) = check_safety_test(tmp_path)
    assert "has no test" in found.what


def audit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "safepoint", "audit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_looks_at_models_alone(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "net.pt")
    done = audit("--models", tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [
        "SP25 warning",
        "SP24 note",
    ]


def test_the_command_looks_at_code_alone(tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text("import torch\n\nstate = torch.load(path)\n")
    done = audit("--code", tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert {line.split(":")[0] for line in done.stdout.splitlines()} == {
        "SP23 warning",
        "SP27 warning",
    }


def test_the_command_says_what_it_looked_at(tmp_path: Path) -> None:
    done = audit("--models", tmp_path)
    assert (done.returncode, done.stdout) == (0, f"No findings: {tmp_path}\n")


@pytest.mark.parametrize("options", [(), ("--models", "x", "--key", "k", "--store", "s")])
def test_the_command_wants_something_to_look_at(options: tuple[str, ...]) -> None:
    done = audit(*options)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
