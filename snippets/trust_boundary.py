"""A ledger whose key is not where its state is."""

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SealBroken,
    SigningKey,
)

# In production: state on the volume that others may reach, the
# key in a folder that only this service can read.
key = SigningKey.from_file("keys/signing.key", create=True)
ledger = Ledger(
    FileCheckpointStorage("state"),
    store="invoices",
    keys=Keyring(key),
)
ledger.save("order-7", {"amount": 42})

try:
    amount = ledger.latest("order-7").state["amount"]
except SealBroken as refusal:
    raise SystemExit(f"not resuming: {refusal}") from None
print(amount)
#> 42
