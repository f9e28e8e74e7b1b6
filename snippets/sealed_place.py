"""A writer that seals, and a reader that verifies and cannot write."""

from pathlib import Path

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SealBroken,
    SigningKey,
)
from safepoint.core.keys import VerifyingKey


def open_writer():
    """In the service that runs the workflow: it holds the secret."""
    key = SigningKey.from_file("keys/signing.key", create=True)
    if not Path("keys/reader.key").exists():
        key.public.to_file("keys/reader.key")
    storage = FileCheckpointStorage("state")
    return Ledger(storage, store="invoices", keys=Keyring(key))


def open_reader():
    """Where people only look: with this key nothing can be sealed."""
    key = VerifyingKey.from_file("keys/reader.key")
    storage = FileCheckpointStorage("state")
    return Ledger(storage, store="invoices", keys=Keyring(verify=key))


open_writer().save("order-7", {"amount": 42})

try:
    amount = open_reader().latest("order-7").state["amount"]
except SealBroken as refusal:
    raise SystemExit(f"not to be trusted: {refusal}") from None
print(amount)
#> 42
