"""A storage in memory, on files and in SQLite, without an anchor and with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from safepoint import InMemoryAnchor
from tests.unit.desk import Desk
from tests.unit.tampered import Files, Memory, Rows, Writable


@pytest.fixture(params=["memory", "files", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Writable:
    if request.param == "memory":
        return Memory()
    return Files(tmp_path / "store") if request.param == "files" else Rows(tmp_path / "store.db")


@pytest.fixture(params=[False, True], ids=["no anchor", "anchored"])
def anchor(request: pytest.FixtureRequest) -> InMemoryAnchor | None:
    return InMemoryAnchor() if request.param else None


@pytest.fixture
def desk() -> Desk:
    return Desk()
