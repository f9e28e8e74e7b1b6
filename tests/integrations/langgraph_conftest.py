"""The conftest.py that LangGraph's own tests run with: their checkpointer is SealedSaver.

It stands in for packages that the suite needs and this project does not have.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from enum import Enum
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import ANY, Mock

import pytest
from pydantic import BaseModel

from safepoint import InMemoryAnchor, InMemoryCheckpointStorage, Keyring, Ledger, SigningKey
from safepoint.core.errors import ConfigurationError
from safepoint.core.ledger import with_codec
from safepoint.core.names import DEFAULT_LIMITS
from safepoint.langgraph import SealedSaver, _graph_codec

os.environ["NO_DOCKER"] = "true"
sys.modules |= {name: Mock() for name in ("redis", "pytest_mock", "syrupy")}
from tests.upstream import *  # type: ignore[import-not-found]  # noqa: F403  their other fixtures


def _below(cls: type) -> Iterator[type]:
    below: list[type] = type.__subclasses__(cls)
    for each in below:
        yield each
        yield from _below(each)


@functools.cache
def _kept(cls: type) -> bool:
    """Tell whether a class is one that an application could list."""
    with suppress(ConfigurationError, AttributeError):
        _graph_codec([cls], DEFAULT_LIMITS)
        return is_dataclass(cls) or hasattr(cls, "_fields") or issubclass(cls, Enum | BaseModel)
    return False


class Listing(SealedSaver):
    """Lists the suite's classes before each run: many are made in the test itself."""

    listed: Mapping[str, type] = MappingProxyType({})

    def get_tuple(self, config: Any) -> Any:
        made = [*object.__subclasses__(), *_below(tuple), *_below(Enum), *_below(BaseModel)]
        own = [cls for cls in made if str(cls.__module__).startswith("tests.") and _kept(cls)]
        found = {cls.__qualname__.replace("<locals>.", ""): cls for cls in own}
        if found != self.listed:
            self.listed = found
            self._ledger = with_codec(self._ledger, _graph_codec(found, DEFAULT_LIMITS))
            for walk in self._threads.values():
                walk.ledger = self._ledger
        return super().get_tuple(config)


@pytest.fixture(params=["sealed"])
def sync_checkpointer() -> SealedSaver:
    storage, keys = InMemoryCheckpointStorage(), Keyring(SigningKey.generate())
    ledger = Ledger(storage, store="suite", keys=keys, anchor=InMemoryAnchor())
    return Listing(ledger, time_travel=True)


async_checkpointer = sync_checkpointer


@pytest.fixture
def mocker(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(where: str, side_effect: Any) -> None:
        monkeypatch.setattr(where, Mock(side_effect=side_effect))

    return SimpleNamespace(Mock=Mock, patch=put)


@pytest.fixture
def snapshot() -> Any:
    return ANY  # drawings and schemas of graphs: nothing of a checkpointer


def pytest_collection_modifyitems(items: list[Any]) -> None:
    items[:] = [one for one in items if any("_checkpointer" in name for name in one.fixturenames)]
