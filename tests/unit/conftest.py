"""A storage, without an anchor and with one, a house, and a desk with people."""

from __future__ import annotations

import pytest

from safepoint import InMemoryAnchor
from tests.house import House, Memory, Plain
from tests.unit.desk import Desk


@pytest.fixture(params=[Memory, Plain])
def storage(request: pytest.FixtureRequest) -> Memory:
    found: Memory = request.param()
    return found


@pytest.fixture(params=[False, True], ids=["no anchor", "anchored"])
def anchor(request: pytest.FixtureRequest) -> InMemoryAnchor | None:
    return InMemoryAnchor() if request.param else None


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def house() -> House:
    return House()
