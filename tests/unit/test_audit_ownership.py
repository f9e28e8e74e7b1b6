"""The check of SP07: which threads have an owner."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from safepoint import ConfigurationError, FileCheckpointStorage, Keyring, Ledger, SigningKey
from safepoint.audit.ownership import check_ownership, check_ownership_at_time
from safepoint.audit.stored import StoredFolder


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    tmp_path.chmod(0o700)
    storage = FileCheckpointStorage(tmp_path / "state")
    return Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))


def found(path: Path, now: datetime | None = None) -> list[str]:
    return [str(each) for each in check_ownership_at_time(path, now or datetime.now(UTC))]


def test_a_thread_that_was_never_owned_is_a_note(ledger: Ledger, tmp_path: Path) -> None:
    ledger.save("order-7", {})
    [line] = found(tmp_path / "state")
    assert line == (
        "SP07 note: No worker ever owned thread 'order-7', so any worker may write it. Let workers"
        " own what they work on: with ledger.own(thread, worker)."
    )


def test_a_thread_that_is_owned_or_was_released_is_fine(ledger: Ledger, tmp_path: Path) -> None:
    with ledger.own("order-7", "worker-1"):
        ledger.save("order-7", {})
        assert check_ownership(tmp_path / "state") == []
    assert check_ownership(tmp_path / "state") == []


def test_an_owner_that_never_came_back_is_a_warning(ledger: Ledger, tmp_path: Path) -> None:
    ledger.own("order-7", "worker-1", seconds=60)
    ledger.save("order-7", {})
    later = datetime.now(UTC) + timedelta(hours=1)
    [line] = found(tmp_path / "state", later)
    assert line.startswith("SP07 warning: Worker 'worker-1' owned thread 'order-7' until ")
    assert line.endswith(
        ", and never released it. It may have died in the middle of its work. Find out, then let"
        " another worker own the thread and resume it."
    )


def test_a_lease_that_says_nothing_is_an_error(ledger: Ledger, tmp_path: Path) -> None:
    ledger.own("order-7", "worker-1")
    ledger.save("order-7", {})
    (tmp_path / "state/order-7/lease").write_text("worker-2\n")
    [line] = found(tmp_path / "state")
    assert line.startswith("SP07 error: ")
    assert "does not say who owns its thread" in line


def test_the_audit_owns_nothing(ledger: Ledger, tmp_path: Path) -> None:
    ledger.save("order-7", {})
    with pytest.raises(ConfigurationError, match="An audit changes nothing"):
        StoredFolder(tmp_path / "state").acquire("order-7", "worker-1", 60)
