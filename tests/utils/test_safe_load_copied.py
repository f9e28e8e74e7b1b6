"""The regression test of safe loading, as somebody who copies it has it: alone, in another project.

It passes there, is skipped without PyTorch, and fails for each loader that is unsafe in one way.
"""

from __future__ import annotations

from tests.harness.optional import need

need("torch", "PyTorch is not installed: pip install '.[torch]'")

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
NAME: Final = "test_checkpointing_safe_load.py"
TEST: Final = (ROOT / "snippets" / NAME).read_text(encoding="utf-8")
LOADER: Final = (ROOT / "snippets" / "load_checkpoint.py").read_text(encoding="utf-8")
OURS: Final = "from safepoint.models import load_checkpoint"
CASES: Final = 14

RESTRICTED = """                return torch.load(
                    file, weights_only=True, map_location="cpu"
                )
            except Exception:  # whatever the file makes it raise
"""
MUTANTS: Final = {
    "ignores_the_flag": (RESTRICTED, RESTRICTED.replace("True", "False"), "runs_no_code"),
    "is_unsafe_by_default": ("*, safe=True", "*, safe=False", "runs_no_code[by default]"),
    "tries_the_flag_out": (
        "def has_flag():\n",
        "def has_flag():\n    return True\n",
        "where_there_is_no_flag",
    ),
    "believes_any_release": ("< (2, 10, True)", "< (0, 0, True)", "does_not_hold[2.5.1+cpu"),
    "believes_a_wrapper": (
        "not code or code.co_filename != torch",
        "not torch",
        "where_a_wrapper_drops_the_flag",
    ),
    "ignores_the_variable": (
        "os.environ.get(VARIABLE",
        "os.environ.get('OTHER'",
        "where_a_variable_weakens_the_flag",
    ),
    "ignores_the_list": (
        "torch.serialization.get_safe_globals()",
        "()",
        "where_a_list_weakens_the_flag",
    ),
    "loads_unrestricted_in_silence": (
        "warnings.warn(said, stacklevel=2)",
        "pass",
        "returns_the_same_and_says_so[this]",
    ),
    "returns_something_else": (
        RESTRICTED,
        (
            "                return dict.fromkeys(['weight', 'bias', 'steps'])\n"
            "            except Exception:\n"
        ),
        "returns_genuine_tensors",
    ),
}


def run_pytest(
    folder: Path, *arguments: str, environ: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run pytest in a folder as the page says, with warnings as errors, and nothing of ours."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={
            "PATH": os.defpath,
            "HOME": str(folder),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            **(environ or {}),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that is empty but for the copied file."""
    file = tmp_path / "tests" / "utils" / NAME
    file.parent.mkdir(parents=True)
    file.write_text(TEST, encoding="utf-8")
    return tmp_path


def test_what_runs_here_is_what_people_copy() -> None:
    """One file under two names, so that neither can drift."""
    assert Path(__file__).with_name(NAME).resolve() == ROOT / "snippets" / NAME


def test_it_passes_after_what_a_shell_and_other_tests_leave_behind(project: Path) -> None:
    """Where there is nothing else, the page itself runs it."""
    (project / "conftest.py").write_text(
        "import torch\ntorch.serialization.add_safe_globals([slice])\n"
    )
    code, output = run_pytest(project, environ={"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"})
    assert (code, output.splitlines()[-1].partition(" in ")[0]) == (0, f"{CASES} passed"), output


def test_it_is_skipped_with_the_reason_where_there_is_no_pytorch(project: Path) -> None:
    """Or a broken one. An exit code of 5 tells a pipeline that nothing ran."""
    (project / "torch.py").write_text("raise ImportError('libtorch_cpu.so: cannot open')\n")
    code, output = run_pytest(project, "-rs", f"tests/utils/{NAME}")
    assert (code, output.splitlines()[-1].partition(" in ")[0]) == (5, "1 skipped"), output
    assert "SKIPPED" in output
    assert "PyTorch is missing or broken" in output


@pytest.fixture(scope="module")
def on_other_loaders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run it on the loader of `snippets/` and on all that are worse; return what it says of each.

    In one process: the import of PyTorch is what takes time.
    """
    folder = tmp_path_factory.mktemp("loaders")
    loaders = {"the_snippet": LOADER}
    for name, (right, wrong, _) in MUTANTS.items():
        assert LOADER.count(right) == 1, name
        loaders[name] = LOADER.replace(right, wrong)
    assert TEST.count(OURS) == 1
    for name, text in loaders.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        test = TEST.replace(OURS, f"from {name} import load_checkpoint")
        (folder / f"test_{name}.py").write_text(test, encoding="utf-8")
    _, output = run_pytest(folder, "-rA", "--tb=no")
    said = dict.fromkeys(loaders, "")
    for outcome, name, test in re.findall(r"^(\w+) test_(\w+)\.py::(.+)", output, re.MULTILINE):
        said[name] += f"{outcome} {test}\n"
    return said


def test_it_passes_on_the_loader_without_this_package(on_other_loaders: dict[str, str]) -> None:
    assert on_other_loaders["the_snippet"].count("PASSED") == CASES
    assert "FAILED" not in on_other_loaders["the_snippet"]


@pytest.mark.parametrize("name", MUTANTS)
def test_it_fails_on_a_loader_that(name: str, on_other_loaders: dict[str, str]) -> None:
    """And it is the test for that which fails."""
    *_, test = MUTANTS[name]
    assert re.search(rf"FAILED .*{re.escape(test)}", on_other_loaders[name])
