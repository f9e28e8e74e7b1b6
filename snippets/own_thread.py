"""Own a thread while you work on it, so that no other worker writes it.

Run it in an empty folder.
"""

import os
import re
import socket

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    NotOwner,
    SigningKey,
    Workflow,
)


def fetch(state):
    return {"amount": 42}


def pay(state, call):
    # The bank drops a second request with the same key.
    return {"paid": state["amount"], "request": call.key}


invoice = Workflow("invoice", [fetch, pay])


def opened():
    key = SigningKey.from_file("keys/writer.key", create=True)
    return Ledger(
        FileCheckpointStorage("orders"),
        store="invoices",
        keys=Keyring(key),
    )


def my_name():
    """No two live workers have one name: the host and the process."""
    host = re.sub("[^a-z0-9]", "-", socket.gethostname().lower())
    return f"worker-{host[:40]}-{os.getpid()}"


def work(thread):
    """Run one thread, unless another worker has it."""
    ledger = opened()
    try:
        # Each step renews the lease. Make it longer than a step takes.
        with ledger.own(thread, my_name(), seconds=60):
            if thread in ledger.threads():
                return invoice.resume(ledger, thread)
            return invoice.start(ledger, thread)
    except NotOwner as refusal:
        print(refusal.what)
        return None


run = work("order-8")
if run is not None:
    print(run.state["request"])
    #> invoices/order-8/2/pay
