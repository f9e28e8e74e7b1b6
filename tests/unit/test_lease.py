"""Who owns a thread: the words, and the edges of the clock. What a storage does is in its suite."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from safepoint.errors import CheckpointError, ConfigurationError, InvalidId, NotOwner
from safepoint.storage import InMemoryCheckpointStorage, LeasingStorage
from safepoint.storage.base import MAX_SECONDS, MAX_TOKEN, Lease, Ownership

NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
FIRST = Ownership("t").acquired("worker-a", 60, NOW)
LEASE = Lease("t", "worker-a", 1, NOW + timedelta(seconds=60))
FREE = Ownership("t", 1)
STOP = "Stop this run: another one took it over."
AGAIN = "acquire the thread, load its latest checkpoint, and decide again from there."
SECOND = FIRST.acquired("worker-b", 60, LEASE.expires)
TAKEN = "Thread 't' is owned by worker 'worker-b' with token 2, and this"


def at(moment: datetime) -> InMemoryCheckpointStorage:
    return InMemoryCheckpointStorage(clock=lambda: moment)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: FIRST.acquired("worker-b", 60, LEASE.expires - timedelta(microseconds=1)),
        (
            "Thread 't' is owned by worker 'worker-a' until 2026-01-31T09:31:00.000000Z. Wait until"
            " then, or let that worker release it. If it is dead for certain, own the thread under"
            " its name: what it saves is refused from then on."
        ),
    ),
    (
        lambda: Ownership("t", MAX_TOKEN).acquired("worker-a", 60, NOW),
        (
            "Thread 't' has handed out its last token. Somebody edited its lease. Go on in a new"
            " thread."
        ),
    ),
    (
        lambda: FIRST.check_fence(None),
        (
            "Thread 't' is owned by worker 'worker-a', and this save carries no token. Nothing was"
            " saved. Acquire the thread before you write to it."
        ),
    ),
    (lambda: SECOND.check_fence(1), f"{TAKEN} save carries token 1. Nothing was saved. {STOP}"),
    (
        lambda: FREE.check_fence(1),
        (
            "Thread 't' has no owner, and this save carries token 1. Nothing was saved. The lease"
            f" was released: {AGAIN}"
        ),
    ),
    (lambda: SECOND.renewed(LEASE, 60, NOW), f"{TAKEN} lease of worker 'worker-a' has token 1."),
    (lambda: SECOND.released(LEASE), f"{TAKEN} lease of worker 'worker-a' has token 1. {STOP}"),
    (
        lambda: SECOND.renewed(Lease("t", "worker-c", 2, NOW), 60, NOW),
        f"{TAKEN} lease of worker 'worker-c' has token 2. {STOP}",
    ),
    (
        lambda: FREE.renewed(LEASE, 60, NOW),
        f"Thread 't' has no owner, and this lease has token 1. It was released: {AGAIN}",
    ),
    (
        lambda: Ownership("t").released(LEASE),
        f"Thread 't' has no owner, and this lease has token 1. It was released: {AGAIN}",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_who_may_not_write_a_thread_is_told_why(call: Callable[[], object], message: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        call()
    assert str(caught.value).startswith(message)
    assert isinstance(caught.value, NotOwner) or "last token" in message


def test_who_may() -> None:
    """A restarted worker gets a new token, a renewed lease keeps its own, a free thread goes on."""
    assert Ownership("t", 1, LEASE) == FIRST
    assert FIRST.acquired("worker-a", 60, NOW).token == 2
    assert SECOND.holder == Lease("t", "worker-b", 2, NOW + timedelta(seconds=120))
    late = FIRST.renewed(LEASE, 60, NOW + timedelta(days=300))
    assert late.holder == Lease("t", "worker-a", 1, NOW + timedelta(days=300, seconds=60))
    assert FIRST.released(LEASE) == FREE == FREE.released(LEASE)
    assert FREE.acquired("worker-b", 60, NOW).token == 2
    FIRST.check_fence(1)
    FREE.check_fence(None)


def test_a_lease_that_ends_later_than_any_can_is_taken_over() -> None:
    """A clock in the year 2099, or an edited file, must not block a thread for so long."""
    longest = NOW + timedelta(seconds=MAX_SECONDS, hours=1)
    for end, taken in ((longest, False), (longest + timedelta(microseconds=1), True)):
        held = Ownership("t", 1, Lease("t", "worker-a", 1, end))
        if taken:
            assert held.acquired("worker-b", 60, NOW).token == 2
        else:
            with pytest.raises(NotOwner):
                held.acquired("worker-b", 60, NOW)


@pytest.mark.parametrize("seconds", [0.001, 1, MAX_SECONDS])
def test_the_clock_is_asked_in_any_time_zone(seconds: float) -> None:
    leasing: LeasingStorage = at(NOW.astimezone(timezone(timedelta(hours=5, minutes=30))))
    lease = leasing.acquire("t", "worker-a", seconds)
    assert lease.expires == NOW + timedelta(seconds=seconds)
    assert str(lease.expires.tzinfo) == "UTC"


ODD: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (InvalidId, "thread name", lambda: Lease("../t", "worker-a", 1, NOW)),
    (InvalidId, "worker name", lambda: Lease("t", "a\nb", 1, NOW)),
    (InvalidId, "'con' is the name of a device", lambda: at(NOW).acquire("t", "con", 60)),
    (ConfigurationError, "True is not the token of a lease", lambda: Lease("t", "a", True, NOW)),
    (
        ConfigurationError,
        "Pass the token of the Lease that acquire returned",
        lambda: at(NOW).append("t", 1, b"", fence=MAX_TOKEN + 1),
    ),
    (
        ConfigurationError,
        "61 is not a lease. Pass the Lease that acquire returned.",
        lambda: at(NOW).release(61),  # type: ignore[arg-type]
    ),
    (
        ConfigurationError,
        (
            "0 is not how many seconds a lease can last. Write a number from 0.001 to 86400, and"
            " renew the lease in good time."
        ),
        lambda: at(NOW).acquire("t", "worker-a", 0),
    ),
]


@pytest.mark.parametrize(("error", "message", "call"), ODD)
def test_odd_arguments_are_refused(
    error: type[Exception], message: str, call: Callable[[], object]
) -> None:
    """A lease becomes a path and a line of a file."""
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


def test_neither_a_lease_nor_a_storage_shows_state() -> None:
    assert str(LEASE) == "worker-a owns t with token 1 until 2026-01-31T09:31:00.000000Z"
    storage = at(NOW)
    storage.append("a", 1, b"canary")
    assert repr(storage) == "InMemoryCheckpointStorage(<1 threads>)"
