"""The tests of snippets/ themselves: each planted defect fails, and its good twin passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.blocks import ROOT
from tests.harness.testing import make_project, run_tests

GOOD = {
    "good": 'import json\n\n\ndef f(x):\n    return json.dumps([x])\n\n\nprint(f("a"))\n#> ["a"]\n',
    "long": f'try:\n    {{}}["x" * 90]\nexcept KeyError as e:\n    print(e)\n    #> {"x" * 90!r}\n',
    "unsafe": "# UNSAFE: badly formatted, and fine\nprint( 1 )\n#> 1\n",
}
BAD = {
    "output": "print(2)\n#> 1\n",
    "unformatted": "x = [1,2]\n",
    "unused": "import json\n",
    "raises": 'raise KeyError("planted")\n',
    "stderr": 'import sys\n\nsys.stderr.write("oops")\n',
    "wide": f"# {'x' * 80}\n",
    "unsafe_output": "# UNSAFE: x\nprint(2)\n#> 1\n",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    """One run over good and bad snippets."""
    return run_tests(project(tmp_path_factory.mktemp("snippets")), "-p", "pytest_examples", "-rA")


def project(root: Path) -> Path:
    test = (ROOT / "tests" / "docs" / "test_snippets.py").read_text(encoding="utf-8")
    files = {f"snippets/{name}.py": text for name, text in {**GOOD, **BAD}.items()}
    return make_project(root, {**files, "test_snippets.py": test})


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("runs_by_itself", "output"),
        ("looks_as_it_should", "unformatted"),
        ("looks_as_it_should", "unused"),
        ("runs_by_itself", "raises"),
        ("runs_by_itself", "stderr"),
        ("is_narrow", "wide"),
        ("runs_by_itself", "unsafe_output"),
    ],
)
def test_a_planted_defect_fails(test: str, name: str, run: tuple[int, str]) -> None:
    code, output = run
    assert code == 1
    assert f"FAILED test_snippets.py::test_a_snippet_{test}[{name}.py]" in output


@pytest.mark.parametrize("name", GOOD)
def test_a_good_snippet_passes(name: str, run: tuple[int, str]) -> None:
    """Also with a printed line that is wider than code may be."""
    assert f"FAILED test_snippets.py::test_a_snippet_runs_by_itself[{name}.py]" not in run[1]
    assert f"PASSED test_snippets.py::test_a_snippet_runs_by_itself[{name}.py]" in run[1]
    looks = f"test_snippets.py::test_a_snippet_looks_as_it_should[{name}.py]"
    assert (f"PASSED {looks}" in run[1]) == (name != "unsafe")


def test_update_examples_rewrites_format_and_output(tmp_path: Path) -> None:
    """The file on disk, in place."""
    root = project(tmp_path)
    (root / "snippets" / "output.py").write_text("x = [1,2]\nprint(x)\n#> [3]\n")
    chosen = ["--update-examples", "-k", "looks and (output.py or raises.py)"]
    _, said = run_tests(root, "-p", "pytest_examples", *chosen)
    assert "INTERNALERROR" not in said, "an example that raises does not end the run"
    assert (root / "snippets" / "output.py").read_text() == "x = [1, 2]\nprint(x)\n#> [1, 2]\n"
