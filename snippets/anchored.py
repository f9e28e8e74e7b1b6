"""A ledger whose end cannot be cut off unnoticed."""

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    RolledBack,
    SigningKey,
    SQLiteAnchor,
)


def set_up():
    """Once, by hand. Later a missing key or anchor is refused."""
    SigningKey.from_file("keys/signing.key", create=True)
    SQLiteAnchor("anchor/heads.db", create=True)


def opened():
    """In production the three paths are on three volumes."""
    return Ledger(
        FileCheckpointStorage("state"),
        store="invoices",
        keys=Keyring(SigningKey.from_file("keys/signing.key")),
        anchor=SQLiteAnchor("anchor/heads.db"),
    )


def pay(ledger, thread):
    """Save what you are about to do, which anchors it; then do it."""
    seen = ledger.latest(thread)
    state = {**seen.state, "status": "paying"}
    ledger.save(thread, state, after=seen.sequence)
    return state["amount"]  # your bank's interface goes here


set_up()  # leave this line out of the service itself
try:
    ledger = opened()
    ledger.save("order-7", {"amount": 42, "status": "approved"})
    print("paid:", pay(ledger, "order-7"))
    #> paid: 42
except RolledBack as refusal:
    raise SystemExit(f"stop, and call somebody: {refusal}") from None
