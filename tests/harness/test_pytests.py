"""Two pytests side by side: what either of them says counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.pytests import main

PASSES, FAILS = "def test_it():\n    pass\n", "def test_it():\n    assert False\n"
DIES = "import os\n\n\ndef test_it():\n    os.kill(os.getpid(), 9)\n"


@pytest.mark.parametrize(
    ("parts", "rest", "fails"),
    [
        (PASSES, PASSES, False),
        (FAILS, PASSES, True),
        (PASSES, FAILS, True),
        (DIES, PASSES, True),
        (PASSES, DIES, True),
    ],
)
def test_both_have_to_pass(
    tmp_path: Path, parts: str, rest: str, fails: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("unit/test_part.py", parts), ("test_rest.py", rest)):
        file = tmp_path / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert bool(main([], tmp_path)) is fails
    said = capfd.readouterr().out
    assert said.index("test_rest.py") < said.index("== and tests/unit") < said.index("test_part.py")


def test_arguments_are_for_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_a.py").write_text(PASSES)
    (tmp_path / "test_b.py").write_text(FAILS)
    assert main(["test_a.py"], tmp_path) == 0
    assert main(["-k", "nothing"], tmp_path) == 5
    assert "== and" not in capfd.readouterr().out
