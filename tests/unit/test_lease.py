"""Who owns a thread: the words, and the edges of the clock. What a storage does is in its suite."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from safepoint.core.errors import CheckpointError, InvalidId, NotOwner
from safepoint.core.storage import MAX_SECONDS, InMemoryCheckpointStorage, Lease

NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
FIRST = Lease("t").acquired("worker-a", 60, NOW)
LEASE = Lease("t", "worker-a", 1, NOW + timedelta(seconds=60))
FREE = Lease("t", token=1)
SECOND = FIRST.acquired("worker-b", 60, LEASE.expires)
MOMENT = timedelta(microseconds=1)
LONGEST = NOW + timedelta(seconds=MAX_SECONDS, hours=1)
STOP = "Nothing was saved. Own the thread first; if another worker took it over, stop this run."
TAKEN = "Thread 't' is owned by worker 'worker-b' with token 2, and this"


def at(moment: Any) -> InMemoryCheckpointStorage:
    return InMemoryCheckpointStorage(clock=lambda: moment)


def held_until(end: datetime) -> Lease:
    return Lease("t", "worker-a", 1, end)


REFUSED: list[tuple[Callable[[], object], type[CheckpointError], str]] = [
    (lambda: FIRST.acquired("worker-b", 60, LEASE.expires - MOMENT), NotOwner, "until 2026-01-31T"),
    (lambda: held_until(LONGEST).acquired("worker-b", 60, NOW), NotOwner, "Thread 't' is owned"),
    (lambda: FIRST.check_fence(None), NotOwner, "carries no token. Nothing was saved. Own"),
    (lambda: SECOND.check_fence(1), NotOwner, f"{TAKEN} save carries token 1. Nothing was saved."),
    (lambda: FREE.check_fence(1), NotOwner, "token 1. Nothing was saved. Own the thread"),
    (lambda: SECOND.renewed(LEASE, 60, NOW), NotOwner, f"worker 'worker-a' has token 1. {STOP}"),
    (lambda: SECOND.released(Lease("t", "worker-c", 2, NOW)), NotOwner, f"has token 2. {STOP}"),
    (lambda: FREE.renewed(LEASE, 60, NOW), NotOwner, "has no owner, and this lease of worker"),
    (lambda: Lease("t").released(LEASE), NotOwner, "Thread 't' has no owner, and this lease"),
    # A lease becomes a path and a line of a file.
    (lambda: Lease("../t", "worker-a", 1, NOW), InvalidId, "'../t' is not a thread name."),
    (lambda: Lease("t", "worker-a", 0, NOW), InvalidId, "0 is not the token of a lease."),
    (lambda: Lease("t", "a\nb", 1, NOW), InvalidId, r"'a\nb' is not a worker name."),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED)
def test_who_may_not_write_a_thread_is_told_why(
    call: Callable[[], object], kind: type[CheckpointError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert message in str(caught.value)


def test_a_lease_that_ends_later_than_any_can_is_taken_over() -> None:
    """A clock in the year 2099, or an edited file, must not block a thread for so long."""
    assert held_until(LONGEST + MOMENT).acquired("worker-b", 60, NOW).token == 2


@pytest.mark.parametrize("seconds", [0.001, MAX_SECONDS])
def test_the_clock_is_asked_in_any_time_zone(seconds: float) -> None:
    moment = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    lease = at(moment).acquire("t", "worker-a", seconds)
    assert lease.expires == NOW + timedelta(seconds=seconds)
    assert str(lease.expires.tzinfo) == "UTC"
