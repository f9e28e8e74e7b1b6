"""`safepoint lint`: which loads it finds, which files it looks at, what it says and how it ends."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from safepoint.command.cli import main
from safepoint.models.lint import check_source

LINES = Path(__file__).with_name("lint_cases.txt").read_text(encoding="utf-8").splitlines()
CASES = [line.split("\t") for line in LINES if line and not line.startswith("# ")]
LOAD = "import torch\ntorch.load('m.pt')\n"
TANGLED = "too tangled)"
VARIABLE = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[1][:60])
def test_each_case_is_found_or_left_alone(case: list[str]) -> None:
    found = check_source(case[1].replace("\\n", "\n"), "x.py")
    assert " ".join(f"{each.id}@{each.line}" for each in found) == case[0].removeprefix("-")
    assert len(case) == 2 or found[-1].what == case[2]


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("x = 1\n\0y = 2\n", ""),
        ("-" * 20_000 + "1\n", ""),
        ("".join(f"a{n} = a{n + 1}\n" for n in range(4000)), "RecursionError)"),
        ("".join(f"a{n + 1} = a{n}.x or a{n}.y\n" for n in range(50)), TANGLED),
        ("".join(f"import m{n:099} as a\n" for n in range(300)) + "a.load(p)\n" * 300, TANGLED),
        ("".join(f"from m{n:099} import *\n" for n in range(300)) + "load(p)\n" * 300, TANGLED),
    ],
    ids=["null", "minus", "long", "deep", "wide", "stars"],
)
def test_what_cannot_be_looked_at_is_a_finding(code: str, what: str) -> None:
    (finding,) = check_source(code, "x.py")
    assert (finding.id, finding.line, finding.column) == ("SL90", 1, 1)
    assert f"This was not looked at: it is not Python that can be followed ({what}" in finding.what


def test_a_module_that_collects_many_others_is_looked_at() -> None:
    """As `transformers.models` does, of which each name that it does not bind may come."""
    code = "".join(f"from .m{n} import *\n" for n in range(400)) + "import torch\n"
    assert [each.id for each in check_source(f"{code}globals()\ntorch.load(p)\n")] == ["SL01"]


def test_a_call_costs_the_same_whatever_is_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took the square: of the imports, of what is inside a call, and of what is around it."""
    steps = 0

    def count(node: ast.AST) -> Iterator[ast.AST]:
        nonlocal steps
        steps += 1
        return genuine(node)

    genuine = ast.iter_child_nodes
    monkeypatch.setattr(ast, "iter_child_nodes", count)
    code = "".join(f"import m{n}\nm{n}.f()\n" for n in range(300))
    code += f"m1.f([{'x, ' * 3000}]){'.f()' * 90}\n"
    code += f"@app.get('/')\ndef f(a):\n    {'[' * 90}{'x, ' * 3000}{']' * 90}\n"
    assert check_source(code) == []
    assert steps < 5 * len([*ast.walk(ast.parse(code))])


def test_a_finding_says_where_what_and_what_to_write() -> None:
    code = "import torch\n\nif x:\n    é = torch.load(\n        p,\n    )\n"
    (load,) = check_source(code, "x.py")
    assert (load.line, load.column, load.id) == (4, 9, "SL01")
    assert load.what.startswith("torch.load without a literal weights_only=True may run what")
    assert [each.id for each in check_source("\ufeffimport torch\ntorch.load(p)\n")] == ["SL01"]
    (idle,) = check_source("x = 1  # safepoint: allow SL02 made by us\n", "x.py")
    assert (idle.line, idle.column) == (1, 8)


# --- files and folders --------------------------------------------------------------------------

Out = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Out:
    """Run in an empty folder, and return the exit code and both outputs as lines."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, list[str], list[str]]:
        code = main(["lint", *arguments])
        output, errors = capsys.readouterr()
        return code, output.splitlines(), errors.splitlines()

    return run


def write(files: dict[str, str | bytes]) -> None:
    for path, text in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(text if isinstance(text, bytes) else text.encode())


SAVER = "from langgraph.checkpoint.memory import InMemorySaver\nsaver = InMemorySaver()\n"
SCRIPT = f"#!/usr/bin/env python3\n{LOAD}"


@pytest.mark.parametrize(
    ("files", "paths", "code", "found"),
    [
        ({"p/a.py": "", "p/b.pyx": "", "p/c.pyc": ""}, "p", 0, "SP25.skipped"),
        ({"p/a.py": LOAD}, "p nowhere", 2, "SP23.sl01"),
        ({"p/a.py": "", "e/x.md": ""}, "p e", 2, "SP26.no-code"),
        ({"p/node_modules/a.py": LOAD}, "p", 2, "SP26.no-code SP25.not-entered"),
        ({"p/__pycache__/a.py": LOAD, "p/.x/b.py": LOAD}, "p", 1, "SP23.sl01 SP23.sl01"),
        ({"p/run": SCRIPT, "p/x": "#!/bin/sh", "p/y": LOAD}, "p", 1, "SP23.sl01"),
        ({"p/.git/a.py": LOAD, "p/a.py": ""}, "p", 0, "SP25.skipped"),
        ({"p/a.py": "", "p/v/pyvenv.cfg": "", "p/v/a.py": LOAD}, "p", 2, "SP25.not-entered"),
        ({"p/app.py": SAVER, "p/test_app.py": SAVER}, "p", 1, "SP12.sl12"),
        ({"p/a.py": "", "p/__pycache__/a.pyc": "", "p/m.pkl": b"cos\nsystem\n("}, "p", 0, ""),
    ],
)
def test_what_is_looked_at_and_how_it_ends(
    out: Out, files: dict[str, str | bytes], paths: str, code: int, found: str
) -> None:
    """A scan of nothing is no clean bill, and nothing but code is looked at."""
    write(files)
    ended, lines, errors = out(*paths.split())
    ids = [line.split()[0] for line in lines if line.startswith("SP")]
    assert (ended, ids) == (code, found.split())
    assert len(errors) == (paths == "nowhere")


def test_what_cannot_be_read_is_said_and_blinds_nothing(
    out: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    write({"p/z.py": LOAD, "p/huge.py": " " * 60, "elsewhere/x.py": LOAD})
    os.mkfifo("p/fifo.py")
    Path("p/loop.py").symlink_to("loop.py")
    Path("p/link").symlink_to("../elsewhere")
    monkeypatch.setattr("safepoint.audit.models._LARGEST", 55)
    code, lines, errors = out("p")
    assert (code, errors) == (1, [])
    found = [line.split("/p/")[1].partition(" ")[0] for line in lines[:-1]]
    assert found == ["fifo.py", "link", "loop.py", "huge.py", "z.py:2:1"]
    assert out("x" * 5_000)[0] == 2


def notebook(*cells: str | list[str], kind: str = "code") -> str:
    return json.dumps({"cells": [{"cell_type": kind, "source": cell} for cell in cells]})


def test_notebooks_are_looked_at_as_one_program(out: Out) -> None:
    cells = (
        ["%pip install torch\n", "import torch as th"],
        "x = 1\nif x:\n    !ls\ny = th.load('m.pt')",
        f"%env {VARIABLE}=1",
        "%%bash\nls | wc",
        "%%time\nth.load(  # safepoint: allow SL01 made by us\n    'm.pt')",
        "x = (10\n  % 3)\nth.load?",
        "x = (y\n% y)\nth.load('m.pt')  # why?",
        "this is no python",
    )
    write({"a.ipynb": notebook(*cells), "b.ipynb": notebook(LOAD, kind="markdown")})
    write({"c.ipynb": notebook(LOAD).replace('"code"', '["code"]')})
    code, lines, _ = out("a.ipynb", "b.ipynb", "c.ipynb")
    assert (code, sorted(line.split("/")[-1].split(" has ")[0] for line in lines[:-1])) == (
        1,
        ["a.ipynb:cell 2:4:5", "a.ipynb:cell 7:3:1", "a.ipynb:cell 8:1:1", "c.ipynb:cell 1:2:1"],
    )


# --- as a check of the audit, and on our own code -----------------------------------------------
