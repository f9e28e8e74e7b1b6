"""Own a thread while you work on it, and let nobody else write it."""

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


def open_ledger():
    key = SigningKey.from_file("keys/writer.key", create=True)
    return Ledger(
        FileCheckpointStorage("state"),
        store="invoices",
        keys=Keyring(key),
    )


def work(thread, worker):
    """Run one thread, unless another worker has it."""
    ledger = open_ledger()
    try:
        # Each step renews the lease. Make it longer than a step takes.
        with ledger.own(thread, worker, seconds=60):
            if thread in ledger.threads():
                return invoice.resume(ledger, thread)
            return invoice.start(ledger, thread)
    except NotOwner as refusal:
        print(refusal.what)
        return None


run = work("order-7", "worker-1")
print(run.state["request"])
#> invoices/order-7/2/pay
