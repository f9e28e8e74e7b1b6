"""An event."""

from __future__ import annotations

from typing import Any

from safepoint.core.journal import Actor, Event


def event(number: int = 1, **fields: Any) -> Event:
    actor = Actor("ana", how="login")
    return Event("save", "intended", actor, "invoices", "order-7", number, **fields)
