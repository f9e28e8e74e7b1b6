"""follow on PostgreSQL: kept once, also if the answer is lost, and nowhere but at the end."""

from __future__ import annotations

import os
import signal

import pytest

from safepoint import Keyring, Ledger, SigningKey, Workflow
from safepoint.errors import NotOwner, RolledBack, StorageUnavailable
from safepoint.storage.postgres import PostgresCheckpointStorage
from tests.harness.postgres import Database
from tests.unit.postgres_helpers import Network
from tests.unit.test_postgres_faults import INSERT, through


@pytest.mark.parametrize("how", ["before", "during", "after"])
def test_an_answer_that_is_lost_doubles_nothing(database: Database, how: str) -> None:
    with (
        Network(database.server.port, times=1) as network,
        PostgresCheckpointStorage(through(database, network)) as storage,
    ):
        storage.append("t", 1, b"one")
        network.lose(INSERT, how)
        assert storage.follow("t", 2, b"two") is True
        assert network.lost == 1
        assert storage.follow("t", 3, b"three") is True
        assert list(storage.scan("t", 1, 3)) == [b"one", b"two", b"three"]


def test_a_thread_emptied_by_an_administrator_is_missed_before_a_save(database: Database) -> None:
    with PostgresCheckpointStorage(database.worker(1)) as storage:
        ledger = Ledger(storage, store="invoices", keys=Keyring(SigningKey.generate()))
        for step in range(3):
            ledger.save("t", {"step": step})
        database.server.psql(
            "set session_replication_role = replica; delete from safepoint.checkpoints;"
            " update safepoint.threads set head = 0",
            database=database.name,
        )
        with pytest.raises(RolledBack):
            ledger.save("t", {"step": 3})
        assert storage.head("t") == 0


def test_another_login_follows_no_thread_that_it_has_not_acquired(database: Database) -> None:
    with (
        PostgresCheckpointStorage(database.worker(1)) as one,
        PostgresCheckpointStorage(database.worker(2)) as two,
    ):
        one.append("t", 1, b"one")
        with pytest.raises(NotOwner):
            two.follow("t", 2, b"two")
        assert one.head("t") == 1


@pytest.mark.parametrize("verb", ["append", "follow"])
def test_two_cuts_in_a_row_double_nothing_and_alarm_nobody(database: Database, verb: str) -> None:
    """The record arrives, its answer is lost, and so is the answer to whether it is there."""

    class Twice(Network):
        """Cuts the insert after it was passed on, and then the look at what is there."""

        def _cuts(self, data: bytes, server: object) -> bool:
            cut = super()._cuts(data, server)  # type: ignore[arg-type]
            if cut and not self.looked:
                self.looked = True
                self.lose(b"octet_length(record)", "before")
            return cut

        looked = False

    with (
        Twice(database.server.port, times=2) as network,
        PostgresCheckpointStorage(through(database, network)) as storage,
    ):
        storage.append("t", 1, b"one")
        network.lose(INSERT, "after")
        getattr(storage, verb)("t", 2, b"two")
        assert network.lost == 2
        assert storage.head("t") == 2
        assert list(storage.scan("t", 1, 2)) == [b"one", b"two"]


def test_a_step_of_another_login_does_not_act_before_it_is_refused(database: Database) -> None:
    """A thread without a lease belongs to a login. It is told before it asks the bank."""
    asked = []

    def pay(state: dict[str, object]) -> dict[str, object]:
        asked.append(state)
        return {"paid": True}

    keys = Keyring(SigningKey.generate())
    with (
        PostgresCheckpointStorage(database.worker(1)) as one,
        PostgresCheckpointStorage(database.worker(2)) as two,
    ):
        workflow = Workflow("invoice", [pay])
        workflow.begin(Ledger(one, store="invoices", keys=keys), thread="t")
        with pytest.raises(NotOwner) as caught:
            workflow.resume(Ledger(two, store="invoices", keys=keys), thread="t")
        assert str(caught.value) == (
            "Thread 't' was written by another login, and this one has not acquired it."
            " Own it first: what you save would be refused."
        )
        assert asked == []


def test_a_server_that_hangs_is_not_waited_for_for_ever(database: Database) -> None:
    """Its kernel answers, and it does not."""
    with PostgresCheckpointStorage(database.worker(1), wait_seconds=0.5) as storage:
        storage.append("t", 1, b"one")
        process = storage._server.run(lambda connection: connection.info.backend_pid)
        os.kill(process, signal.SIGSTOP)
        try:
            with pytest.raises(StorageUnavailable) as caught:
                storage.append("t", 2, b"two")
        finally:
            os.kill(process, signal.SIGCONT)
        assert "does not answer. Whether checkpoint 2 of thread 't' was saved is not known." in str(
            caught.value
        )
