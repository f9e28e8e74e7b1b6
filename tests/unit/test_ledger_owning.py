"""Owning a thread: one worker writes, and a former one is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from safepoint import (
    InMemoryCheckpointStorage,
    InMemoryJournal,
    Keyring,
    Ledger,
    NotOwner,
    SigningKey,
    Workflow,
)
from safepoint.errors import ResumeRefused

KEYS = Keyring(SigningKey.generate())
State = dict[str, Any]


class Farm:
    """One store and many workers."""

    def __init__(self) -> None:
        self.late = timedelta(0)
        self.storage = InMemoryCheckpointStorage(clock=lambda: datetime.now(UTC) + self.late)
        self.journal = InMemoryJournal()
        self.ran: list[str] = []

    def ledger(self) -> Ledger:
        return Ledger(self.storage, store="invoices", keys=KEYS, journal=self.journal)

    def workflow(self) -> Workflow:
        def first(state: State) -> State:
            self.ran.append("first")
            return {}

        def second(state: State) -> State:
            self.ran.append("second")
            return {}

        return Workflow("invoice", [first, second])


@pytest.fixture
def farm() -> Farm:
    return Farm()


def test_only_the_owner_writes(farm: Farm) -> None:
    owner, other = farm.ledger(), farm.ledger()
    with owner.own("order-7", "worker-1"):
        owner.save("order-7", {})
        with pytest.raises(NotOwner) as refusal:
            other.save("order-7", {})
    assert str(refusal.value) == (
        "Thread 'order-7' is owned by worker 'worker-1', and this save carries no token. Nothing"
        " was saved. Acquire the thread before you write to it."
    )
    assert other.save("order-7", {}).sequence == 2  # free again


def test_a_former_owner_is_refused_and_its_step_does_not_run(farm: Farm) -> None:
    old, new = farm.ledger(), farm.ledger()
    old.own("order-7", "worker-1", seconds=60)
    run = farm.workflow().begin(old, thread="order-7")
    farm.late = timedelta(hours=1)
    farm.storage.acquire("order-7", "worker-2", 60)  # it took over
    with pytest.raises(NotOwner) as refusal:
        run.step()
    assert farm.ran == []
    assert "Stop this run: another one took it over." in str(refusal.value)
    with pytest.raises(NotOwner):
        old.save("order-7", {})
    assert new.latest("order-7").sequence == 1
    told = [(e.what, e.outcome) for e in farm.journal.show()]
    assert told == [
        ("own", "done"),
        ("save", "intended"),
        ("own", "refused"),
        ("save", "intended"),
        ("save", "refused"),
    ]


def test_a_step_renews_the_lease(farm: Farm) -> None:
    ledger = farm.ledger()
    owned = ledger.own("order-7", "worker-1", seconds=60)
    before = owned.lease.expires
    farm.workflow().start(ledger, thread="order-7")
    assert owned.lease.expires > before
    assert owned.renew().token == owned.lease.token == 1


def test_letting_go_of_a_thread_that_another_has_by_now_changes_nothing(farm: Farm) -> None:
    ledger, other = farm.ledger(), farm.ledger()
    owned = ledger.own("order-7", "worker-1")
    farm.late = timedelta(hours=1)
    farm.storage.acquire("order-7", "worker-2", 9999)
    owned.release()
    owned.release()
    assert other.owner("order-7") == "worker-2"


def test_where_a_lease_has_ended_no_step_runs_until_somebody_owns_the_thread(farm: Farm) -> None:
    """The storage refuses the save of anybody but the last holder, so nobody else acts first."""
    farm.workflow().begin(farm.ledger(), thread="order-7")
    farm.late = -timedelta(hours=1)
    farm.storage.acquire("order-7", "worker-1", 60)  # and it died
    farm.late = timedelta(0)
    other = farm.ledger()
    assert other.owner("order-7") is None
    assert other.holder("order-7") == "worker-1"
    with pytest.raises(ResumeRefused, match="Worker 'worker-1' owns the thread"):
        farm.workflow().resume(other, thread="order-7")
    assert farm.ran == []
    with other.own("order-7", "worker-2"):
        assert other.holder("order-7") is None
        farm.workflow().resume(other, thread="order-7")
    assert farm.ran == ["first", "second"]


def test_a_run_whose_thread_was_taken_meanwhile_takes_no_step(farm: Farm) -> None:
    run = farm.workflow().begin(farm.ledger(), thread="order-7")
    farm.ledger().own("order-7", "worker-2")
    with pytest.raises(NotOwner) as refusal:
        run.step()
    assert str(refusal.value) == (
        "Thread 'order-7' is held by worker 'worker-2', and this ledger does not own it. Own it"
        " first: what you save would be refused."
    )
    assert farm.ran == []
