"""An operator takes out of each thread what does not verify.

It starts a server of its own, in a temporary folder, and needs
pip install '.[try-postgres]'. Run it in an empty folder.
"""

import psycopg

from safepoint import (
    Keyring,
    Ledger,
    NotOwner,
    RolledBack,
    SealError,
    SigningKey,
)
from safepoint.core.errors import Forked, RecordsMissing
from safepoint.stores.postgres import (
    PostgresAnchor,
    PostgresCheckpointStorage,
    migrate,
)
from safepoint.testing.postgres import Server


# --8<-- [start:discard]
def discard_unverified(ledger, operator):
    """Mend what can be mended. Say of each bad thread what is next.

    Every key in use is on the ledger's ring. A server that is away
    is raised: run it again, as often as you like.
    """
    found = {}
    for thread in ledger.threads():
        last, seen = 0, ledger.anchor.read(ledger.store, thread)
        try:
            for checkpoint in ledger.history(thread):
                last = checkpoint.sequence
            continue  # all of it verifies
        except (SealError, RolledBack, Forked, RecordsMissing):
            if seen is not None and last < seen.sequence:
                found[thread] = "needs a backup: it was good once"
                continue
        try:
            operator.break_lease(thread)
            gone = operator.discard(thread, last)
            found[thread] = f"ends at {last}, without {gone}"
        except NotOwner:
            found[thread] = "was taken meanwhile: run this again"
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
    migrate(server.dsn(database="checkpoints"))
    for login, role in (
        ("worker_1", "safepoint_writer"),
        ("anchor_1", "safepoint_anchor"),
        ("operator_1", "safepoint_operator"),
    ):
        server.login(login, role)

    def place(login):
        return server.dsn(login, "checkpoints")

    ledger = opened(place)
    for thread in ("order-6", "order-7", "order-8", "order-8"):
        ledger.save(thread, {"payee": "alice"})
    run(  # a thief who has the login of the worker
        place("worker_1"),
        "insert into safepoint.records (thread, sequence, record)"
        " values ('order-7', 2, 'x')",
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
        #> order-7 ends at 1, without 1
        #> order-8 needs a backup: it was good once
    print(ledger.verify("order-6"), ledger.verify("order-7"))
    #> 1 1
