"""SP05: what a leaked login can do, and what the server and the ledger say to it."""

from __future__ import annotations

import pytest

from safepoint import Keyring, Ledger, NotOwner, RolledBack, SigningKey
from safepoint.errors import WrongPlace
from safepoint.names import Head
from tests.harness.optional import need
from tests.harness.postgres import Database

need("psycopg", "psycopg: pip install 'safepoint[postgres]'")

import psycopg

from safepoint.postgres import PostgresAnchor, PostgresCheckpointStorage

KEYS = Keyring(SigningKey.generate())
PAST = {
    "update safepoint.checkpoints set record = 'x'": "permission denied for table checkpoints",
    "delete from safepoint.checkpoints": "permission denied for table checkpoints",
    "truncate safepoint.checkpoints": "permission denied for table checkpoints",
    "select * from safepoint.checkpoints for update": "permission denied for table checkpoints",
    "drop table safepoint.checkpoints": "must be owner of table checkpoints",
    "alter table safepoint.checkpoints disable trigger all": "must be owner of table checkpoints",
    "set session_replication_role = replica": (
        'permission denied to set parameter "session_replication_role"'
    ),
    "set role safepoint_owner": 'permission denied to set role "safepoint_owner"',
    "update safepoint.threads set head = 1": "permission denied for table threads",
    "delete from safepoint.takings": "permission denied for table takings",
    "select safepoint.prune('order-7', 2, 'x')": "permission denied for function prune",
    "update safepoint_anchor.heads set sequence = 1": (
        "permission denied for schema safepoint_anchor"
    ),
    "delete from safepoint_journal.records": "permission denied for schema safepoint_journal",
    "insert into safepoint.checkpoints (thread, sequence, record) values ('order-8', 2, 'x')": (
        "thread order-8 belongs to login worker_2, and worker_1 has not acquired it"
    ),
    "insert into safepoint.checkpoints (thread, sequence, record, login)"
    " values ('order-7', 3, 'x', 'worker_2')": "permission denied for table checkpoints",
}


def ledger_of(database: Database, worker: int) -> Ledger:
    return Ledger(
        PostgresCheckpointStorage(database.worker(worker)),
        store="invoices",
        keys=KEYS,
        anchor=PostgresAnchor(database.anchor),
    )


@pytest.fixture
def orders(database: Database) -> Database:
    """A store with a thread of each of two workers."""
    one = ledger_of(database, 1)
    one.save("order-7", {"payee": "alice", "status": "approved"})
    one.save("order-7", {"payee": "alice", "status": "cancelled"})
    ledger_of(database, 2).save("order-8", {"payee": "bob"})
    return database


def run_as(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize("statement", PAST)
def test_a_leaked_login_of_a_worker_cannot_change_the_past(
    orders: Database, statement: str
) -> None:
    with pytest.raises(psycopg.Error) as refused:
        run_as(orders.worker(1), statement)
    assert refused.value.diag.message_primary == PAST[statement]
    assert [ledger_of(orders, 1).verify(each) for each in ("order-7", "order-8")] == [2, 1]


def test_a_genuine_record_of_another_thread_is_not_believed(orders: Database) -> None:
    """It is what this login has: it can copy, and cannot seal."""
    run_as(
        orders.worker(1),
        "select safepoint.acquire('order-8', 'mally', 86400)",
        "insert into safepoint.checkpoints (thread, sequence, record, fence)"
        " select 'order-8', 2, record, 1 from safepoint.checkpoints"
        " where thread = 'order-7' and sequence = 1",
    )
    with pytest.raises(WrongPlace) as moved:
        ledger_of(orders, 2).latest("order-8")
    assert moved.value.what == (
        "The record at order-8 #2 of store invoices is the one of order-7 #1 of store invoices."
    )


def test_a_thread_that_was_taken_is_kept_and_written_down(orders: Database) -> None:
    """A leaked login can stop a thread. Its owner is told, and so is the auditor."""
    run_as(orders.worker(1), "select safepoint.acquire('order-8', 'mally', 86400)")
    with pytest.raises(NotOwner) as refused:
        ledger_of(orders, 2).save("order-8", {"payee": "bob", "status": "paid"})
    assert "Thread 'order-8' is owned by worker 'mally'" in refused.value.what
    with psycopg.connect(orders.auditor) as connection:
        rows = connection.execute("select thread, token, owner, login from safepoint.takings")
        assert rows.fetchall() == [("order-8", 1, "mally", "worker_1")]


def test_what_an_administrator_of_the_store_cuts_off_is_missed(orders: Database) -> None:
    """Nothing in the store shows it: the seals, the links and the heads are as they should be."""
    run_as(
        orders.owner,
        "set session_replication_role = replica",
        "delete from safepoint.checkpoints where thread = 'order-7' and sequence = 2",
        "update safepoint.threads set head = 1 where thread = 'order-7'",
    )
    alone = Ledger(PostgresCheckpointStorage(orders.worker(1)), store="invoices", keys=KEYS)
    assert alone.verify("order-7") == 1
    with pytest.raises(RolledBack) as seen:
        ledger_of(orders, 1).latest("order-7")
    assert seen.value.what == "order-7 ends at #1, and the anchor has seen #2."


def test_the_three_logins_and_the_key_together_do_not_change_the_past(orders: Database) -> None:
    """Whoever runs code in a worker has them. They can go on, and not back."""
    ledger = ledger_of(orders, 1)
    before = [ledger.storage.read("order-7", each) for each in (1, 2)]
    ledger.save("order-7", {"payee": "mally", "status": "approved"})
    with pytest.raises(psycopg.Error, match=r"^a head of the anchor never goes back"):
        run_as(orders.anchor, "update safepoint_anchor.heads set sequence = 1")
    for statement in ("delete from safepoint_anchor.heads", "truncate safepoint_anchor.heads"):
        with pytest.raises(psycopg.Error, match=r"^permission denied for table heads"):
            run_as(orders.anchor, statement)
    with pytest.raises(psycopg.Error, match=r"^permission denied for table records"):
        run_as(orders.journal, "delete from safepoint_journal.records")
    assert [ledger.storage.read("order-7", each) for each in (1, 2)] == before
    assert ledger.verify("order-7") == 3


def test_a_head_that_was_moved_too_far_stops_loads_until_the_anchors_operator_sets_it_back(
    orders: Database,
) -> None:
    far = Head(9_999_999_999, "sha256:" + "0" * 64)
    honest = PostgresAnchor(orders.anchor).read("invoices", "order-7")
    PostgresAnchor(orders.anchor).advance("invoices", "order-7", far)
    with pytest.raises(RolledBack):
        ledger_of(orders, 1).latest("order-7")
    PostgresAnchor(orders.anchor_operator).rewind("invoices", "order-7", honest)
    assert ledger_of(orders, 1).latest("order-7").state["status"] == "cancelled"


def test_neither_operator_rolls_back_alone(orders: Database) -> None:
    """The one takes records out, and is noticed. The other one cannot touch a record."""
    with pytest.raises(psycopg.Error, match=r"^permission denied for schema safepoint"):
        run_as(orders.anchor_operator, "select safepoint.discard('order-7', 1)")
    with pytest.raises(psycopg.Error, match=r"^permission denied for function rewind"):
        run_as(orders.operator, "select safepoint_anchor.rewind('invoices', 'order-7', null, null)")
    run_as(orders.operator, "select safepoint.discard('order-7', 1)")
    with pytest.raises(RolledBack):
        ledger_of(orders, 1).latest("order-7")


def test_whoever_holds_both_operators_logins_rolls_back_on_record(orders: Database) -> None:
    """It is what remains. The database writes both down, and gives neither record away."""
    run_as(orders.operator, "select safepoint.discard('order-7', 1)")
    PostgresAnchor(orders.anchor_operator).rewind("invoices", "order-7", None)
    assert ledger_of(orders, 1).latest("order-7").state["status"] == "approved"
    with psycopg.connect(orders.auditor) as connection:
        rows = connection.execute(
            "select thread, sequence, discarded_by from safepoint.discarded"
            " union all select thread, from_sequence, login from safepoint_anchor.rewinds"
        )
        assert rows.fetchall() == [("order-7", 2, "operator"), ("order-7", 2, "anchor_operator")]
