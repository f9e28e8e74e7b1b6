"""Serve each customer their own threads, and say nothing of others.

Run it in an empty folder.
"""

import secrets

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    NotFound,
    SigningKey,
)
from safepoint.core.errors import InvalidId

ledger = Ledger(
    FileCheckpointStorage("orders"),
    store="invoices",
    keys=Keyring(SigningKey.from_file("keys/writer.key", create=True)),
)
sessions: dict[str, str] = {}


def log_in(customer):
    """Call it when your identity provider has said who this is."""
    cookie = secrets.token_urlsafe()
    sessions[cookie] = customer
    return cookie


def handle(request):
    """Return the status and the state of the thread that is named."""
    customer = sessions.get(request["cookie"])
    if customer is None:
        return 401, None
    # The session says whose thread it is. The request says which.
    mine = ledger.tenant(customer)
    try:
        return 200, mine.latest(request["thread"]).state
    except (NotFound, InvalidId):
        # The same answer, whether or not somebody else has it.
        return 404, None


ledger.tenant("acme").save("order-7", {"amount": 42})
acme, globex = log_in("acme"), log_in("globex")

print(handle({"cookie": acme, "thread": "order-7"}))
#> (200, {'amount': 42})
print(handle({"cookie": globex, "thread": "order-7"}))
#> (404, None)
print(handle({"cookie": globex, "thread": "no-such-order"}))
#> (404, None)
print(handle({"cookie": "acme", "thread": "order-7"}))
#> (401, None)
