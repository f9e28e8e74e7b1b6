"""The evidence: what a line says, and that several processes can write at once."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
from importlib import metadata
from pathlib import Path

import pytest

from tests.harness.blocks import Block, find_blocks
from tests.harness.evaluators import evaluate
from tests.harness.evidence import Evidence, read
from tests.harness.legs import Result
from tests.harness.page import Failure, Page
from tests.harness.testing import page
from tests.harness.versions import imported_by, versions

TEXT = page("""
    '''python
    import json
    '''

    '''{ .json }
    [1,
    '''

    '''{ .bash data-skip="no shell" }
    false
    '''
""")


def blocks() -> list[Block]:
    return find_blocks(TEXT, "docs/x.md")


def append(file: Path) -> None:
    evidence = Evidence(file, file.parent)
    for _ in range(50):
        evidence.record(blocks()[0], "ran", 0.1)


def test_a_line_says_what_happened(tmp_path: Path) -> None:
    """A header per run, then each block with its outcome, whatever it was."""
    file = tmp_path / "build" / "e.jsonl"
    evidence = Evidence(file, tmp_path)
    shown = Page("docs/x.md", blocks(), tmp_path)
    evaluate(shown, shown.blocks[0], evidence)
    with pytest.raises(Failure):
        evaluate(shown, shown.blocks[1], evidence)
    evaluate(shown, shown.blocks[2], evidence)
    shown.close()
    header, *lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert header["started"].endswith("+00:00")
    assert header["commit"] is None
    assert [(line["line"], line["block"], line["language"], line["outcome"]) for line in lines] == [
        (1, 1, "python", "ran"),
        (5, 2, "json", "failed"),
        (9, 3, "bash", "skipped"),
    ]
    assert all(line["page"] == "docs/x.md" and line["ms"] >= 0 for line in lines)
    assert [line["sha256"] for line in lines] == [block.digest for block in blocks()]
    assert evidence.counts == {"ran": 1, "failed": 1, "skipped": 1}


def test_versions_are_those_of_what_the_page_imported_so_far(tmp_path: Path) -> None:
    """By the name of the distribution or database, and not of what this process has imported."""
    text = page("""
        '''python
        import json
        '''

        '''python
        from safepoint import Ledger
        '''
    """)
    shown = Page("docs/x.md", find_blocks(text, "docs/x.md"), tmp_path)
    evidence = Evidence(tmp_path / "e.jsonl", tmp_path)
    for block in shown.blocks:
        evaluate(shown, block, evidence)
    shown.close()
    first, second = read(evidence.file).entries
    assert first.versions == {}
    assert second.versions == {"safepoint": metadata.version("safepoint")}
    found = versions(["agent_framework", "json", "sqlite3", "safepoint.testing.postgres"])
    assert [*found] == ["PostgreSQL", "SQLite", "agent-framework-core"]
    assert found["SQLite"] == sqlite3.sqlite_version
    assert found["PostgreSQL"].startswith("18.")


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("'''python\nimport a.b, c\nfrom d.e import f\n'''", {"a", "c", "d"}),
        ("'''python\nfrom . import a\nb = 'import c'\n'''", set()),
        ("'''{ .sql data-login=\"w\" }\nselect 1;\n'''", {"safepoint.testing.postgres"}),
        ("'''bash\npython -m a.b x && fickling x\necho langgraph\n'''", {"a", "fickling"}),
        ("'''{ .bash data-check=\"make\" }\npython -m a\n'''", set()),
        ("'''text\nimport a\n'''", set()),
    ],
)
def test_what_a_block_imports_is_read_from_its_text(text: str, modules: set[str]) -> None:
    """Statements of Python, and programs that a shell starts."""
    (block,) = find_blocks(page(text), "docs/x.md")
    assert imported_by(block) == modules


def test_several_processes_append_whole_lines(tmp_path: Path) -> None:
    """No line is lost or torn."""
    file = tmp_path / "e.jsonl"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=append, args=(file,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert sum("page" in line for line in lines) == 150
    assert sum("started" in line for line in lines) == 3


def test_the_last_run_of_a_page_or_of_a_test_counts(tmp_path: Path) -> None:
    """A second run of one page replaces the first, and leaves the others alone."""
    file = tmp_path / "e.jsonl"
    other = find_blocks(TEXT, "docs/other.md")
    first, second = Evidence(file, tmp_path), Evidence(file, tmp_path)
    for block in [*blocks(), *other]:
        first.record(block, "failed", 0)
    second.record(blocks()[0], "ran", 0)
    results: list[tuple[Evidence, Result]] = [(first, "failed"), (second, "passed")]
    for evidence, result in results:
        evidence.hold(*TEST, result, 0.001)
        evidence.end(0, {}, 0, 0)
    found = read(file)
    assert [(e.page, e.outcome) for e in found.entries] == [
        ("docs/x.md", "ran"),
        *[("docs/other.md", "failed")] * 3,
    ]
    assert [(p.outcome, p.run) for p in found.proofs] == [("passed", second.run)]


TEST = ("test", "tests/a.py::test_a", "tests/a.py::test_a")


def test_a_test_of_a_rule_has_one_line_for_all_its_cases(tmp_path: Path) -> None:
    """The worst of them counts, what was skipped does not, and what goes on is no end."""
    file = tmp_path / "e.jsonl"
    evidence = Evidence(file, tmp_path)
    evidence.hold(*TEST, None, 0.001)
    evidence.hold(*TEST, "skipped")
    evidence.hold(*TEST, "passed", 0.002)
    evidence.hold("attack", "fork", "tests/b.py::test_b", "failed")
    evidence.hold("attack", "fork", "tests/b.py::test_b", "passed")
    evidence.hold("check", "m:never", "tests/c.py::test_c", None)
    assert not file.exists()
    evidence.end(1, {"tests/b.py::test_b": "failed"}, 0, 0)
    found = read(file)
    assert [proof[:5] for proof in found.proofs] == [
        (*TEST, "passed", 3.0),
        ("attack", "fork", "tests/b.py::test_b", "failed", 0.0),
    ]
    assert {proof.run for proof in found.proofs} == set(found.runs) == {evidence.run}
    assert found.failures == ["tests/b.py::test_b"]
