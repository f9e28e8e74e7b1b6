"""The pytest plugin: collects blocks, keeps evidence, accounts for every skip.

It works the same in one process and in several (`-n`): what a test says of itself goes with its
report, and who gets all the reports counts them.
"""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.junitxml import xml_key
from sybil.integration.pytest import SybilFile, SybilItem

from tests.harness.blocks import Block, Project
from tests.harness.evidence import (
    Case,
    Properties,
    Read,
    Result,
    describe_block,
    describe_run,
    held_by,
    result_of,
    worst,
)
from tests.harness.shared import SHARED

MEMORY: Final = Path("/dev/shm")  # noqa: S108  the folder in it is made by tempfile
ROOM: Final = 2 << 30
_DEEP = "deep"
_BEGUN = pytest.StashKey[Properties]()
_CASES: dict[str, Case] = {}
_SKIPS: Counter[str] = Counter()
_FOUND: Counter[str] = Counter()
_SAID: list[str] = []


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Get ready to collect. Remove old evidence, and remember what is there."""
    for kept in (_CASES, _SKIPS, _FOUND, _SAID):
        kept.clear()
    config.addinivalue_line("markers", f"{_DEEP}: takes long, so `make deep` runs it")
    if SHARED not in os.environ:
        _prepare_folder(config)
    if xml_key in config.stash:
        Path(config.option.xmlpath).unlink(missing_ok=True)
        config.stash[_BEGUN] = describe_run(config.rootpath)


def _prepare_folder(config: pytest.Config) -> None:
    """Keep temporary files of all processes in one folder, in memory where there is room.

    Most of the time would go into waiting for the disk, and no test asks for that.
    """
    place = MEMORY if "TMPDIR" not in os.environ and has_room(MEMORY) else None
    folder = tempfile.TemporaryDirectory(prefix="t-", dir=place, ignore_cleanup_errors=True)
    Path(folder.name).chmod(0o1777)  # as the system's own, which other users can enter
    patch = pytest.MonkeyPatch()
    patch.setenv("TMPDIR", folder.name)
    patch.setenv(SHARED, f"{folder.name}/shared")
    patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # hundreds would compile the same
    patch.setattr(tempfile, "tempdir", folder.name)
    config.add_cleanup(folder.cleanup)
    config.add_cleanup(patch.undo)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is in memory is removed


def has_room(place: Path, room: int = ROOM) -> bool:
    """Tell whether files can be made there, and programs among them can be run."""
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        return False
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize >= room and not found.f_flag & os.ST_NOEXEC


_project: Final = cache(Project)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SybilFile | None:
    """Collect the blocks of a page, or of a module."""
    project = _project(parent.config.rootpath)
    if not project.should_parse(file_path):
        return None
    return SybilFile.from_parent(parent, path=file_path, sybils=[project])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage: nearly all that is made stays."""
    gc.disable()
    found = yield
    gc.freeze()
    gc.enable()
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what takes long to `make deep`, and to whoever asks for it with `-m` or by its name."""
    asked = config.option.markexpr or any("::" in argument for argument in config.args)
    deep = {item for item in items if item.get_closest_marker(_DEEP)} if not asked else set()
    _FOUND.update(found=len(items), deep=len(deep))
    items[:] = [item for item in items if item not in deep]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Let a test say what it is, and what of a rule it holds up."""
    item.user_properties += [("id", item.nodeid), *held_by(item)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a block say what it is."""
    report = yield
    if isinstance(item, SybilItem) and (report.when == "call" or report.failed):
        block: Block = item.example.parsed
        item.user_properties += describe_block(block)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep how a test ended."""
    _count_skip(report)
    expected = report.skipped and hasattr(report, "wasxfail")
    _keep(report.nodeid, "passed" if expected else result_of(report), report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Count a module that was skipped, or that cannot be collected."""
    _count_skip(report)
    if report.outcome != "passed":
        _keep(report.nodeid, report.outcome, report)
        _FOUND["broken"] += 1


def _keep(name: str, result: Result | None, report: Any) -> None:
    before = _CASES.get(name)
    found = worst(each for each in (result, before and before.result) if each)
    if found:
        said = [(key, value) for key, value in getattr(report, "user_properties", ())]
        _CASES[name] = Case(name, found, said)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what one of several processes has found; all find the same."""
    for name, count in getattr(node, "workeroutput", {}).get("found", {}).items():
        _FOUND[name] = max(count, _FOUND[name])


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in CI that skipped anything. Take the census, and write down the verdict."""
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["found"] = dict(_FOUND)
        return
    if _SKIPS and os.environ.get("CI") and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if _BEGUN not in config.stash:
        return
    left = max(_FOUND["found"] + _FOUND["broken"] - _FOUND["deep"] - len(_CASES), 0)
    chosen = config.args if config.args_source is config.ArgsSource.ARGS else []
    problems = 0
    if not (session.exitstatus or left or chosen):
        from tests.harness.census import judge  # which needs what makes the site

        problems, said = judge(config.rootpath, Read(None, list(_CASES.values())))
        _SAID.extend(said)
    if problems:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    numbers = {"left": left, "deep": _FOUND["deep"], "census": problems}
    end = [("exit", int(session.exitstatus)), ("chosen", " ".join(chosen)), *numbers.items()]
    for name, value in (*config.stash[_BEGUN], *end):
        config.stash[xml_key].add_global_property(name, value)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in public how many blocks ran and what was skipped, with the reasons."""
    counts = Counter(entry.outcome for entry in Read(None, list(_CASES.values())).entries)
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
    if _SAID:
        terminalreporter.write_line("\n".join(["== census", *_SAID]))


def _count_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "no reason"
        _SKIPS[str(reason).removeprefix("Skipped: ")] += 1
