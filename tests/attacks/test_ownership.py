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
from safepoint.errors import ResumeRefused
from tests.attacks.helpers import THREAD, refused

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


def test_a_former_owner_writes_nothing(storage: Any) -> None:
    former, successor = opened(storage), opened(storage)
    former.own(THREAD, "worker-1", seconds=SHORT)
    former.save(THREAD, {"step": 1})
    time.sleep(2 * SHORT)
    successor.own(THREAD, "worker-2")
    successor.save(THREAD, {"step": 2})
    assert refused(NotOwner, lambda: former.save(THREAD, {"step": "of the sleeper"})) == (
        "Thread 'order-7' is owned by worker 'worker-2' with token 2, and this save carries token"
        " 1. Nothing was saved. Stop this run: another one took it over."
    )
    assert successor.latest(THREAD).state == {"step": 2}


def test_neither_a_former_owner_nor_a_second_worker_takes_a_step(storage: Any) -> None:
    """It would be too late to refuse the save: the money would be gone."""
    did: list[str] = []

    def act(state: dict[str, Any]) -> None:
        did.append("act")

    workflow = Workflow("errand", [act])
    former, successor = opened(storage), opened(storage)
    former.own(THREAD, "worker-1", seconds=SHORT)
    run = workflow.begin(former, THREAD)
    time.sleep(2 * SHORT)
    with successor.own(THREAD, "worker-2"):
        refused(NotOwner, run.finish)
        said = refused(ResumeRefused, lambda: workflow.resume(opened(storage), THREAD))
        assert "Worker 'worker-2' owns the thread" in said
        assert did == []
        workflow.resume(successor, THREAD)
    assert did == ["act"]


def test_neither_a_script_nor_the_name_of_the_owner_is_enough(storage: Any) -> None:
    """A second process of the same name fences the first one off."""
    first, second = opened(storage), opened(storage)
    first.own(THREAD, "worker-1")
    assert refused(NotOwner, lambda: opened(storage).save(THREAD, {})) == (
        "Thread 'order-7' is owned by worker 'worker-1' with token 1, and this save carries no"
        " token. Nothing was saved. Acquire the thread before you write to it."
    )
    second.own(THREAD, "worker-1")
    second.save(THREAD, {"by": "second"})
    refused(NotOwner, lambda: first.save(THREAD, {"by": "first"}))


def test_a_lease_does_not_stop_whoever_can_write_the_store(tmp_path: Path) -> None:
    """It keeps honest workers apart. Without the lease, the owner is refused as well, and stops."""
    storage = FileCheckpointStorage(tmp_path / "store")
    owner = opened(storage)
    owner.own(THREAD, "worker-1")
    owner.save(THREAD, {"step": 1})
    (tmp_path / "store" / THREAD / "lease").unlink()
    opened(storage).save(THREAD, {"step": "of a script"})
    refused(NotOwner, lambda: owner.save(THREAD, {"step": 2}))
