"""The pytest plugin: collects blocks, keeps evidence, accounts for every skip."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from tests.harness.blocks import Block, Problem, scan_docstrings, scan_page
from tests.harness.evaluators import Failure, evaluate, needed
from tests.harness.evidence import Evidence, Result, held_by, name_of, result_of, worst
from tests.harness.page import Page

_EVIDENCE = pytest.StashKey[Evidence]()
_DEEP = "deep"
_SKIPS: Counter[str] = Counter()
_RESULTS: dict[str, Result] = {}
_FOUND: Counter[str] = Counter()


class Source(pytest.File):
    """A page, or a module whose docstrings are: each of its blocks is a test."""

    def collect(self) -> list[PlaceTest]:
        """Find the blocks, and the places that cannot be run as they are."""
        root = self.config.rootpath
        name, text = self.path.relative_to(root).as_posix(), self.path.read_text(encoding="utf-8")
        if self.path.suffix == ".py":
            scans = scan_docstrings(text, name, root=root)
        else:
            scans = [scan_page(text, name, root=root)]
        self._opened = ExitStack()
        tests: list[PlaceTest] = []
        for scan in scans:
            page = cache(partial(self._page, name, scan.blocks))  # when its first block runs
            tests += [self._test(b.line, b.language, self._run, page, b) for b in scan.blocks]
            for line in {problem.line for problem in scan.problems}:
                here = [problem for problem in scan.problems if problem.line == line]
                tests.append(self._test(line, "problem", self._report, here))
        return sorted(tests, key=lambda test: test.line)

    def _page(self, name: str, blocks: list[Block]) -> Page:
        page = Page(name, blocks, self.config.rootpath)
        self._opened.callback(page.close)
        return page

    def _test(self, line: int, kind: str, run: Callable[..., None], *given: Any) -> PlaceTest:
        test: PlaceTest = PlaceTest.from_parent(self, name=f"{line}-{kind}")
        test.line, test.run, test.given = line, partial(run, *given), given[-1]
        return test

    def _run(self, page: Callable[[], Page], block: Block) -> None:
        """Evaluate a block, and write down how it ended."""
        where = f"{block.page}:{block.line}"
        try:
            outcome = evaluate(page(), block, self.config.stash[_EVIDENCE])
        except Failure as failure:
            raise Failure(f"{where}: {failure}") from None
        if outcome == "skipped":
            pytest.skip(f"{where}: needs {needed(block)}, which is not installed")

    def _report(self, problems: list[Problem]) -> None:
        """Fail for a place that cannot be run as it is, and write that down."""
        page, line, _ = problems[0]
        block = Block(page, 0, line, line, "", (), {}, "", 0, self.path, 1)
        self.config.stash[_EVIDENCE].record(block, "failed", 0.0)
        raise Failure("\n".join(map(str, problems)))

    def teardown(self) -> None:
        """Close the pages that were opened."""
        self._opened.close()


class PlaceTest(pytest.Item):
    """A block or another place of a page. Its failure is a text for the writer of the page."""

    line: int
    run: Callable[[], None]
    given: Block | list[Problem]

    def runtest(self) -> None:
        """Do what the place is for."""
        self.run()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show that text, and a traceback for whatever else went wrong."""
        told = isinstance(excinfo.value, Failure)
        return str(excinfo.value) if told else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Say where it is."""
        return self.path, self.line - 1, self.name


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


def pytest_sessionstart(session: pytest.Session) -> None:
    """Write down that it began: if it is killed, that stays."""
    if not session.config.option.collectonly:
        session.config.stash[_EVIDENCE].begin()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the blocks of a page, or of a module."""
    root = parent.config.rootpath
    below = file_path.relative_to(root) if file_path.is_relative_to(root) else Path()
    is_page = below.suffix == ".md" and (
        below.parts[0] == "docs" or below.name in {"README.md", "CONTRIBUTING.md"}
    )
    is_module = below.suffix == ".py" and below.parts[:2] == ("src", "safepoint")
    return Source.from_parent(parent, path=file_path) if is_page or is_module else None


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
