"""Connections to PostgreSQL: shared by threads, never by processes, and each one pinned down."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from safepoint import Keyring, Ledger, SigningKey
from safepoint.anchor.postgres import PostgresAnchor
from safepoint.errors import StorageUnavailable
from safepoint.storage.postgres import PostgresCheckpointStorage
from tests.harness.postgres import Database
from tests.unit.postgres_helpers import alive, forked, refusal

KEYS = Keyring(SigningKey.generate())


def named(dsn: str, name: str, **words: str) -> str:
    return psycopg.conninfo.make_conninfo(dsn, application_name=name, **words)


@pytest.fixture
def name(database: Database) -> str:
    """What the server knows the connections of this test by."""
    return f"app-{database.name}"


@pytest.fixture
def storage(database: Database, name: str) -> Iterator[PostgresCheckpointStorage]:
    with PostgresCheckpointStorage(named(database.worker(1), name), wait_seconds=5) as opened:
        yield opened


def backend(storage: PostgresCheckpointStorage) -> int:
    return storage._server.run(lambda connection: connection.info.backend_pid)


def show(storage: PostgresCheckpointStorage, setting: str) -> str:
    [(value,)] = storage._server.run(
        lambda connection: connection.execute("select current_setting(%s)", (setting,)).fetchall()
    )
    return str(value)


# Threads


def test_16_threads_share_4_connections_and_nothing_is_mixed_up(
    database: Database, name: str, storage: PostgresCheckpointStorage
) -> None:
    """Each thread saves a run of its own, and all of them read it back."""
    with PostgresAnchor(named(database.anchor, name)) as anchor:
        ledger = Ledger(storage, store="invoices", keys=KEYS, anchor=anchor)
        failed: list[BaseException] = []
        most: list[int] = []

        def work(worker: int) -> None:
            try:
                for step in range(8):
                    ledger.save(f"order-{worker}", {"by": worker, "step": step})
                    assert ledger.latest(f"order-{worker}").state == {"by": worker, "step": step}
            except BaseException as error:  # noqa: BLE001  told below
                failed.append(error)

        threads = [threading.Thread(target=work, args=[worker]) for worker in range(16)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most.append(alive(database.server, name))
        for thread in threads:
            thread.join()
        assert failed == []
        assert 1 < max(most) <= 8, "4 for the storage, 4 for the anchor"
        for worker in range(16):
            states = [each.state for each in ledger.history(f"order-{worker}")]
            assert sorted(state["step"] for state in states) == list(range(8))
            assert {state["by"] for state in states} == {worker}
            assert ledger.verify(f"order-{worker}") == 8


def test_when_all_connections_are_in_use_the_next_one_is_told(database: Database) -> None:
    with PostgresCheckpointStorage(database.worker(1), connections=1, wait_seconds=0.3) as storage:
        said = refusal(
            StorageUnavailable, lambda: storage._server.run(lambda _: storage.append("t", 1, b"x"))
        )
        assert said == (
            f"All 1 connections to database '{database.name}' (login 'worker_1') are in use."
            " Nothing was done. Allow more with connections=, or let fewer threads share them."
        )
        storage.append("t", 1, b"x")


def test_one_who_waits_gets_the_connection_that_is_given_back(database: Database) -> None:
    with PostgresCheckpointStorage(database.worker(1), connections=1, wait_seconds=30) as storage:
        told: list[int] = []
        waiting = threading.Thread(target=lambda: told.append(storage.head("t")))

        def hold(_: Any) -> None:
            waiting.start()
            waiting.join(0.2)
            assert told == [], "there is one connection, and it is in use"

        storage._server.run(hold)
        waiting.join(20)
        assert told == [0]


def test_what_cannot_be_opened_takes_up_no_place(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostgresCheckpointStorage(database.worker(1), connections=1, wait_seconds=0.5) as storage:
        storage.close()

        def fail() -> None:
            raise ValueError

        with monkeypatch.context() as patch:
            patch.setattr(storage._server, "_opened", fail)
            for _ in range(3):
                with pytest.raises(ValueError):
                    storage.head("t")
        assert storage.head("t") == 0


def test_answers_in_text_and_in_binary_take_turns_on_one_connection(database: Database) -> None:
    with PostgresCheckpointStorage(database.worker(1), connections=1) as storage:
        for sequence in range(1, 12):  # long enough for the server to prepare each statement
            record = b"\\x00" * sequence
            storage.append("t", sequence, record)
            assert storage.head("t") == sequence
            assert storage.threads() == ["t"]
            assert storage.read("t", sequence) == record


def test_a_call_that_fails_gives_its_connection_back(database: Database, name: str) -> None:
    dsn = named(database.worker(1), name)
    with PostgresCheckpointStorage(dsn, connections=2, wait_seconds=0.5) as storage:

        def fail(_: Any) -> None:
            raise ValueError

        def leave_open(connection: Any) -> None:
            connection.execute("begin")

        def close(connection: Any) -> None:
            connection.close()

        for _ in range(5):
            with pytest.raises(ValueError):
                storage._server.run(fail)
            storage._server.run(leave_open)
            storage._server.run(close)
        storage.append("t", 1, b"x")
        assert alive(database.server, name) == 1, "what was left open is not used again"


def deep(storage: PostgresCheckpointStorage, depth: int) -> None:
    """Use so many connections at once."""
    storage._server.run(lambda _: deep(storage, depth - 1) if depth > 1 else None)


def test_many_that_were_lost_at_once_are_not_tried_one_by_one(
    database: Database, name: str
) -> None:
    """A server that was restarted is back at once, also for who had 40 connections to it."""
    dsn = named(database.worker(1), name)
    with PostgresCheckpointStorage(dsn, connections=40, wait_seconds=3) as storage:
        deep(storage, 40)
        assert alive(database.server, name) == 40
        database.server.psql(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"  # noqa: S608
            f" where application_name = '{name}'"
        )
        assert alive(database.server, name) == 0
        storage.append("t", 1, b"x")
        assert alive(database.server, name) == 1


# Processes


def test_a_child_has_connections_of_its_own(
    database: Database, storage: PostgresCheckpointStorage
) -> None:
    storage.append("t", 1, b"parent")
    before = backend(storage)

    def child() -> object:
        first = backend(storage)
        storage.append("t", 2, b"child")
        return first, storage.read("t", 1), storage.head("t"), backend(storage) == first

    told = forked(child)
    assert told.endswith(", b'parent', 2, True)")
    assert str(before) not in told
    assert backend(storage) == before
    storage.append("t", 3, b"parent")


ENDS: dict[str, Callable[[PostgresCheckpointStorage], object]] = {
    "closes": lambda storage: storage.close(),
    "leaves": lambda storage: storage.__exit__(None, None, None),
    "forgets": lambda storage: gc.collect(),
    "works and closes": lambda storage: storage.__exit__(storage.head("t")),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_child_that_ends_leaves_its_parents_connections_open(
    database: Database,
    name: str,
    storage: PostgresCheckpointStorage,
    end: Callable[[PostgresCheckpointStorage], object],
) -> None:
    deep(storage, 3)
    before = backend(storage)
    forked(lambda: end(storage))
    assert alive(database.server, name) == 3
    assert backend(storage) == before


def test_a_child_of_a_parent_that_is_busy_is_not_stuck(
    storage: PostgresCheckpointStorage,
) -> None:
    """All connections were in use, and the lock taken, at the moment of the fork."""
    said: list[str] = []

    def busy(depth: int) -> None:
        if depth:
            storage._server.run(lambda _: busy(depth - 1))
        else:
            with storage._server._lock:
                said.append(forked(lambda: storage.head("t")))

    busy(4)
    assert said == ["0"]
    assert storage.head("t") == 0


def test_threads_of_a_child_begin_anew_together(storage: PostgresCheckpointStorage) -> None:
    storage.append("t", 1, b"x")

    def child() -> object:
        told: list[object] = []
        start = threading.Barrier(8)

        def look() -> None:
            start.wait()
            try:
                told.append(storage.read("t", 1))
            except BaseException as error:  # noqa: BLE001  told below
                told.append(error)

        threads = [threading.Thread(target=look) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return told == [b"x"] * 8 or told

    assert forked(child) == "True"


# Closing


def test_after_close_the_next_call_opens_one_again(
    database: Database, name: str, storage: PostgresCheckpointStorage
) -> None:
    deep(storage, 4)
    assert alive(database.server, name) == 4
    storage.close()
    storage.close()
    assert eventually_none(database, name)
    storage.append("t", 1, b"x")
    assert alive(database.server, name) == 1


def eventually_none(database: Database, name: str) -> bool:
    """The server needs a moment to see that a client has gone."""
    return any(alive(database.server, name) == 0 for _ in range(100))


def test_a_storage_that_is_let_go_leaves_no_connection(database: Database, name: str) -> None:
    storage = PostgresCheckpointStorage(named(database.worker(1), name))
    assert alive(database.server, name) == 1
    del storage
    gc.collect()
    assert eventually_none(database, name)


# What each one is set to


def test_each_connection_is_pinned_down(storage: PostgresCheckpointStorage) -> None:
    assert {
        setting: show(storage, setting)
        for setting in (
            "search_path",
            "statement_timeout",
            "lock_timeout",
            "idle_in_transaction_session_timeout",
            "default_transaction_isolation",
            "synchronous_commit",
        )
    } == {
        "search_path": "pg_catalog,pg_temp",
        "statement_timeout": "5s",
        "lock_timeout": "5s",
        "idle_in_transaction_session_timeout": "5s",
        "default_transaction_isolation": "read committed",
        "synchronous_commit": "on",
    }


def test_what_the_string_or_the_login_says_does_not_loosen_that(database: Database) -> None:
    """But what else a connection string sets is kept."""
    worker = database.dsn("loose", "safepoint_writer")
    for setting in (
        "search_path = public",
        "statement_timeout = 0",
        "synchronous_commit = off",
        "default_transaction_isolation = serializable",
        "datestyle = 'SQL, DMY'",
        "timezone = 'Asia/Kolkata'",
    ):
        database.server.psql(f"alter role loose set {setting}")
    options = "-c search_path=public -c statement_timeout=0 -c work_mem=8MB"
    dsn = psycopg.conninfo.make_conninfo(worker, options=options)
    with PostgresCheckpointStorage(dsn, wait_seconds=7) as storage:
        assert show(storage, "search_path") == "pg_catalog,pg_temp"
        assert show(storage, "statement_timeout") == "7s"
        assert show(storage, "synchronous_commit") == "on"
        assert show(storage, "default_transaction_isolation") == "read committed"
        assert show(storage, "work_mem") == "8MB"
        lease = storage.acquire("t", "w", 60)
        assert str(lease).endswith("Z")
        assert storage.renew(lease, 60).expires >= lease.expires
        assert storage.lease("t") is not None
        storage.release(lease)


def test_a_table_of_the_same_name_on_another_path_is_not_looked_at(database: Database) -> None:
    """A login that may create temporary tables cannot put one in the way of its own worker."""
    with PostgresCheckpointStorage(database.worker(1), connections=1) as storage:
        storage.append("t", 1, b"x")
        storage._server.run(
            lambda connection: connection.execute(
                "create temp table threads as select 't' as thread, 99 as head;"
                "create temp table checkpoints (thread text, sequence bigint, record bytea)"
            )
        )
        storage.append("t", 2, b"y")
        assert storage.head("t") == 2


def test_a_network_that_swallows_everything_is_noticed(
    storage: PostgresCheckpointStorage,
) -> None:
    """What was sent must be acknowledged, and a silent peer is asked, within the time to wait."""
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        pytest.skip("this system has no TCP_USER_TIMEOUT")

    def options(connection: Any) -> list[int]:
        with socket.socket(fileno=os.dup(connection.fileno())) as raw:
            return [
                raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
                raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
                raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
            ]

    assert storage._server.run(options) == [1, 5000, 5, 5, 2]
