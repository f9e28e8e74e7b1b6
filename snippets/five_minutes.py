"""Enable, capture, resume and rehydrate checkpoints."""

# --8<-- [start:enable]
from safepoint import (
    Keyring,
    Ledger,
    SigningKey,
    SQLiteAnchor,
    SQLiteCheckpointStorage,
    Workflow,
)

key = SigningKey.from_file("keys/signing.key", create=True)

ledger = Ledger(
    SQLiteCheckpointStorage("state/checkpoints.db"),
    store="invoices",
    keys=Keyring(key),
    anchor=SQLiteAnchor("anchor/heads.db", create=True),
)
# --8<-- [end:enable]

# --8<-- [start:capture]
bank = {"open": False}
requests: dict[str, int] = {}  # what the bank has seen


def fetch(state):
    return {"amount": 42}


def check(state):
    return {"checked": state["amount"] < 100}


def pay(state, call):
    if not bank["open"]:
        raise ConnectionError("the bank does not answer")
    requests.setdefault(call.key, state["amount"])
    return {"paid": requests[call.key]}


invoice = Workflow("invoice", [fetch, check, pay])
try:
    invoice.start(ledger, thread="order-7", order=7)
except ConnectionError as error:
    print(f"stopped: {error}")
    #> stopped: the bank does not answer

for checkpoint in ledger.history("order-7"):
    print(checkpoint.sequence, checkpoint.state["done"])
    #> 1 []
    #> 2 ['fetch']
    #> 3 ['fetch', 'check']
# --8<-- [end:capture]

# --8<-- [start:resume]
bank["open"] = True

run = invoice.resume(ledger, thread="order-7")
print(run.done, run.state["paid"])
#> ('fetch', 'check', 'pay') 42
print(requests)
#> {'invoices/order-7/3/pay': 42}
# --8<-- [end:resume]

# --8<-- [start:stopped]
invoice.begin(ledger, thread="order-8", order=8).step()
# --8<-- [end:stopped]

# Another process, another day:
ledger = Ledger(
    SQLiteCheckpointStorage("state/checkpoints.db"),
    store="invoices",
    keys=Keyring(SigningKey.from_file("keys/signing.key")),
    anchor=SQLiteAnchor("anchor/heads.db"),
)
fresh = Workflow("invoice", [fetch, check, pay])

run = fresh.rehydrate(ledger, thread="order-8")
print(run.done, run.next, run.state["amount"])
#> ('fetch',) check 42
