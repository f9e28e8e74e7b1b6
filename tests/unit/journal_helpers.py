"""An event, and what is said when something is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from safepoint.core.errors import CheckpointError
from safepoint.core.journal import Actor, Event


def event(number: int = 1, **fields: Any) -> Event:
    actor = Actor("ana", how="login")
    return Event("save", "intended", actor, "invoices", "order-7", number, **fields)


def refusal(error: type[CheckpointError], call: Callable[..., object], *arguments: Any) -> str:
    """Return what is said when a call is refused, by exactly this error."""
    with pytest.raises(error) as caught:
        call(*arguments)
    assert type(caught.value) is error
    return str(caught.value)
