"""Enable, capture, resume and rehydrate checkpoints."""

# --8<-- [start:enable]
from safepoint import (
    FileAnchor,
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SigningKey,
    Workflow,
)

key = SigningKey.from_file("keys/signing.key", create=True)

ledger = Ledger(
    FileCheckpointStorage("state"),
    store="invoices",
    keys=Keyring(key),
    anchor=FileAnchor("anchor", create=True),
)
# --8<-- [end:enable]

# --8<-- [start:capture]
bank = {"open": False}


def fetch(state):
    return {"amount": 42}


def approve(state):
    return {"approved": state["amount"] < 100}


def pay(state):
    if not bank["open"]:
        raise ConnectionError("the bank does not answer")
    return {"paid": state["amount"]}


invoice = Workflow("invoice", [fetch, approve, pay])
try:
    invoice.start(ledger, thread="order-7", order=7)
except ConnectionError as error:
    print(f"stopped: {error}")
    #> stopped: the bank does not answer

for checkpoint in ledger.history("order-7"):
    print(checkpoint.sequence, checkpoint.state["done"])
    #> 1 []
    #> 2 ['fetch']
    #> 3 ['fetch', 'approve']
# --8<-- [end:capture]

# --8<-- [start:resume]
bank["open"] = True

run = invoice.resume(ledger, thread="order-7")
print(run.done, run.state["paid"])
#> ('fetch', 'approve', 'pay') 42
# --8<-- [end:resume]

# --8<-- [start:rehydrate]
ledger = Ledger(
    FileCheckpointStorage("state"),
    store="invoices",
    keys=Keyring(SigningKey.from_file("keys/signing.key")),
    anchor=FileAnchor("anchor"),
)
fresh = Workflow("invoice", [fetch, approve, pay])

run = fresh.rehydrate(ledger, thread="order-7", sequence=2)
print(run.done, run.next, run.state["amount"])
#> ('fetch',) approve 42
# --8<-- [end:rehydrate]
