"""A storage in memory and on files, without an anchor and with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from safepoint import InMemoryAnchor
from tests.unit.desk import Desk
from tests.unit.tampered import Files, Memory


@pytest.fixture(params=["memory", "files"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Memory | Files:
    return Memory() if request.param == "memory" else Files(tmp_path / "store")


@pytest.fixture(params=[False, True], ids=["no anchor", "anchored"])
def anchor(request: pytest.FixtureRequest) -> InMemoryAnchor | None:
    return InMemoryAnchor() if request.param else None


@pytest.fixture
def desk() -> Desk:
    return Desk()
