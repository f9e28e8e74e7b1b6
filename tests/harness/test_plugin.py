"""Several processes side by side: each test runs once, no way to end badly looks like a pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.blocks import ROOT
from tests.harness.evidence import FILE, Read, read
from tests.harness.shared import SHARED
from tests.harness.testing import make_project

SAYS = """
import pytest, sys, tempfile
from pathlib import Path

def test_it():
    assert not sys.dont_write_bytecode
    with Path("ran").open("a") as file:
        print(Path(__file__).stem, tempfile.gettempdir(), file=file)

@pytest.mark.deep
def test_long():
    raise AssertionError("only make deep runs this")

@pytest.mark.xfail
def test_no_skip():
    assert 0
"""
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FIRST = "tests/test_a.py::test_it"
GOOD = {
    "docs/index.md": "# A\n\n'''python\na = 1\n'''\n",
    "tests/unit/test_z.py": SAYS,
    "tests/unit/deeper/test_2.py": SAYS,
    "tests/test_c.py": SAYS,
}
BAD = {
    "tests/test_fails.py": "import pytest\n@pytest.mark.parametrize('a', ['<b>'])\n"
    "def test_it(a): assert not a\ndef test_other(): pass\n",
    "tests/test_fails_late.py": "import pytest\n@pytest.fixture\ndef late():\n    yield\n"
    "    raise ValueError\ndef test_it(late): pass\n",
    "tests/test_broken.py": "import nowhere\n",
    "tests/test_skips.py": "import pytest\ndef test_it(): pytest.skip('no GPU')\n",
    "docs/index.md": "# A\n\n'''python\n1 / 0\n'''\n",
}


def whole(root: Path, *arguments: str, many: int = 1, **environ: str) -> tuple[int, str, Read]:
    """Run all tests of a project; return the exit status, what was printed, and the evidence."""
    [command] = re.findall(r"^PYTESTS = \$\(PY\) (.*\\\n.*)$", MAKEFILE, re.MULTILINE)
    options = re.sub(r"\$\$\(.*\)", str(many), command.replace("\\\n", "")).split()
    quick = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environ}
    done = subprocess.run(
        [sys.executable, *options, "-p", "xdist", f"--junitxml={FILE}", *arguments],
        cwd=root,
        env={k: v for k, v in os.environ.items() if k not in ("CI", SHARED, "TMPDIR")} | quick,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stdout + done.stderr, read(root / FILE)


def test_each_test_runs_once_and_temporary_files_are_gone(tmp_path: Path) -> None:
    """Wherever its file is; what is for `make deep` is counted, an expected failure is no skip."""
    root = make_project(tmp_path, GOOD)
    code, said, found = whole(root, many=2, CI="1", PYTHONDONTWRITEBYTECODE="1")
    assert (code, found.failed, found.partial) == (0, [], []), said
    ran, places = zip(*map(str.split, (tmp_path / "ran").read_text().splitlines()), strict=True)
    assert sorted(ran) == ["test_2", "test_c", "test_z"]
    assert not Path(places[0]).exists()
    assert len(set(places)) == 1
    assert "blocks: 1 rendered, 1 ran, 0 checked only, 0 skipped, 0 missing\n" in said
    assert "left for make deep: 3 " in said
    assert found.run
    assert (found.totals["passed"], found.run.deep) == (7, 3)

    # Of a part alone nothing is claimed.
    code, said, found = whole(root, "docs")
    assert (code, found.failed, found.partial) == (0, [], ["only chosen tests ran"]), said


def test_what_the_site_shows_and_nobody_ran_fails_the_run(tmp_path: Path) -> None:
    page = {"docs/index.md": "# A\n\n'''python\na = 1\n'''\n\nText:\n\n    b = 1\n"}
    code, said, found = whole(make_project(tmp_path, page))
    assert (code, found.failed) == (1, ["the census found a difference"])
    assert "docs/index.md: rendered but never ran, so write it as a fence: b = 1" in said


def test_no_way_to_end_badly_looks_like_a_pass(tmp_path: Path) -> None:
    """A failure, before and after, or a file that cannot be read.

    Nor is a run whole if somebody's settings leave a test out.
    """
    settings = "--deselect=tests/test_fails.py::test_other"
    code, said, found = whole(make_project(tmp_path, BAD), CI="1", PYTEST_ADDOPTS=settings)
    assert code == 1
    assert found.failures == [
        "docs/index.md::3-python",
        "tests/test_broken.py",
        "tests/test_fails.py::test_it[?b?]",
        "tests/test_fails_late.py::test_it",
    ]
    assert found.failed == ["4 of 4 tests failed"]
    assert found.partial == ["1 tests were left out"]
    assert found.totals["skipped"] == 1
    assert all(each.replace("?", "<", 1).replace("?", ">") in said for each in found.failures)


@pytest.mark.parametrize(
    ("test", "ci", "failures"),
    [
        ("pytest.skip('no GPU')", "1", []),
        ("raise KeyboardInterrupt", "", [FIRST]),
        ("os.kill(os.getpid(), 9)", "", [FIRST]),
    ],
)
def test_a_run_that_skips_in_ci_or_whose_process_ends_early_has_failed(
    tmp_path: Path, test: str, ci: str, failures: list[str]
) -> None:
    text = f"import os, pytest\ndef test_it(): {test}\ndef test_next(): pass\n"
    module = "import pytest\npytest.skip('no GPU', allow_module_level=True)\n"
    tests = {"tests/test_a.py": text} | ({"tests/test_b.py": module} if ci else {})
    code, said, found = whole(make_project(tmp_path, tests), CI=ci)
    assert not ci or "skipped: 2 (2 x no GPU)" in said
    assert found.run
    assert 0 != code == found.run.exit
    assert (found.status, found.failures, bool(found.failed)) == (1, failures, True), said
