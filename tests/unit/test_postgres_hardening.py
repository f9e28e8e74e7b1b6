"""PostgreSQL in bad hands: a spoiled thread is mended, and no row is believed that is none."""

# ruff: noqa: S608  the SQL of these tests is put together from names of their own

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from safepoint import Keyring, Ledger, Limits, SigningKey
from safepoint._postgres import migrating
from safepoint._postgres.refusals import comes_back
from safepoint.anchor.postgres import PostgresAnchor
from safepoint.errors import (
    CheckpointError,
    InvalidId,
    LimitExceeded,
    NotFound,
    NotOwner,
    RecordMalformed,
    RecordsMissing,
    RolledBack,
    StorageRefused,
    StorageUnavailable,
)
from safepoint.names import check_name
from safepoint.storage.postgres import PostgresCheckpointStorage, migrate
from tests.harness.postgres import Database
from tests.unit.postgres_helpers import refusal, without_guard

KEYS = Keyring(SigningKey.generate())
JUNK = (
    "insert into safepoint.checkpoints (thread, sequence, record, fence) values ('t', {}, 'junk',"
    " (select case when owner is not null then token end from safepoint.threads"
    " where thread = 't'))"
)
RIGHTS = (
    "Nothing was done. Use a login of the role that may do it, and keep it where only that job"
    " runs."
)


def storage(dsn: str, **options: Any) -> PostgresCheckpointStorage:
    return PostgresCheckpointStorage(dsn, **{"wait_seconds": 5.0, **options})


def run_as(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            done = connection.execute(statement)
        return done.fetchall() if done.description else []


def told(dsn: str, *statements: str) -> str:
    """What the server says when it refuses the last of them."""
    with pytest.raises(psycopg.Error) as refused:
        run_as(dsn, *statements)
    return f"{refused.value.sqlstate}: {refused.value.diag.message_primary}"


def ledger_of(database: Database, worker: int) -> Ledger:
    return Ledger(
        storage(database.worker(worker)),
        store="invoices",
        keys=KEYS,
        anchor=PostgresAnchor(database.anchor),
    )


@pytest.fixture
def operator(database: Database) -> Iterator[PostgresCheckpointStorage]:
    with storage(database.operator) as opened:
        yield opened


@pytest.fixture
def worker(database: Database) -> Iterator[PostgresCheckpointStorage]:
    with storage(database.worker(1)) as opened:
        yield opened


def filled(worker: PostgresCheckpointStorage, count: int = 3, thread: str = "t") -> None:
    for sequence in range(1, count + 1):
        worker.append(thread, sequence, b"%d" % sequence)


# A spoiled thread is mended


def test_a_thread_with_junk_at_its_end_goes_on_after_an_operator_has_discarded_it(
    database: Database, operator: PostgresCheckpointStorage
) -> None:
    ledger = ledger_of(database, 1)
    ledger.save("t", {"n": 1})
    ledger.save("t", {"n": 2})
    run_as(database.worker(1), JUNK.format(3), JUNK.format(4))
    with pytest.raises(CheckpointError):
        ledger.latest("t")
    assert operator.discard("t", 2) == 2
    assert ledger.latest("t").state == {"n": 2}
    assert ledger.save("t", {"n": 3}).sequence == 3
    assert ledger.verify("t") == 3


@pytest.mark.parametrize("reads", ["auditor", "operator"])
def test_what_was_discarded_is_kept_with_who_wrote_it_and_who_took_it_out(
    database: Database,
    operator: PostgresCheckpointStorage,
    worker: PostgresCheckpointStorage,
    reads: str,
) -> None:
    filled(worker)
    written = run_as(database.owner, "select written from safepoint.checkpoints order by sequence")
    operator.discard("t", 1)
    rows = run_as(
        getattr(database, reads),
        "select thread, sequence, record, fence, login, discarded_by, written,"
        " discarded_at > written from safepoint.discarded order by sequence",
    )
    assert rows == [
        ("t", n, b"%d" % n, None, "worker_1", "operator", *written[n - 1], True) for n in (2, 3)
    ]


def test_what_the_anchor_has_seen_is_not_discarded_unnoticed(
    database: Database, operator: PostgresCheckpointStorage
) -> None:
    ledger = ledger_of(database, 1)
    for n in (1, 2, 3):
        ledger.save("t", {"n": n})
    assert operator.discard("t", 2) == 1
    with pytest.raises(RolledBack) as seen:
        ledger.latest("t")
    assert seen.value.what == "t ends at #2, and the anchor has seen #3."


def test_to_discard_nothing_does_nothing(
    database: Database, operator: PostgresCheckpointStorage, worker: PostgresCheckpointStorage
) -> None:
    filled(worker)
    assert operator.discard("t", 3) == 0
    assert operator.discard("t", 2) == 1
    assert operator.discard("t", 2) == 0
    assert worker.head("t") == 2
    assert run_as(database.owner, "select count(*) from safepoint.discarded") == [(1,)]


def no_end(last: int) -> str:
    return (
        f"Thread 't' has no checkpoint {last}, so it cannot end there. Nothing was discarded. Name"
        " the last one that verifies. A thread of which none does, and which was not pruned, can"
        " end at 0."
    )


@pytest.mark.parametrize("last", [0, 1, 4, 9_999_999_999])
def test_a_pruned_thread_keeps_its_beginning(
    operator: PostgresCheckpointStorage, worker: PostgresCheckpointStorage, last: int
) -> None:
    filled(worker)
    operator.prune("t", 2, b"base")
    assert refusal(NotFound, lambda: operator.discard("t", last)) == no_end(last)
    assert (worker.head("t"), worker.base("t")) == (3, (2, b"base"))
    assert operator.discard("t", 2) == 1


def test_a_thread_that_is_not_there_has_nothing_to_discard(
    operator: PostgresCheckpointStorage,
) -> None:
    assert refusal(NotFound, lambda: operator.discard("t", 0)) == no_end(0)


def test_a_name_on_which_somebody_sat_is_free_again(
    database: Database, operator: PostgresCheckpointStorage, worker: PostgresCheckpointStorage
) -> None:
    """Somebody began the thread before its worker did, and at its very end."""
    run_as(database.worker(2), JUNK.format(9_999_999_999))
    assert refusal(NotFound, lambda: operator.discard("t", 5)) == no_end(5)
    assert operator.discard("t", 0) == 1
    assert (worker.head("t"), worker.threads()) == (0, [])
    lease = worker.acquire("t", "w", 60)
    worker.append("t", 1, b"one", fence=lease.token)
    assert worker.read("t", 1) == b"one"


@pytest.mark.parametrize("last", [-1, True, False, 1.0, "0", None, 10_000_000_000])
def test_where_a_thread_ends_is_0_or_a_sequence(
    operator: PostgresCheckpointStorage, last: Any
) -> None:
    assert refusal(InvalidId, lambda: operator.discard("t", last)).startswith(
        f"{last!r} is not a sequence number."
    )


@pytest.mark.parametrize("role", ["worker", "reader", "auditor"])
@pytest.mark.parametrize("function", ["discard", "break_lease"])
def test_nobody_but_an_operator_discards_or_breaks_a_lease(
    database: Database, worker: PostgresCheckpointStorage, role: str, function: str
) -> None:
    worker.acquire("t", "w", 60)
    dsn = database.worker(1) if role == "worker" else getattr(database, role)
    login = "worker_1" if role == "worker" else role
    with storage(dsn) as other:
        call = (
            (lambda: other.discard("t", 0))
            if function == "discard"
            else (lambda: other.break_lease("t"))
        )
        assert refusal(StorageRefused, call) == (
            f"Database '{database.name}' (login '{login}') refuses that: permission denied for"
            f" function {function}. {RIGHTS}"
        )
    assert worker.lease("t") is not None


CHANGES = {
    "update safepoint.discarded set record = 'x'": "update",
    "delete from safepoint.discarded": "delete",
    "truncate safepoint.discarded": "truncate",
}


@pytest.mark.parametrize("statement", CHANGES)
def test_what_was_discarded_is_never_changed(
    database: Database,
    operator: PostgresCheckpointStorage,
    worker: PostgresCheckpointStorage,
    statement: str,
) -> None:
    filled(worker)
    operator.discard("t", 1)
    for dsn in (database.worker(1), database.operator, database.auditor):
        assert told(dsn, statement) == "42501: permission denied for table discarded"
    assert told(database.owner, statement) == (
        f"SP006: discarded is append-only: {CHANGES[statement]} is refused"
    )
    for dsn in (database.operator, database.auditor):
        assert told(dsn, "insert into safepoint.discarded (thread) values ('t')") == (
            "42501: permission denied for table discarded"
        )
    assert told(database.reader, "select * from safepoint.discarded") == (
        "42501: permission denied for table discarded"
    )


def test_that_a_place_was_discarded_lets_nobody_delete_what_came_there_since(
    database: Database, operator: PostgresCheckpointStorage, worker: PostgresCheckpointStorage
) -> None:
    """Not even a superuser: the same bytes were written at another moment."""
    filled(worker)
    operator.discard("t", 1)
    worker.append("t", 2, b"2")
    worker.append("t", 3, b"3")
    assert told(database.owner, "delete from safepoint.checkpoints where sequence = 3") == (
        "SP006: checkpoints is append-only: delete is refused"
    )
    for head in (0, 1, 2):
        assert told(database.owner, f"update safepoint.threads set head = {head}") == (
            "SP006: thread t would go back"
        )
    assert told(database.operator, "delete from safepoint.checkpoints") == (
        "42501: permission denied for table checkpoints"
    )
    assert list(worker.scan("t", 1, 3)) == [b"1", b"2", b"3"]


def test_a_save_that_waits_for_a_discard_does_not_follow_upon_what_is_gone(
    database: Database, worker: PostgresCheckpointStorage
) -> None:
    filled(worker)
    said: list[str] = []
    with psycopg.connect(database.operator) as connection:
        connection.execute("select safepoint.discard('t', 1)")
        waits = threading.Thread(
            target=lambda: said.append(
                refusal(RecordsMissing, lambda: worker.append("t", 4, b"four"))
            )
        )
        waits.start()
        query = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        while run_as(database.owner, query) == [(0,)]:
            pass
        connection.commit()
        waits.join()
    assert said[0] == (
        "Thread 't' is at checkpoint 1, so 4 does not follow. Nothing was saved. Load the latest"
        " checkpoint and decide again from there."
    )
    assert worker.head("t") == 1


# A lease is broken


def test_while_another_login_has_a_lease_nothing_is_discarded(
    database: Database, operator: PostgresCheckpointStorage, worker: PostgresCheckpointStorage
) -> None:
    filled(worker)
    lease = worker.acquire("t", "mally", 86_400)
    said = refusal(NotOwner, lambda: operator.discard("t", 1))
    until = str(lease).rpartition(" ")[2]
    assert said == (
        f"Thread 't' is owned by worker 'mally' under another login until {until}. Nothing was"
        " discarded. Break the lease first: break_lease('t')."
    )
    assert worker.head("t") == 3
    assert operator.break_lease("t") is True
    assert operator.discard("t", 1) == 2


def test_a_lease_that_has_ended_or_is_ones_own_is_no_hindrance(
    database: Database, operator: PostgresCheckpointStorage, worker: PostgresCheckpointStorage
) -> None:
    filled(worker)
    worker.acquire("t", "w", 0.001)
    assert operator.discard("t", 2) == 1
    operator.acquire("t", "mending", 60)
    assert operator.discard("t", 1) == 1


def test_who_had_a_broken_lease_acquires_the_thread_first_like_everybody(
    database: Database, operator: PostgresCheckpointStorage, worker: PostgresCheckpointStorage
) -> None:
    lease = worker.acquire("t", "w", 86_400)
    worker.append("t", 1, b"one", fence=lease.token)
    assert operator.break_lease("t") is True
    assert operator.break_lease("t") is False
    assert worker.lease("t") is None
    assert refusal(NotOwner, lambda: worker.append("t", 2, b"two", fence=lease.token)) == (
        f"Thread 't' has no owner, and this save carries token {lease.token}. Nothing was saved."
        " The lease was released: acquire the thread, load its latest checkpoint, and decide again"
        " from there."
    )
    for other in (worker, operator):
        assert refusal(NotOwner, lambda other=other: other.append("t", 2, b"two")) == (
            "Thread 't' was written by another login, and this one has not acquired it. Nothing was"
            " saved. Acquire the thread, load its latest checkpoint, and decide again from there."
        )
    assert refusal(NotOwner, lambda: worker.renew(lease, 60)) == (
        f"Thread 't' has no owner, and this lease has token {lease.token}. It was released: acquire"
        " the thread, load its latest checkpoint, and decide again from there."
    )
    worker.release(lease)  # as with one that was released before
    assert operator.acquire("t", "mending", 60).token == lease.token + 1
    operator.append("t", 2, b"two", fence=lease.token + 1)


def test_who_broke_a_lease_is_written_down(
    database: Database, operator: PostgresCheckpointStorage, worker: PostgresCheckpointStorage
) -> None:
    for _ in range(2):
        worker.acquire("t", "w", 60)
        operator.break_lease("t")
    assert run_as(
        database.auditor, "select token, owner, login from safepoint.takings order by taken"
    ) == [
        (1, "w", "worker_1"),
        (1, None, "operator"),
        (2, "w", "worker_1"),
        (2, None, "operator"),
    ]


def test_a_thread_that_is_not_there_has_no_lease_to_break(
    operator: PostgresCheckpointStorage,
) -> None:
    assert refusal(NotFound, lambda: operator.break_lease("t")) == (
        "There is no thread 't'. Check its name: threads() lists them."
    )
    with pytest.raises(InvalidId):
        operator.break_lease("../t")


def test_nobody_releases_a_lease_of_another_login(
    database: Database, worker: PostgresCheckpointStorage
) -> None:
    lease = worker.acquire("t", "w", 60)
    with storage(database.worker(2)) as other, pytest.raises(NotOwner):
        other.release(lease)
    assert worker.lease("t") == lease


@pytest.mark.parametrize(
    ("call", "has"),
    [
        ("acquire('t', null, 60)", "a thread, an owner and seconds"),
        ("acquire('new', null, 60)", "a thread, an owner and seconds"),
        ("acquire(null, 'w', 60)", "a thread, an owner and seconds"),
        ("acquire('t', 'w', null)", "a thread, an owner and seconds"),
        ("renew(null, 'w', 1, 60)", "a thread, an owner, a token and seconds"),
        ("renew('t', null, 1, 60)", "a thread, an owner, a token and seconds"),
        ("renew('t', 'w', null, 60)", "a thread, an owner, a token and seconds"),
        ("renew('t', 'w', 1, null)", "a thread, an owner, a token and seconds"),
        ("release(null, 'w', 1)", "a thread, an owner and a token"),
        ("release('t', null, 1)", "a thread, an owner and a token"),
        ("release('t', 'w', null)", "a thread, an owner and a token"),
    ],
)
def test_a_lease_is_not_of_nobody(
    database: Database, worker: PostgresCheckpointStorage, call: str, has: str
) -> None:
    """It would leave a thread with an end of a lease and no owner, which nobody can use."""
    filled(worker)
    assert told(database.worker(1), f"select safepoint.{call}") == (
        f"22004: a lease has {has}, and one of them is null"
    )
    assert worker.threads() == ["t"]
    assert worker.acquire("t", "w", 60).token == 1


@pytest.mark.parametrize("part", ["owner = 'w'", "expires = now()"])
def test_not_even_an_administrator_leaves_half_a_lease(
    database: Database, worker: PostgresCheckpointStorage, part: str
) -> None:
    filled(worker)
    assert told(database.owner, f"update safepoint.threads set {part}") == (
        '23514: new row for relation "threads" violates check constraint "threads_check"'
    )


# Bases, sizes, names


def test_a_thread_is_not_pruned_without_a_base(
    database: Database, worker: PostgresCheckpointStorage
) -> None:
    filled(worker)
    assert told(database.operator, "select safepoint.prune('t', 2, null)") == (
        "22004: a base is bytes, and this is null"
    )
    assert worker.read("t", 1) == b"1"


LARGEST = 256 * 1024 * 1024


def test_the_server_takes_no_record_and_no_base_above_256_mib(
    database: Database, worker: PostgresCheckpointStorage
) -> None:
    """Whoever has a worker's login does not come through this package."""
    large = f"convert_to(repeat('x', {LARGEST + 1}), 'UTF8')"
    insert = (
        f"insert into safepoint.checkpoints (thread, sequence, record) values ('t', 1, {large})"
    )
    said = '23514: value for domain safepoint.record violates check constraint "record_check"'
    assert told(database.worker(1), insert) == said
    assert worker.threads() == []
    filled(worker)
    assert told(database.operator, f"select safepoint.prune('t', 2, {large})") == said
    assert worker.base("t") is None


def test_a_limit_above_that_of_the_server_is_that_of_the_server(database: Database) -> None:
    with storage(database.worker(1), limits=Limits(state_bytes=10**12)) as worker:
        large = bytes(LARGEST + 1)
        assert refusal(LimitExceeded, lambda: worker.append("t", 1, large)) == (
            f"The record has {LARGEST + 1} bytes or more, and the limit is {LARGEST}. Keep large"
            " data outside the state, or pass Limits(state_bytes=...) with a higher limit."
        )


@pytest.mark.parametrize("down", [False, True])
def test_a_scan_reads_about_a_megabyte_at_a_time(
    worker: PostgresCheckpointStorage, monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    sizes = [700_000] * 5 + [10] * 300
    for sequence, size in enumerate(sizes, 1):
        worker.append("t", sequence, b"%d" % (sequence % 10) * size)
    portions: list[int] = []
    run = worker._server.run

    def counted(act: Callable[[Any], Any]) -> Any:
        rows = run(act)
        portions.append(len(rows))
        return rows

    monkeypatch.setattr(worker._server, "run", counted)
    ends = (len(sizes), 1) if down else (1, len(sizes))
    order = list(enumerate(sizes, 1))
    assert list(worker.scan("t", *ends)) == [
        b"%d" % (n % 10) * size for n, size in (reversed(order) if down else order)
    ]
    assert portions == ([256, 46, 2, 1] if down else [2, 2, 256, 45])


NAMES = [
    *("con", "prn", "aux", "nul", "com0", "com9", "lpt1", "conn", "a-con", "com10", "com", "nul-1"),
    *("a", "0", "-a", "_a", "a_b-c", "A", "a b", "a\n", "\na", "é", "a" * 64, "a" * 65, "", "ａ"),
]


def allowed(name: str) -> bool:
    try:
        check_name("thread", name)
    except InvalidId:
        return False
    return True


@pytest.mark.parametrize("domain", ["safepoint", "safepoint_anchor", "safepoint_journal"])
def test_the_database_takes_the_names_that_the_package_takes(
    database: Database, domain: str
) -> None:
    for name in NAMES:
        statement = f"select {psycopg.sql.quote(name)}::{domain}.name"
        if allowed(name):
            assert run_as(database.owner, statement) == [(name,)]
        else:
            assert told(database.owner, statement) == (
                f'23514: value for domain {domain}.name violates check constraint "name_check"'
            )


def test_no_column_takes_the_name_of_a_device(database: Database) -> None:
    digest = "sha256:" + "0" * 64
    for dsn, statement in (
        (
            database.worker(1),
            "insert into safepoint.checkpoints (thread, sequence, record) values ('nul', 1, 'x')",
        ),
        (database.worker(1), "select safepoint.acquire('nul', 'w', 60)"),
        (database.worker(1), "select safepoint.acquire('t', 'con', 60)"),
        (database.anchor, f"insert into safepoint_anchor.heads values ('nul', 't', 1, '{digest}')"),
        (database.anchor, f"insert into safepoint_anchor.heads values ('s', 'nul', 1, '{digest}')"),
        (
            database.journal,
            "insert into safepoint_journal.lines (journal, number, line) values ('nul', 1, 'x')",
        ),
    ):
        assert told(dsn, statement).startswith("23514: value for domain safepoint"), statement


def test_a_name_that_is_none_is_not_listed(
    database: Database, worker: PostgresCheckpointStorage
) -> None:
    """The owner of the database can take a rule away, and nobody else."""
    filled(worker)
    run_as(
        database.owner,
        "alter domain safepoint.name drop constraint name_check",
        "insert into safepoint.threads (thread, head, login) values ('../x', 1, 'worker_1'),"
        " ('nul', 1, 'worker_1'), ('u', 1, 'worker_1')",
    )
    assert worker.threads() == ["t", "u"]


def test_no_login_builds_upon_the_types_of_the_schema(database: Database) -> None:
    for each in ("name", "sequence", "token", "record"):
        assert told(database.worker(1), f"create temp table x (y safepoint.{each})") == (
            f"42501: permission denied for type safepoint.{each}"
        )


# Rows that only the owner of the database can make


@contextmanager
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if something is tried again."""

    def sleep(_: float) -> None:
        raise AssertionError("it was tried again")

    with monkeypatch.context() as patched:
        patched.setattr("safepoint._postgres.connections.time.sleep", sleep)
        yield


LOOSE = "alter table safepoint.threads alter column {} drop not null"
ENDS = {
    "a head below 0": "update safepoint.threads set head = -5",
    "a head above all": "update safepoint.threads set head = 10000000000",
    "no head": f"{LOOSE.format('head')}; update safepoint.threads set head = null",
}
BEGINS = {
    "a first above the head": "update safepoint.threads set first = 99",
    "no first": f"{LOOSE.format('first')}; update safepoint.threads set first = null",
    "no token": f"{LOOSE.format('token')}; update safepoint.threads set token = null",
}
HALF = "alter table safepoint.threads drop constraint threads_check; update safepoint.threads set"
LEASES = {
    "for ever": "update safepoint.threads set owner = 'w', token = 1, expires = 'infinity'",
    "since ever": "update safepoint.threads set owner = 'w', token = 1, expires = '-infinity'",
    "before year 1": "update safepoint.threads set owner = 'w', token = 1, expires = '0044-1-1 BC'",
    "in 20000": "update safepoint.threads set owner = 'w', token = 1, expires = '20000-01-01'",
    "token 0": "update safepoint.threads set owner = 'w', token = 0, expires = now()",
    "no end": f"{HALF} owner = 'w', token = 1",
    "no owner": f"{HALF} token = 1, expires = now()",
    "an owner that is none": (
        "alter domain safepoint.name drop constraint name_check;"
        "update safepoint.threads set owner = '../w', token = 1, expires = now()"
    ),
}


def malformed(database: Database) -> str:
    return (
        f"Database '{database.name}' (login 'worker_1') does not say where thread 't' begins and"
        " ends or who owns it, so nothing of the thread is saved. Somebody else wrote it, or the"
        " disk failed. Put the database back from a backup."
    )


@pytest.mark.parametrize("spoil", [*ENDS, *BEGINS, *LEASES])
def test_a_row_of_a_thread_that_says_nothing_is_one_error(
    database: Database,
    worker: PostgresCheckpointStorage,
    monkeypatch: pytest.MonkeyPatch,
    spoil: str,
) -> None:
    filled(worker)
    statement = {**ENDS, **BEGINS, **LEASES}[spoil]
    without_guard(database.server, database.name, "safepoint.threads", statement)
    with at_once(monkeypatch):
        assert refusal(StorageUnavailable, lambda: worker.lease("t")) == malformed(database)
        if spoil in ENDS:
            assert refusal(StorageUnavailable, lambda: worker.head("t")) == malformed(database)
        if spoil not in ("no token", "no owner"):  # which no save asks for
            assert refusal(StorageUnavailable, lambda: worker.append("t", 4, b"4")) == malformed(
                database
            )
        assert worker.read("t", 2) == b"2"
        assert list(worker.scan("t", 1, 3)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("spoil", [each for each in LEASES if each != "an owner that is none"])
def test_a_lease_that_nobody_can_have_is_taken_over(
    database: Database, worker: PostgresCheckpointStorage, spoil: str
) -> None:
    """One that never ends would block its thread for ever."""
    filled(worker)
    without_guard(database.server, database.name, "safepoint.threads", LEASES[spoil])
    with storage(database.worker(2)) as other:
        lease = other.acquire("t", "other", 60)
        assert other.lease("t") == lease
        other.append("t", 4, b"4", fence=lease.token)


def test_a_base_of_a_thread_without_a_beginning(
    database: Database, worker: PostgresCheckpointStorage, operator: PostgresCheckpointStorage
) -> None:
    filled(worker)
    operator.prune("t", 2, b"base")
    without_guard(database.server, database.name, "safepoint.threads", BEGINS["no first"])
    assert refusal(StorageUnavailable, lambda: worker.base("t")) == malformed(database)


def test_a_thread_that_has_handed_out_its_last_token(
    database: Database, worker: PostgresCheckpointStorage
) -> None:
    filled(worker)
    run_as(database.owner, "update safepoint.threads set token = 999999999999999999")
    assert refusal(StorageUnavailable, lambda: worker.acquire("t", "w", 60)) == (
        "Thread 't' has handed out its last token. Somebody edited its lease. Go on in a new"
        " thread."
    )


def test_a_record_that_is_not_bytes(
    database: Database, worker: PostgresCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(worker)
    without_guard(
        database.server,
        database.name,
        "safepoint.checkpoints",
        "alter table safepoint.checkpoints alter column record drop not null;"
        "update safepoint.checkpoints set record = null where sequence = 2",
    )
    said = (
        "Checkpoint 2 of thread 't' is not bytes. This storage never keeps anything else. Put the"
        " database back from a backup."
    )
    with at_once(monkeypatch):
        assert refusal(RecordMalformed, lambda: worker.read("t", 2)) == said
        assert refusal(RecordMalformed, lambda: list(worker.scan("t", 1, 3))) == said


def test_what_the_driver_cannot_read_is_no_lost_connection(
    database: Database, worker: PostgresCheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(connection: Any) -> object:
        return connection.execute("select 'infinity'::timestamptz").fetchone()

    with at_once(monkeypatch):
        said = refusal(StorageUnavailable, lambda: worker._server.run(ask))
    assert said == (
        f"What the server of database '{database.name}' (login 'worker_1') sent cannot be read:"
        " timestamp too large (after year 10K): 'infinity'. Somebody else wrote it, or changed"
        " the schema. Put the database back from a backup."
    )


# Connections that the server has not


@pytest.mark.parametrize(
    "said",
    [
        "FATAL:  sorry, too many clients already",
        'FATAL:  too many connections for role "worker_1"',
        'FATAL:  too many connections for database "checkpoints"',
        "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute",
        "FATAL:  remaining connection slots are reserved for non-replication superuser connections",
        "FATAL:  the database system is starting up",
    ],
)
def test_a_server_that_is_full_is_tried_again(said: str) -> None:
    assert comes_back(psycopg.OperationalError(f"connection failed: {said}"))


def wait_until_nobody_is_there(database: Database) -> None:
    """A server notices only later that somebody has left."""
    count = "select count(*) from pg_stat_activity where usename = 'crowded'"
    while database.server.psql(count) != "0":
        time.sleep(0.05)


def test_a_login_with_no_connection_left_is_told_and_then_let_in(database: Database) -> None:
    dsn = database.dsn("crowded", "safepoint_writer")
    database.server.psql("alter role crowded connection limit 1")
    with psycopg.connect(dsn):
        assert refusal(StorageUnavailable, lambda: storage(dsn)) == (
            f"The server of database '{database.name}' (login 'crowded') has no connection left for"
            " this login. Find out who holds them: select usename, count(*) from pg_stat_activity"
            " group by 1. A login is kept from taking all with: alter role worker_1 connection"
            " limit 20"
        )
    wait_until_nobody_is_there(database)
    with storage(dsn, wait_seconds=60) as worker:
        worker.append("t", 1, b"one")
        worker.close()
        wait_until_nobody_is_there(database)
        holds = psycopg.connect(dsn)
        leaves = threading.Timer(0.3, holds.close)
        leaves.start()
        assert worker.head("t") == 1
        leaves.join()


def test_a_library_that_is_not_there_is_not_a_server_that_is_not_there(database: Database) -> None:
    dsn = database.dsn("odd_library", "safepoint_writer")
    run_as(dsn, "alter role current_user set local_preload_libraries = 'nope'")
    said = refusal(StorageUnavailable, lambda: storage(dsn))
    run_as(database.owner, "alter role odd_library reset all")
    assert said == (
        f"The server of database '{database.name}' (login 'odd_library') begins no session: a"
        " setting of the login or the database names a library that is not there. Let an"
        " administrator reset that: alter role worker_1 reset all; alter role worker_1 in database"
        " checkpoints reset all"
    )
    storage(dsn).close()


def test_migrate_does_not_wait_for_ever_for_a_lock_that_anybody_can_hold(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert migrating._OPTIONS.endswith("-c lock_timeout=10s")
    options = migrating._OPTIONS.replace("10s", "200ms")
    monkeypatch.setattr(migrating, "_OPTIONS", options)
    with psycopg.connect(database.worker(1)) as connection:
        connection.execute("select pg_advisory_lock(%s)", (migrating._LOCK,))
        assert refusal(StorageUnavailable, lambda: migrate(database.owner)) == (
            f"The server of database '{database.name}' (login 'postgres') took too long: canceling"
            " statement due to lock timeout. Nothing was done. See what it is busy with: select *"
            " from pg_stat_activity"
        )
    assert migrate(database.owner) == ()
