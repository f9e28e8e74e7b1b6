"""Which evidence counts: of this very text, and of nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from publish import verified
from publish.evidence import read
from publish.project import Page, Project
from tests.harness.evidence import sources

COMMIT = "c" * 40
BLOCK: dict[str, Any] = {
    "run": "r1",
    "page": "docs/guide.md",
    "line": 3,
    "block": 1,
    "language": "python",
    "sha256": "0" * 64,
    "outcome": "ran",
    "ms": 12.3,
    "python": "3.11.7",
    "versions": {"torch": "2.13.0"},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project of two pages and a snippet."""
    for name, text in {
        "docs/guide.md": "# Guide\n",
        "docs/other.md": "# Other\n",
        "docs/assets/site.css": "p {}",
        "snippets/a.py": "a = 1\n",
        "src/safepoint/x.py": "x = 1\n",
        "tests/harness/y.py": "y = 1\n",
        "requirements.txt": "torch==2.13.0\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def write(root: Path, *, commit: str | None = COMMIT, **changed: Any) -> Path:
    """Let one block have run, on the sources as they are now."""
    run = {
        "run": "r1",
        "started": "2026-11-15T14:48:09+00:00",
        "commit": commit,
        "python": "3.11.7",
        "system": "Linux",
        "versions": {"torch": "2.13.0"},
        "sources": sources(root),
    }
    file = root / "build" / "evidence.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{json.dumps(run)}\n{json.dumps(BLOCK | changed)}\n", encoding="utf-8")
    return file


def test_evidence_of_this_text_is_current(root: Path) -> None:
    found = read(write(root), root, COMMIT)
    assert found.state == "current"
    assert found.said == "Evidence of this very text: 1 blocks, each as it was run."
    assert found.versions == {"Python": "3.11.7", "torch": "2.13.0"}
    assert [entry.test for entry in found.of("docs/guide.md")] == ["docs/guide.md::3-python"]


def test_evidence_of_the_same_text_in_another_commit_is_current(root: Path) -> None:
    """A commit that touched nothing of what the blocks depend on does not matter."""
    assert read(write(root, commit="d" * 40), root, COMMIT).state == "current"


def test_no_evidence_is_said(root: Path) -> None:
    found = read(root / "build/evidence.jsonl", root, COMMIT)
    assert found.state == "missing"
    assert found.said == (
        "No evidence: this site claims nothing of its blocks. Run make test, then build again."
    )
    assert found.entries == ()


@pytest.mark.parametrize(
    "name",
    ["docs/guide.md", "snippets/a.py", "src/safepoint/x.py", "tests/harness/y.py"],
)
def test_a_changed_source_makes_it_stale(root: Path, name: str) -> None:
    file = write(root)
    (root / name).write_text("changed\n", encoding="utf-8")
    found = read(file, root, COMMIT)
    said = name if name.startswith("docs/") else name.rpartition("/")[0]
    assert found.state == "stale"
    assert found.said == f"The evidence is older than {said}. Run make test, then build again."


def test_a_new_page_makes_it_stale(root: Path) -> None:
    file = write(root)
    (root / "docs/new.md").write_text("# New\n", encoding="utf-8")
    assert read(file, root, COMMIT).changed == ["docs/new.md"]


def test_a_changed_style_does_not(root: Path) -> None:
    file = write(root)
    (root / "docs/assets/site.css").write_text("p { color: red }", encoding="utf-8")
    assert read(file, root, COMMIT).state == "current"


def test_evidence_of_another_commit_is_named_as_that(root: Path) -> None:
    file = write(root, commit="d" * 40)
    shutil.rmtree(root / "snippets")
    found = read(file, root, COMMIT)
    assert found.state == "other commit"
    assert found.said == (
        "The evidence is of another commit, and snippets changed since. "
        "Run make test, then build again."
    )


@pytest.mark.parametrize("text", ["", "{}\n", "no JSON\n", json.dumps(BLOCK), "[1]\n", "\0\n"])
def test_what_is_no_evidence_is_left_out(root: Path, text: str) -> None:
    file = write(root)
    file.write_text(text, encoding="utf-8")
    found = read(file, root, COMMIT)
    assert found.state == "unreadable"
    assert found.entries == ()


class Fixed(Project):
    """A project with the commit that the evidence names."""

    commit = COMMIT


def page(src: str = "guide.md") -> Page:
    return Page(src, "guide/", "Guide", "", "")


def test_the_pages_claim_what_is_current(root: Path) -> None:
    write(root)
    project = Fixed(root)
    assert verified.of_page(page(), project) == "1 of 1 block ran"
    assert verified.of_page(page("other.md"), project) == "No blocks to run"
    assert verified.line(project).startswith("1 blocks of code on these pages and in the package ")
    assert "| torch | 2.13.0 |" in verified.evidence(project)
    assert "| python | 1 | 0 | 0 | 0 |" in verified.census(project)


def test_the_pages_claim_nothing_without_evidence(root: Path) -> None:
    project = Fixed(root)
    assert verified.of_page(page(), project) == "Built without evidence"
    assert verified.line(project).startswith("No evidence: this site claims nothing of its blocks.")
    assert verified.evidence(project).startswith("**No evidence: ")
    assert " ran " not in verified.evidence(project) + verified.census(project)


def test_the_pages_say_that_it_is_stale(root: Path) -> None:
    write(root)
    (root / "docs/guide.md").write_text("# Changed\n", encoding="utf-8")
    project = Fixed(root)
    assert verified.of_page(page(), project) == "1 of 1 block ran, before later changes"
    assert verified.line(project).startswith("The evidence is older than docs/guide.md.")
    assert "Changed since: `docs/guide.md`." in verified.evidence(project)


def test_a_block_that_was_not_run_is_not_counted_as_run(root: Path) -> None:
    write(root, outcome="checked")
    assert verified.of_page(page(), Fixed(root)) == "0 of 1 block ran"
