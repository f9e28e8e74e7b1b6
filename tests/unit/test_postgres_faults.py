"""PostgreSQL and what goes wrong: what was acknowledged is there, once, and nobody cries wolf."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from safepoint import Keyring, Ledger, SigningKey
from safepoint.anchor.postgres import PostgresAnchor
from safepoint.errors import NotOwner, StorageUnavailable
from safepoint.storage.postgres import PostgresCheckpointStorage, migrate
from safepoint.testing.postgres import Server
from safepoint.testing.postgres._process import free_port
from tests.harness.postgres import Database
from tests.unit.postgres_helpers import Network, Workers, refusal

KEYS = Keyring(SigningKey(bytes(range(32))))

# Saves to two threads of its own, and remembers what was acknowledged. It catches nothing.
WORKER = """
    import json, sys
    from safepoint import Keyring, Ledger, SigningKey
    from safepoint.anchor.postgres import PostgresAnchor
    from safepoint.storage.postgres import PostgresCheckpointStorage

    dsn, heads, name, count = sys.argv[1:]
    ledger = Ledger(
        PostgresCheckpointStorage(dsn, wait_seconds=40),
        store="invoices",
        keys=Keyring(SigningKey(bytes(range(32)))),
        anchor=PostgresAnchor(heads, wait_seconds=40),
    )
    print("ready", flush=True)
    sys.stdin.readline()
    saved = []
    for number in range(int(count)):
        thread = f"{name}-{number % 2}"
        checkpoint = ledger.save(thread, {"n": number})
        saved.append([thread, checkpoint.sequence, number])
        assert ledger.latest(thread).state == {"n": number}
    print(json.dumps(saved))
"""
COUNT = 120


@pytest.fixture(scope="module")
def killable() -> Iterator[Server]:
    """A server that comes back where it was."""
    with Server(port=free_port()) as server:
        server.database("checkpoints")
        migrate(server.dsn(database="checkpoints"))
        for number in (1, 2, 3):
            server.login(f"worker_{number}", "safepoint_writer")
        server.login("heads", "safepoint_anchor")
        yield server


def arguments(server: Server, run: str) -> list[list[str]]:
    return [
        [
            server.dsn(f"worker_{number}", "checkpoints"),
            server.dsn("heads", "checkpoints"),
            f"{run}-{number}",
            str(COUNT),
        ]
        for number in (1, 2, 3)
    ]


def saved_so_far(server: Server, run: str) -> int:
    return int(
        server.psql(
            f"select count(*) from safepoint.checkpoints where thread like '{run}-%'",  # noqa: S608
            database="checkpoints",
        )
    )


def check(server: Server, run: str, told: list[str]) -> None:
    """All that was acknowledged is there as it was, once, and verifies with the anchor."""
    acknowledged = [each for said in told for each in json.loads(said)]
    assert len(acknowledged) == 3 * COUNT
    with (
        PostgresCheckpointStorage(server.dsn("worker_1", "checkpoints")) as storage,
        PostgresAnchor(server.dsn("heads", "checkpoints")) as anchor,
    ):
        ledger = Ledger(storage, store="invoices", keys=KEYS, anchor=anchor)
        threads = {thread for thread in storage.threads() if thread.startswith(f"{run}-")}
        found = [
            [thread, checkpoint.sequence, checkpoint.state["n"]]
            for thread in threads
            for checkpoint in ledger.history(thread)
        ]
        assert sorted(found) == sorted(acknowledged)
        for thread in threads:
            assert ledger.verify(thread) == COUNT // 2
            known = anchor.read("invoices", thread)
            assert known is not None
            assert known.sequence == COUNT // 2


def test_a_server_that_is_killed_under_load_and_comes_back(killable: Server) -> None:
    """SIGKILL to all its processes, twice. No worker sees an error, and nothing is lost."""
    with Workers(WORKER, arguments(killable, "kill")) as workers:
        workers.go()
        for already in (30, 150):
            while saved_so_far(killable, "kill") < already:
                time.sleep(0.02)
            killable.kill()
            assert not any(process.poll() for process in workers.processes)
            killable.start()
        assert saved_so_far(killable, "kill") < 3 * COUNT, "it was under load"
        check(killable, "kill", workers.ends())


def test_connections_that_an_administrator_ends_under_load(killable: Server) -> None:
    ended = 0
    with Workers(WORKER, arguments(killable, "end")) as workers:
        workers.go()
        for already in (30, 80, 130, 180, 230):
            while saved_so_far(killable, "end") < already:
                time.sleep(0.02)
            ended += int(
                killable.psql(
                    "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                    " where application_name = 'safepoint'"
                )
            )
        check(killable, "end", workers.ends())
    assert ended >= 5, "it was under load"


def test_a_server_that_does_not_come_back(killable: Server) -> None:
    dsn = killable.dsn("worker_1", "checkpoints")
    with PostgresCheckpointStorage(dsn, wait_seconds=0.5) as storage:
        storage.append("gone", 1, b"one")
        killable.kill()
        try:
            away = (
                "The server of database 'checkpoints' (login 'worker_1') does not answer. Start it,"
                " or correct host and port. To try one out: safepoint try-postgres"
                " FOLDER"
            )
            assert refusal(StorageUnavailable, lambda: storage.read("gone", 1)) == away
            assert refusal(StorageUnavailable, lambda: storage.append("gone", 2, b"two")) == away
        finally:
            killable.start()
        assert (storage.read("gone", 1), storage.head("gone")) == (b"one", 1)
        storage.append("gone", 2, b"two")


# A connection that is cut in the middle of a save

INSERT = b"insert into safepoint.checkpoints"


def through(database: Database, network: Network) -> str:
    return make_conninfo(database.worker(1), port=str(network.port))


@pytest.mark.parametrize("how", ["before", "during", "after"])
@pytest.mark.parametrize("times", [1, 3], ids=["once", "three times"])
def test_a_save_whose_connection_is_cut_is_saved_once(
    database: Database, how: str, times: int
) -> None:
    with (
        Network(database.server.port, times=times) as network,
        PostgresCheckpointStorage(through(database, network)) as storage,
    ):
        storage.append("t", 1, b"one")
        network.lose(INSERT, how)
        storage.append("t", 2, b"two")
        assert network.lost == times
        storage.append("t", 3, b"three")
        assert list(storage.scan("t", 1, 3)) == [b"one", b"two", b"three"]
        assert storage.head("t") == 3


def test_also_the_first_of_a_thread_and_under_a_lease(database: Database) -> None:
    with (
        Network(database.server.port, times=2) as network,
        PostgresCheckpointStorage(through(database, network)) as storage,
    ):
        network.lose(INSERT, "after")
        storage.append("free", 1, b"one")
        lease = storage.acquire("leased", "worker-a", 60)
        storage.append("leased", 1, b"one", fence=lease.token)
        assert network.lost == 2
        assert (storage.head("free"), storage.head("leased")) == (1, 1)


def test_a_save_that_arrived_counts_also_if_the_thread_was_taken_over_since(
    database: Database,
) -> None:
    """Its answer was lost, and before it is asked again another worker owns the thread."""
    with PostgresCheckpointStorage(database.worker(2)) as other:

        class Late(Network):
            def _cuts(self, data: bytes, server: object) -> bool:
                cut = super()._cuts(data, server)  # type: ignore[arg-type]
                if cut:
                    storage.release(lease)
                    other.acquire("t", "worker-b", 60)
                return cut

        with (
            Late(database.server.port) as network,
            PostgresCheckpointStorage(through(database, network)) as storage,
        ):
            lease = storage.acquire("t", "worker-a", 60)
            network.lose(INSERT, "after")
            storage.append("t", 1, b"one", fence=lease.token)
            assert network.lost == 1
            with pytest.raises(NotOwner):
                storage.append("t", 2, b"two", fence=lease.token)
        assert (other.head("t"), other.read("t", 1)) == (1, b"one")


@pytest.mark.parametrize(("how", "head"), [("before", 1), ("after", 2)])
def test_a_network_that_is_cut_and_stays_away(database: Database, how: str, head: int) -> None:
    """Nobody can know whether it was saved, so it says that, and what to do."""
    with (
        Network(database.server.port, away=True) as network,
        PostgresCheckpointStorage(through(database, network), wait_seconds=0.5) as storage,
        PostgresCheckpointStorage(database.worker(1)) as later,
    ):
        storage.append("t", 1, b"one")
        network.lose(INSERT, how)
        assert refusal(StorageUnavailable, lambda: storage.append("t", 2, b"two")) == (
            f"The server of database '{database.name}' (login 'worker_1') does not answer. Whether"
            " checkpoint 2 of thread 't' was saved is not known. Load the latest checkpoint once"
            " the server is back, and go on from that."
        )
        assert later.head("t") == head


@pytest.mark.parametrize(("how", "head"), [("before", 1), ("after", 2)])
def test_a_ledger_goes_on_after_that(database: Database, how: str, head: int) -> None:
    """It loads the latest, as the message says, and neither loses nor doubles a step."""
    with PostgresAnchor(database.anchor) as anchor:

        def ledger(storage: PostgresCheckpointStorage) -> Ledger:
            return Ledger(storage, store="invoices", keys=KEYS, anchor=anchor)

        with (
            Network(database.server.port, away=True) as network,
            PostgresCheckpointStorage(through(database, network), wait_seconds=0.5) as cut,
        ):
            before = ledger(cut)
            before.save("t", {"step": 1})
            network.lose(INSERT, how)
            assert "is not known" in refusal(
                StorageUnavailable, lambda: before.save("t", {"step": 2})
            )
        with PostgresCheckpointStorage(database.worker(1)) as storage:
            after = ledger(storage)
            done = after.latest("t").state["step"]
            assert done == head
            for step in range(done + 1, 4):
                after.save("t", {"step": step})
            assert sorted(each.state["step"] for each in after.history("t")) == [1, 2, 3]
            assert after.verify("t") == 3


@pytest.mark.parametrize("how", ["before", "during", "after"])
def test_leases_and_prunes_can_be_asked_twice(database: Database, how: str) -> None:
    with PostgresCheckpointStorage(database.worker(1)) as worker:
        for number in (1, 2, 3):
            worker.append("t", number, b"%d" % number)
    with (
        Network(database.server.port, times=4) as network,
        PostgresCheckpointStorage(
            make_conninfo(database.operator, port=str(network.port))
        ) as storage,
    ):
        network.lose(b"safepoint.acquire", how)
        lease = storage.acquire("t", "op", 60)
        assert storage.lease("t") == lease, "the one that counts, whatever came of the first try"
        network.lose(b"safepoint.renew", how)
        lease = storage.renew(lease, 120)
        network.lose(b"safepoint.release", how)
        storage.release(lease)
        assert storage.lease("t") is None
        network.lose(b"safepoint.prune", how)
        storage.prune("t", 2, b"base")
        assert (network.lost, storage.base("t"), storage.head("t")) == (4, (2, b"base"), 3)


@pytest.mark.parametrize("how", ["before", "during", "after"])
def test_an_anchor_whose_connection_is_cut_moves_once(database: Database, how: str) -> None:
    with (
        Network(database.server.port) as network,
        PostgresAnchor(make_conninfo(database.anchor, port=str(network.port))) as anchor,
        PostgresCheckpointStorage(database.worker(1)) as storage,
    ):
        ledger = Ledger(storage, store="invoices", keys=KEYS, anchor=anchor)
        network.lose(b"insert into safepoint_anchor.heads", how)
        for step in (1, 2):
            ledger.save("t", {"step": step})
        assert network.lost == 1
        known = anchor.read("invoices", "t")
        assert known is not None
        assert known.sequence == 2
        assert ledger.verify("t") == 2


# A server that is busy


def test_a_thread_that_somebody_locks_stops_a_save_in_time(database: Database) -> None:
    with PostgresCheckpointStorage(database.worker(1), wait_seconds=0.5) as storage:
        storage.append("t", 1, b"one")
        with psycopg.connect(database.owner) as holder:
            holder.execute("select from safepoint.threads for update")
            assert refusal(StorageUnavailable, lambda: storage.append("t", 2, b"two")) == (
                f"The server of database '{database.name}' (login 'worker_1') took too long:"  # noqa: S608
                " canceling statement due to statement timeout. Nothing was done. See what it is"
                " busy with: select * from pg_stat_activity"
            )
            assert storage.head("t") == 1, "reading goes on"
            storage.append("u", 1, b"one")
        assert storage.head("t") == 1
        storage.append("t", 2, b"two")
        assert storage.read("t", 2) == b"two"


def test_a_save_that_waits_for_a_lock_after_it_was_cut_is_not_said_to_be_nothing(
    database: Database,
) -> None:
    """The first try goes on without its client. While it may, nobody says what comes of it."""
    with (
        Network(database.server.port) as network,
        PostgresCheckpointStorage(through(database, network), wait_seconds=0.5) as storage,
    ):
        storage.append("t", 1, b"one")
        with psycopg.connect(database.owner) as holder:
            holder.execute("select from safepoint.threads for update")
            network.lose(INSERT, "during")
            assert refusal(StorageUnavailable, lambda: storage.append("t", 2, b"two")) == (
                f"The server of database '{database.name}' (login 'worker_1') took too long:"
                " canceling statement due to statement timeout. Whether checkpoint 2 of thread 't'"
                " was saved is not known. Load the latest checkpoint once the server is back, and"
                " go on from that."
            )
        assert storage.head("t") == 1
        storage.append("t", 2, b"two")


# A worker that sleeps through its lease

SLEEPER = """
    import sys
    from safepoint import Keyring, Ledger, SigningKey
    from safepoint.anchor.postgres import PostgresAnchor
    from safepoint.errors import CheckpointError
    from safepoint.storage.postgres import PostgresCheckpointStorage

    dsn, heads = sys.argv[1:]
    ledger = Ledger(
        PostgresCheckpointStorage(dsn),
        store="invoices",
        keys=Keyring(SigningKey(bytes(range(32)))),
        anchor=PostgresAnchor(heads),
    )
    ledger.own("order-7", "worker-a", seconds=1)
    ledger.save("order-7", {"step": 1, "by": "a"})
    print("ready", flush=True)
    sys.stdin.readline()  # here it sleeps, with step 2 before it
    for call in (
        lambda: ledger.save("order-7", {"step": 2, "by": "a"}),
        lambda: ledger.keep("order-7"),
        lambda: ledger.storage.append("order-7", 3, b"x", fence=1),
        lambda: ledger.storage.append("order-7", 3, b"x"),
    ):
        try:
            print(call())
        except CheckpointError as refused:
            print(type(refused).__name__, refused, flush=True)
"""


def test_a_worker_that_is_paused_beyond_its_lease_is_refused_when_it_wakes(
    database: Database,
) -> None:
    """SIGSTOP, as a machine that is frozen. Another worker, with another login, takes over."""
    with (
        Workers(SLEEPER, [[database.worker(1), database.anchor]]) as workers,
        PostgresCheckpointStorage(database.worker(2)) as storage,
        PostgresAnchor(database.anchor) as anchor,
    ):
        first = workers.processes[0].pid
        os.kill(first, signal.SIGSTOP)
        ledger = Ledger(storage, store="invoices", keys=KEYS, anchor=anchor)
        held = storage.lease("order-7")
        assert held is not None
        while True:
            try:
                owned = ledger.own("order-7", "worker-b", seconds=60)
            except NotOwner as refused:
                assert "is owned by worker 'worker-a' under another login until" in str(refused)  # noqa: PT017
                time.sleep(0.1)
            else:
                break
        assert datetime.now(UTC) >= held.expires
        with owned:
            done = ledger.latest("order-7").state["step"]
            for step in range(done + 1, 4):
                ledger.save("order-7", {"step": step, "by": "b"})
            os.kill(first, signal.SIGCONT)
            workers.say(0)
            told = workers.ends()[0].splitlines()
            assert ledger.latest("order-7").sequence == 3
        steps = [each.state for each in ledger.history("order-7")]
        assert sorted((state["step"], state["by"]) for state in steps) == [
            (1, "a"),
            (2, "b"),
            (3, "b"),
        ]
        assert ledger.verify("order-7") == 3
    fenced = (
        "NotOwner Thread 'order-7' is owned by worker 'worker-b' with token 2, and this save"
        " carries token 1. Nothing was saved. Stop this run: another one took it over."
    )
    assert told == [
        fenced,
        (
            "NotOwner Thread 'order-7' is owned by worker 'worker-b' with token 2, and this lease"
            " of worker 'worker-a' has token 1. Stop this run: another one took it over."
        ),
        fenced,
        (
            "NotOwner Thread 'order-7' is owned by worker 'worker-b', and this save carries no"
            " token. Nothing was saved. Acquire the thread before you write to it."
        ),
    ]


# A worker that dies

DIES = """
    import os, signal, sys
    from safepoint import Keyring, Ledger, SigningKey
    from safepoint.anchor.postgres import PostgresAnchor
    from safepoint.storage.postgres import PostgresCheckpointStorage

    class Dying(PostgresAnchor):
        def advance(self, store, thread, head):
            if head.sequence == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            super().advance(store, thread, head)

    dsn, heads = sys.argv[1:]
    ledger = Ledger(
        PostgresCheckpointStorage(dsn),
        store="invoices",
        keys=Keyring(SigningKey(bytes(range(32)))),
        anchor=Dying(heads),
    )
    print("ready", flush=True)
    sys.stdin.readline()
    for step in range(1, 5):
        ledger.save("order-7", {"step": step})
"""


def test_a_worker_that_is_killed_between_its_save_and_the_anchor_is_no_alarm(
    database: Database,
) -> None:
    with Workers(DIES, [[database.worker(1), database.anchor]]) as workers:
        workers.go()
        assert workers.processes[0].wait(60) == -signal.SIGKILL
    with (
        PostgresCheckpointStorage(database.worker(1)) as storage,
        PostgresAnchor(database.anchor) as anchor,
    ):
        ledger = Ledger(storage, store="invoices", keys=KEYS, anchor=anchor)
        known = anchor.read("invoices", "order-7")
        assert known is not None
        assert known.sequence == 2
        assert ledger.latest("order-7").state == {"step": 3}
        assert ledger.verify("order-7") == 3
        assert ledger.save("order-7", {"step": 4}).sequence == 4
        known = anchor.read("invoices", "order-7")
        assert known is not None
        assert known.sequence == 4
