"""The fixtures: each test has a database of its own, with the roles that migrate makes."""

from __future__ import annotations

import psycopg
import pytest

from tests.harness.postgres import Database

KINDS = ("reader", "anchor", "journal", "auditor", "operator", "anchor_operator")


def _one(dsn: str, query: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row and row[0]


@pytest.mark.parametrize("again", [1, 2])
def test_what_a_test_leaves_the_next_one_does_not_see(database: Database, again: int) -> None:
    assert _one(database.owner, "select count(*) from safepoint.checkpoints") == 0
    database.server.psql("create table left_behind (number int)", database=database.name)


def test_each_login_is_a_member_of_its_role_alone(database: Database) -> None:
    roles = "select string_agg(rolname, ' ') from pg_roles where rolname like 'safepoint_%'"
    member = f"{roles} and pg_has_role(current_user, oid, 'member')"
    for kind in KINDS:
        assert f"safepoint_{kind}" in str(_one(getattr(database, kind), member)).split()
    assert _one(database.worker(1), member) == "safepoint_writer"
    assert _one(database.worker(1), "select current_user") == "worker_1"
    assert _one(database.worker(2), "select current_user") == "worker_2"
    assert _one(database.reader, member) == "safepoint_reader"


@pytest.mark.parametrize("again", [1, 2])
def test_a_server_that_a_test_has_killed_is_there_for_the_next(
    database: Database, again: int
) -> None:
    assert _one(database.worker(1), "select count(*) from safepoint.threads") == 0
    database.server.kill()
