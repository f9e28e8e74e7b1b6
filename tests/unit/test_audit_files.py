"""Looking below a folder: bounded, sorted, without following links, and never silent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safepoint.audit import Finding
from safepoint.audit import files as looking
from safepoint.audit.files import Closed, files, guarded


def names(root: Path, closed: Closed | None = None) -> list[str]:
    found = files(str(root), Closed() if closed is None else closed)
    return [str(Path(file).relative_to(root)) for file in found]


def test_files_come_before_folders_and_each_sorted(tmp_path: Path) -> None:
    for folder in ("b/z", "a"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("z", "b/y", "b/z/1", "a/2", "a/1", "c"):
        (tmp_path / file).touch()
    assert names(tmp_path) == ["c", "z", "a/1", "a/2", "b/y", "b/z/1"]


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").touch()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root/self").symlink_to(tmp_path / "root")
    assert not any("file" in name for name in names(tmp_path / "root"))


def test_what_lies_too_deep_is_kept_as_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "DEEPEST", 2)
    (tmp_path / "a/b/c/d").mkdir(parents=True)
    for folder in ("a", "a/b", "a/b/c"):
        (tmp_path / folder / "file").touch()
    closed = Closed()
    assert names(tmp_path, closed) == ["a/file", "a/b/file"]
    assert closed == {f"{tmp_path}/a/b/c": "it lies 3 folders deep"}


def test_a_closed_folder_is_kept_and_the_walk_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is gone by now is not: a busy store may have removed it."""
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").touch()
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("/a"):
            raise PermissionError(13, "Permission denied", path)
        if str(path).endswith("/b"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    closed = Closed()
    assert names(tmp_path, closed) == ["c/file"]
    assert closed == {f"{tmp_path}/a": "Permission denied"}


def test_what_was_found_before_the_system_refused_is_kept() -> None:
    finding = Finding("SP13", "error", "This is so.", "Do that.", "/x")

    def look(error: OSError) -> Iterator[Finding]:
        yield finding
        raise error

    kept, warning = guarded("SP13", "/x", look(PermissionError(13, "Permission denied")))
    assert kept is finding
    assert str(warning) == (
        "SP13 warning: /x could not be looked at as a whole (Permission denied). Look at it"
        " yourself, as a user who can read it."
    )
    assert list(guarded("SP13", "/x", look(FileNotFoundError(2, "gone")))) == [finding]
