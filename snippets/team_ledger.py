"""A ledger for a team: store, anchor and journal under three logins.

Run it in an empty folder. It connects as psql does. Without PGHOST it
starts a PostgreSQL of its own, to try.
"""

import os
from contextlib import contextmanager

from safepoint import Actor, Keyring, Ledger, SigningKey
from safepoint.core.errors import Unavailable
from safepoint.stores.postgres import (
    PostgresAnchor,
    PostgresCheckpointStorage,
    PostgresJournal,
    create_schema,
)


def place(login):
    """No password: it is in the file that PGPASSFILE names."""
    return f"dbname=checkpoints user={login}"


def ring(name):
    return Keyring(SigningKey.from_file(f"keys/{name}.key"))


def opened(place=place):
    anchor = PostgresAnchor(place("anchor_1"))
    return Ledger(
        PostgresCheckpointStorage(place("worker_1")),
        store="invoices",
        keys=ring("signing"),
        anchor=anchor,
        journal=PostgresJournal(
            place("journal_1"), keys=ring("journal"), anchor=anchor
        ),
        actor=Actor("worker-1", how="login worker_1"),
    )


def work(place=place):
    ledger = opened(place)
    with ledger.own("order-10", "worker-1", seconds=60):
        ledger.save("order-10", {"amount": 42, "status": "approved"})
        ledger.save("order-10", {"amount": 42, "status": "paid"})

    again = opened(place)  # as another process would
    print(again.latest("order-10").state)
    #> {'amount': 42, 'status': 'paid'}
    for entry in again.journal.show(thread="order-10"):
        print(entry.number, entry.what, entry.actor.name)
        #> 1 own worker-1
        #> 2 save worker-1
        #> 3 save worker-1
    try:
        again.prune("order-10", keep=1)
    except Unavailable as refusal:
        print("prune:", refusal.what.partition(": ")[2])
        #> prune: permission denied for function prune.


@contextmanager
def trial():
    """What an administrator does, once, on a server that goes away."""
    from safepoint.testing.postgres import Server

    with Server() as server:
        server.database("checkpoints")
        create_schema(server.dsn(database="checkpoints"))
        for part in ("anchor", "journal"):
            server.login(f"{part}_1", f"safepoint_{part}")
        server.login("worker_1", "safepoint_writer")
        yield lambda login: server.dsn(login, "checkpoints")


for name in ("signing", "journal"):  # leave this out of the service
    SigningKey.from_file(f"keys/{name}.key", create=True)
if "PGHOST" in os.environ:
    work()
else:
    with trial() as at_the_trial:
        work(at_the_trial)
