"""SP05: what a leaked login can do, and what the server and the ledger say to it."""

from __future__ import annotations

import pytest

from safepoint import Ledger, RolledBack
from safepoint.core.names import Head
from tests.harness.optional import need
from tests.harness.postgres import Database
from tests.house import opened

need("psycopg", "psycopg: pip install '.[postgres]'")

import psycopg

from safepoint.stores.postgres import PostgresAnchor, PostgresCheckpointStorage


def ledger_of(database: Database, worker: int) -> Ledger:
    storage = PostgresCheckpointStorage(database.worker(worker))
    return opened(storage, PostgresAnchor(database.anchor))


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


def test_what_an_administrator_of_the_store_cuts_off_is_missed(orders: Database) -> None:
    """Nothing in the store shows it: the seals, the links and the heads are as they should be."""
    run_as(
        orders.owner,
        "set session_replication_role = replica",
        "delete from safepoint.records where thread = 'order-7' and sequence = 2",
    )
    assert opened(PostgresCheckpointStorage(orders.worker(1))).verify("order-7") == 1
    with pytest.raises(RolledBack) as seen:
        ledger_of(orders, 1).latest("order-7")
    assert seen.value.what == "order-7 ends at #1, and the anchor has seen #2."


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


def test_whoever_holds_both_operators_logins_rolls_back_on_record(orders: Database) -> None:
    """It is what remains. The database writes both down, and gives neither record away."""
    run_as(orders.operator, "select safepoint.discard('', 'order-7', 1)")
    PostgresAnchor(orders.anchor_operator).rewind("invoices", "order-7", None)
    assert ledger_of(orders, 1).latest("order-7").state["status"] == "approved"
    with psycopg.connect(orders.auditor) as connection:
        rows = connection.execute(
            "select thread, sequence, discarded_by from safepoint.discarded"
            " union all select thread, from_sequence, login from safepoint_anchor.rewinds"
        )
        assert rows.fetchall() == [("order-7", 2, "operator"), ("order-7", 2, "anchor_operator")]
