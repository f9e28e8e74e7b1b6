"""The check of SP07: which threads have an owner."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from safepoint import FileCheckpointStorage, Keyring, Ledger, SigningKey
from safepoint.audit.ownership import check_ownership, check_ownership_at_time
from safepoint.errors import ConfigurationError
from safepoint.storage.file import StoredFolder


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
    with pytest.raises(ConfigurationError, match="This only looks"):
        StoredFolder(tmp_path / "state").acquire("order-7", "worker-1", 60)


def test_a_lease_that_no_storage_gives_is_an_error(ledger: Ledger, tmp_path: Path) -> None:
    """It would block the thread for ever."""
    ledger.own("order-7", "worker-1")
    ledger.save("order-7", {})
    lease = tmp_path / "state/order-7/lease"
    lease.write_text("safepoint-lease/1 5 mally 9999-12-31T23:59:59.999999Z\n")
    [line] = found(tmp_path / "state")
    assert line == (
        "SP07 error: Worker 'mally' owns thread 'order-7' until 9999-12-31T23:59:59.999999Z, and no"
        " lease lasts longer than 24 hours. Somebody edited it, or the clock of that worker is"
        " wrong. Find out, then own the thread under that worker's name and release it."
    )


@pytest.mark.parametrize(("hours", "lines"), [(24, 0), (25, 0), (26, 1)])
def test_clocks_may_differ_by_an_hour(
    ledger: Ledger, tmp_path: Path, hours: int, lines: int
) -> None:
    ledger.own("order-7", "worker-1")
    ledger.save("order-7", {})
    lease = StoredFolder(tmp_path / "state").lease("order-7")
    assert lease is not None
    assert len(found(tmp_path / "state", lease.expires - timedelta(hours=hours))) == lines


def test_the_last_token_there_is_is_an_error(ledger: Ledger, tmp_path: Path) -> None:
    with ledger.own("order-7", "worker-1"):
        ledger.save("order-7", {})
    lease = tmp_path / "state/order-7/lease"
    lease.write_text("safepoint-lease/1 999999999999999999 - -\n")
    assert found(tmp_path / "state") == [
        (
            "SP07 error: Thread 'order-7' has handed out its last token, so no worker can own it"
            " any more. Somebody edited its lease. Go on in a new thread."
        )
    ]
