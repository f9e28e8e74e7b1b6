"""Every file in snippets/ runs by itself, prints what it says, and looks as it should.

`pytest tests/docs/test_snippets.py --update-examples` rewrites format and `#>` lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from pytest_examples import CodeExample, EvalExample, run_code

from tests.harness.optional import need
from tests.harness.pages import stated_output, without_places

COLUMNS: Final = 72
"""Few enough for a phone on its side."""


class Snippet(CodeExample):
    """A whole file. Unlike an example in a docstring it keeps two empty lines between functions."""

    def in_py_file(self) -> bool:
        """Say no, which is what makes the difference."""
        return False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test for each file, except that unsafe ones only run in a process of their own."""
    if "file" not in metafunc.fixturenames:
        return
    root = metafunc.config.rootpath
    folder = root / "snippets"
    files = sorted(folder.rglob("*.py"))
    if "eval_example" in metafunc.fixturenames:
        files = [f for f in files if not f.read_text(encoding="utf-8").startswith("# UNSAFE:")]
    pages = "".join(page.read_text(encoding="utf-8") for page in root.glob("docs/**/*.md"))
    names = [file.relative_to(folder).as_posix() for file in files]
    # A page runs it as well, by a command or, where it stands alone, in a folder of its own.
    runs = metafunc.function is test_a_snippet_runs_by_itself
    shown = re.findall(r'\.alone .*\n *--8<-- "(.*)"$|^python (\S*)$', pages, re.MULTILINE)
    known = {name for pair in shown for name in pair}
    marks = [[pytest.mark.deep] if runs and name in known else [] for name in names]
    given = zip(files, names, marks, strict=True)
    metafunc.parametrize("file", [pytest.param(f, id=name, marks=m) for f, name, m in given])


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder that is also home and temp."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in set(os.environ) - set(without_places(os.environ)):
        monkeypatch.delenv(name)
    # pytest-examples makes the example __main__ and leaves it there.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    if sys.version_info < (3, 12):
        # It also builds tracebacks that pytest cannot show there.
        monkeypatch.setattr(run_code, "create_example_traceback", lambda *_: None)


def test_a_snippet_runs_by_itself(file: Path, tmp_path: Path) -> None:
    """In a process and a folder of its own: exit code 0, no errors, and it prints what it says."""
    if file.name == "scan_gate.py":
        need("modelscan", "needs safepoint[test], and a Python before 3.13")
    environ = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "LANG": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, str(file)],
        cwd=tmp_path,
        env={**environ, "PATH": str(Path(sys.executable).parent)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    # A new store says so, once: whoever had one already would know that it is gone.
    said = [line for line in done.stderr.splitlines() if not line.startswith("A new store ")]
    assert (done.returncode, said) == (0, [])
    assert done.stdout.rstrip("\n") == (stated_output(file.read_text(encoding="utf-8")) or "")


@pytest.mark.usefixtures("at_home")
def test_a_snippet_looks_as_it_should(file: Path, eval_example: EvalExample) -> None:
    """Format and lint hold; `--update-examples` rewrites the format and the `#>` lines."""
    example = Snippet.create(file.read_text(encoding="utf-8"), path=file)
    updating = eval_example.update_examples
    # Imports are sorted by `make check`, which knows which package is ours.
    eval_example.set_config(
        line_length=COLUMNS, target_version="py310", upgrade=True, ruff_ignore=["BLE001", "I001"]
    )
    if not updating:
        eval_example.lint(example)
        return
    eval_example.format(example)
    # What is printed may be wider than code: an error is one line, however long.
    eval_example.set_config(line_length=10_000)
    eval_example.run_print_update(example)


def test_a_snippet_is_narrow(file: Path) -> None:
    """Lines that are not printed output stay within the columns."""
    lines = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    wide = [n for n, line in lines if len(line) > COLUMNS and not line.lstrip().startswith("#>")]
    assert wide == []
