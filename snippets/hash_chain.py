"""Follow every link before you rely on the past."""

from safepoint import (
    CheckpointError,
    FileCheckpointStorage,
    Keyring,
    Ledger,
    NotFound,
    SigningKey,
)


def check_all(ledger):
    """Verify every thread: on a schedule, and after a restore."""
    count = 0
    for thread in ledger.threads():
        count += ledger.verify(thread)
    return count


def past(ledger, thread, sequence):
    """Return an old checkpoint that all later ones were built on."""
    found = None
    for checkpoint in ledger.history(thread):  # to the very end
        if checkpoint.sequence == sequence:
            found = checkpoint
    if found is None:
        raise NotFound(f"{thread} has no #{sequence}.", "Look again.")
    return found


ledger = Ledger(
    FileCheckpointStorage("state"),
    store="invoices",
    keys=Keyring(SigningKey.from_file("keys/sign.key", create=True)),
)
for amount in (42, 43, 44):
    ledger.save("order-7", {"amount": amount})

try:
    print("verified:", check_all(ledger))
    #> verified: 3
    print(past(ledger, "order-7", 2).state)
    #> {'amount': 43}
except CheckpointError as refusal:
    raise SystemExit(f"the past was changed: {refusal}") from None
