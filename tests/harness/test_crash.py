"""The crash driver itself: it kills after each step, sees each, and tells what was left."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.harness.crash import failed, killed


def publish(folder: Path, text: str) -> None:
    """Write a file beside its place, sync it, and give it its name."""
    fd = os.open(folder / "next", os.O_WRONLY | os.O_CREAT, 0o600)
    data = text.encode()
    while data:
        data = data[os.write(fd, data) :]
    os.fsync(fd)
    os.close(fd)
    os.rename(folder / "next", folder / "it")  # noqa: PTH104 - what `os` does is the subject


def helper(folder: Path) -> None:
    (folder / "log").open("a").write("x")


def wrong(_: Path) -> None:
    raise LookupError("no step, and a mistake")


def test_each_step_fails_once(tmp_path: Path) -> None:
    runs = failed(publish, tmp_path, "new", code=errno.EIO)
    assert [run.steps[-1] for run in runs] == ["open", "write", "fsync", "rename", "rename"]
    assert {run.error for run in runs[:-1]} == {"OSError: [Errno 5] Input/output error"}
    assert [run.whole for run in runs] == [False] * 4 + [True]
    assert [(run.folder / "it").exists() for run in runs] == [False] * 4 + [True]


def test_work_that_the_driver_cannot_see_is_a_failure(tmp_path: Path) -> None:
    """A crash test that never crashed anything would be green for nothing."""
    with pytest.raises(AssertionError, match="no step that this driver sees"):
        killed(helper, tmp_path)
    with pytest.raises(AssertionError, match="no step, and a mistake"):
        killed(wrong, tmp_path)
