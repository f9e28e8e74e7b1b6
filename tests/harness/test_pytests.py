"""Several pytests side by side: each test runs once, and what any of them says counts."""

from __future__ import annotations

import os
import string
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.harness.pytests import PARTS, ROOT, has_room, main

PASSES, FAILS = "def test_it():\n    pass\n", "def test_it():\n    assert False\n"
DIES = "import os\n\n\ndef test_it():\n    os.kill(os.getpid(), 9)\n"
SAYS = """
    import tempfile
    from pathlib import Path

    def test_it():
        with Path("ran").open("a") as file:
            print(Path(__file__).stem, tempfile.gettempdir(), file=file)
"""
ONE_OF_EACH = (
    "tests/browser/test_e.py",
    "tests/attacks/test_b.py",
    "tests/unit/test_p.py",
    "tests/test_c.py",
    "tests/unit/test_a.py",
    "tests/unit/test_s.py",
    "docs/test_d.py",
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """To import all plugins that are installed takes longer than these tests do."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.mark.parametrize("bad", [None, ONE_OF_EACH[0], ONE_OF_EACH[-1]], ids=str)
def test_all_have_to_pass(
    tmp_path: Path, bad: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, {name: FAILS if name == bad else PASSES for name in ONE_OF_EACH})
    assert main([], tmp_path) == int(bad is not None)
    said = capfd.readouterr().out
    for part in PARTS:
        assert f"== pytest {' '.join(part)}\n" in said
    assert said.count("1 passed") == len(PARTS) - int(bad is not None)


def test_one_that_dies_has_not_passed(tmp_path: Path) -> None:
    """Also if it is the only one at a time, and others come after it."""
    write(tmp_path, {name: DIES if name == "tests/test_c.py" else PASSES for name in ONE_OF_EACH})
    assert main([], tmp_path, at_once=1) == 9


def test_each_file_runs_once_and_its_temporary_files_are_gone(tmp_path: Path) -> None:
    """Whatever its name begins with, and in whichever folder it is."""
    names = [f"tests/unit/test_{letter}x.py" for letter in string.ascii_lowercase]
    names += ["tests/attacks/test_b.py", "tests/docs/test_c.py", "tests/test_d.py"]
    names += ["tests/browser/test_h.py"]
    names += ["docs/test_e.py", "src/package/test_f.py", "test_g.py"]
    write(tmp_path, {name: textwrap.dedent(SAYS) for name in names})
    assert main([], tmp_path) == 0
    ran, places = zip(*map(str.split, (tmp_path / "ran").read_text().splitlines()), strict=True)
    assert sorted(ran) == sorted(Path(name).stem for name in names)
    (place,) = set(places)
    assert not Path(place).exists()


def test_every_test_of_ours_begins_with_a_letter_that_is_in_a_part() -> None:
    """Another one would run several times."""
    for file in (ROOT / "tests" / "unit").glob("test_*.py"):
        assert file.name[len("test_")] in string.ascii_lowercase, file.name


def test_arguments_are_for_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_a.py").write_text(PASSES)
    (tmp_path / "test_b.py").write_text(FAILS)
    assert main(["test_a.py"], tmp_path) == 0
    assert main(["-k", "nothing"], tmp_path) == 5
    assert "== pytest" not in capfd.readouterr().out


def test_a_place_has_room_or_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_room(tmp_path, room=1)
    assert not has_room(tmp_path, room=1 << 60)
    assert not has_room(tmp_path / "missing", room=1)
    found = os.statvfs(tmp_path)
    mounted = SimpleNamespace(
        f_bavail=found.f_bavail, f_frsize=found.f_frsize, f_flag=found.f_flag | os.ST_NOEXEC
    )
    monkeypatch.setattr(os, "statvfs", lambda _: mounted)
    assert not has_room(tmp_path, room=1), "where no program can be run"
