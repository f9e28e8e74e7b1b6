"""The checks on models, on the PyTorch here, and on the test that a project has."""

from __future__ import annotations

from pathlib import Path

import pytest

from safepoint.audit import Finding, audit, discover
from safepoint.audit.looking import look
from safepoint.models import Inspection, inspect, seal_model
from tests.harness.optional import need
from tests.zoo.build import key, write, zipped

need("torch", "PyTorch is not installed: pip install '.[torch]'")


SYSTEM = b"cos\nsystem\n(S'id'\ntR."


def ids(found: list[Finding]) -> str:
    return " ".join(each.id for each in found)


def test_no_file_hides_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six pickles that run code went unnamed beside an array without a header, in a zip."""
    for number in range(6):
        (tmp_path / f"{number}.pt").write_bytes(SYSTEM)
    (tmp_path / "a.npz").write_bytes(zipped({"a.npy": b"\x93NUMPY\1\0"}))

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
        ("venv", GOOD, ALONE, "SP27.no-test"),
        ("tests", GOOD.replace(", exc_type=ImportError", ""), ALONE, "SP27.no-test"),
    ],
)
def test_a_project_tests_that_its_loads_are_safe(
    tmp_path: Path, where: str, test: str, settings: str, expected: str
) -> None:
    write(tmp_path / where / "test_load.py", test)
    (tmp_path / "ci.yml").write_text(settings)
    (tmp_path / "app.py").write_text("load_checkpoint(p)")
    write(tmp_path / "venv/pyvenv.cfg", "")
    assert ids(audit(tmp_path, rule="SP27")) == expected


def test_a_seal_that_nobody_verified_speaks_for_no_pickle(tmp_path: Path) -> None:
    """G is an instruction, too: with any seal beside it, a pickle as `net.bin` passed the audit."""
    seal_model(write(tmp_path / "net.bin", b"GGUF\3" + bytes(19)), key=key(tmp_path))
    assert ids(audit(tmp_path)) == "SP25.unknown SP24.not-verified"


def test_the_tests_of_a_project_are_judged_once_and_together(tmp_path: Path) -> None:
    """With paths = ["src", "models"] and the test in tests/utils, it warned for ever."""
    paths = [str(tmp_path / folder) for folder in ("src", "models", "tests")]
    for folder in paths:
        Path(folder).mkdir()
        Path(folder, "app.py").write_text("load_checkpoint(p)")
    (tmp_path / "tests/test_load.py").write_text(GOOD)
    (tmp_path / "ci.yml").write_text(ALONE)
    for some, mark, expected in ((paths[:2], "", 1), (paths, "", 1), (paths[:2], ".git", 0)):
        (tmp_path / mark).mkdir(exist_ok=True)
        assert ids([*look(some).findings]).count("SP27.no-test") == expected
