"""The tests of snippets/ themselves: each planted defect fails, and its good twin passes."""

from __future__ import annotations

from pathlib import Path

from tests.harness.blocks import ROOT
from tests.harness.testing import make_project, run_tests

GOOD = {
    "good": 'import json\n\n\ndef f(x):\n    return json.dumps([x])\n\n\nprint(f("a"))\n#> ["a"]\n',
    "long": f'try:\n    {{}}["x" * 90]\nexcept KeyError as e:\n    print(e)\n    #> {"x" * 90!r}\n',
    "unsafe": "# UNSAFE: badly formatted, and fine\nprint( 1 )\n#> 1\n",
}
BAD = {
    "output": ("runs_by_itself", "print(2)\n#> 1\n"),
    "raises": ("runs_by_itself", 'raise KeyError("planted")\n'),
    "stderr": ("runs_by_itself", 'import sys\n\nsys.stderr.write("oops")\n'),
    "unsafe_output": ("runs_by_itself", "# UNSAFE: x\nprint(2)\n#> 1\n"),
    "unformatted": ("looks_as_it_should", "x = [1,2]\n"),
    "unused": ("looks_as_it_should", "import json\n"),
    "wide": ("is_narrow", f"# {'x' * 80}\n"),
}


def test_planted_defects_fail_and_what_is_good_passes(tmp_path: Path) -> None:
    """Also with a printed line that is wider than code may be; then the good ones are rewritten."""
    test = (ROOT / "tests" / "docs" / "test_snippets.py").read_text(encoding="utf-8")
    files = GOOD | {name: text for name, (_, text) in BAD.items()}
    snippets = {f"snippets/{name}.py": text for name, text in files.items()}
    root = make_project(tmp_path, {**snippets, "test_snippets.py": test})
    code, said = run_tests(root, "-p", "pytest_examples", "-rA")
    assert code == 1
    for name, (kind, _) in BAD.items():
        assert f"FAILED test_snippets.py::test_a_snippet_{kind}[{name}.py]" in said
    for name in GOOD:
        assert f"PASSED test_snippets.py::test_a_snippet_runs_by_itself[{name}.py]" in said
        looks = f"PASSED test_snippets.py::test_a_snippet_looks_as_it_should[{name}.py]"
        assert (looks in said) == (name != "unsafe")

    (root / "snippets" / "output.py").write_text("x = [1,2]\nprint(x)\n#> [3]\n")
    chosen = ["--update-examples", "-k", "looks and (output.py or raises.py)"]
    _, said = run_tests(root, "-p", "pytest_examples", *chosen)
    assert "INTERNALERROR" not in said, "an example that raises does not end the run"
    assert (root / "snippets" / "output.py").read_text() == "x = [1, 2]\nprint(x)\n#> [1, 2]\n"
