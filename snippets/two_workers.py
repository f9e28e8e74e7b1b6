"""Two workers on PostgreSQL. One is killed, and the other takes over.

It starts a server of its own, in a temporary folder, and needs
pip install '.[try-postgres]'. Run it in an empty folder.
"""

import os
import subprocess
import sys
import time

from safepoint import Keyring, Ledger, NotOwner, SigningKey, Workflow
from safepoint.stores.postgres import (
    PostgresAnchor,
    PostgresCheckpointStorage,
    create_schema,
)
from safepoint.testing.postgres import Server

THREAD = "order-7"


def opened(login):
    """One login for the store, and another one for the anchor."""
    key = SigningKey.from_file("keys/writer.key", create=True)
    return Ledger(
        PostgresCheckpointStorage(f"user={login}"),
        store="invoices",
        keys=Keyring(key),
        anchor=PostgresAnchor("user=anchor_1"),
    )


def fetch(state):
    print("fetches the order", flush=True)
    return {"amount": 42}


def pay(state, call):
    # The bank drops a second request with the same key.
    print(f"asks the bank, with key {call.key}", flush=True)
    if "hang" in sys.argv:
        time.sleep(60)
    return {"paid": state["amount"]}


def ship(state):
    print("ships it", flush=True)
    return {"shipped": True}


invoice = Workflow("invoice", [fetch, pay, ship])


def work(login):
    """Take the thread as soon as nobody has it, and run it."""
    ledger = opened(login)
    name = login.replace("_", "-")
    owned, waits = None, False
    while owned is None:
        try:
            # Each step renews it. Make it longer than a step takes.
            owned = ledger.own(THREAD, name, seconds=10)
        except NotOwner as refusal:
            if not waits:
                print("waits: " + refusal.what.split(" until ")[0])
            waits = True
            time.sleep(0.2)
    with owned:
        print(f"has {THREAD} with token {owned.lease.token}")
        if THREAD in ledger.threads():
            invoice.resume(ledger, THREAD)
        else:
            invoice.start(ledger, THREAD)


def worker(login, *more):
    """Start another process, and let it talk to us."""
    command = [sys.executable, __file__, login, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def watch():
    """Let one worker begin, kill it, and let the other one go on."""
    with Server() as server:
        server.database("checkpoints")
        create_schema(server.dsn("postgres", "checkpoints"))
        for login in ("worker_1", "worker_2"):
            server.login(login, "safepoint_writer")
        server.login("anchor_1", "safepoint_anchor")
        os.environ.update(server.environ("checkpoints"))

        with worker("worker_1", "hang") as first:
            for line in first.stdout:
                yield f"worker-1 {line.rstrip()}"
                if "bank" in line:
                    break
            first.kill()
        yield "worker-1 was killed"

        with worker("worker_2") as second:
            for line in second.stdout:
                yield f"worker-2 {line.rstrip()}"
        count = opened("worker_2").verify(THREAD)
        yield f"{count} checkpoints verify"


if len(sys.argv) > 1 and sys.argv[1].startswith("worker_"):
    work(sys.argv[1])
else:
    for line in watch():
        print(line)
        #> worker-1 has order-7 with token 1
        #> worker-1 fetches the order
        #> worker-1 asks the bank, with key invoices/order-7/2/pay
        #> worker-1 was killed
        #> worker-2 waits: Thread order-7 is owned by worker-1 (login worker_1)
        #> worker-2 has order-7 with token 2
        #> worker-2 asks the bank, with key invoices/order-7/2/pay
        #> worker-2 ships it
        #> 4 checkpoints verify
