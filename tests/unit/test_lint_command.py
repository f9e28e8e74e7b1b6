"""`python -m safepoint.lint`: which files it looks at, what it prints, how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safepoint.lint.command import main
from safepoint.lint.source import check_text

LOAD = "import torch\ntorch.load('m.pt')\n"
SAFE = "import torch\ntorch.load('m.pt', weights_only=True)\n"


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run in an empty folder, and return the exit code and both outputs as lines."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, list[str], list[str]]:
        code = main(arguments)
        output, errors = capsys.readouterr()
        return code, output.splitlines(), errors.splitlines()

    return run


def write(path: str, text: str | bytes) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_clean_code_ends_with_0_and_says_how_much_was_looked_at(out: Any) -> None:
    write("src/a.py", SAFE)
    write("src/b/c.py", "")
    assert out("src") == (0, ["No findings in 2 Python files."], [])


def test_a_finding_ends_with_1(out: Any) -> None:
    write("src/a.py", LOAD)
    assert out("src") == (
        1,
        [
            (
                "src/a.py:2:1: SL01 torch.load without weights_only depends on the version and on"
                " an environment variable. Write weights_only=True as a literal, or use"
                " safepoint.models.load_checkpoint."
            ),
            "1 finding in 1 Python file.",
        ],
        [],
    )


def test_a_path_that_is_not_there_ends_with_2(out: Any) -> None:
    write("src/a.py", LOAD)
    code, lines, errors = out("src", "tsets")
    assert (code, lines[-1]) == (2, "1 finding in 1 Python file.")
    assert errors == ["tsets is not there. Name a file or a folder to look at."]


@pytest.mark.parametrize("other", [None, "notes.md", "ci.yml"])
def test_a_folder_without_code_ends_with_2(out: Any, other: str | None) -> None:
    """A scan of nothing is no clean bill, whatever else is there."""
    write("src/a.py", SAFE)
    Path("empty").mkdir()
    if other:
        write(f"empty/{other}", "x")
    code, lines, errors = out("src", "empty")
    assert code == 2
    assert lines[-1].startswith("No findings in 1 Python file")
    assert errors == [
        (
            "There is no Python file in empty, so nothing is known about it."
            " Name the folder that has the code."
        )
    ]


def test_no_path_at_all_is_refused(out: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        out()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "python -m safepoint.lint: name a file or a folder. Try: python -m safepoint.lint --help\n"
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("broken.py", b"def f(:"),
        ("python2.py", b"print 'a'"),
        ("binary.py", b"\x00\x01\x02"),
        ("broken.ipynb", b"{"),
    ],
)
def test_a_file_that_cannot_be_parsed_ends_with_2(out: Any, name: str, content: bytes) -> None:
    write("src/a.py", SAFE)
    write(f"src/{name}", content)
    code, lines, _ = out("src")
    assert code == 2
    assert f"src/{name}:1:" in lines[0]
    assert ": SL90 This was not looked at: it is not " in lines[0]
    assert lines[0].endswith("Mend it, or look at it yourself: nothing is known about its loads.")


def test_a_file_or_folder_that_cannot_be_read_ends_with_2(
    out: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("src/a.py", SAFE)
    write("src/closed.py", LOAD)
    write("src/folder/b.py", LOAD)
    real_open, real_scandir = os.open, os.scandir

    def refuse(real: Any, name: str) -> Any:
        def opened(path: Any, *rest: Any, **options: Any) -> Any:
            if str(path).endswith(name):
                raise PermissionError(13, "Permission denied")
            return real(path, *rest, **options)

        return opened

    monkeypatch.setattr(os, "open", refuse(real_open, "closed.py"))
    monkeypatch.setattr(os, "scandir", refuse(real_scandir, "folder"))
    code, lines, _ = out("src")
    assert code == 2
    assert [line.split(" Mend")[0] for line in lines[:-1]] == [
        "src/closed.py:1:1: SL90 This was not looked at: Permission denied.",
        "src/folder:1:1: SL90 This was not looked at: Permission denied.",
    ]


def test_a_huge_file_ends_with_2(out: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safepoint.lint.report.LARGEST", 10)
    write("a.py", LOAD)
    code, lines, _ = out("a.py")
    assert (code, lines[0].split(" Mend")[0]) == (
        2,
        f"a.py:1:1: SL90 This was not looked at: it has {len(LOAD)} bytes.",
    )


def test_a_fifo_is_not_waited_for(out: Any) -> None:
    write("src/a.py", SAFE)
    os.mkfifo("src/b.py")
    code, lines, _ = out("src")
    assert (code, lines[0].split(" Mend")[0]) == (
        2,
        "src/b.py:1:1: SL90 This was not looked at: it is not a file.",
    )


def test_installed_packages_and_links_are_left_out_and_said(out: Any) -> None:
    write("p/a.py", SAFE)
    write("p/.venv/pyvenv.cfg", "")
    write("p/.venv/x.py", LOAD)
    write("p/conda/conda-meta/history", "")
    write("p/conda/x.py", LOAD)
    write("p/node_modules/x.py", LOAD)
    write("p/.git/x.py", LOAD)
    write("elsewhere/x.py", LOAD)
    Path("p/link").symlink_to("../elsewhere")
    assert out("p") == (
        0,
        ["No findings in 1 Python file. Left out: p/.venv, p/conda, p/link, p/node_modules."],
        [],
    )


def test_many_that_are_left_out_are_counted(out: Any) -> None:
    write("p/a.py", SAFE)
    for n in range(8):
        write(f"p/{n}/pyvenv.cfg", "")
    assert out("p")[1][0].endswith("Left out: p/0, p/1, p/2, p/3, p/4 and 3 more.")


def test_what_is_named_is_looked_at_whatever_it_is(out: Any) -> None:
    write(".venv/pyvenv.cfg", "")
    write(".venv/x.py", LOAD)
    write("tool", f"#!/usr/bin/env python3\n{LOAD}")
    assert out(".venv")[0] == 1
    assert out("tool")[0] == 1
    Path("a.py").symlink_to("tool")
    assert out("a.py")[0] == 1


def test_caches_and_hidden_folders_are_entered(out: Any) -> None:
    """Whoever hides a file there does not hide it from this."""
    write("p/a.py", SAFE)
    write("p/__pycache__/x.py", LOAD)
    write("p/.github/x.py", LOAD)
    assert out("p")[1][-1] == "2 findings in 3 Python files."


def test_scripts_without_a_suffix_are_found_by_their_first_line(out: Any) -> None:
    write("bin/run", f"#!/usr/bin/env python3\n{LOAD}")
    write("bin/other", f"#!/bin/sh\n{LOAD}")
    write("bin/data", LOAD)
    assert out("bin")[1][-1] == "1 finding in 1 Python file."


def test_the_variable_is_found_in_files_that_are_not_python(out: Any) -> None:
    write("p/a.py", SAFE)
    for name in ("Dockerfile", "ci.yml", ".env", "run.sh", "Makefile", "Dockerfile.gpu", "x.toml"):
        write(f"p/{name}", "ENV TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1\n")
    write("p/readme.md", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1\n")
    code, lines, _ = out("p")
    assert code == 1
    assert lines[-1] == "7 findings in 1 Python file and 7 other files."
    assert {line.split(" ")[1] for line in lines[:-1]} == {"SL06"}
    assert lines[0].startswith("p/.env:1:5: SL06 ")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("export TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1", True),
        ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=yes python train.py", True),
        ("  TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD: 'true'", True),
        ('"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",', True),
        ("- name: TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", True),
        ("ENV TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD 1", True),
        ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=$FLAG", True),
        ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=0", False),
        ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD: 'no'", False),
        ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=", False),
        ("unset TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", False),
        ("env -u TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD python x.py", False),
        ('test -z "$TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"', False),
        ('test -z "${TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD:-}"', False),
        ("# never set TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1", False),
        ("x: 1 # not TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1", False),
        ("MY_TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1", False),
        ("TORCH_FORCE_WEIGHTS_ONLY_LOAD=1", False),
    ],
)
def test_what_sets_the_variable_in_a_text(text: str, found: bool) -> None:
    assert bool(check_text(text.encode(), "x")) is found
    assert bool(check_text(f"a\n{text}\n".encode("utf-16"), "x")) is found


def notebook(*cells: str | list[str], kind: str = "code") -> str:
    return json.dumps({"cells": [{"cell_type": kind, "source": cell} for cell in cells]})


def test_notebooks_are_looked_at_as_one_program(out: Any) -> None:
    write(
        "a.ipynb",
        notebook(
            ["%pip install torch\n", "import torch as th"],
            "x = 1\nif x:\n    !ls\ny = th.load('m.pt')",
            "%env TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1",
            "%%bash\nls | wc\nexport TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1",
            "%%time\nth.load(  # safepoint: allow SL01 made by us\n    'm.pt')",
            "x = (10\n  % 3)\nth.load?",
            "x = (y\n%y)\nth.load('m.pt')",
        ),
    )
    write("b.ipynb", notebook("torch.load('m.pt')", kind="markdown"))
    code, lines, _ = out("a.ipynb", "b.ipynb")
    assert code == 1
    assert [line.split(": ")[0] for line in lines[:-1]] == [
        "a.ipynb:cell 2:4:5",
        "a.ipynb:cell 3:1:6",
        "a.ipynb:cell 4:3:8",
        "a.ipynb:cell 7:3:1",
    ]
    assert lines[-1] == "4 findings in 2 Python files."


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[]", "it is not a notebook (no list of cells)"),
        ('{"cells": [1]}', "it is not a notebook (a cell of an unknown form)"),
        ("[" * 100_000, "it is not a notebook (nested too deeply)"),
        (notebook("x = 1", "this is no python"), "it is not Python"),
    ],
)
def test_a_notebook_that_cannot_be_looked_at_ends_with_2(out: Any, content: str, why: str) -> None:
    write("a.ipynb", content)
    code, lines, _ = out("a.ipynb")
    assert (code, len(lines)) == (2, 2)
    assert f"This was not looked at: {why}." in lines[0]


def test_json_has_everything_and_is_one_object(out: Any) -> None:
    write("src/a.py", LOAD)
    code, lines, _ = out("src", "nowhere", "--format", "json")
    report = json.loads("\n".join(lines))
    (finding,) = report.pop("findings")
    assert code == 2
    assert report == {
        "python_files": 1,
        "other_files": 0,
        "left_out": [],
        "failures": ["nowhere is not there. Name a file or a folder to look at."],
    }
    assert finding.pop("what").startswith("torch.load without")
    assert finding.pop("fix").startswith("Write weights_only=True")
    assert finding == {
        "path": "src/a.py",
        "cell": None,
        "line": 2,
        "column": 1,
        "id": "SL01",
        "rule": "SP23",
    }


def test_annotations_for_github(out: Any) -> None:
    write("a:b,c%.py", LOAD)
    code, lines, _ = out("a:b,c%.py", "--format", "github")
    assert code == 1
    assert lines[0].startswith(
        "::error file=a%3Ab%2Cc%25.py,line=2,col=1,title=SL01 (SP23)::torch.load without"
    )
    assert lines[1] == "1 finding in 1 Python file."


@pytest.mark.parametrize("format_", ["text", "json", "github"])
def test_a_name_with_odd_characters_prints_no_line_of_its_own(out: Any, format_: str) -> None:
    name = "a\n::error x\x1b[0m\udcff é.py"
    write(name, LOAD)
    code, lines, _ = out(name, "--format", format_)
    assert code == 1
    assert not any(line.startswith("::error x") for line in lines)
    assert "".join(lines).isascii()
    assert "\x1b" not in "".join(lines)


def test_every_line_is_ascii_whatever_the_code_says(out: Any) -> None:
    write("é.py", "import pickle\nclass É(pickle.Unpickler): pass\n")
    for format_ in ("text", "json", "github"):
        code, lines, _ = out("é.py", "--format", format_)
        assert code == 1
        assert "".join(lines).isascii()


def test_the_list_says_what_is_looked_for(out: Any) -> None:
    code, lines, _ = out("--list")
    assert code == 0
    assert lines[0] == "SL01 (SP23) a load of PyTorch without a literal weights_only=True"
    assert len(lines) == 13


def test_it_ends_quietly_where_nobody_reads(tmp_path: Path) -> None:
    for n in range(300):
        (tmp_path / f"{n}.py").write_text(LOAD)
    command = f"'{sys.executable}' -m safepoint.lint . | head -1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


def test_with_p_no_module_of_the_folder_is_imported(tmp_path: Path) -> None:
    """A file called ast.py in the folder would run under -m, and does not under -P -m."""
    (tmp_path / "ast.py").write_text("raise SystemExit('ran')\n")
    command = [sys.executable, "-P", "-m", "safepoint.lint", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "No findings in 1 Python file.\n")
