"""Which evidence counts: of this very text, and of nothing else."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from publish import verified
from publish.evidence import Evidence, read
from publish.project import Page, Project
from tests.harness.blocks import digest
from tests.harness.sources import sources

COMMIT = "c" * 40
RUN: dict[str, Any] = {
    "run": "r1",
    "started": "2026-11-15T14:48:09+00:00",
    "commit": COMMIT,
    "python": "3.11.7",
    "system": "Linux",
    "versions": {"torch": "2.13.0"},
}
BLOCK: dict[str, Any] = {
    "run": "r1",
    "page": "docs/guide.md",
    "line": 3,
    "block": 1,
    "language": "python",
    "sha256": digest("a = 1"),
    "outcome": "ran",
    "ms": 12.3,
    "python": "3.11.7",
    "versions": {"torch": "2.13.0"},
}
PROOF: dict[str, Any] = {
    "run": "r1",
    "leg": "test",
    "name": "tests/attacks/test_pickle.py::test_payload_does_not_run_in_a_ledger",
    "test": "tests/attacks/test_pickle.py::test_payload_does_not_run_in_a_ledger",
    "outcome": "passed",
    "ms": 1.0,
}
AGAIN = "Run make test, then build again."


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with one block on one of its pages."""
    for name, text in {
        "docs/guide.md": "# Guide\n\n```python\na = 1\n```\n",
        "docs/other.md": "# Other\n",
        "docs/assets/site.css": "p {}",
        "docs/vectors/records.json": "{}",
        "snippets/a.py": "a = 1\n",
        "src/safepoint/x.py": "x = 1\n",
        "tests/harness/y.py": "y = 1\n",
        "tests/unit/test_z.py": "z = 1\n",
        "Makefile": "test:\n",
        "requirements.txt": "torch==2.13.0\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def write(root: Path, *blocks: dict[str, Any], **run: Any) -> Path:
    """Let blocks have run, on the sources as they are now."""
    header = {**RUN, "sources": sources(root), **run}
    lines = [header, *(BLOCK | block for block in blocks or ({},))]
    file = root / "build" / "evidence.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return file


def prove(root: Path, *proofs: dict[str, Any]) -> Path:
    """Let tests that rules stand on have run, too."""
    file = write(root)
    with file.open("a", encoding="utf-8") as lines:
        lines.writelines(f"{json.dumps(PROOF | proof)}\n" for proof in proofs)
    return file


def found(root: Path, *blocks: dict[str, Any], **run: Any) -> Evidence:
    return read(write(root, *blocks, **run), root, COMMIT)


def test_evidence_of_this_text_is_current(root: Path) -> None:
    evidence = found(root)
    assert evidence.state == "current"
    assert evidence.said == "Evidence of this very text: 1 block ran."
    assert evidence.versions == {"Python": "3.11.7", "torch": "2.13.0"}
    assert [entry.test for entry in evidence.of("docs/guide.md")] == ["docs/guide.md::3-python"]


def test_evidence_of_the_same_text_in_another_commit_is_current(root: Path) -> None:
    """A commit that touched nothing of what the blocks depend on does not matter."""
    evidence = found(root, commit="d" * 40)
    assert evidence.state == "current"
    assert evidence.said == (
        "Evidence of this very text, from another commit, ddddddd: 1 block ran."
    )


def test_evidence_without_a_commit_says_so(root: Path) -> None:
    evidence = found(root, commit=None)
    assert evidence.said == "Evidence of this very text, from a run without a commit: 1 block ran."


def test_no_evidence_is_said(root: Path) -> None:
    evidence = read(root / "build/evidence.jsonl", root, COMMIT)
    assert evidence.state == "missing"
    assert evidence.said == f"No evidence: this site claims nothing of its blocks. {AGAIN}"
    assert evidence.entries == ()


@pytest.mark.parametrize(
    ("name", "said"),
    {
        "docs/guide.md": "docs/guide.md",
        "docs/vectors/records.json": "docs/vectors",
        "snippets/a.py": "snippets",
        "src/safepoint/x.py": "src/safepoint",
        "tests/harness/y.py": "tests/harness",
        "tests/unit/test_z.py": "tests/unit",
        "Makefile": "Makefile",
        "requirements.txt": "requirements.txt",
    }.items(),
)
def test_a_changed_source_makes_it_stale(root: Path, name: str, said: str) -> None:
    file = write(root)
    with (root / name).open("a", encoding="utf-8") as source:
        source.write("\n\n")
    evidence = read(file, root, COMMIT)
    assert evidence.state == "stale"
    assert evidence.said == f"The evidence is older than {said}. {AGAIN}"


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
    evidence = read(file, root, COMMIT)
    assert evidence.state == "other commit"
    assert evidence.said == (
        f"The evidence is of another commit, and snippets changed since. {AGAIN}"
    )


def test_a_page_that_the_run_left_out_makes_it_partial(root: Path) -> None:
    """As after `make test ARGS="docs/guide.md"`."""
    (root / "docs/other.md").write_text("# Other\n\n```python\n1\n```\n", encoding="utf-8")
    evidence = found(root)
    assert evidence.state == "partial"
    assert evidence.said == (
        f"The evidence leaves out blocks of docs/other.md. 1 block was not run. {AGAIN}"
    )


def test_what_did_not_run_is_said_besides_what_is_worse(root: Path) -> None:
    file = write(root, {"outcome": "failed"})
    block = "```python\n1\n```\n"
    (root / "docs/other.md").write_text(f"# Other\n\n{block}\n{block}", encoding="utf-8")
    evidence = read(file, root, COMMIT)
    assert evidence.state == "failed"
    assert evidence.said == (
        f"1 of the blocks failed when they were last run. 2 blocks were not run. {AGAIN}"
    )


def test_a_block_that_failed_is_said_first(root: Path) -> None:
    file = write(root, {"outcome": "failed"})
    (root / "docs/other.md").write_text("# Changed\n", encoding="utf-8")
    evidence = read(file, root, COMMIT)
    assert evidence.state == "failed"
    assert evidence.said == f"1 of the blocks failed when they were last run. {AGAIN}"


def test_a_test_of_a_rule_that_failed_makes_it_failed(root: Path) -> None:
    evidence = read(prove(root, {}, {"outcome": "failed"}), root, COMMIT)
    assert evidence.state == "failed"
    assert evidence.said == (
        f"1 of the tests that the rules stand on failed when they were last run. {AGAIN}"
    )


def test_tests_alone_are_no_evidence_of_blocks(root: Path) -> None:
    """As after `make test ARGS=tests/unit` in a new clone."""
    file = prove(root, {})
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text(f"{lines[0]}\n{lines[2]}\n", encoding="utf-8")
    assert read(file, root, COMMIT).state == "missing"


def test_a_proof_of_no_run_is_unreadable(root: Path) -> None:
    assert read(prove(root, {"run": "r2"}), root, COMMIT).state == "unreadable"


@pytest.mark.parametrize(
    "changed",
    [
        {"leg": "arm"},
        {"outcome": "ran"},
        {"outcome": []},
        {"name": "<b>"},
        {"test": 1},
        {"ms": "1"},
    ],
    ids=str,
)
def test_a_proof_of_another_form_is_unreadable(root: Path, changed: dict[str, Any]) -> None:
    assert read(prove(root, changed), root, COMMIT).state == "unreadable"


def test_a_changed_test_makes_no_block_late(root: Path) -> None:
    write(root)
    (root / "tests/unit/test_z.py").write_text("z = 2\n", encoding="utf-8")
    assert foot(root, ran=1) == "Blocks: 1 ran"


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"page": "docs/nowhere.md"},
        {"page": "docs/other.md"},
        {"sha256": "f" * 64},
    ],
    ids=["the same twice", "of no page", "of another page", "of no block"],
)
def test_what_is_said_of_no_block_is_not_counted(root: Path, more: dict[str, Any]) -> None:
    evidence = found(root, {}, more)
    assert evidence.counts["ran"] == 1
    assert evidence.said == "Evidence of this very text: 1 block ran."


def test_a_page_does_not_count_what_ran_on_one_whose_name_begins_like_its_own(root: Path) -> None:
    (root / "docs/guide.mdx.md").write_text("# X\n\n```python\na = 1\n```\n", encoding="utf-8")
    evidence = found(root, {}, {"page": "docs/guide.mdx.md"})
    assert evidence.counts["ran"] == 2
    assert [entry.page for entry in evidence.of("docs/guide.md")] == ["docs/guide.md"]


def test_docstrings_are_counted_for_the_whole_package(root: Path) -> None:
    (root / "src/safepoint/x.py").write_text(
        '"""X.\n\n```python\na = 1\n```\n"""\n', encoding="utf-8"
    )
    evidence = found(root, {}, {"page": "src/safepoint/x.py"})
    assert [entry.page for entry in evidence.of("src/")] == ["src/safepoint/x.py"]


def test_two_headers_of_one_run_must_agree(root: Path) -> None:
    """Workers share the name of their run."""
    file = write(root)
    other = {**RUN, "sources": {**sources(root), "snippets": "0" * 16}}
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([json.dumps(other), *lines]), encoding="utf-8")
    assert read(file, root, COMMIT).changed == ["snippets"]


def test_what_is_no_evidence_is_left_out_with_its_line(root: Path) -> None:
    file = write(root)
    file.write_text("no JSON\n", encoding="utf-8")
    evidence = read(file, root, COMMIT)
    assert evidence.said == (
        "The evidence cannot be read, so it is left out "
        f"(evidence.jsonl:1 is not evidence; run make test). {AGAIN}"
    )


@pytest.mark.parametrize(
    "text",
    ["", "{}\n", json.dumps(BLOCK), "[1]\n", "3\n", "\0\n", "[" * 100_000],
    ids=["empty", "no fields", "no run", "a list", "a number", "a zero", "deep"],
)
def test_a_file_of_another_kind_is_unreadable(root: Path, text: str) -> None:
    file = write(root)
    file.write_text(text, encoding="utf-8")
    evidence = read(file, root, COMMIT)
    assert evidence.state == "unreadable"
    assert evidence.entries == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"ms": "1"},
        {"ms": float("nan")},
        {"ms": float("inf")},
        {"ms": -5},
        {"ms": True},
        {"outcome": "fine"},
        {"outcome": ["ran"]},
        {"page": 3},
        {"page": "docs/<b>.md"},
        {"line": -1},
        {"block": "1"},
        {"sha256": "short"},
        {"versions": ["a"]},
        {"versions": {"torch": "<script>"}},
        {"versions": {"a|b": "1"}},
        {"python": None},
    ],
    ids=str,
)
def test_an_entry_of_another_form_is_unreadable(root: Path, changed: dict[str, Any]) -> None:
    assert found(root, changed).state == "unreadable"


@pytest.mark.parametrize(
    "changed",
    [
        {"started": "2999-01-01T00:00:00+00:00"},
        {"started": "2026-11-15T14:48:09"},
        {"started": 5},
        {"commit": 5},
        {"system": "<b>"},
        {"sources": []},
        {"sources": {"docs/<x>": "0"}},
    ],
    ids=str,
)
def test_a_run_of_another_form_is_unreadable(root: Path, changed: dict[str, Any]) -> None:
    assert found(root, **changed).state == "unreadable"


def test_another_time_zone_is_told_in_utc(root: Path) -> None:
    started = found(root, started="2026-11-15T18:00:00+14:00").started
    assert f"{started:%Y-%m-%d %H:%M}" == "2026-11-15 04:00"


class Fixed(Project):
    """A project with the commit that the evidence names."""

    commit = COMMIT


def foot(root: Path, **counts: int) -> str:
    page = Page("guide.md", "guide/", "Guide", "", "")
    return verified.of_page(page, Counter(counts), Fixed(root))


def test_the_pages_claim_what_is_current(root: Path) -> None:
    write(root)
    project = Fixed(root)
    assert foot(root, ran=2, checked=1, never=3) == "Blocks: 2 ran, 1 checked only, 3 not run"
    assert foot(root) == "No blocks to run"
    assert verified.line(project).startswith(
        "1 blocks, code and what it prints, on these pages and in the repository, ran on 2026-11-15"
    )
    assert "| torch | `2.13.0` |" in verified.versions(project)
    assert "| python | 1 | 0 | 0 | 0 |" in verified.census(project)


def test_the_pages_claim_nothing_without_evidence(root: Path) -> None:
    project = Fixed(root)
    assert foot(root, never=2) == "Built without evidence"
    assert verified.line(project).startswith("This copy was built without a run of its blocks. [")
    assert verified.evidence(project).startswith("**No evidence: ")
    assert verified.versions(project) == "This build knows of no run."
    assert " ran" not in verified.evidence(project) + verified.census(project)
    census = verified.with_census(verified.census(project), Counter(never=2), project)
    assert census == "This build shows 2 blocks, and has evidence of none."


def test_the_pages_say_that_it_is_stale(root: Path) -> None:
    write(root)
    with (root / "docs/guide.md").open("a", encoding="utf-8") as page:
        page.write("\nMore.\n")
    project = Fixed(root)
    assert foot(root, ran=1) == "Blocks: 1 ran, before later changes"
    assert verified.line(project).startswith("Not everything here is as it was")
    assert "Changed since: `docs/guide.md`." in verified.evidence(project)


def test_few_of_many_changes_are_named(root: Path) -> None:
    write(root)
    for number in range(7):
        (root / f"docs/new-{number}.md").write_text("# New\n", encoding="utf-8")
    assert verified.evidence(Fixed(root)).endswith("`docs/new-4.md`, and 2 more.")


def test_another_page_that_changed_is_no_matter_of_this_one(root: Path) -> None:
    write(root)
    (root / "docs/other.md").write_text("# Changed\n", encoding="utf-8")
    assert foot(root, ran=1) == "Blocks: 1 ran"


def test_the_build_counts_what_it_shows(root: Path) -> None:
    write(root)
    census = verified.with_census(verified.census(Fixed(root)), Counter(ran=1), Fixed(root))
    assert census.startswith(
        "This build: 1 blocks shown, 1 ran, 0 checked only, 0 skipped, 0 without a good run.\n"
    )


def test_the_two_totals_are_told_apart(root: Path) -> None:
    """What ran, and what the pages show of it."""
    (root / "README.md").write_text("# Read\n\n```python\nb = 1\n```\n", encoding="utf-8")
    write(root, {}, {"page": "README.md", "sha256": digest("b = 1")})
    census = verified.with_census(verified.census(Fixed(root)), Counter(ran=1), Fixed(root))
    assert (
        " The evidence is of 2 blocks: 1 on these pages, 1 elsewhere, in the README, in "
        "CONTRIBUTING and in docstrings that no page shows.\n"
    ) in census


EDITED = "tests/attacks/test_trust_boundary.py::test_edited_amount_is_refused"
HEAD = "25 of 27 rules stand on all four"


def legs(root: Path, rule: str) -> str:
    """Return what the page says of one rule."""
    [text] = [
        part
        for part in verified.matrix(Fixed(root)).split("??? legs ")
        if part[1:].startswith(rule)
    ]
    return text


def test_the_matrix_says_what_ran_and_not_what_is_named(root: Path) -> None:
    attack = {"leg": "attack", "name": "edit-state", "test": "tests/attacks/test_ladder.py::test_a"}
    file = prove(root, {"name": EDITED, "test": EDITED}, attack)
    assert verified.matrix(Fixed(root)).startswith(
        f"{HEAD}. Passed in that run: 1 of 96 attacks, 0 of 25 examples, 1 of 111 tests and "
        "0 of 21 checks.\n"
    )
    said = legs(root, "SP01")
    assert said.startswith('"SP01 The storage backend is a trust boundary: ')
    assert 'boundary: 2 of 6 passed, 4 not run"\n' in said
    assert "- attack: [`edit-state`](attacks.md#edit-state)\n" in said
    assert "[`trust_boundary.py`](examples/trust_boundary.py) (not run)\n" in said
    assert (
        "- test: `tests/attacks/test_trust_boundary.py`: edited amount is refused; edited "
        "position is refused (not run); edited memory is refused (not run)\n"
    ) in said
    assert "(reference/audit.md#safepoint.audit.check_location) (not run)" in said
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(PROOF | attack | {"outcome": "failed"}) + "\n")
    assert "edit-state`](attacks.md#edit-state) (its tests failed)\n" in legs(root, "SP01")
    assert 'boundary: 1 of 6 passed, 1 failed, 4 not run"\n' in legs(root, "SP01")


def test_the_matrix_says_if_the_tests_have_changed_since(root: Path) -> None:
    prove(root, {})
    (root / "tests/unit/test_z.py").write_text("z = 2\n", encoding="utf-8")
    assert f"{HEAD}. Passed in that run, before later changes: " in verified.matrix(Fixed(root))


@pytest.mark.parametrize("ran", [False, True], ids=["no evidence", "of blocks alone"])
def test_the_matrix_only_names_what_did_not_run(root: Path, ran: bool) -> None:
    """An older file has no such lines."""
    if ran:
        write(root)
    assert verified.matrix(Fixed(root)).startswith(f"{HEAD}: named, not run.\n")
    assert 'boundary: named, not run"\n' in legs(root, "SP01")
    assert "passed" not in verified.matrix(Fixed(root)).replace("passed-", "")


def test_a_planned_rule_is_said_to_be_planned(root: Path) -> None:
    prove(root, {})
    assert legs(root, "SP09").startswith('"SP09 Strict decoding by default: 0 of 7 passed, ')
    assert ' not run, check planned"\n' in legs(root, "SP09")


def test_a_file_that_does_not_run_by_itself_is_not_counted(root: Path) -> None:
    prove(root, {})
    assert "[`pg_hba.conf`](examples/pg_hba.conf)\n" in legs(root, "SP06")
    assert ": 0 of 5 passed, 5 not run" in legs(root, "SP06")
