"""The evidence: what a line says, and that several processes can write at once."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from tests.harness.blocks import Block, find_blocks
from tests.harness.evaluators import evaluate
from tests.harness.evidence import Evidence, read_evidence, versions
from tests.harness.page import Failure, Page
from tests.harness.testing import page

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


def test_versions_are_those_of_packages_that_matter() -> None:
    """By the name of the distribution."""
    assert set(versions(["agent_framework", "json", "pydantic"])) == {
        "agent-framework-core",
        "pydantic",
    }


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


def test_the_last_run_of_a_page_counts(tmp_path: Path) -> None:
    """A second run of one page replaces the first, and leaves the others alone."""
    file = tmp_path / "e.jsonl"
    other = find_blocks(TEXT, "docs/other.md")
    first, second = Evidence(file, tmp_path), Evidence(file, tmp_path)
    for block in [*blocks(), *other]:
        first.record(block, "failed", 0)
    second.record(blocks()[0], "ran", 0)
    entries = read_evidence(file)
    assert [(e.page, e.outcome) for e in entries] == [
        ("docs/x.md", "ran"),
        *[("docs/other.md", "failed")] * 3,
    ]


def test_a_file_that_is_no_evidence_is_refused(tmp_path: Path) -> None:
    """With its line."""
    file = tmp_path / "e.jsonl"
    file.write_text('{"run": "1"}\n[]\n')
    with pytest.raises(ValueError, match=r"e\.jsonl:2 is not evidence; run make test"):
        read_evidence(file)
