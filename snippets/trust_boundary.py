"""A ledger on a private folder, with its key kept somewhere else."""

from safepoint import (
    FileCheckpointStorage,
    Keyring,
    Ledger,
    SealError,
    SigningKey,
)

# The key lives where whoever writes the state cannot read it.
SigningKey.generate().to_file("signing.key")

ledger = Ledger(
    FileCheckpointStorage("state"),
    store="invoices",
    keys=Keyring(SigningKey.from_file("signing.key")),
)
ledger.save("order-7", {"amount": 42})

try:
    amount = ledger.latest("order-7").state["amount"]
except SealError as refusal:
    raise SystemExit(f"not resuming: {refusal}") from None
print(amount)
#> 42
