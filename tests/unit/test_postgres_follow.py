"""follow on PostgreSQL: kept once, also if the answer is lost, and nowhere but at the end."""

from __future__ import annotations

import pytest

from safepoint import Keyring, Ledger, SigningKey
from safepoint.errors import NotOwner, RolledBack
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
