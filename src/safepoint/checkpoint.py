"""Checkpoint: the state of one thread at one sequence, already verified."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a ledger hands out. If you hold one, its seal, place and digest were checked.

    The `repr` leaves the state out, so that a log line cannot leak it.

    Attributes:
        store: the store that the ledger was opened for.
        thread: one run of one workflow.
        sequence: 1, 2, 3 … in the thread. Order comes from it, never from a clock.
        app: what wrote it, as told to `Ledger.save`.
        created: when it was written, in UTC, by the writer's clock. For people, not for ordering.
        previous: the digest of the checkpoint before it, or None for the first.
        digest: the digest of this one's sealed header, which covers everything else.
        tools: the digest of the tool set in force, or None.
        state: the decoded state. It is yours: changing it changes nothing stored.
    """

    store: str
    thread: str
    sequence: int
    app: str
    created: datetime
    previous: str | None
    digest: str
    tools: str | None
    state: Any = field(repr=False)
