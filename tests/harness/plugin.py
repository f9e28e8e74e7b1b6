"""The pytest plugin: collects blocks through Sybil, keeps evidence, accounts for every skip."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sybil import Document, Example, Region, Sybil

from tests.harness.blocks import Block, Problem, Scan, scan_docstrings, scan_page
from tests.harness.evaluators import evaluate, skipped_for
from tests.harness.evidence import Evidence
from tests.harness.legs import Result, held_by, name_of, result_of, worst
from tests.harness.messages import watch, write_raised
from tests.harness.page import Failure, Page

_EVIDENCE = pytest.StashKey[Evidence]()
_DOCUMENTS = pytest.StashKey[Any]()
_RAISED = pytest.StashKey[set[tuple[str, int]]]()
_DEEP = "deep"
_SKIPS: Counter[str] = Counter()
_RESULTS: dict[str, Result] = {}
_FOUND: Counter[str] = Counter()


class Documents(Sybil):
    """The files of a project that have blocks, and how to evaluate them."""

    def __init__(self, root: Path, evidence: Evidence) -> None:
        super().__init__(
            parsers=[self.regions],
            path=str(root),
            document_types={".py": Document},
            teardown=_close_pages,
        )
        self.root = root
        self.evidence = evidence

    def should_parse(self, path: Path) -> bool:
        """Say whether a file is a page, or a module whose docstrings are."""
        if not path.is_relative_to(self.root):
            return False
        below = path.relative_to(self.root)
        if below.suffix == ".md":
            return below.parts[0] == "docs" or below.name in {"README.md", "CONTRIBUTING.md"}
        return below.suffix == ".py" and below.parts[:2] == ("src", "safepoint")

    def identify(self, example: Example) -> str:
        """Name a test after its line and language."""
        block = example.parsed
        return f"{example.line}-{block.language if isinstance(block, Block) else 'problem'}"

    def regions(self, document: Document) -> Iterator[Region]:
        """Find the blocks and problems of a document, each as a region."""
        path = Path(document.path)
        name = path.relative_to(self.root).as_posix()
        if path.suffix == ".py":
            scans = scan_docstrings(document.text, name, root=self.root)
        else:
            scans = [scan_page(document.text, name, root=self.root)]
        starts = [0]
        for line in document.text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        for number, scan in enumerate(scans):
            label = f"{name}_{number}" if number else name
            yield from self._scanned(document, scan, label, starts)

    def _scanned(
        self, document: Document, scan: Scan, label: str, starts: list[int]
    ) -> Iterator[Region]:
        page = _LazyPage(label, scan.blocks, self.root)
        document.namespace.setdefault("pages", []).append(page)
        for block in scan.blocks:
            evaluator = _BlockEvaluator(page, self.evidence)
            yield Region(starts[block.line - 1], starts[block.end], block, evaluator)
        lines = sorted({problem.line for problem in scan.problems})
        for line in lines:
            here = [problem for problem in scan.problems if problem.line == line]
            yield Region(starts[line - 1], starts[line - 1], here, self._report)

    def _report(self, example: Example) -> str:
        problems: list[Problem] = example.parsed
        first = problems[0]
        block = Block(
            first.page, 0, first.line, first.line, "", (), {}, "", 0, Path(example.path), 1
        )
        self.evidence.record(block, "failed", 0.0)
        return "\n".join(map(str, problems))


class _LazyPage:
    """A page that comes to life with its first block, so that collecting stays cheap."""

    def __init__(self, label: str, blocks: list[Block], root: Path) -> None:
        self._make = (label, blocks, root)
        self._page: Page | None = None

    def get(self) -> Page:
        if self._page is None:
            self._page = Page(*self._make)
        return self._page

    def close(self) -> None:
        if self._page is not None:
            self._page.close()
            self._page = None


class _BlockEvaluator:
    def __init__(self, page: _LazyPage, evidence: Evidence) -> None:
        self._page = page
        self._evidence = evidence

    def __call__(self, example: Example) -> str | None:
        block: Block = example.parsed
        try:
            outcome = evaluate(self._page.get(), block, self._evidence)
        except Failure as failure:
            return f"{block.page}:{block.line}: {failure}"
        if outcome == "skipped":
            pytest.skip(f"{block.page}:{block.line}: {skipped_for(block)}")
        return None


def _close_pages(namespace: dict[str, Any]) -> None:
    for page in namespace.get("pages", ()):
        page.close()


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
    for counted in (_SKIPS, _RESULTS, _FOUND):
        counted.clear()
    config.addinivalue_line("markers", f"{_DEEP}: takes long, so `make deep` runs it")
    file = config.rootpath / config.getoption("--evidence")
    run = config.getoption("--run")
    evidence = Evidence(file, config.rootpath, run, run or " ".join(config.invocation_params.args))
    config.stash[_EVIDENCE] = evidence
    config.stash[_RAISED] = watch()
    config.stash[_DOCUMENTS] = Documents(config.rootpath, evidence).pytest()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Write down that it began: if it is killed, that stays."""
    if not session.config.option.collectonly:
        session.config.stash[_EVIDENCE].begin()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the blocks of a page or module."""
    collect = parent.config.stash[_DOCUMENTS]
    collected: pytest.Collector | None = collect(file_path, parent)
    return collected


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
    """Keep how a test ends that holds up what a rule stands on."""
    report = yield
    evidence = item.config.stash[_EVIDENCE]
    for leg, name in held_by(item):
        evidence.hold(leg, name, name_of(item), result_of(report), report.duration)
    return report


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
        raised = session.config.stash[_RAISED]
        write_raised(evidence.file.parent, raised)


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
