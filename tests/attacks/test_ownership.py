"""SP07: only the worker that owns a workflow writes its state."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from safepoint import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Keyring,
    Ledger,
    NotOwner,
    SigningKey,
    Workflow,
)
from safepoint.attacks.naive import NaiveLedger
from safepoint.errors import ResumeRefused

KEYS = Keyring(SigningKey.generate())
SHORT = 0.001


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return InMemoryCheckpointStorage()
    return FileCheckpointStorage(tmp_path / "store")


def opened(storage: Any) -> Ledger:
    """As each worker opens it."""
    return Ledger(storage, store="invoices", keys=KEYS)


def taken_over(storage: Any) -> tuple[Ledger, Ledger]:
    """A worker that slept for too long, and its successor."""
    former, successor = opened(storage), opened(storage)
    former.own("order-7", "worker-1", seconds=SHORT)
    former.save("order-7", {"step": 1})
    time.sleep(2 * SHORT)
    successor.own("order-7", "worker-2")
    successor.save("order-7", {"step": 2})
    return former, successor


def test_both_write_on_the_naive_twin(tmp_path: Path) -> None:
    former, successor = NaiveLedger(tmp_path), NaiveLedger(tmp_path)
    former.save("order-7", {"step": 1})
    successor.save("order-7", {"step": 2})
    former.save("order-7", {"step": "of the sleeper"}, after=1)
    assert successor.latest("order-7").state == {"step": "of the sleeper"}


def test_a_former_owner_writes_nothing(storage: Any) -> None:
    former, successor = taken_over(storage)
    with pytest.raises(NotOwner) as refusal:
        former.save("order-7", {"step": "of the sleeper"})
    assert str(refusal.value) == (
        "Thread 'order-7' is owned by worker 'worker-2' with token 2, and this save carries token"
        " 1. Nothing was saved. Stop this run: another one took it over."
    )
    assert successor.latest("order-7").state == {"step": 2}


def test_a_former_owner_takes_no_step(storage: Any) -> None:
    """It would be too late to refuse the save: the money would be gone."""
    did: list[str] = []

    def act(state: dict[str, Any]) -> None:
        did.append("act")

    workflow = Workflow("errand", [act])
    former = opened(storage)
    former.own("order-7", "worker-1", seconds=SHORT)
    run = workflow.begin(former, "order-7")
    time.sleep(2 * SHORT)
    successor = opened(storage)
    successor.own("order-7", "worker-2")
    with pytest.raises(NotOwner):
        run.finish()
    assert did == []
    workflow.resume(successor, "order-7")
    assert did == ["act"]


def test_a_script_without_a_lease_writes_nothing(storage: Any) -> None:
    opened(storage).own("order-7", "worker-1")
    with pytest.raises(NotOwner) as refusal:
        opened(storage).save("order-7", {})
    assert str(refusal.value) == (
        "Thread 'order-7' is owned by worker 'worker-1', and this save carries no token. Nothing"
        " was saved. Acquire the thread before you write to it."
    )


def test_a_second_worker_does_not_resume(storage: Any) -> None:
    did: list[str] = []

    def act(state: dict[str, Any]) -> None:
        did.append("act")

    workflow = Workflow("errand", [act])
    owner = opened(storage)
    with owner.own("order-7", "worker-1"):
        workflow.begin(owner, "order-7")
        with pytest.raises(ResumeRefused, match="Worker 'worker-1' owns the thread"):
            workflow.resume(opened(storage), "order-7")
    assert did == []


def test_the_name_of_the_owner_is_not_enough(storage: Any) -> None:
    """A second process of the same name fences the first one off."""
    first, second = opened(storage), opened(storage)
    first.own("order-7", "worker-1")
    second.own("order-7", "worker-1")
    second.save("order-7", {"by": "second"})
    with pytest.raises(NotOwner):
        first.save("order-7", {"by": "first"})


def test_a_lease_does_not_stop_whoever_can_write_the_store(tmp_path: Path) -> None:
    """It keeps honest workers apart. Without the lease, the owner is refused as well, and stops."""
    storage = FileCheckpointStorage(tmp_path / "store")
    owner, script = opened(storage), opened(storage)
    owner.own("order-7", "worker-1")
    owner.save("order-7", {"step": 1})
    (tmp_path / "store" / "order-7" / "lease").unlink()
    script.save("order-7", {"step": "of a script"})
    with pytest.raises(NotOwner):
        owner.save("order-7", {"step": 2})
