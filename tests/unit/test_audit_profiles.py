"""What others keep: each is built as they build it, and known by what it holds, with exact ids."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from safepoint.audit import folder
from safepoint.audit.profiles import (
    Recognised,
    recognise_database,
)
from safepoint.stores import disk
from tests.zoo.others import (
    agent,
    base,
    put,
)

if not disk.SUPPORTED:
    pytest.skip("modes and owners are POSIX", allow_module_level=True)

Build = Callable[[Path], object]
UNREAD = "an SQLite database that cannot be read"
UNKNOWN = "an SQLite database that is not known here"


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of these tests are in /tmp, and whoever runs them may be anywhere."""
    monkeypatch.setattr(folder, "temp_folders", list)
    monkeypatch.chdir("/")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "kept"
    place.mkdir(mode=0o700)
    yield place
    place.chmod(0o700)


def then(*steps: Build) -> Build:
    """Build by several steps."""

    def build(path: Path) -> None:
        for step in steps:
            step(path)

    return build


def ids(found: Recognised | None) -> str:
    return "" if found is None else " ".join(sorted(each.id for each in found.findings))


def fake(file: Path) -> None:
    """The names of others, and not their columns."""
    base(file, "create table checkpoints (a); create table writes (b)")


DATABASES: dict[str, tuple[Build, str, str]] = {
    "named like others": (fake, UNKNOWN, "SP02.foreign-database"),
    "empty": (
        lambda file: base(file, "create table a (b); drop table a"),
        UNKNOWN,
        "SP02.foreign-database",
    ),
    "at work": (
        then(agent, lambda file: put(Path(f"{file}-wal"), "7\x7f\6 newer")),
        "a database of an OpenClaw agent",
        "SP02.unseen SP12.unsealed-state",
    ),
    "damaged": (
        then(agent, lambda file: file.write_bytes(file.read_bytes()[:100] + b"\xff" * 4000)),
        UNREAD,
        "SP02.unseen",
    ),
    "cut off": (then(agent, lambda file: os.truncate(file, 5000)), UNREAD, "SP02.unseen"),
}


@pytest.mark.parametrize(("build", "name", "expected"), DATABASES.values(), ids=DATABASES)
def test_a_database_is_known_by_its_columns(
    root: Path, build: Build, name: str, expected: str
) -> None:
    file = root / "any name%20#?.db"
    build(file)
    before = {each: each.read_bytes() for each in root.iterdir()}
    found = recognise_database(str(file))
    assert found is not None
    assert (found.name, ids(found)) == (name, expected)
    assert {each: each.read_bytes() for each in root.iterdir()} == before
