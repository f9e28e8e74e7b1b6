"""`safepoint lint`: which loads it finds, which files it looks at, what it says and how it ends."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safepoint.audit.models import check_loads, check_safety_test
from safepoint.command.cli import main
from safepoint.core.errors import Unavailable
from safepoint.models.lint import IDS, check_source
from safepoint.rules import RULES

ROOT = Path(__file__).parents[2]
LINES = Path(__file__).with_name("lint_cases.txt").read_text(encoding="utf-8").splitlines()
CASES = [line.split("\t") for line in LINES if line and not line.startswith("# ")]
LOAD = "import torch\ntorch.load('m.pt')\n"
SAFE = "import torch\ntorch.load('m.pt', weights_only=True)\n"
VARIABLE = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[1][:60])
def test_each_case_is_found_or_left_alone(case: list[str]) -> None:
    found = check_source(case[1].replace("\\n", "\n"), "x.py")
    assert " ".join(f"{each.id}@{each.line}" for each in found) == case[0].removeprefix("-")
    assert len(case) == 2 or found[-1].what == case[2]


@pytest.mark.parametrize(
    ("code", "what", "place"),
    [
        ("def f(:\n", "it is not Python (invalid syntax)", (1, 7)),
        ("x = 1\n\0y = 2\n", "it is no", (1, 1)),
        ("-" * 20_000 + "1\n", "it is no Python that can be followed (", (1, 1)),
        (
            "".join(f"a{n} = a{n + 1}\n" for n in range(200)) + "a0(p)\n",
            "it is no Python that can be followed (too tangled)",
            (1, 1),
        ),
        (
            "".join(f"import m{n} as a\n" for n in range(100)) + "a.load(p)\n",
            "it is no Python that can be followed (too tangled)",
            (1, 1),
        ),
    ],
    ids=["syntax", "null", "minus", "deep", "wide"],
)
def test_what_cannot_be_looked_at_is_a_finding(
    code: str, what: str, place: tuple[int, int]
) -> None:
    (finding,) = check_source(code, "x.py")
    assert (finding.id, finding.line, finding.column) == ("SL90", *place)
    assert finding.what.startswith(f"This was not looked at: {what}")


def test_long_sums_and_ladders_are_looked_at() -> None:
    many = " + ".join(["x"] * 900)
    ladder = "if a:\n    pass\n" + "elif a:\n    pass\n" * 90 + "elif torch.load(p):\n    pass\n"
    found = check_source(f"import torch\ny = torch.load(p) + {many}\n{ladder}")
    assert [each.id for each in found] == ["SL01", "SL01"]


def test_a_finding_says_where_what_and_what_to_write() -> None:
    code = "import torch\n\nif x:\n    é = torch.load(\n        p,\n    )\n"
    (finding,) = check_source(code, "a b.py")
    assert str(finding) == (
        "'a b.py':4:9: SL01 torch.load without a literal weights_only=True may run what the file"
        " says. Write weights_only=True as a literal, or use safepoint.models.load_checkpoint."
    )
    assert (finding.rule, finding.last) == ("SP23", 6)
    assert [each.id for each in check_source("\ufeffimport torch\ntorch.load(p)\n")] == ["SL01"]
    (idle,) = check_source("x = 1  # safepoint: allow SL02 made by us\n", "x.py")
    assert idle.place == "x.py:1:8"
    for each in IDS.values():
        assert each.rule in RULES
        assert re.fullmatch(r"[A-Z].*(\.|REASON)", each.fix)


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


SCRIPT = f"#!/usr/bin/env python3\n{LOAD}"


@pytest.mark.parametrize(
    ("files", "paths", "code", "last"),
    [
        ({"p/a.py": SAFE, "p/b/c.py": ""}, "p", 0, "No findings in 2 Python files."),
        ({"p/a.py": LOAD}, "p", 1, "1 finding in 1 Python file."),
        ({"p/a.py": LOAD}, "p nowhere", 2, "1 finding in 1 Python file."),
        ({"p/a.py": SAFE, "e/x.md": ""}, "p e", 2, "No findings in 1 Python file."),
        ({"p/a.py": SAFE, "e/ci.yml": ""}, "e", 2, "Nothing was looked at."),
        ({"p/ci.yml": "a: b: c"}, "p/ci.yml", 2, "1 finding in 1 Python file."),
        ({"p/node_modules/a.py": SAFE}, "p", 2, "Nothing was looked at. Left out: p/node_modules."),
        ({"p/a.py": SAFE}, "nowhere", 2, "Nothing was looked at."),
        ({"p/a.py": SAFE, "p/b.py": "def f(:"}, "p", 2, "1 finding in 2 Python files."),
        ({"p/a.py": SAFE, "p/b.ipynb": "{"}, "p", 2, "1 finding in 2 Python files."),
        ({"p/__pycache__/a.py": LOAD, "p/.x/b.py": LOAD}, "p", 1, "2 findings in 2 Python files."),
        ({"p/run": SCRIPT, "p/x": "#!/bin/sh", "p/y": LOAD}, "p", 1, "1 finding in 1 Python file."),
        ({"p/.git/a.py": LOAD, "p/a.py": ""}, "p", 0, "No findings in 1 Python file."),
        ({"v/pyvenv.cfg": "", "v/a.py": LOAD}, "v/a.py", 1, "1 finding in 1 Python file."),
        ({"v/pyvenv.cfg": "", "v/a.py": LOAD}, "v", 1, "1 finding in 1 Python file."),
        (
            {"p/a.py": "", **{f"p/{n}/pyvenv.cfg": "" for n in range(7)}},
            "p",
            0,
            ("No findings in 1 Python file. Left out: p/0, p/1, p/2, p/3, p/4 and 2 more."),
        ),
        (
            {
                "p/a.py": SAFE,
                "p/c/conda-meta/history": "",
                "p/node_modules/x.py": LOAD,
            },
            "p",
            0,
            "No findings in 1 Python file. Left out: p/c, p/node_modules.",
        ),
    ],
)
def test_what_is_looked_at_and_how_it_ends(
    out: Out, files: dict[str, str | bytes], paths: str, code: int, last: str
) -> None:
    """A scan of nothing is no clean bill."""
    write(files)
    ended, lines, errors = out(*paths.split())
    assert (ended, lines[-1]) == (code, last)
    is_said = last.startswith("1 finding in") and "nowhere" not in paths
    assert len(errors) == (code == 2 and not is_said)


def test_a_link_to_itself_is_a_finding_and_blinds_nothing(out: Out, tmp_path: Path) -> None:
    write({"p/z.py": LOAD, "elsewhere/x.py": LOAD})
    for name in ("loop", "loop.py", "a/b"):
        Path("p", name).parent.mkdir(exist_ok=True)
        Path("p", name).symlink_to(Path(name).name)
    Path("p/link").symlink_to("../elsewhere")
    code, lines, errors = out("p")
    assert (code, errors) == (2, [])
    assert [line[:14] for line in lines[:-1]] == ["p/loop.py:1:1:", "p/z.py:2:1: SL"]
    assert lines[-1] == "2 findings in 1 Python file. Left out: p/link."
    assert out("x" * 5_000)[0] == 2
    assert out("p/loop")[2] == ["p/loop is not there. Name a file or a folder to look at."]
    rules = {finding.rule for finding in check_loads(tmp_path / "p")}
    assert rules == {"SP23", "SP26"}
    assert [finding.rule for finding in check_safety_test(tmp_path / "p")] == ["SP27"]


def test_what_cannot_be_read_ends_with_2(out: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    write({"p/a.py": SAFE, "p/closed.py": LOAD, "p/folder/b.py": LOAD, "p/huge.py": " " * 60})
    os.mkfifo("p/fifo.py")

    def refuse(real: Any, name: str) -> Any:
        def opened(path: Any, *rest: Any, **options: Any) -> Any:
            if str(path).endswith(name):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *rest, **options)

        return opened

    monkeypatch.setattr(os, "open", refuse(os.open, "closed.py"))
    monkeypatch.setattr(os, "scandir", refuse(os.scandir, "folder"))
    monkeypatch.setattr("safepoint.models.lint._LARGEST", 55)
    code, lines, _ = out("p")
    assert code == 2
    assert [line.split(" Mend")[0] for line in lines[:-1]] == [
        "p/closed.py:1:1: SL90 This was not looked at: Permission denied.",
        "p/fifo.py:1:1: SL90 This was not looked at: it is not a file.",
        "p/huge.py:1:1: SL90 This was not looked at: it has 60 bytes.",
        "p/folder:1:1: SL90 This was not looked at: Permission denied.",
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("export NAME=1", True),
        ("NAME=yes python train.py", True),
        ("%env NAME 1", True),
        ("NAME=$FLAG", True),
        ("NAME=0", False),
        ("NAME=", False),
        ("unset NAME", False),
        ("env -u NAME python x.py", False),
        ('test -z "$NAME"', False),
        ('test -z "${NAME:-}"', False),
        ("# never set NAME=1", False),
        ("ls # not NAME=1", False),
        ("MY_NAME=1", False),
    ],
)
def test_what_sets_the_variable_in_a_line_for_the_shell(text: str, found: bool) -> None:
    code = notebook(f"%%bash\nls\n{text}\n".replace("NAME", VARIABLE))
    assert [each.id for each in check_source(code, "a.ipynb")] == ["SL06"] * found


def notebook(*cells: str | list[str], kind: str = "code") -> str:
    return json.dumps({"cells": [{"cell_type": kind, "source": cell} for cell in cells]})


def test_notebooks_are_looked_at_as_one_program(out: Out) -> None:
    cells = (
        ["%pip install torch\n", "import torch as th"],
        "x = 1\nif x:\n    !ls\ny = th.load('m.pt')",
        f"%env {VARIABLE}=1",
        f"%%bash\nls | wc\nexport {VARIABLE}=1",
        "%%time\nth.load(  # safepoint: allow SL01 made by us\n    'm.pt')",
        "x = (10\n  % 3)\nth.load?",
        "x = (y\n%y)\nth.load('m.pt')",
        "this is no python",
    )
    write({"a.ipynb": notebook(*cells), "b.ipynb": notebook(LOAD, kind="markdown")})
    code, lines, _ = out("a.ipynb", "b.ipynb")
    assert [line.split(": ")[0] for line in lines[:-1]] == [
        "a.ipynb:cell 2:4:5",
        "a.ipynb:cell 3:1:6",
        "a.ipynb:cell 4:3:8",
        "a.ipynb:cell 7:3:1",
        "a.ipynb:cell 8:1:1",
    ]
    assert (code, lines[-1]) == (2, "5 findings in 2 Python files.")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[]", "no list of cells"),
        ('{"cells": [1]}', "a cell of an unknown form"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_notebook_that_cannot_be_looked_at_is_a_finding(content: str, why: str) -> None:
    (finding,) = check_source(content, "a.ipynb")
    assert finding.what == f"This was not looked at: it is not a notebook ({why})."


def test_formats_are_complete_and_a_name_prints_no_line_of_its_own(out: Out) -> None:
    name = "a:b,c%\n::error x\x1b[0m\udcff\u202e.py"
    Path(os.fsencode(name).decode("utf-8", "surrogateescape")).write_text(LOAD)
    code, lines, _ = out(name, "nowhere", "--format", "json")
    report = json.loads("\n".join(lines))
    (finding,) = report.pop("findings")
    assert (code, report) == (
        2,
        {
            "python_files": 1,
            "left_out": [],
            "failures": ["nowhere is not there. Name a file or a folder to look at."],
        },
    )
    assert finding.pop("what").startswith("torch.load without")
    assert finding.pop("fix").startswith("Write weights_only=True")
    place = {"path": name, "cell": None, "line": 2, "column": 1}
    assert finding == {**place, "id": "SL01", "rule": "SP23"}
    for format_ in ("text", "github"):
        code, lines, _ = out(name, "--format", format_)
        assert (code, len(lines)) == (1, 2)
        assert "".join(lines).isascii()
        assert "".join(lines).isprintable()
    start = (
        r"::error file=a%3Ab%2Cc%25%0A%3A%3Aerror x\x1b[0m\udcff\u202e.py,line=2,col=1,title=SL01"
    )
    assert lines[0].startswith(f"{start} (SP23)::torch.load without")


def test_the_list_says_what_is_looked_for(out: Out) -> None:
    code, lines, _ = out("--list")
    assert (code, len(lines)) == (0, 13)
    assert lines[0] == "SL01 (SP23) a load of PyTorch without a literal weights_only=True"


# --- as a check of the audit, and on our own code -----------------------------------------------


def test_each_finding_is_under_its_rule_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import os, pickle, torch\n"
        "torch.load(p)\n"
        "torch.load(p, weights_only=False)\n"
        "pickle.load(f)\n"
        "torch.load(p, pickle_module=pickle)\n"
        f"os.environ['{VARIABLE}'] = '1'\n"
        "torch.load = f\n"
    )
    (tmp_path / "b.py").write_text("def f(:")
    start = f"{tmp_path}/"
    found = [
        f"{each.rule} {each.severity} {each.what.removeprefix(start).split(':')[1]}"
        for each in check_loads(tmp_path)
    ]
    assert found == [
        "SP23 error 5",
        "SP23 error 6",
        "SP24 error 7",
        "SP23 warning 2",
        "SP24 warning 3",
        "SP03 warning 4",
        "SP26 warning 1",
    ]


def test_nothing_to_look_at_is_one_clear_error(tmp_path: Path) -> None:
    for path, why in ((tmp_path, "There is no Python file in"), (tmp_path / "x", "x is not there")):
        with pytest.raises(Unavailable, match=why):
            check_loads(path)
