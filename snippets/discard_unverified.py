"""An operator takes out of each thread what does not verify.

It starts a server of its own, in a temporary folder, and needs
pip install '.[try-postgres]'. Run it in an empty folder.
"""

from contextlib import suppress

import psycopg

from safepoint import (
    Keyring,
    Ledger,
    RolledBack,
    SealBroken,
    SigningKey,
)
from safepoint.core.errors import ThreadDeleted
from safepoint.stores.postgres import (
    PostgresAnchor,
    PostgresCheckpointStorage,
    create_schema,
)
from safepoint.testing.postgres import Server


# --8<-- [start:discard]
def discard_unverified(ledger, operator):
    """Take off what follows the anchored record, where that is bad.

    Every key in use is on the ledger's ring. Say of each bad thread
    what is next. A server that is away is raised: run it again, as
    often as you like.
    """
    bad = SealBroken, RolledBack
    found = {}
    for thread in ledger.threads():
        try:
            ledger.verify(thread)
            continue  # all of it verifies
        except bad:
            seen = ledger.anchored(thread)
        if seen is None:
            found[thread] = "was never anchored: look who began it"
            continue
        try:
            with suppress(ThreadDeleted):  # a good end, too
                ledger.load(thread, seen)
            gone = operator.discard(thread, seen.sequence)
            ledger.verify(thread)
            found[thread] = f"ends at {seen.sequence}, without {gone}"
        except bad:
            found[thread] = "needs a backup: it was good once"
    return found


# --8<-- [end:discard]
def opened(place):
    return Ledger(
        PostgresCheckpointStorage(place("worker_1")),
        store="invoices",
        keys=Keyring(SigningKey.from_file("writer.key", create=True)),
        anchor=PostgresAnchor(place("anchor_1")),
    )


def run(dsn, statement):
    with psycopg.connect(dsn) as connection:
        connection.execute(statement)


with Server() as server:
    server.database("checkpoints")
    create_schema(server.dsn(database="checkpoints"))
    for login, role in (
        ("worker_1", "safepoint_writer"),
        ("anchor_1", "safepoint_anchor"),
        ("operator_1", "safepoint_operator"),
    ):
        server.login(login, role)

    def place(login):
        return server.dsn(login, "checkpoints")

    ledger = opened(place)
    for number in (5, 6, 7, 8, 8):
        thread = f"order-{number}"
        ledger.save(thread, {"payee": "alice"})
    ledger.delete("order-5")
    run(  # a thief who has the login of the worker
        place("worker_1"),
        "insert into safepoint.records (thread, sequence, record)"
        " values ('order-5', 3, 'x'), ('order-7', 2, 'x')",
    )
    run(  # and one who administers the server
        place("postgres"),
        "set local session_replication_role = replica;"
        " update safepoint.records set record = 'x'"
        " where thread = 'order-8' and sequence = 2",
    )

    operator = PostgresCheckpointStorage(place("operator_1"))
    for thread, what in discard_unverified(ledger, operator).items():
        print(thread, what)
        #> order-5 ends at 2, without 1
        #> order-7 ends at 1, without 1
        #> order-8 needs a backup: it was good once
    print(ledger.verify("order-6"), ledger.verify("order-7"))
    #> 1 1
