"""Which evidence counts: of a whole run that passed, of this very text, and of nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from publish import verified
from publish.evidence import AGAIN, Evidence, read
from publish.project import Page, Project
from safepoint.rules import Rule
from tests.harness.blocks import digest
from tests.harness.evidence import END, FILE, Case, sources, write

COMMIT = "c" * 40
RUN = {
    "commit": COMMIT,
    "python": "3.11.7",
    "system": "Linux",
    "version": "torch 2.13.0",
    **END,
    "deep": "3",
}
SAID = [("block", "1"), ("sha256", digest("a = 1"))]
BLOCK = Case("docs/guide.md::3-python", "passed", SAID)
DOCSTRING = BLOCK._replace(test="src/safepoint/x.py::3-python")
EDITED = "tests/test_z.py::test_edited_amount_is_refused"
PROOF = Case(EDITED, "passed", [("test", EDITED)])
SKIPPED = Case("tests/test_s.py::test_s", "skipped", [])
CASES = [BLOCK, DOCSTRING, PROOF, SKIPPED]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with one block on one of its pages."""
    for name, text in {
        "docs/guide.md": "# Guide\n\n```python\na = 1\n```\n",
        "docs/other.md": "# Other\n",
        "docs/assets/site.css": "p {}",
        "docs/vectors/records.json": "{}",
        "snippets/a.py": "a = 1\n",
        "src/safepoint/x.py": '"""X.\n\n```python\na = 1\n```\n"""\n',
        "tests/harness/y.py": "y = 1\n",
        "tests/unit/test_z.py": "z = 1\n",
        "Makefile": "test:\n",
        "requirements.txt": "torch==2.13.0\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def write_run(root: Path, *cases: Case, **changed: str) -> Path:
    """Write a whole run of the sources as they are now, with more cases, and with words changed."""
    run = [*(RUN | changed).items(), *(("source", f"{n} {d}") for n, d in sources(root).items())]
    return write(root / FILE, run, [*CASES, *cases])


def found(root: Path, *cases: Case, **changed: str) -> Evidence:
    return read(write_run(root, *cases, **changed), root)


def test_evidence_of_this_text_is_current(root: Path) -> None:
    evidence = found(root)
    assert evidence.state == "current"
    assert evidence.said == "Evidence of this very text. Blocks: 2 ran."
    assert evidence.versions == {"Python": "3.11.7", "torch": "2.13.0"}
    assert [entry.test for entry in evidence.of("docs/guide.md")] == ["docs/guide.md::3-python"]
    assert [entry.page for entry in evidence.of("src/")] == ["src/safepoint/x.py"]


RED = Case("tests/a.py::test_b", "failed", [])
STATES = {
    "current": "Evidence of this very text. Blocks: ",
    "failed": "The last run of the tests failed: ",
    "partial": "This is no whole run of the tests: ",
}


@pytest.mark.parametrize(
    ("cases", "changed", "state", "said"),
    [
        ([], {"commit": "d" * 40}, "current", "2 ran."),
        ([RED], {"exit": "1"}, "failed", "1 of 4 tests failed."),
        ([RED, RED], {}, "failed", "1 of 4 tests failed."),
        ([], {"exit": "2"}, "failed", "pytest ended with exit status 2."),
        ([], {"exit": "1", "census": "3"}, "failed", "the census found a difference."),
        ([], {"chosen": "docs tests/a.py"}, "partial", "only chosen tests ran."),
        ([], {"left": "2000"}, "partial", "2,000 tests were left out."),
    ],
)
def test_what_a_run_is_worth(
    root: Path, cases: list[Case], changed: dict[str, str], state: str, said: str
) -> None:
    evidence = found(root, *cases, **changed)
    assert evidence.state == state
    end = "" if state == "current" else f" {AGAIN}"
    assert evidence.said == f"{STATES[state]}{said}{end}"


@pytest.mark.parametrize(
    "more",
    [
        BLOCK,
        BLOCK._replace(test="docs/other.md::3-python"),
        BLOCK._replace(properties=[("block", "1"), ("sha256", "f" * 64)]),
    ],
    ids=["the same twice", "of another page", "of no block"],
)
def test_what_is_said_of_no_block_is_not_counted(root: Path, more: Case) -> None:
    assert found(root, more).said == "Evidence of this very text. Blocks: 2 ran."
    left_out = "The evidence leaves out blocks of docs/guide.md. 1 block was not run."
    (root / "docs/guide.md").write_text("# Guide\n\n```python\na = 2\n```\n", encoding="utf-8")
    assert found(root).said == f"{left_out} {AGAIN}"


def test_no_evidence_is_said(root: Path) -> None:
    evidence = read(root / FILE, root)
    assert evidence.state == "missing"
    assert evidence.said == f"No evidence: this site claims nothing of its blocks. {AGAIN}"
    assert evidence.entries == []


@pytest.mark.parametrize(
    ("name", "said"),
    {
        "docs/guide.md": "docs/guide.md",
        "docs/new.md": "docs/new.md",
        "docs/vectors/records.json": "docs/vectors",
        "snippets/a.py": "snippets",
        "src/safepoint/x.py": "src/safepoint",
        "tests/harness/y.py": "tests/harness",
        "tests/unit/test_z.py": "tests",
        "Makefile": "Makefile",
        "docs/assets/site.css": "",
    }.items(),
)
def test_a_changed_source_makes_it_stale(root: Path, name: str, said: str) -> None:
    """A style is no source."""
    file = write_run(root)
    with (root / name).open("a", encoding="utf-8") as source:
        source.write("\n\n")
    evidence = read(file, root)
    assert evidence.state == ("stale" if said else "current")
    assert not said or evidence.said == f"The evidence is older than {said}. {AGAIN}"


def test_nothing_in_it_becomes_markup(root: Path) -> None:
    """Neither the name of a test, nor of a version, nor a commit."""
    name = "<script>`x`|&"
    red = RED._replace(test=f"tests/a.py::test_b[{name}]", properties=[("check", name)])
    evidence = found(root, red, commit=name, version=f"torch {name}", system=name)
    assert "script" in str(evidence)
    said = str((evidence.run, evidence.failures, evidence.proofs, evidence.versions))
    assert not set("<>`|&") & set(re.sub(r"MappingProxy.*?\)", "", said))


# What the pages say


class Fixed(Project):
    """A project with the commit that the evidence names, and two rules."""

    commit = COMMIT

    @property
    def rules(self) -> Mapping[str, Rule]:
        words = ("Storage", "A boundary", "danger", "ours", "Text.", None)
        names = {
            "attack": ("edit-state",),
            "defence": ("snippets/a.py", "snippets/pg_hba.conf"),
            "test": (EDITED, *(f"tests/test_z.py::test_memory[{n}]" for n in ("a_b", "c"))),
            "check": (),
        }
        whole = {**names, "check": ("SP01.readable",)}
        return {"SP01": Rule("SP01", *words, whole), "SP02": Rule("SP02", *words, names)}  # type: ignore[arg-type]


def foot(root: Path, **counts: int) -> str:
    page = Page("guide.md", "guide/", "Guide", "", "**Tested by** `tests/b.py` and\n`tests/c.py`.")
    return verified.of_page(page, Counter(counts), Fixed(root))


def test_the_pages_claim_what_is_current_and_say_what_is_stale(root: Path) -> None:
    """Another page, or a test, that changed is no matter of this one."""
    write_run(root)
    assert foot(root, ran=2, checked=1, never=3) == "Blocks: 2 ran, 1 checked only, 3 not run"
    assert verified.line(Fixed(root)).startswith("The tests ran 2 blocks of code and output")
    said = verified.versions(Fixed(root))
    assert "| torch | `2.13.0` |" in said
    assert "| 4: 3 passed, 0 failed, 1 skipped, 3 long ones left for `make deep` |" in said
    assert "| exit status | `0` |" in said
    for name in ("docs/other.md", "tests/unit/test_z.py"):
        (root / name).write_text("# Changed\n", encoding="utf-8")
    assert foot(root, ran=1) == "Blocks: 1 ran"
    with (root / "docs/guide.md").open("a", encoding="utf-8") as page:
        page.write("\nMore.\n")
    assert foot(root, ran=1) == "Blocks: 1 ran; the page has changed since"
    assert verified.line(Fixed(root)).startswith("Some examples changed after the last")
    assert "is older than docs/guide.md, docs/other.md, tests." in verified.evidence(Fixed(root))


def test_the_pages_claim_nothing_without_evidence(root: Path) -> None:
    project = Fixed(root)
    assert foot(root, never=2) == "Built without evidence"
    assert verified.line(project).startswith("This copy was built without a run of its blocks. [")
    assert verified.evidence(project).startswith("**No evidence: ")
    assert verified.versions(project) == "This build knows of no run."
    census = verified.with_census(verified.census(project), Counter(never=2), project)
    assert census == "This build shows 2 blocks, and has evidence of none."


def test_failures_are_named_and_a_page_marks_its_own_and_those_of_its_tests(root: Path) -> None:
    many = [RED._replace(test=f"tests/a.py::test_{number:03}") for number in range(60)]
    write_run(root, *many, exit="1")
    said = verified.line(Fixed(root))
    assert "60 of 63 tests failed" in said
    assert said.count("- `tests/a.py::test_") == 50
    assert "- and 10 more" in said
    assert "| exit status | `1` |" in verified.versions(Fixed(root))
    assert foot(root, ran=1) == "Blocks: 1 ran"
    for name in ("docs/guide.md::3-python", "tests/b.py::test_x[1]", "tests/c.py"):
        write_run(root, RED._replace(test=name), exit="1")
        red = f'<strong class="failed">Blocks: 1 ran. Failed: {name}.</strong>'
        assert foot(root, ran=1) == red


def test_the_matrix_says_what_ran_and_not_what_is_named(root: Path) -> None:
    """A file that does not run by itself is not counted, and a leg without names is planned."""
    assert verified.matrix(Fixed(root)).startswith("1 of 2 rules stand on all four: named, not run")
    attack = Case("tests/test_z.py::test_a", "passed", [("attack", "edit-state")])
    write_run(root, attack)
    head, first, second = verified.matrix(Fixed(root)).split("\n\n??? ")
    assert head == (
        "1 of 2 rules stand on all four. Passed in that run: 1 of 1 attacks, 0 of 1 examples, "
        "1 of 3 tests and 0 of 1 checks."
    )
    assert first.startswith('legs "SP01 A boundary: 2 of 6 passed, 4 not run"\n')
    assert "- attack: [`edit-state`](attacks.md#edit-state)\n" in first
    assert "[`a.py`](examples/a.py) (not run), [`pg_hba.conf`](examples/pg_hba.conf)\n" in first
    assert (
        "- test: `tests/test_z.py`: edited amount is refused; memory: `a_b` (not run), "
        "`c` (not run)\n"
    ) in first
    assert "[`SP01.readable`](command/checks.md#sp01.readable) (not run)" in first
    assert ' not run, check planned"\n' in second
    write_run(root, attack._replace(result="failed"))
    (root / "tests/unit/test_z.py").write_text("z = 2\n", encoding="utf-8")
    said = verified.matrix(Fixed(root))
    assert "edit-state`](attacks.md#edit-state) (its tests failed)\n" in said
    assert 'boundary: 1 of 6 passed, 1 failed, 4 not run"\n' in said
    assert "Passed in that run (files have changed since): " in said
