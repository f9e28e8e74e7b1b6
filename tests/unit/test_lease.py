"""Who owns a thread: the edges of the clock. What a storage does is in its suite."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from safepoint.core.errors import InvalidId, NotOwner
from safepoint.core.storage import MAX_SECONDS, InMemoryCheckpointStorage, Lease

NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
LONGEST = timedelta(seconds=MAX_SECONDS, hours=1)


@pytest.mark.parametrize(("last", "free"), [(MOMENT, 0 * MOMENT), (LONGEST, LONGEST + MOMENT)])
def test_a_lease_is_taken_over_when_it_ends_or_ends_later_than_any_can(
    last: timedelta, free: timedelta
) -> None:
    """A clock in the year 2099, or an edited file, must not block a thread for so long."""
    with pytest.raises(NotOwner, match="is owned by worker 'worker-a' until 2026-"):
        Lease("t", "worker-a", 1, NOW + last).acquired("worker-b", 60, NOW)
    assert Lease("t", "worker-a", 1, NOW + free).acquired("worker-b", 60, NOW).token == 2


@pytest.mark.parametrize("wrong", [("../t", "worker-a", 1), ("t", "a\nb", 1), ("t", "worker-a", 0)])
def test_a_lease_becomes_a_path_and_a_line_of_a_file(wrong: tuple[str, str, int]) -> None:
    with pytest.raises(InvalidId):
        Lease(*wrong, NOW)


@pytest.mark.parametrize("seconds", [0.001, MAX_SECONDS])
def test_the_clock_is_asked_in_any_time_zone(seconds: float) -> None:
    moment = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    lease = InMemoryCheckpointStorage(clock=lambda: moment).acquire("t", "worker-a", seconds)
    assert lease.expires == NOW + timedelta(seconds=seconds)
    assert str(lease.expires.tzinfo) == "UTC"
