"""Several pytests side by side: each test runs once, and no way to end badly looks like a pass."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness.blocks import ROOT
from tests.harness.evidence import Read, read
from tests.harness.pytests import SHARE, parts
from tests.harness.shared import SHARED, shared
from tests.harness.testing import make_project

WHOLE = (
    "from pathlib import Path; from tests.harness import pytests; pytests.SHARE = 400;"
    " raise SystemExit(pytests.main({}, Path.cwd()))"
)
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
"""
GOOD = {
    "docs/index.md": "# A\n\n'''python\na = 1\n'''\n",
    "tests/unit/test_z.py": SAYS,
    "tests/unit/deeper/test_2.py": SAYS,
    "tests/test_c.py": SAYS,
}
BAD = {
    "tests/fails/test_a.py": "import pytest\n@pytest.mark.parametrize('a', ['<b>'])\n"
    "def test_it(a): assert not a\ndef test_other(): pass\n",
    "tests/fails/test_b.py": "import pytest\n@pytest.fixture\ndef late():\n    yield\n"
    "    raise ValueError\ndef test_it(late): pass\n",
    "tests/broken/test_a.py": "import nowhere\n",
    "tests/leaves/test_a.py": "import os\ndef test_it(): os._exit(0)\n",
    "tests/killed/test_a.py": "import os\ndef test_it(): os.kill(os.getpid(), 9)\n",
    "tests/stopped/test_a.py": "def test_it(): raise KeyboardInterrupt\ndef test_next(): pass\n",
    "tests/skips/test_a.py": "import pytest\ndef test_it(): pytest.skip('no GPU')\n",
    "docs/index.md": "# A\n\n'''python\n1 / 0\n'''\n",
}


def whole(root: Path, arguments: Sequence[str] = (), **environ: str) -> tuple[int, str, Read]:
    """Run all tests of a project; return the exit status, what was printed, and the evidence."""
    quick = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environ}
    done = subprocess.run(
        [sys.executable, "-c", WHOLE.format(list(arguments))],
        cwd=root,
        env={k: v for k, v in os.environ.items() if k != "CI"} | quick,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stdout, read(root / "build/evidence.jsonl")


def test_each_test_runs_once_and_temporary_files_are_gone(tmp_path: Path) -> None:
    """Whatever a file is called and wherever it is; those for `make deep` are counted."""
    code, said, found = whole(make_project(tmp_path, GOOD), PYTHONDONTWRITEBYTECODE="1")
    assert (code, found.failed, found.partial) == (0, [], []), said
    ran, places = zip(*map(str.split, (tmp_path / "ran").read_text().splitlines()), strict=True)
    assert sorted(ran) == ["test_2", "test_c", "test_z"]
    assert not Path(places[0]).exists()
    assert len(set(places)) == 1
    assert said.endswith("== 4 passed, 0 failed, 0 skipped, 3 left for make deep\n")
    assert set(found.plan or ()) == {"pages", "unit-1", "unit-2", "others"}

    # Of a part alone nothing is claimed. It adds to what is there, and of a page the last counts.
    (tmp_path / "docs/index.md").write_text("```python\n1 / 0\n```\n")
    code, said, found = whole(tmp_path, ["docs"])
    assert (code, "== pages" in said) == (1, False)
    assert [entry.outcome for entry in found.entries] == ["failed"]
    assert found.failed == ["1 of 5 tests failed"]

    # A run that is killed as a whole has no end, and one of chosen tests has no plan.
    file = tmp_path / "build/evidence.jsonl"
    text = file.read_text().partition('{"commit": null, "part": "docs"')[0]
    lines = text.splitlines(keepends=True)
    for changed, partial in {
        "".join(lines[:-1]): "the run has not come to its end",
        "".join(lines[1:]): "only chosen tests ran",
        "".join([*lines[:-1], '{"done": {}}']): "4 of 4 pytests never ran",
        text + lines[1].replace('"run": "', '"run": "later-'): "a later pytest did not come to its"
        " end",
    }.items():
        file.write_text(changed)
        assert read(file).partial == [partial]


def test_no_way_to_end_badly_looks_like_a_pass(tmp_path: Path) -> None:
    """A failure, a file that cannot be read, a process that leaves, is killed, or is stopped.

    Nor is a run whole if somebody's settings leave a test out.
    """
    settings = "--deselect=tests/fails/test_a.py::test_other"
    code, said, found = whole(make_project(tmp_path, BAD), CI="1", PYTEST_ADDOPTS=settings)
    assert code == 1
    assert found.failures == [
        "docs/index.md::3-python",
        "tests/broken/test_a.py",
        "tests/fails/test_a.py::test_it[?b?]",
        "tests/fails/test_b.py::test_it",
    ]
    assert sorted(found.failed) == [
        "4 of 4 tests failed",
        "pytest killed was ended by signal 9",
        "pytest leaves ended before its tests did, with exit status 0",
        "pytest skips ended with exit status 1",
        "pytest stopped ended with exit status 2",
    ]
    assert found.partial == ["3 tests were left out"]
    assert found.total("skipped") == 1
    for each in (*found.failures, *found.failed):
        assert each in said


def test_every_test_of_this_repository_is_in_one_part() -> None:
    found = parts(ROOT)
    files = [file for name, part in found.items() if name != "pages" for file in part]
    below = (ROOT / "tests").rglob("test_*.py")
    assert sorted(files) == sorted(file.relative_to(ROOT).as_posix() for file in below)
    assert all(sum((ROOT / f).stat().st_size for f in p[1:]) < 2 * SHARE for p in found.values())


SHARING = """
import time
from tests.harness.shared import shared

def make(folder):
    print("made")
    time.sleep(0.2)
    (folder / "it").write_text("whole")

print((shared("it", make) / "it").read_text())
"""


def test_what_all_share_is_made_once_and_anew_if_it_failed_half_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SHARED, str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise LookupError

    with pytest.raises(LookupError):
        shared("it", fail)
    command = [sys.executable, "-c", SHARING]
    makers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(3)]
    said = sorted(maker.communicate()[0] for maker in makers)
    assert said == [b"made\nwhole\n", b"whole\n", b"whole\n"]
    assert [file.name for file in shared("it", fail).iterdir()] == ["it"]
