"""Who owns a thread, and whose save counts: the same for every storage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from safepoint.errors import (
    ConfigurationError,
    Conflict,
    InvalidId,
    NotOwner,
    StorageUnavailable,
    quoted,
)
from safepoint.storage import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    LeasingStorage,
)
from safepoint.storage.base import MAX_TOKEN, Lease, Ownership

NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
Storage = InMemoryCheckpointStorage | FileCheckpointStorage


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.fixture(params=["memory", "files"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "memory":
        return InMemoryCheckpointStorage()
    return FileCheckpointStorage(tmp_path / "store")


def refused(error: type[Exception], call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(error) as caught:
        call(*args, **options)
    return str(caught.value)


def test_a_storage_that_leases_is_one_by_its_type(storage: Storage) -> None:
    """The assignment is for mypy; the methods are for a storage of your own."""
    leasing: LeasingStorage = storage
    assert leasing.lease("t") is None


def test_a_worker_that_slept_through_its_lease_saves_nothing(storage: Storage) -> None:
    """The attack that an expiry alone does not stop: it wakes up and goes on."""
    asleep = storage.acquire_at_time("t", "worker-a", 60, NOW)
    storage.append("t", 1, b"one", fence=asleep.token)
    awake = storage.acquire_at_time("t", "worker-b", 60, at(60))
    storage.append("t", 2, b"two", fence=awake.token)
    for sequence in (2, 3):
        told = refused(NotOwner, storage.append, "t", sequence, b"old", fence=asleep.token)
        assert told == (
            "Thread 't' is owned by worker 'worker-b' with token 2, and this save carries token 1."
            " Nothing was saved. Stop this run: another one took it over."
        )
    assert storage.head("t") == 2
    assert list(storage.scan("t", 1, 2)) == [b"one", b"two"]
    storage.append("t", 3, b"three", fence=awake.token)


def test_a_worker_that_sleeps_before_the_other_has_saved_saves_nothing_either(
    storage: Storage,
) -> None:
    asleep = storage.acquire_at_time("t", "worker-a", 60, NOW)
    storage.acquire_at_time("t", "worker-b", 60, at(61))
    with pytest.raises(NotOwner):
        storage.append("t", 1, b"old", fence=asleep.token)
    assert (storage.head("t"), storage.threads()) == (0, [])


def test_a_restarted_worker_fences_off_its_former_self(storage: Storage) -> None:
    """It need not wait: the name is its own."""
    old = storage.acquire_at_time("t", "worker-a", 60, NOW)
    new = storage.acquire_at_time("t", "worker-a", 60, at(1))
    assert (old.token, new.token) == (1, 2)
    assert refused(NotOwner, storage.append, "t", 1, b"old", fence=1) == (
        "Thread 't' is owned by worker 'worker-a' with token 2, and this save carries token 1."
        " Nothing was saved. Stop this run: another one took it over."
    )
    storage.append("t", 1, b"new", fence=2)
    assert refused(NotOwner, storage.renew_at_time, old, 60, at(2)) == (
        "Thread 't' is owned by worker 'worker-a' with token 2, and this lease of worker 'worker-a'"
        " has token 1. Stop this run: another one took it over."
    )
    assert refused(NotOwner, storage.release, old).startswith("Thread 't' is owned by")
    assert storage.lease("t") == new


def test_another_worker_waits_until_the_lease_ends(storage: Storage) -> None:
    first = storage.acquire_at_time("t", "worker-a", 60, NOW)
    assert first == Lease("t", "worker-a", 1, at(60))
    for moment in (NOW, at(59.999999)):
        told = refused(NotOwner, storage.acquire_at_time, "t", "worker-b", 60, moment)
        assert told == (
            "Thread 't' is owned by worker 'worker-a' until 2026-01-31T09:31:00.000000Z."
            " Wait until then, or let that worker release it. If it is dead for certain, own the"
            " thread under its name: what it saves is refused from then on."
        )
    assert storage.lease("t") == first
    assert storage.acquire_at_time("t", "worker-b", 60, at(60)).token == 2


def test_a_save_without_a_token_is_refused_while_the_thread_has_an_owner(storage: Storage) -> None:
    """Also after the lease has ended: nobody released it."""
    storage.acquire_at_time("t", "worker-a", 1, NOW - timedelta(days=300))
    assert refused(NotOwner, storage.append, "t", 1, b"one") == (
        "Thread 't' is owned by worker 'worker-a', and this save carries no token."
        " Nothing was saved. Acquire the thread before you write to it."
    )
    assert storage.head("t") == 0


def test_an_owner_goes_on_after_its_lease_ended_if_nobody_came(storage: Storage) -> None:
    """The token decides whose save counts. The clock does not."""
    lease = storage.acquire_at_time("t", "worker-a", 1, NOW - timedelta(days=300))
    storage.append("t", 1, b"one", fence=lease.token)
    assert storage.lease("t") == lease
    renewed = storage.renew_at_time(lease, 60, NOW)
    assert renewed == Lease("t", "worker-a", 1, at(60))
    assert storage.lease("t") == renewed
    with pytest.raises(NotOwner):
        storage.acquire_at_time("t", "worker-b", 60, at(59))


def test_a_token_of_a_thread_that_was_released_saves_nothing(storage: Storage) -> None:
    lease = storage.acquire_at_time("t", "worker-a", 60, NOW)
    storage.release(lease)
    assert storage.lease("t") is None
    assert refused(NotOwner, storage.append, "t", 1, b"one", fence=1) == (
        "Thread 't' has no owner, and this save carries token 1."
        " Nothing was saved. The lease was released: acquire the thread, load its latest"
        " checkpoint, and decide again from there."
    )
    assert refused(NotOwner, storage.renew_at_time, lease, 60, NOW) == (
        "Thread 't' has no owner, and this lease has token 1."
        " It was released: acquire the thread, load its latest checkpoint, and decide again from"
        " there."
    )
    storage.append("t", 1, b"one")


def test_a_thread_that_was_never_leased_takes_no_token(storage: Storage) -> None:
    with pytest.raises(NotOwner, match="Thread 't' has no owner, and this save carries token 7"):
        storage.append("t", 1, b"one", fence=7)
    for act in (storage.release, lambda lease: storage.renew(lease, 60)):
        with pytest.raises(NotOwner, match="Thread 't' has no owner, and this lease has token 7"):
            act(Lease("t", "worker-a", 7, NOW))
    assert (storage.lease("t"), storage.threads()) == (None, [])
    storage.append("t", 1, b"one")


def test_to_release_twice_does_nothing(storage: Storage) -> None:
    """Who does not know whether the first try counted tries again."""
    lease = storage.acquire_at_time("t", "worker-a", 60, NOW)
    storage.release(lease)
    storage.release(lease)
    other = storage.acquire_at_time("t", "worker-b", 60, NOW)
    told = refused(NotOwner, storage.release, lease)
    assert told == (
        "Thread 't' is owned by worker 'worker-b' with token 2, and this lease of worker 'worker-a'"
        " has token 1. Stop this run: another one took it over."
    )
    assert storage.lease("t") == other


def test_a_token_is_never_given_twice(storage: Storage) -> None:
    """Not after a release, an expiry, a restart, a prune, or a save without an owner."""
    tokens = []
    for number in range(1, 5):
        lease = storage.acquire_at_time("t", "worker-a", 60, NOW)
        tokens.append(lease.token)
        storage.append("t", 2 * number - 1, b"under a lease", fence=lease.token)
        storage.renew_at_time(lease, 60, NOW)
        storage.release(lease)
        storage.append("t", 2 * number, b"without")
        assert storage.prune("t", 2 * number, b"base") >= 1
        tokens.append(storage.acquire_at_time("t", "worker-b", 60, at(number)).token)
        tokens.append(storage.acquire_at_time("t", "worker-c", 60, at(number + 60)).token)
        storage.release(Lease("t", "worker-c", tokens[-1], NOW))
    assert tokens == list(range(1, 13))


def test_each_thread_has_an_owner_and_tokens_of_its_own(storage: Storage) -> None:
    first = storage.acquire_at_time("t", "worker-a", 60, NOW)
    second = storage.acquire_at_time("u", "worker-b", 60, NOW)
    assert (first.token, second.token) == (1, 1)
    storage.append("v", 1, b"free")
    assert [storage.lease(each) for each in "tuv"] == [first, second, None]


def test_a_thread_without_a_record_can_be_owned(storage: Storage) -> None:
    lease = storage.acquire_at_time("t", "worker-a", 60, NOW)
    assert (storage.threads(), storage.head("t"), storage.base("t")) == ([], 0, None)
    storage.append("t", 1, b"one", fence=lease.token)
    assert (storage.threads(), storage.head("t")) == (["t"], 1)


def test_an_owner_is_told_of_a_conflict_and_a_stranger_that_it_is_none(storage: Storage) -> None:
    lease = storage.acquire_at_time("t", "worker-a", 60, NOW)
    storage.append("t", 1, b"one", fence=lease.token)
    with pytest.raises(Conflict):
        storage.append("t", 1, b"again", fence=lease.token)
    with pytest.raises(NotOwner):
        storage.append("t", 1, b"again")
    storage.append("t", 2, b"two", fence=lease.token)
    storage.prune("t", 2, b"base")
    with pytest.raises(Conflict, match="begins at 2 by now"):
        storage.append("t", 1, b"again", fence=lease.token)
    with pytest.raises(NotOwner):
        storage.append("t", 1, b"again")


def test_prune_needs_no_token(storage: Storage) -> None:
    """It writes no state."""
    lease = storage.acquire_at_time("t", "worker-a", 60, NOW)
    for sequence in range(1, 5):
        storage.append("t", sequence, b"%d" % sequence, fence=lease.token)
    assert storage.prune("t", 4, b"base") == 3
    assert storage.lease("t") == lease
    storage.append("t", 5, b"5", fence=lease.token)


def test_a_lease_that_ends_later_than_any_can_is_taken_over(storage: Storage) -> None:
    """A clock in the year 2099, or an edited file, must not block a thread for so long."""
    far = NOW + timedelta(days=365 * 73)
    ahead = storage.acquire_at_time("t", "worker-a", 60, far)
    lease = storage.acquire_at_time("t", "worker-b", 60, NOW)
    assert (lease.owner, lease.token) == ("worker-b", 2)
    with pytest.raises(NotOwner):
        storage.append("t", 1, b"one", fence=ahead.token)


def test_a_clock_that_goes_back_gives_nobody_what_another_owns(storage: Storage) -> None:
    """A worker waits for longer then. The owner's name ends the wait, with a new token."""
    lease = storage.acquire_at_time("t", "worker-a", 60, NOW)
    for hours in (1, 24):
        with pytest.raises(NotOwner, match="is owned by worker 'worker-a' until 2026-01-31T09:31"):
            storage.acquire_at_time("t", "worker-b", 60, NOW - timedelta(hours=hours))
    storage.append("t", 1, b"one", fence=lease.token)
    back = NOW - timedelta(hours=1)
    assert storage.renew_at_time(lease, 60, back).expires == back + timedelta(seconds=60)
    again = storage.acquire_at_time("t", "worker-a", 60, back)
    assert (again.token, again.expires) == (2, back + timedelta(seconds=60))
    with pytest.raises(NotOwner):
        storage.append("t", 2, b"two", fence=lease.token)


def test_a_clock_that_goes_ahead_costs_the_owner_its_thread_and_nobody_a_save(
    storage: Storage,
) -> None:
    lease = storage.acquire_at_time("t", "worker-a", 60, NOW)
    thief = storage.acquire_at_time("t", "worker-b", 60, NOW + timedelta(days=300))
    with pytest.raises(NotOwner):
        storage.append("t", 1, b"one", fence=lease.token)
    storage.append("t", 1, b"one", fence=thief.token)


def test_time_zones_are_one_time(storage: Storage) -> None:
    there = timezone(timedelta(hours=-8))
    lease = storage.acquire_at_time("t", "worker-a", 60, NOW.astimezone(there))
    assert lease.expires == at(60)
    assert lease.expires.utcoffset() == timedelta(0)
    with pytest.raises(NotOwner, match=r"until 2026-01-31T09:31:00\.000000Z"):
        storage.acquire_at_time("t", "worker-b", 60, at(59).astimezone(there))


def test_without_a_time_it_is_now(storage: Storage) -> None:
    before = datetime.now(UTC)
    lease = storage.acquire("t", "worker-a", 60)
    renewed = storage.renew(lease, 86_400)
    after = datetime.now(UTC)
    assert before + timedelta(seconds=60) <= lease.expires <= after + timedelta(seconds=60)
    assert before + timedelta(days=1) <= renewed.expires <= after + timedelta(days=1)
    with pytest.raises(NotOwner):
        storage.acquire("t", "worker-b", 0.001)


SECONDS = [
    *(0, -1, 0.0, -0.0, 0.0009, 86_400.001, 86_401, 10**400, 1e308),
    *(float("nan"), float("inf"), float("-inf"), True, False, "60", b"60", None),
    *(Decimal(60), timedelta(seconds=60), [60], 60j),
]


@pytest.mark.parametrize("seconds", SECONDS, ids=lambda value: repr(value)[:20])
def test_seconds_of_a_wrong_kind_are_refused(storage: Storage, seconds: Any) -> None:
    lease = storage.acquire_at_time("t", "worker-a", 60, NOW)
    for call in (
        lambda: storage.acquire("u", "worker-a", seconds),
        lambda: storage.acquire_at_time("t", "worker-a", seconds, NOW),
        lambda: storage.renew(lease, seconds),
        lambda: storage.renew_at_time(lease, seconds, NOW),
    ):
        what, do = refused(ConfigurationError, call).split(" is not how many seconds ")
        assert len(what) <= 60
        assert do == (
            "a lease can last. Write a number from 0.001 to 86400, and renew the lease in good"
            " time."
        )
    assert (storage.lease("t"), storage.lease("u")) == (lease, None)


@pytest.mark.parametrize("seconds", [0.001, 1, 86_400, 86_400.0])
def test_seconds_that_a_lease_can_last(storage: Storage, seconds: float) -> None:
    lease = storage.acquire_at_time("t", "worker-a", seconds, NOW)
    assert lease.expires == at(seconds)
    assert storage.lease("t") == lease


LAST = datetime.max.replace(tzinfo=UTC)
EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
MOMENTS = {
    "no time zone": datetime(2026, 1, 31),  # noqa: DTZ001
    "a number": 1_769_851_800.0,
    "a text": "2026-01-31T09:30:00Z",
    "nothing": None,
    "the end of the calendar": LAST,
    "after it": datetime.max.replace(tzinfo=WEST),
    "before its beginning": datetime.min.replace(tzinfo=EAST),
}


@pytest.mark.parametrize("now", MOMENTS.values(), ids=MOMENTS)
def test_a_time_that_is_none_is_refused(storage: Storage, now: Any) -> None:
    lease = storage.acquire_at_time("t", "worker-a", 60, NOW)
    for call in (
        lambda: storage.acquire_at_time("t", "worker-a", 60, now),
        lambda: storage.renew_at_time(lease, 60, now),
    ):
        assert refused(ConfigurationError, call) == (
            "A lease needs a time that has a time zone, and an end within the calendar."
            " Write datetime.now(UTC)."
        )
    assert storage.lease("t") == lease


def test_a_lease_can_last_to_the_end_of_the_calendar_and_be_renewed_at_its_beginning(
    storage: Storage,
) -> None:
    lease = storage.acquire_at_time("t", "worker-a", 60, LAST - timedelta(seconds=60))
    assert storage.lease("t") == lease
    early = storage.renew_at_time(lease, 1, datetime.min.replace(tzinfo=UTC))
    assert storage.lease("t") == early
    told = refused(NotOwner, storage.acquire_at_time, "t", "b", 1, datetime.min.replace(tzinfo=UTC))
    assert "until 0001-01-01T00:00:01.000000Z" in told


GRAMMAR = "Use 1 to 64 of a-z, 0-9, '-' and '_', and start with a letter or digit."
NAMES: list[Any] = ["", "-", "_", "Worker", "a b", "a\n", "a/b", "\xe4", "a" * 65, None, 7]
REFUSALS = {name: f"{quoted(name)} is not a worker name. {GRAMMAR}" for name in NAMES}
REFUSALS["con"] = (
    "'con' is the name of a device on Windows. Choose another worker name, for example 'con-1'."
)


@pytest.mark.parametrize(("name", "told"), REFUSALS.items())
def test_owners_outside_the_grammar_are_refused(storage: Storage, name: Any, told: str) -> None:
    assert refused(InvalidId, storage.acquire, "t", name, 60) == told
    with pytest.raises(InvalidId, match="thread name"):
        storage.acquire(name, "worker-a", 60)
    with pytest.raises(InvalidId, match="thread name"):
        storage.lease(name)
    assert storage.lease("t") is None


@pytest.mark.parametrize("fence", [0, -1, True, "1", 1.0, MAX_TOKEN + 1, b"1", [1]])
def test_what_is_no_token_is_refused_and_not_compared(storage: Storage, fence: Any) -> None:
    """`True` and 1.0 are equal to 1, and are no tokens."""
    storage.acquire_at_time("t", "worker-a", 60, NOW)
    assert refused(ConfigurationError, storage.append, "t", 1, b"one", fence=fence) == (
        f"{fence!r} is not the token of a lease. Pass the token of the Lease that acquire returned."
    )
    with pytest.raises(ConfigurationError, match="is not the token of a lease"):
        Lease("t", "worker-a", fence, NOW)
    assert storage.head("t") == 0


@pytest.mark.parametrize("lease", [None, 1, ("t", "worker-a", 1, NOW), "worker-a"])
def test_what_is_no_lease_is_refused(storage: Storage, lease: Any) -> None:
    for call in (storage.release, lambda lease: storage.renew(lease, 60)):
        told = refused(ConfigurationError, call, lease)
        assert told.endswith(" is not a lease. Pass the Lease that acquire returned.")


def test_a_lease_is_checked_when_it_is_made() -> None:
    """It becomes a path and a line of a file."""
    with pytest.raises(InvalidId, match="thread name"):
        Lease("../t", "worker-a", 1, NOW)
    with pytest.raises(InvalidId, match="worker name"):
        Lease("t", "a\nb", 1, NOW)
    with pytest.raises(ConfigurationError, match="time zone"):
        Lease("t", "worker-a", 1, NOW.replace(tzinfo=None))


def test_a_lease_says_what_it_is() -> None:
    assert str(Lease("t", "worker-a", 7, NOW)) == (
        "worker-a owns t with token 7 until 2026-01-31T09:30:00.000000Z"
    )


def test_a_lease_of_the_right_token_and_another_name_is_nobodys(storage: Storage) -> None:
    """Two stores, or a thread whose leases began anew: the number alone is not the lease."""
    lease = storage.acquire_at_time("t", "worker-a", 60, NOW)
    stranger = Lease("t", "worker-b", 1, NOW)
    for call in (storage.release, lambda lease: storage.renew_at_time(lease, 60, NOW)):
        assert refused(NotOwner, call, stranger) == (
            "Thread 't' is owned by worker 'worker-a' with token 1, and this lease of worker"
            " 'worker-b' has token 1. Stop this run: another one took it over."
        )
    assert storage.lease("t") == lease


def test_the_last_token_is_the_last() -> None:
    """Nobody counts that far, but somebody may write it into the file."""
    before = Ownership("t", MAX_TOKEN - 1)
    last = before.acquired("worker-a", 60, NOW)
    assert last.token == MAX_TOKEN
    assert refused(StorageUnavailable, last.acquired, "worker-a", 60, NOW) == (
        "Thread 't' has handed out its last token. Somebody edited its lease. Go on in a new"
        " thread."
    )


def test_threads_of_one_process_get_one_owner_and_no_token_twice(storage: Storage) -> None:
    barrier, won, lost = Barrier(8), [], []

    def compete(name: str) -> None:
        barrier.wait()
        try:
            won.append(storage.acquire_at_time("t", name, 60, NOW))
        except NotOwner:
            lost.append(name)

    workers = [Thread(target=compete, args=(f"worker-{n}",)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (len(won), len(lost)) == (1, 7)
    assert storage.lease("t") == won[0]
    assert won[0].token == 1
