"""Each deployment of the zoo gives the findings that it must give, at their places, and no others.

To see what one gives: pytest tests/zoo -k NAME. The page is filled by tests.harness.callouts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.commands import said
from tests.zoo.cases import CASES, Case


@pytest.fixture(autouse=True)
def _alike_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folders of tests are temporary, and modes are those that a deployment sets."""
    monkeypatch.setattr("safepoint.audit.folder.temp_folders", list)
    before = os.umask(0o077)
    yield
    os.umask(before)


def shown(found: dict[str, Any], root: Path) -> str:
    """Return its id, and its place below the folder: `.` is the folder, and KEY the id of a key."""
    place = found["where"].replace(f"{root}/", "").replace(str(root), ".")
    accepted = " accepted" if found["accepted"] else ""
    return f"{found['id']} {re.sub(r'^[0-9a-f]{16}$', 'KEY', place)}{accepted}"


def kept(root: Path) -> list[tuple[Any, ...]]:
    """Return all that is below a folder: nothing of it may change."""
    found = [(path, path.lstat()) for path in sorted(root.rglob("*"))]
    return [(p, s.st_mode, s.st_ino, s.st_mtime_ns, s.st_ctime_ns) for p, s in found]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_found_is_what_is_wrong(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, cwd = tmp_path / "root", tmp_path / "cwd"
    for each in (root, cwd):
        each.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(root))
    for variable in ("XDG_STATE_HOME", "XDG_DATA_HOME", "STATE_DIRECTORY"):
        monkeypatch.delenv(variable, raising=False)
    arguments = case.build(root) or [str(next(root.iterdir()))]
    before = kept(root)
    status, out, err = said("audit", *arguments, "--format", "json", folder=cwd)
    findings = json.loads(out or '{"findings": []}')["findings"]
    found = sorted(shown(each, root) for each in findings if each["id"] != "SP15.one-owner")
    assert (found, status) == (sorted(case.found), case.status), f"{out}{err}"
    open_ones = {each["severity"] for each in findings if not each["accepted"]}
    assert status != 0 or open_ones <= {"note"}
    assert "Traceback" not in err
    assert kept(root) == before
    assert not list(cwd.iterdir())  # where a pickle that runs would have made a folder
