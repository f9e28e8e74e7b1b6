"""Each deployment of the zoo gives the findings that it must give, at their places, and no others.

To see what one gives: pytest tests/zoo -k NAME. The page is filled by tests.harness.callouts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safepoint.audit import command
from safepoint.audit.finding import Finding
from safepoint.audit.report import Report
from tests.unit.commands import said
from tests.zoo.cases import CASES


@pytest.fixture(autouse=True)
def _alike_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folders of tests are temporary, and modes are those that a deployment sets."""
    monkeypatch.setattr("safepoint.audit.folder.temp_folders", list)
    before = os.umask(0o077)
    yield
    os.umask(before)


def shown(found: Finding, root: Path) -> str:
    """Return its id, and its place below the folder: `.` is the folder, and KEY the id of a key."""
    place = found.where.replace(f"{root}/", "").replace(str(root), ".")
    return f"{found.id} {re.sub(r'^[0-9a-f]{16}$', 'KEY', place)}"


@pytest.mark.parametrize("name", CASES)
def test_what_is_found_is_what_is_wrong(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, reports, look = CASES[name], list[Report](), command.look

    def kept(*given: Any, **how: Any) -> Report:
        reports.append(look(*given, **how))
        return reports[-1]

    monkeypatch.setattr(command, "look", kept)
    root, cwd = tmp_path / name, tmp_path / "cwd"
    for each in (root, cwd):
        each.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(root))
    for variable in ("XDG_STATE_HOME", "XDG_DATA_HOME", "STATE_DIRECTORY"):
        monkeypatch.delenv(variable, raising=False)
    status, out, err = said("audit", *case.build(root), folder=cwd)
    findings = [each for report in reports for each in report.findings]
    found = {shown(each, root) for each in findings}
    assert (found, status) == ({*case.found}, case.status), f"{out}{err}"
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("zoo-marker"))


def test_there_are_enough_of_both() -> None:
    statuses = [each.status for each in CASES.values()]
    assert statuses.count(0) >= 10
    assert len(statuses) - statuses.count(0) >= 30
