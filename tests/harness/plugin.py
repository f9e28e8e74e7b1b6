"""The pytest plugin: collects blocks, keeps evidence, accounts for every skip."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest
from sybil.integration.pytest import SybilFile, SybilItem

from tests.harness.blocks import Block, Project
from tests.harness.evidence import (
    Evidence,
    Outcome,
    Result,
    held_by,
    imported_by,
    name_of,
    result_of,
    worst,
)

_EVIDENCE = pytest.StashKey[Evidence]()
_DEEP = "deep"
_SKIPS: Counter[str] = Counter()
_RESULTS: dict[str, Result] = {}
_FOUND: Counter[str] = Counter()
_IMPORTED: defaultdict[object, set[str]] = defaultdict(set)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the evidence go elsewhere, and let several pytests know their names."""
    parser.addoption(
        "--evidence",
        metavar="PATH",
        default="build/evidence.jsonl",
        help="append what ran, and how it ended (default: %(default)s)",
    )
    parser.addoption("--run", metavar="NAME", default="", help="the name of this run in it")


def pytest_configure(config: pytest.Config) -> None:
    """Open the evidence and get ready to collect."""
    for counted in (_SKIPS, _RESULTS, _FOUND, _IMPORTED):
        counted.clear()
    config.addinivalue_line("markers", f"{_DEEP}: takes long, so `make deep` runs it")
    file = config.rootpath / config.getoption("--evidence")
    run = config.getoption("--run")
    evidence = Evidence(file, config.rootpath, run, run or " ".join(config.invocation_params.args))
    config.stash[_EVIDENCE] = evidence


def pytest_sessionstart(session: pytest.Session) -> None:
    """Write down that it began: if it is killed, that stays."""
    if not session.config.option.collectonly:
        session.config.stash[_EVIDENCE].begin()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SybilFile | None:
    """Collect the blocks of a page, or of a module."""
    project = Project(parent.config.rootpath)
    if not project.should_parse(file_path):
        return None
    return SybilFile.from_parent(parent, path=file_path, sybils=[project])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what takes long to `make deep`, and to whoever asks for it with `-m` or by its name."""
    asked = config.option.markexpr or any("::" in argument for argument in config.args)
    deep = [] if asked else [item for item in items if item.get_closest_marker(_DEEP)]
    _FOUND.update(found=len(items), deep=len(deep))
    items[:] = [item for item in items if item not in deep]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep how a block ends, and a test that holds up what a rule stands on."""
    report = yield
    evidence = item.config.stash[_EVIDENCE]
    if isinstance(item, SybilItem) and (report.when == "call" or report.failed):
        block: Block = item.example.parsed
        imported = _IMPORTED[block.place]
        imported |= set() if report.skipped else imported_by(block)
        evidence.record(block, _outcome(block, report), report.duration, imported)
    for leg, name in held_by(item):
        evidence.hold(leg, name, name_of(item), result_of(report), report.duration)
    return report


def _outcome(block: Block, report: pytest.TestReport) -> Outcome:
    if report.passed:
        return "checked" if "data-check" in block.attributes else "ran"
    return "skipped" if report.skipped else "failed"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count how a test ended."""
    _count_skip(report)
    expected = report.skipped and hasattr(report, "wasxfail")
    result: Result | None = "passed" if expected else result_of(report)
    if result:
        before = _RESULTS.get(report.nodeid, result)
        _RESULTS[report.nodeid] = worst((before, result)) or result


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Count a module that was skipped, or that cannot be collected."""
    _count_skip(report)
    if report.outcome != "passed":
        _RESULTS[report.nodeid] = report.outcome
        _FOUND["found"] += 1


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in CI that skipped anything. Write down the verdict."""
    if _SKIPS and os.environ.get("CI") and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if not session.config.option.collectonly:
        left = _FOUND["found"] - _FOUND["deep"] - len(_RESULTS)
        status = int(session.exitstatus)
        evidence = session.config.stash[_EVIDENCE]
        evidence.end(status, _RESULTS, max(left, 0), _FOUND["deep"])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say in public how many blocks ran and what was skipped, with the reasons."""
    counts = config.stash[_EVIDENCE].counts
    if counts:
        terminalreporter.write_line(
            f"blocks: {counts['ran']} ran, {counts['checked']} checked only, "
            f"{counts['skipped']} skipped, {counts['failed']} failed"
        )
    if _FOUND["deep"]:
        terminalreporter.write_line(f"left for make deep: {_FOUND['deep']} (marked as long)")
    reasons = "; ".join(f"{count} x {reason}" for reason, count in sorted(_SKIPS.items()))
    terminalreporter.write_line(f"skipped: {_SKIPS.total()}" + (f" ({reasons})" if reasons else ""))
    if _SKIPS and os.environ.get("CI"):
        terminalreporter.write_line(
            "CI skips nothing: install what is missing, or remove the skip.", red=True
        )


def _count_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "no reason"
        _SKIPS[str(reason).removeprefix("Skipped: ")] += 1
