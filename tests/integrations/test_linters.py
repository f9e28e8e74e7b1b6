"""What Bandit, Ruff and `safepoint lint` find and miss, run for real on the pinned releases.

All cases are written into one folder, and each tool runs once, with the configuration that the
page offers. The table on the page is held to this run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.integrations.linter_cases import SAFE, UNSAFE, Case

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "snippets" / "lint.toml"
SCRIPT = ROOT / "snippets" / "check_loads.sh"
PAGE = ROOT / "docs" / "security" / "linting.md"
TOOLS = ("bandit", "ruff", "safepoint")
BIN = Path(sys.executable).parent

Found = dict[str, dict[str, set[str]]]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": f"{BIN}{os.pathsep}{os.defpath}", "LANG": "C.UTF-8"}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The ids that each tool reports for each case."""
    folder = tmp_path_factory.mktemp("cases")
    shutil.copy(CONFIG, folder / "pyproject.toml")
    for name, code in {**{case.name: case.code for case in UNSAFE}, **SAFE}.items():
        # A name of its own: a file called pickle.py would be imported instead of the module.
        (folder / f"case_{name}.py").write_text(code)
    bandit = run(["bandit", "-q", "-f", "json", "-c", "pyproject.toml", "-r", "."], folder)
    ruff = run(["ruff", "check", "--no-cache", "--output-format", "json", "."], folder)
    ours = run(["safepoint", "lint", "--format", "json", "."], folder)
    ids: Found = {tool: defaultdict(set) for tool in TOOLS}
    reported = json.loads(bandit.stdout)
    assert reported["errors"] == []
    for issue in reported["results"]:
        ids["bandit"][_case(issue["filename"])].add(issue["test_id"])
    for issue in json.loads(ruff.stdout):
        if issue["code"].startswith("S"):
            ids["ruff"][_case(issue["filename"])].add(issue["code"])
    mine = json.loads(ours.stdout)
    assert f"({len(UNSAFE) + len(SAFE)} Python files)" in mine["looked_at"][0]
    for issue in mine["findings"]:
        ids["safepoint"][_case(issue["where"])].add(issue["id"].partition(".")[2].upper())
    return ids


def _case(path: str) -> str:
    return Path(path).stem.removeprefix("case_")


def test_the_versions_are_those_that_the_page_names() -> None:
    for tool in ("Bandit", "Ruff"):
        named = re.findall(rf"{tool} (\d[\d.]*\d)", page())
        assert set(named) == {version(tool.lower())}


@pytest.mark.parametrize("case", UNSAFE, ids=lambda case: case.name)
def test_each_tool_finds_and_misses_what_the_table_says(case: Case, found: Found) -> None:
    assert found["bandit"][case.name] == set(case.bandit.split())
    assert found["ruff"][case.name] == set(case.ruff.split())
    assert found["safepoint"][case.name] == set(case.ours.split())


@pytest.mark.parametrize("tool", TOOLS)
def test_safe_lines_are_left_alone(tool: str, found: Found) -> None:
    assert {name: found[tool][name] for name in SAFE if found[tool][name]} == {}


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_the_figures_on_the_page_are_those_of_the_run() -> None:
    missed = [case for case in UNSAFE if not case.bandit and not case.ruff]
    assert all(case.ours for case in UNSAFE)
    text = " ".join(page().split())
    assert f"They miss {len(missed)} of {len(UNSAFE)} ways" in text
    assert f"{len(SAFE)} files of safe lines" in text


def tables() -> list[str]:
    """Return the tables of the page: PyTorch, and the rest."""
    names = [case.name for case in UNSAFE]
    split = names.index("pickle")
    return [table(UNSAFE[:split]), table(UNSAFE[split:])]


def table(cases: Sequence[Case]) -> str:
    lines = ["| the code | Bandit | Ruff | ours |", "|---|---|---|---|"]
    for case in cases:
        cells = [ids.replace(" ", ", ") or "no" for ids in (case.bandit, case.ruff, case.ours)]
        lines.append(f"| {' | '.join([case.shown, *cells])} |")
    return "\n".join(lines) + "\n"


def test_the_tables_on_the_page_are_those_that_ran() -> None:
    for each in tables():
        assert each in page()


def test_the_script_runs_what_the_page_runs() -> None:
    """With the same options, so that what the page shows is what the script does."""
    script = SCRIPT.read_text(encoding="utf-8")
    commands = re.findall(r"^(?:ruff|bandit|safepoint) .* src$", page(), re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        assert command.replace(" src", ' "$@" || failed=1\n') in script
    assert script.endswith("exit $failed\n")
